"""`run/cell.sock`: HTTP requests of a cell's agent, which act as its session, without a token.

Runs in the daemon. The agent connects to a socket in its cell. The process that manages the cell from outside connects here and
forwards the bytes. So the kernel identifies the caller: only the process that opened the cell's session is accepted, and no
other process of the same user, whatever token it sends. The bytes come from the agent, and are not trusted.

    below the gateway's paths   the gateway, with the vault's key in place of the client's
    everything else             the API, agent scope; no pages, no /mcp

Rules
- The process is identified when its connection is accepted (ingress/peers.py); each request checks that it still has an open
  cell. Any other process is refused and recorded.
- The headers Authorization and x-api-key contain only placeholders here, which are neither compared nor used as a token.
- A browser in the cell may run untrusted pages, and no page may send requests here. So Host must be a name of loopback, at any
  port, because the cell has its own loopback interface. A request with Origin or Sec-Fetch-Site is refused; programs send
  neither.
- One cell can have MAX_UNDER_WAY requests in progress at once.
- A response that is in progress when the session ends is cut off (sessions.py, `until_over`).

Source: docs/reference/sessions.md#cells; docs/adr/0062-the-agent-in-a-cell.md; unix(7); W3C, Fetch Metadata Request Headers.
Not here: forwarding the bytes (aileron/cell), the key (aileron/gateway).
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aileron.audit.log import Audit
from aileron.daemon.http.responses import failure_answer
from aileron.daemon.http.sessions import LOCAL_SESSION, CellSession, Sessions
from aileron.ingress.known import of_cell
from aileron.ingress.peers import PeerProcess
from aileron.ingress.server import drained, peer_of
from aileron.model.failure import AileronError, Boundary, FailureClass

__all__ = ["OnlyOfCells"]

MAX_UNDER_WAY: Final = 128
"""Maximum number of requests of one cell in progress at once: half of all requests that the gateway handles at once, so that one
cell cannot take them all. One agent was observed with a dozen.
"""
_SCOPE: Final = "cell"
"""Scope and route (_ROUTE) that are recorded for a refused caller. They name the socket, because the request itself is not
read.
"""
_ROUTE: Final = "cell.sock"
_HOST: Final = re.compile(rb"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
_OF_BROWSERS: Final = (b"origin", b"sec-fetch-site")


class OnlyOfCells:
    """Middleware that admits only the process of an open cell's session, and adds the session to the request
    (ingress/known.py).
    """

    def __init__(self, app: ASGIApp, sessions: Sessions, audit: Audit) -> None:
        self._app = app
        self._sessions = sessions
        self._audit = audit
        self._under_way: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI)."""
        try:
            process = peer_of(scope)
            cell = None if process is None else self._sessions.cell_of_process(process)
        except OSError as error:
            await _refuse_untold(error, scope, receive, send)
            return
        try:
            if cell is None:
                await self._audit.caller_refused(_SCOPE, _ROUTE, LOCAL_SESSION)
                raise _no_cell(process)
            _check_no_page(scope)
            with self._place(cell):
                await self._answer(cell, scope, receive, send)
        except AileronError as error:
            await drained(receive)
            await failure_answer(error.failure)(scope, receive, send)

    async def _answer(self, cell: CellSession, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application for as long as the session is open. Raises AileronError (unauthorized) if the session ended
        before the response began. If it ends later, the response stays incomplete, and the client can see that.
        """
        has_begun = is_whole = False

        async def said(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                await self._sessions.until_over(cell.id)
                tasks.cancel_scope.cancel()

            tasks.start_soon(end)
            await self._app(of_cell(scope, cell.id), receive, said)
            is_whole = True
            tasks.cancel_scope.cancel()
        if not (is_whole or has_begun):
            self._sessions.check_open(cell.id)

    @contextlib.contextmanager
    def _place(self, cell: CellSession) -> Iterator[None]:
        """Occupy one of the cell's MAX_UNDER_WAY slots for requests during the block. Raises AileronError (busy) if no
        slot is free.
        """
        if self._under_way[cell.id] >= MAX_UNDER_WAY:
            raise AileronError(
                FailureClass.BUSY, f"{MAX_UNDER_WAY} requests of this cell are under way: try again", retriable=True
            )
        self._under_way[cell.id] += 1
        try:
            yield
        finally:
            self._under_way[cell.id] -= 1
            if not self._under_way[cell.id]:
                del self._under_way[cell.id]


async def _refuse_untold(why: OSError, scope: Scope, receive: Receive, send: Send) -> None:
    """Respond that the caller cannot be identified now. The caller must make its next attempt on a new connection, because each
    connection is checked only once.
    """
    problem = f"whose request this is cannot be told now ({why.strerror}): try again"
    answer = failure_answer(AileronError(FailureClass.BUSY, problem, retriable=True).failure)
    answer.headers["Connection"] = "close"
    await drained(receive)
    await answer(scope, receive, send)


def _check_no_page(scope: Scope) -> None:
    """Check that the request was not sent by a page in a browser. Raises AileronError (unauthorized) if it was."""
    fields: list[tuple[bytes, bytes]] = scope["headers"]
    hosts = [value for name, value in fields if name == b"host"]
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        raise _refused("Host is not localhost, 127.0.0.1 or [::1]: in a cell, Aileron has no other names")
    if any(name in _OF_BROWSERS for name, _ in fields):
        raise _refused("a page in a browser sent this (Origin, Sec-Fetch-Site), and pages are not answered in a cell")


def _no_cell(process: PeerProcess | None) -> AileronError:
    who = (
        "the process that connected has ended or is in another pid namespace"
        if process is None
        else f"process {process.pid} has none"
    )
    return _refused(
        f"this socket answers only a process with an open cell, and {who}: `aileron launch` starts an agent; agents outside of "
        "a cell use run/agent.sock"
    )


def _refused(why: str) -> AileronError:
    return AileronError(FailureClass.UNAUTHORIZED, why, boundary=Boundary.USER)
