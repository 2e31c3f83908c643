"""The author's sign-in at an MCP server that lists its tools only after a sign-in. The sign-in is used only for listing.

Runs in the author's command, with the daemon's OAuth code (aileron/oauth) and an egress engine in that command. All users of
the connector sign in for themselves, through the daemon.

Rules
- The token is only in this process's memory, until the `with` block ends. It is then revoked if the service supports that.
- The client is already registered (`client_id`), or identified by the address of its metadata, or registered by the sign-in.

Source: docs/how-to/import-an-mcp-server.md. Not here: where to sign in (authorization.py), asking the person to sign in (cli/).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

import anyio

from aileron.config import LiveSettings, Settings
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
"""Pattern of a client id, as in a manifest."""
_AGAIN: Final = "aileron connector import"
_NOTHING_LENT: Final = "nothing is lent in the author's command"
_T = TypeVar("_T")


def discovered(
    source: str, challenge: Bearer | None, settings: Settings, *, auth_server: str | None, scopes: Sequence[str]
) -> Authorization:
    """Return where a person signs in for the MCP server at `source`. `challenge` is the challenge in the server's
    response; None if the response has none.

    Raises DocumentError if the discovery fails; its subclass NoMetadataError if the server has no information about
    sign-ins.
    """
    url = address_of(source)

    async def find(egress: Egress) -> Authorization:
        return await Discovery(url, egress, settings).found(challenge, auth_server=auth_server, scopes=scopes)

    return _run(find, settings)


def check_client(found: Authorization, client_id: str | None) -> None:
    """Check that a person can sign in with the client `client_id` or, if that is None, with a client that the sign-in
    registers. Raises DocumentError if not.
    """
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
    """Sign in at an MCP server, and yield a token that is valid until the `with` block ends. Raises DocumentError if
    the sign-in fails.

    `invite` tells the person the address to open. `note` is called if the token could not be revoked.
    """
    url = parse_url(address_of(source))
    urls = [
        endpoint for endpoint in (found.token_url, found.registration_url, found.revocation_url) if endpoint is not None
    ]
    settings = settings_for(settings, url, urls)
    provider = _provider(found, client_id)

    async def sign_in(egress: Egress) -> TokenSet:
        async with SignIn(
            provider, Endpoints(egress, LiveSettings(settings)), flow="browser", again=_AGAIN
        ) as signing_in:
            invite(signing_in.invitation.authorize_url or "")
            return (await signing_in.finished()).tokens

    tokens = _run(sign_in, settings)
    try:
        yield Token("Authorization", f"Bearer {tokens.access.reveal().decode('ascii')}")
    finally:
        outcome = _run(lambda egress: revoked(Endpoints(egress, LiveSettings(settings)), tokens), settings)
        if outcome != "revoked":
            why = "the service has no address for that" if found.revocation_url is None else outcome
            note(f"the token of your sign-in was not revoked, and ends by itself ({why})")


def _provider(found: Authorization, client_id: str | None) -> OAuth2Provider:
    """Return the OAuth provider that was found, in the form in which a manifest declares it."""
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
    """Run `work` in a new event loop. An AileronError becomes a DocumentError."""

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
    """A lender in place of the vault, which this process does not have.

    It lends nothing, because no connector sends these requests.
    """

    def is_ready(self, use: CredentialUse | None, destination: HostPort) -> bool:
        """Return whether the request needs no credential, because none can be lent."""
        return use is None

    async def ready(self, use: CredentialUse | None, destination: HostPort, deadline: float) -> None:
        """Raise AssertionError, because no credential is lent here."""
        raise AssertionError(_NOTHING_LENT)

    async def renew(self, use: CredentialUse, refused: Secret, deadline: float) -> bool:
        """Raise AssertionError, because no credential is lent or renewed here."""
        raise AssertionError(_NOTHING_LENT)

    def lend(self, use: CredentialUse) -> contextlib.AbstractContextManager[LentCredential]:
        """Raise AssertionError, because no credential is lent here."""
        raise AssertionError(_NOTHING_LENT)

    def needles(self, destination: HostPort) -> Needles:
        """Return no needles (secrets to search for), because no credential is bound here."""
        return Needles(())

    def may_be_bound(self, destination: HostPort) -> bool:
        """Return False, because no credential is bound here."""
        return False
