"""Tests of what a cell denies. Each has a positive control: the same attempt outside, or one inside that differs in one thing."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest

from aileron_sandbox import kernel
from tests.sandbox.cells import ENVIRONMENT, PYTHON, TERMINAL, outside, policy_of, run, tried

pytestmark = pytest.mark.jail

NEWUSER, NEWNS, NEWNET = 0x10000000, 0x00020000, 0x40000000
CLONE_FILES = 0x400
SETUID, SETGID = 0o4000, 0o2000
AF_VSOCK = 40
NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_KOBJECT_UEVENT = 0, 4, 15
TIOCSTI, TIOCLINUX, TIOCSETD = 0x5412, 0x541C, 0x5423
ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC, QUERY = 0x0040000, 0x0400000, 0xFFFFFFFF
KEYCTL, IO_URING_SETUP, OPENAT2, BPF, PERF, VMSPLICE = (
    (250, 425, 437, 321, 298, 278) if os.uname().machine == "x86_64" else (219, 425, 437, 280, 241, 75)
)
SIGTERM, SIGKILL, SIGCONT = 15, 9, 18


def test_a_cell_has_no_privilege_and_its_own_host_name(folder: Path) -> None:
    """The ids are the person's, every capability set is empty, and no privilege can be gained."""
    answers = tried(
        policy_of(folder),
        *(["status", name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")),
        ["facts"],
    )
    *capabilities, no_new_privs, seccomp, facts = answers

    assert {int(value, 16) for value in capabilities} == {0}
    assert (no_new_privs, seccomp) == ("1", "2")
    umask = os.umask(0)
    os.umask(umask)
    assert facts == {
        "uid": os.getuid(),
        "gid": os.getgid(),
        "host": "cell",
        "folder": str(folder),
        "umask": umask,
        "parent": 1,
        "environment": ENVIRONMENT,
    }


def test_a_cell_has_its_own_namespaces(folder: Path) -> None:
    """Cell and host share no namespace of the seven kinds."""
    (inside,) = tried(policy_of(folder), ["namespaces_of", "self"])
    (here,) = outside(["namespaces_of", "self"])

    assert inside.keys() == here.keys()
    assert not set(inside.values()) & set(here.values())


def test_no_namespace_can_be_made_in_a_cell(folder: Path) -> None:
    """unshare, clone and mount are refused; what unshare and clone do without namespaces works."""
    answers = tried(
        policy_of(folder),
        ["unshare", NEWUSER],
        ["unshare", NEWUSER | NEWNS],
        ["unshare", CLONE_FILES],
        ["clone", NEWUSER],
        ["clone", NEWNET | NEWUSER],
        ["clone", 0],
        ["mount", "/tmp"],
    )

    assert outside(["unshare", NEWUSER], ["clone", NEWUSER]) == [0, "ok"]
    assert answers == ["EPERM", "EPERM", 0, "EPERM", "EPERM", "ok", "EPERM"]


def test_no_proc_file_that_changes_the_machine_can_be_written_in_a_cell(folder: Path) -> None:
    """Files in /proc outside those of processes cannot be opened to write, even by a root, who could write there outside."""
    answers = tried(
        policy_of(folder),
        ["open_to_write", "/proc/sys/kernel/hostname"],
        ["open_to_write", "/proc/sys/vm/drop_caches"],
        ["open_to_write", "/proc/sysrq-trigger"],
        ["writable_in_proc"],
        ["open_to_write", "/proc/self/oom_score_adj"],
    )

    assert answers[:2] == ["EROFS", "EROFS"] if os.getuid() == 0 else set(answers[:2]) <= {"EROFS", "EACCES"}
    assert answers[2] in ("EROFS", "ENOENT", "EACCES")
    assert answers[3:] == [[], "ok"]


def test_proc_shows_no_kernel_secrets(folder: Path) -> None:
    """The files that are closed in the cell can be read outside; harmless ones can be read in the cell too."""
    answers = tried(policy_of(folder), ["read", "/proc/kallsyms"], ["read", "/proc/keys"], ["read", "/proc/meminfo"])

    assert isinstance(outside(["read", "/proc/keys"])[0], str)
    assert answers[:2] == ["EACCES", "EACCES"]
    assert "MemTotal" in answers[2]


@pytest.mark.parametrize("bit", [SETUID, SETGID])
def test_no_file_can_be_made_setuid_or_setgid(folder: Path, bit: int) -> None:
    """chmod and the creation of a file are both refused with the bit; without the bit both work."""
    (folder / "file").touch()
    answers = tried(
        policy_of(folder),
        ["chmod", f"{folder}/file", 0o755 | bit],
        ["make", f"{folder}/new", 0o755 | bit],
        ["chmod", f"{folder}/file", 0o755],
        ["make", f"{folder}/new", 0o755],
    )

    (folder / "control").touch()
    assert outside(["chmod", f"{folder}/control", 0o755 | bit]) == [oct(0o755 | bit)]
    assert answers == ["EPERM", "EPERM", "0o755", "0o755"]


def test_a_setuid_program_gains_nothing(folder: Path) -> None:
    """`su` exists in the cell, but runs with the person's id like any other program."""
    ran = run(
        policy_of(folder), ["sh", "-c", "su -c id </dev/null; echo $?; grep -E '^(Uid|CapEff)' /proc/self/status"]
    )

    assert f"Uid:\t{os.getuid()}\t" in ran.out
    assert "CapEff:\t0000000000000000" in ran.out


def test_sockets_of_only_four_families_can_be_made(folder: Path) -> None:
    """Raw sockets and vsock, which ignores namespaces, are refused; netlink can be used only for routes."""
    inet, inet6, unix, netlink, packet = (
        int(family) for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET)
    )
    stream, dgram, raw, seqpacket = (
        int(kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET)
    )
    answers = tried(
        policy_of(folder),
        ["new_socket", AF_VSOCK, stream],
        ["new_socket", packet, raw],
        ["new_socket", inet, raw, 1],
        ["new_socket", inet6, raw, 17],
        ["new_socket", inet, seqpacket],
        ["new_socket", netlink, raw, NETLINK_SOCK_DIAG],
        ["new_socket", netlink, raw, NETLINK_KOBJECT_UEVENT],
        ["new_socket", netlink, raw, NETLINK_ROUTE],
        ["new_socket", inet, stream],
        ["new_socket", inet6, dgram],
        ["new_socket", unix, stream],
        ["new_socket", unix, dgram],
    )

    assert outside(["new_socket", AF_VSOCK, stream]) == ["ok"]
    assert outside(["new_socket", netlink, raw, NETLINK_SOCK_DIAG]) == ["ok"]
    assert answers == [
        "EAFNOSUPPORT", "EAFNOSUPPORT", "EPERM", "EPERM", "EPERM", "EPROTONOSUPPORT", "EPROTONOSUPPORT", *["ok"] * 5
    ]  # fmt: skip


def test_an_abstract_socket_of_the_host_cannot_be_reached(folder: Path) -> None:
    """Abstract names belong to a network namespace, and the cell has its own."""
    name = f"aileron-cell-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen()
        assert outside(["connect_abstract", name]) == ["ok"]
        assert tried(policy_of(folder), ["connect_abstract", name]) == ["ECONNREFUSED"]


def test_a_program_in_a_cell_cannot_inject_input_into_its_terminal(folder: Path) -> None:
    """TIOCSTI, TIOCLINUX and line disciplines are refused, even with bits that the kernel ignores; reading the size works."""
    answers = tried(
        policy_of(folder),
        ["terminal_input", TIOCSTI],
        ["terminal_input", TIOCLINUX],
        ["terminal_input", TIOCSETD],
        ["terminal_input", 0x5410],
    )

    assert answers[:3] == ["EPERM"] * 3
    assert answers[3] != "EPERM"


def test_calls_that_attack_the_kernel_are_refused(folder: Path) -> None:
    """Each fails with the published errno; personality(2) works as far as a debugger needs it."""
    answers = tried(
        policy_of(folder),
        ["call", KEYCTL, 0, 0, 0, 0],
        ["call", BPF, 0, 0, 0],
        ["call", PERF, 0, 0, 0, 0, 0],
        ["call", IO_URING_SETUP, 1, 0],
        ["call", OPENAT2, 0, 0, 0, 0],
        ["call", VMSPLICE, 0, 0, 0, 0],
        ["call", 470, 0],
        ["personality", ADDR_NO_RANDOMIZE],
        ["personality", QUERY],
        ["personality", READ_IMPLIES_EXEC],
    )

    assert answers[:7] == [*["EPERM"] * 3, *["ENOSYS"] * 4]
    assert answers[7] == answers[8] == 0
    assert answers[9] == "EPERM"
    assert outside(["personality", READ_IMPLIES_EXEC])[0] == 0


def test_an_agent_can_debug_its_child_but_not_the_cells_first_process(folder: Path) -> None:
    """Process 1 cannot be attached to, read or signalled."""
    answers = tried(
        policy_of(folder),
        ["attach", 1],
        ["read", "/proc/1/environ"],
        ["read", "/proc/1/maps"],
        ["open_to_write", "/proc/1/mem"],
        ["namespaces_of", "1"],
        ["attach_child"],
        ["kill", 1, SIGKILL],
        ["kill", 1, SIGCONT],
    )

    # A root could open it by number, if the mount were not read-only.
    assert answers[:5] == ["EPERM", "EACCES", "EACCES", "EACCES" if os.getuid() else "EROFS", "EACCES"]
    assert answers[5] == "ok"
    scoped = kernel.landlock_abi() >= 6
    assert answers[6:] == (["EPERM", "EPERM"] if scoped else ["ok", "ok"])  # without the scope, pid 1 does not feel it


def test_a_cell_inherits_only_its_three_standard_descriptors(folder: Path) -> None:
    """This holds with pipes and with a terminal, whatever this process has open."""
    extra = os.open("/etc/passwd", os.O_RDONLY)
    os.set_inheritable(extra, True)
    try:
        assert tried(policy_of(folder), ["descriptors"]) == [[0, 1, 2]]
        ran = run(policy_of(folder), [PYTHON, "-I", "-S", "/probe.py", '[["descriptors"]]'], TERMINAL)
        assert ran.out.strip() == "[[0, 1, 2]]"
    finally:
        os.close(extra)


def test_the_limits_are_those_of_the_policy(folder: Path) -> None:
    """The policy sets the limits on descriptors, file size, processes and core files."""
    wanted = {
        resource.RLIMIT_NOFILE: 1000,
        resource.RLIMIT_FSIZE: 1 << 21,
        resource.RLIMIT_NPROC: 512,
        resource.RLIMIT_CORE: 0,
    }
    policy = policy_of(folder, open_files=1000, file_bytes=1 << 21, processes=512)

    assert tried(policy, *(["limit", int(kind)] for kind in wanted)) == list(wanted.values())


def test_a_cell_gets_at_most_half_of_each_limit_that_counts_per_user(folder: Path) -> None:
    """Timers, pending signals and message queues count for the whole user: the other half stays with the person."""
    kinds = (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE)
    halves = [most if most == resource.RLIM_INFINITY else most // 2 for _, most in map(resource.getrlimit, kinds)]

    *limits, timers = tried(policy_of(folder), *(["limit", int(kind)] for kind in kinds), ["timers", halves[0] + 1])
    assert limits == halves
    assert halves[0] == resource.RLIM_INFINITY or timers == halves[0]
    assert outside(["timers", 10]) == [10]


def test_the_number_of_processes_is_bounded(folder: Path) -> None:
    """The bound also holds for root, for whom the kernel ignores RLIMIT_NPROC."""
    (few,) = tried(policy_of(folder, processes=64), ["forks", 450])
    (many,) = tried(policy_of(folder, processes=1000), ["forks", 450])

    assert few != many
    assert many == 450
    assert few < 64 + 300 + 1  # a pid namespace adds its first 300 ids, once
