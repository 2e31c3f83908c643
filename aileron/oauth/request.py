"""Builds the authorization request for a person's browser, with the three values that bind the provider's answer to this
request.

Pure, except for the randomness. The verifier is not sent before the authorization code has arrived; only its hash is in the
address.

Rules
- PKCE with S256, always. `state`, the verifier and the `nonce` are 32 random bytes each, for this one request.
- The redirect goes to `http://localhost:PORT/callback`, and to nothing else.
- Nothing is built for a manifest whose `client_id` or `client_secret` is a placeholder: such a value would identify another
  publisher's application, or none.
- A parameter that this module sets is never read from the manifest, neither from its `authorize_params` nor from the query of
  its URL.

Source: RFC 6749 section 4.1.1, RFC 7636, RFC 8252 section 7.3, RFC 8707 section 2, OpenID Connect Core
3.1.2.1. Not here: the answer (redirect.py).

>>> challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM'
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import secrets
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from aileron.egress.refusal import RefusedError
from aileron.egress.url import Url, parse_url
from aileron.model.manifest import OAuth2Provider
from aileron.model.secret import Secret
from aileron.oauth.problems import SIGN_IN, ProviderError

__all__ = [
    "OURS",
    "AuthorizationRequest",
    "authorization_request",
    "challenge",
    "check_provider",
    "endpoint_url",
    "origin",
    "redirect_uri_at",
]

RANDOM_BYTES: Final = 32  # 256 bits, as RFC 7636 section 7.1 asks for; nobody can guess them
OURS: Final = frozenset(
    "client_id client_secret redirect_uri response_type response_mode scope state nonce code_challenge code_challenge_method "
    "request request_uri resource".split()
)
"""Parameters of an authorization request that a manifest cannot set: those that this module sets, and those that would
replace them.
"""
_PLACEHOLDER: Final = re.compile(r"^\s*$|^bound-at-|placeholder|change-?me|your[-_ ]|[<>]|x{5}", re.IGNORECASE)
_DOCUMENT: Final = re.compile(r"https://[a-z0-9.-]+(?::[0-9]+)?/[^<>\s]*")
"""Pattern of the address of a client ID metadata document. The owner of the document chooses host and path freely."""
_LOOPBACK: Final = re.compile(r"localhost|127(?:\.[0-9]{1,3}){3}")


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class AuthorizationRequest:
    """An authorization request. `url` is for the person's browser; the other values stay here until the answer arrives."""

    url: str
    redirect_uri: str
    state: Secret
    verifier: Secret
    nonce: Secret | None
    """The nonce that the ID token must contain, if one is requested (scope `openid`); otherwise None."""


def authorization_request(
    provider: OAuth2Provider, client_id: str, port: int, *, random: Callable[[int], bytes] = secrets.token_bytes
) -> AuthorizationRequest:
    """Return the authorization request of the client `client_id`, for an answer that is delivered at `port` of this
    machine. Raises ProviderError if the provider's description is invalid.
    """
    check_provider(provider)
    url = endpoint_url(provider.authorize_url)
    state, verifier = _word(random), _word(random)
    nonce = _word(random) if "openid" in provider.scopes else None
    redirect_uri = redirect_uri_at(port)
    asked = {
        **dict(provider.authorize_params),
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge(verifier),
        "code_challenge_method": "S256",
    }
    if provider.scopes:
        asked["scope"] = " ".join(provider.scopes)
    if provider.resource is not None:
        asked["resource"] = provider.resource
    if nonce is not None:
        asked["nonce"] = nonce
    joint = "?" if url.query is None else "&"
    return AuthorizationRequest(
        url=f"{provider.authorize_url}{joint}{urlencode(asked, quote_via=quote)}",
        redirect_uri=redirect_uri,
        state=Secret(state.encode()),
        verifier=Secret(verifier.encode()),
        nonce=None if nonce is None else Secret(nonce.encode()),
    )


def redirect_uri_at(port: int) -> str:
    """Return the address to which the provider redirects the person's browser (RFC 8252, section 7.3)."""
    return f"http://localhost:{port}/callback"


def challenge(verifier: str) -> str:
    """Return the S256 code challenge for a code verifier (RFC 7636, section 4.2)."""
    return _base64url(hashlib.sha256(verifier.encode("ascii")).digest())


def check_provider(provider: OAuth2Provider) -> None:
    """Raise ProviderError for an unusable manifest: `placeholder` if it is not released, or `bad_provider` if it sets a
    parameter that only this module may set.
    """
    for value in (provider.client_id, provider.client_secret):
        if value is not None and _PLACEHOLDER.search(value) and not _DOCUMENT.fullmatch(value):
            raise ProviderError("placeholder", SIGN_IN["placeholder"].what, retriable=False, was_sent=False)
    query = endpoint_url(provider.authorize_url).query or ""
    names = {name for name, _ in (*provider.authorize_params, *parse_qsl(query, keep_blank_values=True))}
    if not OURS.isdisjoint(names):
        raise _bad_provider(f"it sets {', '.join(sorted(OURS & names))}")


def endpoint_url(text: str) -> Url:
    """Parse a provider's address: https, or http on this machine. Raises ProviderError(bad_provider) for any other address."""
    try:
        url = parse_url(text)
    except RefusedError as error:
        words = str(error)
    else:
        if url.scheme == "https" or _LOOPBACK.fullmatch(url.host):
            return url
        words = "an address is not https"
    raise _bad_provider(words)


def origin(url: Url) -> str:
    """Return the origin of a URL: scheme and host, with the port unless it is the scheme's default."""
    return f"{url.scheme}://{url.authority}"


def _bad_provider(why: str) -> ProviderError:
    return ProviderError("bad_provider", f"{SIGN_IN['bad_provider'].what} ({why})", retriable=False, was_sent=False)


def _word(random: Callable[[int], bytes]) -> str:
    return _base64url(random(RANDOM_BYTES))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
