"""Bindings that log in: their required parts, the refusals and their advice, the stored form, and what is lent."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.credential import Candidate, Client, OAuthGrant, Reach, TokenSet
from aileron.model.failure import FailureClass
from aileron.model.host_key import check_host_key, fingerprint
from aileron.model.login import BoundLogin, LoginDetails, LoginTarget
from aileron.model.manifest import CredentialNeed
from aileron.model.names import BindingName
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.vault import Binding, Vault, VaultLender
from tests.vault.conftest import BASIC, CANARY, CONNECTOR, PASSPHRASE, refused
from tests.vault.conftest import use as basic_use

MAIL = Reach(hosts=("imap.example.test:993",), wire="login imap+tls://imap.example.test:993")
MOVED = Reach(hosts=("mail.example.test:993",), wire="login imap+tls://mail.example.test:993")
DATABASE = Reach(hosts=("db.example.test:5432",), wire="login postgres+tls://db.example.test:5432")
PLAIN = Reach(hosts=("localhost:5432",), wire="login postgres+plain://localhost:5432")
REDIS = Reach(hosts=("redis.example.test:6379",), wire="login redis+tls://redis.example.test:6379")
GIT = Reach(
    hosts=("git.example.test:22",),
    wire="login ssh+tls://git.example.test:22 [\"git-upload-pack 'team/*.git'\"]",
)
LOGIN = Binding(
    BindingName.parse("login/mail/me"), CONNECTOR, "login", "me:too@example.test", "mail", 1_700_000_002.0, MAIL
)
TOKEN = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + b"k" * 32).decode()
HOST_KEY = f"ssh-ed25519 {TOKEN}"


def encrypted_key_of(kind: str) -> bytes:
    """Return the key with a passphrase. The library has no bcrypt, so an OpenSSH key only claims to be encrypted."""
    if kind != "OpenSSH":
        return key_of(kind, serialization.BestAvailableEncryption(b"passphrase"))
    lines = key_of(kind).splitlines()
    blob = base64.b64decode(b"".join(lines[1:-1])).replace(
        b"\0\0\0\x04none" * 2, b"\0\0\0\x0aaes256-ctr\0\0\0\x06bcrypt"
    )
    return b"\n".join((lines[0], base64.b64encode(blob), lines[-1], b""))


def key_of(kind: str, encryption: serialization.KeySerializationEncryption | None = None) -> bytes:
    """Return a private key as a tool writes it."""
    made: Any = ed25519.Ed25519PrivateKey.generate() if kind != "PEM" else ec.generate_private_key(ec.SECP256R1())
    format_ = {
        "OpenSSH": serialization.PrivateFormat.OpenSSH,
        "PKCS8": serialization.PrivateFormat.PKCS8,
        "PEM": serialization.PrivateFormat.TraditionalOpenSSL,
    }[kind]
    return bytes(made.private_bytes(serialization.Encoding.PEM, format_, encryption or serialization.NoEncryption()))


def login(reach: Reach, details: LoginDetails | None = None, secret: str = "mail") -> Binding:
    """Return a login binding for this reach."""
    return msgspec.structs.replace(LOGIN, reach=reach, details=details, secret=secret)


def use(binding: Binding, read_only: bool = False) -> CredentialUse:
    """Return a plan's use of the binding."""
    assert binding.reach is not None
    need = CredentialNeed(kind="login", scope="all", logins=binding.reach.logins)
    if read_only:
        return CredentialUse(connector=CONNECTOR, binding=binding.name, need=need, login="read_only")
    return CredentialUse(connector=CONNECTOR, binding=binding.name, need=need)


def test_a_login_is_bound_stored_and_lent_with_its_details(vault: Vault, path: Path) -> None:
    """The file contains only the given details; a vault without logins has no such part."""
    assert "details" not in path.read_text()
    reader = login(DATABASE, LoginDetails(database="shop", read_only=True))
    vault.bind(reader)

    again = Vault(path)
    again.unlock(Secret(PASSPHRASE))

    assert again.binding(reader.name) == reader
    stored = next(
        binding for binding in json.loads(path.read_bytes())["bindings"] if binding["name"] == "login/mail/me"
    )
    assert stored["details"] == {"database": "shop", "read_only": True}
    with VaultLender(again).lend(use(reader, read_only=True)) as loan:
        assert (loan.kind, loan.secret.reveal(), loan.username, loan.details) == (
            "login",
            CANARY,
            "me:too@example.test",
            reader.details,
        )
    assert again.candidates(CONNECTOR, "login") == [
        Candidate(
            name=reader.name,
            reach=DATABASE,
            account="me:too@example.test",
            read_only=True,
            login=BoundLogin(username="me:too@example.test", details=LoginDetails(database="shop", read_only=True)),
        )
    ]
    again.lock()


@pytest.mark.parametrize("is_reader", [True, False])
def test_a_login_is_lent_only_in_the_planned_role_of_reader_or_writer(vault: Vault, is_reader: bool) -> None:
    """A query that was planned for a reader does not run as a writer, nor the reverse."""
    bound = login(DATABASE, LoginDetails(read_only=True) if is_reader else None)
    vault.bind(bound)

    with VaultLender(vault).lend(use(bound, read_only=is_reader)) as loan:
        assert loan.secret.reveal() == CANARY
    with refused(FailureClass.BINDING_FAILED) as refusal, VaultLender(vault).lend(use(bound, read_only=not is_reader)):
        pass
    assert "request it again" in refusal.message


def planned(binding: Binding) -> CredentialUse:
    """Return a plan's use of the binding, with the binding's statement of its login."""
    assert binding.bound is not None
    return msgspec.structs.replace(use(binding), bound=binding.bound)


SHOP = login(DATABASE, LoginDetails(database="shop"))
PINNED = login(GIT, LoginDetails(host_key=HOST_KEY))
OTHERS: dict[str, tuple[Binding, Binding, str]] = {
    "user name": (SHOP, msgspec.structs.replace(SHOP, username="eve"), "with another user name: request it again"),
    "database": (SHOP, login(DATABASE, LoginDetails(database="test")), "with another database: request it again"),
    "no database": (SHOP, login(DATABASE), "with another database: request it again"),
    "host key": (
        PINNED,
        login(GIT, LoginDetails(host_key=f"ssh-ed25519 {TOKEN[:-4]}AAA=")),
        "with another host key: request it again",
    ),
    "role": (SHOP, login(DATABASE, LoginDetails(database="shop", read_only=True)), "with --read-only"),
    "two": (
        SHOP,
        msgspec.structs.replace(login(DATABASE, LoginDetails(database="test")), username="eve"),
        "with another user name and another database",
    ),
    "host": (SHOP, login(REDIS, LoginDetails(database="1")), "with another database"),
    "place": (login(MAIL), login(MOVED), "and not for a login at imap.example.test:993: request it again"),
}


@pytest.mark.abuse_case("LP11")
@pytest.mark.parametrize("what", OTHERS)
def test_a_plan_is_lent_only_the_login_that_it_was_made_for(vault: Vault, what: str) -> None:
    """Approved work is not even started. The planned login is lent, even with a new password."""
    before, after, words = OTHERS[what]
    vault.bind(before)
    wanted = planned(before)
    with VaultLender(vault).lend(wanted) as loan:
        assert loan.details == before.details

    vault.set_secret("other", Secret(b"another password of it"))
    vault.bind(msgspec.structs.replace(before, secret="other"), replace=True)
    with VaultLender(vault).lend(wanted) as loan:
        assert loan.secret.reveal() == b"another password of it"

    vault.bind(after, replace=True)
    with refused(FailureClass.BINDING_FAILED) as refusal, VaultLender(vault).lend(wanted):
        pass
    assert words in refusal.message
    assert refusal.details == {"reason": "binding_changed", "binding": "login/mail/me"}
    vault.lock()
    with refused(FailureClass.BINDING_FAILED) as refusal:
        vault.check_unchanged(wanted, after.created_at)
    assert words in refusal.message


@pytest.mark.abuse_case("LP11")
def test_binding_a_new_password_keeps_the_account_and_binding_a_new_ssh_key_may_change_it(vault: Vault) -> None:
    """Rebinding a database login keeps its account. With ssh, where everybody is `git`, or without a recorded
    login, the account may be another.
    """
    for number, (bound, wanted, is_same) in enumerate(
        ((SHOP, planned(SHOP), True), (SHOP, use(SHOP), False), (PINNED, planned(PINNED), False))
    ):
        vault.bind(bound, replace=number > 0)
        vault.check_unchanged(wanted, bound.created_at)
        vault.bind(msgspec.structs.replace(bound, created_at=bound.created_at + 60.0), replace=True)
        if is_same:
            vault.check_unchanged(wanted, bound.created_at)
            continue
        with refused(FailureClass.BINDING_FAILED) as refusal:
            vault.check_unchanged(wanted, bound.created_at)
        assert "no longer the binding that was shown: ask again" in refusal.message
        assert refusal.details["reason"] == "binding_changed"


@pytest.mark.abuse_case("LP11")
@pytest.mark.parametrize("is_login", [True, False], ids=["login", "basic"])
def test_an_older_binding_is_refused_if_its_account_differs_from_the_account_in_the_plan(
    vault: Vault, is_login: bool
) -> None:
    """A restored copy of the vault can bring it back. A binding of the same account is lent."""
    binding = login(MAIL) if is_login else BASIC
    wanted = msgspec.structs.replace(use(binding) if is_login else basic_use(binding), account=binding.account)
    vault.bind(binding, replace=True)
    vault.check_unchanged(wanted, binding.created_at)
    with VaultLender(vault).lend(wanted) as loan:
        assert loan.username == binding.username

    vault.bind(msgspec.structs.replace(binding, username="eve", created_at=binding.created_at - 60.0), replace=True)
    with refused(FailureClass.BINDING_FAILED) as refusal:
        vault.check_unchanged(wanted, binding.created_at)
    assert "has another account than when the run was planned: request it again" in refusal.message
    with refused(FailureClass.BINDING_FAILED) as refusal, VaultLender(vault).lend(wanted):
        pass
    assert refusal.details["reason"] == "binding_changed"


WRONG: list[tuple[Binding, str]] = [
    (msgspec.structs.replace(LOGIN, username=None), "kind login needs a user name; add --username"),
    (msgspec.structs.replace(LOGIN, username=""), "kind login needs a user name; add --username"),
    (msgspec.structs.replace(LOGIN, username="me\r\nRCPT"), "the user name holds U+000D"),
    (msgspec.structs.replace(LOGIN, username="x" * 321), "longer than 320 bytes"),
    (msgspec.structs.replace(LOGIN, reach=None), "names no place to log in at"),
    (login(Reach(wire="login")), "names no place to log in at"),
    (login(Reach(wire="login telnet+tls://a.b:1")), "is not PROTOCOL://HOST:PORT"),
    (login(MAIL, LoginDetails()), "details of a login that say nothing; leave them out"),
    (login(MAIL, LoginDetails(database="x")), "imap has no databases; leave --database out"),
    (login(MAIL, LoginDetails(read_only=True)), "imap cannot say what a role may do; leave --read-only out"),
    (login(MAIL, LoginDetails(host_key=HOST_KEY)), "a host key is only for ssh, not for imap; leave --host-key out"),
    (login(GIT), "ssh needs the server's public key; add --host-key 'ssh-ed25519 AAAA…'"),
    (login(GIT, LoginDetails(host_key="ssh-ed25519 AAAA")), "the host key is not 'TYPE BASE64'"),
    (login(GIT, LoginDetails(host_key=f"ssh-rsa {TOKEN}")), "the host key is not 'TYPE BASE64'"),
    (login(GIT, LoginDetails(host_key=f"{HOST_KEY}\nx")), "the host key is not 'TYPE BASE64'"),
    (login(DATABASE, LoginDetails(database="")), "the database's name is empty"),
    (login(DATABASE, LoginDetails(database="x" * 65)), "65 characters; at most 64"),
    (login(DATABASE, LoginDetails(database="a\0b")), "the database holds U+0000"),
    (login(REDIS, LoginDetails(database="cache")), "a redis database is a number"),
    (login(REDIS, LoginDetails(read_only=True)), "redis cannot say what a role may do"),
    (
        login(MAIL, LoginDetails(weak_password="md5")),
        "imap has no other password form; leave --allow-password-form out",
    ),
    (
        login(PLAIN, LoginDetails(database="shop", weak_password="cleartext")),
        "localhost:5432 by PostgreSQL WITHOUT ENCRYPTION: another password form is for TLS only",
    ),
    (login(PLAIN, LoginDetails(weak_password="md5")), "another password form is for TLS only; leave --allow-password"),
    (msgspec.structs.replace(BASIC, details=LoginDetails(database="x")), "only for kind login, not for basic"),
    (
        msgspec.structs.replace(LOGIN, kind="oauth2", name=BindingName.parse("oauth2/mail/me")),
        "a user name is for kinds basic",
    ),
    (
        msgspec.structs.replace(
            LOGIN,
            kind="oauth2",
            name=BindingName.parse("oauth2/mail/me"),
            username=None,
            reach=Reach(wire=f"oauth2 {MAIL.wire}"),
        ),
        "kind oauth2 needs a user name; add --username",
    ),
]


@pytest.mark.parametrize(("binding", "words"), WRONG)
def test_an_invalid_login_is_not_bound(standing: Vault, binding: Binding, words: str) -> None:
    """The message says what to add or to leave out."""
    with refused(FailureClass.BAD_INPUT) as refusal:
        standing.bind(binding)
    assert words in refusal.message


@pytest.mark.parametrize("how", ["OpenSSH", "PKCS8", "PEM"])
def test_an_ssh_private_key_is_stored_with_its_line_ends_and_bound(vault: Vault, how: str) -> None:
    """The stored key equals the file; a host key pins the server."""
    key = key_of(how)
    assert key.count(b"\n") > 2
    vault.set_secret("deploy", Secret(key))
    bound = login(GIT, LoginDetails(host_key=HOST_KEY), "deploy")
    vault.bind(bound)

    with VaultLender(vault).lend(use(bound)) as loan:
        assert loan.secret.reveal() == key
        assert loan.details == LoginDetails(host_key=HOST_KEY)


@pytest.mark.parametrize("how", ["OpenSSH", "PKCS8", "PEM"])
def test_an_ssh_key_with_a_passphrase_is_refused_with_the_fix(vault: Vault, how: str) -> None:
    """The daemon has nobody who could type it."""
    vault.set_secret("deploy", Secret(encrypted_key_of(how)))

    with refused(FailureClass.BAD_INPUT) as refusal:
        vault.bind(login(GIT, LoginDetails(host_key=HOST_KEY), "deploy"))

    assert "a private key with a passphrase" in refusal.message
    assert "ssh-keygen -p -N ''" in refusal.message


def test_a_private_key_is_accepted_only_for_ssh(vault: Vault) -> None:
    """The line ends of a key would end a header, so other kinds and settings refuse it."""
    key = Secret(key_of("OpenSSH"))
    vault.set_secret("deploy", key)
    ssh = login(GIT, LoginDetails(host_key=HOST_KEY), "deploy")

    for other in (
        msgspec.structs.replace(BASIC, name=BindingName("basic", "mail", "b"), secret="deploy"),
        login(MAIL, None, "deploy"),
    ):
        with refused(FailureClass.BAD_INPUT) as refusal:
            vault.bind(other)
        assert f"is a private key, which kind {other.kind} cannot send" in refusal.message
    with refused(FailureClass.BAD_INPUT) as refusal:
        vault.set_secret("mail", key)
    assert "is a private key, which kind basic cannot send" in refusal.message
    vault.bind(ssh)
    with refused(FailureClass.BINDING_FAILED) as refusal, VaultLender(vault).lend_secret("deploy"):
        pass
    assert "no header can carry" in refusal.message


def test_a_malformed_private_key_is_refused(standing: Vault) -> None:
    """The key has text after its end, carriage returns, no end, or a NUL byte."""
    key = key_of("OpenSSH")
    for value in (key + b"X-Injected: 1", key.replace(b"\n", b"\r\n"), key[:-40], key.replace(b"\n", b"\n\0", 1)):
        with refused(FailureClass.BAD_INPUT) as refusal:
            standing.set_secret("mail", Secret(value))
        assert "store the file as it was made" in refusal.message


def test_ssh_accepts_a_password_of_one_line(vault: Vault) -> None:
    """SSH servers accept passwords too."""
    bound = login(GIT, LoginDetails(host_key=HOST_KEY))
    vault.bind(bound)
    with VaultLender(vault).lend(use(bound)) as loan:
        assert loan.secret.reveal() == CANARY


def test_a_password_with_a_control_character_is_not_bound_to_a_login(vault: Vault) -> None:
    """The character would end a part of a SASL message or a line; `basic` still accepts it."""
    vault.set_secret("odd", Secret(b"pass\1word"))
    vault.bind(msgspec.structs.replace(BASIC, name=BindingName("basic", "mail", "odd"), secret="odd"))
    with refused(FailureClass.BAD_INPUT) as refusal:
        vault.bind(login(MAIL, None, "odd"))
    assert "has a control character" in refusal.message
    assert "aileron secret set odd" in refusal.message
    vault.bind(login(MAIL))
    with refused(FailureClass.BAD_INPUT):
        vault.set_secret("mail", Secret(b"pass\tword"))


def test_a_sign_in_logs_in_as_its_account_or_the_given_user_name(vault: Vault) -> None:
    """XOAUTH2's user is the provider's account or the user's own choice; a sign-in without either is refused."""
    client = Client(client_id="c", client_secret=None, token_url="https://a.test/token", revocation_url=None)
    tokens = TokenSet(
        access=Secret(b"access-token-1"), refresh=None, expires_at=None, scopes=(), client=client
    ).sealed()
    grant = OAuthGrant(scopes=(), obtained_ms=1, account="me@example.test")
    name = BindingName.parse("oauth2/mail/me")
    reach = Reach(hosts=MAIL.hosts, wire=f"oauth2 {MAIL.wire}", client="c at https://a.test/token")
    bound = Binding(name, CONNECTOR, "oauth2", None, "tokens", 1_700_000_002.0, reach, grant)
    need = CredentialNeed(kind="oauth2", scope="all", logins=(LoginTarget.parse("imap://imap.example.test:993"),))
    wanted = CredentialUse(connector=CONNECTOR, binding=name, need=need)

    with refused(FailureClass.BAD_INPUT) as refusal:
        unknown = msgspec.structs.replace(bound, grant=msgspec.structs.replace(grant, account=None))
        vault.bind_sign_in(unknown, tokens, replace=False)
    assert "the provider did not say whose account it is, which the login needs; add --username" in refusal.message
    vault.bind_sign_in(bound, tokens, replace=False)
    with VaultLender(vault).lend(wanted) as loan:
        assert (loan.username, loan.secret.reveal(), loan.details) == ("me@example.test", b"access-token-1", None)
    vault.bind_sign_in(msgspec.structs.replace(bound, username="shared@example.test"), tokens, replace=True)
    with VaultLender(vault).lend(wanted) as loan:
        assert loan.username == "shared@example.test"


def test_a_fingerprint_matches_that_of_ssh_keygen() -> None:
    """The key and its fingerprint are those that GitHub publishes."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"

    assert fingerprint(check_host_key(key)) == "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"


@given(st.text(max_size=60) | st.from_regex(r"ssh-(ed25519|rsa) [A-Za-z0-9+/]{0,40}={0,2}"))
def test_any_text_is_parsed_as_a_host_key_or_raises_value_error(text: str) -> None:
    """Any other error is a failure, and a key comes back unchanged."""
    try:
        assert check_host_key(text) == text
        assert fingerprint(text).startswith("SHA256:")
    except ValueError as error:
        assert "ssh-keyscan HOST" in str(error)  # noqa: PT017 - either is right
