"""Detection of an older vault by the record: a state that the record has superseded is older; one that it does not know
yet is newer.
"""

from __future__ import annotations

import msgspec
import pytest

from aileron.audit.log import Audit
from aileron.audit.rollback import rolled_back
from aileron.ledger import Ledger
from aileron.model.consent import Appointed, Consent, ConsentKind, Consents
from aileron.model.failure import FailureClass
from tests.audit.signer import Signer
from tests.support.refusals import refusal

pytestmark = pytest.mark.anyio

FILE = ConsentKind.ACTION_FILE
FIRST, SECOND = "sha256:" + "1" * 64, "sha256:" + "2" * 64


def consents(signer: Signer, *agreed: tuple[str, str, str]) -> Consents:
    """Return the consents of a vault with this key and these consents: name, digest, approval."""
    made = Consents(key_id=signer.key_id, public_key=signer.public_key.hex(), created_ms=0)
    for name, digest, approval in agreed:
        made = made.with_consent(Consent(kind=FILE, name=name, digest=digest, approval=approval))
    return made


async def test_a_current_or_newer_vault_is_not_reported_as_older(audit: Audit, ledger: Ledger) -> None:
    """The ledger has no key, the same consent, or not yet the vault's newer ones; or the vault has no consents."""
    signer = Signer()
    assert await rolled_back(ledger, consents(signer, ("send", FIRST, "act-1"))) is None
    await signer.appoint(audit)
    await audit.agreed(FILE, "send", FIRST, "act-1")
    for agreed in (("send", FIRST, "act-1"), ("send", SECOND, "act-2"), ("send", FIRST, "act-3")):
        assert await rolled_back(ledger, consents(signer, agreed)) is None
    assert await rolled_back(ledger, consents(signer)) is None


async def test_a_vault_with_a_superseded_consent_is_reported_as_older(audit: Audit, ledger: Ledger) -> None:
    """A newer decision or the approver's key replaced the consent; the vault's other consents do not matter."""
    signer = Signer()
    await signer.appoint(audit)
    await audit.agreed(FILE, "send", FIRST, "act-1")
    await audit.agreed(FILE, "send", SECOND, "act-2")
    for approval in ("act-1", signer.key_id):
        found = await rolled_back(ledger, consents(signer, ("other", FIRST, "act-9"), ("send", FIRST, approval)))
        assert found is not None
        assert "action_file send" in found
    assert await rolled_back(ledger, consents(signer, ("send", SECOND, "act-2"))) is None


async def test_a_vault_that_still_has_a_withdrawn_consent_is_reported_as_older_until_it_is_given_again(
    audit: Audit, ledger: Ledger
) -> None:
    """An action was removed, but the vault still has it."""
    signer = Signer()
    await signer.appoint(audit)
    await audit.agreed(FILE, "send", FIRST, "act-1")
    await audit.ended(FILE, "send", "removed")
    assert await rolled_back(ledger, consents(signer, ("send", FIRST, "act-1"))) is not None
    await audit.agreed(FILE, "send", FIRST, "act-2")
    assert await rolled_back(ledger, consents(signer, ("send", FIRST, "act-2"))) is None
    assert await rolled_back(ledger, consents(signer, ("send", FIRST, "act-1"))) is not None


async def test_a_vault_with_a_replaced_key_is_reported_as_older(audit: Audit, ledger: Ledger) -> None:
    """The ledger names a newer approver's key; consents with that key are valid."""
    old, new = Signer(), Signer()
    await old.appoint(audit)
    await audit.agreed(FILE, "send", FIRST, "act-1")
    await new.appoint(audit, replaces=old)

    assert new.key_id in (await rolled_back(ledger, consents(old, ("send", FIRST, "act-1"))) or "")
    assert await rolled_back(ledger, consents(new, ("send", FIRST, new.key_id))) is None


async def test_a_vault_with_another_persons_key_is_not_accepted_as_newer(audit: Audit, ledger: Ledger) -> None:
    """Their vault has an approver of its own, but a new key needs a signature by the recorded one."""
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


async def test_a_ledger_of_more_than_one_page_is_read_to_its_end(audit: Audit, ledger: Ledger) -> None:
    """The ledger has more rows than one page of a query."""
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
async def test_an_incomplete_ledger_row_is_an_error_when_checking_the_vaults_age(
    audit: Audit, ledger: Ledger, facts: dict[str, str]
) -> None:
    """The row might be the one that reveals it; without that row the same vault is accepted."""
    signer = Signer()
    await signer.appoint(audit)
    await audit.agreed(FILE, "send", FIRST, "act-1")
    kept = consents(signer, ("send", FIRST, "act-1"))
    assert await rolled_back(ledger, kept) is None
    await ledger.commit(lambda tx: tx.append(dict(facts)))

    assert (
        await refusal(rolled_back(ledger, kept), match="row 4 of the ledger is not as it was written")
    ).failure_class is FailureClass.HASH_MISMATCH
