"""The loopback listener: it waits for the provider's answer to a sign-in, which the person's browser delivers exactly once.

Runs in the daemon; each listener serves one sign-in. It trusts no client, because other users of the machine can connect, and
so can any web page through the browser. redirect.py decides whether a request is the answer; this module limits the cost of
requests.

Rules
- It listens at 127.0.0.1, and at ::1 if the machine has it, on the same port: `localhost` means both addresses, so a program
  that listened at the other address could receive the code.
- The client that delivers the answer must belong to the daemon's own user, or root, as far as the kernel reports the user
  (peer.py). A client of another user is turned away, because that user can read the address with which a browser was started,
  and could sign in with their own account.
- Only one answer is accepted. Later requests are turned away, even with the right `state`. The client that delivered the
  answer waits for the page with the result.
- A connection has CONNECTION_S to send a head of at most HEAD_BYTES. At most MAX_CONNECTIONS connections wait; a further
  connection replaces the oldest, so that silent clients cannot block others. Wrong answers do not end a sign-in; after
  MAX_TRIES wrong answers, further ones get no response, and their connection is closed.
- No part of a request is stored, logged or shown.

Source: RFC 8252 sections 7.3 and 8.3; docs/reference/sign-in.md. Not here: the authorization request (request.py), pages
(pages.py).
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

CONNECTION_S: Final = 5.0  # for the head of a request, which takes a millisecond on this machine
PAGE_S: Final = 45.0  # for the page with the result: longer than the exchange of a code takes (endpoint.py)
HEAD_BYTES: Final = 16 << 10  # 16 KiB, as servers commonly accept; the codes of some providers have 2 KiB
MAX_CONNECTIONS: Final = 32  # at once; a browser opens six
MAX_TRIES: Final = 100  # wrong answers that get a response; a person makes one, with the back button
_BACKLOG: Final = 128  # connections that wait to be accepted; Linux's default would be 4096
_ACCEPT_AGAIN_S: Final = 0.05
# Ports tried until both addresses have it free: another program has one of them once in a thousand times
_PORTS: Final = 16
_NO_IPV6: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH, errno.EPROTONOSUPPORT})
_log = logging.getLogger(__name__)


class Callback:
    """The listener of one sign-in, from `opened` until `close`. `wait_answered` returns the provider's answer."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets: Final = sockets
        self.port: Final[int] = sockets[0].getsockname()[1]
        self.addresses: Final = frozenset(str(listener.getsockname()[0]) for listener in sockets)
        self._waiting: Final[list[anyio.CancelScope]] = []
        """Cancel scopes with the time limits of the connections that have not sent a complete request head yet, the
        oldest first.
        """
        self._answered: Final = anyio.Event()
        self._over: Final = anyio.Event()
        self._told: Final = anyio.Event()
        self._answer: AuthorizationResponse | None = None
        self._page: tuple[int, bytes] = (500, pages.FAILED)
        self._tries = 0

    @classmethod
    def opened(cls) -> Self:
        """Return a listener at a free port. Raises ProviderError(no_port) if no port is found that is free at both
        loopback addresses (127.0.0.1 and ::1).
        """
        with contextlib.suppress(OSError):  # no port left, or no descriptor
            for _ in range(_PORTS):
                sockets = both_listening()
                if sockets is not None:
                    return cls(sockets)
        raise ProviderError("no_port", SIGN_IN["no_port"].what, retriable=True, was_sent=False)

    def close(self) -> None:
        """Stop listening, and close the listener's port."""
        for listener in self._sockets:
            listener.close()

    @contextlib.asynccontextmanager
    async def answering(self, awaited: Awaited) -> AsyncIterator[None]:
        """Return a context manager that accepts the browser's connections while its block runs. `awaited` has the
        values that the provider's answer must match.
        """
        async with anyio.create_task_group() as tasks:
            for listener in self._sockets:
                tasks.start_soon(self._listen, await anyio.abc.SocketListener.from_socket(listener.dup()), awaited)
            yield
            tasks.cancel_scope.cancel()

    async def wait_answered(self) -> AuthorizationResponse:
        """Wait until the browser delivers the provider's answer to the sign-in, and return it."""
        await self._answered.wait()
        assert self._answer is not None
        return self._answer

    async def tell(self, *, is_signed_in: bool) -> None:
        """Send the page with the result of the sign-in to the browser that delivered the provider's answer. Wait at
        most CONNECTION_S until it is sent.
        """
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
        """Answer one request to the listener. Raises no exception, whatever the peer does."""
        async with stream:
            with contextlib.suppress(
                anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError
            ):  # the client disconnected
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
        """Read one request. Return the provider's answer in it, or why the request is turned away; None to close the
        connection without a response.
        """
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
        self._answer = verdict  # there is no wait after the check above, so there is only one
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
    """Return whether the program at the other end of the connection belongs to another user than the daemon. Root does
    not count as another user, because root needs no port to do harm.
    """
    owner = maybe_owner(stream.extra(anyio.abc.SocketAttribute.raw_socket))  # noqa: S610 - anyio's, not a query's
    return owner not in (None, os.geteuid(), 0)


async def _maybe_request(stream: anyio.abc.SocketStream, conversation: h11.Connection) -> h11.Request | None:
    """Return the head of a request, or None if the bytes are not a request. Raises EndOfStream or a similar exception if the
    peer disconnects.
    """
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
    """Return an HTTP response with this status and page as bytes. It is built without h11, because it must also answer
    a request that h11 could not parse.
    """
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Length: {len(page)}"]
    lines += [f"{name}: {value}" for name, value in pages.HEADERS.items()]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + page


def both_listening() -> list[socket.socket] | None:
    """Return sockets that listen at 127.0.0.1 and, if the machine has it, at ::1, on the same free port. Return None if
    ::1 cannot be used with the chosen port, for example because another program uses it.
    """
    first = listening_socket(socket.AF_INET, "127.0.0.1", 0)
    try:
        return [first, listening_socket(socket.AF_INET6, "::1", first.getsockname()[1])]
    except OSError as error:
        if error.errno in _NO_IPV6:
            return [first]
        first.close()
        return None


def listening_socket(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    """Return a socket that listens on a port of a loopback address; port 0 selects any free port. Raises OSError if another
    program uses the port.
    """
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
