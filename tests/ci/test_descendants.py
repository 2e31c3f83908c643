"""Processes that end while they are read are left out, and an error of a process that runs is raised."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.descendants import read_descendants

SLEEP = "import time; print('runs', flush=True); time.sleep(60)"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that sleeps; kill it after the test. It says that it runs: during execve(2) its command line is empty."""
    command = [sys.executable, "-c", SLEEP]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"runs\n"
        yield started
        started.kill()


@pytest.mark.parametrize("is_reaped", [True, False], ids=["gone", "zombie"])
def test_a_process_that_ends_while_it_is_read_is_left_out(sleeper: subprocess.Popen[bytes], is_reaped: bool) -> None:
    """The read fails because its files are gone, or are those of a zombie; the reader does not see that error."""

    def read(process: psutil.Process) -> bytes:
        if process.pid == sleeper.pid:
            sleeper.kill()
            os.waitid(os.P_PID, sleeper.pid, os.WEXITED | (0 if is_reaped else os.WNOWAIT))
            return Path(f"/proc/{process.pid}/no-such-file").read_bytes()
        return b""

    assert sleeper.pid not in {process.pid for process in read_descendants(os.getpid(), read)}


def test_a_running_process_is_read_and_other_read_errors_are_raised(sleeper: subprocess.Popen[bytes]) -> None:
    """The positive control: the command line is returned, and a file that is missing for another reason is an error."""
    commands = read_descendants(os.getpid(), psutil.Process.cmdline)

    assert [SLEEP] in [command[-1:] for command in commands.values()]
    with pytest.raises(FileNotFoundError):
        read_descendants(os.getpid(), lambda process: Path(f"/proc/{process.pid}/no-such-file").read_bytes())
