"""Small programs that run in a cell in an agent's place: `python attended_agents.py NAME`. Standard library only."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import sys
import termios
import time
import tty

__all__: list[str] = []


def _say(text: str) -> None:
    os.write(1, text.encode() + b"\r\n")


def _await(*numbers: int) -> str:
    """Block these signals, report ready, and wait. Return the name of the first signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    _say("it is ready")
    return signal.Signals(signal.sigwait(numbers)).name


def _size() -> str:
    rows, columns, *_ = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))
    return f"{rows} {columns}"


def main(name: str, *words: str) -> int:
    """Run the program with this name and return its exit code."""
    match name:
        case "keys":  # what is typed, byte for byte, to the first q
            tty.setraw(0)
            _say("it is ready")
            data = b""
            while not data.endswith(b"q"):
                data += os.read(0, 100)
            _say(repr(data))
        case "signal":  # end by the first signal
            _say("saw " + _await(signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP))
            return 5
        case "stop":
            _say("saw " + _await(signal.SIGCONT))
            return 4
        case "screen":  # everything on; words are what it does then
            on = b"\x1b[?1049h\x1b[?1000h\x1b[?2004h\x1b[?25l\x1b[>1u\x1b]0;agent\x07\x1b[2J\x1b[H"
            os.write(1, on)
            tty.setraw(0)
            _say("it is ready")
            os.read(0, 1)
            if words:
                os.kill(os.getpid(), int(words[0]))
                _say("it goes on")
                os.read(0, 1)
        case "resize":
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
            _say("size " + _size())
            signal.sigwait([signal.SIGWINCH])
            _say("now " + _size())
        case "stubborn":
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
            _say("it is ready")
            time.sleep(1000)
        case "questions":
            tty.setraw(0)
            os.write(1, b"\x1b[c\x1b[6n\x1b]11;?\x07\x1b[>q\x1b[21t\x1bP$qm\x1b\\\x1b]52;c;?\x07" * 200)
        case "kill":
            os.kill(os.getpid(), int(words[0]))
        case "serve":
            with socket.create_server(("127.0.0.1", 3000)) as server:
                _say("it is ready")
                made, _ = server.accept()
                with made:
                    made.sendall(b"served " + made.recv(100))
                    made.recv(1)  # until the client has it and closes: what is on its way ends with the agent
        case "door":
            with socket.create_connection(("127.0.0.1", 7000), 10) as made:
                made.sendall(b"hello\n")
                _say(made.recv(100).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
