"""Reads the responses of a provider's endpoints: untrusted JSON in, tokens or an error out.

Pure. The person chose the provider, but it is not trusted beyond that: every value is checked for its type, form and size, and
every value that is returned can be stored in the vault and sent with a request.

Rules
- A response is one JSON object, with each key once, without NaN and Infinity. Unknown keys are ignored (RFC 6749, section
  5.1).
- A token is 8 to 8192 visible ASCII characters: egress can send such tokens, and find them in a response. The token type is
  Bearer.
- The provider must grant everything that was requested: a connector with half of its scopes fails later, where nobody can fix
  the problem. Scopes that give no access (`openid`, `offline_access` and the like) need not be repeated, as many providers
  leave them out.
- An ID token's signature is not checked: the token came from the token endpoint itself, over TLS (OpenID Connect Core 3.1.3.7,
  item 6). Its issuer, audience and nonce are checked. Its times are not checked, because the ID token only provides a name for
  display, and this machine's clock may be wrong.
- An error quotes nothing from the response.

Source: RFC 6749 sections 5.1 and 5.2, RFC 8628 section 3.2, OpenID Connect Core. Not here: sending the request (endpoint.py).
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import math
import re
from typing import Any, Final, NoReturn, TypeGuard

import msgspec

from aileron.model.credential import Client, OAuthGrant, TokenSet
from aileron.model.json_value import JSONObject
from aileron.model.request_signing import TokenGrant
from aileron.model.secret import Secret
from aileron.model.visible import visible
from aileron.oauth.problems import ProviderError, said
from aileron.oauth.request import endpoint_url, origin

__all__ = [
    "DeviceCode",
    "Expected",
    "GrantedTokens",
    "Minted",
    "granted",
    "is_issuer",
    "minted",
    "read_device_code",
    "read_json",
    "renewed",
    "same_issuer",
    "seconds_of",
]

MAX_TOKEN_CHARACTERS: Final = 8 << 10  # egress/credentials/lent.py: the longest header field
MIN_TOKEN_CHARACTERS: Final = 8  # egress/credentials/lent.py: shorter ones cannot be found in an answer
MAX_ACCOUNT_CHARACTERS: Final = 320  # an e-mail address; vault/bindings.py takes no more
MAX_SCOPES: Final = 64  # vault/bindings.py; nobody reads a page that asks for more
MAX_LIFETIME_S: Final = 10 * 365 * 86400.0
"""Maximum lifetime of a token in seconds: ten years. A token that is valid for longer is renewed by then, or after a 401."""
_MAX_ID_TOKEN_CHARACTERS: Final = 32 << 10
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,256}")  # RFC 6749, appendix A: scope-token
_EMPTY_PATH: Final = re.compile(r"\A(https?://[^/?#]+)/\Z")
_DIGITS: Final = re.compile(r"[0-9]{1,12}")
_USER_CODE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,62}[\x21-\x7e])?")
_NO_REACH: Final = frozenset({"openid", "profile", "email", "address", "phone", "offline_access"})
"""Scopes that only control the contents of an ID token, and grant no other access: OpenID Connect Core 5.4 and 11."""
_ACCESS_TOKENS: Final = frozenset(
    ("urn:ietf:params:oauth:token-type:access_token", "urn:ietf:params:oauth:token-type:jwt")
)
"""The token types of an exchange that can be sent as a bearer token: RFC 8693, section 3."""
MAX_INTERVAL_S: Final = 60.0  # between two polls for a code; RFC 8628 says 5 if the provider gives none


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Expected:
    """The values that the provider's response to a sign-in must match."""

    host: str
    """The provider's host, for error messages."""
    client: Client
    scopes: tuple[str, ...]
    authorize_url: str
    issuer: str | None
    nonce: Secret | None


class GrantedTokens(msgspec.Struct, frozen=True):
    """The tokens that a provider issued, and the non-secret information about these tokens."""

    tokens: TokenSet
    grant: OAuthGrant


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Minted:
    """An access token that was issued without a sign-in. `lifetime_s` is the lifetime that the provider stated, or None if it
    stated none.
    """

    token: Secret
    lifetime_s: float | None


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class DeviceCode:
    """The response to a device authorization request: RFC 8628, section 3.2. Its times are in seconds."""

    device_code: Secret
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None
    expires_in_s: float
    interval_s: float


def read_json(data: bytes, host: str) -> JSONObject:
    """Parse a provider's response that must be a JSON object. Raises ProviderError(bad_answer) for anything else."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise said("bad_answer", host)
    return value


def granted(answer: JSONObject, expected: Expected, now: float) -> GrantedTokens:
    """Return the tokens from the response to a sign-in, received at `now` (s since the epoch). Raises ProviderError if the
    response is not as expected.
    """
    tokens = _tokens(answer, expected.host, expected.client, expected.scopes, now)
    _check_scopes(tokens.scopes, expected.scopes, expected.host)
    grant = OAuthGrant(
        scopes=tokens.scopes,
        obtained_ms=int(now * 1000),
        account=_account(answer, expected),
        refreshable=tokens.refresh is not None,
        expires_ms=_milliseconds(tokens.expires_at),
    )
    return GrantedTokens(tokens, grant)


def renewed(answer: JSONObject, before: TokenSet, grant: OAuthGrant, host: str, now: float) -> GrantedTokens:
    """Return the tokens from the response to a renewal. The refresh token and scopes in `before` and `grant` remain if
    the response has none. Raises ProviderError if the response is invalid.
    """
    tokens = _tokens(answer, host, before.client, before.scopes, now)
    if tokens.refresh is None:
        tokens = TokenSet(
            access=tokens.access,
            refresh=before.refresh,
            expires_at=tokens.expires_at,
            scopes=tokens.scopes,
            client=tokens.client,
        )
    after = OAuthGrant(
        scopes=tokens.scopes,
        obtained_ms=grant.obtained_ms,
        account=grant.account,
        refreshable=tokens.refresh is not None,
        expires_ms=_milliseconds(tokens.expires_at),
        refreshed_ms=int(now * 1000),
    )
    return GrantedTokens(tokens, after)


def minted(answer: JSONObject, grant: TokenGrant, host: str) -> Minted:
    """Return the token from the response to a request without a sign-in. A refresh token in the response is not used (RFC
    6749, 4.4.3). Raises ProviderError if the response is invalid.
    """
    if grant.grant == "token_exchange" and answer.get("issued_token_type") not in _ACCESS_TOKENS:
        raise said("bad_token_type" if "issued_token_type" in answer else "bad_answer", host)
    client = Client(client_id="", client_secret=None, token_url=grant.token_url, revocation_url=None)
    tokens = _tokens(answer, host, client, grant.scopes, 0.0)
    _check_scopes(tokens.scopes, grant.scopes, host)
    return Minted(tokens.access, tokens.expires_at)


def _check_scopes(found: tuple[str, ...], asked: tuple[str, ...], host: str) -> None:
    """Raise ProviderError(missing_scopes) unless all requested scopes (`asked`) are among those that were granted
    (`found`).
    """
    reach = [scope for scope in asked if scope not in found and scope not in _NO_REACH]
    if reach:
        error = said("missing_scopes", host)
        raise ProviderError(
            error.code, f"{error.sentence} (missing: {', '.join(map(visible, reach))})", retriable=False
        )


def read_device_code(answer: JSONObject, host: str) -> DeviceCode:
    """Read a device code from a response: RFC 8628, section 3.2. Raises ProviderError(bad_answer) if the response is invalid."""
    code, user_code = answer.get("device_code"), answer.get("user_code")
    uri = answer.get("verification_uri", answer.get("verification_url"))  # Google's name for it, from the drafts
    complete = answer.get("verification_uri_complete")
    lifetime, interval = seconds_of(answer.get("expires_in")), seconds_of(answer.get("interval", 5))
    if (
        not _is_token(code)
        or not isinstance(user_code, str)
        or not _USER_CODE.fullmatch(user_code)
        or not _is_page(uri)
        or not (complete is None or _is_page(complete))
        or not lifetime
        or interval is None
    ):
        raise said("bad_answer", host)
    return DeviceCode(
        device_code=Secret(code.encode()),
        user_code=user_code,
        verification_uri=uri,
        verification_uri_complete=complete,
        expires_in_s=min(lifetime, MAX_LIFETIME_S),
        interval_s=min(max(interval, 1.0), MAX_INTERVAL_S),
    )


def _tokens(answer: JSONObject, host: str, client: Client, asked: tuple[str, ...], now: float) -> TokenSet:
    kind = answer.get("token_type")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise said("bad_token_type" if kind is not None else "bad_answer", host)
    access, refresh = answer.get("access_token"), answer.get("refresh_token")
    refresh = None if refresh == "" else refresh  # as some providers write if there is none
    if not isinstance(access, str) or not isinstance(refresh, str | None):
        raise said("bad_answer", host)
    if not _is_token(access) or not (refresh is None or _is_token(refresh)):
        raise said("bad_token", host)
    lifetime = answer.get("expires_in")
    seconds = seconds_of(lifetime)
    if lifetime is not None and seconds is None:
        raise said("bad_answer", host)
    return TokenSet(
        access=Secret(access.encode()),
        refresh=None if refresh is None else Secret(refresh.encode()),
        expires_at=None if seconds is None else now + min(seconds, MAX_LIFETIME_S),
        scopes=_scopes(answer.get("scope"), asked, host),
        client=client,
    )


def _scopes(said_scope: object, asked: tuple[str, ...], host: str) -> tuple[str, ...]:
    """Return the scopes that a response grants (`said_scope`), sorted and without duplicates. If it states none, the
    requested scopes (`asked`) were granted (RFC 6749, section 5.1).
    """
    if said_scope is None or said_scope == "":
        return tuple(sorted(set(asked)))
    if not isinstance(said_scope, str):
        raise said("bad_answer", host)
    # Some providers separate scopes with commas. A scope can contain one (appendix A), so split there only if none of ours does.
    split = r"[ ]+" if any("," in scope for scope in asked) else r"[ ,]+"
    found = sorted({scope for scope in re.split(split, said_scope) if scope})
    if len(found) > MAX_SCOPES or not all(map(_SCOPE.fullmatch, found)):
        raise said("bad_answer", host)
    return tuple(found)


def seconds_of(value: object) -> float | None:
    """Return a value in a response as a number of seconds, or None if it is negative or not a number. Digits in a
    string are accepted too, because some providers send them.
    """
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return MAX_LIFETIME_S if value > 0 else None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _is_token(value: object) -> TypeGuard[str]:
    return (
        isinstance(value, str)
        and MIN_TOKEN_CHARACTERS <= len(value) <= MAX_TOKEN_CHARACTERS
        and _TOKEN.fullmatch(value) is not None
    )


def _is_page(value: object) -> TypeGuard[str]:
    if not isinstance(value, str) or len(value) > 2048:
        return False
    try:
        endpoint_url(value)
    except ProviderError:
        return False
    return True


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


# The ID token


def _account(answer: JSONObject, expected: Expected) -> str | None:
    """Return the account that signed in, for display, or None if the provider does not name the account. Raises
    ProviderError(bad_id_token) for an invalid ID token.
    """
    token = answer.get("id_token")
    if token is None:
        return None
    claims = _claims(token, expected.host)
    if not (_is_issuer(claims, expected) and _is_audience(claims, expected) and _is_nonce(claims, expected)):
        raise said("bad_id_token", expected.host)
    for name in ("email", "preferred_username", "sub"):
        value = claims.get(name)
        if isinstance(value, str) and value.strip():
            return _shown(value)
    return None


def _claims(token: object, host: str) -> JSONObject:
    parts = token.split(".") if isinstance(token, str) and len(token) <= _MAX_ID_TOKEN_CHARACTERS else []
    try:
        if len(parts) != 3:
            raise ValueError
        payload = parts[1].encode("ascii")
        decoded = base64.b64decode(payload + b"=" * (-len(payload) % 4), altchars=b"-_", validate=True)
        return read_json(decoded, host)
    except (ValueError, binascii.Error, ProviderError):
        pass
    raise said("bad_id_token", host)


def _is_issuer(claims: JSONObject, expected: Expected) -> bool:
    return is_issuer(claims.get("iss"), expected.issuer, expected.authorize_url)


def is_issuer(found: object, declared: str | None, authorize_url: str) -> bool:
    """Return whether `found`, the issuer that a response states, is the expected issuer: the declared issuer if there
    is one (same_issuer), otherwise an issuer with the origin of the authorization page.
    """
    if not isinstance(found, str):
        return False
    if declared is not None:
        return same_issuer(found, declared)
    try:
        return origin(endpoint_url(found)) == origin(endpoint_url(authorize_url))
    except ProviderError:
        return False


def same_issuer(issuer: str, other: str) -> bool:
    """Return whether two issuers are equal. The slash of an empty path is ignored, because large providers use both spellings.

    RFC 3986, section 6.2.3: `https://accounts.example.com` and `https://accounts.example.com/` are the same address.
    """
    return _EMPTY_PATH.sub(r"\1", issuer) == _EMPTY_PATH.sub(r"\1", other)


def _is_audience(claims: JSONObject, expected: Expected) -> bool:
    audience, client_id = claims.get("aud"), expected.client.client_id
    if isinstance(audience, list):
        return client_id in audience and (len(audience) == 1 or claims.get("azp") == client_id)
    return bool(audience == client_id)


def _is_nonce(claims: JSONObject, expected: Expected) -> bool:
    if expected.nonce is None:
        return True
    nonce = claims.get("nonce")
    return isinstance(nonce, str) and Secret(nonce.encode("utf-8", "replace")) == expected.nonce


def _shown(value: str) -> str:
    shown = visible(value[: MAX_ACCOUNT_CHARACTERS + 1])
    return shown if len(shown) <= MAX_ACCOUNT_CHARACTERS else shown[: MAX_ACCOUNT_CHARACTERS - 1] + "…"


# JSON


def _object(pairs: list[tuple[str, Any]]) -> JSONObject:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("duplicate key")
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not valid JSON")
