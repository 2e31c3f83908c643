"""A process that attends a cell, as `aileron launch` does, under a test's control: it opens a session and connects.

    with Attendant(home.path) as attendant:
        session = attendant.open(hosts=["example.com"])
        attendant.ask("GET", "/v1/actions")                       # on cell.sock, as itself
        attendant.ask("GET", "/v1/actions", by="child")           # the same of a child of its own

It is a program of its own (this file, executed), so that its process id, its start time and its descent are the kernel's. It
answers one command at a time; all that it does has a deadline.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

__all__ = ["Answered", "Attendant"]

_DEADLINE_S: Final = 90.0


class Answered(NamedTuple):
    """A response: a status, and the body, parsed if it is JSON, else as text."""

    status: int
    body: Any

    @property
    def refusal(self) -> tuple[int, str]:
        """Status and class of a failure."""
        assert self.status >= 400, self.body
        return self.status, self.body["error"]["class"]

    @property
    def message(self) -> str:
        """Message of a failure."""
        return str(self.body["error"]["message"])


class Attendant:
    """An attending process that runs between enter and exit."""

    def __init__(self, home: Path) -> None:
        self._home: Final = home

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.attendant", str(self._home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
        )
        return self

    def __exit__(self, *_exc: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Process id of the attendant."""
        return self._process.pid

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait for it."""
        self._process.kill()
        self._process.communicate(timeout=_DEADLINE_S)

    def open(self, **cell: Any) -> dict[str, Any]:
        """Open a session for a cell with these facts, and return it."""
        answered = self.open_with(cell=cell)
        assert answered.status == 200, answered.body
        session: dict[str, Any] = answered.body
        return session

    def open_with(self, **facts: Any) -> Answered:
        """Request a session for this process with these facts. Return the response."""
        body = {"agent": "claude", "folder": "/srv/work", "pid": self.pid, **facts}
        return self.ask("POST", "/v1/sessions", body, at="operator.sock")

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        at: str = "cell.sock",
        by: str = "self",
        headers: dict[str, str] | None = None,
    ) -> Answered:
        """Send one request and return the response. A `pid` of `own` in its body becomes the sender's; a text goes unchanged.

        `by` names the sender: `self`, its `child`, a `grandchild` that was left behind, `passed` (self, on a connection that a
        child made and handed over before it ended) or `heir` (a child, on a connection that this process made and used before
        it ended).
        """
        self.begin(method, path, body, at=at, by=by, headers=headers)
        return self.answered()

    def hold(self, count: int, path: str) -> None:
        """Make `count` connections to cell.sock that each wait for the response to a GET of `path`, until `release`."""
        self.begin("hold", path, count)
        assert self.answered().status == count

    def release(self) -> None:
        """Close the connections that `hold` made."""
        self.begin("release", "")
        self.answered()

    def begin(self, method: str, path: str, body: Any = None, **how: Any) -> None:
        """Send a request as `ask` does, but do not wait for the response."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"method": method, "path": path, "body": body, **how}) + "\n")
        self._process.stdin.flush()

    def answered(self, within_s: float = _DEADLINE_S) -> Answered:
        """Return the response to the request that was begun last."""
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], within_s)[0], f"no answer within {within_s:g} s"
        line = self._process.stdout.readline()
        assert line, "the attendant has ended"
        return Answered(*json.loads(line))


def _main(home: str) -> None:
    held: list[socket.socket] = []
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["method"] in ("hold", "release"):
            while held:
                held.pop().close()
            for _ in range(asked["body"] or 0):
                held.append(_connected(f"{home}/run/cell.sock"))
                held[-1].sendall(f"GET {asked['path']} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            print(json.dumps([len(held), None]), flush=True)
            continue
        by = asked.get("by", "self")
        path = f"{home}/run/{asked.get('at', 'cell.sock')}"
        if by == "heir":
            _bequeath(_connected(path), asked)
        elif by in ("child", "grandchild"):
            print(_from_child(path, asked, is_left=by == "grandchild"), flush=True)
        else:
            print(_request(_passed(path) if by == "passed" else _connected(path), asked), flush=True)


def _connected(path: str) -> socket.socket:
    port = path.rpartition("/tcp:")[2]
    if port.isdigit():
        return socket.create_connection(("127.0.0.1", int(port)), _DEADLINE_S)
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(_DEADLINE_S)
    made.connect(path)
    return made


def _passed(path: str) -> socket.socket:
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            made = _connected(path)
            socket.send_fds(theirs, [b"x"], [made.fileno()])
        finally:
            os._exit(0)
    theirs.close()
    ours.settimeout(_DEADLINE_S)
    (descriptor,) = socket.recv_fds(ours, 1, 1)[1]
    os.waitpid(child, 0)
    made = socket.socket(fileno=descriptor)
    made.settimeout(_DEADLINE_S)
    return made


def _bequeath(made: socket.socket, asked: dict[str, Any]) -> None:
    """Ask on the connection, leave it to a child, and end; the child asks again once its parent is gone."""
    first = http.client.HTTPConnection("localhost")
    first.sock = made
    first.request("GET", "/v1/actions")
    first.getresponse().read()
    parent = os.pidfd_open(os.getpid())
    if os.fork() == 0:
        # Not a pipe that ends: the kernel closes files before a process has ended (do_exit), and until then the parent exists.
        over = select.poll()
        over.register(parent, select.POLLIN)
        if over.poll(_DEADLINE_S * 1000):
            print(_request(made, asked), flush=True)
    os._exit(0)


def _from_child(path: str, asked: dict[str, Any], *, is_left: bool) -> str:
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(out)
            if not (is_left and os.fork() != 0):
                os.write(into, _request(_connected(path), asked).encode())
        finally:
            os._exit(0)
    os.close(into)
    os.waitpid(child, 0)
    with open(out, encoding="utf-8") as said:
        return said.read()


def _request(made: socket.socket, asked: dict[str, Any]) -> str:
    connection = http.client.HTTPConnection("localhost")
    connection.sock = made
    body = asked.get("body")
    if isinstance(body, dict) and body.get("pid") == "own":
        body["pid"] = os.getpid()
    body = body if body is None or isinstance(body, str) else json.dumps(body)
    headers = {"Content-Type": "application/json", **(asked.get("headers") or {})}
    try:
        connection.request(asked["method"], asked["path"], body, headers)
        answer = connection.getresponse()
        data = answer.read()
    except (OSError, http.client.HTTPException) as error:
        return json.dumps([0, type(error).__name__])
    finally:
        made.close()
    try:
        return json.dumps([answer.status, json.loads(data)])
    except ValueError:
        return json.dumps([answer.status, data.decode("utf-8", "replace")])


if __name__ == "__main__":
    _main(sys.argv[1])
