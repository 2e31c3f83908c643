"""A client of our own registered at a provider, for a manifest without a `client_id` (RFC 7591).

The document that is posted and what is believed of the answer. Runs in the daemon, at each sign-in: what was registered is for
that one redirect address, and is kept with the tokens, so that they are renewed and revoked by the client they were issued to.

Rules
- A public, native client: PKCE protects the flow, and no secret is asked for. One that is given all the same is kept with the
  tokens and sent in the form, as a publisher's. A provider that insists on another way is refused: ADR 23 has the reason.
- The answer may not change where the person is sent back to.
- Of the answer only the ID and the secret are kept. A `registration_access_token` is a way to change the client, which nobody
  here does: it is passed over, with everything else.
- Nothing that was read is quoted in an error.

Source: RFC 7591 sections 2 and 3, RFC 8252 section 8.5; docs/reference/sign-in.md. Not here: sending it (endpoint.py), reading
JSON (answers.py).
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeGuard

from aileron.model.credential import Client
from aileron.model.manifest import OAuth2Provider
from aileron.oauth.answers import seconds_of
from aileron.oauth.problems import said

__all__ = ["CLIENT_NAME", "MAX_CLIENT_CHARACTERS", "read_registration", "registration_request"]

CLIENT_NAME: Final = "Aileron"
"""What the provider's page calls who asks."""
MAX_CLIENT_CHARACTERS: Final = 2048
"""Of an ID or a secret: some providers keep nothing and put all they need to know into a signed one (RFC 7591, appendix A.5.2);
the ID travels in an address."""
_CLIENT: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_CLIENT_CHARACTERS}}}")
_DEVICE: Final = "urn:ietf:params:oauth:grant-type:device_code"


def registration_request(provider: OAuth2Provider, redirect_uri: str | None) -> dict[str, Any]:
    """The client's metadata. `redirect_uri` None: for a code on another device, which has no way back (RFC 8628)."""
    flow = (
        {"grant_types": [_DEVICE, "refresh_token"], "response_types": []}
        if redirect_uri is None
        else {
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
        }
    )
    scope = {"scope": " ".join(provider.scopes)} if provider.scopes else {}
    return {
        "client_name": CLIENT_NAME,
        "application_type": "native",
        "token_endpoint_auth_method": "none",
        **flow,
        **scope,
    }


def read_registration(
    answer: dict[str, Any], provider: OAuth2Provider, redirect_uri: str | None, host: str, now: float
) -> Client:
    """The client, from an answer received at `now` (s since the epoch). ProviderError(bad_answer, unsupported_client)."""
    client_id = answer.get("client_id")
    redirects = answer.get("redirect_uris")
    if not _is_client(client_id) or not _has_redirect(redirects, redirect_uri):
        raise said("bad_answer", host)
    return Client(
        client_id=client_id,
        client_secret=_maybe_secret(answer, host, now),
        token_url=provider.token_url,
        revocation_url=provider.revocation_url,
        resource=provider.resource,
        is_registered=True,
    )


def _maybe_secret(answer: dict[str, Any], host: str, now: float) -> str | None:
    """The secret that has to be sent. Where no method is named, one is needed if it was given."""
    secret, method = answer.get("client_secret"), answer.get("token_endpoint_auth_method")
    if secret is not None and not _is_client(secret):
        raise said("bad_answer", host)
    if method == "none" or (method is None and secret is None):
        return None
    if method not in (None, "client_secret_post"):
        raise said("unsupported_client", host)
    ends = seconds_of(answer.get("client_secret_expires_at", 0))  # since the epoch; 0: never
    if secret is None or ends is None or 0 < ends <= now:
        raise said("bad_answer", host)
    return secret


def _has_redirect(registered: object, redirect_uri: str | None) -> bool:
    """Whether this is still ours: not said, or among them (RFC 7591 section 3.2.1: a provider may replace what it was sent)."""
    if registered is None or redirect_uri is None:
        return True
    return isinstance(registered, list) and redirect_uri in registered


def _is_client(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _CLIENT.fullmatch(value) is not None
