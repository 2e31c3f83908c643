"""Runs that outlive their callers: a client that disconnects never cancels a started run.

Runs in the daemon. Each invocation, and each run that a person approved, is a task of the daemon's own task group. A caller
waits for the task for at most the time that the caller requested, and gets the run id if the run has not ended by then.

Rules
- At most MAX_RUNS runs are in progress, and for each party at most its share (model/shares.py). A further invocation fails with
  `busy`.
- If no place is free for an approved run, it waits until another run ends, and then begins. Parties take turns, and the longest
  waiting run of a party begins first, so that no party has to wait for all approved runs of another.
- An approved run is begun by its approval. A run that could not begin then (the vault was locked, the daemon ended in between)
  is begun when the vault is unlocked or when a caller asks for it, never by the daemon's start alone.
- A held run, which can still be cancelled, begins automatically when its holding time is over.
- Beginning a run twice is harmless: the second attempt finds it in progress, or the decision used.

Not here: what is legal when (audit/log.py), what a run does (runs/spine.py).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, cast

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from aileron.audit.watch import Watch
from aileron.model.failure import AileronError, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.json_value import JSONObject
from aileron.model.outcome import Outcome, Pending, Running
from aileron.model.shares import NoPlace, Places, Turns, no_place, party_of
from aileron.runs.resume import Held
from aileron.runs.spine import Spine

__all__ = ["MAX_RUNS", "Runner"]

MAX_RUNS: Final = 64
"""Maximum number of runs in progress: as many as a template may have jails."""
_PLACES: Final = Places(MAX_RUNS)
_BEGIN_S: Final = 10.0
"""Seconds to wait for an approved run to begin: enough for a check of its files and one commit on a slow disk."""
_LOOK_S: Final = 30.0
"""Maximum number of seconds between two checks of the wall clock while a run is held."""
_WAITS: Final = (
    "its session has no place for one more run now: it begins when one has finished, each session in its turn"
)
_log = logging.getLogger(__name__)


class _Entry:
    """The state of one run's task, shared with the callers that wait for the run."""

    def __init__(self) -> None:
        self.run_id: str | None = None
        self.is_wanted = True
        """True unless the caller withdrew the call. Read before the run is recorded, and never afterwards."""
        self.recorded = anyio.Event()
        self.done = anyio.Event()
        self.answer: Outcome | Pending | Running | None = None
        self.error: AileronError | None = None

    def announce(self, run_id: str) -> None:
        self.run_id = run_id
        self.recorded.set()


class Runner:
    """Service that starts runs, each as a task in `tasks`, and lets callers wait for them. `tasks` must outlive every caller."""

    def __init__(self, spine: Spine, tasks: TaskGroup, watch: Watch) -> None:
        self._spine = spine
        self._tasks = tasks
        self._watch = watch
        self._under_way: Counter[str] = Counter()
        """Number of runs in progress, by party."""
        self._resuming: dict[str, _Entry] = {}
        self._held: set[str] = set()
        """Approved runs that are held and can still be cancelled, each with a sleeping task. There are at most as many as there
        may be questions.
        """
        self._without_room = Turns()
        """Approved runs that wait for a free place. There are at most as many as there may be questions."""

    async def submit(self, invocation: Invocation, wait_s: float) -> Outcome | Pending | Running:
        """Begin a run. Wait until the run ends, must wait for a person, or `wait_s` seconds have passed. Raises AileronError
        (busy) if the run's party has no free place.

        If the caller is cancelled, the call is withdrawn if it is not recorded yet; a recorded run continues.
        """
        party = party_of(invocation.scope, invocation.session, invocation.party)
        why_not = _PLACES.why_not(party, self._under_way)
        if why_not is not None:
            raise _no_place(why_not, self._under_way[party])
        until = time.monotonic() + wait_s
        entry = self._start(
            party, lambda entry: self._spine.request(invocation, entry.announce, lambda: entry.is_wanted)
        )
        try:
            with anyio.move_on_after(wait_s):
                await entry.done.wait()
            await entry.recorded.wait()  # short: it is one commit away
        except anyio.get_cancelled_exc_class():
            entry.is_wanted = False
            raise
        answer = _answer_of(entry)
        if isinstance(answer, Running) and entry.answer is not None:  # requested before, with the same key
            return await self._follow(answer, until - time.monotonic())
        return answer

    async def dry_run(self, invocation: Invocation) -> JSONObject:
        """Return the plan of an invocation with its digest, without running or recording anything."""
        plan = await anyio.to_thread.run_sync(self._spine.resolve, invocation)
        return {**plan.to_json(), "digest": plan.digest}

    async def resume(self, approval_id: str) -> AileronError | None:
        """Start an approved run. Return the reason if the run cannot begin yet or there is none to start; otherwise None."""
        try:
            entry = await self._begun(approval_id)
        except AileronError as error:
            return error
        if entry is None:
            return AileronError(FailureClass.BUSY, _WAITS, retriable=True)
        with anyio.move_on_after(_BEGIN_S):
            await entry.recorded.wait()
        return entry.error

    def begin(self, approval_id: str) -> None:
        """Start an approved run, without waiting for its beginning."""
        self._tasks.start_soon(self._begin, approval_id)

    async def begin_approved(self) -> None:
        """Start every approved run that has not begun, because the reason why it had to wait may no longer exist."""
        for approval_id in await self._spine.approved():
            await self._begin(approval_id)

    async def _begin(self, approval_id: str) -> None:
        with contextlib.suppress(AileronError):  # a ledger that cannot be read: it begins when a caller asks for it
            await self._begun(approval_id)

    async def _begun(self, approval_id: str) -> _Entry | None:
        """Return the task of an approved run; None while the run waits for a free place. Raises AileronError if the record has
        no such run.
        """
        if approval_id not in self._resuming and approval_id not in self._without_room:
            party = await self._spine.party(approval_id)
            if approval_id not in self._resuming:  # another caller was faster
                self._without_room.add(party, approval_id)
                self._begin_in_turn()
        return self._resuming.get(approval_id)

    def _begin_in_turn(self) -> None:
        """Start waiting runs, in turn, as long as there are free places."""
        while found := self._without_room.next(lambda party: _PLACES.why_not(party, self._under_way) is None):
            self._resume(*found)

    def _resume(self, party: str, approval_id: str) -> None:
        entry = self._start(party, lambda entry: self._spine.resume(approval_id, entry.announce), approval_id)
        self._resuming[approval_id] = entry

    async def _follow(self, running: Running, wait_s: float) -> Outcome | Pending | Running:
        if running.approval_id is not None:
            await self.resume(running.approval_id)
        run_id, known = running.run_id, cast("Outcome | Pending | Running", running)
        return await self._watch.follow(
            run_id, known, lambda: self._spine.so_far(run_id), lambda answer: not isinstance(answer, Running), wait_s
        )

    def _hold(self, approval_id: str | None, until: float) -> None:
        if approval_id is not None and approval_id not in self._held:
            self._held.add(approval_id)
            self._tasks.start_soon(self._begin_later, approval_id, until)

    async def _begin_later(self, approval_id: str, until: float) -> None:
        while (left_s := until - time.time()) > 0:  # noqa: ASYNC110 - the wall clock, as on record, may be set meanwhile
            await anyio.sleep(min(left_s, _LOOK_S))
        self._held.discard(approval_id)
        await self._begin(approval_id)

    def _start(self, party: str, work: _Work, approval_id: str | None = None) -> _Entry:
        entry = _Entry()
        self._under_way[party] += 1
        self._tasks.start_soon(self._run, party, work, entry, approval_id)
        return entry

    async def _run(self, party: str, work: _Work, entry: _Entry, approval_id: str | None) -> None:
        try:
            entry.answer = await work(entry)
        except Held as error:
            entry.error = error
            self._hold(approval_id, error.until)
        except AileronError as error:  # the ledger said no: nothing was done
            entry.error = error
        except Exception:  # noqa: BLE001 - the end of a task: the callers that wait must be told
            _log.exception("a run ended unexpectedly")
            message = "this is a bug in aileron: please report it with the details in `aileron daemon logs`"
            entry.error = AileronError(FailureClass.INTERNAL_ERROR, message)
        finally:
            self._under_way[party] -= 1
            if not self._under_way[party]:
                del self._under_way[party]
            if approval_id is not None:
                self._resuming.pop(approval_id, None)
            entry.recorded.set()
            entry.done.set()
        self._begin_in_turn()


_Work = Callable[[_Entry], Awaitable[Outcome | Pending | Running]]


def _no_place(why: NoPlace, held: int) -> AileronError:
    share = (
        f"{held} runs of this session are in progress, which is its share (sessions that it started count as well): try "
        "again when one has finished"
    )
    return no_place(
        why, share=share, full="all runs that there may be are in progress: try again when one has finished"
    )


def _answer_of(entry: _Entry) -> Outcome | Pending | Running:
    if entry.error is not None:
        raise entry.error
    if entry.answer is not None:
        return entry.answer
    if entry.run_id is None:
        raise AileronError(FailureClass.INTERNAL_ERROR, "the daemon is stopping, so the run did not begin")
    return Running(run_id=entry.run_id)
