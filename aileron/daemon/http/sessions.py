"""Sessions of agents: each has a token that can list, run and follow its own requests, and nothing else.

Runs in the daemon. The record decides: a session is open from its `session.started` to its `session.ended`, or until its
time is over. Only the digests of tokens are stored, and a restarted daemon reads them from the record.

Rules
- A token that is unknown, ended or expired is refused (`unauthorized`); it never counts as a missing token.
- A session that ends is over at once for all callers. If its end cannot be recorded, the attempt is repeated until it succeeds:
  with the next `end`, and every LOOK_S.
- A session that began with a process ends with it: a launcher that was killed leaves no valid token behind.
- At most MAX_OPEN sessions are open at once, each for at most MAX_S.
- Requests of a session continue when the session ends; a person still decides about them.
- A session can be limited to a selection of the actions: by its own selectors, and by its folder. The same limits apply to
  processes that descend from its process, and to sessions that it started, whatever token they send.
- A session that was started by another session, according to the descent of its process or to the token in its environment,
  permanently shares a quota with that session (model/shares.py). A session whose process does not descend from its opener
  shares a quota with all sessions without a process. Otherwise an opener could name a process that all others descend from.
- A cell's session belongs only to the process that opened it. At the cell's sockets, that process is identified by its number
  and its start time, and not by anything that it sends. A process has at most one such session at a time.

Source: docs/reference/sessions.md. Not here: the routes for tokens (api/, pages.py), starting agents (launch/).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import anyio
import msgspec

from aileron.api.sessions import CellFacts, NewSession, Session, SessionDetails
from aileron.audit import events
from aileron.audit.log import Audit
from aileron.audit.moves import new_id
from aileron.config import LiveSettings, McpSettings
from aileron.daemon.http.cell_connections import cell_connections
from aileron.daemon.http.families import UNSEEN, Families, descent_of
from aileron.daemon.http.peer import variable_of
from aileron.ingress.known import KnownCallers, digest_of
from aileron.ingress.peers import PeerProcess, started_of
from aileron.ledger import MAX_ROWS, EventFilter, EventRow, Ledger, Snapshot
from aileron.ledger.recorded import recorded
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.host_pattern import HostPattern, parse_host_patterns
from aileron.model.invocation import Scope
from aileron.model.selecting import Selection, parse_selectors
from aileron.model.shares import BY_HAND
from aileron.model.timestamp import utc_of_us
from aileron.threads import in_thread

__all__ = [
    "LOCAL_SESSION",
    "MAX_OPEN",
    "MAX_S",
    "TOKEN_PREFIX",
    "TOKEN_VARIABLE",
    "Caller",
    "CellSession",
    "Sessions",
    "no_token",
    "token_shown",
]

LOCAL_SESSION: Final = "local"
"""Session of all callers on a socket of this home that send no token. These callers see each other's runs."""
TOKEN_VARIABLE: Final = "AILERON_SESSION_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable with the session token, for an agent and all programs that the agent starts (launch/agent.py)."""
TOKEN_PREFIX: Final = "ail_"  # noqa: S105 - what a token begins with
MAX_OPEN: Final = 256
"""Maximum number of open sessions: an agent is a process of hundreds of megabytes."""
MAX_S: Final = 7 * 24 * 3600
"""Maximum duration of a session in seconds, a week: longer than a person leaves an agent running without checking it."""
DEFAULT_S: Final = 12 * 3600
"""Default duration in seconds of a session without a process: a day's work."""
MAX_LISTED: Final = 200
LOOK_S: Final = 5.0
"""Seconds between two checks whether the processes of sessions still run."""
END_S: Final = 2.0
"""Seconds between two checks whether the session of a response in progress has ended. The documentation promises that such a
response ends at most five seconds after its session.
"""
MAX_TOKEN: Final = 256
"""Maximum number of characters of an Authorization header that are examined; a token has 47."""
_MIN_S: Final = 60
_MAX_FOLDER: Final = 4096  # PATH_MAX, limits.h
_AGENT: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_TOKEN: Final = re.compile(TOKEN_PREFIX + r"[A-Za-z0-9_-]{43}", re.ASCII)
_SHA256: Final = "sha256:"
_CLOCK_S: Final = 1.0
"""Maximum difference in seconds between two readings of the same process's start time, which the kernel counts in hundredths of
a second since boot.
"""
_log = logging.getLogger(__name__)


class Caller(NamedTuple):
    """The caller of a request: the scope of the socket, the session, and the id of the process at the other end of the
    connection, if that is known.
    """

    scope: Scope
    session: str
    process: int | None = None

    @property
    def sees(self) -> str | None:
        """Session whose runs and questions the caller can see; None if the caller can see all."""
        return self.session if self.scope is Scope.AGENT else None


class CellSession(NamedTuple):
    """An open session whose agent is in a cell. If `ask` is true, a person is asked about hosts that match none of `hosts`."""

    id: str
    hosts: tuple[HostPattern, ...]
    ask: bool
    folder: str
    agent: str


class _Open(msgspec.Struct, frozen=True, kw_only=True):
    """An open session, as described by its event `session.started`."""

    id: str = msgspec.field(name="session")
    token_digest: str
    expires_at_us: int
    pid: int | None = None
    pid_started: float | None = None
    party: str | None = None
    agent: str = ""
    folder: str = ""
    only: tuple[str, ...] = ()
    cell_hosts: tuple[str, ...] | None = None
    cell_asks: bool = False
    pid_ticks: int | None = None
    above_only: tuple[tuple[str, ...], ...] = ()
    """Selector lists of the sessions in which this session was opened. They limit this session, even after those sessions have
    ended.
    """
    above_folders: tuple[str, ...] = ()
    inject_digest: str | None = None
    """Digest of the name in this session's gateway addresses, if tools are inserted into its requests; otherwise None."""

    def __post_init__(self) -> None:
        for texts in self.every_only:
            parse_selectors(texts)  # ValueError: an unreadable row opens no session
        parse_host_patterns(self.cell_hosts or ())

    @property
    def every_only(self) -> tuple[tuple[str, ...], ...]:
        """Lists of selectors: this session's list, and the lists of the sessions in which it was opened."""
        return (*((self.only,) if self.only else ()), *self.above_only)

    @property
    def every_folder(self) -> tuple[str, ...]:
        """This session's folder, and the folders of the sessions in which it was opened."""
        return (self.folder, *self.above_folders)

    def selection(self, mcp: McpSettings) -> Selection:
        """Return the actions that the session can use according to its selectors and to the settings for its folder."""
        of_folders = [found for folder in self.every_folder if (found := mcp.of_folder(folder)) is not None]
        return Selection((*map(parse_selectors, self.every_only), *of_folders))

    @property
    def process(self) -> tuple[int | None, float | None]:
        """Process that the session began with: its number, and its start time, because the kernel reuses numbers."""
        return self.pid, self.pid_started

    @property
    def cell(self) -> CellSession | None:
        """This session with its cell's host patterns; None if its agent is not in a cell."""
        if self.cell_hosts is None:
            return None
        return CellSession(self.id, parse_host_patterns(self.cell_hosts), self.cell_asks, self.folder, self.agent)

    @property
    def shares_as(self) -> str:
        """Party whose quota this session's runs count against."""
        return self.party or (BY_HAND if self.pid is None else self.id)


class Sessions:
    """The sessions of agents. One instance per daemon. Changed limits for a session's folder apply from its next request."""

    def __init__(self, audit: Audit, ledger: Ledger, known: KnownCallers, settings: LiveSettings) -> None:
        self._audit = audit
        self._ledger = ledger
        self._known = known
        self._settings = settings
        self._open: dict[str, _Open] = {}
        """Open sessions by the digest of their token."""
        self._ends: dict[str, events.SessionEnded] = {}
        """Events of ended sessions that are not recorded yet, or whose callbacks were not called yet, by session id."""
        self._ending = anyio.Lock()
        self._opening = anyio.Lock()
        self._families = Families()
        """Process families of the sessions that began with a process and are counted as a party of their own."""
        self._within = Families()
        """Process families of all sessions that began with a process. A session's limits apply to all descendants of its
        process.
        """
        self._started: dict[str, _Open] = {}
        """Sessions that have a process family, by id, for as long as their process exists."""
        self._told_ended: list[Callable[[str], Awaitable[None]]] = []

    async def load(self) -> None:
        """Load from the ledger the sessions that were open when the last daemon ended."""
        since_us = self._ledger.now_us() - MAX_S * 1_000_000
        still_open, ended = await self._ledger.read(lambda snapshot: _sessions(snapshot, since_us))
        for session in ended:
            self._add_family(session)
        for session in still_open[-MAX_OPEN:]:
            self._add(session)

    async def open(
        self,
        agent: str,
        folder: str,
        for_s: int | None = None,
        pid: int | None = None,
        *,
        only: Sequence[str] = (),
        cell: CellFacts | None = None,
        inject: bool = False,
        opener: int | None = None,
    ) -> NewSession:
        """Begin a session of at most `for_s` seconds that the process `opener` requests and that ends with the process `pid`.
        Return the facts about the session, and its token, which is returned only once.

        Raises AileronError (invalid_request, busy).
        """
        for_s = (DEFAULT_S if pid is None else MAX_S) if for_s is None else for_s
        _check(agent, folder, for_s, only)
        hosts = None if cell is None else _checked_hosts(cell, pid, opener)
        started = None if pid is None else await in_thread(_start_of, pid)
        if pid is not None and started is None:
            raise AileronError(
                FailureClass.INVALID_REQUEST, f"process {pid}, which the session should end with, does not exist"
            )
        ticks = None if pid is None or cell is None else started_of(pid)
        party = await in_thread(self._party_of_new, opener, pid)
        above = await in_thread(self._above_new, opener)
        above_only = tuple(dict.fromkeys(texts for outer in above for texts in outer.every_only))
        above_folders = tuple(dict.fromkeys(found for outer in above for found in outer.every_folder if found))
        async with self._opening:
            if len(self._open) + len(self._ends) >= MAX_OPEN:
                raise AileronError(
                    FailureClass.BUSY, f"{MAX_OPEN} sessions are open: end one with `aileron sessions end ID`"
                )
            if cell is not None:
                self._check_first_cell(pid, ticks)
            now_us = self._ledger.now_us()
            token = TOKEN_PREFIX + secrets.token_urlsafe(32)
            # Clients write addresses into logs and errors, so this name is not the token: it is valid at the gateway alone.
            name = TOKEN_PREFIX + secrets.token_urlsafe(32) if inject else None
            session = _Open(
                id=new_id("ses", now_us),
                token_digest=_digest(token),
                expires_at_us=now_us + for_s * 1_000_000,
                pid=pid,
                pid_started=started,
                party=party,
                agent=agent,
                folder=folder,
                only=tuple(only),
                cell_hosts=hosts,
                cell_asks=cell is not None and cell.ask,
                pid_ticks=ticks,
                above_only=above_only,
                above_folders=above_folders,
                inject_digest=None if name is None else _digest(name),
            )
            self._add_family(session)  # before the record: if its process cannot be read, no session begins
            try:
                await self._audit.note(_event_of(session))
            except AileronError:
                self._started.pop(session.id, None)
                raise
            self._know(session)
        path = None if name is None else f"/inject/{name}"
        return NewSession(**msgspec.structs.asdict(await self.show(session.id)), token=token, inject_path=path)

    async def end(self, session: str, exit_code: int | None) -> Session:
        """End a session. A session that has already ended stays unchanged. Raises AileronError (not_found)."""
        for open_session in [open_session for open_session in self._open.values() if open_session.id == session]:
            self._end(open_session, "ended", exit_code)
        await self._record_end(session)
        return await self.show(session)

    def session_of(self, token: str) -> str:
        """Return the id of the session that this token belongs to. Raises AileronError (unauthorized)."""
        session = self._open.get(_digest(token)) if _TOKEN.fullmatch(token) else None
        if session is None or session.expires_at_us <= self._ledger.now_us():
            raise _over()
        return session.id

    def session_of_address(self, name: str) -> str:
        """Return the id of the session that has this name in its gateway addresses. Raises AileronError (unauthorized)."""
        digest, now_us = _digest(name), self._ledger.now_us()
        for session in self._open.values():
            if session.inject_digest == digest and session.expires_at_us > now_us:
                return session.id
        raise AileronError(
            FailureClass.UNAUTHORIZED,
            "this address is unknown or its session has ended: start one with `aileron launch AGENT --inject` or "
            "`aileron sessions new --inject`",
            boundary=Boundary.USER,
        )

    def is_injected(self, session: str) -> bool:
        """Return whether the session is open and tools are inserted into its requests to models."""
        return any(
            open_session.id == session and open_session.inject_digest is not None
            for open_session in self._open.values()
        )

    def check_open(self, session: str) -> None:
        """Check that a connection of this session may still send requests. Raises AileronError (unauthorized)."""
        now_us = self._ledger.now_us()
        if session == LOCAL_SESSION or any(
            open_session.id == session and open_session.expires_at_us > now_us for open_session in self._open.values()
        ):
            return
        raise _over()

    def cell(self, session: str) -> CellSession | None:
        """Return the open session with this id if its agent is in a cell; None if it is not, or the session has ended or never
        existed.
        """
        now_us = self._ledger.now_us()
        found = (
            open_session
            for open_session in self._open.values()
            if open_session.id == session and open_session.expires_at_us > now_us
        )
        return next((open_session.cell for open_session in found), None)

    def tell_ended(self, told: Callable[[str], Awaitable[None]]) -> None:
        """Register a callback, which gets the id of each session that ends from now on, once the end is recorded."""
        self._told_ended.append(told)

    def cell_of_process(self, process: PeerProcess) -> CellSession | None:
        """Return the open cell session that this process itself opened, or None. Also None if the process has ended. Reads /proc.

        Descendants of the process have no such session, not even the agent in the cell.
        """
        session = self._cell_of(*process)
        if session is None or session.expires_at_us <= self._ledger.now_us():
            return None
        is_there = started_of(process.pid) == process.started and _is_alive(session)
        return session.cell if is_there else None

    def _cell_of(self, pid: int | None, ticks: int | None) -> _Open | None:
        return next(
            (
                session
                for session in self._open.values()
                if session.cell_hosts is not None and (session.pid, session.pid_ticks) == (pid, ticks)
            ),
            None,
        )

    def _check_first_cell(self, pid: int | None, ticks: int | None) -> None:
        """Check that the process `pid`, whose start time is `ticks`, has no open cell session yet. Raises AileronError
        (invalid_request) if it has one, or if there is no such process.
        """
        if ticks is None:
            raise AileronError(FailureClass.INVALID_REQUEST, f"process {pid}, which the cell is of, does not exist")
        if (other := self._cell_of(pid, ticks)) is not None:
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                f"process {pid} has a cell, that of {other.id}: end it with `aileron sessions end {other.id}`, or open "
                "another in a process of its own",
            )

    async def until_over(self, session: str) -> None:
        """Wait until the session is no longer open. Returns at most END_S seconds after it ended."""
        with contextlib.suppress(AileronError):
            while True:
                await anyio.sleep(END_S)
                self.check_open(session)

    def caller(
        self, scope: Scope, shown: list[str], *, needs_token: bool = False, process: int | None = None
    ) -> Caller:
        """Return the caller on a socket of `scope`, whose Authorization headers are `shown`. An agent has the session of its
        token; without a token its session is `local`. Raises AileronError (unauthorized) for a bad token, or for a missing
        token if `needs_token`. `process` is the process at the other end of the connection.
        """
        token = None if scope is Scope.OPERATOR else token_shown(shown)
        if token is not None:
            return Caller(scope, self.session_of(token), process)
        if needs_token:
            raise no_token()
        return Caller(scope, LOCAL_SESSION, process)

    def party_of(self, caller: Caller) -> str | None:
        """Return the party whose quota the caller's runs count against; None if the party follows from the session or the
        socket (model/shares.py).

        The session that the caller's process descends from determines the party, whatever token the caller sends, so that
        sending another token gives no other share.
        """
        by_descent = None if caller.process is None else self._families.name_of(caller.process)
        by_token = next((session.shares_as for session in self._open.values() if session.id == caller.session), None)
        found = by_descent or by_token or (BY_HAND if by_descent == UNSEEN else None)
        return None if found == caller.session else found

    def selection_of(self, caller: Caller) -> Selection:
        """Return the actions that the caller can use: only actions that are allowed by its session, by the sessions in which
        that session was opened, and by every session that the caller's process descends from. If the descent is unknown, the
        limits of all sessions with a process apply.
        """
        if not self._is_any_limited():
            return Selection()
        meant = [session for session in self._open.values() if session.id == caller.session]
        meant += [] if caller.process is None else self._above(caller.process)
        lists = [selectors for session in meant for selectors in session.selection(self._settings.now.mcp).lists]
        return Selection(tuple(dict.fromkeys(lists)))

    def _above(self, process: int) -> list[_Open]:
        """Return all sessions that a process descends from, directly or through ancestors. Reads /proc."""
        names = self._within.names_of(process)
        if names is None:
            return list(self._started.values())
        processes = {self._started[name].process for name in names if name in self._started}
        return [
            session for session in self._started.values() if session.process in processes
        ]  # two sessions may have begun with one process

    def _above_new(self, opener: int | None) -> list[_Open]:
        """Return the sessions within which the process `opener` opens a new session, according to its descent and to the
        token in its environment. Reads /proc.
        """
        if opener is None:
            return []
        by_token = self._by_token(descent_of(opener))
        return [*self._above(opener), *(() if by_token is None else (by_token,))]

    def limited(self) -> frozenset[str]:
        """Return the hexadecimal digests of the tokens of limited sessions. A session is limited if it can use only
        some actions, or if the protocol lists only some actions to it.
        """
        is_any = self._is_any_limited()
        return frozenset(
            session.token_digest.removeprefix(_SHA256)
            for session in self._open.values()
            if session.inject_digest is not None
            or (is_any and self.selection_of(Caller(Scope.AGENT, session.id, session.pid)))
        )

    def _is_any_limited(self) -> bool:
        every = (*self._open.values(), *self._started.values())
        return bool(self._settings.now.mcp.folders) or any(session.every_only for session in every)

    @contextlib.contextmanager
    def answering(self, caller: Caller) -> Iterator[None]:
        """Check that an agent's session is open both before and after the `with` block, which handles one request. Raises
        AileronError (unauthorized) if it is not.

        A session that ended meanwhile does not get the result; runs that have begun continue.
        """
        if caller.sees is not None:
            self.check_open(caller.sees)
        yield
        if caller.sees is not None:
            self.check_open(caller.sees)

    def started_by(self, pid: int) -> str | None:
        """Return the open session that started this process or one of its ancestors, or None. Reads /proc.

        The session is determined by descent from its process, or by its token in the environment. A process that has left its
        family (by two forks and the end of its parent) still has the token, unless the token was removed.
        """
        if not self._open:
            return None
        family = _with_ancestors(pid)
        by_descent = next(
            (session.id for session in self._open.values() if session.pid in family and _is_alive(session)), None
        )
        if by_descent is not None:
            return by_descent
        by_token = self._by_token(family)
        return None if by_token is None else by_token.id

    async def of_process(self, pid: int) -> list[Session]:
        """Return the open session that started this process as a list with one element; an empty list if no session did."""
        found = await in_thread(self.started_by, pid)
        return [] if found is None else [await self.show(found)]

    def _by_token(self, family: Iterable[int]) -> _Open | None:
        tokens = {token for pid in family if (token := variable_of(pid, TOKEN_VARIABLE)) is not None}
        return next((session for token in tokens if (session := self._open.get(_digest(token))) is not None), None)

    def _party_of_new(self, opener: int | None, pid: int | None) -> str | None:
        """Return the party for a new session that the process `opener` opens for the process `pid`. Reads /proc."""
        if opener is not None:
            by_descent, by_token = self._families.name_of(opener), self._by_token(descent_of(opener))
            found = by_descent or (None if by_token is None else by_token.shares_as)
            if found is not None or by_descent == UNSEEN:
                return found or BY_HAND
        return None if pid is None or opener in descent_of(pid) else BY_HAND

    async def show(self, session: str) -> Session:
        """Return one session. Raises AileronError (not_found)."""

        def look(snapshot: Snapshot) -> Session | None:
            found = snapshot.events(EventFilter(type="session.started", session=session, limit=1))
            return _facts(snapshot, found[0], self._settings.now.mcp) if found else None

        facts = await self._ledger.read(look)
        if facts is None:
            raise AileronError(FailureClass.NOT_FOUND, f"no session {session[:80]!r}; see `aileron sessions list`")
        return facts

    async def details(self, session: str) -> SessionDetails:
        """Return one session; if its agent is in a cell, with the hosts that the agent reached. Raises AileronError
        (not_found).
        """
        facts = await self.show(session)
        reached = None if facts.cell is None else await self._ledger.read(lambda look: cell_connections(look, session))
        return SessionDetails(**msgspec.structs.asdict(facts), connections=reached)

    async def newest(self) -> list[Session]:
        """Return at most MAX_LISTED sessions, the newest first."""
        mcp = self._settings.now.mcp

        def look(snapshot: Snapshot) -> list[Session]:
            return [
                _facts(snapshot, row, mcp)
                for row in snapshot.events(EventFilter(type="session.started", limit=MAX_LISTED))
            ]

        return await self._ledger.read(look)

    async def end_on_time(self) -> None:
        """End sessions that have expired, and sessions whose process has ended, until cancelled."""
        problem = ""
        while True:
            try:
                await self._end_due()
                problem = ""
            except (AileronError, OSError) as error:  # a ledger that cannot write, or no descriptor to read /proc
                if str(error) != problem:  # once, and not every LOOK_S
                    problem = str(error)
                    _log.warning("sessions that are over may stay open: %s", problem)
            await anyio.sleep(LOOK_S)

    def _add(self, session: _Open) -> None:
        self._add_family(session)
        self._know(session)

    def _know(self, session: _Open) -> None:
        self._open[session.token_digest] = session
        self._known.add(session.token_digest.removeprefix(_SHA256))

    def _add_family(self, session: _Open) -> None:
        if session.pid is None or not _is_alive(session):
            return
        self._within.add(session.pid, session.id)
        self._started[session.id] = session
        if session.shares_as == session.id:
            self._families.add(session.pid, session.id)

    async def _end_due(self) -> None:
        self._families.forget_gone()
        self._within.forget_gone()
        there = {self._started[name].process for name in self._within.names if name in self._started}
        self._started = {name: started for name, started in self._started.items() if started.process in there}
        now_us = self._ledger.now_us()
        for open_session in [
            open_session for open_session in self._open.values() if open_session.expires_at_us <= now_us
        ]:
            self._end(open_session, "expired", None)
        for open_session in [open_session for open_session in self._open.values() if open_session.pid is not None]:
            if not await in_thread(_is_alive, open_session):
                self._end(open_session, "process gone", None)
        for session in [*self._ends]:
            await self._record_end(session)

    def _end(self, session: _Open, reason: str, exit_code: int | None) -> None:
        """Close a session to all callers. The caller of this method calls `_record_end` afterwards."""
        if self._open.pop(session.token_digest, None) is None:
            return  # another caller was faster
        self._known.discard(session.token_digest.removeprefix(_SHA256))
        self._ends[session.id] = events.SessionEnded(session=session.id, reason=reason, exit_code=exit_code)

    async def _record_end(self, session: str) -> None:
        """Record that a session has ended, if that is not recorded yet, and call the callbacks. Raises AileronError if
        recording fails; it is then attempted again later.
        """
        async with self._ending:
            end = self._ends.get(session)
            if end is None:
                return
            if await self._ledger.read(lambda look: _end_of(look, session)) is None:  # or the last try was written late
                await self._audit.note(end)
            for told in self._told_ended:
                await told(session)
            del self._ends[session]


def token_shown(fields: list[str]) -> str | None:
    """Return the token in a request's Authorization headers; None if the request has no such header.

    Raises AileronError (unauthorized) if the header contains anything else, because a caller that sends such a header claims a
    session.
    """
    if not fields:
        return None
    scheme, _, token = fields[0][:MAX_TOKEN].partition(" ")
    if len(fields) > 1 or scheme.lower() != "bearer" or not token:
        raise AileronError(FailureClass.UNAUTHORIZED, "Authorization is not one `Bearer TOKEN`", boundary=Boundary.USER)
    return token.strip()


def no_token() -> AileronError:
    """Return the error that says that a token is required."""
    return AileronError(
        FailureClass.UNAUTHORIZED,
        "a session token is required: Authorization: Bearer TOKEN; to create one, `aileron sessions new --for 12h`",
        boundary=Boundary.USER,
    )


def _over() -> AileronError:
    return AileronError(
        FailureClass.UNAUTHORIZED,
        "this session token is unknown or its session has ended: start one with `aileron launch AGENT` or "
        "`aileron sessions new`",
        boundary=Boundary.USER,
    )


def _check(agent: str, folder: str, for_s: int, only: Sequence[str]) -> None:
    if not _AGENT.fullmatch(agent):
        raise AileronError(
            FailureClass.INVALID_REQUEST, "agent is not a name (lower-case letters, digits, '.', '_', '-', at most 64)"
        )
    if not folder.startswith("/") or len(os.fsencode(folder)) > _MAX_FOLDER:
        raise AileronError(FailureClass.INVALID_REQUEST, "folder is not an absolute path")
    if not _MIN_S <= for_s <= MAX_S:
        raise AileronError(FailureClass.INVALID_REQUEST, f"for_s is {for_s}, expected {_MIN_S} to {MAX_S} seconds")
    try:
        if only:
            parse_selectors(only)
    except ValueError as error:
        raise AileronError(FailureClass.INVALID_REQUEST, f"only: {error}") from None


def _checked_hosts(cell: CellFacts, pid: int | None, opener: int | None) -> tuple[str, ...]:
    """Return the host patterns of a cell in their canonical spelling, without duplicates. Raises AileronError
    (invalid_request), also if the process `pid` is not the `opener` itself.
    """
    if pid is None or pid != opener:
        raise AileronError(
            FailureClass.INVALID_REQUEST,
            "a cell is of the process that opens its session, which its doors are for: pid is the number of the process that "
            "sends this request",
        )
    try:
        return tuple(map(str, parse_host_patterns(cell.hosts)))
    except ValueError as error:
        raise AileronError(FailureClass.INVALID_REQUEST, f"cell.hosts: {error}") from None


def _event_of(session: _Open) -> events.SessionStarted:
    return events.SessionStarted(
        session=session.id,
        agent=session.agent,
        folder=session.folder,
        token_digest=session.token_digest,
        expires_at_us=session.expires_at_us,
        pid=session.pid,
        pid_started=session.pid_started,
        party=session.party,
        only=session.only,
        above_only=session.above_only,
        above_folders=session.above_folders,
        cell_hosts=session.cell_hosts,
        cell_asks=session.cell_asks,
        pid_ticks=session.pid_ticks,
        inject_digest=session.inject_digest,
    )


def _digest(token: str) -> str:
    return _SHA256 + digest_of(token.encode())


def _start_of(pid: int) -> float | None:
    """Return the start time of a process in seconds since the epoch; None if there is no such process."""
    import psutil  # 17 ms, and only where agents are started

    try:
        started: float = psutil.Process(pid).create_time()
    except (psutil.Error, ValueError):
        return None
    return started


def _with_ancestors(pid: int) -> set[int]:
    import psutil

    try:
        process = psutil.Process(pid)
        return {pid, *(parent.pid for parent in process.parents())}
    except (psutil.Error, ValueError):
        return {pid}


def _is_alive(session: _Open) -> bool:
    if session.pid is None or session.pid_started is None:
        return True
    started = _start_of(session.pid)
    return started is not None and abs(started - session.pid_started) <= _CLOCK_S


def _sessions(snapshot: Snapshot, since_us: int) -> tuple[list[_Open], list[_Open]]:
    """Return the sessions that began since `since_us`, as two lists: the sessions without a recorded end, even if they have
    expired, and the sessions with a recorded end.
    """
    still_open: list[_Open] = []
    ended: list[_Open] = []
    after: int | None = None
    while True:
        wanted = EventFilter(type="session.started", since_us=since_us, after=after, oldest_first=True, limit=MAX_ROWS)
        rows = snapshot.events(wanted)
        if not rows:
            return still_open, ended
        for row in rows:
            with contextlib.suppress(msgspec.ValidationError, ValueError):  # not written by a daemon: no session
                session = msgspec.convert(row.facts, type=_Open)
                (still_open if _end_of(snapshot, session.id) is None else ended).append(session)
        after = rows[-1].seq


def _end_of(snapshot: Snapshot, session: str) -> EventRow | None:
    rows = snapshot.events(EventFilter(type="session.ended", session=session, limit=1))
    return rows[0] if rows else None


def _facts(snapshot: Snapshot, row: EventRow, mcp: McpSettings) -> Session:
    begun = recorded(row.facts, events.SessionStarted)
    started, end = begun.event, _end_of(snapshot, begun.event.session)
    of_folder = mcp.of_folder(started.folder)
    over = None if end is None else recorded(end.facts, events.SessionEnded)
    return Session(
        id=started.session,
        agent=started.agent,
        folder=started.folder,
        status="open" if over is None else "expired" if over.event.reason == "expired" else "ended",
        started_at=utc_of_us(begun.at_us),
        expires_at=utc_of_us(started.expires_at_us),
        ended_at=None if over is None else utc_of_us(over.at_us),
        reason=None if over is None else over.event.reason,
        exit_code=None if over is None else over.event.exit_code,
        runs=snapshot.count_asked(started.session),
        pid=started.pid,
        only=list(started.only),
        folder_only=[str(selector) for selector in of_folder or ()],
        cell=_cell_facts(started),
        inject=started.inject_digest is not None,
    )


def _cell_facts(started: events.SessionStarted) -> CellFacts | None:
    hosts = started.cell_hosts
    return None if hosts is None else CellFacts(hosts=list(hosts), ask=started.cell_asks)
