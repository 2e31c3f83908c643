"""Hostile client of a TCP port: 500 connections at once, of one kind, until its time is over.

    python flooder.py PORT KIND SECONDS [STATUS]

A standalone program with the standard library only, so that another user of the machine can run it. It prints how many
connections it began, and how many responses of each status it read. If a STATUS is given, it goes on until it has read one,
for MOST_S at most.

    pipelined   64 KiB of requests back to back, and closed at once
    refused     one request after the other, for a page without a cookie
    forms       one request after the other, to the form that checks its sender
    agents      one request after the other, for a route that wants a token
    models      one request after the other, to the gateway, which passes it on if it has no key of its own
    upgrades    one request for a WebSocket where there is none
    heads       half a request head, and nothing more
    dripping    a byte of a head at a time
    bodies      a body without end, as fast as it is taken
    churn       connections that are closed at once
    slow        a body that stops after its first byte
"""

from __future__ import annotations

import collections
import selectors
import socket
import sys
import time
from collections.abc import Callable

CONNECTIONS = 500
PIPELINED = 65536
DRIP_S = 0.05
MOST_S = 20.0


def _request(line: str, port: int, *fields: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: localhost:{port}", *fields, "", ""]).encode()


def _said(kind: str, port: int) -> bytes:
    """Return what each connection of this kind sends first, and again after each response."""
    health = _request("GET /healthz", port)
    form = ("Content-Type: application/x-www-form-urlencoded", f"Origin: http://localhost:{port}", "Content-Length: 12")
    return {
        "pipelined": health * (PIPELINED // len(health)),
        "refused": _request("GET /approvals", port),
        "forms": _request("POST /approvals/unlock", port, *form) + b"passphrase=x",
        "agents": _request("GET /v1/actions", port),
        "models": _request("GET /v1/models", port),
        "upgrades": _request("GET /", port, "Connection: upgrade", "Upgrade: websocket"),
        "heads": health[:-4],
        "dripping": health,
        "bodies": _request("POST /v1/messages", port, "Content-Length: 1000000000"),
        "churn": b"",
        "slow": _request("POST /mcp", port, "Content-Length: 100") + b"{",
    }[kind]


class Client:
    """A client that opens one connection after another."""

    def __init__(
        self, port: int, kind: str, watch: selectors.DefaultSelector, counted: collections.Counter[str]
    ) -> None:
        self._port = port
        self._kind = kind
        self._said = _said(kind, port)
        self._watch = watch
        self._counted = counted
        self._sent = 0
        self._next = 0.0
        self._sock = self._connect()

    def _connect(self) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", self._port))
        self._watch.register(sock, selectors.EVENT_WRITE, self)
        self._counted["connections"] += 1
        self._sent = 0
        return sock

    def again(self) -> None:
        """Replace this connection with a new one."""
        self._watch.unregister(self._sock)
        self._sock.close()
        self._sock = self._connect()

    def turn(self, events: int) -> None:
        """Continue the connection after these events."""
        try:
            if events & selectors.EVENT_READ:
                self._read()
            elif events & selectors.EVENT_WRITE:
                self._write()
        except BlockingIOError:
            pass
        except OSError:
            self.again()

    def _read(self) -> None:
        data = self._sock.recv(65536)
        if not data:
            self.again()
            return
        if data.startswith(b"HTTP/1.1 "):
            self._counted[data[9:12].decode()] += 1
        self._sent = 0
        self._watch.modify(self._sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def _write(self) -> None:
        if self._kind == "bodies" and self._sent >= len(self._said):
            self._sock.send(b"x" * 65536)
            return
        if self._kind == "dripping":
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + DRIP_S
        rest = self._said[self._sent :]
        self._sent += self._sock.send(rest[:1] if self._kind == "dripping" else rest) if rest else 0
        if self._sent < len(self._said):
            return
        if self._kind in ("pipelined", "churn"):
            self.again()
        elif self._kind != "bodies":
            self._watch.modify(self._sock, selectors.EVENT_READ, self)


def main(port: int, kind: str, seconds: float, status: str | None = None) -> None:
    """Flood the port, and print the counts."""
    watch = selectors.DefaultSelector()
    counted: collections.Counter[str] = collections.Counter()
    clients = [Client(port, kind, watch, counted) for _ in range(CONNECTIONS)]
    print("begun", flush=True)
    until, most = time.monotonic() + seconds, time.monotonic() + MOST_S
    while (now := time.monotonic()) < until or (status is not None and not counted[status] and now < most):
        if kind == "dripping":
            time.sleep(DRIP_S / 2)  # who drips does not compute
        for key, events in watch.select(0.1):
            client: Client = key.data
            turn: Callable[[int], None] = client.turn
            turn(events)
    print(*(f"{what}={count}" for what, count in sorted(counted.items())), len(clients), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), *sys.argv[4:])
