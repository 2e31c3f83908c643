"""`aileron connector import`: a connector's repository from an OpenAPI document or a remote MCP server.

Runs here, without a daemon. aileron/cli/connector_import.py imports and reports the result; this module has the options.

Source: docs/how-to/import-an-api.md, docs/how-to/import-an-mcp-server.md, docs/reference/cli.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from aileron.cli import output
from aileron.cli.commands.connector_new import Directory, Key, Name
from aileron.cli.commands.options import AsJson
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.problem import FAILED, Problem
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.cli.new_repository import NewRepository
    from aileron.importing.repository import Made

__all__ = ["import_"]

_COMMAND: Final = "aileron connector import SOURCE"


def import_(
    source: Annotated[
        str,
        Argument(metavar="SOURCE", help="File or URL of an OpenAPI document, or mcp+https://… for an MCP server."),
    ],
    name: Name,
    directory: Directory = None,
    also: Annotated[
        list[str] | None,
        Option("--also", metavar="PATH", help="Another file of the document, or a folder of them. Repeatable."),
    ] = None,
    ops: Annotated[
        list[str] | None, Option("--ops", metavar="OP,OP", help="Import these operations. Repeatable.")
    ] = None,
    tag: Annotated[
        list[str] | None, Option("--tag", metavar="TAG", help="Import the operations with this tag. Repeatable.")
    ] = None,
    grep: Annotated[
        str, Option("--grep", metavar="TEXT", help="Import operations whose name, path or words have TEXT.")
    ] = "",
    everything: Annotated[bool, Option("--all", help="Import every operation.")] = False,
    auth: Annotated[
        str | None,
        Option(
            "--auth",
            metavar="HOW",
            help="Credential: oauth2, bearer, basic, header:NAME[=FORM], query:NAME, none, or a document's scheme.",
        ),
    ] = None,
    trust_read_only: Annotated[
        bool, Option("--trust-read-only", help="Run tools that an MCP server calls read-only without a person.")
    ] = False,
    update: Annotated[
        bool,
        Option("--update", help="DIR was made from an older document: change it. Your own changes are kept."),
    ] = False,
    server: Annotated[str | None, Option("--server", metavar="URL", help="Address of the API, with its path.")] = None,
    host: Annotated[
        str | None,
        Option("--host", metavar="NAME:PORT", help="Host to call instead of the document's, or bound-at-build."),
    ] = None,
    variable: Annotated[
        list[str] | None,
        Option("--variable", metavar="NAME=VALUE", help="Variable of the document's server URL. Repeatable."),
    ] = None,
    client_id: Annotated[
        str | None, Option("--client-id", metavar="ID", help="Your OAuth application at the provider.")
    ] = None,
    auth_server: Annotated[
        str | None,
        Option("--auth-server", metavar="URL", help="Where to sign in, of several that an MCP server names."),
    ] = None,
    scope: Annotated[
        list[str] | None,
        Option("--scope", metavar="SCOPE,SCOPE", help="Ask an MCP server for these OAuth scopes. Repeatable."),
    ] = None,
    no_browser: Annotated[
        bool,
        Option("--no-browser", help="Print the address of a sign-in at an MCP server and open no browser."),
    ] = False,
    fields: Annotated[
        list[str] | None,
        Option(
            "--fields",
            metavar="OP=FIELD,FIELD",
            help="Fields that OP returns of each member of a large list. Repeatable.",
        ),
    ] = None,
    rename: Annotated[
        list[str] | None,
        Option("--rename", metavar="OP=NAME", help="Name of OP in your connector. Repeatable."),
    ] = None,
    answer_depth: Annotated[
        int | None,
        Option(
            "--answer-depth",
            metavar="N",
            min=1,
            help="Describe answers only N references deep, so that the document is smaller.",
        ),
    ] = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Create a connector from an OpenAPI document or MCP server.

    Operations that only read need no approval; every other operation waits for a person. Without --ops, --tag, --grep or
    --all, you choose from a list, or get the operations that read. You also get a signing key, outside the repository. An
    existing key is reused.

    From an MCP server, each tool becomes an action that waits for a person. If the server wants a sign-in, you sign in so that
    its tools can be listed.
    """
    from aileron.cli.connector_import import (
        Wanted,
        choices_of,
        import_source,
        tell_made,
        tell_updated,
        update_source,
    )
    from aileron.cli.new_repository import NewRepository
    from aileron.cli.template import imported_repository

    place = NewRepository.of(name, directory, key, command=_COMMAND)
    if server is not None and host is not None:
        raise Problem.usage("--server and --host cannot be used together", fix="aileron connector import --help")
    choices = choices_of(
        source,
        server=server,
        host=host,
        variables=variable or (),
        auth=auth,
        client_id=client_id,
        auth_server=auth_server,
        scopes=scope or (),
        trust_read_only=trust_read_only,
        fields=fields or (),
        names=rename or (),
        answer_depth=answer_depth,
    )
    wanted = Wanted(
        sources=(source, *(also or ())),
        choices=choices,
        ops=ops or (),
        tags=tag or (),
        grep=grep,
        everything=everything,
        no_browser=no_browser,
    )
    if wanted.is_server:
        from aileron.cli.connector_import_server import server_source as read
    else:
        from aileron.cli.connector_import import document_source as read
    if update:
        done = update_source(place.name, place.directory, wanted, read)
        tell_updated(done, place.directory, as_json=as_json)
        raise Exit(FAILED if done.conflicts else 0)
    place.check_place(fix=f"{_COMMAND} {name} DIR; --update, if it was made from an older document")
    made = import_source(place.name, wanted, read)
    written = place.write(
        lambda public: imported_repository(place.name, made, public, place.key_file.name), may_have_key=True
    )
    facts = {"directory": str(place.directory), "name": str(place.name)}
    if as_json:
        facts |= {"fingerprint": written.fingerprint, "signing_key": str(place.key_file)}
    tell_made(made, facts, as_json=as_json)
    _tell_next(place, made, is_new_key=written.is_new_key)


def _tell_next(place: NewRepository, made: Made, *, is_new_key: bool) -> None:
    """Print the commands to type next. The command about the key comes last, because the key matters only for
    publishing.
    """
    directory = visible(str(place.directory))
    output.note(f"\nnext:              aileron connector test {directory}")
    output.note(f"to use it here:    aileron connector install {directory}")
    output.note(f"                   aileron action add {directory}")
    if made.credential.kind is not None:
        output.note(f"                   aileron binding setup {place.name}")
    held = "" if is_new_key else ", which was there already"
    output.note(f"to publish it:     keep {visible(str(place.key_file))}, the key that signs it{held}")
