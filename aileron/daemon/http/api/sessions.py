"""Routes of agents' sessions, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from aileron.api.sessions import EndSession, NewSession, OpenSession, Session, SessionDetails, SessionList
from aileron.daemon.http.api.requests import caller_of
from aileron.daemon.http.sessions import Sessions
from aileron.model.failure import AileronError, FailureClass

__all__ = ["SessionRoutes"]

_MAX_PID_DIGITS: Final = 7
"""Maximum number of digits of a process number: PID_MAX_LIMIT is 4,194,304 (proc_sys_kernel(5))."""


class SessionRoutes:
    """HTTP request handlers for agents' sessions. One instance per daemon."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def list_sessions(self, request: Request) -> SessionList:
        """List sessions, the newest first. With the query parameter `pid`, list only the session that started this process."""
        asked = request.query_params.get("pid")
        if asked is None:
            return SessionList(sessions=await self._sessions.newest())
        if not (asked.isascii() and asked.isdigit() and len(asked) <= _MAX_PID_DIGITS):
            raise AileronError(FailureClass.INVALID_REQUEST, "pid is not the number of a process")
        return SessionList(sessions=await self._sessions.of_process(int(asked)))

    async def open_session(self, request: Request, asked: OpenSession) -> NewSession:
        """Begin a session; its token is returned only once."""
        opener = caller_of(request).process
        return await self._sessions.open(
            asked.agent,
            asked.folder,
            asked.for_s,
            asked.pid,
            only=asked.only,
            cell=asked.cell,
            inject=asked.inject,
            opener=opener,
        )

    async def show_session(self, request: Request) -> SessionDetails:
        """Return one session."""
        return await self._sessions.details(request.path_params["id"])

    async def end_session(self, request: Request, asked: EndSession) -> Session:
        """End a session and invalidate its token."""
        return await self._sessions.end(request.path_params["id"], asked.exit_code)
