"""Reading a provider's answers: any bytes are tokens that can be kept and sent, or one of our errors."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron.model.credential import Client, OAuthGrant, TokenSet
from aileron.model.json_value import JSONObject
from aileron.model.names import BindingName
from aileron.model.secret import Secret
from aileron.oauth.answers import (
    MAX_LIFETIME_S,
    Expected,
    GrantedTokens,
    granted,
    read_device_code,
    read_json,
    renewed,
)
from aileron.oauth.problems import SIGN_IN, ProviderError
from aileron.vault.bindings import Binding, check_binding
from tests.support.hostile_text import CORPUS, assert_harmless
from tests.support.token_server import SCOPES, id_token, tokens_answer

pytestmark = pytest.mark.abuse_case("O16")

HOST: Final = "id.example"
_T = TypeVar("_T")
NOW: Final = 1_795_233_600.0
CLIENT: Final = Client(
    client_id="client-of-the-publisher",
    client_secret="canary-client-secret",
    token_url="https://id.example/token",
    revocation_url=None,
)


def expected(**changes: Any) -> Expected:
    """Return the expectations of a sign-in."""
    whole = {
        "host": HOST,
        "client": CLIENT,
        "scopes": SCOPES,
        "authorize_url": "https://id.example/authorize",
        "issuer": None,
        "nonce": None,
    }
    return Expected(**{**whole, **changes})


def read(answer: dict[str, Any], **changes: Any) -> GrantedTokens:
    """Read an answer to a sign-in from its bytes."""
    return granted(read_json(json.dumps(answer).encode(), HOST), expected(**changes), NOW)


def code_of(answer: dict[str, Any], **changes: Any) -> str:
    """Return the code of an answer that must be refused; the error quotes nothing."""
    with pytest.raises(ProviderError) as caught:
        read(answer, **changes)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None
    return caught.value.code


def attempted(read: Callable[[], _T]) -> _T | ProviderError:
    """Return the result, or the error as a value."""
    try:
        return read()
    except ProviderError as error:
        return error


def check_kept(made: GrantedTokens) -> None:
    """Check that the tokens can be sealed, unsealed and kept in the vault's file, and that they fit a header."""
    again = TokenSet.unsealed(made.tokens.sealed())
    assert again.access == made.tokens.access
    assert (again.refresh is None) == (made.tokens.refresh is None) == (not made.grant.refreshable)
    token = made.tokens.access.reveal()
    assert 8 <= len(token) <= 8192
    assert all(0x21 <= byte <= 0x7E for byte in token)
    check_binding(Binding(BindingName("oauth2", "a", "b"), "github://a/b", "oauth2", None, "s", NOW, None, made.grant))


ANY_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
KEYS: Final = ["access_token", "refresh_token", "token_type", "expires_in", "scope", "id_token"]


@given(st.binary(max_size=400))
@example(b"")
@example(b"\xff\xfe")
@example(b'{"a":1e999}')
@example(b'{"a":' + b"[" * 100_000)
@example(b'{"a":' + b"9" * 5000 + b"}")
def test_any_response_bytes_are_parsed_as_an_object_or_raise_one_of_our_errors(data: bytes) -> None:
    """A library's own error would quote the bytes, which may contain tokens."""
    value = attempted(lambda: read_json(data, HOST))

    assert isinstance(value, dict) or value.code == "bad_answer"


@given(st.dictionaries(st.sampled_from(KEYS), ANY_JSON))
def test_any_values_in_a_token_response_give_valid_tokens_or_raise_one_of_our_errors(changes: dict[str, Any]) -> None:
    """Any JSON takes the place of each value of a good response, for a sign-in and for a renewal."""
    answer = {**tokens_answer(), **changes}
    before = read(tokens_answer())
    for made in (
        attempted(lambda: granted(answer, expected(), NOW)),
        attempted(lambda: renewed(answer, before.tokens, before.grant, HOST, NOW)),
    ):
        if isinstance(made, ProviderError):
            assert made.code in SIGN_IN
            assert made.__cause__ is None
        else:
            check_kept(made)


@given(
    st.dictionaries(
        st.sampled_from(["device_code", "user_code", "verification_uri", "expires_in", "interval"]), ANY_JSON
    )
)
def test_any_values_in_a_device_response_can_be_shown_or_raise_one_of_our_errors(changes: dict[str, Any]) -> None:
    """Any JSON takes the place of each value of a good response."""
    good: JSONObject = {
        "device_code": "canary-device-code",
        "user_code": "WDJB-MJHT",
        "verification_uri": "https://id.example/device",
        "expires_in": 900,
    }
    code = attempted(lambda: read_device_code({**good, **changes}, HOST))
    if isinstance(code, ProviderError):
        assert code.code == "bad_answer"
    else:
        assert_harmless(code.user_code)
        assert_harmless(code.verification_uri)
        assert code.user_code.isascii()
        assert 1 <= code.interval_s <= 60
        assert 0 < code.expires_in_s <= MAX_LIFETIME_S


@pytest.mark.parametrize(
    ("lifetime", "ends_at"),
    [
        (3600, NOW + 3600),
        (3600.5, NOW + 3600.5),
        ("3600", NOW + 3600),
        (0, NOW),
        (10**30, NOW + MAX_LIFETIME_S),
        (10**400, NOW + MAX_LIFETIME_S),
        (None, None),
    ],
)
def test_the_expiry_of_a_token_is_the_current_time_plus_its_lifetime(lifetime: object, ends_at: float | None) -> None:
    """A number or digits in a string are accepted; a very long lifetime is capped; without one, there is no expiry."""
    made = read(tokens_answer(expires_in=lifetime))

    assert made.tokens.expires_at == ends_at
    assert made.grant.expires_ms == (None if ends_at is None else math.floor(ends_at * 1000))


@pytest.mark.parametrize("lifetime", [-1, -(10**400), True, "", "-1", "1e3", "soon", [3600], {}, "\u0663"])
def test_an_invalid_lifetime_is_refused(lifetime: object) -> None:
    """The sign-in refuses it, where the person sees it."""
    assert code_of(tokens_answer(expires_in=lifetime)) == "bad_answer"


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_nan_and_infinity_in_a_response_are_refused(constant: str) -> None:
    """Python's own JSON parser would accept them."""
    text = json.dumps(tokens_answer()).replace("3600", constant)
    with pytest.raises(ProviderError) as caught:
        granted(read_json(text.encode(), HOST), expected(), NOW)

    assert caught.value.code == "bad_answer"


@pytest.mark.parametrize(
    "token",
    [
        "1234567",
        "x" * 8193,
        "canary token",
        "canary\ttoken",
        "canary\r\nX: y",
        "canary\x00",
        "canäry-token",
        " canary-",
        "\ud800" * 9,
    ],
)
@pytest.mark.parametrize("name", ["access_token", "refresh_token"])
def test_a_token_that_no_header_can_carry_is_refused(name: str, token: str) -> None:
    """Tokens of exactly the shortest and the longest permitted length pass; egress has the same bounds."""
    assert code_of(tokens_answer(**{name: token})) == "bad_token"
    check_kept(read(tokens_answer(**{name: "x" * 8})))
    check_kept(read(tokens_answer(**{name: "~" * 8192})))


@pytest.mark.parametrize("kind", ["mac", "DPoP", "Bearer ", "", "N_A"])
def test_only_bearer_tokens_are_accepted(kind: str) -> None:
    """Case does not matter; a token of another type would be sent without the proof that it needs."""
    assert code_of(tokens_answer(token_type=kind)) == "bad_token_type"
    check_kept(read(tokens_answer(token_type="bearer")))


# Scopes


@pytest.mark.parametrize(
    ("said", "asked", "found"),
    [
        (None, SCOPES, SCOPES),
        ("", SCOPES, SCOPES),
        ("mail.send  mail.read mail.read", SCOPES, SCOPES),
        ("mail.send mail.read more", SCOPES, ("mail.read", "mail.send", "more")),
        ("mail.read,mail.send", SCOPES, SCOPES),
        ("a,b c", ("a,b", "c"), ("a,b", "c")),
        ("mail.read", ("mail.read", "openid", "offline_access", "email", "profile"), ("mail.read",)),
    ],
)
def test_the_granted_scopes_are_those_in_the_token_response(
    said: str | None, asked: tuple[str, ...], found: tuple[str, ...]
) -> None:
    """They are sorted. No scopes in the response mean all requested ones; scopes like `openid` may be missing."""
    assert read(tokens_answer(scope=said), scopes=asked).grant.scopes == tuple(sorted(found))


@pytest.mark.parametrize(
    "said", ["x" * 257, 'mail.read mail.send "', "mail.read mail.send \u202e", " ".join(f"s{n}" for n in range(65))]
)
def test_invalid_scopes_are_refused(said: str) -> None:
    """Scopes are shown, and are kept in the vault's file."""
    assert code_of(tokens_answer(scope=said)) == "bad_answer"


# The ID token


CLAIMS: Final = {
    "iss": "https://id.example",
    "aud": "client-of-the-publisher",
    "nonce": "canary-nonce",
    "email": "mira@example.test",
    "preferred_username": "mira",
    "sub": "4711",
}


def account(claims: dict[str, Any], **changes: Any) -> str | None:
    """Return the account of a sign-in whose ID token has these claims."""
    whole = {"nonce": Secret(b"canary-nonce"), **changes}
    return read(tokens_answer(id_token=id_token(claims)), **whole).grant.account


def test_an_account_is_named_by_email_then_user_name_then_subject() -> None:
    """An ID token without any of these claims gives no account name."""
    without = dict(CLAIMS)
    names = [account(without)]
    for name in ("email", "preferred_username", "sub"):
        del without[name]
        names.append(account(without))

    assert names == ["mira@example.test", "mira", "4711", None]
    assert account({**CLAIMS, "email": 7, "preferred_username": " "}) == "4711"


@pytest.mark.parametrize("name", CORPUS.values(), ids=CORPUS.keys())
def test_any_account_name_is_made_safe_to_display(name: str) -> None:
    """The provider chooses the name, which is shown in terminals, pages and questions."""
    made = read(tokens_answer(id_token=id_token({**CLAIMS, "email": name})), nonce=Secret(b"canary-nonce"))
    shown = made.grant.account

    assert shown is not None
    assert_harmless(shown)
    assert "\n" not in shown
    assert len(shown) <= 320
    check_kept(made)


@pytest.mark.parametrize(
    ("claims", "changes"),
    [
        ({"iss": "https://evil.example"}, {}),
        ({"iss": None}, {}),
        ({"iss": "https://id.example/x"}, {"issuer": "https://id.example"}),
        ({"aud": "another"}, {}),
        ({"aud": ["client-of-the-publisher", "another"]}, {}),
        ({"aud": ["client-of-the-publisher", "another"], "azp": "another"}, {}),
        ({"aud": []}, {}),
        ({"aud": None}, {}),
        ({"nonce": "another"}, {}),
        ({"nonce": None}, {}),
        ({"nonce": 7}, {}),
    ],
)
def test_an_id_token_for_another_issuer_application_or_request_is_refused(
    claims: dict[str, Any], changes: dict[str, Any]
) -> None:
    """The token names another issuer, application or request; one with the right names passes."""
    token = id_token({**CLAIMS, **claims})

    assert code_of(tokens_answer(id_token=token), nonce=Secret(b"canary-nonce"), **changes) == "bad_id_token"
    assert account({**CLAIMS, "aud": ["client-of-the-publisher"]}) == "mira@example.test"
    assert (
        account({**CLAIMS, "aud": ["client-of-the-publisher", "x"], "azp": "client-of-the-publisher"})
        == "mira@example.test"
    )
    assert account({**CLAIMS, "iss": "https://id.example/x"}, issuer="https://id.example/x") == "mira@example.test"


@pytest.mark.parametrize(
    "token", ["", "a.b", "a.b.c.d", "..", "a.!.c", "a.e30.c", "x" * 40_000, 7, ["a"], "a.W10.c", "ä.ä.ä"]
)
def test_a_malformed_id_token_is_refused(token: object) -> None:
    """The error is ours, not a library's."""
    assert code_of(tokens_answer(id_token=token)) == "bad_id_token"


# A renewal


def test_a_renewal_keeps_the_values_that_its_response_omits() -> None:
    """Refresh token, scopes, account and time of sign-in stay; an ID token is not read."""
    before = read(tokens_answer(id_token=id_token(CLAIMS)), nonce=Secret(b"canary-nonce"))
    answer = tokens_answer(
        access_token="canary-access-2", refresh_token=None, scope=None, expires_in=None, id_token="nonsense"
    )
    after = renewed(answer, before.tokens, before.grant, HOST, NOW + 60)

    assert after.tokens.refresh == before.tokens.refresh
    assert after.tokens.client == CLIENT
    assert after.grant == OAuthGrant(
        scopes=SCOPES,
        obtained_ms=int(NOW * 1000),
        account="mira@example.test",
        refreshable=True,
        expires_ms=None,
        refreshed_ms=int((NOW + 60) * 1000),
    )
