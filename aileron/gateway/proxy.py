"""The gateway passes an agent's requests to a model's API on byte for byte, and streams the responses back.

An ASGI application in the daemon, behind the check of Host and Origin that every route has. It trusts neither side. If the
vault has the API key, the agent must send its session's token as the key. For an agent in a cell, the daemon identifies the
session by the cell (ingress/known.py); if the vault has the API key, the key that the agent sends is only a placeholder. A
provider is not trusted to end its responses properly.

    agent ⇄ Hypercorn ⇄ Gateway ⇄ httpcore2 ⇄ the provider

Rules
- A body is never stored or logged, and parsed only if the session was started with injected tools (inject/). One piece of a
  body is in memory at a time, and the next is read when the other side has taken it (backpressure): a slow agent slows the
  provider down, and a slow provider the agent.
- Each piece is passed on at once.
- If the agent disconnects, the request upstream is cancelled at once. If the provider's response breaks off, so does the
  response to the agent: it is never ended as if it were complete.
- No request is sent with a session's token. A key from the vault is sent only to the upstream that it is configured for.
- Strangers, that is, callers without an open session, can have at most half of the requests in progress, and must send the next
  piece of a body within STRANGER_IDLE_S. So callers with a session are served, however many strangers there are and however
  slow they are.
- The agent's side uses HTTP/1.1, the only version in which the server can break off a response.

Source: docs/reference/gateway.md; RFC 9110, RFC 9112; the ASGI specification 3.0. Not here: the header fields that pass
(upstreams.py), timeouts of each side (sides.py), sockets (dial.py), rounds with tools (inject/rounds.py), which callers
may connect (daemon/).
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import AsyncIterable, Iterable, Iterator
from typing import Final, Protocol

import anyio
import httpcore2
from starlette.types import Receive, Scope, Send

from aileron.config import GatewaySettings, LiveSettings
from aileron.gateway.dial import Dialer
from aileron.gateway.inject.exchange import WIRES, Injection
from aileron.gateway.inject.rounds import with_tools
from aileron.gateway.sides import Answer, Patience, Sides, Upload, Upstream, busy, refusal
from aileron.gateway.upstreams import (
    Destination,
    Fields,
    check_key,
    check_method,
    check_no_token,
    destinations,
    injected_path,
    provider_of,
    request_fields,
    response_fields,
    token_of,
)
from aileron.ingress.known import cell_session_of, is_strangers
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.secret import Secret
from aileron.tls import client_context

__all__ = ["Gateway", "Keys", "gateway_app"]

MAX_IN_FLIGHT: Final = 256
"""Maximum number of requests of all agents that are in progress at once. Each holds two descriptors, and at most a
megabyte of the server's buffers. An agent with its helpers was observed to use a dozen.
"""
MAX_OF_STRANGERS: Final = MAX_IN_FLIGHT // 2
"""Maximum number of requests in progress at once that came over TCP without an open session. Each uses at most one
connection of the pool to the upstreams, so they use at most half of the pool as well.
"""
KEEP_S: Final = 60.0
"""Seconds for which an idle connection upstream is kept open. An agent's next request seldom comes later than that. A
connection that the upstream closed is not used.
"""
KEEP: Final = 16
"""Maximum number of idle connections upstream: as many as an agent with helpers has at once."""
_log = logging.getLogger(__name__)


class Keys(Protocol):
    """Interface of the vault and the sessions, with the part that the gateway uses."""

    def check_settings(self) -> None:
        """Check that a person consented to the settings in force, which specify where a key is sent, or that there is
        no approver.
        """
        ...

    def vault_is_locked(self) -> bool:
        """Return whether there is a vault and it is locked. Without a vault, return False. Raises the errors of
        `check_settings`, unless the vault is locked.
        """
        ...

    async def upstream_key(self, secret: str) -> Secret:
        """Return the value of a stored secret. Raises AileronError: vault_locked if the vault is locked,
        binding_required if it has no secret of that name.
        """
        ...

    async def check_token(self, token: str) -> None:
        """Check that `token` belongs to an open session. Raises AileronError(unauthorized) otherwise."""
        ...


def gateway_app(
    settings: LiveSettings, keys: Keys, ours: Iterable[tuple[str, int]], injection: Injection | None = None
) -> Gateway:
    """Return the application for the paths of the gateway. It is served at the addresses `ours`, and refuses to connect
    to them as an upstream.

    The caller closes the application when it is no longer served. Without `injection`, no request gets tools.
    """
    return Gateway(settings, keys, ours, injection)


class Gateway:
    """The gateway of a daemon, shared by all its servers."""

    def __init__(
        self, settings: LiveSettings, keys: Keys, ours: Iterable[tuple[str, int]], injection: Injection | None = None
    ) -> None:
        self._settings: Final = settings
        self._keys: Final = keys
        self._injection: Final = injection
        self._new_pool: Final = functools.partial(
            httpcore2.AsyncConnectionPool,
            ssl_context=client_context(settings.now.egress_ca_pem, protocols=("http/1.1",)),
            max_connections=MAX_IN_FLIGHT,
            max_keepalive_connections=KEEP,
            keepalive_expiry=KEEP_S,
            network_backend=Dialer(ours),
        )
        self._pool = self._new_pool()
        self._used = anyio.Event()
        self._in_flight = 0
        self._of_strangers = 0

    async def serve(self) -> None:
        """Close the idle connections to upstreams whenever there was no request for KEEP_S, until cancelled.

        The pool itself checks their age only at the next request.
        """
        while True:
            await self._used.wait()
            while self._used.is_set() or self._in_flight:
                self._used = anyio.Event()
                await anyio.sleep(KEEP_S)
            idle, self._pool = self._pool, self._new_pool()
            await idle.aclose()

    async def aclose(self) -> None:
        """Close the idle connections to upstreams."""
        await self._pool.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI `http` request: send it to a model's API and pass on the response."""
        if any(name == b"upgrade" and value.lower() == b"websocket" for name, value in scope["headers"]):
            await _refuse_websocket(send)
            return
        async with anyio.create_task_group() as tasks:
            patience = Patience()
            upload = Upload(receive, tasks.cancel_scope, patience, is_strangers=is_strangers(scope))
            tasks.start_soon(upload.watch)
            await self._exchange(scope, Sides(upload, Answer(send, tasks.cancel_scope), patience))
            tasks.cancel_scope.cancel()

    async def _exchange(self, scope: Scope, sides: Sides) -> None:
        if scope["http_version"] != "1.1":
            await sides.upload.drain()
            await sides.answer.refuse(_version_failure(scope), 505)
            return
        try:
            with self._place(scope):
                with sides.patience.scope:
                    await self._pass_on(scope, sides)
                sides.patience.check()
        except AileronError as error:
            await sides.upload.drain()
            if sides.answer.has_begun:
                _log.warning("an answer broke off: %s", error)  # without an end, so the server breaks it off
            else:
                await sides.answer.refuse(error.failure)

    @contextlib.contextmanager
    def _place(self, scope: Scope) -> Iterator[None]:
        """Return a context manager that counts a request as in progress while its block runs. Raises AileronError(busy)
        if too many requests are in progress, in all or from callers without an open session.
        """
        strangers = int(is_strangers(scope))
        if self._in_flight >= MAX_IN_FLIGHT:
            raise busy(f"{MAX_IN_FLIGHT} requests to models are under way: try again")
        if strangers and self._of_strangers >= MAX_OF_STRANGERS:
            raise busy(f"{MAX_OF_STRANGERS} requests to models without a session's token are under way: try again")
        self._in_flight += 1
        self._of_strangers += strangers
        self._used.set()
        try:
            yield
        finally:
            self._in_flight -= 1
            self._of_strangers -= strangers

    async def _pass_on(self, scope: Scope, sides: Sides) -> None:
        fields = list(scope["headers"])
        check_method(scope["method"])
        session, path = self._asked_by(scope)
        destination = destinations(self._settings.now.gateway)[provider_of(path, fields)]
        self._check_vault(destination)
        query = scope["query_string"]
        target = destination.prefix + path + (b"?" + query if query else b"")
        sent = await self._fields(scope, fields, destination, target)
        upstream = Upstream(self._pool, destination, scope["method"], target, sent, sides.patience)
        relay = functools.partial(_relay, upstream, sides)
        if self._injection is None or session is None or scope["method"] != "POST" or path not in WIRES:
            await relay(sides.upload)
        else:
            await with_tools(self._injection, session, path, upstream, sides, relay)

    def _asked_by(self, scope: Scope) -> tuple[str | None, bytes]:
        """Return the session whose request gets injected tools, or None if the request gets none, and the path without
        the session's prefix. Raises AileronError: unauthorized if the address belongs to another session or to none,
        not_found if the address is malformed.
        """
        path: bytes = scope["raw_path"]
        if self._injection is None:
            return None, path
        cell, found = cell_session_of(scope), injected_path(path)
        if cell is not None and found is None:  # the connection itself identifies the session
            return (cell if self._injection.tools.is_injected(cell) else None), path
        if found is None:
            return None, path
        session = self._injection.tools.session_of(found[0])
        if cell not in (None, session):
            raise AileronError(FailureClass.UNAUTHORIZED, "this address is another session's", boundary=Boundary.USER)
        return session, found[1]

    def _check_vault(self, to: Destination) -> None:
        if self._settings.now.gateway.require_vault and self._keys.vault_is_locked():
            raise AileronError(
                FailureClass.VAULT_LOCKED,
                "the vault is locked, and the gateway waits for it: `aileron vault unlock`, or gateway.require_vault = false",
                boundary=Boundary.USER,
            )
        try:
            self._keys.check_settings()
        except AileronError as error:
            # Until the vault is open, consent is known only from a file that others can write: so only the defaults pass, which
            # need none.
            if error.failure.failure_class is not FailureClass.VAULT_LOCKED or to != _DEFAULTS[to.provider]:
                raise

    async def _fields(self, scope: Scope, fields: Fields, to: Destination, target: bytes) -> Fields:
        key: bytes | None = None
        if to.secret is not None:
            if cell_session_of(scope) is None:
                await self._keys.check_token(token_of(fields, to))
            key = (await self._keys.upstream_key(to.secret)).reveal()
            check_key(key, to.secret)
        elif to.is_plain and scope["scheme"] == "https":
            raise _only_here(to)
        sent = request_fields(fields, to, key)
        check_no_token(target, sent, to)
        return sent


async def _relay(upstream: Upstream, sides: Sides, content: AsyncIterable[bytes]) -> None:
    """Pass on an agent's request as it is, and the API's response as it arrives."""
    upload, answer, patience = sides.upload, sides.answer, sides.patience
    async with upstream.response(upstream.fields, content) as response:
        patience.wait_for("agent")
        await answer.begin(response.status, response_fields(response.headers))
        patience.wait_for("provider")
        async for piece in response.aiter_stream():
            patience.wait_for("agent")
            await answer.write(piece)
            patience.wait_for("provider")
    await upload.drain()
    patience.wait_for("agent")
    await answer.end()


async def _refuse_websocket(send: Send) -> None:
    """Refuse a request for a WebSocket with status 426 at once: one client requests a WebSocket first, and after any
    other status it tries again for ten seconds.
    """
    failure = AileronError(
        FailureClass.INVALID_REQUEST, "the gateway speaks no WebSocket: send the request with POST"
    ).failure
    upgrade = [(b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade, close")]  # RFC 9110 section 15.5.22
    for message in refusal(failure, 426, upgrade):
        await send(message)


_DEFAULTS: Final = destinations(GatewaySettings())


def _only_here(to: Destination) -> AileronError:
    return AileronError(
        FailureClass.UNAUTHORIZED,
        f"what is served on loopback without a key is not for other machines: set gateway.upstreams.{to.provider}.secret, and "
        "agents there show their session's token",
        boundary=Boundary.USER,
    )


def _version_failure(scope: Scope) -> Failure:
    return AileronError(
        FailureClass.INVALID_REQUEST, f"the gateway speaks HTTP/1.1, not HTTP/{scope['http_version']}"
    ).failure
