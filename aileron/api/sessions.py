"""Sessions: agents at work.

Source: docs/reference/sessions.md.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from aileron.api.body import Body

__all__ = [
    "CellConnections",
    "CellFacts",
    "EndSession",
    "HostReached",
    "HostRefused",
    "NewSession",
    "OpenSession",
    "Session",
    "SessionDetails",
    "SessionList",
]


class CellFacts(Body, frozen=True, kw_only=True, omit_defaults=False):
    """The hosts that the agent of a session in a cell can reach, at most 128 patterns of the forms
    `NAME`, `NAME:PORT`, `*.NAME` and `*.NAME:PORT` (docs/reference/sessions.md), and whether a person is asked about other hosts.
    """

    hosts: list[str] = msgspec.field(default_factory=list)
    ask: bool = False


class OpenSession(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/sessions`. The session ends after `for_s` seconds (60 to 604800), or earlier if the
    process `pid` ends. Without `for_s`, it lasts 12 hours, or a week if it has a `pid`. `folder` is an absolute path.
    `only` are selectors of the actions that the session can use (docs/reference/sessions.md): without any, it can use all.
    With `cell`, the agent is in a cell, and `pid` is the process that sends this request.
    """

    agent: str
    folder: str
    for_s: int | None = None
    pid: int | None = None
    only: list[str] = msgspec.field(default_factory=list)
    cell: CellFacts | None = None
    inject: bool = False
    """True to insert the actions as tools into the session's requests to models (docs/reference/injected-tools.md)."""


class EndSession(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/sessions/{id}/end`: the exit code of the agent, if it is known."""

    exit_code: int | None = None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): a session. `runs` is the number of runs that it requested. `pid` is the process that
    `aileron launch` started, or null. `ended_at` and `reason` (`ended`, `expired` or `process gone`) are null while the
    session is open. `exit_code` is null if it is not known. Times are in UTC.
    `only` are the selectors of the actions that it can use, and `folder_only` those that the settings have for its folder;
    either list is empty if there is no limit. `cell` is null if the agent is in no cell.
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
    cell: CellFacts | None = None
    inject: bool = False
    """True if the actions are inserted as tools into the session's requests to models."""


class NewSession(Session, frozen=True, kw_only=True):
    """Response body (200): the new session and its token, which is returned only once. `inject_path` is a prefix for
    the paths of the gateway: requests with it get the session's actions as tools. It is as secret as the token; null if
    the session was opened without `inject`.
    """

    token: str
    inject_path: str | None = None

    def __repr__(self) -> str:
        return f"NewSession({self.id}, <token>)"


class HostReached(msgspec.Struct, kw_only=True):
    """A host, `NAME:PORT`, with the number of connections to it, and the number of connections whose end is not recorded
    (still open, or cut off when the daemon ended). `bytes_up` and `bytes_down` are the bytes of TLS that the ended connections
    carried from the agent and to the agent.
    """

    host: str
    connections: int
    not_ended: int
    bytes_up: int
    bytes_down: int


class HostRefused(msgspec.Struct, frozen=True, kw_only=True):
    """A refused host, as the agent wrote it or `unknown`; the rule that refused it (docs/reference/cell-egress.md); and how
    often it was refused.
    """

    host: str
    reason: str
    count: int


class CellConnections(msgspec.Struct, frozen=True, kw_only=True):
    """Connections of a cell's agent: the 20 reached hosts with the most bytes, the 20 most often refused hosts, and the numbers
    of further reached and refused hosts. `is_whole` is false if only the newest 20,000 events of the session were read.
    """

    reached: list[HostReached]
    reached_more: int
    refused: list[HostRefused]
    refused_more: int
    is_whole: bool


class SessionDetails(Session, frozen=True, kw_only=True):
    """Response body (200): a session, and the connections of its agent. `connections` is null if the agent is in no
    cell.
    """

    connections: CellConnections | None = None


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): sessions, newest first, at most 200."""

    sessions: list[Session]
