"""Sessions: agents at work.

Source: docs/reference/sessions.md.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from aileron.api.body import Body

__all__ = ["EndSession", "NewSession", "OpenSession", "Session", "SessionList"]


class OpenSession(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/sessions`. The session ends after `for_s` seconds (60 to 604800), or earlier if the
    process `pid` ends. Without `for_s`, it lasts 12 hours, or a week if it has a `pid`. `folder` is an absolute path.
    `only` are selectors of the actions that the session can use (docs/reference/sessions.md): without any, it can use all.
    """

    agent: str
    folder: str
    for_s: int | None = None
    pid: int | None = None
    only: list[str] = msgspec.field(default_factory=list)


class EndSession(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/sessions/{id}/end`: the exit code of the agent, if it is known."""

    exit_code: int | None = None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): one session. `runs` is the number of runs that it requested. `pid` is the process that
    `aileron launch` started, or null. `ended_at` and `reason` (`ended`, `expired` or `process gone`) are null while the
    session is open. `exit_code` is null if it is not known. Times are in UTC.
    `only` are the selectors of the actions that it can use, and `folder_only` those that the settings have for its folder;
    either is empty if there is no limit.
    """

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
    only: list[str] = msgspec.field(default_factory=list)
    folder_only: list[str] = msgspec.field(default_factory=list)


class NewSession(Session, frozen=True, kw_only=True):
    """Response body (200): the new session and its token, which is returned only once."""

    token: str

    def __repr__(self) -> str:
        return f"NewSession({self.id}, <token>)"


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): sessions, newest first, at most 200."""

    sessions: list[Session]
