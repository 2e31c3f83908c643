"""Tests of a template's process that is executed before its purpose is known: it becomes a template, or ends without a word."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import aileron_sandbox
from aileron_sandbox.begun import Begun, interpreter
from aileron_sandbox.ending import Exited
from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable
from tests.sandbox.conftest import memory_file, program
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
_DEADLINE_S = 20.0
_NOBODY = 65534
_WAITS = """
import sys
from aileron_sandbox.begun import Begun, interpreter
begun = Begun.execute(interpreter())
print(begun.process.pid, flush=True)
sys.stdin.read()
"""


def test_a_process_started_early_becomes_the_template() -> None:
    """The pid stays the same, and its children run like those of any other template."""
    begun = Begun.execute(interpreter())
    fd = memory_file(program("typical_imports"))

    with Template.begin(PythonRuntime.of_this_interpreter(), begun=begun).finish() as template:
        with Child.open(template, fd, Policy()) as child:
            ending = child.wait(_DEADLINE_S)
        assert template.pid == begun.process.pid
    os.close(fd)

    assert isinstance(ending, Exited)
    assert ending.code == 0
    assert begun.process.returncode is not None


def test_no_process_can_attach_to_a_template_process_started_early() -> None:
    """Processes of its user cannot read its memory: its files in /proc are root's, proc_pid(5)."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(Path(aileron_sandbox.__file__).parent, Path(folder, "aileron_sandbox"))
        user = _NOBODY if os.getuid() == 0 else None
        with _waiting(user=user, env={"PYTHONPATH": folder}) as (_, begun):
            wait_until(lambda: os.stat(f"/proc/{begun.pid}/environ").st_uid == 0, "nobody can attach to it")


@pytest.mark.parametrize("is_told", [False, True], ids=["before it is told", "before it is ready"])
def test_a_template_process_started_early_ends_if_it_is_not_needed(
    capfd: pytest.CaptureFixture[str], *, is_told: bool
) -> None:
    """The process exits at once and prints nothing, whether or not it got its configuration."""
    begun = Begun.execute(interpreter())
    if is_told:
        Template.begin(PythonRuntime.of_this_interpreter(), begun=begun).close()
    begun.end()

    assert begun.process.returncode == 0
    assert capfd.readouterr().err == ""


def test_a_template_process_started_early_ends_if_it_cannot_be_configured() -> None:
    """The error is the same as without an early start."""
    begun = Begun.execute(interpreter())
    runtime = PythonRuntime.of_this_interpreter(rehearsal="x" * (1 << 20))  # more than fits in a datagram

    with pytest.raises(JailUnavailable, match="did not start"):
        Template.begin(runtime, begun=begun)

    assert begun.process.returncode == 0


_UPDATED = """
import os, sys
from aileron_sandbox import policy
from aileron_sandbox.jail import Template
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable
for changes in (False, True):
    if changes:
        os.utime(policy.__file__)
    try:
        Template.start(PythonRuntime.of_this_interpreter()).close()
        print("started")
    except JailUnavailable as error:
        print(error)
"""


def test_a_template_of_another_package_version_is_not_started(tmp_path: Path) -> None:
    """A host with one version imported would talk to a template of another; the error says what to do."""
    shutil.copytree(Path(aileron_sandbox.__file__).parent, tmp_path / "aileron_sandbox")

    said = subprocess.run(
        [interpreter(), "-P", "-c", _UPDATED],
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.splitlines()

    assert said[0] == "started"
    assert "replaced by another version" in said[1]
    assert "aileron daemon restart" in said[1]


def test_a_template_process_started_early_ends_when_its_host_is_killed() -> None:
    """The host had not sent it any configuration yet."""
    with _waiting(env={"PYTHONPATH": str(Path(aileron_sandbox.__file__).parents[1])}) as (host, begun):
        host.kill()
        _, left = psutil.wait_procs([begun], timeout=_DEADLINE_S)

    assert left == []


@contextlib.contextmanager
def _waiting(**options: Any) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """Yield a host and the process that has begun in it. Both end with the block."""
    with subprocess.Popen(
        [interpreter(), "-P", "-c", _WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
    ) as host:
        assert host.stdout is not None
        yield host, psutil.Process(int(host.stdout.readline()))
