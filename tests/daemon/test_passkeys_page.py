"""Unlocking the page takes a signature of a passkey or the approver's key over a fresh nonce, once; failed tries are
on record.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest

from aileron.api.approver import PageUnlock, UnlockChallenge
from aileron.audit.log import Audit
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.passkeys import MAX_CHALLENGES, Passkeys
from aileron.ledger import EventFilter
from aileron.ledger.sqlite import Ledger
from aileron.model.consent import Consents, Passkey, PasskeyConsent
from aileron.model.decision import PageStatement, moment
from aileron.model.failure import AileronError, FailureClass
from aileron.model.passkey import base64url
from aileron.model.secret import Secret
from aileron.vault import Vault
from tests.support.answers import as_json
from tests.support.approver import Approver
from tests.support.authenticator import ORIGIN, Authenticator, Told, cbor
from tests.support.refusals import refusal
from tests.support.shaped import shaped

pytestmark = pytest.mark.anyio

PERSON = Approver()
PHONE, STRANGER = Authenticator(), Authenticator()


class World:
    """A vault with an approver and a passkey on their phone, and the daemon's side of the page."""

    def __init__(self, vault: Vault, ledger: Ledger) -> None:
        self.vault = vault
        self.ledger = ledger
        self.audit = Audit(ledger)
        self.passkeys = Passkeys(
            ApproverState(vault, on_record=False),
            audit=self.audit,
            vault=vault,
            consents=cast(ConsentService, None),  # no consent is asked for here
            origin=ORIGIN,
            changing=anyio.Lock(),
        )

    async def opened(self, asked: PageUnlock) -> str | None:
        """Return the id of the key that unlocked the page, or None if it stays locked."""
        with contextlib.suppress(AileronError):
            return await self.passkeys.check_unlocked(asked, "page")
        return None

    def refusals(self) -> list[Any]:
        """Return the recorded tries that did not count."""
        rows = self.ledger.read_now(
            lambda look: look.events(EventFilter(type="approval.refused", oldest_first=True, limit=100))
        )
        return [(row.facts["decision"], row.facts["reason"], row.facts.get("approval")) for row in rows]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Prepare such a world with the vault open."""
    vault = Vault(tmp_path / "vault.json")
    vault.create(Secret(b"correct horse battery"))
    subject = PasskeyConsent(
        name="phone",
        credential_id=base64url(PHONE.credential_id),
        public_key=cbor(PHONE.cose).hex(),
        rp_id="localhost",
        origin=ORIGIN,
        key_id=PHONE.key_id,
        algorithm="ES256",
        synced="no",
        aaguid=None,
        transports=("internal",),
    )
    passkey = Passkey(id=PHONE.key_id, approval="act-1", subject=subject, at="…", reason=None, signature="…")
    consents = Consents(key_id=PERSON.key_id, public_key=PERSON.public.hex(), created_ms=1_750_000_000_000)
    vault.set_approver(consents.with_passkey(passkey))
    with Ledger.open(tmp_path / "ledger.db", tmp_path, "0.1.0") as ledger:
        yield World(vault, ledger)


def answered(told: UnlockChallenge, lie: Told = Told()) -> PageUnlock:  # noqa: B008 - frozen
    """Return the phone's answer to a challenge of the page."""
    chosen = PHONE.chosen(as_json(told)["statements"])
    signature = PHONE.answer(chosen["publicKey"]["challenge"], lie).spelled()
    return PageUnlock(nonce=told.nonce, at=told.at, key_id=chosen["key_id"], signature=signature)


async def test_a_passkeys_answer_unlocks_the_page_only_once(world: World) -> None:
    """An answer that is sent again is refused."""
    asked = answered(world.passkeys.unlocking())

    assert await world.opened(asked) == PHONE.key_id
    assert await world.opened(asked) is None
    assert world.refusals() == [("unlock", "signature", None)]


async def test_a_signature_of_the_approvers_key_unlocks_the_page(world: World) -> None:
    """The key signs at a terminal, for a browser without a passkey."""
    told = world.passkeys.unlocking()
    statement = PageStatement(nonce=told.nonce, at=told.at, key_id=PERSON.key_id)

    assert (
        await world.opened(
            PageUnlock(nonce=told.nonce, at=told.at, key_id=PERSON.key_id, signature=PERSON.sign(statement))
        )
        == PERSON.key_id
    )


async def test_an_invalid_passkey_answer_does_not_unlock_the_page(world: World) -> None:
    """The answer is unverified, too old, by an unknown key, or for another page or nonce; each is on record."""
    tell = world.passkeys.unlocking
    old, told = moment(time.time() - 400), tell()
    statement = PageStatement(nonce=told.nonce, at=old, key_id=PHONE.key_id)
    strange = tell()
    tries = [
        (answered(tell(), Told(origin="http://localhost:1")), "signature"),
        (answered(tell(), Told(is_verified=False)), "signature"),
        (answered(msgspec.structs.replace(tell(), nonce="00" * 16)), "signature"),
        (answered(msgspec.structs.replace(tell(), nonce=tell().nonce)), "signature"),
        (PageUnlock(nonce=told.nonce, at=old, key_id=PHONE.key_id, signature=PHONE.sign(statement)), "time"),
        (
            PageUnlock(
                nonce=strange.nonce,
                at=strange.at,
                key_id=STRANGER.key_id,
                signature=STRANGER.sign(PageStatement(nonce=strange.nonce, at=strange.at, key_id=STRANGER.key_id)),
            ),
            "key",
        ),
    ]

    assert [await world.opened(asked) for asked, _ in tries] == [None] * len(tries)
    assert world.refusals() == [("unlock", why, None) for _, why in tries]
    assert await world.opened(answered(tell())) == PHONE.key_id  # the control


async def test_the_number_of_open_page_challenges_is_bounded(world: World) -> None:
    """The oldest is dropped first, whoever requested it."""
    first = world.passkeys.unlocking()
    rest = [world.passkeys.unlocking() for _ in range(MAX_CHALLENGES)]

    assert await world.opened(answered(first)) is None
    assert await world.opened(answered(rest[0])) == PHONE.key_id


async def test_the_number_of_open_enrollment_challenges_is_bounded(world: World) -> None:
    """The oldest is dropped first; a page's nonce is no challenge for an enrollment."""
    options = [world.passkeys.registration(f"n{number}") for number in range(MAX_CHALLENGES + 1)]
    assert len({registration.public_key["challenge"] for registration in options}) == len(options)
    assert world.passkeys.made.take(shaped(options[0].public_key["challenge"])) is None
    assert world.passkeys.made.take(shaped(options[-1].public_key["challenge"])) == f"n{MAX_CHALLENGES}"
    assert world.passkeys.made.take(world.passkeys.unlocking().nonce) is None


async def test_a_page_challenge_expires_after_five_minutes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer just in time counts, a later one does not."""
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    late, in_time = world.passkeys.unlocking(), world.passkeys.unlocking()
    monkeypatch.setattr(time, "monotonic", lambda: now + 299)
    assert await world.opened(answered(in_time)) == PHONE.key_id
    monkeypatch.setattr(time, "monotonic", lambda: now + 301)
    assert await world.opened(answered(late)) is None


async def test_a_locked_vault_keeps_the_page_locked(world: World) -> None:
    """The vault holds the approver's key and passkeys."""
    asked = answered(world.passkeys.unlocking())
    world.vault.lock()
    assert (await refusal(world.passkeys.check_unlocked(asked, "page"))).failure_class is FailureClass.VAULT_LOCKED
    assert world.refusals() == [("unlock", "locked", None)]
