"""`aileron connector new --from mcp+https://…`: asks an MCP server for its tools, and makes a connector of them.

Runs in the command, on the author's machine. The token with which the server lists is asked for or in AILERON_MCP_TOKEN, goes to
that server alone, and is written nowhere; the one that agents use is bound later, in the vault.

Source: docs/how-to/import-an-mcp-server.md. Not here: documents, and telling what was made (connector_import.py).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from aileron.cli import prompts
from aileron.cli.connector_import import Wanted, choices_of, file_of, paths_of, write_update
from aileron.cli.problem import Problem
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.importing.found import Described, FoundOperation
    from aileron.importing.mcp_listing import Listing, Token
    from aileron.importing.repository import Made
    from aileron.importing.updating import Update
    from aileron.model.names import Fqn

__all__ = ["TOKEN_VARIABLE", "import_server", "update_server"]

TOKEN_VARIABLE: Final = "AILERON_MCP_TOKEN"  # noqa: S105  (the name of a variable)
_AUTH: Final = re.compile(r"none|bearer|header:[A-Za-z0-9-]{1,64}")
_FIX: Final = "aileron connector new --help"


def import_server(name: Fqn, wanted: Wanted) -> Made:
    """Ask, choose, make. Problem(usage) for what cannot be done, with what to give instead."""
    from aileron.importing.mcp_tools import make_tools
    from aileron.importing.reading import DocumentError

    _check(wanted)
    try:
        listing, found = _asked(wanted, wanted.auth)
        return make_tools(listing, found, _chosen(found, wanted), name, choices_of(wanted))
    except DocumentError as error:
        raise Problem.usage(visible(str(error)), fix=_FIX) from None


def update_server(name: Fqn, directory: Path, wanted: Wanted) -> Update:
    """Ask again, for a repository that was made from the same server, and write it. Problem(usage)."""
    from aileron.importing.mcp_tools import make_tools
    from aileron.importing.reading import DocumentError
    from aileron.importing.record import RECORD, chosen_now, parse_record
    from aileron.importing.updating import chosen_again, compared

    _check(wanted)
    try:
        record = parse_record(file_of(directory, RECORD))
        record = msgspec.structs.replace(record, choices=chosen_now(record.choices, choices_of(wanted)))
        listing, found = _asked(wanted, record.choices.auth)
        chosen = {one.name for one in chosen_again(found, record)}
        chosen |= {one.name for one in (_chosen(found, wanted) if wanted.is_chosen else ())}
        operations = [one for one in found.operations if one.name in chosen]
        made = make_tools(listing, found, operations, name, record.choices)
        now = {path: file_of(directory, path) for path in paths_of(directory, record.texts)}
        done = compared(made, found, operations, record, now)
    except DocumentError as error:
        raise Problem.usage(visible(str(error)), fix=_FIX) from None
    write_update(directory, done)
    return done


def _check(wanted: Wanted) -> None:
    from aileron.importing.mcp_listing import is_server

    if len(wanted.sources) > 1 or not is_server(wanted.sources[0]):
        raise Problem.usage("an MCP server is one --from mcp+https://HOST/PATH", fix=_FIX)
    for option, value in (
        ("--tag", wanted.tags),
        ("--host", wanted.host),
        ("--variable", wanted.variables),
        ("--client-id", wanted.client_id),
        ("--fields", wanted.fields),
    ):
        if value:
            raise Problem.usage(f"{option} is for documents, and this is an MCP server", fix=_FIX)
    if not _AUTH.fullmatch(wanted.auth or "none"):
        auth = visible(wanted.auth or "")
        raise Problem.usage(f"--auth {auth[:64]}: expected bearer, header:NAME or none for an MCP server", fix=_FIX)


def _asked(wanted: Wanted, auth: str | None) -> tuple[Listing, Described]:
    from aileron.importing.mcp_listing import listed
    from aileron.importing.mcp_tools import described_tools

    listing = listed(wanted.sources[0], _token(auth))
    return listing, described_tools(listing)


def _token(auth: str | None) -> Token | None:
    """What the server wants to see before it lists: from the environment, or typed. None where there is none."""
    from aileron.importing.mcp_listing import Token

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


def _chosen(found: Described, wanted: Wanted) -> list[FoundOperation]:
    from aileron.importing.choosing import wanted as named

    if not wanted.is_chosen:
        return list(found.operations)
    ops = [op for text in wanted.ops for op in text.split(",") if op]
    return named(found, ops=ops, grep=wanted.grep, everything=wanted.everything)
