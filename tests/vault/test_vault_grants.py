"""The reach of a binding, and the tokens of a sign-in: kept, renewed, lent, ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aileron.model.credential import Candidate, Client, OAuthGrant, Reach, TokenSet
from aileron.model.failure import FailureClass
from aileron.model.names import BindingName
from aileron.model.secret import Secret
from aileron.vault import Binding, Vault, VaultLender
from tests.vault import page_reader
from tests.vault.conftest import API_KEY, BASIC, CONNECTOR, OTHER, PASSPHRASE, refused, use

REACH = Reach(
    hosts=("api.example:443", "mail.example:443"),
    scopes=("https://mail.example/read", "openid"),
    wire="oauth2",
    client="client-1 at https://login.example/token",
)
GRANT = OAuthGrant(scopes=("openid",), obtained_ms=1_750_000_000_000, account="me@example.test", refreshable=True)
SIGNED_IN = Binding(
    name=BindingName.parse("oauth2/mail/me"),
    connector=CONNECTOR,
    kind="oauth2",
    username=None,
    secret="oauth2-mail-me",
    created_at=1_750_000_000.125,
    reach=REACH,
    grant=GRANT,
)


def tokens(access: str = "access-token-1", refresh: str | None = "refresh-token-1") -> TokenSet:
    """Return tokens as a provider issues them."""
    return TokenSet(
        access=Secret(access.encode()),
        refresh=None if refresh is None else Secret(refresh.encode()),
        expires_at=1_750_003_600.0,
        scopes=("openid",),
        client=Client(
            client_id="client-1", client_secret=None, token_url="https://login.example/token", revocation_url=None
        ),
    )


def test_tokens_without_the_newer_fields_are_read_and_written_in_the_old_format() -> None:
    """Newer fields are left out if they have no value, so an older version reads tokens that do not need them."""
    client = (
        '{"client_id":"client-1","client_secret":null,"token_url":"https://login.example/token","revocation_url":null'
    )
    whole = (
        '{{"access_token":"access-token-1","refresh_token":"refresh-token-1","expires_at":1750003600.0,'
        '"scope":"openid","client":{}}}'
    )
    more = client + ',"resource":"https://mail.example/mcp","is_registered":true}'
    old, new = (TokenSet.unsealed(Secret(whole.format(client_text).encode())) for client_text in (client + "}", more))

    assert tokens().sealed().reveal().decode() == whole.format(client + "}")
    assert (old.client.resource, old.client.is_registered) == (None, False)
    assert (new.client.resource, new.client.is_registered) == ("https://mail.example/mcp", True)
    assert new.sealed().reveal().decode() == whole.format(more)


def sign_in(vault: Vault) -> None:
    """Bind a sign-in as the daemon does once a person has signed in."""
    vault.bind_sign_in(SIGNED_IN, tokens().sealed())


@pytest.fixture
def signed_in(vault: Vault) -> None:
    """Bind a sign-in before the test."""
    sign_in(vault)


def lent(vault: Vault, binding: Binding) -> bytes:
    """Return the value that a loan carries."""
    with VaultLender(vault).lend(use(binding)) as loan:
        return loan.secret.reveal()


def revealed(of: TokenSet) -> tuple[bytes, bytes | None]:
    """Return both tokens as bytes."""
    return of.access.reveal(), None if of.refresh is None else of.refresh.reveal()


@pytest.mark.usefixtures("signed_in")
def test_a_binding_s_reach_and_oauth_grant_survive_a_restart_and_can_be_read_while_locked(
    vault: Vault, path: Path
) -> None:
    """The binding has them, by name and as a candidate. A reader written from the page computes the same seal."""
    locked = Vault(path)

    assert locked.binding(SIGNED_IN.name) == SIGNED_IN
    assert locked.candidates(CONNECTOR, "oauth2") == [
        Candidate(name=SIGNED_IN.name, reach=REACH, account="me@example.test")
    ]
    assert locked.binding(BindingName.parse("oauth2/mail/you")) is None
    read = page_reader.load(path)
    assert page_reader.seal(read, page_reader.data_key(read, PASSPHRASE)) == read


@pytest.mark.usefixtures("signed_in")
def test_a_binding_with_neither_reach_nor_oauth_grant_keeps_its_old_format(vault: Vault, path: Path) -> None:
    """Such a binding gets no additional JSON key."""
    by_name = {entry["name"]: sorted(entry) for entry in page_reader.load(path)["bindings"]}
    plain = ["connector", "created_ms", "name", "secret", "username"]
    assert by_name == {
        str(API_KEY.name): plain,
        str(BASIC.name): plain,
        str(SIGNED_IN.name): sorted([*plain, "grant", "reach"]),
    }


@pytest.mark.usefixtures("signed_in")
def test_a_sign_in_lends_only_its_access_token(vault: Vault) -> None:
    """Neither the refresh token nor anything stored with it is lent; a secret bound by hand is lent unchanged."""
    assert lent(vault, SIGNED_IN) == b"access-token-1"
    assert lent(vault, API_KEY) == OTHER
    plain = msgspec.structs.replace(SIGNED_IN, name=BindingName.parse("oauth2/mail/by-hand"), grant=None, secret="mail")
    vault.bind(plain)
    assert lent(vault, plain).startswith(b"canary")


@pytest.mark.usefixtures("signed_in")
def test_renewed_tokens_are_written_at_once_and_survive_a_restart(vault: Vault, path: Path) -> None:
    """Value and grant change together, in one generation; the time of binding and the reach stay."""
    vault.note_renewal(SIGNED_IN.name, 1_750_003_000_000)
    before = vault.status().generation
    noted = Vault(path).binding(SIGNED_IN.name)
    assert noted == msgspec.structs.replace(
        SIGNED_IN, grant=msgspec.structs.replace(GRANT, renewing_ms=1_750_003_000_000)
    )
    renewed = msgspec.structs.replace(GRANT, refreshed_ms=1_750_003_000_001, expires_ms=1_750_006_600_000)

    vault.put_tokens(SIGNED_IN.name, tokens("access-token-2", "refresh-token-2"), renewed)

    assert vault.status().generation == (before or 0) + 1
    again = Vault(path)
    assert again.binding(SIGNED_IN.name) == msgspec.structs.replace(SIGNED_IN, grant=renewed)
    again.unlock(Secret(PASSPHRASE))
    assert revealed(again.tokens(SIGNED_IN.name)) == (b"access-token-2", b"refresh-token-2")
    assert lent(again, SIGNED_IN) == b"access-token-2"
    again.lock()


@pytest.mark.usefixtures("signed_in")
def test_a_refused_renewal_is_recorded_as_failed_and_no_longer_as_in_progress(vault: Vault) -> None:
    """The provider's error code can be shown; the tokens stay, so that a person can inspect them."""
    vault.note_renewal(SIGNED_IN.name, 1_750_003_000_000)
    vault.note_refused(SIGNED_IN.name, "invalid_grant")
    found = vault.binding(SIGNED_IN.name)
    assert found is not None
    assert found.grant == msgspec.structs.replace(GRANT, failed="invalid_grant")
    assert revealed(vault.tokens(SIGNED_IN.name)) == (b"access-token-1", b"refresh-token-1")


@pytest.mark.usefixtures("signed_in")
def test_tokens_of_an_earlier_sign_in_do_not_replace_those_of_a_later_one(vault: Vault) -> None:
    """A renewal that began before the new sign-in is refused; a renewal of the new sign-in is accepted."""
    anew = msgspec.structs.replace(SIGNED_IN, grant=msgspec.structs.replace(GRANT, obtained_ms=1_750_009_000_000))
    vault.set_secret(SIGNED_IN.secret, tokens("access-token-of-later").sealed())
    vault.bind(anew, replace=True)
    with refused(FailureClass.BINDING_FAILED) as refusal:
        vault.put_tokens(SIGNED_IN.name, tokens("access-token-2"), GRANT)
    assert "signed in anew" in refusal.message
    assert lent(vault, anew) == b"access-token-of-later"
    assert anew.grant is not None
    vault.put_tokens(SIGNED_IN.name, tokens("access-token-3"), anew.grant)
    assert lent(vault, anew) == b"access-token-3"


def test_a_binding_without_a_sign_in_has_no_tokens(vault: Vault) -> None:
    """A missing binding is binding_required, a plain secret binding_failed; for overwritten tokens the message names the fix."""
    attempt: Callable[[], object]
    for name, failure_class in (
        (SIGNED_IN.name, FailureClass.BINDING_REQUIRED),
        (BASIC.name, FailureClass.BINDING_FAILED),
    ):
        for attempt in (
            partial(vault.tokens, name),
            partial(vault.put_tokens, name, tokens(), GRANT),
            partial(vault.note_renewal, name, 1),
            partial(vault.note_refused, name, "invalid_grant"),
        ):
            with refused(failure_class):
                attempt()
    sign_in(vault)
    vault.set_secret(SIGNED_IN.secret, Secret(OTHER))
    for attempt in (lambda: vault.tokens(SIGNED_IN.name), lambda: lent(vault, SIGNED_IN)):
        with refused(FailureClass.BINDING_FAILED) as refusal:
            attempt()
        assert f"aileron binding reauthorize {SIGNED_IN.name}" in refusal.message
        assert OTHER.decode() not in refusal.message


def test_a_locked_vault_neither_gives_nor_takes_tokens(locked: Vault) -> None:
    """Each attempt is refused as vault_locked."""
    for attempt in (
        lambda: locked.tokens(SIGNED_IN.name),
        lambda: locked.put_tokens(SIGNED_IN.name, tokens(), GRANT),
        lambda: locked.note_renewal(SIGNED_IN.name, 1),
        lambda: locked.note_refused(SIGNED_IN.name, "invalid_grant"),
    ):
        with refused(FailureClass.VAULT_LOCKED):
            attempt()


@pytest.mark.usefixtures("signed_in")
def test_the_tokens_of_a_sign_in_serve_only_one_binding(vault: Vault) -> None:
    """A second binding cannot use them, and a sign-in cannot use a secret that serves another binding."""
    second = msgspec.structs.replace(SIGNED_IN, name=BindingName.parse("oauth2/mail/two"))
    for attempt in (
        second,
        msgspec.structs.replace(second, grant=None),
        msgspec.structs.replace(second, secret="mail"),
    ):
        with refused(FailureClass.INVALID_REQUEST) as refusal:
            vault.bind(attempt)
        assert "serve one binding" in refusal.message
    vault.set_secret("another", tokens().sealed())
    vault.bind(msgspec.structs.replace(second, secret="another"))


def test_the_tokens_of_a_sign_in_are_removed_with_its_binding(vault: Vault) -> None:
    """They go when the binding is revoked or bound to something else; after a new sign-in under the same name they stay, and so
    do other secrets.
    """
    sign_in(vault)
    vault.bind(SIGNED_IN, replace=True)
    assert lent(vault, SIGNED_IN) == b"access-token-1"
    vault.revoke(SIGNED_IN.name)
    vault.revoke(BASIC.name)
    assert [info.name for info in vault.secrets()] == ["mail", "tickets"]
    sign_in(vault)
    vault.bind(msgspec.structs.replace(SIGNED_IN, secret="mail", grant=None), replace=True)
    assert [info.name for info in vault.secrets()] == ["mail", "tickets"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hosts": ("mail.example",)}, "no port"),
        ({"hosts": ("*.example:443",)}, "wildcards"),
        ({"hosts": ("b.example:443", "a.example:443")}, "not sorted"),
        ({"hosts": ("a.example:443", "a.example:443")}, "each once"),
        ({"hosts": tuple(f"h{number:02}.example:443" for number in range(33))}, "33 hosts"),
        ({"scopes": ("two words",)}, "scope-token"),
        ({"scopes": ("",)}, "scope-token"),
        ({"scopes": ("x" * 257,)}, "scope-token"),
        ({"scopes": ("m\u0430il",)}, "scope-token"),
        ({"scopes": tuple(f"s{number:02}" for number in range(65))}, "65 scopes"),
        ({"wire": "header X\u202e: {key}"}, "U+202E"),
        ({"wire": "x" * 20481}, "at most 20480"),
        ({"client": "a\nb"}, "U+000A"),
        ({"client": "x" * 4097}, "at most 4096"),
    ],
)
def test_an_invalid_reach_of_a_binding_is_refused(standing: Vault, changes: dict[str, Any], words: str) -> None:
    """Each part of the reach is made invalid on its own, and refused with its reason."""
    reach = msgspec.structs.replace(REACH, **changes)
    with refused(FailureClass.BAD_INPUT) as refusal:
        standing.bind(msgspec.structs.replace(BASIC, reach=reach), replace=True)
    assert words in refusal.message
    assert refusal.message.isprintable()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scopes": ("b", "a")}, "not sorted"),
        ({"obtained_ms": -1}, "not a time"),
        ({"expires_ms": 253402300800000}, "not a time"),
        ({"refreshed_ms": 2**53}, "not a time"),
        ({"account": "me\u200b"}, "U+200B"),
        ({"account": "x" * 321}, "at most 320"),
        ({"failed": ""}, "error code"),
        ({"failed": 'a"b'}, "error code"),
        ({"failed": "x" * 129}, "error code"),
    ],
)
@pytest.mark.usefixtures("signed_in")
def test_an_invalid_oauth_grant_of_a_sign_in_is_refused(vault: Vault, changes: dict[str, Any], words: str) -> None:
    """Binding and renewing refuse it alike, and nothing is written."""
    grant = msgspec.structs.replace(GRANT, **changes)
    before = vault.status()
    attempts: list[Callable[[], object]] = [
        lambda: vault.bind(msgspec.structs.replace(SIGNED_IN, grant=grant), replace=True)
    ]
    if grant.obtained_ms == GRANT.obtained_ms:  # else it is not of this sign-in
        attempts.append(lambda: vault.put_tokens(SIGNED_IN.name, tokens(), grant))
    for attempt in attempts:
        with refused(FailureClass.BAD_INPUT) as refusal:
            attempt()
        assert words in refusal.message
        assert refusal.message.isprintable()
    assert vault.status() == before


def test_only_oauth2_bindings_have_an_oauth_grant(standing: Vault) -> None:
    """Other kinds have no provider that signs people in."""
    with refused(FailureClass.BAD_INPUT) as refusal:
        standing.bind(msgspec.structs.replace(API_KEY, grant=GRANT), replace=True)
    assert "only for kind oauth2" in refusal.message


@pytest.mark.abuse_case("O17")
@pytest.mark.usefixtures("signed_in")
def test_tokens_of_a_renewal_are_never_stored_under_the_account_of_a_new_sign_in(vault: Vault) -> None:
    """Tokens and account change in one write, so tokens of the renewal are never under the new account."""
    before = vault.status().generation
    other = msgspec.structs.replace(GRANT, obtained_ms=GRANT.obtained_ms + 1, account="other@example.test")
    anew = msgspec.structs.replace(SIGNED_IN, grant=other)
    vault.bind_sign_in(anew, tokens("access-token-of-other").sealed(), replace=True)

    assert vault.status().generation == int(str(before)) + 1
    with refused(FailureClass.BINDING_FAILED):
        vault.put_tokens(SIGNED_IN.name, tokens("access-token-renewed"), GRANT)
    assert lent(vault, anew) == b"access-token-of-other"


def test_a_sign_in_overwrites_no_secret_and_is_not_kept_unless_it_is_bound(vault: Vault) -> None:
    """A sign-in under a used name, or for an existing binding, is refused as a whole.

    A secret that was bound by hand stays, too, if the sign-in would replace its binding.
    """
    by_hand = msgspec.structs.replace(
        SIGNED_IN, name=BindingName.parse("oauth2/mail/by-hand"), grant=None, secret="own"
    )
    vault.set_secret("own", Secret(OTHER))
    vault.bind(by_hand)
    with refused(FailureClass.INVALID_REQUEST):
        vault.bind_sign_in(msgspec.structs.replace(by_hand, grant=GRANT), tokens().sealed(), replace=True)
    assert lent(vault, by_hand) == OTHER
    with refused(FailureClass.INVALID_REQUEST) as taken:
        vault.bind_sign_in(msgspec.structs.replace(SIGNED_IN, secret=API_KEY.secret), tokens().sealed())
    assert "stored already" in taken.message
    assert lent(vault, API_KEY) == OTHER
    sign_in(vault)
    known = vault.secrets()
    with refused(FailureClass.INVALID_REQUEST):
        vault.bind_sign_in(SIGNED_IN, tokens("access-token-2").sealed())
    with refused(FailureClass.INVALID_REQUEST):
        vault.bind_sign_in(msgspec.structs.replace(SIGNED_IN, secret="another"), tokens("access-token-2").sealed())
    assert vault.secrets() == known
    assert lent(vault, SIGNED_IN) == b"access-token-1"


@pytest.mark.usefixtures("signed_in")
def test_revoking_a_binding_returns_its_newest_tokens(vault: Vault) -> None:
    """A renewal may be written just before: the newest tokens are those to revoke at the provider."""
    looked_at = vault.tokens(SIGNED_IN.name)
    vault.put_tokens(SIGNED_IN.name, tokens("access-token-2", "refresh-token-2"), GRANT)
    ended = vault.revoke(SIGNED_IN.name)

    with refused(FailureClass.BINDING_REQUIRED) as gone:
        vault.tokens(SIGNED_IN.name)
    assert gone.message.endswith(f"aileron binding setup CONNECTOR --name {SIGNED_IN.name}")
    assert ended is not None
    assert revealed(looked_at) == (b"access-token-1", b"refresh-token-1")
    assert revealed(ended) == (b"access-token-2", b"refresh-token-2")
    assert vault.revoke(API_KEY.name) is None
