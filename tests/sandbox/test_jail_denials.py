"""Tests of what a jailed program cannot do: the errno or the end it gets, beside the same attempt where it works."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from aileron_sandbox.ending import Exited, NetworkAttempt, Signalled
from aileron_sandbox.jail import Template
from aileron_sandbox.policy import Policy
from tests.sandbox.conftest import program
from tests.sandbox.processes import end_beside_a_stopped_template
from tests.sandbox.seen import Seen

pytestmark = pytest.mark.jail
Jailed = Callable[..., Seen]
Free = Callable[..., Any]

X86_64 = os.uname().machine == "x86_64"
NUMBERS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "mount": (165, 40),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "pidfd_getfd": (438, 438),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "kexec_load": (246, 104),
    "pivot_root": (155, 41),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "kcmp": (312, 272),
}
REFUSED = {
    "memfd_create": ((319, 279), "EPERM"),
    "seccomp": ((317, 277), "EPERM"),
    "clone3": ((435, 435), "ENOSYS"),
    "pidfd_open": ((434, 434), "EPERM"),
    "execveat": ((322, 281), "EPERM"),
    "setpriority": ((141, 140), "EPERM"),
    "sched_setaffinity": ((203, 122), "EPERM"),
    "personality": ((135, 92), "EPERM"),
    "shmget": ((29, 194), "EPERM"),
    "mq_open": ((240, 180), "EPERM"),
    "connect": ((42, 203), "EACCES"),
    "bind": ((49, 200), "EACCES"),
    "listen": ((50, 201), "EPERM"),
    "accept4": ((288, 242), "EPERM"),
    "setsockopt": ((54, 208), "EPERM"),
    "prctl (no_new_privs)": ((157, 167), "EPERM"),
}


def memory_holds(pid: int, text: bytes) -> bool:
    """Return whether any writable memory of a process contains this text."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
            place, rights = line.split()[:2]
            first, last = (int(number, 16) for number in place.split("-"))
            if rights.startswith("rw"):
                memory.seek(first)
                if text in memory.read(last - first):
                    return True
    return False


def _number(pair: tuple[int, int]) -> int:
    return pair[0 if X86_64 else 1]


# Files


@pytest.mark.parametrize("attempt", ["read", "status"])
def test_a_file_of_the_host_does_not_exist_in_the_jail(
    jailed: Jailed, free: Free, tmp_path: Path, attempt: str
) -> None:
    """The mount namespace answers ENOENT; EACCES would be Landlock's, and would tell that the file exists."""
    planted = tmp_path / "canary"
    planted.write_text("canary", encoding="utf-8")

    assert "loot" in free(attempt, str(planted))
    assert jailed(attempt, str(planted)).report == {"errno": "ENOENT"}


@pytest.mark.parametrize("path", ["/proc", "/sys", "/etc/passwd", "/home", "/var", "/dev/shm", "/dev/tty", "/run"])
def test_a_jail_has_no_proc_sys_etc_or_home_directory(jailed: Jailed, path: str) -> None:
    """A jail has no /proc, /sys, /etc or home; the root itself can be listed."""
    assert jailed("status", path).report == {"errno": "ENOENT"}
    assert "loot" in jailed("listing", "/").report


def test_no_file_readable_in_a_jail_contains_text_planted_in_the_users_files(jailed: Jailed, tmp_path: Path) -> None:
    """The probe searches the whole visible tree for a text in the user's files. The control: it finds itself."""
    (tmp_path / "canary").write_text("canary-4d1f0c", encoding="utf-8")

    seen = jailed("walk_for", "canary-4d1f0c").report["loot"]

    assert seen["looked"] > 500
    assert seen["found"] == ["/app/connector"], "its own program names what it looks for: the control, and nothing else"


@pytest.mark.abuse_case("F2")
@pytest.mark.parametrize("path", ["/x", "/app/x", "/app/connector", "/dev/x", "/w/x", os.__file__])
def test_only_scratch_can_be_written(jailed: Jailed, path: str) -> None:
    """Mounts are read-only, and Landlock refuses as well; /tmp is the scratch space."""
    assert jailed("write", path).report["errno"] in {"EROFS", "EACCES"}
    assert jailed("write", "/tmp/x").report == {"loot": 1}


@pytest.mark.abuse_case("F4")
@pytest.mark.parametrize(
    ("how", "path", "expected"),
    [
        ("mkdir", "/", {"EROFS", "EACCES"}),
        ("symlink", "/dev", {"EROFS", "EACCES"}),
        ("rename", "/app/connector", {"EROFS", "EACCES"}),
        ("unlink", os.__file__, {"EROFS", "EACCES"}),
        ("truncate", os.__file__, {"EROFS", "EACCES"}),
        ("link", os.__file__, {"EPERM"}),
        ("mknod", "/tmp", {"EPERM"}),
        ("utime", "/tmp", {"EPERM"}),
        ("chown", "/tmp", {"EPERM"}),
        ("setxattr", "/tmp", {"EPERM"}),
    ],
)
def test_no_file_outside_of_scratch_can_be_created_moved_or_removed(
    jailed: Jailed, how: str, path: str, expected: set[str]
) -> None:
    """Mounts refuse it, Landlock where it has the right, and the filter otherwise; mkdir in /tmp works."""
    assert jailed("change", how, path).report["errno"] in expected
    assert jailed("change", "mkdir", "/tmp").report == {"loot": True}


def test_an_ioctl_that_neither_the_mounts_nor_the_filter_stop_is_refused_by_landlock(
    jailed: Jailed, free: Free, template: Template
) -> None:
    """Neither mounts nor filter stop this device ioctl: without Landlock it fails with ENOTTY, with it with EACCES."""
    if int(next(layer for layer in template.layers("python") if "landlock" in layer).removeprefix("landlock:")) < 5:
        pytest.skip("Landlock knows ioctl from ABI 5, Linux 6.10")

    assert free("ask_a_device", "/dev/null") == {"errno": "ENOTTY"}
    assert jailed("ask_a_device", "/dev/null").report == {"errno": "EACCES"}


def test_links_and_dots_in_paths_do_not_lead_out_of_the_jail(jailed: Jailed, free: Free, tmp_path: Path) -> None:
    """Neither a symbolic link in scratch to a host file nor a path of many dots leads to a file."""
    planted = tmp_path / "canary"
    planted.write_text("canary", encoding="utf-8")

    assert free("read", f"/tmp/../../..{planted}") == {"loot": "canary"}
    assert jailed("through_link", str(planted)).report == {"errno": "ENOENT"}
    assert jailed("read", f"/tmp/../../..{planted}").report == {"errno": "ENOENT"}


def test_file_metadata_cannot_be_changed_in_a_jail(jailed: Jailed, free: Free, tmp_path: Path) -> None:
    """Landlock does not know chmod: seccomp refuses it."""
    (tmp_path / "mine").touch()

    assert "loot" in free("chmod", str(tmp_path / "mine"))
    assert jailed("chmod", "/tmp").report == {"errno": "EPERM"}


def test_shutil_copies_files_in_a_jail_without_their_metadata(jailed: Jailed) -> None:
    """shutil copies a file's content although copying its mode is refused, as docs/reference/jail.md says."""
    assert jailed("copy_file", "copyfile").report == {"loot": 100}
    assert jailed("copy_file", "copy").report == {"errno": "EPERM"}
    assert jailed("copy_file", "copy2").report == {"errno": "EPERM"}


@pytest.mark.abuse_case("F10")
@pytest.mark.parametrize("directory", ["/usr/share/zoneinfo", os.path.dirname(os.__file__), "/"])
def test_looking_up_missing_file_names_leaves_nothing_in_the_kernels_memory(
    jailed: Jailed, free: Free, directory: str
) -> None:
    """A file system of the host remembers missing names, in memory that no limit counts, and answers the next look-up faster.
    The root of a jail does not.
    """
    if not Path(directory).is_dir() or not _missing_names():
        pytest.skip("no such directory here, or a kernel that does not count them")
    for _attempt in range(3):  # the count is the machine's: other programs may look up names, or remove a tree
        before = _missing_names()
        assert jailed("miss", directory, 20_000).report == {"loot": 20_000}
        left_by_jail = _missing_names() - before
        before = _missing_names()
        assert free("miss", directory, 20_000) == {"loot": 20_000}
        left_freely = _missing_names() - before
        if left_by_jail < 10_000 < left_freely:
            break

    assert left_by_jail < 10_000  # other programs of the machine add some hundreds
    assert left_freely > 10_000


def _missing_names() -> int:
    """Return how many missing names the kernel remembers for the whole machine; 0 before Linux 5.0. proc(5), dentry-state."""
    return int(Path("/proc/sys/fs/dentry-state").read_text(encoding="ascii").split()[4])


@pytest.mark.abuse_case("F10")
def test_no_directory_of_a_jail_outlives_the_jail_or_its_template(jailed: Jailed) -> None:
    """Root, scratch and program each have a file system of their own; no other file system has a directory in a jail."""
    assert jailed("file_systems").report == {"loot": {"own": 3, "others": [], "seen": 3}}


# Network


@pytest.mark.abuse_case("J1")
def test_no_socket_of_any_family_can_be_made(jailed: Jailed, free: Free) -> None:
    """All forty-six families, four types each, give EACCES; those of IP give a descriptor that is no socket."""
    assert "ok" in free("all_sockets")["loot"]
    assert jailed("all_sockets").report == {"loot": ["EACCES", "ok"]}
    assert jailed("make_socket", socket.AF_UNIX, socket.SOCK_STREAM).report == {"errno": "EACCES"}
    assert jailed("make_socket", socket.AF_NETLINK, socket.SOCK_RAW).report == {"errno": "EACCES"}


@pytest.mark.abuse_case("N3")
@pytest.mark.parametrize(
    ("how", "report"),
    [
        ("read", {"loot": 0}),
        ("write", {"errno": "EBADF"}),
        ("recv", {"errno": "ENOTSOCK"}),
        ("getsockname", {"errno": "ENOTSOCK"}),
        ("listen", {"errno": "EPERM"}),
    ],
)
def test_the_descriptor_returned_in_place_of_a_socket_is_a_read_only_dev_null(
    jailed: Jailed, how: str, report: object
) -> None:
    """The descriptor is /dev/null, opened read-only: a library that only probes for IPv6 does not fail."""
    assert jailed("use_a_placeholder", how).report == report


def test_only_a_pair_of_unix_sockets_can_be_made(jailed: Jailed) -> None:
    """Event loops use a pair to wake themselves; it cannot name another socket."""
    assert jailed("pair", socket.AF_UNIX).report == {"loot": True}
    assert jailed("pair", socket.AF_INET).report["errno"] == "EPERM"
    assert jailed("send_to_address").report == {"errno": "EACCES"}
    assert jailed("give_addresses", "connect to a path").report == {"errno": "EACCES"}
    assert jailed("give_addresses", "sendmsg to nobody").report == {"errno": "EPERM"}


@pytest.mark.abuse_case("N2")
@pytest.mark.parametrize(
    ("how", "destination"),
    [
        ("connect", "network:93.184.216.34:443"),
        ("connect, IPv6", "network:[2001:db8::1]:443"),
        ("connect, no wait", "network:93.184.216.34:443"),
        ("connect after options", "network:93.184.216.34:443"),
        ("connect, in a thread", "network:93.184.216.34:443"),
        ("connect, own loopback", "network:127.0.0.1:80"),
        ("sendto", "network:93.184.216.34:53"),
        ("sendto, a pair", "network:93.184.216.34:53"),
        ("sendmsg", "network:93.184.216.34:53"),
        ("getaddrinfo", "network:evil.example.com:443"),
        ("urlopen", "network:evil.example.com:443"),
        ("gethostbyname", "network:evil.example.com"),
        ("asyncio", "network:evil.example.com:443"),
        ("a name that is none", "network:0.0.0.0:0"),
        ("unreadable", "network:unknown"),
        ("kernel's half", "network:unknown"),
    ],
)
def test_an_attempt_to_reach_a_network_ends_the_program_and_is_reported(
    jailed: Jailed, how: str, destination: str
) -> None:
    """The attempt counts from any thread, by address or by name; the program gets no answer to it."""
    seen = jailed("give_addresses", how)

    assert seen.report is None
    assert isinstance(seen.ending, NetworkAttempt), seen.ending
    assert seen.ending.destination == destination


@pytest.mark.abuse_case("J15")
@pytest.mark.parametrize("what", ["a thread connects", "nothing"])
def test_a_connection_attempt_just_before_the_programs_exit_is_still_reported(template: Template, what: str) -> None:
    """An exit could drop calls pending in other threads, so it waits until the template has judged them."""
    ending = end_beside_a_stopped_template(template, program("leave_while", what), Policy())

    if what == "nothing":
        assert isinstance(ending, Exited), ending
    else:
        assert isinstance(ending, NetworkAttempt), ending
        assert ending.destination == "network:93.184.216.34:443"


@pytest.mark.parametrize(
    ("how", "report"),
    [
        ("numeric", {"loot": "93.184.216.34"}),
        ("own name", {"loot": "jail"}),
        ("own name, by platform", {"loot": "jail"}),
        ("own address", {"loot": "127.0.0.1"}),
        ("no connection yet", {"loot": "[127.0.0.1]"}),
        ("probe for IPv6", {"errno": "EACCES"}),
        ("too short", {"errno": "EACCES"}),
    ],
)
def test_a_program_that_only_checks_for_a_network_continues(jailed: Jailed, how: str, report: object) -> None:
    """Libraries make these calls at import, or to learn the name of their own host."""
    assert jailed("give_addresses", how).report == report


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into the template's memory")
def test_a_host_name_that_one_child_looked_up_is_not_in_the_memory_of_later_children(
    template: Template, jailed: Jailed
) -> None:
    """Later children are forks of the template, so it must keep no text of a child. The control: we do keep it."""
    name = f"canary-{os.getpid()}-said-by-a-child.example"
    assert isinstance(jailed("look_up", name).ending, NetworkAttempt)
    (itself,) = psutil.Process(template.pid).children()

    assert not memory_holds(itself.pid, name.encode())
    assert memory_holds(os.getpid(), name.encode())


@pytest.mark.abuse_case("N4")
def test_the_numbers_of_sockets_and_of_network_checks_by_a_program_are_bounded(jailed: Jailed) -> None:
    """A program that checks for a network endlessly is ended, but not after a few hundred checks."""
    assert jailed("many_sockets", 40).report == {"loot": 40}
    assert jailed("many_sockets", 100).report == {"errno": "EMFILE"}
    assert jailed("many_probes", 300).report == {"loot": 300}
    ending = jailed("many_probes", 5000).ending
    assert isinstance(ending, NetworkAttempt)
    assert ending.destination == "network:unknown"


# Processes


def test_no_process_can_be_started(jailed: Jailed, free: Free) -> None:
    """fork and exec are refused; threads work up to the limit."""
    assert free("fork") == {"loot": True}
    assert jailed("fork").report == {"errno": "EPERM"}
    assert jailed("execute").report["errno"] in {"EPERM", "ENOENT"}
    assert jailed("threads", 4).report == {"loot": 4}
    assert jailed("threads", 64, policy=Policy(processes=16)).report["loot"] == 15


def test_no_other_process_can_be_signalled_or_limited_from_a_jail(jailed: Jailed, free: Free) -> None:
    """Signals and limits are tried on a real process of this user."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim:
        try:
            assert free("signal_process", victim.pid) == {"loot": True}
            assert jailed("signal_process", victim.pid).report == {"errno": "EPERM"}
            assert jailed("resource_of_other", victim.pid).report == {"errno": "EPERM"}
        finally:
            victim.communicate(b"\n")


@pytest.mark.abuse_case("J6")
@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_a_call_that_no_honest_program_makes_kills_the_program(jailed: Jailed, name: str) -> None:
    """SIGSYS kills the process at the call, before it can report anything."""
    seen = jailed("raw", _number(NUMBERS[name]), 0, 0, 0, 0)

    assert seen.report is None
    assert isinstance(seen.ending, Signalled)
    assert seen.ending.signal == signal.SIGSYS


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_call_that_is_not_allowed_is_refused(jailed: Jailed, name: str) -> None:
    """The answer is EPERM by default, and ENOSYS where a library then falls back; the program goes on and reports it."""
    numbers, expected = REFUSED[name]
    arguments = (38, 1, 0, 0) if name.startswith("prctl") else (0, 0, 0, 0)

    assert jailed("raw", _number(numbers), *arguments).report == {"errno": expected}


@pytest.mark.abuse_case("J3")
@pytest.mark.skipif(not X86_64, reason="these entries exist on x86-64 only")
@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("32-bit getpid by int 0x80", "b814000000cd80c3"),
        ("32-bit socketcall by int 0x80", "b866000000cd80c3"),
        ("x32 getpid", "b8270000400f05c3"),
    ],
)
def test_calls_of_the_other_abis_kill_the_program(jailed: Jailed, what: str, code: str) -> None:
    """32-bit and x32 entries are killed; the same machine code with a native number works."""
    assert isinstance(jailed("machine_code", code).ending, Signalled), what
    assert jailed("machine_code", "b8270000000f05c3").report == {"loot": 1}, "getpid, natively: pid 1"


@pytest.mark.abuse_case("J10")
def test_a_program_can_neither_raise_its_limits_nor_inject_terminal_input(jailed: Jailed) -> None:
    """Raising a hard limit and TIOCSTI are refused; opening files within the limits works."""
    assert jailed("raise_limit").report == {"errno": "EPERM"}
    assert jailed("inject_terminal_input").report == {"errno": "EPERM"}
    assert jailed("inject_terminal_input", 1).report == {"errno": "EPERM"}, (
        "the high half of the number changes nothing"
    )
    assert jailed("open_many", 10).report == {"loot": [10, "ok"]}


def test_a_program_cannot_stop_or_kill_itself(jailed: Jailed) -> None:
    """A stopped program would use no processor time, so no limit would end it; its signals to itself have no effect."""
    assert jailed("stop_itself").report == {"loot": True}


def test_an_honest_program_works_in_the_jail(jailed: Jailed) -> None:
    """This is the control: with a broken jail, every denial above would pass."""
    seen = jailed("typical_imports")

    assert seen.report == {"loot": [7, 1, "e3b0", "Europe/Berlin"]}, seen.log
    assert isinstance(seen.ending, Exited)
    assert seen.ending.code == 0
