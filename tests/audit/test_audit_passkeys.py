"""Passkeys in a recomputed chain: who enrolled them, when they could decide, and what they may approve."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from aileron.audit.log import Audit
from aileron.audit.verify import Reason, verify
from aileron.ledger import Ledger
from aileron.model.consent import Passkey, PasskeyConsent, subject_digest
from aileron.model.decision import DecisionStatement, HeadStatement, Signature, moment
from aileron.model.failure import AileronError, FailureClass
from aileron.model.passkey import base64url
from tests.audit.conftest import START_S, a_plan, an_invocation
from tests.audit.signer import Signer
from tests.audit.test_audit_signatures import Facts, Forge, appended, forged, of_type
from tests.support.authenticator import Authenticator, Told, cbor
from tests.support.refusals import refusal

PERSON, NEXT, THIEF = Signer(), Signer(), Signer()
PHONE, LAPTOP, STRANGER = Authenticator(), Authenticator("EdDSA"), Authenticator()
PLAN = a_plan()


def subject_of(device: Authenticator, name: str, **others: Any) -> PasskeyConsent:
    """Return the consent for a passkey of this device."""
    found = PasskeyConsent(
        name=name,
        credential_id=base64url(device.credential_id),
        public_key=cbor(device.cose).hex(),
        rp_id="localhost",
        origin=device.origin,
        key_id=device.key_id,
        algorithm=device.algorithm,
        synced="no",
        aaguid=None,
        transports=(),
    )
    return msgspec.structs.replace(found, **others)


def passkey_of(
    subject: PasskeyConsent, approval_id: str, signer: Signer = PERSON, reason: str | None = None
) -> Passkey:
    """Return the passkey with the signature of the person who consented to it."""
    signed = signer.signed(approval_id, subject_digest(subject), reason=reason)
    return Passkey(
        id=subject.key_id,
        approval=approval_id,
        subject=subject,
        at=signed.at,
        reason=reason,
        signature=signed.signature,
    )


def signed_with(device: Authenticator, approval_id: str, digest: str, told: Told = Told()) -> Signature:  # noqa: B008
    """Return the signature of a passkey's decision."""
    at = moment(START_S)
    statement = DecisionStatement(
        approval_id=approval_id, digest=digest, decision="approve", reason=None, at=at, key_id=device.key_id
    )
    return Signature(key_id=device.key_id, at=at, signature=device.sign(statement, told))


async def _enrol(audit: Audit, device: Authenticator, name: str, signer: Signer = PERSON) -> Passkey:
    subject = subject_of(device, name)
    row, _ = await audit.ask(name, subject, expires_at=START_S * 2)
    signed = signer.signed(row.id, row.digest)
    await audit.decide(row.id, "approve", digest=row.digest, surface="operator", signed=signed)
    await audit.redeem(row.id, row.digest)
    passkey = passkey_of(subject, row.id, signer)
    await audit.passkey_added(passkey)
    return passkey


async def _decide(audit: Audit, device: Authenticator, told: Told = Told()) -> str:  # noqa: B008
    asked = await audit.pending(PLAN, an_invocation(), START_S * 2)
    signed = signed_with(device, asked.approval_id, PLAN.digest, told)
    await audit.decide(asked.approval_id, "approve", digest=PLAN.digest, surface="operator", signed=signed)
    return asked.approval_id


async def _history(audit: Audit) -> None:
    """Record a key, two passkeys that decide, and the revocation of one."""
    await PERSON.appoint(audit)
    await _enrol(audit, PHONE, "phone")
    await _enrol(audit, LAPTOP, "laptop")
    await _decide(audit, PHONE)
    await audit.passkey_removed(PHONE.key_id, "revoked")
    await _decide(audit, LAPTOP)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a closed ledger in which passkeys decide."""
    path = tmp_path_factory.mktemp("passkeys") / "ledger.db"
    with Ledger.open(path, path.parent, "0.1.0") as ledger:
        anyio.run(_history, Audit(ledger))
    return path


def test_decisions_of_passkeys_are_verified_from_the_chain_alone(original: Path, tmp_path: Path) -> None:
    """Two enrollments and two decisions are all signed; recomputed from the same events, the chain is the same."""
    report = verify(original)

    assert report.finding is None
    assert msgspec.to_builtins(report.decisions) == {"signed": 4, "unsigned": 0, "unchecked": 0}
    assert forged(original, tmp_path / "ledger.db", lambda events: events).head == report.head


def _added(number: int, **changes: Any) -> Forge:
    """Return a forge that changes facts of the enrollment of that number."""

    def forge(events: list[Facts]) -> list[Facts]:
        of_type(events, "passkey.added")[number].update(changes)
        return events

    return forge


def _decided(number: int, **changes: Any) -> Forge:
    def forge(events: list[Facts]) -> list[Facts]:
        of_type(events, "approval.decided")[number].update(changes)
        return events

    return forge


def _subject(number: int, **changes: Any) -> Forge:
    """Return a forge that changes the subject of the enrollment."""

    def forge(events: list[Facts]) -> list[Facts]:
        of_type(events, "passkey.added")[number]["subject"].update(changes)
        return events

    return forge


def _without(kind: str) -> Forge:
    return lambda events: [facts for facts in events if facts["type"] != kind]


def _told(told: Told) -> Forge:
    """Return a forge of the last decision: the right device made its assertion with a lie."""

    def forge(events: list[Facts]) -> list[Facts]:
        decided = of_type(events, "approval.decided")[-1]
        signed = signed_with(LAPTOP, decided["approval"], decided["digest"], told)
        decided["signature"] = signed.signature
        return events

    return forge


def _swapped(events: list[Facts]) -> list[Facts]:
    """Move the revocation of the phone before its decision."""
    (removed,) = of_type(events, "passkey.removed")
    rest = [facts for facts in events if facts is not removed]
    place = next(index for index, facts in enumerate(rest) if facts["type"] == "passkey.added")
    early = {**removed, "at_us": rest[place]["at_us"]}
    return [*rest[: place + 1], early, *rest[place + 1 :]]


def _signed_by_passkey(events: list[Facts]) -> list[Facts]:
    """Have the phone sign the consent for the laptop's enrollment."""
    added = of_type(events, "passkey.added")[1]
    decided = next(facts for facts in of_type(events, "approval.decided") if facts["approval"] == added["approval"])
    signed = signed_with(PHONE, added["approval"], decided["digest"])
    decided.update(key_id=PHONE.key_id, signature=signed.signature)
    added.update(signature=signed.signature)
    return events


def _strangers(events: list[Facts]) -> list[Facts]:
    """Put another person's passkey under the laptop's enrollment."""
    added = of_type(events, "passkey.added")[1]
    added["subject"] = msgspec.to_builtins(subject_of(STRANGER, "laptop"))
    return events


def _of_a_thief(events: list[Facts]) -> list[Facts]:
    """Put another person's passkey there, signed by a key that does not decide."""
    added = of_type(events, "passkey.added")[1]
    subject = subject_of(STRANGER, "laptop")
    added["subject"] = msgspec.to_builtins(subject)
    added["passkey"] = STRANGER.key_id
    added["signature"] = passkey_of(subject, added["approval"], THIEF).signature
    return events


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (_without("passkey.added"), "had to sign it"),
        (_added(0, signature="AAAA"), "did not sign this passkey"),
        (_added(0, approval="act-20261121T140000-0f7c1dd8f7b7a1ba1d0e"), "did not sign this passkey"),
        (_added(0, reason="put in its mouth"), "did not sign this passkey"),
        (_added(0, signed_at=moment(START_S + 1)), "did not sign this passkey"),
        (_added(0, passkey=LAPTOP.key_id), "the consent is not about webauthn:"),
        (_added(0, subject={"kind": "passkey"}), "did not sign this passkey"),
        (_added(0, subject=5), "it is not a valid passkey.added"),
        (_subject(0, public_key=cbor(STRANGER.cose).hex()), "did not sign this passkey"),
        (_subject(0, origin="http://localhost:1"), "did not sign this passkey"),
        (_strangers, "did not sign this passkey"),
        (_of_a_thief, "did not sign this passkey"),
        (_signed_by_passkey, "a passkey approved a kind that passkeys cannot decide: passkey"),
        (_swapped, "had to sign it"),
        (_decided(-1, signature="AAAA"), "does not match its contents"),
        (_decided(-1, signature="a.b.c"), "does not match its contents"),
        (_decided(-1, reason="put in its mouth"), "does not match its contents"),
        (_decided(-1, key_id=PERSON.key_id), "does not match its contents"),
        (_decided(-1, key_id=STRANGER.key_id), "had to sign it"),
        (_told(Told(origin="http://localhost:24101")), "does not match its contents"),
        (_told(Told(rp_id="example.com")), "does not match its contents"),
        (_told(Told(is_verified=False)), "does not match its contents"),
        (_told(Told(challenge="AAAA")), "does not match its contents"),
        (_told(Told(client={"crossOrigin": True})), "does not match its contents"),
        (appended({"type": "passkey.removed", "passkey": PHONE.key_id, "reason": "revoked"}), "was not enrolled"),
    ],
)
def test_verification_finds_a_passkey_or_decision_that_no_person_signed(
    original: Path, tmp_path: Path, forge: Forge, words: str
) -> None:
    """Each finding has its reason; the chain itself is intact."""
    report = forged(original, tmp_path / "ledger.db", forge)

    assert report.finding is not None
    assert (report.finding.reason, words in report.finding.message) == (Reason.SIGNATURE, True), report.finding


def _renamed(event: str) -> Forge:
    """Return a forge that has the phone consent to the laptop's enrollment, under a kind that a passkey may decide."""

    def forge(events: list[Facts]) -> list[Facts]:
        events = _signed_by_passkey(events)
        name = of_type(events, "passkey.added")[1]["approval"]
        for facts in events:
            if facts.get("approval") == name and facts["type"] in ("approval.decided", event):
                facts["kind"] = "grant"
        return events

    return forge


@pytest.mark.parametrize(
    ("event", "reason", "words"),
    [
        ("approval.decided", Reason.STATE, "has a decision about another kind"),
        ("approval.requested", Reason.PLAN, "is of a different kind than in row"),
    ],
)
def test_a_passkeys_decision_is_judged_by_the_kind_of_its_question(
    original: Path, tmp_path: Path, event: str, reason: Reason, words: str
) -> None:
    """A passkey may not decide every kind: changing the kind in the row of the decision or question does not help."""
    report = forged(original, tmp_path / "ledger.db", _renamed(event))

    assert report.finding is not None
    assert (report.finding.reason, words in report.finding.message) == (reason, True), report.finding


def _again(events: list[Facts]) -> list[Facts]:
    """Append the phone's enrollment again after its revocation: the signature is valid, but was used."""
    added = of_type(events, "passkey.added")[0]
    return [*events, {name: value for name, value in added.items() if name not in ("seq", "at_us")}]


def test_one_signed_enrollment_enrolls_a_passkey_only_once(original: Path, tmp_path: Path) -> None:
    """Replaying the enrollment's row neither restores a revoked passkey nor enrolls one twice."""
    told_again = forged(original, tmp_path / "ledger.db", _again)

    assert told_again.finding is not None
    assert "a decision that was already used" in told_again.finding.message


@pytest.mark.anyio
async def test_a_new_approver_invalidates_every_passkey(original: Path, tmp_path: Path) -> None:
    """The ledger and the verification refuse their decisions until the new approver enrolls them again."""
    path = tmp_path / "ledger.db"
    shutil.copy(original, path)
    with Ledger.open(path, path.parent, "0.1.0") as ledger:
        audit = Audit(ledger)
        await NEXT.appoint(audit, replaces=PERSON)
        assert (await audit.passkeys()).in_force == {}
        with pytest.raises(AileronError) as refused:
            await _decide(audit, LAPTOP)
        passkey = await _enrol(audit, LAPTOP, "laptop", NEXT)
        assert (await audit.passkeys()).in_force == {LAPTOP.key_id: passkey.approval}
        await _decide(audit, LAPTOP)

    assert refused.value.failure.failure_class is FailureClass.UNAUTHORIZED
    assert verify(path).finding is None


@pytest.mark.anyio
async def test_a_passkeys_decisions_are_accepted_only_between_its_enrollment_and_revocation(tmp_path: Path) -> None:
    """The ledger refuses its decisions before and after; recording an enrollment or revocation twice adds nothing."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path, path.parent, "0.1.0") as ledger:
        audit = Audit(ledger)
        await PERSON.appoint(audit)
        for enrol in (False, True):
            if enrol:
                passkey = await _enrol(audit, PHONE, "phone")
                await audit.passkey_added(passkey)
                await _decide(audit, PHONE)
                await audit.passkey_removed(PHONE.key_id, "revoked")
                await audit.passkey_removed(PHONE.key_id, "vault")
            assert (await refusal(_decide(audit, PHONE))).failure_class is FailureClass.UNAUTHORIZED
        known = await audit.passkeys()

    assert (known.in_force, known.enrolments) == ({}, frozenset({passkey.approval}))
    assert verify(path).finding is None


@pytest.mark.anyio
async def test_a_damaged_revocation_without_a_passkey_id_disables_all_passkeys(tmp_path: Path) -> None:
    """The row does not say which passkey it revokes, so none is accepted after it; before it, one is."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path, path.parent, "0.1.0") as ledger:
        audit = Audit(ledger)
        await PERSON.appoint(audit)
        await _enrol(audit, PHONE, "phone")
        await _decide(audit, PHONE)
        await ledger.commit(lambda tx: tx.append({"type": "passkey.removed", "reason": "revoked"}))
        with pytest.raises(AileronError, match="missing required field `passkey`") as refused:
            await _decide(audit, PHONE)

    assert refused.value.failure.failure_class is FailureClass.HASH_MISMATCH


@pytest.mark.anyio
async def test_a_ledgers_head_can_be_signed_with_a_passkey_too(tmp_path: Path) -> None:
    """The signature is optional; if it exists, it is checked like the approver's."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path, path.parent, "0.1.0") as ledger:
        audit = Audit(ledger)
        await PERSON.appoint(audit)
        await _enrol(audit, PHONE, "phone")
        asked = await audit.pending(PLAN, an_invocation(), START_S * 2)
        head = str(ledger.read_now(lambda snapshot: snapshot.head()))
        signed = signed_with(PHONE, asked.approval_id, PLAN.digest)
        over_head = HeadStatement(head=head, at=signed.at, key_id=PHONE.key_id)
        signed = msgspec.structs.replace(signed, head=head, head_signature=PHONE.sign(over_head))
        await audit.decide(asked.approval_id, "approve", digest=PLAN.digest, surface="operator", signed=signed)

    assert verify(path).signed_head == head

    def forge(events: list[Facts]) -> list[Facts]:
        decided = of_type(events, "approval.decided")[-1]
        decided["head_signature"] = decided["signature"]
        return events

    wrong = forged(path, tmp_path / "forged.db", forge)
    assert wrong.finding is not None
    assert "the signature of its head does not match" in wrong.finding.message
