"""The newest preview of a plan is the one whose reading began last, whatever ends first, fails or is evicted."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aileron.approvals.signed import NotCounted
from aileron.daemon.consent_service import previews
from aileron.daemon.consent_service.previews import PreviewRegistry
from aileron.model.failure import AileronError, FailureClass
from aileron.model.preview import PreviewField
from aileron.runs.preview import Previewed

pytestmark = [pytest.mark.anyio, pytest.mark.abuse_case("D41")]

PLAN, EDITED = "sha256:" + "1" * 64, "sha256:" + "2" * 64


class ToldSpine:
    """A spine that finds what `says` says; a reading that finds a key of `holds` waits until that event is set."""

    def __init__(self) -> None:
        self.says: str | None = "as it was"
        self.holds: dict[str, anyio.Event] = {}
        self.has_room = True

    async def preview(self, approval_id: str, plan_digest: str | None) -> Previewed:
        """Read a preview, as Spine does."""
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
    """Return a spine that finds what the test sets."""
    return ToldSpine()


@pytest.fixture
def known(spine: ToldSpine) -> PreviewRegistry:
    """Return a registry that knows no preview yet."""
    told: Any = spine
    return PreviewRegistry(told)


async def read(known: PreviewRegistry, question: str = "one", plan: str | None = PLAN) -> str:
    """Return the digest that an approval of this preview would cover."""
    digest = (await known.read(question, plan)).digest
    assert digest is not None
    return digest


def counts(known: PreviewRegistry, digest: str, question: str = "one", plan: str = PLAN) -> bool:
    """Return whether an approval of this preview would count."""
    try:
        known.check_newest(question, plan, digest)
    except NotCounted:
        return False
    return True


async def test_only_the_newest_preview_of_each_plan_is_valid(spine: ToldSpine, known: PreviewRegistry) -> None:
    """A caller that names no plan gets the preview of the plan in the question."""
    before = [await read(known), await read(known, plan=EDITED), await read(known, "two")]
    spine.says = "has changed: load it again"
    now = await read(known, plan=None)

    assert (counts(known, before[0]), counts(known, now)) == (False, True)
    assert counts(known, before[1], plan=EDITED)
    assert counts(known, before[2], "two")


@pytest.mark.parametrize("ends_last", ["began first", "began last"])
async def test_of_two_concurrent_previews_the_one_that_began_last_is_newest(
    spine: ToldSpine, known: PreviewRegistry, ends_last: str
) -> None:
    """The order in which they end does not matter."""
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
async def test_a_failed_preview_does_not_replace_the_newest_valid_preview(
    spine: ToldSpine, known: PreviewRegistry, how: str
) -> None:
    """The newest preview still counts, and an older one does not count again."""
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


async def test_after_a_preview_is_evicted_its_plan_needs_a_new_preview(
    spine: ToldSpine, known: PreviewRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least recently read plan is evicted. No older preview counts instead, and failed readings take no room."""
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


async def test_a_preview_that_ends_after_its_plan_was_evicted_is_not_valid(
    spine: ToldSpine, known: PreviewRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry no longer knows whether a newer preview of the plan was read meanwhile."""
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


async def test_a_preview_from_before_a_restart_is_valid_until_its_plan_gets_a_newer_preview(
    known: PreviewRegistry,
) -> None:
    """The registry knows no preview of the plan that could be newer."""
    before = "sha256:" + "3" * 64

    assert counts(known, before)
    now = await read(known)
    assert (counts(known, before), counts(known, now)) == (False, True)
