"""The git connector in an ordinary process, with git itself as the server behind its streams. No jail, no daemon, no login.

`program_of` packs it as its README does, with the dulwich of the test environment. `GitHost` answers a `tcp_open` frame by
running the command of the frame here, as a server's shell would after the login.

    host = GitHost(program_of(tmp_path), repositories)
    host.call("list_refs", repository="site.git").output
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from aileron_sandbox.frames import Cancel, Chunk, Failed, GrantedHost, ProtocolError, Result, TcpOpen, TcpOpened
from tests.support.plain_host import ROOT, ConnectorProcess, Report, invoke

GIT: Final = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "GIT_AUTHOR_DATE": "2026-03-01T10:00:00+01:00",
    "GIT_COMMITTER_DATE": "2026-03-01T10:00:00+01:00",
}
"""The environment of git in tests: independent of the user who runs them."""


def git(*arguments: str, at: Path, data: bytes | None = None, **environment: str) -> str:
    """Return the output of git without the final newline. CalledProcessError if it fails."""
    ran = subprocess.run(
        ["git", *arguments], cwd=at, input=data, capture_output=True, check=True, env=GIT | environment, timeout=30
    )
    return ran.stdout.decode().rstrip("\n")


def program_of(into: Path) -> Path:
    """Return the connector's folder with dulwich beside it, in pure Python, as the README says to install it."""
    folder = into / "git"
    shutil.copytree(ROOT / "connectors" / "git", folder)
    spec = importlib.util.find_spec("dulwich")
    assert spec is not None
    assert spec.origin is not None
    unpacked = shutil.ignore_patterns("*.so", "__pycache__", "tests")
    shutil.copytree(Path(spec.origin).parent, folder / "dulwich", ignore=unpacked)
    return folder


class GitHost:
    """A host that runs operations; each stream is a git command in the folder of the repositories.

    `serve` turns a command into the arguments of a program: another program makes a server that lies. `commands` are the
    requested commands. With `version` 2, git speaks that version of its protocol, as servers do that are asked to.
    """

    def __init__(
        self,
        program: Path,
        repositories: Path,
        *,
        serve: Callable[[str], list[str]] = shlex.split,
        version: int = 0,
        timeout_s: float = 30.0,
    ) -> None:
        self.commands: Final[list[str]] = []
        self._program: Final = program
        self._repositories: Final = repositories
        self._serve: Final = serve
        self._environment: Final = GIT | ({"GIT_PROTOCOL": f"version={version}"} if version else {})
        self._timeout_s: Final = timeout_s

    def call(self, op: str, **args: Any) -> Report:
        """Run one invocation in a process of its own, and return its report."""
        told: list[Any] = []
        servers: dict[int, _Server] = {}
        lock = threading.Lock()
        first = invoke(op, hosts=[GrantedHost("git.example.com", 22, False)], **args)
        with ConnectorProcess(self._program, first, timeout_s=self._timeout_s) as connector:
            try:
                while True:
                    message, body = connector.receive()
                    match message:
                        case Result() | Failed():
                            connector.wait()
                            sent, given = bytes(connector.sent), bytes(connector.given)
                            return Report(message, told, [], sent, given, connector.printed())
                        case TcpOpen():
                            assert message.command is not None
                            self.commands.append(message.command)
                            servers[message.id] = _Server(self._started(message.command), message.id, connector, lock)
                        case Chunk():
                            servers[message.id].take(bytes(body or b""), end=message.end)
                        case Cancel():
                            servers[message.id].stop()
                        case _:
                            told.append(message)
            finally:
                for server in servers.values():
                    server.stop()
                    server.wait()

    def _started(self, command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._serve(command),
            cwd=self._repositories,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        )


class _Server:
    """A running command, and the thread that passes on its output."""

    def __init__(self, process: Any, stream: int, connector: ConnectorProcess, lock: threading.Lock) -> None:
        self._process: Final = process
        self._stream: Final = stream
        self._connector: Final = connector
        self._lock: Final = lock
        self._thread: Final = threading.Thread(target=self._pass_on)
        self._send(TcpOpened(id=stream))
        self._thread.start()

    def take(self, data: bytes, *, end: bool) -> None:
        """Pass the connector's bytes on to the server."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(data)
            self._process.stdin.flush()
            if end:
                self._process.stdin.close()

    def stop(self) -> None:
        """Kill the command."""
        self._process.kill()

    def wait(self) -> None:
        """Wait until the command has ended and all its output is passed on."""
        self._thread.join(10)
        self._process.wait(10)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()

    def _pass_on(self) -> None:
        while data := os.read(self._process.stdout.fileno(), 1 << 16):
            self._send(Chunk(id=self._stream), data)
        self._send(Chunk(id=self._stream, end=True))

    def _send(self, message: Any, data: bytes = b"") -> None:
        with self._lock, contextlib.suppress(OSError, ProtocolError):  # it may have said its last word
            self._connector.send(message, data)
