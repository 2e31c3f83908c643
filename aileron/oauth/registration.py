"""Registers a client at a provider, for a manifest without a `client_id` (RFC 7591).

This module builds the document that is posted, and reads the response. Runs in the daemon, at each sign-in: the client is
registered for the redirect address of that sign-in only. It is stored with the tokens, so that the client to which the tokens
were issued renews and revokes them.

Rules
- It is a public, native client: PKCE protects the flow, and no secret is requested. If the provider issues a secret
  nevertheless, the secret is stored with the tokens and sent in the form, like a publisher's secret. A provider that requires
  another authentication method is refused; ADR 23 has the reason.
- The response must not change the redirect address.
- Only the ID and the secret are stored from the response. A `registration_access_token` would allow changes to the client,
  which are never made here. It is ignored, like everything else.
- An error quotes nothing from the response.

Source: RFC 7591 sections 2 and 3, RFC 8252 section 8.5; docs/reference/sign-in.md. Not here: sending the document
(endpoint.py), reading JSON (answers.py).
"""

from __future__ import annotations

import re
from typing import Final, TypeGuard

from aileron.model.credential import Client
from aileron.model.json_value import JSONObject
from aileron.model.manifest import OAuth2Provider
from aileron.oauth.answers import seconds_of
from aileron.oauth.problems import said

__all__ = ["CLIENT_NAME", "MAX_CLIENT_CHARACTERS", "read_registration", "registration_request"]

CLIENT_NAME: Final = "Aileron"
"""The name of a registered client, which the provider's page shows."""
MAX_CLIENT_CHARACTERS: Final = 2048
"""Maximum number of characters of a client's ID or secret. Some providers do not store their clients, but put all data
that they need into a signed ID (RFC 7591, appendix A.5.2). The ID is sent in an address.
"""
_CLIENT: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_CLIENT_CHARACTERS}}}")
_DEVICE: Final = "urn:ietf:params:oauth:grant-type:device_code"


def registration_request(provider: OAuth2Provider, redirect_uri: str | None) -> JSONObject:
    """Return the metadata of the client to register. `redirect_uri` is None for a sign-in with a code on another device, which
    has no redirect (RFC 8628).
    """
    flow: JSONObject = (
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
    answer: JSONObject, provider: OAuth2Provider, redirect_uri: str | None, host: str, now: float
) -> Client:
    """Return the client that a response to a registration describes, received at `now` (s since the epoch). Raises
    ProviderError: bad_answer if the response is invalid, unsupported_client if the client cannot be used here.
    """
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


def _maybe_secret(answer: JSONObject, host: str, now: float) -> str | None:
    """Return the client's secret from the response to a registration, or None if the client sends none. If the response
    specifies no authentication method, the secret is sent if there is one.
    """
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
    """Return whether the provider registered the redirect address: it is in the response's list, or the response has no
    list, or no address was sent.

    A provider can replace the values that were sent to it (RFC 7591 section 3.2.1).
    """
    if registered is None or redirect_uri is None:
        return True
    return isinstance(registered, list) and redirect_uri in registered


def _is_client(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _CLIENT.fullmatch(value) is not None
