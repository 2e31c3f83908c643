"""Program that runs as the agent: it sends bytes out of its sandbox to a host that is listed for it, and to one that is not.

    python way_out.py HOST PORT OTHER OTHERS_PORT   # prints {"name": "ok" | what it was answered}

The program uses the proxy of HTTPS_PROXY if there is one, and connects directly otherwise. "ok" means that the bytes were
handed over; the host knows what arrived (benchmarks/cell_peers.py). Standard library alone.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import socket
import ssl
import sys
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

_ANSWER_S = 10.0
_ELSEWHERE, _UNLISTED = "elsewhere.example", "unlisted.example"


def main(host: str, port: int, other: str, others_port: int) -> dict[str, str]:
    """Return the outcome of each attempt by its name."""
    return {
        "reach a host that is listed": _answer(lambda: _say(host, port, _hello(host))),
        "name another host in TLS": _answer(lambda: _say(host, port, _hello(_ELSEWHERE))),
        "speak to it without TLS": _answer(lambda: _say(host, port, b"no TLS at all\r\n\r\n")),
        "reach a host that is not listed": _answer(lambda: _say(other, others_port, _hello(_UNLISTED))),
    }


def _answer(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


def _say(host: str, port: int, data: bytes) -> None:
    with _connected(host, port) as made:
        made.settimeout(_ANSWER_S)
        made.sendall(data)
        while made.recv(4096):
            pass


def _connected(host: str, port: int) -> socket.socket:
    proxy = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy")
    if not proxy:
        return socket.create_connection((host, port), _ANSWER_S)
    parts = urlsplit(proxy)
    made = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80), _ANSWER_S)
    head = f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n"
    if parts.username is not None:
        said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        head += f"Proxy-Authorization: Basic {base64.b64encode(said.encode()).decode()}\r\n"
    made.sendall(head.encode() + b"\r\n")
    answered = b""
    while b"\r\n\r\n" not in answered:
        more = made.recv(4096)
        if not more:
            raise OSError(errno.ECONNRESET, "the proxy hung up")
        answered += more
    status = answered.split(maxsplit=2)[1]
    if status != b"200":
        made.close()
        raise OSError(errno.EACCES, answered.decode("latin-1"))
    return made


def _hello(name: str) -> bytes:
    """Return the ClientHello of a client that asks for `name`."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))), flush=True)
