"""The author's sign-in at an MCP server that lists its tools only then: with what was found, and for that alone.

Runs in the author's command, with the daemon's own machinery (aileron/oauth) over an egress of the command's. Everybody who uses
the connector signs in for themselves, through the daemon.

Rules
- The token is in this process's memory until the block is left, and in no file. Then it is revoked if the service can do that.
- A client is one that is registered already (`client_id`), or the address of its own metadata, or registered by the sign-in.

Source: docs/how-to/import-an-mcp-server.md. Not here: where to sign in (authorization.py), inviting the person (cli/).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

import anyio

from aileron.config import Settings
from aileron.egress import Egress, LentCredential
from aileron.egress.scrub import Needles
from aileron.egress.url import parse_url
from aileron.importing.authorization import Authorization, Discovery, settings_for
from aileron.importing.challenges import Bearer
from aileron.importing.mcp_listing import Token, address_of
from aileron.importing.reading import DocumentError
from aileron.model.credential import TokenSet
from aileron.model.failure import AileronError
from aileron.model.manifest import OAuth2Provider
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.oauth.endpoint import Endpoints
from aileron.oauth.revoke import revoked
from aileron.oauth.signin import SignIn

__all__ = ["check_client", "discovered", "listing_token"]

_CLIENT: Final = re.compile(r"[\x20-\x7e]{1,512}")
"""Form of a client id, as in a manifest."""
_AGAIN: Final = "aileron connector new"
_NOTHING_LENT: Final = "nothing is lent in the author's command"
_T = TypeVar("_T")


def discovered(
    source: str, challenge: Bearer | None, settings: Settings, *, auth_server: str | None, scopes: Sequence[str]
) -> Authorization:
    """Find where to sign in for the server.

    DocumentError; its subclass NoMetadataError if the server says nothing about sign-ins.
    """
    url = address_of(source)

    async def find(egress: Egress) -> Authorization:
        return await Discovery(url, egress, settings).found(challenge, auth_server=auth_server, scopes=scopes)

    return _run(find, settings)


def check_client(found: Authorization, client_id: str | None) -> None:
    """Check that a person can sign in with this client, or with one that the sign-in registers. DocumentError if not."""
    if client_id is not None and not _CLIENT.fullmatch(client_id):
        raise DocumentError("--client-id is empty, longer than 512 characters or not printable ASCII")
    if client_id is not None and client_id.startswith("https://") and not found.takes_documents:
        raise DocumentError(
            f"--client-id {client_id[:200]}: {found.issuer} does not take the address of a client's metadata; give the ID "
            "of an application that is registered there, or leave it out"
        )
    if client_id is None and found.registration_url is None:
        document = (
            "; or give --client-id https://…, the address of metadata of your own" if found.takes_documents else ""
        )
        raise DocumentError(
            f"{found.issuer} registers no clients by itself: register an application there as a native (public) client, with the "
            f"redirect address http://localhost/callback, and give its --client-id ID{document}"
        )


@contextlib.contextmanager
def listing_token(
    source: str,
    found: Authorization,
    client_id: str | None,
    settings: Settings,
    invite: Callable[[str], None],
    note: Callable[[str], None],
) -> Iterator[Token]:
    """Sign in, and yield a token that is valid until the block is left. DocumentError.

    `invite` tells the person the address to open. `note` is told if the token is not revoked.
    """
    url = parse_url(address_of(source))
    urls = [one for one in (found.token_url, found.registration_url, found.revocation_url) if one is not None]
    settings = settings_for(settings, url, urls)
    provider = _provider(found, client_id)

    async def sign_in(egress: Egress) -> TokenSet:
        async with SignIn(provider, Endpoints(egress, settings), flow="browser", again=_AGAIN) as signing_in:
            invite(signing_in.invitation.authorize_url or "")
            return (await signing_in.finished()).tokens

    tokens = _run(sign_in, settings)
    try:
        yield Token("Authorization", f"Bearer {tokens.access.reveal().decode('ascii')}")
    finally:
        outcome = _run(lambda egress: revoked(Endpoints(egress, settings), tokens), settings)
        if outcome != "revoked":
            why = "the service has no address for that" if found.revocation_url is None else outcome
            note(f"the token of your sign-in was not revoked, and ends by itself ({why})")


def _provider(found: Authorization, client_id: str | None) -> OAuth2Provider:
    """Return the provider as the manifest has it."""
    return OAuth2Provider(
        authorize_url=found.authorize_url,
        token_url=found.token_url,
        client_id=client_id,
        registration_url=None if client_id else found.registration_url,
        resource=found.resource,
        scopes=found.scopes,
        issuer=found.issuer,
        issuer_in_answer=found.names_issuer,
        revocation_url=found.revocation_url,
    )


def _run(work: Callable[[Egress], Awaitable[_T]], settings: Settings) -> _T:
    """Run `work` in an event loop of its own. AileronError becomes DocumentError."""

    async def run() -> _T:
        async with _egress(settings) as egress:
            return await work(egress)

    try:
        return anyio.run(run)
    except AileronError as error:
        problem = error.failure.message
    raise DocumentError(problem)


@contextlib.asynccontextmanager
async def _egress(settings: Settings) -> AsyncIterator[Egress]:
    egress = Egress(settings, _NoLender())
    try:
        yield egress
    finally:
        await egress.aclose()


class _NoLender:
    """A lender in place of the vault, which this process does not have: the requests here are no connector's."""

    def is_ready(self, use: CredentialUse | None, destination: HostPort) -> bool:
        """Return whether no credential is asked for: none can be lent."""
        return use is None

    async def ready(self, use: CredentialUse | None, destination: HostPort, deadline: float) -> None:
        """Raise AssertionError: no credential is lent here."""
        raise AssertionError(_NOTHING_LENT)

    async def renew(self, use: CredentialUse, refused: Secret, deadline: float) -> bool:
        """Raise AssertionError: no credential is lent here, so none is renewed."""
        raise AssertionError(_NOTHING_LENT)

    def lend(self, use: CredentialUse) -> contextlib.AbstractContextManager[LentCredential]:
        """Raise AssertionError: no credential is lent here."""
        raise AssertionError(_NOTHING_LENT)

    def needles(self, destination: HostPort) -> Needles:
        """Return no needles: no credential is bound here."""
        return Needles(())

    def may_be_bound(self, destination: HostPort) -> bool:
        """Return False: no credential is bound here."""
        return False
