"""Checks of a signed decision: its signer, its bytes and its time. Pure.

Runs in the daemon, twice for every decision: when it arrives, and again when it is used, with the ledger's contents at that time.
Trusts the given `Consents`, which come from an open vault; not the caller, and not the ledger's file, which anybody with
a shell of the same user can write while no daemon runs.

1. it is signed, by the approver's key of this home, or by a passkey that this key enrolled and nobody revoked
2. a passkey approves only the kinds that passkeys decide
3. the signature is over exactly this question, this digest, this decision and reason, at this time
4. it was made about now (checked on arrival), and no longer ago than the plan itself allows (checked on use)

Source: docs/reference/signed-decisions.md. Not here: that it is used once (ledger), what the digest covers (model/plan.py).
"""

from __future__ import annotations

import time
from typing import Final, Literal

from aileron.model.consent import PASSKEY_DECIDES, Consents
from aileron.model.decision import (
    DecisionStatement,
    HeadStatement,
    PageStatement,
    PreviewStatement,
    Signature,
    check_signature,
    parse_moment,
)
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.passkey import check_assertion, is_passkey
from aileron.model.plan import Plan

__all__ = [
    "CEREMONY_S",
    "CLOCK_S",
    "NotCounted",
    "Why",
    "check_fresh",
    "check_head",
    "check_signed",
    "check_still_fresh",
    "counted",
    "usable_until",
]

Why = Literal["unsigned", "key", "kind", "signature", "time", "digest", "decided", "locked", "scope", "preview"]
"""Reasons why a decision is not valid, as recorded in `approval.refused`."""

CLOCK_S: Final = 60.0
"""Maximum number of seconds between a program's signature and its arrival at the daemon. Both use the clock of one machine, but
its disk may be slow."""
CEREMONY_S: Final = 300.0
"""Maximum number of seconds between a page's request for a passkey's signature and the response: a person has to find
their phone. As in browsers (Web Authentication, section 15.1).
"""


class NotCounted(AileronError):
    """Error: a decision, or another signed request by the approver, is not valid. `why` is the reason, as
    `approval.refused` records it.
    """

    def __init__(self, why: Why, message: str, failure_class: FailureClass = FailureClass.UNAUTHORIZED) -> None:
        super().__init__(failure_class, message, boundary=Boundary.USER)
        self.why = why


def check_signed(
    consents: Consents,
    signed: Signature | None,
    *,
    approval_id: str,
    digest: str,
    decision: Literal["approve", "deny"],
    reason: str | None,
    kind: str,
) -> None:
    """Check that the approver of `consents`, or a passkey of theirs, signed exactly this decision. A passkey cannot approve every
    `kind` of question.

    Raises NotCounted otherwise.
    """
    if signed is None:
        raise NotCounted(
            "unsigned",
            "decisions about this home are signed, and this one is not: decide with `aileron approve` or `aileron deny`",
        )
    if is_passkey(signed.key_id) and decision == "approve" and kind not in PASSKEY_DECIDES:
        raise NotCounted(
            "kind",
            f"a passkey cannot approve this ({kind:.40}): decide it with `aileron approve {approval_id:.60}`",
        )
    statement = DecisionStatement(
        approval_id=approval_id, digest=digest, decision=decision, reason=reason, at=signed.at, key_id=signed.key_id
    )
    counted(consents, statement, signed.signature)


def counted(
    consents: Consents,
    statement: DecisionStatement | HeadStatement | PreviewStatement | PageStatement,
    signature: str,
) -> None:
    """Check that the approver of `consents`, or a passkey of theirs, signed this statement with `signature`. Raises
    NotCounted otherwise.
    """
    passkey = consents.passkey(statement.key_id)
    if passkey is None and statement.key_id != consents.key_id:
        raise NotCounted(
            "key",
            "it is signed with a key that is not the approver's, or with a passkey that was revoked: "
            "see `aileron approver status` and `aileron approver passkeys`",
        )
    try:
        if passkey is None:
            check_signature(bytes.fromhex(consents.public_key), statement, signature)
        else:
            check_assertion(passkey.subject, statement, signature)
    except AileronError as error:
        raise NotCounted("signature", error.failure.message) from None


def check_head(consents: Consents, signed: Signature) -> None:
    """Check the signature over the ledger's head, if the decision includes one. Raises NotCounted if it is not valid."""
    if signed.head is None or signed.head_signature is None:
        return
    statement = HeadStatement(head=signed.head, at=signed.at, key_id=signed.key_id)
    counted(consents, statement, signed.head_signature)


def check_fresh(at: str, key_id: str = "", now: float | None = None) -> None:
    """Check that `at`, the signed time of a decision, is at most CLOCK_S ago and at most CLOCK_S ahead.

    If `key_id` is a passkey's, `at` can be CEREMONY_S ago, because a page requests the passkey's signature after `at`. Raises
    NotCounted otherwise.
    """
    now = time.time() if now is None else now
    ago_s = now - _moment(at)
    if not -CLOCK_S <= ago_s <= (CEREMONY_S if is_passkey(key_id) else CLOCK_S):
        raise NotCounted("time", f"it was signed at {at}, not about now: decide again")


def check_still_fresh(signed: Signature, plan: Plan, now: float | None = None) -> None:
    """Check that a decision about `plan` can still be used. Raises AileronError(approval_expired) otherwise.

    The ledger has an expiry too, in a column that the file's owner can edit. The owner cannot edit the signed time, or the
    plan that the digest covers.
    """
    now = time.time() if now is None else now
    if now > usable_until(signed, plan):
        raise AileronError(
            FailureClass.APPROVAL_EXPIRED,
            f"it was approved at {signed.at}, too long ago to be used now: ask for the action again",
            boundary=Boundary.USER,
        )


def usable_until(signed: Signature, plan: Plan) -> float:
    """Return the time, in seconds since the epoch, after which the signature about `plan` is too old to be used."""
    return _moment(signed.at) + plan.approval.expires_in_s + plan.approval.undo_window_s + CLOCK_S


def _moment(at: str) -> float:
    try:
        return parse_moment(at)
    except ValueError as error:
        raise NotCounted("time", f"at: {error}", FailureClass.INVALID_REQUEST) from None
