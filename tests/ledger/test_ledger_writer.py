"""The writer's own promises, on a store that does what no disk does on demand: wait, and break."""

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
    """A store in memory behind the writer's Protocol, with a disk that can be held up and made to fail."""

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
    """A store whose disk works."""
    return Store()


@pytest.fixture
def writer(store: Store) -> Iterator[GroupWriter[None]]:
    """A writer, closed in the end whatever the disk did."""
    opened = GroupWriter[None](store)
    yield opened
    store.disk.set()
    opened.close()
    assert not store.is_open


async def test_what_arrives_during_a_flush_is_the_next_group(writer: GroupWriter[None], store: Store) -> None:
    """One flush for the first, one for the forty behind it; nobody waits for company."""
    store.disk.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.commit, lambda _: 0)
        await anyio.to_thread.run_sync(store.flushing.wait, 10)
        for _ in range(40):
            tasks.start_soon(writer.commit, lambda _: 0)
        await anyio.wait_all_tasks_blocked()
        store.disk.set()

    assert store.groups == [1, 40]


async def test_a_group_that_fails_is_told_to_each_of_its_callers(writer: GroupWriter[None], store: Store) -> None:
    """Each gets an error of its own, and the next group is served."""
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
async def test_a_disk_that_does_not_answer_ends_the_wait(
    writer: GroupWriter[None], store: Store, monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    """The caller is told that it is not known whether it was recorded; when the disk is back, so is the ledger."""
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


async def test_when_the_writer_ends_nobody_waits_for_ever(
    writer: GroupWriter[None], store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in the store: those in the group and those in line are told, later ones refused, and the log has it."""
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


def test_a_caller_whose_loop_is_gone_harms_nobody(writer: GroupWriter[None], store: Store) -> None:
    """A loop closed while its commit was being flushed: the commit stands, the next caller is served."""

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


async def test_what_nobody_waits_for_goes_with_the_next(store: Store, writer: GroupWriter[None]) -> None:
    """In one group with it, in the order of the calls, and not before."""
    ran: list[str] = []
    writer.commit_later(lambda _: ran.append("first"))
    writer.commit_later(lambda _: ran.append("second"))
    assert store.groups == []
    await writer.commit(lambda _: ran.append("third"))
    assert ran == ["first", "second", "third"]
    assert store.groups == [3]


async def test_what_nobody_waits_for_is_written_alone_if_nothing_comes(store: Store, writer: GroupWriter[None]) -> None:
    """After a moment; once; and at the end of the writer at once."""
    writer.commit_later(lambda _: None)
    await wait_until_async(lambda: store.groups, "a group is written")
    assert await wait_still_async(lambda: [*store.groups], "nothing more is written") == [1]
    writer.commit_later(lambda _: None)
    await anyio.to_thread.run_sync(writer.close)
    assert store.groups == [1, 1]
    with pytest.raises(AileronError, match="the ledger is closed"):
        writer.commit_later(lambda _: None)


async def test_what_nobody_waits_for_and_could_not_be_written_is_told_to_the_next(
    store: Store, writer: GroupWriter[None], caplog: pytest.LogCaptureFixture
) -> None:
    """Once, whoever that is; with the disk back, the one after it goes on."""
    failure = Failure(failure_class=FailureClass.INTERNAL_ERROR, message="no room", boundary=Boundary.RUNTIME)
    store.breaks = GroupFailed(failure)
    writer.commit_later(lambda _: None)
    await wait_until_async(lambda: "could not be recorded" in caplog.text, "it has failed")
    store.breaks = None
    with pytest.raises(AileronError, match="no room"):
        await writer.commit(lambda _: None)
    await writer.commit(lambda _: None)
    assert store.groups == [1]


async def test_what_nobody_waits_for_has_a_bound(store: Store, writer: GroupWriter[None]) -> None:
    """A group's worth is queued without company; with a disk that has stopped, the line is full some time."""
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
