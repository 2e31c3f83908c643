"""Fixtures for the jail: one template for all tests runs a probe in a real jail; as a positive control it is an ordinary process.

A jail is forked ahead of its request or when it is requested, and `jailed` tries each test in both ways.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron_sandbox import cgroups
from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable
from tests.sandbox.processes import end_forked_ahead, wait_forked_ahead
from tests.sandbox.seen import Seen
from tests.support.zipped import zipped

_ATTEMPTS = Path(__file__).parent / "probes" / "attempts.py"
DEADLINE_S = 20.0
needs_groups = pytest.mark.skipif(
    cgroups.find() is None, reason="this user can make no control groups here, so nothing may start processes (ADR 35)"
)
"""Mark for tests of programs that may start processes. tests/sandbox/test_jail_limits.py shows the refusal without groups."""

TELLS_WHO_LEFT = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 11)
"""True if a filter's listener hangs up when its last process can make no more calls, rather than when it is reaped."""


def program(name: str, *arguments: Any) -> bytes:
    """Return a zip application that makes one attempt."""
    return zipped(_ATTEMPTS.read_text(encoding="utf-8"), {"attempts.json": json.dumps([name, arguments])})


def memory_file(data: bytes) -> int:
    """Return a descriptor of a memory file with these bytes; the caller closes it."""
    fd = os.memfd_create("program", os.MFD_CLOEXEC)
    os.write(fd, data)
    return fd


@contextlib.contextmanager
def trying(template: Template, name: str, *arguments: object, policy: Policy | None = None) -> Iterator[Child]:
    """Yield a jail in which the attempt runs, until it has ended."""
    fd = memory_file(program(name, *arguments))
    try:
        with Child.open(template, fd, policy or Policy()) as child:
            yield child
    finally:
        os.close(fd)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a project's folder, for a cell."""
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture(scope="session")
def packed() -> Callable[..., Template]:
    """Start a template with these packages and preloads. A machine without jails skips the test; in CI it fails it."""

    def start(**runtime: Any) -> Template:
        try:
            return Template.start(PythonRuntime.of_this_interpreter(**runtime))
        except JailUnavailable as error:
            if os.environ.get("AILERON_MUST_JAIL"):
                raise
            pytest.skip(f"no jail here: {error}")

    return start


@pytest.fixture(scope="session")
def template(packed: Callable[..., Template]) -> Iterator[Template]:
    """Start the warm process that most tests share."""
    with packed(preload=("json", "zipfile")) as started:
        yield started


@pytest.fixture(params=["ahead", "asked"])
def jailed(request: pytest.FixtureRequest, template: Template) -> Callable[..., Seen]:
    """Make one attempt in a jail of its own, which was forked ahead or when it was requested."""
    prepare = wait_forked_ahead if request.param == "ahead" else end_forked_ahead

    def attempt(name: str, *arguments: Any, policy: Policy | None = None) -> Seen:
        prepare(template)
        with trying(template, name, *arguments, policy=policy) as child:
            ending = child.wait(DEADLINE_S)
            said, log = drained(child.frames_out), drained(child.log)
        return Seen(json.loads(said) if said else None, ending, log.decode("utf-8", "replace"))

    return attempt


@pytest.fixture
def packed_program(tmp_path: Path) -> Callable[..., Path]:
    """Write a program that makes one attempt to a file."""

    def write(name: str, *arguments: Any) -> Path:
        path = tmp_path / f"{name}.pyz"
        path.write_bytes(program(name, *arguments))
        return path

    return write


@pytest.fixture
def free(tmp_path: Path) -> Callable[..., Any]:
    """Make the same attempt as an ordinary process of this user and return its report."""

    def attempt(name: str, *arguments: Any) -> Any:
        path = tmp_path / "attempt.pyz"
        path.write_bytes(program(name, *arguments))
        read, written = os.pipe()
        saved = os.dup(written)
        os.close(written)
        try:
            subprocess.run(
                [sys.executable, "-I", "-S", "-c", _AT_FOUR, str(saved), str(path)],
                pass_fds=[saved],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=DEADLINE_S,
                check=False,
            )
        finally:
            os.close(saved)
        with open(read, "rb") as pipe:
            said = pipe.read()
        return json.loads(said) if said else None

    return attempt


_AT_FOUR = """
import os, runpy, sys
os.dup2(int(sys.argv[1]), 4, inheritable=True)
runpy.run_path(sys.argv[2], run_name="__main__")
"""


def drained(fd: int) -> bytes:
    """Return the bytes that are in a pipe now."""
    pieces = []
    while True:
        try:
            piece = os.read(fd, 1 << 16)
        except BlockingIOError:
            break
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)
