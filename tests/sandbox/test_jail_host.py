"""Tests that a host's state does not change its jails: they are the same, or there are none and the error says why."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pty
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from aileron_sandbox.jail import Template
from tests.sandbox.processes import AHEAD
from tests.sandbox.seen import Seen

pytestmark = pytest.mark.jail
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def _jails_can_be_had_here(template: Template) -> None:
    """Skip for the fixture's reason if there are no jails here: the hosts below start their own templates."""


def host(name: str, **options: Any) -> Any:
    """Return the findings of a host in that state."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.sandbox.hosts", name],
        cwd=ROOT,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_program_can_read_its_jail_even_if_the_host_has_a_strict_umask() -> None:
    """The jail creates the directories of its root under its own umask."""
    assert host("with_a_tight_umask") == {"loot": [7, 1, "e3b0", "Europe/Berlin"]}


def test_the_standard_librarys_bytecode_is_valid_in_the_jail(
    jailed: Callable[..., Seen], free: Callable[..., Any]
) -> None:
    """Python ignores bytecode whose source has another time or size; each jail would then compile every module anew."""
    names = ["colorsys", "graphlib", "tomllib"]
    for name in names:
        source = Path(importlib.import_module(name).__file__ or "")
        if not Path(importlib.util.cache_from_source(str(source), optimization="")).is_file():
            pytest.skip(f"this Python has no bytecode for {name}")

    assert free("import_and_compile", *names) == {"loot": {"imported": names, "compiled": []}}
    assert jailed("import_and_compile", *names).report == {"loot": {"imported": names, "compiled": []}}


def test_a_jail_does_not_inherit_descriptors_or_environment_variables_of_its_host() -> None:
    """Two hundred inheritable descriptors and a secret in the environment exist before the template starts."""
    seen = host("with_open_descriptors_and_a_full_environment")

    assert seen["inside"] == [0, 1, 2, 3, 4]
    assert seen["environment"] == {}
    assert seen["environment of the stub"] == {}
    assert seen["descriptors of the stub"] < 12


@pytest.mark.abuse_case("J10")
def test_template_and_children_have_no_terminal() -> None:
    """Ctrl-C is the host's to handle: template and children have no controlling terminal and go on."""
    controller, terminal = pty.openpty()
    try:
        seen = host("with_a_terminal", stdin=terminal, start_new_session=True)
        name = os.ttyname(terminal)
    finally:
        os.close(controller)
        os.close(terminal)

    assert seen["own terminal"] == name
    assert seen["felt by the host"] == 1
    assert seen["still serving"] == "jail"
    assert seen["child"]
    assert seen["terminals"] == [None] * (3 + AHEAD), "stub, template, child, and those that wait"


def test_a_template_without_free_descriptors_refuses_one_request_and_continues() -> None:
    """The refused request ends with EMFILE and the others go on; once some have ended there is room again, also to fork ahead."""
    seen = host("with_few_descriptors_for_the_template")

    assert ": EMFILE (" in seen["refused"]
    assert seen["alive"] > 8
    assert seen["processes"] == seen["alive"] - 1 - AHEAD
    assert seen["afterwards"] == "jail"


def test_a_host_that_has_no_descriptor_left_for_killing_a_child_ends_its_template() -> None:
    """The host had no descriptor left for the child's pidfd: it fails closed, and all children end."""
    seen = host("without_a_descriptor_for_the_pidfd")

    assert "that cannot be killed must not run" in seen["said"]
    assert seen["left"] == 0


def test_a_host_with_too_few_descriptors_gets_an_error_and_leaks_none() -> None:
    """Each attempt has one more descriptor, for a template and then for a child: the message is the same each time."""
    seen = host("with_ever_more_descriptors")

    for refusals in (seen["templates"], seen["children"]):
        assert len(refusals) >= 5, "a template needs a socket pair, and three while it is started; a child three pipes"
        for said, left in refusals:
            assert "Too many open files" in said
            assert "`ulimit -n`" in said
            assert left == 0, said
    assert seen["processes"] == 0
    assert seen["afterwards"] == "jail"


def test_jails_work_with_descriptors_beyond_the_limit_of_select() -> None:
    """The control socket's number is over 1023, the maximum of select(2)."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard <= 1200:
        pytest.skip(f"this user may not have more than {hard} descriptors")
    seen = host("with_descriptors_beyond_select")

    assert seen["descriptor"] > 1023
    assert seen["loot"] == "jail"


def test_a_jail_cannot_read_the_hosts_session_keyring() -> None:
    """A key of the host's session keyring is found before the step that joins a new session, and not after it."""
    seen = host("with_a_key_in_its_keyring")

    if "unavailable" in seen:
        pytest.skip(f"no keyrings here: {seen['unavailable']}")
    assert seen == {"before": "found", "after": "Required key not available"}


@pytest.mark.parametrize(
    ("name", "what", "fix"),
    [
        ("where_unshare_is_refused", "EPERM", "user namespaces"),
        ("where_there_are_no_user_namespaces", "ENOSPC", "sysctl -w user.max_user_namespaces=15000"),
    ],
)
def test_if_namespaces_are_blocked_no_jail_is_started_and_the_reason_is_reported(
    name: str, what: str, fix: str
) -> None:
    """The error names step, errno and fix; no weaker jail is started, and no process is left."""
    seen = host(name)

    assert what in seen["what"]
    assert fix in seen["fix"]
    assert seen["left"] == 0


@pytest.mark.abuse_case("L5")
def test_killing_the_host_ends_template_and_children() -> None:
    """The host gets SIGKILL: stub, template, three children and those forked ahead all end."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.sandbox.hosts", "that_waits_to_be_killed"], cwd=ROOT, stdout=subprocess.PIPE
    ) as killed:
        assert killed.stdout is not None
        everybody = [psutil.Process(pid) for pid in json.loads(killed.stdout.readline())]
        killed.kill()
        _, left = psutil.wait_procs(everybody, timeout=10)

    assert len(everybody) == 5 + AHEAD
    assert left == []


@pytest.fixture(params=["below /tmp", "below a home nobody else may enter"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yield a copy of the package: the jail's root is built on /tmp, and binds must not depend on what that hides."""
    if request.param == "below /tmp":
        folder = tmp_path
    else:
        folder = Path.home() / f".aileron-test-{os.getpid()}"
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            pytest.skip(f"no home to write to: {error}")
    shutil.copytree(ROOT / "sandbox" / "aileron_sandbox", folder / "aileron_sandbox")
    yield folder
    shutil.rmtree(folder / "aileron_sandbox")
    if folder != tmp_path:
        folder.rmdir()


def _alone(tree: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-B", "-m", "aileron_sandbox", *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        timeout=DEADLINE_S,
        check=check,
    )


def test_the_sandbox_package_works_without_the_rest_of_aileron(tree: Path) -> None:
    """A copy of the package checks the machine by itself, without any other part of aileron."""
    report = json.loads(_alone(tree, "--json").stdout)

    assert report["available"]
    assert {"user-ns", "net-ns", "pivoted-root", "no-capabilities", "seccomp:python"} <= set(report["layers"])
    assert report["memory"] in {"cgroup-v2", "cgroup-v1", "rlimit"}
    assert report["landlock_abi"] >= 1
    assert report["what"] is None
    assert report["fix"] is None


def test_the_run_command_exits_with_the_programs_status(tmp_path: Path, packed_program: Callable[[str], Path]) -> None:
    """`run` puts descriptor 4 on standard output and the log on standard error; a missing file is an error of one line."""
    tree = ROOT / "sandbox"

    done = _alone(tree, "run", str(packed_program("facts")))
    crashed = _alone(tree, "run", str(packed_program("crash")), check=False)
    missing = _alone(tree, "run", str(tmp_path / "missing.pyz"), check=False)

    assert json.loads(done.stdout)["loot"]["host"] == "jail"
    assert (crashed.returncode, crashed.stdout) == (1, b"")
    assert b"ValueError: a bug of the program" in crashed.stderr
    assert missing.returncode == 1
    assert missing.stderr.startswith(b"error: ")
    assert missing.stderr.count(b"\n") == 1


def test_sockets_are_refused_if_the_kernel_does_not_support_a_seccomp_listener() -> None:
    """Every family gets EACCES and the layers omit `network-attempts`; a name look-up fails, and the program goes on."""
    seen = host("under_a_filter_that_asks_already")

    assert "network-attempts" not in seen["layers"]
    assert seen["sockets"] == {"loot": ["EACCES"]}
    assert seen["ending"] == "Exited"
    assert seen["looked up"] == {"errno": str(socket.EAI_FAIL)}
