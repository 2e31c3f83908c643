"""Adapter for httpx, at its own interface: a transport takes a request and returns a response.

Clients use `httpx.HTTPTransport` and `AsyncHTTPTransport` by default, and `handle_request` is a documented method of
transports. So the methods of these two classes are replaced. Redirects, cookies, auth and timeouts stay httpx's.
httpcore and its certificates are never loaded.

Asynchronous requests run concurrently: one of the waiting tasks watches the pipe from the host for all of them (with
anyio, which httpx depends on). Sending is not asynchronous: an upload blocks the event loop until the host has taken it.

Runs inside the jail. Source: https://www.python-httpx.org/advanced/transports/. Not here: the exchange (exchange.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Any, Final

from aileron_connector import loop
from aileron_connector.failures import Refused
from aileron_connector.transports.exchange import Exchange, origin_of
from aileron_sandbox.frames import MAX_BODY_BYTES, Frame, HttpHead

__all__ = ["change_httpx"]

_BEFORE_SENDING: Final = frozenset({"queue", "resolve", "connect"})
"""Phases of a network_error in which nothing was sent yet; docs/reference/egress.md lists the phases."""


def change_httpx(library: ModuleType) -> None:
    """Make the transports of httpx, or of a library with the same classes, send requests through the host within an
    invocation.
    """
    _change_class(library, library.HTTPTransport, "handle_request", "close", "__enter__", "__exit__")
    _change_class(library, library.AsyncHTTPTransport, "handle_async_request", "aclose", "__aenter__", "__aexit__")


def _change_class(library: ModuleType, kind: Any, handle: str, close: str, enter: str, leave: str) -> None:
    """Replace the methods of httpx's transport class `kind`, so that within an invocation the host sends its requests.
    Outside an invocation, the original object is initialized and its original methods are called.

    The original object is initialized only then, because clients are often made when a module is loaded, before the
    invocation begins.
    """
    original = {name: getattr(kind, name) for name in ("__init__", handle, close, enter, leave)}

    def keep(self: Any, *args: Any, **options: Any) -> None:
        self._aileron_made_with = (args, options)

    def made(self: Any) -> None:
        args, options = self.__dict__.pop("_aileron_made_with", (None, None))
        if args is not None:
            original["__init__"](self, *args, **options)

    def is_made(self: Any) -> bool:
        return "_aileron_made_with" not in self.__dict__

    def handle_request(self: Any, request: Any) -> Any:
        if loop.maybe_current() is not None:
            return _respond(library, request)
        made(self)
        return original[handle](self, request)

    async def handle_async_request(self: Any, request: Any) -> Any:
        if loop.maybe_current() is not None:
            return await _respond_async(library, request)
        made(self)
        return await original[handle](self, request)

    def sync(name: str) -> Any:
        def method(self: Any, *args: Any) -> Any:
            if is_made(self):
                return original[name](self, *args)
            return self if name == enter else None

        return method

    def asynchronous(name: str) -> Any:
        async def method(self: Any, *args: Any) -> Any:
            if is_made(self):
                return await original[name](self, *args)
            return self if name == enter else None

        return method

    is_async = handle == "handle_async_request"
    kind.__init__ = keep
    setattr(kind, handle, handle_async_request if is_async else handle_request)
    for name in (close, enter, leave):
        setattr(kind, name, asynchronous(name) if is_async else sync(name))


def _respond(library: ModuleType, request: Any) -> Any:
    waits = _Waits(request)
    with _own_errors(library, request):
        body = _inline(library, request)
        exchange = _exchange(request, body)
        if body is None:
            with _closed_on_error(exchange):
                for piece in request.stream:
                    exchange.upload(piece)
                exchange.end_upload()
        head = exchange.read_head(waits.head_s)

    class Body(library.SyncByteStream):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[bytes]:
            with _own_errors(library, request):
                while piece := exchange.read_piece(waits.read_s):
                    yield piece

        def close(self) -> None:
            exchange.close()

    return _response(library, head, Body())


async def _respond_async(library: ModuleType, request: Any) -> Any:
    waits = _Waits(request)
    with _own_errors(library, request):
        body = _inline(library, request)
        exchange = _exchange(request, body)
        with _closed_on_error(exchange):
            if body is None:
                async for piece in request.stream:
                    exchange.upload(piece)
                exchange.end_upload()
            head = exchange.take_head(await _next_frame(exchange, waits.head_s))

    class Body(library.AsyncByteStream):  # type: ignore[misc, name-defined]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            with _own_errors(library, request):
                while not exchange.is_done:
                    piece = exchange.take_piece(await _next_frame(exchange, waits.read_s))
                    if piece:
                        yield piece

        async def aclose(self) -> None:
            exchange.close()

    return _response(library, head, Body())


class _Waits:
    """The timeouts of a request, as the waits of this transport. The host connects, so the connect timeout is added to
    the wait for the answer's head.
    """

    def __init__(self, request: Any) -> None:
        timeouts = request.extensions.get("timeout", {})
        self.read_s: Final[float | None] = timeouts.get("read")
        connect_s = timeouts.get("connect")
        self.head_s: Final = None if self.read_s is None or connect_s is None else self.read_s + connect_s


def _inline(library: ModuleType, request: Any) -> bytes | None:
    """Return the complete body if it is in memory and fits into one frame. None if it must be streamed."""
    if not isinstance(request.stream, library.ByteStream):
        return None
    body = b"".join(request.stream)
    return body if len(body) <= MAX_BODY_BYTES else None


def _exchange(request: Any, body: bytes | None) -> Exchange:
    url = request.url
    origin = origin_of(url.raw_scheme.decode("ascii"), url.raw_host.decode("ascii"), url.port)
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in request.headers.raw
        if name.lower() != b"transfer-encoding"
    ]
    target = url.raw_path.decode("ascii")
    return Exchange(request.method, origin, target, headers, body or None, is_streamed=body is None)


def _response(library: ModuleType, head: HttpHead, body: Any) -> Any:
    headers = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in head.headers]
    return library.Response(
        status_code=head.status, headers=headers, stream=body, extensions={"http_version": b"HTTP/1.1"}
    )


@contextlib.contextmanager
def _own_errors(library: ModuleType, request: Any) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise library.ReadTimeout(str(error) or "timed out", request=request) from error
    except Refused as error:
        is_before = error.details.get("phase") in _BEFORE_SENDING
        raise (library.ConnectError if is_before else library.ReadError)(error.message, request=request) from error


@contextlib.contextmanager
def _closed_on_error(exchange: Exchange) -> Iterator[None]:
    try:
        yield
    except BaseException:
        exchange.close()
        raise


class _Watch:
    """The shared wait of all tasks that wait for frames of one conversation. Only one task at a time watches the
    descriptor, because it can have only one reader.

    Any task may read frames of another task, when it checks for its own frames or while it sends:
    1 A watches the descriptor · 2 B uploads, and reads all frames meanwhile, including A's answer · 3 no more frames arrive.
    So that A does not wait for ever, the watching task and all waiting ones are woken whenever frames were read.
    """

    def __init__(self, conversation: loop.Conversation) -> None:
        import anyio

        self.conversation: Final = conversation
        self._heard = anyio.Event()
        self._watching: Any = None  # the scope of the task that watches
        self._waiting = 0

    async def wait(self) -> None:
        """Wait until frames may have arrived, or stored frames were taken, so that more can be read."""
        self._waiting += 1
        self.conversation.on_heard.add(self.tell)
        try:
            if self._watching is not None or self.conversation.is_full:
                await self._heard.wait()
            else:
                await self._watch()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.conversation.on_heard.discard(self.tell)

    async def _watch(self) -> None:
        import anyio

        try:
            with anyio.CancelScope() as self._watching:
                await anyio.wait_readable(self.conversation.fd_in)
        finally:
            self._watching = None
            self.tell()  # another task may watch

    def tell(self) -> None:
        """Wake all waiting tasks, so that they check again."""
        import anyio

        self._heard.set()
        self._heard = anyio.Event()
        if self._watching is not None:
            self._watching.cancel()


_watch: _Watch | None = None


async def _next_frame(exchange: Exchange, timeout_s: float | None) -> Frame:
    """Wait for the next frame of this exchange, without blocking the event loop. Raises TimeoutError after `timeout_s`."""
    global _watch  # one process has one conversation; tests have several in sequence
    import anyio

    conversation = exchange.conversation
    if _watch is None or _watch.conversation is not conversation:
        _watch = _Watch(conversation)
    with anyio.fail_after(timeout_s):
        while (frame := conversation.maybe_answer(exchange.request_id)) is None:
            await _watch.wait()
    _watch.tell()  # there is room again
    return frame
