"""An upstream that speaks HTTP/2 and says exactly the frames a test gives it, and a real server beside it.

`H2Upstream` reads requests with h2's server side, so that what it was sent is checked by another's rules, and answers with
raw frames made by the functions below: whole answers, or lies. `RealH2Server` is hypercorn with a small application.

>>> script = lambda seen: [head(seen, (":status", "200")), data(seen, b"hello", end=True)]
"""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import h2.config
import h2.connection
import h2.events
import hypercorn.asyncio
import hypercorn.config
import trustme
from hpack import HeaderTuple
from hyperframe.frame import ContinuationFrame, DataFrame, Frame, HeadersFrame

from tests.support.upstream import CLOSE, Upstream

__all__ = ["Fields", "H2Script", "H2Seen", "H2Upstream", "RealH2Server", "block", "data", "h2_context", "head", "raw"]

Fields = tuple[tuple[str | bytes, str | bytes], ...]


@dataclasses.dataclass(frozen=True)
class H2Seen:
    """A request. `fields` include the pseudo fields, as h2 returned them (they know whether they were indexable)."""

    stream: int
    fields: tuple[HeaderTuple, ...]
    body: bytes

    def value(self, name: str) -> str | None:
        """Return the value of a field."""
        return next((value.decode() for found, value in self.fields if found == name.encode()), None)

    @property
    def target(self) -> str:
        """Value of `:path`."""
        return self.value(":path") or ""


H2Script = Callable[[H2Seen], Iterable[bytes]]
"""A function that returns the response to a request: frames as bytes; CLOSE closes the connection there."""


def block(*fields: tuple[str | bytes, str | bytes]) -> bytes:
    """Return a header block of literals that no table keeps (RFC 7541 section 6.2.2), so that it can hold anything."""
    out = bytearray()
    for field in fields:
        out += b"\0"
        for part in field:
            text = part.encode("latin-1") if isinstance(part, str) else part
            out += _integer(len(text)) + text
    return bytes(out)


def _integer(value: int) -> bytes:
    """Encode an integer as RFC 7541 section 5.1 says, with a prefix of seven bits."""
    if value < 127:
        return bytes([value])
    out, value = bytearray([127]), value - 127
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def head(seen: H2Seen, *fields: tuple[str | bytes, str | bytes], end: bool = False, stream: int | None = None) -> bytes:
    """Return a HEADERS frame with these fields, and CONTINUATION frames if they are longer than one."""
    whole, stream = block(*fields), seen.stream if stream is None else stream
    parts = [whole[at : at + 16384] for at in range(0, len(whole), 16384)] or [b""]
    first = HeadersFrame(stream, data=parts[0], flags=["END_STREAM"] if end else [])
    frames: list[Frame] = [first, *(ContinuationFrame(stream, data=part) for part in parts[1:])]
    frames[-1].flags.add("END_HEADERS")
    return b"".join(frame.serialize() for frame in frames)


def data(seen: H2Seen, content: bytes, *, end: bool = False) -> bytes:
    """Return DATA frames; the last one ends the stream if `end`."""
    parts = [content[at : at + 16384] for at in range(0, len(content), 16384)] or [b""]
    frames = [DataFrame(seen.stream, data=part) for part in parts]
    if end:
        frames[-1].flags.add("END_STREAM")
    return b"".join(frame.serialize() for frame in frames)


def raw(kind: int, flags: int, stream: int, payload: bytes, length: int | None = None) -> bytes:
    """Return a frame of any kind; `length` declares a false length."""
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def h2_context(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return the context after setting it to choose HTTP/2 if the client offers it."""
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


class H2Upstream(Upstream):
    """An upstream that runs between enter and exit. `seen` are the whole requests; `greeting` is sent after the settings."""

    def __init__(self, script: H2Script, tls: ssl.SSLContext) -> None:
        super().__init__(lambda _seen: b"", h2_context(tls))
        self._h2_script = script
        self.seen: list[H2Seen] = []
        self.greeting: bytes = b""
        self.answers_early = False
        """True to respond as soon as a head has arrived, and to take no more of the body."""

    def _converse(self, sock: socket.socket) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        sock.sendall(connection.data_to_send() + self.greeting)
        heads: dict[int, tuple[Any, ...]] = {}
        bodies: dict[int, bytes] = {}
        while content := sock.recv(65536):
            self.received += content
            for event in connection.receive_data(content):
                match event:
                    case h2.events.RequestReceived():
                        heads[event.stream_id], bodies[event.stream_id] = tuple(event.headers), b""
                        if self.answers_early and not self._say(
                            sock, H2Seen(event.stream_id, heads[event.stream_id], b"")
                        ):
                            return
                    case h2.events.DataReceived():
                        bodies[event.stream_id] += event.data
                        if not self.answers_early:
                            connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    case h2.events.StreamEnded():
                        sock.sendall(connection.data_to_send())
                        stream = event.stream_id
                        if not self.answers_early and not self._say(
                            sock, H2Seen(stream, heads[stream], bodies[stream])
                        ):
                            return
            sock.sendall(connection.data_to_send())

    def _say(self, sock: socket.socket, seen: H2Seen) -> bool:
        self.seen.append(seen)
        for piece in self._h2_script(seen):
            if piece == CLOSE:
                return False
            sock.sendall(piece)
        return True


class RealH2Server:
    """hypercorn, over TLS with ALPN h2, in a thread. `/echo` returns the body, `/big` 2 MiB, `/N` status N, others hello."""

    def __init__(self, directory: Path, ca: trustme.CA, name: str) -> None:
        certificate = ca.issue_cert(name)
        key, chain = directory / "h2.key", directory / "h2.pem"
        certificate.private_key_pem.write_to_path(str(key))
        chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        self._config = hypercorn.config.Config()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = listener.getsockname()[1]
        self._config.bind = [f"fd://{listener.detach()}"]
        self._config.certfile, self._config.keyfile = str(chain), str(key)
        self._config.errorlog = None
        self.scopes: list[dict[str, Any]] = []
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()

    @property
    def connections(self) -> int:
        """Number of connections that carried requests."""
        return len({scope["client"] for scope in self.scopes})

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await hypercorn.asyncio.serve(self._answer, self._config, shutdown_trigger=self._stop.wait)  # type: ignore[arg-type]

    async def _answer(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.scopes.append(scope)
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        path = scope["path"]
        status = int(path[1:]) if path[1:].isdigit() else 200
        content = {"/echo": body, "/big": bytes(range(256)) * 8192}.get(path, b"hello" if status == 200 else b"")
        fields = [(b"x-kind", b"real"), (b"location", b"/elsewhere")] if status == 302 else [(b"x-kind", b"real")]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": content})
