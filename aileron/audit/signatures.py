"""Checks of the signed decisions in the record: each signature is checked with the key that the chain named at that point.

Pure but for the arithmetic of Ed25519. For verify.py, which passes every event in order. Trusts the chain's hashes, which are
checked before, and no other content: anybody who can write the file can chain any text, but cannot forge a signature.

1. `approver.set`: signed with the key it names, and, if a former key exists, also with the former key
2. `passkey.added`: the row holds the consent, and the signature over its digest by the approver's key at that point; one such
   decision enrolls exactly one passkey. `passkey.removed` ends that passkey, and another approver ends all passkeys
3. `approval.decided`: signed, over exactly what the row says, with the approver's key at that point, or by a passkey between
   its enrollment and its end; a passkey can approve only the kinds that passkeys decide. A decision can be unsigned only if no
   key was named before it
4. the head signed with a decision is a row of this chain, older than the decision: every row before that head is unchanged

Left to the caller: whether the key is the person's. In a ledger that never names an approver's key (a new ledger beside
a vault that has an approver), signatures cannot be checked, and are counted as unchecked.

Source: docs/reference/signed-decisions.md. Not here: the chain (verify.py), the states that follow from a decision (replay.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import msgspec

from aileron.audit.events import ApprovalDecided, ApproverSet, PasskeyAdded, PasskeyRemoved
from aileron.ledger import Head, Recorded
from aileron.ledger.recorded import E, tag_of
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.consent import PASSKEY_DECIDES, PasskeyConsent
from aileron.model.decision import (
    ApproverStatement,
    DecisionStatement,
    HeadStatement,
    Statement,
    check_signature,
    key_id_of,
)
from aileron.model.failure import AileronError
from aileron.model.passkey import check_assertion, id_of

__all__ = ["Decisions", "ForeignHeadError", "Signatures", "Signed", "WrongSignatureError"]


Signed = ApproverSet | PasskeyAdded | PasskeyRemoved | ApprovalDecided
"""Events that contain a signature, or that remove a passkey."""


class WrongSignatureError(Exception):
    """Error: a row of the ledger lacks the valid signature that it needs. The message says why."""


class ForeignHeadError(Exception):
    """Error: the row that a decision's signature names as the newest row is not in this ledger's chain."""


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of decisions by kind of signature. `unchecked` counts signed decisions in a ledger that names no key."""

    signed: int
    unsigned: int
    unchecked: int


class Signatures:
    """A check of all signatures in one ledger. Pass the events that `Signed` lists, in order."""

    def __init__(self, hash_of: Callable[[int], bytes | None]) -> None:
        """Start a check. `hash_of` returns the hash of a row that was already checked."""
        self._hash_of = hash_of
        self._public_key = b""
        self._passkeys: dict[str, PasskeyConsent] = {}
        self._enrolments: set[str] = set()
        """Ids of approvals that enrolled a passkey, so that no approval enrolls a second one."""
        self._signed = self._unsigned = self._unchecked = 0
        self.key_id: str | None = None
        """Id of the approver's key after the events that were checked so far; None if no approver was set."""
        self.head: Head | None = None
        """The newest of the rows that a decision's signature names as the newest row; None if there is none."""

    @property
    def decisions(self) -> Decisions:
        """Numbers of decisions by kind of signature, in the events that were checked so far."""
        return Decisions(signed=self._signed, unsigned=self._unsigned, unchecked=self._unchecked)

    def follow(self, told: Recorded[Signed]) -> None:
        """Check the signature in the next event. Raises WrongSignatureError or ForeignHeadError."""
        match told.event:
            case ApproverSet() as event:
                self._appoint(_whole(event, told.problem))
            case PasskeyAdded() as event:
                self._enrol(_whole(event, told.problem))
            case PasskeyRemoved() as event:
                self._end(_whole(event, told.problem))
            case ApprovalDecided() as event:
                self._check_decision(_whole(event, told.problem), told.seq)
            case impossible:
                assert_never(impossible)

    def _appoint(self, named: ApproverSet) -> None:
        try:
            public_key = bytes.fromhex(named.public_key)
        except ValueError as error:
            raise WrongSignatureError("its key is not hex digits") from error
        if key_id_of(public_key) != named.key_id:
            raise WrongSignatureError(f"its key is not {named.key_id}")
        statement = ApproverStatement(
            public_key=named.public_key,
            inventory=named.inventory,
            replaces=named.replaces,
            at=named.signed_at,
            key_id=named.key_id,
        )
        _check(public_key, statement, named.signature, "it is not signed with the key it names")
        if self.key_id is not None:
            if named.replaces != self.key_id or named.old_signature is None:
                raise WrongSignatureError(f"it does not replace {self.key_id}, the key that decided until then")
            _check(self._public_key, statement, named.old_signature, f"{self.key_id} did not sign it")
        self.key_id, self._public_key = named.key_id, public_key
        self._passkeys, self._enrolments = {}, set()

    def _enrol(self, added: PasskeyAdded) -> None:
        if self.key_id is None:  # no key in this ledger could have signed it; its decisions are counted as unchecked
            return
        enrolment = DecisionStatement(
            approval_id=added.approval,
            digest=sha256_digest(canonical_json(added.subject)),
            decision="approve",
            reason=added.reason,
            at=added.signed_at,
            key_id=self.key_id,
        )
        _check(self._public_key, enrolment, added.signature, f"{self.key_id} did not sign this passkey")
        subject = _passkey_of(added)
        if added.approval in self._enrolments or added.passkey in self._passkeys:
            raise WrongSignatureError("it enrolls a passkey a second time, or with a decision that was already used")
        self._enrolments.add(added.approval)
        self._passkeys[added.passkey] = subject

    def _end(self, removed: PasskeyRemoved) -> None:
        if self.key_id is not None and self._passkeys.pop(removed.passkey, None) is None:
            raise WrongSignatureError(f"it revokes a passkey that was not enrolled: {removed.passkey:.100}")

    def _check_decision(self, decided: ApprovalDecided, seq: int) -> None:
        signed = (decided.key_id, decided.signed_at, decided.signature)
        if signed == (None, None, None) and decided.head is decided.head_signature is None:
            if self.key_id is not None:
                raise WrongSignatureError(f"it is not signed, although {self.key_id} had to sign it")
            self._unsigned += 1
            return
        key_id, at, signature = signed
        if (
            key_id is None
            or at is None
            or signature is None
            or (decided.head is None) != (decided.head_signature is None)
        ):
            raise WrongSignatureError("its signature is incomplete")
        if self.key_id is None:
            self._unchecked += 1
            return
        passkey = self._passkeys.get(key_id)
        if passkey is None and key_id != self.key_id:
            raise WrongSignatureError(f"it is signed by {key_id:.100}, although {self.key_id} had to sign it")
        if passkey is not None and decided.decision == "approve" and decided.kind not in PASSKEY_DECIDES:
            raise WrongSignatureError(f"a passkey approved a kind that passkeys cannot decide: {decided.kind:.40}")
        statement = DecisionStatement(
            approval_id=decided.approval,
            digest=decided.digest,
            decision=decided.decision,
            reason=decided.reason,
            at=at,
            key_id=key_id,
        )
        signer = passkey or self._public_key
        _check(signer, statement, signature, "its signature does not match its contents")
        if decided.head is not None and decided.head_signature is not None:
            head = HeadStatement(head=decided.head, at=at, key_id=key_id)
            _check(signer, head, decided.head_signature, "the signature of its head does not match")
            self._check_head(decided.head, seq)
        self._signed += 1

    def _check_head(self, text: str, seq: int) -> None:
        try:
            head = Head.parse(text)
        except ValueError as error:
            raise WrongSignatureError(str(error)) from error
        if head.seq >= seq or self._hash_of(head.seq) != head.hash:
            raise ForeignHeadError(f"the signed head, row {head.seq}, is not in this chain")
        if self.head is None or head.seq > self.head.seq:
            self.head = head


def _whole(event: E, problem: str | None) -> E:
    if problem is not None:
        raise WrongSignatureError(f"it is not a valid {tag_of(type(event))}: {problem}")
    return event


def _passkey_of(added: PasskeyAdded) -> PasskeyConsent:
    """Return the consent to the passkey, which the signature in the event covers. Raises WrongSignatureError if it is
    about another passkey than the row.
    """
    try:
        subject = msgspec.convert(added.subject, PasskeyConsent)
        named = id_of(subject)
    except (msgspec.ValidationError, AileronError) as error:
        raise WrongSignatureError(f"the consent is not about a valid passkey: {error}") from error
    if not added.passkey == subject.key_id == named:
        raise WrongSignatureError(f"the consent is not about {added.passkey:.100}")
    return subject


def _check(signer: bytes | PasskeyConsent, statement: Statement, signature: str, otherwise: str) -> None:
    try:
        if isinstance(signer, PasskeyConsent):
            check_assertion(signer, statement, signature)
        else:
            check_signature(signer, statement, signature)
    except AileronError as error:
        raise WrongSignatureError(otherwise) from error
