"""The writer's own guarantees, on a store that can wait and fail on demand, which no disk does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import anyio
import anyio.to_thread
import pytest

from aileron.ledger.writer import GroupFailed, GroupWriter
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from tests.support.waiting import wait_still_async, wait_until_async

pytestmark = pytest.mark.anyio

T = TypeVar("T")


class Store:
    """A store in memory behind the writer's Protocol, with a disk that can be stopped and made to fail."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.disk = threading.Event()
        self.disk.set()
        self.flushing = threading.Event()
        self.breaks: BaseException | None = None
        self.is_open = True
        self._size = 0

    def begin(self) -> None:
        self._size = 0

    def attempt(self, transaction: None, work: Callable[[None], T]) -> T:
        self._size += 1
        return work(transaction)

    def commit(self, transaction: None) -> None:
        self.flushing.set()
        assert self.disk.wait(10)
        if self.breaks is not None:
            raise self.breaks
        self.groups.append(self._size)

    def rollback(self) -> None:
        self._size = 0

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def store() -> Store:
    """Return a store whose disk works."""
    return Store()


@pytest.fixture
def writer(store: Store) -> Iterator[GroupWriter[None]]:
    """Yield a writer, and close it in the end whatever the disk did."""
    opened = GroupWriter[None](store)
    yield opened
    store.disk.set()
    opened.close()
    assert not store.is_open


async def test_commits_during_a_flush_form_the_next_commit_group(writer: GroupWriter[None], store: Store) -> None:
    """The first commit has a flush of its own, and the forty that queue behind it share the next one."""
    store.disk.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.commit, lambda _: 0)
        await anyio.to_thread.run_sync(store.flushing.wait, 10)
        for _ in range(40):
            tasks.start_soon(writer.commit, lambda _: 0)
        await anyio.wait_all_tasks_blocked()
        store.disk.set()

    assert store.groups == [1, 40]


async def test_each_caller_of_a_failed_commit_group_gets_an_error(writer: GroupWriter[None], store: Store) -> None:
    """Each error is a separate object, and the next group is served."""
    failure = Failure(failure_class=FailureClass.INTERNAL_ERROR, message="no room", boundary=Boundary.RUNTIME)
    store.breaks = GroupFailed(failure)
    caught: list[AileronError] = []

    async def commit() -> None:
        with pytest.raises(AileronError, match="no room") as error:
            await writer.commit(lambda _: 0)
        caught.append(error.value)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(commit)
    store.breaks = None

    assert len({id(error) for error in caught}) == 5
    assert await writer.commit(lambda _: "next") == "next"


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
async def test_a_commit_to_a_disk_that_does_not_respond_ends_with_an_error(
    writer: GroupWriter[None], store: Store, monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    """The error says that the event may have been recorded. When the disk responds again, the ledger works."""
    monkeypatch.setattr("aileron.ledger.writer.COMMIT_DEADLINE_S", 0.05)
    store.disk.clear()

    async def commit() -> None:
        if blocking:
            writer.commit_now(lambda _: 0)
        else:
            await writer.commit(lambda _: 0)

    with pytest.raises(AileronError, match="has not answered") as caught:
        await commit()
    with pytest.raises(AileronError, match="has not answered"):
        writer.close()
    assert caught.value.failure.details == {"cause": "disk_not_answering"}
    monkeypatch.undo()
    store.disk.set()
    writer.close()

    assert store.groups == [1]


async def test_no_caller_waits_forever_if_the_writer_ends(
    writer: GroupWriter[None], store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in the store ends it: callers in the group and in the queue get an error, later ones are refused, and it is
    logged.
    """
    store.breaks = RuntimeError("a bug")
    store.disk.clear()
    told: list[str] = []

    async def commit() -> None:
        with pytest.raises(AileronError) as error:
            await writer.commit(lambda _: 0)
        told.append(str(error.value))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commit)
        await anyio.to_thread.run_sync(store.flushing.wait, 10)
        for _ in range(3):
            tasks.start_soon(commit)
        await anyio.wait_all_tasks_blocked()
        store.disk.set()

    assert told == ["the ledger's writer ended: RuntimeError"] * 4
    assert "a bug" in caplog.text
    with pytest.raises(AileronError, match="closed"):
        writer.commit_now(lambda _: 0)


def test_a_caller_whose_event_loop_is_closed_affects_no_other_caller(writer: GroupWriter[None], store: Store) -> None:
    """The loop was closed during the flush of its commit: the commit stands, and the next caller is served."""

    async def leave() -> None:
        with anyio.move_on_after(10) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(writer.commit, lambda _: 0)
                await anyio.to_thread.run_sync(store.flushing.wait, 10)
                scope.cancel()

    store.disk.clear()
    anyio.run(leave)
    store.disk.set()

    assert writer.commit_now(lambda _: "next") == "next"
    assert store.groups == [1, 1]


async def test_a_deferred_commit_is_written_in_the_group_of_the_next_commit(
    store: Store, writer: GroupWriter[None]
) -> None:
    """The deferred functions run in the group of the next commit, in the order of the calls."""
    ran: list[str] = []
    writer.commit_later(lambda _: ran.append("first"))
    writer.commit_later(lambda _: ran.append("second"))
    assert store.groups == []
    await writer.commit(lambda _: ran.append("third"))
    assert ran == ["first", "second", "third"]
    assert store.groups == [3]


async def test_deferred_commits_are_written_after_a_moment_without_another_commit(
    store: Store, writer: GroupWriter[None]
) -> None:
    """The group is written once; closing the writer writes it at once."""
    writer.commit_later(lambda _: None)
    await wait_until_async(lambda: store.groups, "a group is written")
    assert await wait_still_async(lambda: [*store.groups], "nothing more is written") == [1]
    writer.commit_later(lambda _: None)
    await anyio.to_thread.run_sync(writer.close)
    assert store.groups == [1, 1]
    with pytest.raises(AileronError, match="the ledger is closed"):
        writer.commit_later(lambda _: None)


async def test_a_failed_deferred_commit_is_reported_to_the_next_caller(
    store: Store, writer: GroupWriter[None], caplog: pytest.LogCaptureFixture
) -> None:
    """Only that caller gets the error; with the disk back, the one after it succeeds."""
    failure = Failure(failure_class=FailureClass.INTERNAL_ERROR, message="no room", boundary=Boundary.RUNTIME)
    store.breaks = GroupFailed(failure)
    writer.commit_later(lambda _: None)
    await wait_until_async(lambda: "could not be recorded" in caplog.text, "it has failed")
    store.breaks = None
    with pytest.raises(AileronError, match="no room"):
        await writer.commit(lambda _: None)
    await writer.commit(lambda _: None)
    assert store.groups == [1]


async def test_the_number_of_deferred_commits_is_bounded(store: Store, writer: GroupWriter[None]) -> None:
    """A full group is queued at once. If the disk is stopped, the queue fills up, and the caller gets an error."""
    for _ in range(256):
        writer.commit_later(lambda _: None)
    await wait_until_async(lambda: store.groups, "a group is written")
    assert store.groups == [256]
    store.disk.clear()

    def fill() -> None:
        for _ in range(5000):
            writer.commit_later(lambda _: None)

    with pytest.raises(AileronError) as caught:
        fill()
    store.disk.set()
    assert caught.value.failure.failure_class is FailureClass.BUSY
