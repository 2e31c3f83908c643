"""An older vault, told by the record: what was followed by something else is of before; what is not known yet is newer."""

from __future__ import annotations

import msgspec
import pytest

from aileron.audit.log import Audit
from aileron.audit.rollback import rolled_back
from aileron.ledger import Ledger
from aileron.model.consent import Agreement, Appointed, ConsentKind, Consents
from aileron.model.failure import AileronError, FailureClass
from tests.audit.signer import Signer

pytestmark = pytest.mark.anyio

FILE = ConsentKind.ACTION_FILE
FIRST, SECOND = "sha256:" + "1" * 64, "sha256:" + "2" * 64


def consents(signer: Signer, *agreed: tuple[str, str, str]) -> Consents:
    """Of a vault with this key and these agreements: name, digest, approval."""
    made = Consents(key_id=signer.key_id, public_key=signer.public_key.hex(), created_ms=0)
    for name, digest, approval in agreed:
        made = made.with_agreement(Agreement(kind=FILE, name=name, digest=digest, approval=approval))
    return made


async def test_the_newest_and_a_newer_one_are_not_older(audit: Audit, ledger: Ledger) -> None:
    """What the record says; what a daemon wrote into the vault before it ended; what it never heard of."""
    signer = Signer()
    assert await rolled_back(ledger, consents(signer, ("send", FIRST, "act-1"))) is None
    await signer.appoint(audit)
    await audit.agreed(FILE, "send", FIRST, "act-1")
    for agreed in (("send", FIRST, "act-1"), ("send", SECOND, "act-2"), ("send", FIRST, "act-3")):
        assert await rolled_back(ledger, consents(signer, agreed)) is None
    assert await rolled_back(ledger, consents(signer)) is None


async def test_what_was_agreed_to_before_something_else_is_older(audit: Audit, ledger: Ledger) -> None:
    """By a decision, or with the key; others of the same vault are as they were."""
    signer = Signer()
    await signer.appoint(audit)
    await audit.agreed(FILE, "send", FIRST, "act-1")
    await audit.agreed(FILE, "send", SECOND, "act-2")
    for approval in ("act-1", signer.key_id):
        found = await rolled_back(ledger, consents(signer, ("other", FIRST, "act-9"), ("send", FIRST, approval)))
        assert found is not None
        assert "action_file send" in found
    assert await rolled_back(ledger, consents(signer, ("send", SECOND, "act-2"))) is None


async def test_what_was_taken_away_is_older_until_it_is_agreed_to_again(audit: Audit, ledger: Ledger) -> None:
    """A removed action, in a vault that still has it."""
    signer = Signer()
    await signer.appoint(audit)
    await audit.agreed(FILE, "send", FIRST, "act-1")
    await audit.ended(FILE, "send", "removed")
    assert await rolled_back(ledger, consents(signer, ("send", FIRST, "act-1"))) is not None
    await audit.agreed(FILE, "send", FIRST, "act-2")
    assert await rolled_back(ledger, consents(signer, ("send", FIRST, "act-2"))) is None
    assert await rolled_back(ledger, consents(signer, ("send", FIRST, "act-1"))) is not None


async def test_a_key_that_was_replaced_is_older(audit: Audit, ledger: Ledger) -> None:
    """And what was agreed to with the new one counts from then on."""
    old, new = Signer(), Signer()
    await old.appoint(audit)
    await audit.agreed(FILE, "send", FIRST, "act-1")
    await new.appoint(audit, replaces=old)

    assert new.key_id in (await rolled_back(ledger, consents(old, ("send", FIRST, "act-1"))) or "")
    assert await rolled_back(ledger, consents(new, ("send", FIRST, new.key_id))) is None


async def test_a_key_of_somebody_else_is_not_newer(audit: Audit, ledger: Ledger) -> None:
    """A vault of their own, with an approver of their own: only with the signature of the key on record does it follow that."""
    signer, successor, stranger = Signer(), Signer(), Signer()
    await signer.appoint(audit)

    def named(key: Signer, by: Signer) -> Consents:
        statement = key.statement(signer)
        appointed = Appointed(
            inventory=statement.inventory,
            replaces=statement.replaces,
            at=statement.at,
            signature=key.sign(statement),
            old_signature=by.sign(statement),
        )
        return msgspec.structs.replace(consents(key), appointed=appointed)

    for foreign in (consents(stranger), named(stranger, by=stranger)):
        assert stranger.key_id in (await rolled_back(ledger, foreign) or "")
    assert await rolled_back(ledger, named(successor, by=signer)) is None


async def test_a_long_record_is_read_to_its_end(audit: Audit, ledger: Ledger) -> None:
    """More rows than a page has."""
    signer = Signer()
    await signer.appoint(audit)
    await audit.agreed(FILE, "send", FIRST, "act-1")
    for number in range(510):
        await audit.agreed(FILE, f"a{number}", FIRST, "act-1")
    await audit.agreed(FILE, "send", SECOND, "act-2")

    assert await rolled_back(ledger, consents(signer, ("send", FIRST, "act-1"))) is not None


@pytest.mark.parametrize(
    "facts",
    [
        {"type": "consent.ended", "kind": "action_file", "reason": "removed"},
        {"type": "consent.agreed", "kind": "action_file", "name": "send", "approval": "act-2"},
        {"type": "approver.set", "key_id": "ed25519:00"},
    ],
)
async def test_a_row_that_says_only_half_is_not_passed_over(
    audit: Audit, ledger: Ledger, facts: dict[str, str]
) -> None:
    """It might be the one that shows it; without it the same vault is fine."""
    signer = Signer()
    await signer.appoint(audit)
    await audit.agreed(FILE, "send", FIRST, "act-1")
    kept = consents(signer, ("send", FIRST, "act-1"))
    assert await rolled_back(ledger, kept) is None
    await ledger.commit(lambda tx: tx.append(dict(facts)))

    with pytest.raises(AileronError, match="row 4 of the ledger is not as it was written") as caught:
        await rolled_back(ledger, kept)
    assert caught.value.failure.failure_class is FailureClass.HASH_MISMATCH
