"""The only writer: a thread that takes all waiting functions, writes them as one group, and responds when the group is on disk.

A disk flush costs about as much for one change as for a hundred, so everything that arrives while one group is being
flushed becomes the next group. No function waits for others to arrive: a single waiting function is a group by itself.
Runs in the daemon (and in tests); trusts its callers, not the disk.

How a commit goes: 1 the caller queues a function and waits (a future for a coroutine, a threading event otherwise); 2
the thread begins a group and runs each function separately: if one raises, only that function is undone; 3 the thread
commits: from here every function that returned is durable; 4 the thread responds to all callers of the group with one
wake-up per event loop. A caller cancelled between 1 and 4 changes nothing for the others, and its function is committed
nevertheless: the canceller cannot know whether it was, and must read the result from the ledger. If 3 fails, the whole
group fails and none of it is written.

A function for which no caller waits (`commit_later`) is held until another function is queued, and goes into that group first;
if none is queued within LATER_S, it is queued alone. All are written in the order of the calls.

Rules
- A function runs in the writer's thread, and must not wait for anything. Only the running function may use the
  transaction.
- At most MAX_WAITING functions wait; further functions are refused as busy.
- asyncio appears here and nowhere else in the ledger: anyio has no way for a thread to complete many futures of a loop
  without blocking on each, and one blocking hop costs more than the disk flush.

Not here: the SQL of a group (sqlite.py).
"""

from __future__ import annotations

import collections
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from aileron.model.failure import AileronError, Failure, FailureClass

if TYPE_CHECKING:
    import asyncio
    import logging

__all__ = ["GroupFailed", "GroupStore", "GroupWriter"]

MAX_GROUP: Final = 256
"""Maximum number of queued functions that are written in one group; functions of `commit_later` that must run before
one of these are written in addition. Beyond about a hundred functions the flush to disk no longer takes most of the
time, and the first function in the queue should not wait.
"""
MAX_WAITING: Final = 4096
"""Maximum number of functions in the queue: 16 groups, about 0.1 s of work; a longer queue means that the disk has stopped."""
MAX_LATER: Final = 256
"""Maximum number of functions of `commit_later` that wait for another function to be queued: as many as a group has."""
LATER_S: Final = 0.02
"""Maximum seconds that a function of `commit_later` waits for another function. A connector that got a response usually
causes another function in a fraction of this time.
"""
COMMIT_DEADLINE_S: Final = 30.0
"""Maximum seconds to wait until a function's writes are on disk: a flush takes milliseconds, and a disk that needs
longer than this is not responding.
"""

Tx = TypeVar("Tx")
T = TypeVar("T")


class GroupFailed(Exception):
    """Error: the writes of a group of functions could not be made durable, and none of them remains. `failure` is
    reported to the caller of each function.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure: Final = failure


class GroupStore(Protocol[Tx]):
    """The database interface that the writer needs. Only the writer's thread calls it."""

    def begin(self) -> Tx:
        """Begin the transaction of a group of functions. Raises GroupFailed if that is not possible."""

    def attempt(self, transaction: Tx, work: Callable[[Tx], T]) -> T:
        """Run `work` in the open transaction and return its result; if it raises, undo only its writes and raise the
        error again.

        Raises GroupFailed if the group is lost.
        """

    def commit(self, transaction: Tx) -> None:
        """Make the writes of the open transaction durable. Raises GroupFailed if that is not possible."""

    def rollback(self) -> None:
        """Roll back the open transaction, if any. Never raises."""

    def close(self) -> None:
        """Close the store's database."""


class _Job:
    """A function in the writer's queue, and where to deliver its result."""

    __slots__ = ("done", "error", "future", "loop", "value", "work")

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work = work
        self.value: Any = None
        self.error: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[None] | None = None
        self.done: threading.Event | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class GroupWriter(Generic[Tx]):
    """The queue of functions that write, the thread that runs them, and the store that only this thread uses. The owner
    must `close` the writer.
    """

    def __init__(self, store: GroupStore[Tx]) -> None:
        self._store = store
        self._line: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the fields below, so that no function is queued behind the end mark
        self._later: list[_Job] = []
        self._unheard: BaseException | None = None
        self._waiting = 0
        self._closed = False
        # A daemon thread, so that a program that forgot `close` still ends; a half-written group is undone at the next open.
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._thread.start()

    async def commit(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in the writer's thread and return its result once its writes are durable; raise what `work`
        raised.

        Raises AileronError(busy) if the queue is full, AileronError(internal_error) if the result could not be written.
        """
        import asyncio  # takes 30 ms; `aileron audit verify` reads without a loop

        job = _Job(work)
        job.loop = asyncio.get_running_loop()
        job.future = job.loop.create_future()
        self._enqueue(job)
        # A timer, since a cancel scope costs three times as much: a fifth of the loop's time for a commit.
        deadline = job.loop.call_later(COMMIT_DEADLINE_S, _give_up, job.future)
        try:
            await job.future
        finally:
            deadline.cancel()
        result: T = job.result()
        return result

    def commit_later(self, work: Callable[[Tx], object]) -> None:
        """Queue `work` to run before the next queued function, in the same group. If no function is queued within
        LATER_S, run `work` by itself then.

        No caller waits for the result: if it could not be written, the next caller gets the error. Raises AileronError as
        `commit`.
        """
        job = _Job(work)
        with self._lock:
            self._check_room()
            self._waiting += 1
            self._later.append(job)
            if len(self._later) >= MAX_LATER:
                self._queue_later()
            elif len(self._later) == 1:
                import asyncio

                asyncio.get_running_loop().call_later(LATER_S, self._no_company)

    def commit_now(self, work: Callable[[Tx], T]) -> T:
        """Run `work` and return its result once its writes are durable, for a caller without an event loop. Blocks the
        thread.
        """
        job = _Job(work)
        job.done = threading.Event()
        self._enqueue(job)
        if not job.done.wait(COMMIT_DEADLINE_S):
            raise _no_answer()
        result: T = job.result()
        return result

    def close(self) -> None:
        """Run all queued functions, then close the store. Blocks until that is done, at most COMMIT_DEADLINE_S. Calling
        it again does nothing.
        """
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue_later()
                self._line.put(None)
        self._thread.join(COMMIT_DEADLINE_S)
        if self._thread.is_alive():
            raise _no_answer()

    def _enqueue(self, job: _Job) -> None:
        with self._lock:
            self._check_room()
            self._waiting += 1
            self._later.append(job)
            self._queue_later()

    def _check_room(self) -> None:
        unheard, self._unheard = self._unheard, None
        if unheard is not None:
            raise unheard
        if self._closed:
            raise AileronError(FailureClass.INTERNAL_ERROR, "the ledger is closed: the daemon is stopping")
        if self._waiting >= MAX_WAITING:
            raise AileronError(FailureClass.BUSY, f"{MAX_WAITING} records wait for the disk: try again", retriable=True)

    def _queue_later(self) -> None:
        if self._later:
            self._line.put(self._later)
            self._later = []

    def _no_company(self) -> None:
        with self._lock:
            if not self._closed:
                self._queue_later()

    def _run(self) -> None:
        group: list[_Job] = []
        try:
            while group := self._take():
                self._write(group)
                self._answer(group)
        except BaseException as error:  # noqa: BLE001 - the end of the thread: all waiting callers must get an error
            _log().exception("the ledger's writer ended")
            with self._lock:
                self._closed = True
            self._abandon(group, error)
        finally:
            self._store.close()

    def _take(self) -> list[_Job]:
        """Take at most MAX_GROUP waiting functions; block for the first. An empty list means that the writer must end."""
        first = self._line.get()
        if first is None:
            return []
        group = list(first)
        with contextlib.suppress(queue.Empty):
            while len(group) < MAX_GROUP:
                jobs = self._line.get_nowait()
                if jobs is None:
                    self._line.put(None)  # nothing follows the end mark, so it is first again
                    break
                group.extend(jobs)
        with self._lock:
            self._waiting -= len(group)
        return group

    def _write(self, group: list[_Job]) -> None:
        try:
            transaction = self._store.begin()
            for job in group:
                try:
                    job.value = self._store.attempt(transaction, job.work)
                except GroupFailed:
                    raise
                except Exception as error:  # noqa: BLE001 - belongs to the caller, who gets it
                    job.error = error
            self._store.commit(transaction)
        except GroupFailed as failed:
            self._store.rollback()
            for job in group:
                job.error = AileronError.of(
                    failed.failure
                )  # one per job: a shared one would collect all callers' tracebacks

    def _abandon(self, group: list[_Job], error: BaseException) -> None:
        self._store.rollback()
        with contextlib.suppress(queue.Empty):
            while True:
                group.extend(self._line.get_nowait() or [])
        for job in group:
            job.error = AileronError(FailureClass.INTERNAL_ERROR, f"the ledger's writer ended: {type(error).__name__}")
        self._answer(group)

    def _answer(self, group: list[_Job]) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = collections.defaultdict(list)
        for job in group:
            if job.done is not None:
                job.done.set()
            elif job.future is None and job.error is not None:
                with self._lock:
                    self._unheard = job.error
                _log().error("something could not be recorded: %s", job.error)
            if job.loop is not None and job.future is not None:
                loops[job.loop].append(job.future)
        for loop, futures in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller is left
                loop.call_soon_threadsafe(_settle, futures)


def _settle(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():  # otherwise its waiter was cancelled
            future.set_result(None)


def _give_up(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(_no_answer())


def _no_answer() -> AileronError:
    return AileronError(
        FailureClass.INTERNAL_ERROR,
        f"the disk that holds the ledger has not answered for {COMMIT_DEADLINE_S:.0f} s;"
        " whether this was recorded will be known when it does",
        details={"cause": "disk_not_answering"},
    )


def _log() -> logging.Logger:
    import logging  # 3 ms, which `aileron audit verify` does without

    return logging.getLogger(__name__)
