"""The vault as the daemon uses it: created, unlocked, filled, bound, lent from, locked."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from aileron.egress.inject import inject
from aileron.egress.outgoing import Outgoing
from aileron.egress.url import parse_url
from aileron.model.credential import Candidate
from aileron.model.failure import FailureClass
from aileron.model.names import BindingName
from aileron.model.secret import Secret
from aileron.vault import Binding, SecretInfo, Vault, VaultLender
from tests.vault.conftest import API_KEY, BASIC, CANARY, CONNECTOR, OTHER, PASSPHRASE, Clock, refused, use


def lent(vault: Vault, binding: Binding, kind: str | None = None) -> bytes:
    """Return the value that a loan carries."""
    with VaultLender(vault).lend(use(binding, kind)) as loan:
        return loan.secret.reveal()


def test_a_vault_is_created_empty_and_open_and_survives_a_restart(absent: Vault, tmp_path: Path) -> None:
    """The next process finds secrets and bindings by name, and needs the passphrase only for the values."""
    nothing = {
        "exists": False,
        "locked": True,
        "secrets": 0,
        "bindings": 0,
        "format": None,
        "generation": None,
        "recovery_codes": 0,
        "keyring": None,
    }
    assert (msgspec.structs.asdict(absent.status()), absent.secrets(), absent.bindings()) == (nothing, (), ())
    absent.create(Secret(PASSPHRASE))
    assert (absent.exists, absent.is_locked, absent.status().generation) == (True, False, 1)
    absent.set_secret("mail", Secret(CANARY))
    absent.bind(BASIC)

    again = Vault(tmp_path / "home" / ".aileron" / "vault.json")

    assert msgspec.structs.asdict(again.status()) == {
        "exists": True,
        "locked": True,
        "secrets": 1,
        "bindings": 1,
        "format": 1,
        "generation": 3,
        "recovery_codes": 0,
        "keyring": None,
    }
    assert again.bindings() == (BASIC,)
    again.unlock(Secret(PASSPHRASE))
    assert lent(again, BASIC) == CANARY
    again.lock()


def test_a_vault_is_not_created_twice(vault: Vault, path: Path) -> None:
    """A second `create` is refused, and the file stays unchanged."""
    before = path.read_bytes()
    with refused(FailureClass.INVALID_REQUEST) as refusal:
        Vault(path).create(Secret(PASSPHRASE))
    assert "aileron vault unlock" in refusal.message
    assert path.read_bytes() == before


def test_a_passphrase_outside_the_bounds_is_refused_with_the_reason(absent: Vault) -> None:
    """Seven bytes are too few, and more than a kilobyte is probably a file. No vault is created."""
    for passphrase, words in ((b"seven77", "at least 8"), (b"", "at least 8"), (b"x" * 1025, "at most 1024")):
        with refused(FailureClass.BAD_INPUT) as refusal:
            absent.create(Secret(passphrase))
        assert words in refusal.message
    assert not absent.exists


def test_a_locked_vault_shows_names_but_no_values(locked: Vault) -> None:
    """Names of secrets, bindings and candidates are available. All else fails with the command that unlocks."""
    stored = 1_750_000_000.5
    assert locked.secrets() == (SecretInfo("mail", stored, stored), SecretInfo("tickets", stored, stored))
    assert locked.bindings() == (API_KEY, BASIC)
    assert [candidate.name for candidate in locked.candidates(CONNECTOR, "basic")] == [BASIC.name]
    for attempt in (
        locked.check_unlocked,
        lambda: locked.set_secret("mail", Secret(CANARY)),
        lambda: locked.remove_secret("mail"),
        lambda: locked.bind(BASIC),
        lambda: locked.revoke(BASIC.name),
        lambda: lent(locked, BASIC),
    ):
        with refused(FailureClass.VAULT_LOCKED) as refusal:
            attempt()
        assert "aileron vault unlock" in refusal.message


def test_a_missing_vault_is_reported_with_the_command_that_creates_it(absent: Vault) -> None:
    """The failure class is that of a locked vault, with another command."""
    for attempt in (absent.check_unlocked, lambda: absent.unlock(Secret(PASSPHRASE)), lambda: lent(absent, BASIC)):
        with refused(FailureClass.VAULT_LOCKED) as refusal:
            attempt()
        assert "aileron vault init" in refusal.message
    assert absent.candidates(CONNECTOR, "basic") == []


def test_a_wrong_passphrase_neither_opens_nor_locks_the_vault(locked: Vault) -> None:
    """Near misses and absurd lengths are unauthorized; the right one works before and after."""
    wrong = [PASSPHRASE[:-1], PASSPHRASE + b"\0", b"", b"x" * (1 << 20)]
    for passphrase in wrong:
        with refused(FailureClass.UNAUTHORIZED) as refusal:
            locked.unlock(Secret(passphrase))
        assert "wrong passphrase" in refusal.message
        assert locked.is_locked
    locked.unlock(Secret(PASSPHRASE))
    with refused(FailureClass.UNAUTHORIZED):
        locked.unlock(Secret(wrong[0]))
    assert lent(locked, BASIC) == CANARY


def test_nothing_is_lent_after_locking_but_an_existing_loan_stays(vault: Vault) -> None:
    """A response in progress keeps its secret to the end; the next request gets none."""
    with VaultLender(vault).lend(use(BASIC)) as loan:
        vault.lock()
        assert loan.secret.reveal() == CANARY
    vault.lock()  # locking twice does no harm
    with refused(FailureClass.VAULT_LOCKED):
        lent(vault, BASIC)


REQUEST = Outgoing("GET", parse_url("https://api.example.com/"))


def test_a_loan_has_the_form_that_egress_sends(standing: Vault) -> None:
    """A loan has user name and secret for `basic`, and the secret alone for a key."""
    with VaultLender(standing).lend(use(BASIC)) as loan:
        injection = inject(use(BASIC), loan, REQUEST)  # type: ignore[arg-type]
    pair = b"me@example.test:" + CANARY
    assert injection.request.fields == (("Authorization", "Basic " + base64.b64encode(pair).decode()),)
    with VaultLender(standing).lend(use(API_KEY)) as loan:
        injection = inject(use(API_KEY), loan, REQUEST)  # type: ignore[arg-type]
    assert injection.request.fields == (("Authorization", "Bearer " + OTHER.decode()),)


def test_the_vault_s_idle_time_is_counted_from_the_last_use(vault: Vault) -> None:
    """A loan, a change, revealing a secret, an unlock and a rotation reset it; reading does not."""
    for used in (
        lambda: lent(vault, BASIC),
        lambda: vault.set_secret("mail", Secret(CANARY)),
        lambda: vault.reveal_secret("mail"),
        lambda: vault.unlock(Secret(PASSPHRASE)),
        lambda: vault.rotate(Secret(PASSPHRASE), Secret(PASSPHRASE)),
    ):
        vault._used_at -= 1000
        vault.status()
        vault.candidates(CONNECTOR, "basic")
        vault.check_passphrase(Secret(PASSPHRASE))
        assert vault.idle_s >= 1000
        used()
        assert vault.idle_s < 1000


def test_a_revoked_binding_is_not_lent(vault: Vault) -> None:
    """A plan frozen before the revocation gets binding_required; its secret is still stored."""
    assert lent(vault, BASIC) == CANARY
    vault.revoke(BASIC.name)
    with refused(FailureClass.BINDING_REQUIRED) as refusal:
        lent(vault, BASIC)
    assert "aileron binding setup" in refusal.message
    assert [info.name for info in vault.secrets()] == ["mail", "tickets"]
    with refused(FailureClass.NOT_FOUND):
        vault.revoke(BASIC.name)


def test_a_binding_that_was_given_to_another_connector_since_the_plan_is_not_lent(vault: Vault) -> None:
    """A plan that waited for approval still names its own connector, so it does not get the new one's secret."""
    waiting = use(BASIC)
    vault.revoke(BASIC.name)
    elsewhere = Binding(BASIC.name, "github://somebody/else", "basic", BASIC.username, BASIC.secret, BASIC.created_at)
    vault.bind(elsewhere)

    with refused(FailureClass.BINDING_FAILED) as refusal, VaultLender(vault).lend(waiting):
        pass
    assert "github://somebody/else" in refusal.message
    assert lent(vault, elsewhere) == CANARY


def test_a_credential_of_an_undeclared_kind_is_not_lent(standing: Vault) -> None:
    """A connector that declares an api_key does not get a credential bound as a password."""
    assert lent(standing, BASIC, "basic") == CANARY
    with refused(FailureClass.BINDING_FAILED):
        lent(standing, BASIC, "api_key")


def test_the_daemon_borrows_a_secret_without_a_binding_by_name(vault: Vault) -> None:
    """The secret has no binding. Another name is refused, and so is any loan after locking, but an existing loan stays."""
    vault.set_secret("webhook-key", Secret(OTHER))
    with VaultLender(vault).lend_secret("webhook-key") as secret:
        vault.lock()
        assert secret.reveal() == OTHER
    with refused(FailureClass.VAULT_LOCKED), VaultLender(vault).lend_secret("webhook-key"):
        pass
    vault.unlock(Secret(PASSPHRASE))
    with refused(FailureClass.NOT_FOUND), VaultLender(vault).lend_secret("webhook-keys"):
        pass


def test_a_secret_is_replaced_under_its_name(vault: Vault, path: Path) -> None:
    """The next loan has the new value; the creation date stays, even if the clock was set back."""
    before = vault.secrets()[0]
    vault.set_secret("mail", Secret(OTHER))
    assert lent(vault, BASIC) == OTHER
    later = Vault(path, clock=lambda: 1.0)
    later.unlock(Secret(PASSPHRASE))
    later.set_secret("mail", Secret(CANARY))
    assert later.secrets()[0] == before
    later.lock()


def test_replacing_a_secret_changes_its_update_time_but_not_its_creation_time(path: Path) -> None:
    """Storing a new value changes `updated_at` only."""
    clock = Clock()
    vault = Vault(path, clock=clock)
    vault.unlock(Secret(PASSPHRASE))
    clock.now += 60.25
    vault.set_secret("mail", Secret(OTHER))
    assert vault.secrets()[0] == SecretInfo("mail", 1_750_000_000.5, 1_750_000_060.75)
    vault.lock()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"7 bytes", "7 bytes; expected 8 to"),
        (b"", "0 bytes"),
        (b"x" * (64 * 1024 + 1), "65537 bytes"),
        (b"password\n", "printf %s"),
        (b"password\r\nX-Injected: 1", "a line end"),
        (b"pass\rword", "a carriage return"),
        (b"pass\0word", "a NUL byte"),
    ],
)
def test_a_value_that_cannot_be_lent_safely_is_not_stored(standing: Vault, value: bytes, words: str) -> None:
    """The value is too short to scrub, too long, or able to end a header: it is refused with the reason."""
    with refused(FailureClass.BAD_INPUT) as refusal:
        standing.set_secret("mail", Secret(value))
    assert words in refusal.message


def test_the_shortest_and_the_longest_value_are_stored(vault: Vault) -> None:
    """All byte values but three are allowed."""
    for value in (b"8 bytes!", bytes(set(range(256)) - {0, 10, 13}), b"x" * (64 * 1024)):
        vault.set_secret("mail", Secret(value))
        assert lent(vault, BASIC) == value


@pytest.mark.parametrize("name", ["", "Mail", "-mail", "a/b", "a b", "x" * 65, "m\u0430il", "a\n", "../x"])
def test_an_invalid_secret_name_is_refused(standing: Vault, name: str) -> None:
    """Storing fails as bad_input with the grammar; removing a secret of such a name fails too."""
    with refused(FailureClass.BAD_INPUT) as refusal:
        standing.set_secret(name, Secret(OTHER))
    assert "lower-case letters" in refusal.message
    assert refusal.message.isprintable()
    with refused(FailureClass.NOT_FOUND) as refusal:
        standing.remove_secret(name)
    assert refusal.message.isprintable()


def test_every_valid_form_of_a_secret_name_is_accepted(vault: Vault) -> None:
    """The names have every kind of allowed character, and the greatest length."""
    for name in ("0.mail_box-2", "x" * 64):
        vault.set_secret(name, Secret(OTHER))
        assert name in [info.name for info in vault.secrets()]


def test_a_secret_in_use_is_not_removed(vault: Vault) -> None:
    """The refusal names the binding, which must be removed first."""
    with refused(FailureClass.INVALID_REQUEST) as refusal:
        vault.remove_secret("mail")
    assert "aileron binding revoke basic/mail/home" in refusal.message
    vault.revoke(BASIC.name)
    vault.remove_secret("mail")
    assert [info.name for info in vault.secrets()] == ["tickets"]
    with refused(FailureClass.NOT_FOUND):
        vault.remove_secret("mail")


def test_candidate_bindings_are_those_of_exactly_the_given_connector_and_kind(vault: Vault) -> None:
    """Both identities of the connector are found. A prefix of its name, or another case or kind, finds none."""
    work = msgspec.structs.replace(BASIC, name=BindingName("basic", "mail", "work"), secret="tickets")
    vault.bind(work)
    assert vault.candidates(CONNECTOR, "basic") == [
        Candidate(name=BASIC.name, reach=None, account="me@example.test"),
        Candidate(name=work.name, reach=None, account="me@example.test"),
    ]
    for connector, kind in ((CONNECTOR[:-1], "basic"), (CONNECTOR + "/x", "basic"), (CONNECTOR.upper(), "basic")):
        assert vault.candidates(connector, kind) == []
    assert vault.candidates(CONNECTOR, "api_key") == [Candidate(name=API_KEY.name, reach=None, account=None)]
    assert vault.candidates(CONNECTOR, "oauth2") == []


def test_an_existing_binding_is_replaced_only_on_request(vault: Vault) -> None:
    """Binding again under the same name needs `replace`; then the new secret is lent."""
    other = msgspec.structs.replace(BASIC, secret="tickets")
    with refused(FailureClass.INVALID_REQUEST) as refusal:
        vault.bind(other)
    assert "aileron binding revoke basic/mail/home" in refusal.message
    assert lent(vault, BASIC) == CANARY
    vault.bind(other, replace=True)
    assert lent(vault, BASIC) == OTHER


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"username": None}, "--username"),
        ({"username": ""}, "--username"),
        ({"username": "me:you"}, "colon"),
        ({"username": "me\u202e"}, "U+202E"),
        ({"username": "me\r\nX: 1"}, "U+000D"),
        ({"username": "é" * 161}, "longer than 320"),
        ({"kind": "api_key", "name": BindingName("api_key", "mail", "home")}, "a user name is for kinds basic"),
        ({"kind": "oauth2", "name": BindingName("oauth2", "mail", "home")}, "a user name is for kinds basic"),
        ({"kind": "password", "name": BindingName("password", "mail", "home")}, "not one of"),
        ({"kind": "api_key"}, "named for another kind"),
        ({"name": BindingName("basic", "Mail", "home")}, "KIND/SERVICE/IDENTITY"),
        ({"name": BindingName("basic", "a/b", "c")}, "KIND/SERVICE/IDENTITY"),
        ({"name": BindingName("basic", "mail\u202e", "home")}, "KIND/SERVICE/IDENTITY"),
        ({"connector": "example/mail"}, "no known scheme"),
        ({"connector": "github://example/" + "x" * 1024}, "at most 1024"),
        ({"secret": "Mail"}, "not a secret's name"),
        ({"created_at": float("nan")}, "not a time"),
        ({"created_at": -1.0}, "not a time"),
        ({"created_at": 1e30}, "not a time"),
    ],
)
def test_an_invalid_binding_is_refused(standing: Vault, changes: dict[str, object], words: str) -> None:
    """Each field is made invalid on its own. The message has no character that a terminal would act on."""
    with refused(FailureClass.BAD_INPUT) as refusal:
        standing.bind(msgspec.structs.replace(BASIC, **changes), replace=True)
    assert words in refusal.message
    assert refusal.message.isprintable()


def test_a_binding_needs_a_stored_secret(standing: Vault) -> None:
    """The failure is not_found, with the command that stores a secret."""
    with refused(FailureClass.NOT_FOUND) as refusal:
        standing.bind(msgspec.structs.replace(BASIC, secret="mial"), replace=True)
    assert "aileron secret set" in refusal.message


def test_the_numbers_of_secrets_and_bindings_and_the_file_size_are_bounded(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry too many is refused; an existing entry can still be replaced."""
    monkeypatch.setattr("aileron.vault.opened.MAX_SECRETS", 2)
    monkeypatch.setattr("aileron.vault.opened.MAX_BINDINGS", 2)
    extra = msgspec.structs.replace(BASIC, name=BindingName("basic", "mail", "work"))
    attempt: Callable[[], object]
    for attempt in (lambda: vault.set_secret("third", Secret(OTHER)), lambda: vault.bind(extra)):
        with refused(FailureClass.INVALID_REQUEST) as refusal:
            attempt()
        assert "the vault is full" in refusal.message
    vault.set_secret("mail", Secret(OTHER))
    vault.bind(BASIC, replace=True)
    monkeypatch.setattr("aileron.vault.opened.MAX_FILE_BYTES", 2048)
    with refused(FailureClass.INVALID_REQUEST) as refusal:
        vault.set_secret("mail", Secret(b"x" * 4096))
    assert "larger than 2048" in refusal.message
    assert lent(vault, BASIC) == OTHER


def test_loans_and_bindings_are_immutable(standing: Vault) -> None:
    """Neither can be turned into another one on the way."""
    with VaultLender(standing).lend(use(BASIC)) as loan, pytest.raises(AttributeError):
        loan.username = "mallory"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        BASIC.connector = "github://mallory/x"  # type: ignore[misc]
