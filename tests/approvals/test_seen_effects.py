"""The effects that a run may commit: those that the preview showed for the decision, and no others on record."""

from __future__ import annotations

import pytest

from aileron.approvals.gate import Gate, QueuedApproval
from aileron.egress.meter import Meter
from aileron.model.consent import Consents
from aileron.model.decision import digest_with_preview, preview_digest
from aileron.model.failure import AileronError, FailureClass
from aileron.model.plan import Budget, Plan
from aileron.model.preview import EFFECTS_LABEL, PreviewField, SeenEffects, shown_digest, shown_effects

EFFECTS = f"sha256:{'1' * 64}"
FORGED = f"sha256:{'2' * 64}"
FIELDS = [
    PreviewField(EFFECTS_LABEL, "1 row of t updated", multiline=True, effects=EFFECTS),
    PreviewField("A", "a", multiline=False),
]


class _Queue:
    async def redeem(self, approval_id: str, digest: str, now: float) -> None:
        """Redeem every approval."""


class _Nobody:
    def consents(self) -> Consents | None:
        """Return None: nobody signs."""
        return None

    async def spend_decision(self, approval_id: str, until: float) -> None:
        """Write nothing."""

    async def spend_use(self, grant_id: str) -> None:
        """Write nothing."""


async def seen(subject: Plan, effects: SeenEffects | None, shown: str | None) -> str | None:
    """Return the effects that a run may commit if it was approved with this on record."""
    digest = subject.digest if shown is None else digest_with_preview(subject.digest, shown)
    decided = QueuedApproval("act-1", digest, shown, None, None, effects)
    return (await Gate(_Queue(), _Nobody()).redeem(subject, decided)).seen


@pytest.mark.abuse_case("LC5")
@pytest.mark.anyio
async def test_a_run_may_commit_only_the_effects_that_the_approver_saw(plan: Plan) -> None:
    """The decision covers their digest; a recorded row with other effects does not match it."""
    on_record = shown_effects(FIELDS)
    assert on_record is not None
    shown = shown_digest(FIELDS)

    assert await seen(plan, on_record, shown) == EFFECTS
    assert await seen(plan, on_record._replace(effects=FORGED), shown) is None
    assert await seen(plan, on_record, preview_digest({"fields": []})) is None
    assert await seen(plan, on_record, None) is None
    assert await seen(plan, None, shown) is None


def test_a_preview_without_effects_has_the_digest_of_earlier_versions() -> None:
    """Pending questions and older surfaces depend on the earlier digest."""
    fields = FIELDS[1:]
    assert shown_effects(fields) is None
    assert shown_digest(fields) == preview_digest({"fields": [{"label": "A", "value": "a", "multiline": False}]})


def test_a_previews_digest_covers_its_statement_about_the_runs_effects() -> None:
    """Both its words and the digest behind them count."""
    others = [
        [PreviewField(EFFECTS_LABEL, "0 rows of t updated", multiline=True, effects=EFFECTS), FIELDS[1]],
        [PreviewField(EFFECTS_LABEL, "1 row of t updated", multiline=True, effects=FORGED), FIELDS[1]],
        [PreviewField(EFFECTS_LABEL, "1 row of t updated", multiline=True), FIELDS[1]],
    ]
    assert len({shown_digest(fields) for fields in [FIELDS, *others]}) == 4


@pytest.mark.abuse_case("LC5")
def test_previewed_effects_can_be_committed_only_once() -> None:
    """This holds over all tries and streams of a step."""
    meter = Meter(Budget(), EFFECTS)
    with pytest.raises(AileronError) as other:
        meter.commit(FORGED)
    assert other.value.failure.failure_class is FailureClass.CAPABILITY_DENIED
    meter.commit(EFFECTS)
    assert meter.seen is None
    with pytest.raises(AileronError):
        meter.commit(EFFECTS)
