"""Test of what importing the frames costs a process that is forked for every invocation."""

from __future__ import annotations

import subprocess
import sys

import pytest

DEAR = ("asyncio", "logging", "random", "threading", "socket", "ssl", "subprocess")
"""Modules that have at-fork handlers or are large: each makes every later fork slower."""


@pytest.mark.parametrize("module", ["aileron_sandbox.frames", "aileron_connector"])
def test_importing_the_frames_or_the_sdk_loads_no_module_that_slows_down_forks(module: str) -> None:
    """Only msgspec and small modules may be loaded, because a process is forked for every invocation."""
    program = f"import sys, {module}; print(*[name for name in {DEAR!r} if name in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert finished.stdout.split() == []
