"""The vault's record of uses, which nobody can reset: a used-up grant lets nothing through, and each use is written there."""

from __future__ import annotations

import time
from typing import Any

import pytest

from aileron.approvals.gate import Admission, Gate, NeedsPerson, QueuedApproval
from aileron.approvals.grants import credentials_of
from aileron.approvals.signed import usable_until
from aileron.model.consent import Consents, StandingGrant
from aileron.model.decision import Signature, moment
from aileron.model.plan import Plan

KEY = "ab" * 32


class _Queue:
    async def redeem(self, approval_id: str, digest: str, now: float) -> None:
        """Raise AssertionError: no test here redeems an approval."""
        raise AssertionError


class _Vault:
    """The vault of an approver with these grants; with `signs=False`, nobody signs."""

    def __init__(self, *grants: StandingGrant, signs: bool = True) -> None:
        self._consents = Consents(key_id="k", public_key=KEY, created_ms=0, grants=grants) if signs else None
        self.written: list[tuple[Any, ...]] = []

    def consents(self) -> Consents | None:
        """Return the consents as they are."""
        return self._consents

    async def spend_decision(self, approval_id: str, until: float) -> None:
        """Record the call."""
        self.written.append((approval_id, until))

    async def spend_use(self, grant_id: str) -> None:
        """Record the call."""
        self.written.append((grant_id,))


def grant(plan: Plan, used: int) -> StandingGrant:
    """Return a grant for two runs like this one, of which `used` are used."""
    return StandingGrant(
        id="act-grant",
        action=plan.action,
        action_digest=plan.action_digest,
        credentials=credentials_of(plan),
        constraints=(),
        uses=2,
        until=int(time.time()) + 60,
        used=used,
    )


def test_a_standing_grant_used_up_according_to_the_vault_allows_no_run(plan: Plan) -> None:
    """The ledger's count does not matter, because any program of the user can reset it. With one use left, a run
    passes.
    """
    last, none_left = grant(plan, used=1), grant(plan, used=2)

    admitted = Gate(_Queue(), _Vault(last)).admit(plan)
    assert isinstance(admitted, Admission)
    assert admitted.grant == last
    assert isinstance(Gate(_Queue(), _Vault(none_left)).admit(plan), NeedsPerson)
    assert isinstance(Gate(_Queue(), _Vault(last)).admit(plan, spent={last.id}), NeedsPerson)


@pytest.mark.anyio
async def test_every_use_of_a_standing_grant_or_signed_decision_is_written_into_the_vault(plan: Plan) -> None:
    """The vault keeps a grant's use, and a signed decision for as long as it could be used; an unsigned decision is not kept."""
    signed = Signature(key_id="k", at=moment(time.time()), signature="")
    decided = QueuedApproval("act-1", plan.digest, None, None, signed)
    vault, nobody = _Vault(), _Vault(signs=False)

    await Gate(_Queue(), vault).spend(plan, grant(plan, used=0))
    await Gate(_Queue(), vault).spend(plan, decided)
    await Gate(_Queue(), vault).spend(plan, QueuedApproval("act-2", plan.digest, None, None, None))
    await Gate(_Queue(), nobody).spend(plan, decided)

    assert vault.written == [("act-grant",), ("act-1", usable_until(signed, plan))]
    assert not nobody.written
