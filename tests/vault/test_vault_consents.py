"""The approver and their consents under the vault's seal: kept, bounded, and safe from a writer without the passphrase."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.canonical import canonical_json
from aileron.model.consent import (
    Consent,
    ConsentKind,
    Consents,
    Constraint,
    Passkey,
    PasskeyConsent,
    StandingGrant,
    UsedDecision,
)
from aileron.model.decision import key_id_of
from aileron.model.failure import AileronError, FailureClass
from aileron.model.passkey import base64url, passkey_id
from aileron.model.secret import Secret
from aileron.vault import Vault
from aileron.vault.contents import ContentsError, decode, encode
from tests.vault import page_reader
from tests.vault.conftest import CANARY, PASSPHRASE, Clock, refused, verify, write

Json = dict[str, Any]


def approver(letter: str = "a") -> Consents:
    """Return an approver's key without consents."""
    public = letter * 64
    return Consents(key_id=key_id_of(bytes.fromhex(public)), public_key=public, created_ms=1_750_000_000_500)


def consent(name: str, kind: ConsentKind = ConsentKind.ACTION_FILE, digit: str = "1") -> Consent:
    """Return a consent to some bytes."""
    return Consent(kind=kind, name=name, digest="sha256:" + digit * 64, approval="act-1")


def grant(grant_id: str, *values: Any) -> StandingGrant:
    """Return a standing grant with a constraint for each value."""
    constraints = tuple(
        Constraint(argument=f"a{number}", operator="equals", value=value) for number, value in enumerate(values)
    )
    return StandingGrant(
        id=grant_id,
        action="send",
        action_digest="sha256:" + "2" * 64,
        credentials=("basic/mail/home",),
        constraints=constraints,
        uses=3,
        until=1_800_000_000,
    )


def passkey(number: int = 1, name: str = "laptop", **others: Any) -> Passkey:
    """Return a passkey that decides; `others` replace parts of the consent to it."""
    credential, key = bytes([number]) * 32, b"\xa5" * 77
    subject = PasskeyConsent(
        name=name,
        credential_id=base64url(credential),
        public_key=key.hex(),
        rp_id="localhost",
        origin="http://localhost:24100",
        key_id=passkey_id(credential, key),
        algorithm="ES256",
        synced="no",
        aaguid=None,
        transports=("internal",),
    )
    return Passkey(
        id=passkey_id(credential, key),
        approval="act-3",
        subject=msgspec.structs.replace(subject, **others),
        at="2026-11-21T14:00:00.000Z",
        reason=None,
        signature="c2ln",
    )


AGREED = (
    approver()
    .with_consent(consent("send"))
    .with_consent(consent("basic/mail/home", ConsentKind.BINDING))
    .with_grant(grant("act-2", "me@example.test", ["a", "b"], 10, 1.5, True, {"ö": None, "z": []}))
    .with_use("act-2")
    .with_used("act-1", 1_800_000_000, 1_700_000_000)
)


@pytest.fixture
def agreed(vault: Vault) -> Vault:
    """Return the open vault, with an approver who consented to two things and granted one."""
    vault.set_approver(AGREED)
    return vault


# Used decisions


def test_used_decisions_are_kept_until_they_have_expired() -> None:
    """A used decision is dropped after its expiry, with the next addition. Each grant counts its own uses."""
    known = approver().with_used("b", 20, 10).with_used("a", 30, 10).with_used("b", 25, 10)

    assert known.used == (UsedDecision(approval="a", until=30), UsedDecision(approval="b", until=25))
    assert (known.is_used("a"), known.is_used("c")) == (True, False)
    assert [decision.approval for decision in known.with_used("c", 40, 26).used] == ["a", "c"]
    granted = approver().with_grant(grant("act-1")).with_grant(grant("act-2")).with_use("act-2").with_use("act-2")
    assert [standing_grant.used for standing_grant in granted.grants] == [0, 2]


# Kept


def test_the_file_of_a_vault_without_an_approver_keeps_its_old_format(made: bytes, vault: Vault, path: Path) -> None:
    """The part for consents is absent then, and `null` in its place is refused."""
    assert vault.consents() is None
    assert not vault.says_consents
    assert b"consents" not in made
    assert encode(decode(made)) == made
    page_reader.store(path, {**page_reader.load(path), "consents": None})
    with refused(FailureClass.HASH_MISMATCH):
        Vault(path).says_consents  # noqa: B018 - a property that reads the file


def test_consents_survive_a_restart(agreed: Vault, path: Path) -> None:
    """A locked vault says that it has consents; an open one returns the verified values."""
    assert agreed.consents() == AGREED
    fresh = Vault(path)
    assert fresh.says_consents
    with refused(FailureClass.VAULT_LOCKED):
        fresh.consents()
    fresh.unlock(Secret(PASSPHRASE))
    assert fresh.consents() == AGREED
    assert fresh.consents().consent_digest(ConsentKind.ACTION_FILE, "send") == "sha256:" + "1" * 64  # type: ignore[union-attr]
    fresh.lock()
    assert fresh.says_consents


def test_the_file_is_canonical_json_for_any_grant_values(agreed: Vault, path: Path) -> None:
    """The values include floats and keys outside ASCII. A reader written from the page computes the same seal."""
    data = path.read_bytes()
    assert canonical_json(msgspec.json.decode(data)) + b"\n" == data
    vault = page_reader.load(path)
    assert page_reader.seal(vault, page_reader.data_key(vault, PASSPHRASE)) == vault
    assert vault["consents"]["grants"][0]["constraints"][3]["value"] == 1.5


scalars = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8)
values = st.recursive(
    scalars | st.floats(-1e9, 1e9, allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(values, max_size=4))
def test_consents_written_to_a_file_are_read_back(made: bytes, given_values: list[Any]) -> None:
    """Any JSON may be in a grant, and the written bytes are canonical."""
    consents = approver().with_grant(grant("act-3", *given_values))
    contents = msgspec.structs.replace(decode(made), consents=consents)
    data = encode(contents)
    assert decode(data) == contents
    assert encode(decode(data)) == data
    assert canonical_json(msgspec.json.decode(data)) + b"\n" == data


def test_adding_and_removing_a_secret_does_not_change_the_consents(agreed: Vault) -> None:
    """A secret is added and removed; the consents stay."""
    agreed.set_secret("new", Secret(CANARY))
    agreed.remove_secret("new")
    assert agreed.consents() == AGREED
    verify(agreed)


def test_a_change_of_consents_keeps_earlier_changes_and_writes_nothing_if_it_fails(agreed: Vault) -> None:
    """The `edit` function gets the consents of the file. If it raises, nothing is written."""
    agreed.change_consents(lambda consents: consents.with_consent(consent("read", digit="3")))
    agreed.change_consents(lambda consents: consents.without_grant("act-2"))
    consents = agreed.consents()
    assert consents is not None
    assert [consent.name for consent in consents.agreed] == ["read", "send", "basic/mail/home"]
    assert consents.grants == ()
    generation = agreed.status().generation

    def raises(_: Consents) -> Consents:
        raise AileronError(FailureClass.ALREADY_DECIDED, "no")

    with refused(FailureClass.ALREADY_DECIDED):
        agreed.change_consents(raises)
    assert agreed.status().generation == generation


def test_concurrent_changes_of_consents_are_all_applied(agreed: Vault) -> None:
    """The changes happen one after the other, each based on the last."""
    names = [f"action{number:02}" for number in range(16)]
    threads = [
        threading.Thread(
            target=agreed.change_consents, args=(lambda all_, name=name: all_.with_consent(consent(name)),)
        )
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    consents = agreed.consents()
    assert consents is not None
    assert {consent.name for consent in consents.agreed} == {*names, "send", "basic/mail/home"}


def test_passkeys_are_stored_and_a_removed_passkey_leaves_no_trace_in_the_file(agreed: Vault, path: Path) -> None:
    """They are sealed with the other consents; a removed passkey leaves no trace in the file."""
    without = page_reader.load(path)["consents"]
    assert "passkeys" not in without

    agreed.change_consents(lambda now: now.with_passkey(passkey(2, "phone")).with_passkey(passkey(1)))

    assert [credential.subject.name for credential in _again(path).passkeys] == sorted(
        ("phone", "laptop"), key=lambda name: passkey(2 if name == "phone" else 1).id
    )
    agreed.change_consents(lambda now: now.without_passkey(passkey(1).id).without_passkey(passkey(2).id))
    assert page_reader.load(path)["consents"] == without


def _again(path: Path) -> Consents:
    """Return the consents that another reader of the file finds."""
    vault = Vault(path)
    vault.unlock(Secret(PASSPHRASE))
    found = vault.consents()
    assert found is not None
    return found


# Refused


def test_a_vault_without_an_approver_accepts_no_consents(vault: Vault) -> None:
    """The message says how to create an approver; a locked vault is reported first."""
    with refused(FailureClass.NOT_FOUND) as refusal:
        vault.change_consents(lambda consents: consents)
    assert "aileron approver init" in refusal.message
    vault.lock()
    attempt: Callable[[], object]
    for attempt in (lambda: vault.change_consents(lambda consents: consents), lambda: vault.set_approver(AGREED)):
        with refused(FailureClass.VAULT_LOCKED):
            attempt()


def test_a_change_of_consents_cannot_change_the_approver(agreed: Vault) -> None:
    """A change that brings another key is a bug: it raises ValueError, and nothing is written."""
    with pytest.raises(ValueError, match="with_approver"):
        agreed.change_consents(lambda consents: msgspec.structs.replace(consents, **_key_of(approver("b"))))
    assert agreed.consents() == AGREED
    agreed.set_approver(approver("b"))
    assert agreed.consents() == approver("b")


def _key_of(consents: Consents) -> Json:
    return {"public_key": consents.public_key, "key_id": consents.key_id}


TOO_MUCH: dict[str, Consents] = {
    "not 64 hex digits": msgspec.structs.replace(approver(), public_key="A" * 64),
    "another id": msgspec.structs.replace(approver(), key_id="ed25519:" + "0" * 32),
    "no date": msgspec.structs.replace(approver(), created_ms=-1),
    "4097 consents": msgspec.structs.replace(
        approver(), agreed=tuple(consent(f"a{number:04}") for number in range(4097))
    ),
    "257 grants": msgspec.structs.replace(approver(), grants=tuple(grant(f"act-{number:04}") for number in range(257))),
    "consents are not in order": msgspec.structs.replace(approver(), agreed=(consent("b"), consent("a"))),
    "consents are not in order of kind": msgspec.structs.replace(approver(), agreed=(consent("a"), consent("a"))),
    "4097 used decisions": msgspec.structs.replace(
        approver(), used=tuple(UsedDecision(approval=f"act-{number:04}", until=1) for number in range(4097))
    ),
    "used decisions are not in order": msgspec.structs.replace(
        approver(), used=(UsedDecision(approval="b", until=1), UsedDecision(approval="a", until=1))
    ),
    "end of a used decision": approver().with_used("act-1", -1, -2),
    "what a used decision was about": approver().with_used("", 1, 0),
    "of 3 uses was used 4 times": approver().with_grant(msgspec.structs.replace(grant("a"), uses=3, used=4)),
    "grants are not in order": msgspec.structs.replace(approver(), grants=(grant("b"), grant("a"))),
    "the name of a consent has 0": approver().with_consent(consent("")),
    "the name of a consent has 1025": approver().with_consent(consent("a" * 1025)),
    "cannot be seen": approver().with_consent(consent("send\u202e")),
    "the digest of a consent": approver().with_consent(consent("a", digit="G")),
    "0 uses": approver().with_grant(msgspec.structs.replace(grant("a"), uses=0)),
    "end of a grant": approver().with_grant(msgspec.structs.replace(grant("a"), until=10**13)),
    "more than 65536": approver().with_grant(grant("a", "x" * 65536)),
    "17 passkeys": msgspec.structs.replace(
        approver(),
        passkeys=tuple(sorted((passkey(number) for number in range(17)), key=lambda credential: credential.id)),
    ),
    "passkeys are not in order": msgspec.structs.replace(approver(), passkeys=(passkey(), passkey())),
    "what a passkey is called by its device": approver().with_passkey(passkey(credential_id="AA==")),
    "a passkey has another id": approver().with_passkey(passkey(credential_id="AAAA")),
    "passkey has another id": approver().with_passkey(passkey(public_key="a6" * 77)),
    "the key of a passkey": approver().with_passkey(passkey(public_key="A5")),
    "the page of a passkey": approver().with_passkey(passkey(origin="https://example.com")),
    "page of a passkey is none": approver().with_passkey(passkey(rp_id="example.com")),
    "the algorithm of a passkey": approver().with_passkey(passkey(algorithm="none")),
    "reached in more ways": approver().with_passkey(passkey(transports=("usb",) * 9)),
    "what is known of a passkey has 0": approver().with_passkey(passkey(name="")),
    "what is known of a passkey has a character": approver().with_passkey(passkey(transports=("u\nsb",))),
    "the reason of a passkey": approver().with_passkey(msgspec.structs.replace(passkey(), reason="x" * 4001)),
    "digest of a grant": approver().with_grant(msgspec.structs.replace(grant("a"), action_digest="sha256:0")),
}
UNKEPT: dict[str, Any] = {"a number past 2**53": 2**53, "a float that large": 1e16, "not a number": float("nan")}


@pytest.mark.parametrize("words", TOO_MUCH)
def test_invalid_consents_are_neither_written_nor_read(vault: Vault, path: Path, words: str) -> None:
    """Each rule is checked on its own, by its reason, for writing and for reading."""
    before = path.read_bytes()
    with refused(FailureClass.BAD_INPUT) as refusal:
        vault.set_approver(TOO_MUCH[words])
    assert words in refusal.message
    assert path.read_bytes() == before
    said = msgspec.to_builtins(TOO_MUCH[words])
    if not said["passkeys"]:
        del said["passkeys"]
    page_reader.store(path, {**page_reader.load(path), "consents": said})
    with refused(FailureClass.HASH_MISMATCH) as refusal:
        Vault(path).bindings()
    assert words in refusal.message
    assert refusal.message.isprintable()


@pytest.mark.parametrize("what", UNKEPT)
def test_a_consent_value_that_could_not_be_read_back_is_not_written(vault: Vault, path: Path, what: str) -> None:
    """The value has no JSON form, or is parsed back as another value: the vault would be lost with it."""
    before = path.read_bytes()
    with refused(FailureClass.BAD_INPUT):
        vault.set_approver(approver().with_grant(grant("a", UNKEPT[what])))
    assert path.read_bytes() == before


def test_the_largest_allowed_consents_are_kept(vault: Vault, path: Path) -> None:
    """The maximum of each bound is accepted."""
    most = msgspec.structs.replace(
        approver(),
        agreed=tuple(consent(f"a{number:04}") for number in range(4096)),
        grants=tuple(grant(f"act-{number:04}") for number in range(256)),
    )
    vault.set_approver(most)
    fresh = Vault(path)
    fresh.unlock(Secret(PASSPHRASE))
    assert fresh.consents() == most
    fresh.lock()


def test_consents_that_are_not_in_canonical_json_are_refused(agreed: Vault, path: Path) -> None:
    """A file must not have a byte that could be changed unnoticed."""
    text = path.read_text(encoding="utf-8")
    decode(text.encode())
    for before, after in (
        ('"value":1.5', '"value":1.50'),
        ('"value":10', '"value":10.0'),
        ('"value":true', '"value":true,"note":1'),
        ('"kind":"binding"', '"kind":"a_shell"'),
        ('"operator":"equals"', '"operator":"is"'),
        ('"uses":3', '"uses":3.0'),
    ):
        assert before in text
        with pytest.raises(ContentsError):
            decode(text.replace(before, after, 1).encode())


# Attacked


def _exchanged(consents: Json) -> None:
    consents.update(_key_of(approver("b")))


def _added(consents: Json) -> None:
    consents["agreed"].append({**consents["agreed"][0], "kind": "connector", "name": "github://mallory/x@1.0.0"})


def _widened(consents: Json) -> None:
    consents["grants"][0]["constraints"] = []


CHANGES: dict[str, Callable[[Json], None]] = {
    "the key exchanged": _exchanged,
    "a consent added": _added,
    "a consent taken away": lambda consents: consents["agreed"].pop(),
    "another digest agreed to": lambda consents: consents["agreed"][0].update(digest="sha256:" + "9" * 64),
    "a grant taken away": lambda consents: consents["grants"].clear(),
    "a grant without its constraints": _widened,
    "a used decision forgotten": lambda consents: consents["used"].clear(),
    "uses taken back": lambda consents: consents["grants"][0].update(used=0),
    "more uses": lambda consents: consents["grants"][0].update(uses=1000),
    "a later end": lambda consents: consents["grants"][0].update(until=1_900_000_000),
}


@pytest.mark.parametrize("what", [*CHANGES, "the part removed"])
def test_a_change_of_consents_without_the_passphrase_is_detected(agreed: Vault, path: Path, what: str) -> None:
    """A locked vault shows the forged file, which is well formed, but does not unlock it or overwrite it."""
    good = path.read_bytes()
    vault = page_reader.load(path)
    if what == "the part removed":
        del vault["consents"]
    else:
        CHANGES[what](vault["consents"])
    page_reader.store(path, vault)
    fresh = Vault(path)
    assert fresh.says_consents is (what != "the part removed")
    with refused(FailureClass.HASH_MISMATCH) as refusal:
        fresh.unlock(Secret(PASSPHRASE))
    assert "seal" in refusal.message
    with refused(FailureClass.HASH_MISMATCH):
        agreed.change_consents(lambda consents: consents)
    assert agreed.consents() == AGREED  # verified memory
    write(path, good)
    verify(agreed)


def test_an_older_vault_file_without_the_approver_is_refused(agreed: Vault, path: Path, made: bytes) -> None:
    """A copy from before the approver is restored by hand: a vault that has seen the newer file refuses it."""
    newer = path.read_bytes()
    write(path, made)
    with refused(FailureClass.HASH_MISMATCH):
        agreed.change_consents(lambda consents: consents)
    said_open = agreed.says_consents
    agreed.lock()
    # once it is locked, that is the file's word, which counts for nothing until it is unlocked
    assert (said_open, agreed.says_consents) == (True, False)
    with refused(FailureClass.HASH_MISMATCH) as refusal:
        agreed.unlock(Secret(PASSPHRASE))
    assert "older copy" in refusal.message
    write(path, newer)


def test_a_locked_vault_with_a_damaged_file_does_not_say_whether_it_has_an_approver(agreed: Vault, path: Path) -> None:
    """A locked vault reports the damage instead of a yes or no. If the file is missing, there is no approver."""
    agreed.lock()
    data = path.read_bytes()
    write(path, data[:-2])
    with refused(FailureClass.HASH_MISMATCH):
        agreed.says_consents  # noqa: B018 - a property that reads the file
    path.unlink()
    assert not agreed.says_consents


# The passphrase, checked


def test_checking_the_passphrase_changes_neither_the_file_nor_the_open_vault(vault: Vault, path: Path) -> None:
    """This holds for a right and a wrong one: the vault stays open with the same key, and the file is not written."""
    before = path.read_bytes()
    vault.check_passphrase(Secret(PASSPHRASE))
    with refused(FailureClass.UNAUTHORIZED):
        vault.check_passphrase(Secret(b"incorrect horse"))
    with refused(FailureClass.UNAUTHORIZED):
        vault.check_passphrase(Secret(b"x" * 5000))
    assert not vault.is_locked
    assert path.read_bytes() == before
    vault.set_secret("mail", Secret(CANARY))
    verify(vault)


def test_a_locked_vault_refuses_to_check_a_passphrase(locked: Vault, absent: Vault) -> None:
    """The file could be replaced after the check. An open vault compares with the key in memory."""
    for vault in (locked, absent):
        with refused(FailureClass.VAULT_LOCKED):
            vault.check_passphrase(Secret(PASSPHRASE))
        assert vault.is_locked


def test_the_passphrase_of_a_planted_vault_file_is_not_accepted_by_the_open_vault(vault: Vault, path: Path) -> None:
    """An attacker's vault replaces the file: their passphrase opens it, but not as the vault that was open."""
    good = path.read_bytes()
    path.unlink()
    planted = Vault(path, clock=Clock())
    planted.create(Secret(b"mallory's own"))
    planted.check_passphrase(Secret(b"mallory's own"))
    planted.lock()
    with refused(FailureClass.HASH_MISMATCH):
        vault.check_passphrase(Secret(b"mallory's own"))
    write(path, good)
    vault.check_passphrase(Secret(PASSPHRASE))
    path.unlink()
    with refused(FailureClass.HASH_MISMATCH) as refusal:
        vault.check_passphrase(Secret(PASSPHRASE))
    assert "it is gone" in refusal.message
    write(path, good)
