"""Typing around a question for a passphrase, on a terminal of the test: not echoed, and not left as input for another program."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

from tests.support.waiting import wait_signalled

PROGRAM = """
import sys, time
from aileron.approver_key.no_echo import no_echo

try:
    with no_echo(0.6):
        print("asked", flush=True)
        time.sleep(30)
except KeyboardInterrupt:
    print("broken off", flush=True)
print("line", repr(sys.stdin.readline()), flush=True)
"""


def until(master: int, wanted: bytes, shown: bytes = b"") -> bytes:
    """Return the terminal's output up to the wanted bytes."""
    end = time.monotonic() + 20
    while wanted not in shown:
        assert select.select([master], [], [], max(end - time.monotonic(), 0))[0], (wanted, shown)
        shown += os.read(master, 4096)
    return shown


@pytest.mark.parametrize("signals", [1, 3])
def test_input_after_an_interrupt_is_discarded_without_echo(signals: int) -> None:
    """The number of signals does not matter: the first ends the question, and none ends the discarding. The next line
    is read as usual.
    """
    master, slave = pty.openpty()
    words = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True) as asking:
        try:
            shown = until(master, b"asked")
            os.write(master, b"half a pass")
            for _ in range(signals):
                asking.send_signal(signal.SIGINT)
            wait_signalled(asking.pid)
            os.write(master, b"phrase\x03 and a line\n")
            for _ in range(signals - 1):
                asking.send_signal(signal.SIGINT)
            shown = until(master, b"broken off", shown)
            settings = termios.tcgetattr(master)[3]
            os.write(master, b"what follows\n")
            shown = until(master, b"line 'what follows", shown)
        finally:
            asking.kill()
            os.close(slave)
            os.close(master)

    assert b"pass" not in shown
    assert b"and a line" not in shown
    assert settings & termios.ECHO
    assert settings & termios.ICANON


def test_input_from_a_pipe_is_left_alone() -> None:
    """A pipe is read as it is."""
    program = PROGRAM.replace("time.sleep(30)", "raise KeyboardInterrupt")
    done = subprocess.run([sys.executable, "-c", program], input="a line\n", capture_output=True, text=True, timeout=30)

    assert done.stdout.split("\n")[:3] == ["asked", "broken off", "line 'a line\\n'"]
