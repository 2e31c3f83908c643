"""`aileron connector import mcp+https://…`: lists the tools of an MCP server.

Runs in the command, on the author's machine. The token for listing comes from AILERON_MCP_TOKEN, a prompt, or a sign-in of the
author. It goes only to that server and is stored nowhere. The credential that agents use is bound later, in the vault.

Rules
- Without --auth the server decides: it lists its tools, says where to sign in for them, or wants a token that the author has to
  give.
- The provider and the scopes of the sign-in are shown before a page opens, because both may have changed since the
  import.
- The connector's manifest keeps what was found, and its record what was chosen: an update signs in the same way.

Source: docs/how-to/import-an-mcp-server.md. Not here: choosing among the tools, updating a repository, and reporting
what was made (connector_import.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from aileron.cli import output, prompts
from aileron.cli.connector_import import Source, Wanted
from aileron.cli.problem import Problem, local_work
from aileron.cli.signin import browser, ended_when_gone, invite_in_browser
from aileron.config import Settings, load_settings
from aileron.home import Home
from aileron.importing.authorization import Authorization, NoMetadataError
from aileron.importing.mcp_listing import Listing, Token, UnauthorizedError, is_server, listed
from aileron.importing.mcp_tools import described_tools, make_tools
from aileron.importing.reading import DocumentError
from aileron.importing.record import Choices, chosen_now
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.model.names import Fqn

__all__ = ["TOKEN_VARIABLE", "server_source"]

TOKEN_VARIABLE: Final = "AILERON_MCP_TOKEN"  # noqa: S105  (the name of a variable)
_AUTH: Final = re.compile(r"none|bearer|oauth2|header:[A-Za-z0-9-]{1,64}")
_FIX: Final = "aileron connector import --help"


def server_source(name: Fqn, wanted: Wanted, before: Choices | None) -> Source:
    """List the tools of an MCP server. `before` are the choices of an earlier import, or None.

    Raises Problem(usage) if an option or the settings prevent it, DocumentError if the server does not list its tools.
    """
    _check(wanted)
    choices = wanted.choices if before is None else chosen_now(before, wanted.choices)
    listing = _asked(wanted, choices)
    if listing.authorization is not None:  # recorded, so that an update does not find out again
        choices = msgspec.structs.replace(choices, auth="oauth2")
    found = described_tools(listing)
    return Source(found, lambda operations: make_tools(listing, found, operations, name, choices))


def _check(wanted: Wanted) -> None:
    if len(wanted.sources) > 1 or not is_server(wanted.sources[0]):
        raise Problem.usage("an MCP server is one SOURCE, mcp+https://HOST/PATH, without --also", fix=_FIX)
    auth = wanted.choices.auth or "none"
    if not _AUTH.fullmatch(auth):
        raise Problem.usage(
            f"--auth {visible(auth)[:64]}: expected oauth2, bearer, header:NAME or none for an MCP server", fix=_FIX
        )


def _check_signs_in(wanted: Wanted, auth: str | None) -> None:
    """Check that options for signing in to the server are not combined with an option for another credential.

    `auth` is the option given now or at the import. Raises Problem(usage) otherwise.
    """
    signing_in = {
        "--client-id": wanted.choices.client_id,
        "--auth-server": wanted.choices.auth_server,
        "--scope": wanted.choices.scopes,
        "--no-browser": wanted.no_browser,
    }
    for option, is_given in signing_in.items():
        if is_given and auth not in (None, "oauth2"):
            raise Problem.usage(f"{option} is for signing in, and --auth {auth} does not", fix="--auth oauth2")


# Asking the server


def _asked(wanted: Wanted, choices: Choices) -> Listing:
    """Return the server's tools, and where to sign in for them if the server requires that.

    Raises DocumentError if the server does not list its tools, Problem if an option or the settings prevent it.
    """
    _check_signs_in(wanted, choices.auth)
    source, settings = wanted.sources[0], _settings()
    if choices.auth not in (None, "oauth2"):
        return listed(source, _token(choices.auth), ca_pem=settings.egress_ca_pem)
    refused = None
    try:
        found = listed(source, ca_pem=settings.egress_ca_pem)
    except UnauthorizedError as error:
        refused = error
    except DocumentError:  # some servers do not answer 401 to a client without a token
        if choices.auth is None:
            raise
    if refused is None and choices.auth is None:
        _check_unused(choices)
        return found
    authorization = _authorization(source, refused, settings, choices)
    return _listed_with(authorization, wanted, choices, settings)


def _check_unused(choices: Choices) -> None:
    """Check that no option for signing in was given for a server that lists its tools without a sign-in. Raises
    Problem(usage) otherwise.
    """
    said = {"--client-id": choices.client_id, "--auth-server": choices.auth_server, "--scope": choices.scopes}
    for option, is_given in said.items():
        if is_given:
            raise Problem.usage(f"{option}: the server lists its tools without a sign-in", fix="--auth oauth2")


def _settings() -> Settings:
    """Return the settings of the user's home, whose private networks and certificate authority apply to imports too.

    Raises Problem for an invalid file.
    """
    with local_work():
        return load_settings(Home.from_environment().config)


def _authorization(
    source: str, refused: UnauthorizedError | None, settings: Settings, choices: Choices
) -> Authorization:
    """Return where a person must sign in so that the server lists its tools, and with which scopes.

    Unless an option demands a sign-in, raises `refused` if the server has no information about sign-ins, or if it
    refused with 403 for a reason other than `insufficient_scope`. Raises DocumentError if the discovery fails
    otherwise, or if no one can sign in with the client.
    """
    from aileron.importing.mcp_signin import check_client, discovered

    challenge = None if refused is None else refused.challenge
    is_demanded = choices.auth is not None
    if (
        refused is not None
        and refused.status == 403
        and not is_demanded
        and (challenge is None or challenge.error != "insufficient_scope")
    ):
        raise refused
    try:
        found = discovered(source, challenge, settings, auth_server=choices.auth_server, scopes=tuple(choices.scopes))
    except NoMetadataError:
        if refused is None or is_demanded:
            raise
        raise refused from None
    check_client(found, choices.client_id)
    return found


def _listed_with(found: Authorization, wanted: Wanted, choices: Choices, settings: Settings) -> Listing:
    """List the tools with the token in the environment, or with the token of a sign-in, which is revoked afterwards."""
    from aileron.importing.mcp_signin import listing_token

    source, ca_pem = wanted.sources[0], settings.egress_ca_pem
    if os.environ.get(TOKEN_VARIABLE):
        listing = listed(source, _token("bearer"), ca_pem=ca_pem)
    else:
        if not (wanted.no_browser or prompts.can_ask()):
            raise Problem.usage(
                f"the server lists its tools to who signs in at {visible(found.issuer)}, and there is no terminal: give "
                f"--no-browser, or a token in {TOKEN_VARIABLE}"
            )
        scopes = " ".join(found.scopes) or "none: the service decides"
        _note(f"You sign in at {found.issuer} for {found.resource}, with the scopes {scopes}.")
        invite = _inviter(no_browser=wanted.no_browser)
        with ended_when_gone(), listing_token(source, found, choices.client_id, settings, invite, _note) as token:
            listing = _listed_by_who_signed_in(source, found, token, ca_pem)
    return msgspec.structs.replace(listing, authorization=found)


def _listed_by_who_signed_in(source: str, found: Authorization, token: Token, ca_pem: str | None) -> Listing:
    try:
        return listed(source, token, ca_pem=ca_pem)
    except UnauthorizedError as error:
        wanted = set(() if error.challenge is None else error.challenge.scopes) - set(found.scopes)
        status = error.status
    scopes = ",".join([*found.scopes, *sorted(wanted)])
    fix = f"it wants more scopes than it asked for: --scope {scopes}" if wanted else "tell the service"
    raise DocumentError(f"the server refuses the token of your sign-in (status {status}); {fix}")


def _inviter(*, no_browser: bool) -> Callable[[str], None]:
    opener = None if no_browser else browser()

    def invite(address: str) -> None:
        invite_in_browser(address, opener)
        output.note("The sign-in is for listing the tools, and is stored nowhere. Press Ctrl-C to cancel.")

    return invite


def _note(words: str) -> None:
    output.note(visible(words))


def _token(auth: str | None) -> Token | None:
    """Return the token for listing the tools, from the environment or typed by the person.

    None if no token is needed or given.
    """
    if auth is None or auth == "none":
        return None
    value = os.environ.get(TOKEN_VARIABLE, "")
    if not value and prompts.can_ask():
        value = prompts.ask_unseen("Token for listing the tools (not stored)")
    if not value:
        return None
    if not (value.isascii() and value.isprintable()):
        raise Problem.usage(f"{TOKEN_VARIABLE} has characters that a header cannot have")
    header = auth.removeprefix("header:")
    if header.lower() in ("bearer", "authorization"):  # as the manifest has it (importing/security.py)
        return Token("Authorization", f"Bearer {value}")
    return Token(header, value)
