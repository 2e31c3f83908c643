"""Measure what the gateway adds to a model's streamed answer, against the same client connected to the provider itself.

The provider is a process of its own on loopback: it begins its answer the moment a request is complete, and writes the time of
sending into each event, by the clock that all processes of a machine share (CLOCK_MONOTONIC, clock_gettime(2)). The client is a
blocking socket. The gateway is that of a real daemon, without a vault, and with the check of settings, Host and Origin. All
connections are kept. Goals, for the time that the gateway adds:
- from sending a request of 16 KiB to the first byte of its answer: at most 0.7 ms;
- from sending an event to receiving it, with 2 ms between two events: at most 0.1 ms.

    python -m benchmarks.bench_gateway provider     # the other process: prints its port, ends with its standard input
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time

from benchmarks import page
from benchmarks.measure import Measured, Question, adds_at_most, answer, interleave
from benchmarks.upstream import port_of
from tests.support.home import daemon_home

ROUNDS = 150
EVENTS = 20
"""Events of one answer; a sentence or two."""
PAUSE_S = 0.002
"""Seconds between two events: a fast model."""
BODY = b"x" * 16384
"""Body of a request: the first turn of a coding agent, tools included, has this size and more."""
EVENT_BYTES = 160
GATEWAY, DIRECT = "through the gateway", "direct"
_END_S = 10.0
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def main() -> None:
    """Measure and report."""
    with (
        port_of("benchmarks.bench_gateway", "provider") as port,
        daemon_home() as home,
        contextlib.ExitStack() as stack,
    ):
        home.configure(f'[gateway.upstreams.anthropic]\nurl = "http://127.0.0.1:{port}"\n')
        own = int(home.must("GET", "/v1/status")["web"].rpartition(":")[2])
        ways = {GATEWAY: stack.enter_context(_Client(own)), DIRECT: stack.enter_context(_Client(port))}
        firsts = interleave({name: way.first_byte for name, way in ways.items()}, ROUNDS, warm_ups=10)
        chunks = interleave({name: way.chunk_delays for name, way in ways.items()}, ROUNDS, warm_ups=5)
    answer(
        "gateway-first.json",
        firsts,
        [Question("gateway: request to first byte", GATEWAY, DIRECT, adds_at_most(0.0007))],
    )
    answer("gateway-chunk.json", chunks, [Question("gateway: one event", GATEWAY, DIRECT, adds_at_most(0.0001))])


class _Client:
    """A kept connection to the gateway or the provider."""

    def __init__(self, port: int) -> None:
        self._port = port
        fields = b"Host: localhost:%d\r\nx-api-key: k\r\nanthropic-version: 2023-06-01\r\nContent-Length: %d" % (
            port,
            len(BODY),
        )
        self._once = b"POST /v1/messages?events=1 HTTP/1.1\r\n" + fields + b"\r\n\r\n" + BODY
        self._streamed = b"POST /v1/messages?events=%d HTTP/1.1\r\n" % EVENTS + fields + b"\r\n\r\n" + BODY
        self._sock = self._connected()

    def __enter__(self) -> _Client:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._sock.close()

    def first_byte(self) -> Measured:
        """Measure the seconds from the request to the first byte of the answer's body; the rest is read but not timed."""
        began = time.perf_counter()
        self._sock.sendall(self._once)
        data = b""
        while not data.partition(b"\r\n\r\n")[2]:
            data += self._some()
        taken = time.perf_counter() - began
        while not data.endswith(b"0\r\n\r\n"):
            data += self._some()
        return Measured([taken])

    def chunk_delays(self) -> Measured:
        """Measure the seconds from sending each event to having all of it, except the first, which waits for the head."""
        self._sock.sendall(self._streamed)
        data, delays, seen = b"", [], 0
        while not data.endswith(b"0\r\n\r\n"):
            data += self._some()
            now = time.perf_counter_ns()
            while len(found := data.split(b"data: ", seen + 1)) > seen + 1 and len(found[-1]) >= EVENT_BYTES:
                delays.append((now - int(found[-1][:20])) / 1e9)
                seen += 1
        assert seen == EVENTS
        return Measured(delays[1:])

    def _some(self) -> bytes:
        data = self._sock.recv(65536)
        assert data, "the server ended the connection"
        return data

    def _connected(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._port), timeout=_END_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


def _provide() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=_converse, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


def _converse(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        data = b""
        while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < len(BODY):
            received = sock.recv(65536)
            if not received:
                return
            data += received
        events = int(data.partition(b"events=")[2].split(b" ", 1)[0])
        sock.sendall(_HEAD)
        for number in range(events):
            if number:
                time.sleep(PAUSE_S)
            event = b"data: %020d" % time.perf_counter_ns() + b" " * (EVENT_BYTES - 20) + b"\n\n"
            sock.sendall(b"%x\r\n%b\r\n" % (len(event), event))
        sock.sendall(b"0\r\n\r\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["provider"]:
        _provide()
    else:
        main()
        page.write()
