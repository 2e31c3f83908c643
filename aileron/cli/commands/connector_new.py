"""`aileron connector new`: a connector's repository, from a template, an OpenAPI document or an MCP server.

Runs here, without a daemon. connector_import.py imports and reports the result; this module has the options, the key, and the
writing of files.

Source: docs/how-to/publish-a-connector.md, docs/how-to/import-an-api.md, docs/reference/cli.md.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self

from aileron.cli import output
from aileron.cli.commands.options import AsJson
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.problem import FAILED, Problem
from aileron.cli.publisher import KEY_VARIABLE, maybe_signing_key, write_new_key
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.cli.connector_import import Wanted
    from aileron.importing.repository import Made
    from aileron.model.names import Fqn, HostPort
    from aileron.registry.signatures import SigningKey

__all__ = ["new"]


class Lang(enum.StrEnum):
    """Programming languages of a new connector."""

    PYTHON = "python"
    C = "c"


def new(
    name: Annotated[str, Argument(metavar="NAME", help="Full name, such as github://OWNER/REPOSITORY.")],
    directory: Annotated[
        Path | None, Argument(metavar="DIR", help="Directory to create. Default: the last part of NAME.")
    ] = None,
    op: Annotated[
        list[str] | None,
        Option("--op", metavar="OP", help="Operation to create, such as delete_note. Repeatable."),
    ] = None,
    host: Annotated[
        str | None,
        Option(
            "--host",
            metavar="NAME:PORT",
            help="Host of the service to call, or bound-at-build with --from.",
        ),
    ] = None,
    lang: Annotated[Lang, Option("--lang", help="Programming language.")] = Lang.PYTHON,
    source: Annotated[
        list[str] | None,
        Option(
            "--from",
            metavar="FILE|URL",
            help="OpenAPI document, or mcp+https://… for an MCP server. Repeatable, for a document's other files.",
        ),
    ] = None,
    ops: Annotated[
        list[str] | None,
        Option("--ops", metavar="OP,OP", help="With --from: import these operations. Repeatable."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        Option("--tag", metavar="TAG", help="With --from: import the operations with this tag. Repeatable."),
    ] = None,
    grep: Annotated[
        str,
        Option("--grep", metavar="TEXT", help="With --from: import operations whose name, path or words have TEXT."),
    ] = "",
    everything: Annotated[bool, Option("--all", help="With --from: import every operation.")] = False,
    auth: Annotated[
        str | None,
        Option(
            "--auth",
            metavar="HOW",
            help="With --from: oauth2, bearer, basic, header:NAME[=FORM], query:NAME, none, or a document's scheme.",
        ),
    ] = None,
    trust_read_only: Annotated[
        bool,
        Option(
            "--trust-read-only", help="With --from mcp+…: run tools that the server calls read-only without a person."
        ),
    ] = False,
    update: Annotated[
        bool,
        Option("--update", help="With --from: DIR was made from an older document. Your own changes are kept."),
    ] = False,
    server: Annotated[
        str | None,
        Option("--server", metavar="URL", help="With --from: address of the API, with its path."),
    ] = None,
    variable: Annotated[
        list[str] | None,
        Option(
            "--variable", metavar="NAME=VALUE", help="With --from: variable of the document's server URL. Repeatable."
        ),
    ] = None,
    client_id: Annotated[
        str | None,
        Option("--client-id", metavar="ID", help="With --from: your OAuth application at the provider."),
    ] = None,
    auth_server: Annotated[
        str | None,
        Option(
            "--auth-server",
            metavar="URL",
            help="With --from mcp+…: where to sign in, of several that the server names.",
        ),
    ] = None,
    scope: Annotated[
        list[str] | None,
        Option("--scope", metavar="SCOPE,SCOPE", help="With --from mcp+…: ask for these OAuth scopes. Repeatable."),
    ] = None,
    no_browser: Annotated[
        bool,
        Option("--no-browser", help="With --from mcp+…: print the address of a sign-in and open no browser."),
    ] = False,
    fields: Annotated[
        list[str] | None,
        Option(
            "--fields",
            metavar="OP=FIELD,FIELD",
            help="With --from: fields that OP returns of each member of a large list. Repeatable.",
        ),
    ] = None,
    rename: Annotated[
        list[str] | None,
        Option("--rename", metavar="OP=NAME", help="With --from: name of OP in your connector. Repeatable."),
    ] = None,
    answer_depth: Annotated[
        int | None,
        Option(
            "--answer-depth",
            metavar="N",
            min=1,
            help="With --from: describe answers only N references deep, so that the document is smaller.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        Option(
            "--key", metavar="FILE", help="File for the private key. Default: DIR.signing-key, beside the directory."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a connector's repository, which passes its tests.

    You also get a signing key, outside the repository. An existing key in FILE is reused. Each operation gets an action and test
    cases; its first word (list, get, add, change, delete …) selects the template.

    With --from, the connector is made from an OpenAPI document instead: what reads runs, everything else waits for a person.
    Without --ops, --tag, --grep or --all, you choose from a list, or get the operations that read. From an MCP server, each tool
    becomes an action that waits for a person. If the server wants a sign-in, you sign in so that its tools can be listed.
    """
    from aileron.cli.connector_import import Wanted, import_document, tell_made, tell_updated, update_document
    from aileron.cli.connector_import_server import import_server, update_server

    fqn = _repository_name(name)
    place = Path(fqn.path[-1]) if directory is None else directory
    key_file = place.with_name(f"{place.name}.signing-key") if key is None else key
    wanted = Wanted(
        sources=source or (),
        ops=ops or (),
        tags=tag or (),
        grep=grep,
        everything=everything,
        host=host,
        server=server,
        variables=variable or (),
        auth=auth,
        client_id=client_id,
        auth_server=auth_server,
        scopes=scope or (),
        no_browser=no_browser,
        fields=fields or (),
        names=rename or (),
        answer_depth=answer_depth,
        trust_read_only=trust_read_only,
    )
    _check_options(wanted, op or (), lang, is_update=update)
    if update:
        done = (update_server if wanted.is_server else update_document)(fqn, place, wanted)
        tell_updated(done, place, as_json=as_json)
        raise Exit(FAILED if done.conflicts else 0)
    _check_place(place, key_file, name, is_imported=bool(source))
    template = None if source else _Template.of(op or (), lang, host)
    made = (import_server if wanted.is_server else import_document)(fqn, wanted) if source else None
    with _new_key(key_file, may_exist=key is not None or made is not None) as (signing_key, is_new):
        files = _files(fqn, template, made, signing_key, key_file)
        _write_tree(place, files)
    place_and_name = {"directory": str(place), "name": str(fqn)}
    told = {**place_and_name, "fingerprint": signing_key.public.fingerprint, "signing_key": str(key_file)}
    if made is not None:
        tell_made(made, told if as_json else place_and_name, as_json=as_json)
    elif as_json:
        output.print_json({**told, "files": sorted(files)})
    else:
        output.print_facts([(word.replace("_", " "), value) for word, value in told.items()])
    _tell_next(fqn, place, key_file, made, is_new=is_new)


class _Template(NamedTuple):
    """The operations, language and host of a connector that is made from a template, not from a document."""

    operations: Sequence[str]
    lang: Lang
    host: HostPort

    @classmethod
    def of(cls, operations: Sequence[str], lang: Lang, host: str | None) -> Self:
        """Return the choices from the options. Raises Problem(usage) for an invalid operation or host."""
        from aileron.cli.template import FIRST_OPERATIONS

        chosen = operations or FIRST_OPERATIONS[lang.value]
        _check_operations(chosen, lang)
        return cls(chosen, lang, _host(host or "api.example.com:443"))


def _files(
    name: Fqn, template: _Template | None, made: Made | None, key: SigningKey, key_file: Path
) -> dict[str, bytes]:
    from aileron.cli.template import imported_repository, repository

    if template is not None:
        operations, lang, host = template
        return repository(name, lang.value, key.public, key_file.name, operations=operations, host=host)
    assert made is not None  # one of the two
    return imported_repository(
        name,
        made.files,
        key.public,
        key_file.name,
        title=made.title,
        licence=made.license,
        is_document=made.is_document,
    )


def _check_options(wanted: Wanted, operations: Sequence[str], lang: Lang, *, is_update: bool) -> None:
    """Check that the options fit the source of the connector: a template, a document or an MCP server.

    Raises Problem(usage) otherwise.
    """
    of_servers = {
        "--trust-read-only": wanted.trust_read_only,
        "--auth-server": wanted.auth_server,
        "--scope": wanted.scopes,
        "--no-browser": wanted.no_browser,
    }
    for option, is_given in of_servers.items():
        if is_given and not wanted.is_server:
            raise Problem.usage(f"{option} requires --from mcp+https://HOST/PATH")
    if wanted.sources and (operations or lang is not Lang.PYTHON):
        raise Problem.usage("--op and --lang are for connectors without --from", fix="--ops OP,OP")
    if not wanted.sources and (is_update or wanted.needs_source):
        raise Problem.usage("--ops, --tag, --grep, --all, --auth and the like require --from FILE")
    if wanted.server is not None and wanted.host is not None:
        raise Problem.usage("--server and --host cannot be used together", fix="aileron connector new --help")


def _repository_name(text: str) -> Fqn:
    """Parse the name of a complete repository, because the key and the workflow belong to its top directory.

    Raises Problem for any other name.
    """
    from aileron.model.names import Fqn

    if "://" not in text:
        raise Problem.usage(f"{text!r} is not a full name", fix=f"aileron connector new github://OWNER/{text}")
    try:
        name = Fqn.parse(text)
    except ValueError as error:
        raise Problem.usage(str(error), fix="aileron connector new --help") from None
    if len(name.path) != 2:
        whole = f"{name.scheme}://{'/'.join(name.path[:2])}"
        raise Problem.usage(
            f"{name} is a path inside a repository; `new` creates a whole repository",
            fix=f"aileron connector new {whole}",
        )
    return name


def _check_operations(operations: Sequence[str], lang: Lang) -> None:
    from aileron.cli.template import check_operation

    for number, operation in enumerate(operations):
        if operation in operations[:number]:
            raise Problem.usage(f"--op {operation} is given twice")
        try:
            check_operation(operation, lang.value)
        except ValueError as error:
            raise Problem.usage(f"--op {error}") from None


def _host(text: str) -> HostPort:
    from aileron.model.names import HostPort

    try:
        return HostPort.parse(text)
    except ValueError as error:
        raise Problem.usage(f"--host {error}") from None


def _check_place(directory: Path, key_file: Path, name: str, *, is_imported: bool) -> None:
    """Check that the directory can be created, and that the key's file is not in that directory. Raises Problem otherwise."""
    if os.path.lexists(directory):
        again = "; --update, if it was made from an older document" if is_imported else ""
        raise Problem.usage(f"{directory} already exists", fix=f"aileron connector new {name} DIR{again}")
    if key_file.absolute().resolve().is_relative_to(directory.absolute().resolve()):
        why = "everything in the repository is published"
        raise Problem.usage(
            f"--key {key_file} is inside the repository", why=why, fix="give a FILE outside the repository"
        )


@contextlib.contextmanager
def _new_key(file: Path, *, may_exist: bool) -> Iterator[tuple[SigningKey, bool]]:
    """Yield the result of `_key_for`. A new key file is removed if the block fails."""
    key, is_new = _key_for(file, may_exist=may_exist)
    try:
        yield key, is_new
    except BaseException:
        if is_new:
            file.unlink(missing_ok=True)
        raise


def _key_for(file: Path, *, may_exist: bool) -> tuple[SigningKey, bool]:
    """Return the key from an existing file, if `may_exist`, or a new key in a new file, and whether the key is new."""
    from aileron.registry.signatures import SigningKey

    if may_exist and os.path.lexists(file):
        found = maybe_signing_key(file)
        assert found is not None  # a file was given
        return found, False
    made = SigningKey.generate()
    write_new_key(file, made)
    return made, True


def _write_tree(directory: Path, made: dict[str, bytes]) -> None:
    """Write the complete directory tree, or nothing if that fails."""
    import secrets
    import shutil

    staged = directory.with_name(f".{directory.name}.{secrets.token_hex(8)}.tmp")
    try:
        for path, data in made.items():
            (staged / path).parent.mkdir(parents=True, exist_ok=True)
            (staged / path).write_bytes(data)
        staged.rename(directory)
    except OSError as error:
        raise Problem.usage(f"cannot write {directory}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _tell_next(name: Fqn, directory: Path, key_file: Path, made: Made | None, *, is_new: bool) -> None:
    """Print the next commands. For an imported connector, the key comes last, because it matters only for publishing."""
    if made is None:
        _tell_key(name, key_file, is_new=is_new)
    output.note(f"{'' if made is None else chr(10)}next:              aileron connector test {visible(str(directory))}")
    if made is not None:
        output.note(f"to use it here:    aileron connector install {visible(str(directory))}")
        output.note(f"                   aileron action add {visible(str(directory))}")
        if made.credential.kind is not None:
            output.note(f"                   aileron binding setup {name}")
        held = "" if is_new else ", which was there already"
        output.note(f"to publish it:     keep {visible(str(key_file))}, the key that signs it{held}")


def _tell_key(name: Fqn, key_file: Path, *, is_new: bool) -> None:
    output.note(
        f"\nprivate key{'' if is_new else ' (existing)'}: {visible(str(key_file))}, outside the "
        "repository; keep it safe"
    )
    if name.scheme == "github":
        output.note(f"CI signs with it:  gh secret set {KEY_VARIABLE} < {visible(str(key_file))}")
    else:
        output.note(
            f"no CI workflow is available for {name.scheme}: run `aileron connector release` with --key, or "
            f"set {KEY_VARIABLE}"
        )
