"""Sessions: agents at work.

Source: docs/reference/sessions.md.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from aileron.api.body import Body

__all__ = ["EndSession", "NewSession", "OpenSession", "Session", "SessionList"]


class OpenSession(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/sessions`: for so many seconds, or until the process `pid` ends."""

    agent: str
    folder: str
    for_s: int | None = None
    pid: int | None = None


class EndSession(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/sessions/{id}/end`."""

    exit_code: int | None = None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One. `runs` is how many it asked for, `pid` the process that `aileron launch` began."""

    id: str
    agent: str
    folder: str
    status: Literal["open", "ended", "expired"]
    started_at: str
    expires_at: str
    ended_at: str | None
    reason: str | None
    exit_code: int | None
    runs: int
    pid: int | None


class NewSession(Session, frozen=True, kw_only=True):
    """One that has just begun, with its token, which is said this once."""

    token: str

    def __repr__(self) -> str:
        return f"NewSession({self.id}, <token>)"


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """The newest first."""

    sessions: list[Session]
