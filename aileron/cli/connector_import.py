"""`aileron connector import`: reads a source, lets its author choose operations, and reports what was made of it.

Runs in the command, on the author's machine. aileron/importing makes the files of the connector; template.py has the files of
every repository.

Source: docs/how-to/import-an-api.md. Not here: how a server is asked (connector_import_server.py), the key and writing a new
repository (new_repository.py).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from aileron.cli import output, prompts
from aileron.cli.own_files import write_whole
from aileron.cli.problem import Problem, local_work, parsed
from aileron.importing.choosing import by_found_names, by_words, tags_of
from aileron.importing.choosing import wanted as named
from aileron.importing.fetching import is_url, load
from aileron.importing.found import Described, FoundOperation, described
from aileron.importing.reading import DocumentError
from aileron.importing.record import RECORD, Choices, chosen_now, parse_record
from aileron.importing.repository import Made, make
from aileron.importing.servers import Origin, origin_of, remarks
from aileron.model.names import Fqn, HostPort
from aileron.model.visible import visible
from aileron.registry.manifest import UNBOUND_HOSTS

if TYPE_CHECKING:
    from aileron.importing.updating import Update
    from aileron.model.consent import Change

__all__ = [
    "Source",
    "Wanted",
    "choices_of",
    "document_source",
    "import_source",
    "source_of",
    "tell_made",
    "tell_updated",
    "update_source",
]

_FIX: Final = "aileron connector import --help"
_MAX_TOLD: Final = 12
"""Maximum number of lines about operations that were not imported; `--json` prints all of them."""
_MAX_TAGS: Final = 40
_MAX_LISTED: Final = 30
_MAX_ANSWERS: Final = 50
"""Number of invalid answers after which the question to the person ends by itself."""
_MAX_SHOWN: Final = 160
"""Maximum number of characters that are shown of the text before or after a change."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The sources and the options of `aileron connector import`."""

    sources: Sequence[str]
    choices: Choices
    ops: Sequence[str] = ()
    tags: Sequence[str] = ()
    grep: str = ""
    everything: bool = False
    no_browser: bool = False

    @property
    def is_server(self) -> bool:
        """True if the source is an MCP server, not a document."""
        return any(source.startswith("mcp+") for source in self.sources)

    @property
    def is_chosen(self) -> bool:
        """True if options specify which operations to import."""
        return bool(self.ops or self.tags or self.grep or self.everything)


class Source(NamedTuple):
    """A document or a server's tools, and the function that makes a connector of some of its operations."""

    found: Described
    make: Callable[[Sequence[FoundOperation]], Made]


ReadSource = Callable[["Fqn", Wanted, "Choices | None"], Source]
"""Function that reads a source for a connector. The first argument is the connector's name; the last has the choices of
an earlier import, or is None without one. An option that is given now replaces the earlier choice.
"""


def import_source(name: Fqn, wanted: Wanted, read: ReadSource) -> Made:
    """Read the source, choose operations, and make the connector.

    Raises Problem(usage) if it cannot be imported as requested.
    """
    _check_options(wanted)
    with _usage_errors():
        source = read(name, wanted, None)
        operations = _operations(source.found, wanted)
        if not operations:
            raise DocumentError("no operation is chosen")
        return source.make(operations)


def update_source(name: Fqn, directory: Path, wanted: Wanted, read: ReadSource) -> Update:
    """Import the source as it is now into a repository that an earlier import of the source made, and write the changes.

    Raises Problem(usage) if that is not possible as requested.
    """
    from aileron.importing.updating import chosen_again, compared

    _check_options(wanted)
    with _usage_errors():
        record = parse_record(_file_of(directory, RECORD))
        source = read(name, wanted, record.choices)
        chosen = {operation.name for operation in chosen_again(source.found, record)}
        chosen |= {operation.name for operation in (_named(source.found, wanted) if wanted.is_chosen else ())}
        operations = [operation for operation in source.found.operations if operation.name in chosen]
        now = {path: _file_of(directory, path) for path in _paths_of(directory, record.texts)}
        done = compared(source.make(operations), source.found, operations, record, now)
    _write_update(directory, done)
    return done


@contextlib.contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except DocumentError as error:
        raise Problem.usage(visible(str(error)), fix=_FIX) from None


def _check_options(wanted: Wanted) -> None:
    """Check that no option for documents is given for an MCP server, and no option for MCP servers for a document.
    Raises Problem(usage) otherwise.
    """
    of_documents = {
        "--tag": wanted.tags,
        "--host": wanted.choices.host or wanted.choices.is_host_open,
        "--variable": wanted.choices.variables,
        "--fields": wanted.choices.fields,
        "--rename": wanted.choices.names,
        "--answer-depth": wanted.choices.answer_depth,
    }
    of_servers = {
        "--trust-read-only": wanted.choices.trust_read_only,
        "--auth-server": wanted.choices.auth_server,
        "--scope": wanted.choices.scopes,
        "--no-browser": wanted.no_browser,
    }
    for option, is_given in (of_documents if wanted.is_server else of_servers).items():
        if is_given and wanted.is_server:
            raise Problem.usage(f"{option} is for documents, and this is an MCP server", fix=_FIX)
        if is_given:
            raise Problem.usage(f"{option} is for MCP servers, and SOURCE is not mcp+https://HOST/PATH", fix=_FIX)


def document_source(name: Fqn, wanted: Wanted, before: Choices | None) -> Source:
    """Read an OpenAPI document. `before` has the choices of an earlier import, or is None. Raises DocumentError if the
    document cannot be read, Problem(usage) for an invalid option.
    """
    return source_of(described(load(wanted.sources)), name, wanted, before)


def source_of(found: Described, name: Fqn, wanted: Wanted, before: Choices | None) -> Source:
    """Return a document that was read already as a source. Raises as `document_source` does."""
    given = by_found_names(found, wanted.choices)
    choices = given if before is None else chosen_now(before, given)
    return Source(found, lambda operations: make(found, operations, name, choices))


def _paths_of(directory: Path, texts: Iterable[str]) -> Iterator[str]:
    """Return the paths, relative to the repository, of the files that an import made and that still exist."""
    known = (*texts, "service/document.json", "service/tools.json")
    return (path for path in known if _place(directory, path).is_file())


def _file_of(directory: Path, path: str) -> bytes:
    """Return the content of a file of the repository. Raises Problem if the file does not exist or cannot be read."""
    try:
        return _place(directory, path).read_bytes()
    except FileNotFoundError:
        raise Problem.missing(
            f"{directory / path} does not exist: the connector was not imported",
            fix="aileron connector import SOURCE NAME DIR",
        ) from None
    except OSError as error:
        raise Problem.usage(f"{directory / path}: {error.strerror or error}") from None


def _place(directory: Path, path: str) -> Path:
    """Return the full path of the repository's file at the relative `path`, unless a part of the path is a symbolic link.

    Raises Problem(usage) for a symbolic link, which an attacker may have planted.
    """
    place = directory
    for part in path.split("/"):
        place = place / part
        if place.is_symlink():
            raise Problem.usage(f"{place} is a symbolic link, which an update does not follow", fix="remove it")
    return place


def _write_update(directory: Path, done: Update) -> None:
    """Write each file atomically and the import's record last, so that an interrupted update can be repeated."""
    try:
        for path in done.files:
            if path != RECORD:
                place = _place(directory, path)
                place.parent.mkdir(parents=True, exist_ok=True)
                write_whole(place, done.files[path])
        for path in done.removed:
            _place(directory, path).unlink(missing_ok=True)
        if RECORD in done.files:
            write_whole(_place(directory, RECORD), done.files[RECORD])
    except OSError as error:
        raise Problem.usage(f"cannot write {directory}: {error.strerror or error}") from None


def choices_of(
    source: str,
    *,
    server: str | None,
    host: str | None,
    variables: Sequence[str],
    auth: str | None,
    client_id: str | None,
    auth_server: str | None,
    scopes: Sequence[str],
    trust_read_only: bool,
    fields: Sequence[str],
    names: Sequence[str],
    answer_depth: int | None,
) -> Choices:
    """Return the choices of the command line that an import records. Raises Problem(usage) for an invalid option."""
    named_host = None if host == UNBOUND_HOSTS else host
    return Choices(
        found_at=source if is_url(source) else None,
        server=server,
        host=None if named_host is None else parsed("--host", HostPort.parse, named_host),
        is_host_open=host == UNBOUND_HOSTS,
        variables=dict(_pairs("--variable", variables)),
        auth=auth,
        client_id=client_id,
        auth_server=auth_server,
        scopes=tuple(scope for text in scopes for scope in text.split(",") if scope),
        trust_read_only=trust_read_only,
        fields={op: tuple(members.split(",")) for op, members in _pairs("--fields", fields)},
        names=dict(_pairs("--rename", names)),
        answer_depth=answer_depth,
    )


def _pairs(option: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        key, separator, value = text.partition("=")
        if not key or not separator or not value:
            raise Problem.usage(f"{option} {text!r} is not NAME=VALUE")
        yield key, value


# Choosing


def _operations(found: Described, wanted: Wanted) -> list[FoundOperation]:
    if wanted.is_server and not wanted.is_chosen:
        return list(found.operations)
    if wanted.is_server or wanted.is_chosen or not (prompts.can_ask() and output.is_terminal()):
        return _named(found, wanted)
    _tell_found(found)
    for _ in range(_MAX_ANSWERS):
        answer = prompts.ask(
            "Import which: reads, all, names of tags or operations, or ?WORD to look for one", default="reads"
        )
        if answer.startswith("?"):
            _tell_operations(named(found, grep=answer[1:].strip()))
            continue
        try:
            return by_words(found, [word.strip() for word in answer.split(",") if word.strip()])
        except DocumentError as error:
            output.note(visible(str(error)))
    raise DocumentError("no operation is chosen")


def _tell_operations(operations: Sequence[FoundOperation]) -> None:
    rows = [
        (operation.name, operation.method.upper(), visible(operation.summary or operation.path))
        for operation in operations[:_MAX_LISTED]
    ]
    output.note("")
    output.print_table(("OPERATION", "METHOD", "WORDS"), rows, empty="no operation has that word")
    if len(operations) > _MAX_LISTED:
        output.note(f"and {len(operations) - _MAX_LISTED} more")
    output.note("")


def _named(found: Described, wanted: Wanted) -> list[FoundOperation]:
    return named(
        found,
        ops=[op for text in wanted.ops for op in text.split(",") if op],
        tags=wanted.tags,
        grep=wanted.grep,
        everything=wanted.everything,
    )


def _tell_found(found: Described) -> None:
    tags = tags_of(found)
    output.note(f"{visible(found.title)} {visible(found.version)}: {len(found.operations)} operations\n")
    rows = [(visible(tag), str(every), str(reads), str(every - reads)) for tag, every, reads in tags[:_MAX_TAGS]]
    output.print_table(("TAG", "OPERATIONS", "READ", "WAIT FOR YOU"), rows, empty="")
    if len(tags) > _MAX_TAGS:
        output.note(f"and {len(tags) - _MAX_TAGS} more tags")
    output.note("")


# Telling


def tell_made(made: Made, facts: Mapping[str, str], *, as_json: bool) -> None:
    """Report the connector that an import made, the operations that it omitted, and what to check before the build."""
    if as_json:
        output.print_json({**facts, **_as_json(made)})
        return
    asks = [action for action in made.actions if action.asks]
    effects = Counter(action.effect for action in asks)
    told = ", ".join(f"{number} {effect}" for effect, number in effects.most_common())
    hosts = [str(origin.host) for origin in made.origins] or ["named when it is built: --host NAME:PORT"]
    output.print_facts(
        [
            *((word.replace("_", " "), value) for word, value in facts.items()),
            ("hosts", ", ".join(hosts)),
            ("credential", made.credential.words),
            ("actions", f"{len(made.actions)}: {len(made.actions) - len(asks)} run, {len(asks)} wait for a person"),
            *([("those that wait", told)] if asks else []),
            ("packed document", f"{(made.document_bytes + 1023) >> 10} KiB"),
        ]
    )
    for remark in _remarks(made):
        output.note("\n" + "\n".join(visible(line) for line in remark.split("\n")))
    _tell_unimported(made)


def _remarks(made: Made) -> Iterator[str]:
    for origin in made.origins:
        yield from _remarks_on_host(origin)
    if made.is_guessed_address:
        yield (
            f"the document does not say where its service is: {made.origins[0].url} is a guess, from where the document was\n"
            "  if every call answers 404: --server URL, with the path in it"
        )
    if not made.is_document:
        yield from _remarks_on_server(made)
        return
    if made.credential.kind == "oauth2" and not made.has_client:
        yield (
            "signing in needs your application at the provider\n  fix: --client-id ID, or later: aileron connector build "
            "DIR --client-id ID"
        )
    if made.credential.kind == "oauth2_client":
        yield (
            "tokens are requested with the client's secret in a header, as the document does not say how\n  if the service "
            "wants it otherwise: client_auth in manifest.toml; if you have a token: --auth bearer"
        )
    if made.credential.is_guess:
        yield (
            f"the document does not say in which form the key stands in Authorization: {made.credential.form} is a guess\n"
            "  if the service wants another: --auth 'header:Authorization=Bot {key}'\n"
            "  or, for the key alone: --auth 'header:Authorization={key}'"
        )
    if made.credential.kind is None:
        yield (
            "no credential: the document declares none\n  if the service needs one: --auth bearer, --auth basic, "
            "--auth header:NAME, --auth 'header:NAME=FORM {key}' or --auth query:NAME"
        )
    if looking := sum(action.asks and action.effect == "read" for action in made.actions):
        yield (
            f"by their names, {looking} of the actions that wait only read: POST can change things, so you decide\n"
            "  if you know the service: remove [approval] from their files"
        )
    if not made.license:
        yield "the document names no licence: before you publish the connector, find out whether you may share its text"


def _remarks_on_host(origin: Origin) -> list[str]:
    """Return the warnings about a host for the person who binds a key to it. Warnings about what config.toml already
    allows are left out.

    An unreadable config.toml allows nothing.
    """
    from aileron.config import Settings, load_settings
    from aileron.home import Home

    try:
        with local_work():
            settings = load_settings(Home.from_environment().config)
    except Problem:  # `config get` says what is wrong with it
        settings = Settings()
    return remarks(origin, private=settings.egress_private, plain=settings.egress_private_plain)


def _remarks_on_server(made: Made) -> Iterator[str]:
    for origin in map(origin_of, made.credential.asked_at):
        if origin.host not in {known_origin.host for known_origin in made.origins}:
            yield from _remarks_on_host(origin)
    if made.credential.kind is None:
        yield "no credential\n  if the server needs one: --auth bearer or --auth header:NAME"
    running = sum(not action.asks for action in made.actions)
    if running:
        yield f"{running} tools run without a person because the server says that they only read: look at their names"


def _tell_unimported(made: Made) -> None:
    if made.unimported:
        output.note(f"\nnot imported: {len(made.unimported)}")
        rows = [
            (visible(unimported.found.name), visible(unimported.reason)) for unimported in made.unimported[:_MAX_TOLD]
        ]
        output.print_table(("OPERATION", "REASON"), rows, empty="", folds=("REASON",))
        if len(made.unimported) > _MAX_TOLD:
            output.note(f"and {len(made.unimported) - _MAX_TOLD} more: --json lists them")
    if made.left_out:
        number = sum(map(len, made.left_out.values()))
        output.note(
            f"\n{number} optional inputs, or parts of them, of {len(made.left_out)} operations were left out: --json says why"
        )


def _as_json(made: Made) -> dict[str, object]:
    return {
        "hosts": [str(origin.host) for origin in made.origins],
        "credential": made.credential.kind,
        "actions": [msgspec.to_builtins(action) for action in made.actions],
        "not_imported": [{"op": unimported.found.name, "reason": unimported.reason} for unimported in made.unimported],
        "left_out": {op: list(reasons) for op, reasons in made.left_out.items()},
        "document_bytes": made.document_bytes,
        "files": sorted(made.files),
    }


def tell_updated(done: Update, directory: Path, *, as_json: bool) -> None:
    """Report what the update of an imported connector changed, operation by operation, and the work that is left for
    the author. Changes that widen access come first.
    """
    if as_json:
        output.print_json(
            {
                "connector": done.connector,
                "operations": done.operations,
                "conflicts": done.conflicts,
                "kept": done.kept,
                "deleted": done.deleted,
                "new_operations": done.not_chosen,
                "files": sorted(done.files),
                "removed": done.removed,
                "not_imported": _as_json(done.made)["not_imported"],
            }
        )
        return
    if done.is_empty:
        output.note("no operation that you chose has changed")
    _tell_changes("the connector", done.connector)
    for update in sorted(done.operations, key=lambda update: not update.widens):
        _tell_changes(f"{update.kind}: {update.op}", update.changes, update.reason)
    for path in done.deleted:
        output.note(f"\n{visible(path)} was deleted by you, and is not made again")
    for path in done.kept:
        output.note(f"\n{visible(path)} is yours and its operation is gone: remove the file")
    for path in done.conflicts:
        output.note(f"\n{visible(path)}: you and the document changed the same lines; they are marked, choose one")
    if done.not_chosen:
        output.note(
            f"\nthe document has {done.not_chosen} operations that you did not choose: --tag, --ops or --grep adds them"
        )
    if not done.is_empty:
        output.note(f"\nnext:  aileron connector test {visible(str(directory))}")


def _tell_changes(heading: str, changes: Iterable[Change], reason: str = "") -> None:
    told = list(changes)
    if not told and not reason and not heading.startswith("added"):
        return
    mark = " (more than before)" if any(change.widens for change in told) else ""
    output.note(f"\n{visible(heading)}{mark}{f': {visible(reason)}' if reason else ''}")
    for change in sorted(told, key=lambda change: not change.widens):
        was, is_now = (visible(_short(text)) for text in (change.before, change.after))
        output.note(f"{output.GUTTER}{'! ' if change.widens else '  '}{visible(change.where)}: {was} -> {is_now}")


def _short(text: str | None) -> str:
    if text is None:
        return "none"
    first = " ".join(text.split())
    return first if len(first) <= _MAX_SHOWN else f"{first[:_MAX_SHOWN]}…"
