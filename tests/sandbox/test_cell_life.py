"""Tests of a cell's life: terminal and jobs, listeners, connections, limits, and that no process outlives it."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aileron_sandbox import cgroups
from aileron_sandbox.cell.door import Cell, Continued, Ended, Event, NotStarted, Stopped
from aileron_sandbox.cell.support import examine_cell
from tests.sandbox.cells import (
    DEADLINE_S,
    ENVIRONMENT,
    PIPES,
    PYTHON,
    TERMINAL,
    begun,
    finish,
    policy_of,
    read_until,
    read_until_said,
    run,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail

CTRL_Z, CTRL_C = b"\x1a", b"\x03"


def next_event(cell: Cell) -> Event:
    """Wait for the cell's next event and return it."""
    until = time.monotonic() + DEADLINE_S
    while (event := cell.event()) is None:
        ready, _, _ = select.select([cell.control], [], [], max(0.0, until - time.monotonic()))
        assert ready, "no event"
    return event


def test_each_way_in_which_a_command_in_a_cell_can_end_is_reported(folder: Path) -> None:
    """The kinds are an exit status, a signal, and a program that does not exist or cannot be executed."""
    policy = policy_of(folder)

    assert run(policy, ["sh", "-c", "exit 3"]).end == Ended(3, None, None)
    assert run(policy, ["sh", "-c", "kill -TERM $$"]).end == Ended(None, signal.SIGTERM, None)
    assert run(policy, ["absent-program"]).end == NotStarted(errno.ENOENT)
    assert run(policy, ["absent-program"], TERMINAL).end == NotStarted(errno.ENOENT)
    assert run(policy, [str(folder)]).end == NotStarted(errno.EACCES)


def test_input_output_and_errors_of_a_cells_command_are_separate_streams(folder: Path) -> None:
    """The command reads what is written to its standard input, and its output does not mix with its errors."""
    with begun(policy_of(folder), ["sh", "-c", "cat; echo error >&2"]) as cell:
        stdin = cell.pipes[0]
        assert stdin is not None
        os.write(stdin, b"hello")
        # The cell owns this end; closing it ends the input.
        cell.close_input()
        ran = finish(cell)

    assert (ran.out, ran.error) == ("hello", "error\n")


def test_a_cells_command_can_have_a_terminal_for_only_some_of_its_standard_streams(folder: Path) -> None:
    """Output is a terminal and input is a file, as in `agent < file`."""
    with begun(
        policy_of(folder),
        ["sh", "-c", "test ! -t 0 && test -t 1 && test -t 2 && tty <&1"],
        ("pipe", "terminal", "terminal"),
    ) as cell:
        ran = finish(cell)

    assert ran.end == Ended(0, None, None)
    assert ran.out.strip() == "/dev/pts/0"


def test_ctrl_z_stops_the_agent_and_sigcont_continues_it(folder: Path) -> None:
    """The program has no job control of its own; afterwards it is in the foreground again and reads."""
    # Not a shell's program: a shell that is about to fork loses a Ctrl-C.
    script = "import signal; signal.signal(2, signal.SIG_DFL); print('ready'); print('got', input()); signal.pause()"
    with begun(policy_of(folder), [PYTHON, "-I", "-S", "-c", script], TERMINAL) as cell:
        assert cell.terminal is not None
        read_until(cell.terminal, b"ready")
        os.write(cell.terminal, CTRL_Z)
        assert next_event(cell) == Stopped(signal.SIGTSTP)
        cell.signal(signal.SIGCONT)
        assert next_event(cell) == Continued()
        os.write(cell.terminal, b"word\n")
        read_until(cell.terminal, b"got word")
        os.write(cell.terminal, CTRL_C)
        assert next_event(cell) == Ended(None, signal.SIGINT, None)


def test_a_shell_in_a_cell_controls_its_jobs(folder: Path) -> None:
    """Ctrl-Z stops the shell's job and not the shell; `signal` reaches the job in the foreground."""
    with begun(policy_of(folder), ["bash", "--norc", "-i"], TERMINAL, ENVIRONMENT | {"PS1": "$ "}) as cell:
        assert cell.terminal is not None
        read_until(cell.terminal, b"$ ")
        os.write(cell.terminal, b"sh -c 'echo up; exec cat'\n")
        read_until(cell.terminal, b"\nup\r\n")
        os.write(cell.terminal, CTRL_Z)
        read_until(cell.terminal, b"Stopped")
        assert cell.event() is None
        os.write(cell.terminal, b"fg\n")
        read_until(cell.terminal, b"exec cat")
        os.write(cell.terminal, b"two\n")
        read_until(cell.terminal, b"two\r\ntwo")  # the echo, and what the job writes: it is in the foreground
        cell.signal(signal.SIGTERM)
        read_until(cell.terminal, b"Terminated")
        os.write(cell.terminal, b"exit 5\n")
        assert next_event(cell) == Ended(5, None, None)


def test_connections_to_a_cells_listeners_are_accepted_outside_of_the_cell(folder: Path) -> None:
    """The cell opens the requested port and Unix socket before the agent starts, and passes them to its host."""
    script = (
        "import socket\n"
        "for a in ('127.0.0.1', '::1'):\n"
        "  s = socket.create_connection((a, 4141)); s.sendall(a.encode()); s.close()\n"
        "s = socket.socket(socket.AF_UNIX); s.connect('/run/aileron/run/mcp.sock'); s.sendall(b'unix')\n"
    )
    policy = policy_of(
        folder, tcp_listeners=(("gateway", 4141),), unix_listeners=(("mcp", "/run/aileron/run/mcp.sock"),)
    )
    with begun(policy, [PYTHON, "-I", "-S", "-c", script]) as cell:
        heard = []
        for listener in (*cell.listeners["gateway"], *cell.listeners["mcp"]):
            listener.settimeout(DEADLINE_S)
            connection, _ = listener.accept()
            with connection:
                heard.append(connection.recv(100))
        assert finish(cell).end == Ended(0, None, None)

    assert heard == [b"127.0.0.1", b"::1", b"unix"]


def test_a_port_in_the_cell_is_reached_from_outside(folder: Path) -> None:
    """`connect` reaches it on either loopback address; on a port without a listener it fails."""
    script = (
        "import socket, sys\n"
        "s = socket.create_server((sys.argv[1], 8000), family=socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET)\n"
        "print('up', flush=True)\n"
        "c, _ = s.accept(); c.sendall(b'served')\n"
    )
    for address in ("127.0.0.1", "::1"):
        with begun(policy_of(folder), [PYTHON, "-I", "-S", "-c", script, address]) as cell:
            read_until_said(cell, b"up")
            with pytest.raises(ConnectionRefusedError):
                cell.connect(8001)
            with cell.connect(8000) as connection:
                connection.settimeout(DEADLINE_S)
                assert connection.recv(100) == b"served"


def test_using_too_much_memory_ends_the_command_with_a_reason(folder: Path) -> None:
    """A control group counts all processes together; the command that stays below the limit ends normally."""
    policy = policy_of(folder, memory_bytes=256 << 20)
    script = "x = bytearray(int({}) << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('ok')"

    assert run(policy, [PYTHON, "-I", "-S", "-c", script.format(64)]).out == "ok\n"
    end = run(policy, [PYTHON, "-I", "-S", "-c", script.format(600)]).end
    assert end == Ended(None, signal.SIGKILL, "over its limit of 256 MiB of memory")


def test_a_cells_memory_is_polled_if_no_control_group_is_available(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes and private files count together, and the cell lists the layer `memory:watched`."""
    monkeypatch.setattr(cgroups, "take_one", lambda: None)
    policy = policy_of(folder, memory_bytes=256 << 20)
    fill = "dd if=/dev/zero of=/tmp/x bs=1M count=400 status=none; sleep 60"
    with begun(policy, ["sh", "-c", fill]) as cell:
        assert "memory:watched" in cell.layers
        assert finish(cell).end == Ended(None, signal.SIGKILL, "over its limit of 256 MiB of memory")


OWN_S = f"600.{os.getpid()}"
"""Seconds that no other run of these tests sleeps: an ordinary user's run may be beside root's."""


def test_no_process_outlives_the_close_of_its_cell(folder: Path) -> None:
    """Even a process that has left its session and ignores signals ends."""
    script = f"trap '' HUP TERM; setsid sleep {OWN_S} & echo up; wait"
    with begun(policy_of(folder), ["sh", "-c", script]) as cell:
        read_until_said(cell, b"up")
        found = wait_for(f"sleep\0{OWN_S}")
    assert not [pid for pid in found if os.path.exists(f"/proc/{pid}")]


def test_no_process_of_a_cell_survives_the_process_that_made_the_cell(folder: Path) -> None:
    """The host process gets SIGKILL, so it cannot clean up."""
    script = (
        "import sys, time; sys.path[:0] = sys.argv[1:3]\n"
        "from pathlib import Path\n"
        "from tests.sandbox.cells import *\n"
        "cell = opened(policy_of(Path(sys.argv[3])), ['sleep', sys.argv[4]])\n"
        "cell.begin(); print('up', flush=True); time.sleep(60)\n"
    )
    root = Path(__file__).resolve().parents[2]
    host = subprocess.Popen(
        [sys.executable, "-c", script, str(root), str(root / "sandbox"), str(folder), OWN_S], stdout=subprocess.PIPE
    )
    assert host.stdout is not None
    with host.stdout:
        read_until(host.stdout.fileno(), b"up")
        found = wait_for(f"sleep\0{OWN_S}")
        watched = [os.pidfd_open(pid) for pid in found]
        host.kill()
        host.wait(DEADLINE_S)
        poll = select.poll()
        for fd in watched:
            poll.register(fd, select.POLLIN)
            assert poll.poll(DEADLINE_S * 1000), "it is still there"
            poll.unregister(fd)
            os.close(fd)


def test_invalid_commands_and_environments_are_refused(folder: Path) -> None:
    """A NUL would end a name early; an empty command or variable name means nothing."""
    policy = policy_of(folder)
    for command, environment in (([], {}), (["a\0b"], {}), (["true"], {"A=B": "C"}), (["true"], {"": "C"})):
        with pytest.raises(ValueError, match=r"command|NUL|environment"):
            Cell.start(policy, command, environment, PIPES)


def test_closing_a_cell_twice_or_after_its_end_has_no_effect(folder: Path) -> None:
    """A signal to an ended command has no effect either, and no descriptor stays open."""
    before = len(os.listdir("/proc/self/fd"))
    with begun(policy_of(folder, tcp_listeners=(("a", 4000),)), ["true"], TERMINAL) as cell:
        assert finish(cell).end == Ended(0, None, None)
        cell.signal(signal.SIGTERM)
        cell.close()
        cell.close()
        assert cell.event() is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_checking_the_machine_for_cells_starts_a_real_cell() -> None:
    """The check starts a real cell, and reports the layers that this cell named."""
    report = examine_cell()

    assert report.available, report
    assert {"user-ns", "pivoted-root", "no-capabilities", "seccomp:cell"} <= set(report.layers)
    assert (report.what, report.fix) == (None, None)


def wait_for(command: str) -> list[int]:
    """Wait until processes with this command line exist and return their ids: between a fork and its exec there are none."""
    return wait_until(lambda: _processes_of(command), f"a process {command!r} is there")


def _processes_of(command: str) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if command in Path(f"/proc/{name}/cmdline").read_text(encoding="utf-8", errors="replace"):
                found.append(int(name))
        except OSError:
            continue
    return found
