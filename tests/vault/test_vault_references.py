"""A secret whose value is elsewhere: its entry in the file, which value is valid, and how long a fetched one is kept."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path

import msgspec
import pytest

from aileron.model.credential import Reach
from aileron.model.failure import FailureClass
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere
from aileron.vault import Vault, VaultLender
from aileron.vault.contents import SecretEntry
from tests.vault import page_reader
from tests.vault.conftest import API_KEY, CANARY, OTHER, PASSPHRASE, refused, use, write

HOST, OTHER_HOST = "tickets.example:443", "other.example:443"
BOUND = msgspec.structs.replace(API_KEY, reach=Reach(hosts=(HOST,), wire="api_key Authorization Bearer {key}"))
PASS = Elsewhere("pass:work/tickets", program="/usr/bin/pass")
SERVER = Elsewhere("vault://vault.example:8200/secret/tickets#key", token="vault-token")
ROTATED = b"the-value-after-it-was-rotated"


@pytest.fixture
def referring(absent: Vault) -> Vault:
    """Return an open vault with one secret in pass, bound for one host."""
    absent.create(Secret(PASSPHRASE))
    absent.set_reference("tickets", PASS, Secret(CANARY))
    absent.bind(BOUND)
    return absent


def fetched(vault: Vault, value: bytes = CANARY) -> None:
    """Hand the vault a fetched value, as the daemon does before a request."""
    vault.keep_fetched(vault.read(lambda opened: opened.secret_entry("tickets")), Secret(value))


def lent(vault: Vault) -> bytes:
    """Return the value that a connector would be lent."""
    with VaultLender(vault).lend(use(BOUND)) as loan:
        return loan.secret.reveal()


def test_a_loan_names_its_secret_and_the_reference_to_a_secret_store_if_it_has_one(referring: Vault) -> None:
    """The daemon needs it to tell a person which secret to replace, and where."""
    with VaultLender(referring).lend(use(BOUND)) as loan:
        assert loan.stored == ("tickets", PASS.reference)
    referring.set_secret("tickets", Secret(OTHER))
    with VaultLender(referring).lend(use(BOUND)) as loan:
        assert loan.stored == ("tickets", None)


def sendable(vault: Vault, host: str = HOST) -> list[bytes]:
    """Return the values that a host's responses are searched for."""
    return [value.secret.reveal() for value in vault.sendables(host).known]


def reopened(vault: Vault) -> Vault:
    """Lock and unlock the vault; return it."""
    vault.lock()
    vault.unlock(Secret(PASSPHRASE))
    return vault


def test_the_vault_file_has_the_reference_to_a_secret_and_a_check_value_but_not_the_secret(referring: Vault) -> None:
    """The pin proves the value to a program that has fetched it. The page's reader finds the entry as documented."""
    found = page_reader.load(referring.path)
    key = page_reader.data_key(found, PASSPHRASE)
    (entry,) = found["secrets"]
    pin = page_reader.secret(found, key, "tickets")
    assert entry["elsewhere"] == {"reference": "pass:work/tickets", "program": "/usr/bin/pass"}
    assert pin[32:] == hmac.digest(pin[:32], CANARY, hashlib.sha256)
    assert CANARY not in referring.path.read_bytes()
    assert referring.secrets()[0].elsewhere == PASS


def test_a_vault_without_references_keeps_its_old_format(path: Path, made: bytes) -> None:
    """The file opens, and none of its entries has the new field."""
    vault = Vault(path)
    vault.unlock(Secret(PASSPHRASE))
    assert b"elsewhere" not in made
    assert {secret.elsewhere for secret in vault.secrets()} == {None}
    assert vault.to_fetch(API_KEY.name, HOST, 0.0) == ()


class EntryOfBefore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry as versions without references read it."""

    name: str
    id: str
    version: int
    created_ms: int
    updated_ms: int
    sealed: dict[str, str]


def test_an_older_version_refuses_a_file_with_references(referring: Vault, made: bytes) -> None:
    """A pin must never be taken for a secret. The older version accepts a file without references."""

    def read(data: bytes) -> list[EntryOfBefore]:
        return msgspec.convert(json.loads(data)["secrets"], list[EntryOfBefore])

    assert [entry.name for entry in read(made)] == ["mail", "tickets"]
    with pytest.raises(msgspec.ValidationError, match="elsewhere"):
        read(referring.path.read_bytes())


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"reference": "pass:other", "program": "/usr/bin/pass"},
        {"reference": "pass:work/tickets", "program": "/home/me/bin/pass"},
        None,
    ],
    ids=["reference", "program", "none"],
)
def test_a_secret_reference_that_was_changed_in_the_vault_file_is_detected(
    referring: Vault, elsewhere: dict[str, str] | None
) -> None:
    """The seal detects it; under a forged seal the pin does, because it is bound to its reference."""
    found = page_reader.load(referring.path)
    key = page_reader.data_key(found, PASSPHRASE)
    (entry,) = found["secrets"]
    entry.pop("elsewhere")
    if elsewhere is not None:
        entry["elsewhere"] = elsewhere
    page_reader.store(referring.path, found)
    referring.lock()
    with refused(FailureClass.HASH_MISMATCH, "its seal does not fit"):
        referring.unlock(Secret(PASSPHRASE))
    page_reader.store(referring.path, page_reader.seal({**found, "generation": found["generation"] + 1}, key))
    referring.unlock(Secret(PASSPHRASE))
    with refused(FailureClass.HASH_MISMATCH, "secret tickets does not open"):
        lent(referring) if elsewhere is None else fetched(referring)


def test_a_fetched_secret_is_lent_and_responses_of_its_host_are_searched_for_it(referring: Vault) -> None:
    """A connector gets it only for the host that it is bound for, and that host's responses are searched for it."""
    assert lent(referring) == CANARY
    assert sendable(referring) == [CANARY]
    assert sendable(referring, OTHER_HOST) == []


def test_a_fetched_secret_is_forgotten_when_the_vault_is_locked(referring: Vault) -> None:
    """The value is not lent until it is fetched again, and responses of its host cannot be searched."""
    reopened(referring)
    assert referring.to_fetch(BOUND.name, HOST, 300.0) == ("tickets",)
    assert referring.to_fetch(None, HOST, 300.0) == ("tickets",)
    assert referring.to_fetch(None, OTHER_HOST, 300.0) == ()
    with refused(FailureClass.VAULT_LOCKED, "was not fetched since the vault was opened"):
        lent(referring)
    with refused(FailureClass.VAULT_LOCKED, "was not fetched since the vault was opened"):
        referring.sendables(HOST)
    assert sendable(referring, OTHER_HOST) == []
    fetched(referring)
    assert (lent(referring), sendable(referring)) == (CANARY, [CANARY])


def test_an_old_fetched_secret_is_fetched_again_for_a_loan_but_not_to_search_responses(referring: Vault) -> None:
    """Responses are searched for a known value, however old it is."""
    assert referring.to_fetch(BOUND.name, HOST, 300.0) == ()
    assert referring.to_fetch(BOUND.name, HOST, -1.0) == ("tickets",)
    assert referring.to_fetch(None, HOST, -1.0) == ()


def test_a_fetched_secret_that_differs_from_the_approved_value_is_not_kept(referring: Vault) -> None:
    """The message says how to approve it, without the value."""
    reopened(referring)
    with refused(
        FailureClass.BINDING_FAILED, "changed since you approved it: aileron binding rebind api_key/tickets/work"
    ) as seen:
        fetched(referring, ROTATED)
    assert ROTATED.decode() not in seen.message
    assert referring.to_fetch(None, HOST, 300.0) == ("tickets",)
    fetched(referring)
    assert lent(referring) == CANARY


def test_responses_are_searched_for_the_former_secret_after_a_new_value_is_approved(referring: Vault) -> None:
    """The search goes on for a day, as for any replaced secret, even after a lock."""
    referring.set_reference("tickets", PASS, Secret(ROTATED))
    assert lent(referring) == ROTATED
    assert sorted(sendable(referring)) == sorted([CANARY, ROTATED])
    reopened(referring)
    fetched(referring, ROTATED)
    assert sorted(sendable(referring)) == sorted([CANARY, ROTATED])


def test_a_stored_secret_and_a_reference_to_a_secret_store_can_replace_each_other(referring: Vault) -> None:
    """Responses are still searched for the former value, in both directions."""
    referring.set_secret("tickets", Secret(OTHER))
    assert referring.secrets()[0].elsewhere is None
    assert (lent(referring), sorted(sendable(referring))) == (OTHER, sorted([CANARY, OTHER]))
    referring.set_reference("tickets", PASS, Secret(ROTATED))
    assert sorted(sendable(referring)) == sorted([CANARY, OTHER, ROTATED])


def test_an_approved_fetched_secret_stays_approved_after_the_passphrase_changes(referring: Vault) -> None:
    """The value is fetched again under the new key, and only the approved one is accepted."""
    referring.rotate(Secret(PASSPHRASE), Secret(b"another passphrase"))
    with refused(FailureClass.BINDING_FAILED, "changed since you approved it"):
        fetched(referring, ROTATED)
    fetched(referring)
    assert (lent(referring), sendable(referring)) == (CANARY, [CANARY])


def test_a_secret_fetched_for_an_entry_that_was_replaced_meanwhile_is_dropped(referring: Vault) -> None:
    """The fetch began before the secret was replaced, so its value belongs to the former entry."""
    late = referring.read(lambda opened: opened.secret_entry("tickets"))
    referring.set_reference("tickets", msgspec.structs.replace(PASS, reference="pass:other"), Secret(ROTATED))
    referring.keep_fetched(late, Secret(CANARY))
    assert lent(referring) == ROTATED


def test_the_token_for_a_secret_store_must_be_stored_and_is_not_removed_while_it_is_needed(referring: Vault) -> None:
    """The token is also among the values that could have been sent to its server."""
    with refused(FailureClass.INVALID_REQUEST, "the token 'vault-token' is no value"):
        referring.set_reference("other", SERVER, Secret(OTHER))
    referring.set_secret("vault-token", Secret(ROTATED))
    referring.set_reference("other", SERVER, Secret(OTHER))
    assert sendable(referring, "vault.example:8200") == [ROTATED]
    with refused(FailureClass.INVALID_REQUEST, "first `aileron secret remove other`"):
        referring.remove_secret("vault-token")
    with refused(FailureClass.INVALID_REQUEST, "is the token of other, and has to be a value"):
        referring.set_reference("vault-token", PASS, Secret(CANARY))
    with refused(FailureClass.INVALID_REQUEST, "the token 'tickets' is no value"):
        referring.set_reference("other", msgspec.structs.replace(SERVER, token="tickets"), Secret(OTHER))
    referring.remove_secret("other")
    referring.remove_secret("vault-token")


@pytest.mark.parametrize(
    ("elsewhere", "value", "why"),
    [
        (PASS, b"short", "has 5 bytes"),
        (PASS, b"x" * (64 << 10) + b"x", "expected 8 to 65536 bytes"),
        (PASS, b"two\nlines of it", "contains a line end"),
        (Elsewhere("pass:work/tickets"), CANARY, "is read by a program if, and only if"),
        (Elsewhere("pass:work/tickets", program="pass"), CANARY, "is not the absolute path"),
        (Elsewhere("pass:work/tickets", program="/usr/bin/pass", token="a"), CANARY, "pass uses no token"),
        (Elsewhere("vault://vault.example:8200/secret/tickets#key"), CANARY, "needs a token"),
        (Elsewhere("nowhere"), CANARY, "is not a reference"),
    ],
    ids=["short", "long", "lines", "no-program", "relative", "pass-token", "no-token", "no-reference"],
)
def test_an_unusable_reference_to_a_secret_store_is_not_stored(
    referring: Vault, elsewhere: Elsewhere, value: bytes, why: str
) -> None:
    """Both the check and the storing refuse it."""
    before = referring.path.read_bytes()
    secret = Secret(value)
    with refused(FailureClass.BAD_INPUT, why):
        referring.check_change(lambda opened, now_ms: opened.with_reference("tickets", elsewhere, secret, now_ms))
    with refused(FailureClass.BAD_INPUT, why):
        referring.set_reference("tickets", elsewhere, secret)
    assert referring.path.read_bytes() == before


def test_a_setting_cannot_use_a_secret_of_a_secret_store(referring: Vault) -> None:
    """The daemon's own secrets are not fetched before use."""
    with (
        refused(FailureClass.BINDING_FAILED, "only bindings can use such a secret"),
        VaultLender(referring).lend_secret("tickets"),
    ):
        pass


def test_a_vault_entry_with_a_reference_is_read_back_unchanged(referring: Vault, tmp_path: Path) -> None:
    """The file is copied to another place and opened there."""
    there = tmp_path / "copy.json"
    write(there, referring.path.read_bytes())
    copy = Vault(there)
    copy.unlock(Secret(PASSPHRASE))
    entry = copy.read(lambda opened: opened.secret_entry("tickets"))
    assert entry == referring.read(lambda opened: opened.secret_entry("tickets"))
    assert isinstance(entry, SecretEntry)
