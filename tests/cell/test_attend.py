"""Tests of the command beside real cells: in a terminal, under a shell with jobs, with pipes and files, and by signals."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from tests.support.attended import agent, attended
from tests.support.ports import reserve_ports
from tests.support.raw_terminal import RawTerminal
from tests.support.tmux import Tmux
from tests.support.waiting import unread, wait_still, wait_until

pytestmark = pytest.mark.jail

DEADLINE_S = 60.0
ENVIRONMENT = {"PATH": os.environ["PATH"], "PS1": "shell>", "LC_ALL": "C.UTF-8"}
SHELL = ["bash", "--norc", "--noprofile", "--noediting", "-i"]


def piped(*words: str, given: bytes = b"", **options: str) -> subprocess.CompletedProcess[bytes]:
    """Run an attended command with pipes at all three streams."""
    return subprocess.run(
        attended(*words, **options), input=given, capture_output=True, timeout=DEADLINE_S, check=False
    )


# Pipes and files


def test_pipes_carry_every_byte_and_the_agents_exit_code_is_passed_on() -> None:
    """Terminal sequences are not filtered in a pipe, more than any buffer passes, and standard error stays separate."""
    data = os.urandom(3_000_000) + b"\x1b]52;c;eA==\x07"
    same = piped("/usr/bin/cat", given=data)
    apart = piped("/bin/sh", "-c", "echo out; echo err >&2; exit 7")

    assert (same.returncode, same.stderr) == (0, b"")
    assert same.stdout == data
    assert (apart.returncode, apart.stdout, apart.stderr) == (7, b"out\n", b"err\n")


def test_the_agent_reads_and_writes_a_shared_file_at_the_shells_offset(tmp_path: Path) -> None:
    """The shell shares the file's offset with the command: what others write before and after stays."""
    source, sink = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"x" * 500_000)
    command = f"(echo before; {shlex.join(attended('/usr/bin/wc', '-c'))} < {source}; echo behind) > {sink}"
    subprocess.run(["/bin/sh", "-c", command], check=True, timeout=DEADLINE_S)

    assert sink.read_text() == "before\n500000\nbehind\n"


def test_a_socket_can_be_standard_input_and_output() -> None:
    """Node.js gives its child processes sockets as standard streams."""
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        subprocess.Popen(attended("/usr/bin/cat"), stdin=theirs.fileno(), stdout=theirs.fileno()) as process,
    ):
        theirs.close()
        ours.settimeout(DEADLINE_S)
        ours.sendall(b"through")
        ours.shutdown(socket.SHUT_WR)
        parts = []
        while part := ours.recv(100):
            parts.append(part)
        assert process.wait(DEADLINE_S) == 0
    assert b"".join(parts) == b"through"


def test_an_agent_whose_reader_is_gone_gets_sigpipe() -> None:
    """This is so outside a cell too: if the reader has closed the pipe, no output is read any more."""
    with subprocess.Popen(attended("/usr/bin/yes"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == b"y\n"
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("way", ["is read", "is interrupted"])
def test_the_command_waits_for_a_reader_that_pauses(way: str) -> None:
    """The command outlives the agent until all output is read; Ctrl-C ends that wait with a note on lost output."""
    words = attended("/usr/bin/head", "-c", "100000", "/dev/zero")  # two pipes are 128 KiB: it ends before that is read
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        full, children = process.stdout.fileno(), psutil.Process(process.pid).children
        wait_until(lambda: unread(full) == 65536 and not children(), "the cell is closed, and its output waits")
        if way == "is read":
            assert wait_still(process.poll, "it waits for its reader", for_s=0.7) is None
        else:
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 128 + signal.SIGINT
        out, err = process.communicate(timeout=DEADLINE_S)

    if way == "is read":
        assert (process.returncode, len(out), err) == (0, 100_000, b"")
    else:
        assert err == b"attended: SIGINT before all of its output was read\n"


def test_the_exit_code_for_an_agent_killed_by_a_signal_is_128_plus_the_signals_number() -> None:
    """The exit code is 128 plus the signal's number."""
    assert piped(*agent("kill", "9")).returncode == 137


def test_a_program_that_cannot_be_executed_is_an_error() -> None:
    """The message has the kernel's reason."""
    assert b"FileNotFoundError: [Errno 2]" in piped("/nonexistent").stderr
    with RawTerminal(attended("/nonexistent"), ENVIRONMENT) as at:
        at.until(b"FileNotFoundError: [Errno 2]")


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_is_passed_on_to_the_agent(number: signal.Signals) -> None:
    """The command exits with the agent's exit code."""
    with subprocess.Popen(attended(*agent("signal")), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"it is ready\r\n"
        process.send_signal(number)
        out, _ = process.communicate(timeout=DEADLINE_S)
    assert (out, process.returncode) == (f"saw {number.name}\r\n".encode(), 5)


@pytest.mark.slow
def test_an_agent_that_does_not_end_is_killed() -> None:
    """The command waits for its timeout after a signal, and says how long that was."""
    with subprocess.Popen(
        attended(*agent("stubborn"), patience="0.2"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 137
    assert b"still running 0.2 s after SIGTERM" in err


def test_an_agent_started_with_an_ignored_hangup_signal_ignores_it() -> None:
    """Under nohup(1), the agent gets no SIGHUP and continues until another signal ends it."""
    words = ["/usr/bin/env", "--ignore-signal=HUP", *attended(*agent("signal"))]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=DEADLINE_S)
    assert out == b"saw SIGTERM\r\n"


def test_the_command_is_suspended_when_its_agent_is_suspended() -> None:
    """The test has no terminal: the command gets SIGTSTP and stops with its agent, and later passes SIGCONT on."""
    with subprocess.Popen(
        attended(*agent("stop")), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTSTP)
        stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=DEADLINE_S)
    assert stopped is not None
    assert (out, process.returncode) == (b"saw SIGCONT\r\n", 4)


# Terminals


def test_typed_keys_reach_the_agent_unchanged() -> None:
    """Control characters and a bracketed paste arrive byte for byte; the outer terminal echoes none of them."""
    typed = "\x03\x1a\x1c\x13\x11\x04\r\n\x1b[200~pasted\r\x1b[201~é\x7fq".encode()
    with RawTerminal(attended(*agent("keys")), ENVIRONMENT) as at:
        at.until(b"it is ready\r\n")
        at.type(typed)
        at.until(repr(typed).encode() + b"\r\n")
        assert at.end() == 0
    assert b"pasted\r\x1b[201~" not in at.shown


def test_ctrl_c_sends_sigint_to_the_agent_inside_the_cell() -> None:
    """The cell's terminal turns it into SIGINT for the agent; the command itself continues."""
    with RawTerminal(attended(*agent("signal")), ENVIRONMENT) as at:
        at.until(b"it is ready")
        at.type(b"\x03")
        at.until(b"saw SIGINT")
        assert at.end() == 5


@pytest.mark.parametrize(("pipe", "code"), [("", 4), (" | cat", 0)])
def test_ctrl_z_stops_the_whole_job_and_fg_continues_it(pipe: str, code: int) -> None:
    """The shell sees the stop, has its terminal as before, and gets the exit code. The rest of a pipeline stops as well."""
    with RawTerminal(SHELL, ENVIRONMENT) as at:
        at.until(b"shell>")
        at.line(shlex.join(attended(*agent("stop"))) + pipe)
        at.until(b"it is ready")
        at.type(b"\x1a")
        at.until(b"Stopped")
        at.until(b"shell>")
        at.line("stty -a")
        settings = at.until(b"shell>")
        at.line("fg")
        at.until(b"saw SIGCONT")
        at.until(b"shell>")
        at.line("echo code=$?")
        at.until(f"\ncode={code}\r".encode())

    assert {b"icanon", b"isig", b"echo", b"opost"} <= set(settings.split())


def test_an_agent_without_a_job_control_shell_is_not_stopped() -> None:
    """A shell without job control could not continue it: the kernel would not stop it outside a cell either."""
    with RawTerminal(attended(*agent("stop")), ENVIRONMENT) as at:
        at.until(b"it is ready")
        at.type(b"\x1a")
        at.until(b"saw SIGCONT")
        assert at.end() == 4


@pytest.mark.parametrize("way", ["exits", "is killed", "is told", "hangs up"])
def test_the_terminal_is_restored_however_the_session_ends(way: str) -> None:
    """The agent exits or is killed, or the command gets SIGTERM or SIGHUP: modes, title and settings are as before."""
    words = shlex.join(attended(*agent("screen", *(["9"] if way == "is killed" else []))))
    with RawTerminal(SHELL, ENVIRONMENT) as at:
        at.until(b"shell>")
        at.line("before=$(stty -g)")
        at.until(b"shell>")
        at.line(f"{words} & pid=$!; fg >/dev/null" if way in ("is told", "hangs up") else words)
        at.until(b"it is ready")
        if way in ("is told", "hangs up"):
            group = os.tcgetpgrp(at.descriptor)
            os.kill(group, signal.SIGTERM if way == "is told" else signal.SIGHUP)
        else:
            at.type(b"x")
        told = at.until(b"\x1b[23;0t")
        at.until(b"shell>")
        at.line('test "$before" = "$(stty -g)" && echo as before')
        at.until(b"\nas before\r")

    for off in (b"\x1b[?1000l", b"\x1b[?2004l", b"\x1b[?25h"):
        assert off in told
    assert told.index(b"\x1b[<1u") < told.index(b"\x1b[?1049l") < told.index(b"\x1b[23;0t")


def test_the_terminal_modes_of_a_stopped_agent_are_off_until_it_continues() -> None:
    """SIGSTOP leaves the agent no time to restore the terminal, so the command does; fg turns the modes on again."""
    with RawTerminal(SHELL, ENVIRONMENT) as at:
        at.until(b"shell>")
        at.line(shlex.join(attended(*agent("screen", str(int(signal.SIGSTOP))))))
        at.until(b"it is ready")
        at.type(b"x")
        off = at.until(b"\x1b[23;0t")
        at.until(b"shell>")
        at.line("fg")
        on = at.until(b"it goes on")
        at.type(b"x")
        at.until(b"\x1b[?1049l")
        at.until(b"shell>")

    for number in (b"1000", b"1049", b"2004"):
        assert b"\x1b[?%sl" % number in off
        assert b"\x1b[?%sh" % number in on
    assert b"\x1b]0;agent\x1b\\" in on


def test_the_agent_gets_the_size_of_the_window() -> None:
    """The size is right from the beginning, and follows changes."""
    with Tmux(attended(*agent("resize")), ENVIRONMENT, size=(90, 30)) as at:
        at.until("size 30 90")
        at.do("resize-window", "-x", "100", "-y", "25")
        at.until("now 25 100")
        at.until_over()


def test_no_terminal_reply_ends_up_as_input_of_the_shell() -> None:
    """An agent sends a thousand queries and exits; queries whose reply it could choose are never passed on."""
    with Tmux(SHELL, ENVIRONMENT) as at:
        at.until("shell>")
        at.type(shlex.join(attended(*agent("questions"))) + "; echo over")
        at.until("\nover")
        at.type("echo typed")
        screen = at.until("\ntyped")

    assert re.search(r"^shell>echo typed$", screen, re.MULTILINE), screen
    assert "rgb" not in screen


def test_the_command_waits_for_the_replies_of_a_slow_terminal() -> None:
    """The reply to the command's own last query comes after all others, so then none can reach the shell."""
    with RawTerminal(SHELL, ENVIRONMENT, is_slow=True) as at:
        at.until(b"shell>")
        at.line(shlex.join(attended(*agent("questions"))))
        at.until(b"\x1b[c")
        at.until(b"shell>")
        late = at.answer()
        at.line("echo typed")
        typed = at.until(b"\r\ntyped\r\n")

    assert late == 0
    assert typed == b"echo typed\r\ntyped\r\n"


def test_a_full_screen_program_looks_the_same_in_a_cell_and_outside() -> None:
    """less(1) shows the same in a cell and outside, with every attribute; afterwards the shell's screen is back."""
    words = ["/bin/sh", "-c", "seq 1 100 | sed 's/$/ é ─ 漢字/' | LESS= LC_ALL=C.UTF-8 less"]
    shown = []
    for command in (attended(*words), words):
        with Tmux(SHELL, ENVIRONMENT) as at:
            at.until("shell>")
            at.type(shlex.join(command))
            at.until("\n2 é ─ 漢字")
            at.keys("G")
            at.until("\n100 é ─ 漢字")
            shown.append(at.do("capture-pane", "-p", "-e"))
            at.keys("q")
            at.until_pressed("Enter", "shell>")
            assert "100 é" not in at.text
    assert shown[0] == shown[1]


def test_output_to_a_terminal_with_piped_input_is_filtered() -> None:
    """The terminal is not in raw mode, and Ctrl-C reaches the command, which passes it on."""
    with RawTerminal(SHELL, ENVIRONMENT) as at:
        at.until(b"shell>")
        at.line(r"printf 'a\033]52;c;eA==\007b' | " + shlex.join(attended("/usr/bin/cat")))
        at.until(b"\r\nab")
        at.until(b"shell>")
        at.line("sleep 30 | " + shlex.join(attended(*agent("signal"))))
        at.until(b"it is ready")
        at.type(b"\x03")
        at.until(b"saw SIGINT")

    assert b"\x1b]52" not in at.shown


# Doors


def test_a_cell_reaches_a_target_through_a_door_and_is_reached_by_a_published_port(tmp_path: Path) -> None:
    """A door is a forwarded connection; it first sends its preamble to the target, and never into the cell."""
    with socket.socket(socket.AF_UNIX) as target:
        target.bind(str(tmp_path / "d"))
        target.listen()
        heard: list[bytes] = []

        def answer() -> None:
            made, _ = target.accept()
            with made:
                heard.append(made.recv(12, socket.MSG_WAITALL))
                made.sendall(b"from outside")

        thread = threading.Thread(target=answer)
        thread.start()
        said = piped(*agent("door"), door=str(tmp_path / "d"))
        thread.join(DEADLINE_S)
    assert heard == [b"token\nhello\n"]
    assert said.stdout == b"from outside\r\n"
    (port,) = reserve_ports(1)
    with subprocess.Popen(
        attended(*agent("serve"), publish=f"{port}:3000"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as client:
            client.sendall(b"it")
            assert client.recv(9, socket.MSG_WAITALL) == b"served it"
        assert process.wait(DEADLINE_S) == 0


def test_no_process_or_descriptor_of_a_session_is_left() -> None:
    """Several sessions run one after the other in one process; none leaks a descriptor, process or zombie."""
    script = (
        "import ctypes, os, sys, psutil\n"
        "from tests.support import attended as a\n"
        "def left(): return sorted(os.listdir('/proc/self/fd')), psutil.Process().children(recursive=True)\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans become children of this process\n"
        "sys.argv = ['x', '--', '/bin/true']\n"
        "a.main(); descriptors, _ = left()\n"
        "for _ in range(3): a.main()\n"
        "assert left() == (descriptors, []), (left(), descriptors)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, timeout=DEADLINE_S, check=False)

    assert (done.returncode, done.stderr) == (0, b"")
