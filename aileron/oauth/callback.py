"""The loopback listener: it waits for the provider's one answer, brought by the person's browser.

Runs in the daemon, for one sign-in at a time each. It trusts nobody who connects: other users of the machine can, and so can any
web page by way of the browser. redirect.py says what is the answer; here is only what it costs to be asked.

Rules
- 127.0.0.1, and ::1 where there is one, at the same port: whoever had the other could be given the code, as `localhost` is both.
- Who brings the answer is the daemon's own user, or root, as far as the kernel says who it is (peer.py). Another user of the
  machine is turned away: they can read the address that a browser was started with, and would sign in as themselves.
- One answer. Who comes after it is turned away, with the right `state` too; the one who brought it waits for the page that says
  what became of it.
- A connection has CONNECTION_S for a head of at most HEAD_BYTES. MAX_CONNECTIONS are waited for; one more takes the place of the
  oldest, so that silence keeps nobody out. Wrong tries do not end a sign-in; after MAX_TRIES of them such connections are closed
  without a word.
- Nothing of a request is kept, logged or shown.

Source: RFC 8252 sections 7.3 and 8.3; docs/reference/sign-in.md. Not here: what is asked (request.py), pages (pages.py).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final, Self

import anyio
import anyio.abc
import anyio.to_thread
import h11

from aileron.oauth import pages
from aileron.oauth.peer import maybe_owner
from aileron.oauth.problems import SIGN_IN, ProviderError
from aileron.oauth.redirect import AuthorizationResponse, Awaited, TurnedAway, judged

__all__ = ["Callback"]

CONNECTION_S: Final = 5.0  # for the head of a request; on this machine it takes a millisecond
PAGE_S: Final = 45.0  # for the page that says what became of it: longer than the exchange of a code takes (endpoint.py)
HEAD_BYTES: Final = 16 << 10  # 16 KiB: what servers take of a request's head; the codes of some providers have 2 KiB
MAX_CONNECTIONS: Final = 32  # at once; a browser opens six
MAX_TRIES: Final = 100  # wrong ones that are told so; a person makes one, with the back button
_BACKLOG: Final = 128  # that wait to be taken; as many as Linux takes by default would be 4096
_ACCEPT_AGAIN_S: Final = 0.05
_PORTS: Final = 16  # ports tried until both addresses have one: another program has it once in a thousand times
_NO_IPV6: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH, errno.EPROTONOSUPPORT})
_log = logging.getLogger(__name__)


class Callback:
    """Listens from `opened` on until it is closed. `wait_for` can be asked once."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets: Final = sockets
        self.port: Final[int] = sockets[0].getsockname()[1]
        self.addresses: Final = frozenset(str(each.getsockname()[0]) for each in sockets)
        self._waiting: Final[list[anyio.CancelScope]] = []
        """Of connections that have not said all of a head yet, the oldest first."""
        self._answered: Final = anyio.Event()
        self._over: Final = anyio.Event()
        self._told: Final = anyio.Event()
        self._answer: AuthorizationResponse | None = None
        self._page: tuple[int, bytes] = (500, pages.FAILED)
        self._tries = 0

    @classmethod
    def opened(cls) -> Self:
        """Listening, at a port of the moment. ProviderError(no_port)."""
        with contextlib.suppress(OSError):  # no port left, or no descriptor
            for _ in range(_PORTS):
                sockets = both_listening()
                if sockets is not None:
                    return cls(sockets)
        raise ProviderError("no_port", SIGN_IN["no_port"].what, retriable=True, was_sent=False)

    def close(self) -> None:
        """Listen no more."""
        for each in self._sockets:
            each.close()

    @contextlib.asynccontextmanager
    async def answering(self, awaited: Awaited) -> AsyncIterator[None]:
        """Take connections while in the block."""
        async with anyio.create_task_group() as tasks:
            for each in self._sockets:
                tasks.start_soon(self._listen, await anyio.abc.SocketListener.from_socket(each.dup()), awaited)
            yield
            tasks.cancel_scope.cancel()

    async def wait_answered(self) -> AuthorizationResponse:
        """The answer, when it is there."""
        await self._answered.wait()
        assert self._answer is not None
        return self._answer

    async def tell(self, *, is_signed_in: bool) -> None:
        """What became of it, on the page of who brought it; waits until it is sent, as long as that may take."""
        self._page = (200, pages.SIGNED_IN) if is_signed_in else (400, pages.FAILED)
        self._over.set()
        with anyio.move_on_after(CONNECTION_S):
            await self._told.wait()

    # one connection

    async def _listen(self, listener: anyio.abc.SocketListener, awaited: Awaited) -> None:
        async with listener, anyio.create_task_group() as tasks:
            while True:
                try:
                    stream = await listener.accept()
                except OSError:  # no descriptor left, or the peer is gone already: others have their turn first
                    await anyio.sleep(_ACCEPT_AGAIN_S)
                else:
                    tasks.start_soon(self._converse, stream, awaited)

    async def _converse(self, stream: anyio.abc.SocketStream, awaited: Awaited) -> None:
        """Answer one request. Never raises for what a peer does."""
        async with stream:
            with contextlib.suppress(
                anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError
            ):  # it went away
                await self._answer_one(stream, awaited)

    async def _answer_one(self, stream: anyio.abc.SocketStream, awaited: Awaited) -> None:
        conversation = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        if len(self._waiting) >= MAX_CONNECTIONS:
            self._waiting[0].cancel()
        with anyio.move_on_after(CONNECTION_S) as waited:
            self._waiting.append(waited)
            try:
                verdict = await self._judge(stream, conversation, awaited)
            finally:
                self._waiting.remove(waited)
        if waited.cancelled_caught or verdict is None:
            return
        try:
            status, page = await self._page_for(verdict)
            with anyio.move_on_after(CONNECTION_S):
                await stream.send(_response(status, page))
        finally:
            if verdict is self._answer:
                self._told.set()

    async def _judge(
        self, stream: anyio.abc.SocketStream, conversation: h11.Connection, awaited: Awaited
    ) -> AuthorizationResponse | TurnedAway | None:
        """None: close without a word."""
        request = await _maybe_request(stream, conversation)
        if request is None:
            return TurnedAway(400)
        hosts = [value.decode("latin-1") for name, value in request.headers if name == b"host"]
        verdict = judged(request.method.decode("latin-1"), request.target.decode("latin-1"), hosts, awaited)
        if isinstance(verdict, AuthorizationResponse) and await anyio.to_thread.run_sync(_is_a_stranger, stream):
            verdict = TurnedAway(403, was_try=True)
        if isinstance(verdict, TurnedAway):
            return self._counted(verdict)
        if self._answer is not None:
            return TurnedAway(400)
        self._answer = verdict  # no wait between the look and this: there is one
        self._answered.set()
        return verdict

    def _counted(self, verdict: TurnedAway) -> TurnedAway | None:
        self._tries += verdict.was_try
        if self._tries == MAX_TRIES:
            _log.warning("sign-in: %s wrong answers reached its local port; further ones get no reply", MAX_TRIES)
        return None if self._tries > MAX_TRIES else verdict

    async def _page_for(self, verdict: AuthorizationResponse | TurnedAway) -> tuple[int, bytes]:
        if isinstance(verdict, TurnedAway):
            return verdict.status, pages.turned_away(verdict.status)
        with anyio.move_on_after(PAGE_S):
            await self._over.wait()
        return self._page


def _is_a_stranger(stream: anyio.abc.SocketStream) -> bool:
    """Another user than the daemon's, and not root, who needs no port for what they want."""
    owner = maybe_owner(stream.extra(anyio.abc.SocketAttribute.raw_socket))  # noqa: S610 - anyio's, not a query's
    return owner not in (None, os.geteuid(), 0)


async def _maybe_request(stream: anyio.abc.SocketStream, conversation: h11.Connection) -> h11.Request | None:
    """The head of a request; None for what is none. EndOfStream and the like when the peer goes away."""
    try:
        while True:
            event = conversation.next_event()
            if isinstance(event, h11.Request):
                return event
            if event is not h11.NEED_DATA:
                return None
            conversation.receive_data(await stream.receive(HEAD_BYTES))
    except h11.RemoteProtocolError:
        return None


def _response(status: int, page: bytes) -> bytes:
    """Made by hand: it has to be sent after a request that h11 could not read, too."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Length: {len(page)}"]
    lines += [f"{name}: {value}" for name, value in pages.HEADERS.items()]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + page


def both_listening() -> list[socket.socket] | None:
    """A listener at each loopback address, at one port. None: another program has that port at one of them."""
    first = listening_socket(socket.AF_INET, "127.0.0.1", 0)
    try:
        return [first, listening_socket(socket.AF_INET6, "::1", first.getsockname()[1])]
    except OSError as error:
        if error.errno in _NO_IPV6:
            return [first]
        first.close()
        return None


def listening_socket(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    """One that listens on this port of a loopback address, 0 for any. OSError where another program has it."""
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((address, port))
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made
