"""Revokes tokens at the provider that issued them.

Source: RFC 7009; docs/reference/bindings.md. Not here: deleting stored tokens (vault/).
"""

from __future__ import annotations

from typing import Final

import anyio

from aileron.model.credential import TokenSet
from aileron.model.secret import Secret
from aileron.oauth.endpoint import Endpoints
from aileron.oauth.problems import ProviderError

__all__ = ["revoked"]

_DEADLINE_S: Final = 10.0
"""Maximum seconds for the revocation of each of the two tokens: a person waits, and the tokens are deleted from the
vault even if it fails.
"""


async def revoked(endpoints: Endpoints, tokens: TokenSet) -> str:
    """Revoke tokens at their provider. Return `revoked`, `not offered`, or `failed: …`. Raises no exception."""
    url = tokens.client.revocation_url
    if url is None:
        return "not offered"
    problem = await _maybe_unrevoked(endpoints, url, tokens, tokens.access, "access_token")
    if tokens.refresh is not None:  # its result counts: some providers revoke the access token with it
        problem = await _maybe_unrevoked(endpoints, url, tokens, tokens.refresh, "refresh_token")
    return "revoked" if problem is None else f"failed: {problem}"


async def _maybe_unrevoked(endpoints: Endpoints, url: str, tokens: TokenSet, token: Secret, hint: str) -> str | None:
    """Revoke one of the tokens at the provider. Return the reason why it was not, or perhaps not, revoked; None if it
    was revoked.
    """
    form = {"token": token.reveal().decode("ascii"), "token_type_hint": hint}
    try:
        await endpoints.tell(url, form, tokens.client, anyio.current_time() + _DEADLINE_S)
    except ProviderError as error:
        # Some providers report this where RFC 7009 section 2.2 asks for 200: there is nothing left to revoke.
        return None if error.code == "invalid_token" else error.sentence
    return None
