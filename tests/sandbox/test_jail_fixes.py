"""Tests that a fix fits the machine. States that cannot occur here (Ubuntu's AppArmor, a container) are given as values."""

from __future__ import annotations

import errno

import pytest

from aileron_sandbox.fixes import Machine, fix

ROOT = "namespaces and root"
APPARMOR = {"kernel.apparmor_restrict_unprivileged_userns": "1"}


def test_the_fix_for_apparmor_has_a_profile_for_the_interpreter_that_makes_jails() -> None:
    """The fix has a whole profile and the command that loads it; for root it is not AppArmor that failed."""
    words = fix(ROOT, errno.EPERM, Machine(APPARMOR, executable="/opt/python/bin/python3.12"))

    assert "profile aileron-jail /opt/python/bin/python3.12 flags=(unconfined) {\n  userns,\n}" in words
    assert "apparmor_parser -r /etc/apparmor.d/aileron-jail" in words
    assert "AppArmor" not in fix(ROOT, errno.EPERM, Machine(APPARMOR, is_root=True))


@pytest.mark.parametrize(
    ("step", "number", "machine", "words"),
    [
        (ROOT, errno.EPERM, Machine({"kernel.unprivileged_userns_clone": "0"}), "kernel.unprivileged_userns_clone=1"),
        (ROOT, errno.ENOSPC, Machine({"user.max_user_namespaces": "0"}), "user.max_user_namespaces=15000"),
        ("pid namespace", errno.ENOSPC, Machine(), "user.max_net_namespaces=15000"),
        (ROOT, errno.EPERM, Machine(is_container=True), "--security-opt seccomp=unconfined"),
        (ROOT, errno.EPERM, Machine(), "allow unprivileged user namespaces"),
        ("landlock", errno.ENOSYS, Machine(), "lsm="),
        (
            "landlock",
            errno.EACCES,
            Machine(executable="/root/bin/python"),
            "/root/bin/python and the packages that go",
        ),
        ("preload", errno.ENOENT, Machine(), "see the log"),
        ("descriptors", errno.EMFILE, Machine(), "`ulimit -n`"),
        (ROOT, errno.ENFILE, Machine(), "`ulimit -n`"),
    ],
)
def test_each_step_of_making_a_jail_that_can_fail_has_its_own_fix(
    step: str, number: int, machine: Machine, words: str
) -> None:
    """The fix depends on the step, the errno and the machine's settings."""
    assert words in fix(step, number, machine)


def test_the_kernel_settings_of_this_machine_are_read() -> None:
    """Names have the form of sysctl(8), and only existing settings are listed."""
    machine = Machine.of_this("/usr/bin/python3")

    assert int(machine.sysctls["user.max_user_namespaces"]) >= 0
    assert all("/" not in name for name in machine.sysctls)
