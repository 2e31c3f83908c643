"""A TLS server that gives every request the same small answer: the upstream of bench_egress.py, in a process of its own.

It listens on 127.0.0.1 and a port of the kernel's choice, which it prints. It takes one read for one request, and ends with its
standard input, so it cannot outlive its parent.

    python -m benchmarks.upstream CERTIFICATE-AND-KEY.pem
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["BODY", "port_of", "upstream"]

BODY = b'{"ok": true, "items": ["one", "two", "three"], "next": null, "n": 3}'
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
_END_S = 10.0


def upstream(certificate: Path) -> contextlib.AbstractContextManager[int]:
    """Run the upstream with this certificate. Yield its port."""
    return port_of("benchmarks.upstream", str(certificate))


@contextlib.contextmanager
def port_of(module: str, *words: str) -> Iterator[int]:
    """Run a module that serves in a process of its own. Yield the port that it prints."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


class _Answering(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(_ANSWER)


async def _serve(certificate: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Answering, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
