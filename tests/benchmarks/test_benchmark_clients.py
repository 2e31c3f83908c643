"""The benchmarks' client: a connection that the server has closed does not count against the server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.door import Kept

DEADLINE_S = 30.0


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nConnection: close\r\n"],
)
def test_a_benchmark_client_reconnects_after_the_server_closed_the_connection(tmp_path: Path, head: bytes) -> None:
    """A server may close an idle connection while another program is measured; some responses announce the close."""
    closed = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.settimeout(DEADLINE_S)
        server = threading.Thread(target=_serve_each_once, args=(listener, 2, head + b"\r\n{}", closed.set))
        server.start()
        with Kept(tmp_path / "s", b"GET / HTTP/1.1\r\n\r\n") as client:
            client.run()
            assert closed.wait(DEADLINE_S)
            client.run()
            assert client.body == {}
        server.join(DEADLINE_S)


def _serve_each_once(listener: socket.socket, times: int, answer: bytes, tell: Callable[[], None]) -> None:
    for _ in range(times):
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)
        tell()
