"""Which preview of a plan is the newest: by when a reading began, whatever ends first, fails or had to make room."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aileron.approvals.signed import NotCounted
from aileron.daemon.decisions import previews
from aileron.daemon.decisions.previews import PreviewRegistry
from aileron.model.failure import AileronError, FailureClass
from aileron.model.preview import PreviewField
from aileron.runs.preview import Previewed

pytestmark = pytest.mark.anyio

PLAN, EDITED = "sha256:" + "1" * 64, "sha256:" + "2" * 64


class ToldSpine:
    """Finds what `says` says; each reading that finds one of `holds` waits until that event is set."""

    def __init__(self) -> None:
        self.says: str | None = "as it was"
        self.holds: dict[str, anyio.Event] = {}
        self.has_room = True

    async def preview(self, approval_id: str, plan_digest: str | None) -> Previewed:
        """As Spine's."""
        said, plan = self.says, plan_digest or PLAN
        if said in self.holds:
            await self.holds[said].wait()
        if not self.has_room:
            raise AileronError(FailureClass.BUSY, "enough")
        if said is None:
            return Previewed(plan, None, "it broke")
        return Previewed(plan, [PreviewField("x", said, multiline=False)], None)


@pytest.fixture
def spine() -> ToldSpine:
    """Which says what the test has it say."""
    return ToldSpine()


@pytest.fixture
def known(spine: ToldSpine) -> PreviewRegistry:
    """Nothing, so far."""
    told: Any = spine
    return PreviewRegistry(told)


async def read(known: PreviewRegistry, question: str = "one", plan: str | None = PLAN) -> str:
    """The digest that a yes to it would be about."""
    digest = (await known.read(question, plan)).digest
    assert digest is not None
    return digest


def counts(known: PreviewRegistry, digest: str, question: str = "one", plan: str = PLAN) -> bool:
    """Whether a yes to it would."""
    try:
        known.check_newest(question, plan, digest)
    except NotCounted:
        return False
    return True


async def test_the_newest_of_a_plan_counts_and_of_another_plan_or_question_its_own(
    spine: ToldSpine, known: PreviewRegistry
) -> None:
    """Who names no plan has the one that the question waits with read."""
    before = [await read(known), await read(known, plan=EDITED), await read(known, "two")]
    spine.says = "has changed: load it again"
    now = await read(known, plan=None)

    assert (counts(known, before[0]), counts(known, now)) == (False, True)
    assert counts(known, before[1], plan=EDITED)
    assert counts(known, before[2], "two")


@pytest.mark.parametrize("ends_last", ["began first", "began last"])
async def test_of_two_at_once_the_one_that_began_last_is_the_newest(
    spine: ToldSpine, known: PreviewRegistry, ends_last: str
) -> None:
    """Whichever ends first."""
    spine.holds = {"began first": anyio.Event(), "began last": anyio.Event()}
    found: dict[str, str] = {}

    async def reads(said: str) -> None:
        found[said] = await read(known)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for said in spine.holds:
                spine.says = said
                tasks.start_soon(reads, said)
                await anyio.wait_all_tasks_blocked()
            ends_first = next(said for said in spine.holds if said != ends_last)
            for said in (ends_first, ends_last):
                spine.holds[said].set()
                await anyio.wait_all_tasks_blocked()
                assert counts(known, found[said]) is (said == "began last" or ends_first == "began first")

    assert (counts(known, found["began first"]), counts(known, found["began last"])) == (False, True)


@pytest.mark.parametrize("how", ["it breaks", "there is no room for it"])
async def test_one_that_fails_changes_nothing(spine: ToldSpine, known: PreviewRegistry, how: str) -> None:
    """What was the newest is still it, and what was not does not come to be."""
    before = await read(known)
    spine.says = "has changed: load it again"
    newest = await read(known)
    if how == "it breaks":
        spine.says = None
        failed = await known.read("one", PLAN)
        assert (failed.fields, failed.problem, failed.digest) == (None, "it broke", None)
    else:
        spine.has_room = False
        with pytest.raises(AileronError, match="enough"):
            await known.read("one", PLAN)

    assert (counts(known, before), counts(known, newest)) == (False, True)


async def test_what_had_to_make_room_counts_once_it_is_read_again(
    spine: ToldSpine, known: PreviewRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is the one that was read longest ago: nobody makes an older preview count by having others read.

    One that fails takes no room.
    """
    monkeypatch.setattr(previews, "MAX_READ", 2)
    before = await read(known)
    spine.says = "has changed: load it again"
    newest, second = await read(known), await read(known, "two")
    spine.says = None
    for number in range(5):
        await known.read(f"fails {number}", PLAN)
    assert (counts(known, before), counts(known, newest)) == (False, True)

    spine.says = "has changed: load it again"
    third = await read(known, "three")

    assert (counts(known, before), counts(known, newest)) == (False, False)
    with pytest.raises(NotCounted, match="it is no longer known whether the preview is current"):
        known.check_newest("one", PLAN, newest)
    assert counts(known, second, "two")
    assert counts(known, third, "three")
    assert await read(known) == newest
    assert (counts(known, before), counts(known, newest)) == (False, True)


async def test_what_ends_after_a_later_one_made_room_is_not_the_newest(
    spine: ToldSpine, known: PreviewRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether something newer was read of its plan meanwhile is not known any more."""
    monkeypatch.setattr(previews, "MAX_READ", 1)
    spine.holds = {"slow": anyio.Event()}
    found: list[str] = []

    async def reads() -> None:
        found.append(await read(known))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            spine.says = "slow"
            tasks.start_soon(reads)
            await anyio.wait_all_tasks_blocked()
            spine.says = "has changed: load it again"
            newest = await read(known)
            await read(known, "two")
            spine.holds["slow"].set()

    assert not counts(known, found[0])
    assert await read(known) == newest
    assert counts(known, newest)


async def test_what_was_read_before_the_daemon_began_counts_until_it_is_read(known: PreviewRegistry) -> None:
    """Of that nothing is known."""
    before = "sha256:" + "3" * 64

    assert counts(known, before)
    now = await read(known)
    assert (counts(known, before), counts(known, now)) == (False, True)
