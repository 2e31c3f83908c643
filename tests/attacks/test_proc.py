"""Attacks on what a machine tells about itself and its processes: /proc, /sys, and the calls that need neither."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aileron_sandbox.jail import Template
from tests.attacks.inside import Jail, freely, told
from tests.attacks.tally import Attack
from tests.sandbox.test_jail_denials import X86_64
from tests.support.descendants import read_descendants

pytestmark = pytest.mark.jail

PROC = """
/proc /proc/self /proc/1/environ /proc/1/cmdline /proc/1/mem /proc/self/mem /proc/self/maps /proc/self/environ /proc/self/fd
/proc/self/root /proc/self/map_files /proc/kcore /proc/keys /proc/kallsyms /proc/sys/kernel/core_pattern /proc/sysrq-trigger
/proc/net/tcp /proc/net/route /proc/net/arp /proc/net/dev /proc/cmdline /proc/version /proc/mounts /proc/meminfo
/proc/sys/kernel/random/boot_id /proc/sys/kernel/hostname
""".split()
SYS = """
/sys /sys/class/net /sys/fs/cgroup /sys/fs/cgroup/cgroup.procs /sys/kernel /sys/module /sys/firmware
/sys/class/dmi/id/product_uuid /etc/machine-id /var/lib/dbus/machine-id /etc/hostname /etc/resolv.conf /etc/os-release
""".split()


@pytest.mark.abuse_case("P1")
def test_a_jail_has_no_proc(attack: Attack, jail: Jail) -> None:
    """The jail finds no entry for itself, its first process, the supervisor or the kernel."""
    theirs = [
        f"/proc/{pid}/{name}"
        for pid in (os.getpid(), jail.template.pid)
        for name in ("environ", "mem", "fd", "root", "cmdline")
    ]

    attack.all_denied("", "ENOENT", jail.loot("look_at", PROC))
    attack.all_denied("of the supervisor", "ENOENT", jail.loot("look_at", theirs))
    attack.control("a process has one", "ok", freely("look_at", ["/proc/self/maps"])["open /proc/self/maps"])


@pytest.mark.abuse_case("P2")
def test_a_jail_has_no_sys_and_no_file_that_names_the_machine(attack: Attack, jail: Jail) -> None:
    """Interfaces, cgroups, firmware, machine and boot ids do not exist; the host name is the same in every jail."""
    attack.all_denied("", "ENOENT", jail.loot("look_at", SYS))
    facts = jail.loot("facts")
    attack.denied("the host's name", "jail", facts["host"])
    attack.control("the host has one of its own", os.uname().nodename, freely("facts")["host"])
    attack.control("its own root can be listed", True, "app" in facts["root"])


@pytest.mark.abuse_case("P3")
def test_a_jail_cannot_learn_interfaces_or_routes(attack: Attack, jail: Jail) -> None:
    """A netlink socket of NETLINK_ROUTE is refused, and no interface's name or address can be looked up."""
    netlink = 16
    attack.denied("a netlink socket", "EACCES", jail.loot("make_socket", netlink, 3)["errno"])
    attack.denied("the interfaces by name", "ENOENT", jail.loot("look_at", ["/sys/class/net"])["list /sys/class/net"])
    attack.control("without a jail it can be made", True, freely("make_socket", netlink, 3))


@pytest.mark.abuse_case("L1")
def test_a_jail_inherits_no_descriptor_or_variable_of_its_host(
    attack: Attack, packed: Callable[..., Template], hostile_environment: dict[str, str]
) -> None:
    """The host has 500 inheritable descriptors and an environment full of secrets; the jail has five descriptors and no
    environment.
    """
    # Half of the 1024 that an ordinary user may have by default: a template and its children need some as well.
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(500)]
    try:
        for fd in opened:
            os.set_inheritable(fd, True)
        with packed() as started:
            jail = Jail(started)
            kinds, found = jail.loot("descriptors_are"), jail.loot("surroundings")
    finally:
        for fd in opened:
            os.close(fd)

    attack.denied("a descriptor too many", {"0": "device", "1": "pipe", "2": "pipe", "3": "pipe", "4": "pipe"}, kinds)
    for name in hostile_environment:
        attack.denied(f"reading {name}", None, found["environment"].get(name))
    attack.denied("any other variable, or argument", ({}, []), (found["environment"], found["arguments"]))
    attack.control("the host has them", hostile_environment, {n: os.environ[n] for n in hostile_environment})


@pytest.mark.abuse_case("L2")
def test_a_jail_can_neither_pass_nor_take_descriptors(attack: Attack, jail: Jail) -> None:
    """SCM_RIGHTS to itself and over the frame pipes fails, as does pidfd_getfd. Plain bytes pass through a pair."""
    attack.all_denied("", {"EPERM", "ENOTSOCK"}, jail.loot("pass_descriptors"))
    sendmsg, frames_out = (46 if X86_64 else 211), 4
    attack.denied("one over the frames", "network:unknown", told(jail.attempt("raw", sendmsg, frames_out, 0, 0)))
    attack.control("bytes through a pair", True, jail.loot("harmless_bytes"))
    attack.control("without a jail descriptors go through", "ok", freely("pass_descriptors")["send one to itself"])


@pytest.mark.abuse_case("L1")
def test_the_templates_environment_is_empty(
    attack: Attack, packed_jail: Jail, hostile_environment: dict[str, str]
) -> None:
    """The environment of the template and of its forks, as the kernel keeps it, is empty, although the host's is full."""
    import psutil

    stub = psutil.Process(packed_jail.template.pid)
    attack.denied("the environment of the stub", {}, stub.environ())
    if os.geteuid() == 0:  # the template itself is undumpable: its environment is root's to read
        below = read_descendants(stub.pid, lambda process: Path(f"/proc/{process.pid}/environ").read_bytes())
        assert below, "the template at least"
        for environment in below.values():
            attack.denied("an environment below it", b"", environment.strip(b"\0"))
    attack.control(
        "a process of this environment has it",
        True,
        set(hostile_environment) <= set(freely("surroundings")["environment"]),
    )
