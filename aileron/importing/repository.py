"""The files of an imported connector, made from a document and the chosen operations, for `connector build`.

Pure: the input is parsed values, the output is files by path. Each file is checked with the parser that will read it when it is
installed. An operation whose action would be refused at the installation is not imported, and the reason is reported.

Source: docs/how-to/import-an-api.md, docs/adr/0054-openapi-documents.md. Not here: reading and fetching the document, the
repository's other files (aileron/cli/template.py), asking the author.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, assert_never

import msgspec

from aileron.actions.manifest import parse_action
from aileron.importing.actions import Names, action_text, preview_of
from aileron.importing.cases import cases_text
from aileron.importing.found import Described, FoundOperation
from aileron.importing.manifest import manifest_text
from aileron.importing.operations import Imported, Importer, Unimported
from aileron.importing.reading import DocumentError
from aileron.importing.record import RECORD, Choices, ImportRecord
from aileron.importing.security import Credential, choose
from aileron.importing.servers import Origin, chosen, origin_of
from aileron.importing.words import line
from aileron.model.failure import AileronError
from aileron.model.json_value import JSONObject
from aileron.model.names import Fqn, HostPort
from aileron.registry.manifest import MAX_OPERATIONS, UNBOUND_HOSTS, parse_connector_manifest
from aileron_connector.openapi.document import VERSION, Components, Document, Info, ListShape, Server

__all__ = ["ActionFiles", "Made", "MadeAction", "make", "record_of", "service_of"]

_PACKAGE: Final = "service"
"""Folder of the packed document. It is a Python package, so that `connector build` includes its data."""
_PROGRAM: Final = '''\
"""{title}: operations of its OpenAPI document, which is service/document.json."""

from aileron_connector import openapi

if __name__ == "__main__":
    openapi.run("{package}")
'''
_PACKAGED: Final = (
    '"""The packed OpenAPI document, document.json: the request and the response of each operation.\n\n'
    'Source: docs/reference/packed-openapi.md of Aileron.\n"""\n'
)
_MAX_HOSTS: Final = 32
_OPEN: Final = HostPort("host.invalid", 443)
"""Stand-in for a host that is not known yet."""
_MAX_DOCUMENT: Final = 32 << 20
"""32 MiB: maximum size of the packed operations, the same as for a document. A hundred operations can repeat parts that
the document has only once.
"""
_AFFIX: Final = re.compile(r"^(?:aileron-)?connector-|-connector$")


class MadeAction(msgspec.Struct, frozen=True):
    """A generated action, as listed in a report."""

    name: str
    op: str
    effect: str
    asks: bool
    has_preview: bool


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an import: the files, and facts to report about the import."""

    files: dict[str, bytes]
    actions: tuple[MadeAction, ...]
    imported: tuple[Imported, ...]
    """Operations of the connector: the chosen ones, and those called only by previews."""
    unimported: tuple[Unimported, ...]
    left_out: dict[str, tuple[str, ...]]
    """Optional parts that cannot be given, by operation."""
    credential: Credential
    has_client: bool
    """True if the client id at an OAuth provider is known."""
    origins: tuple[Origin, ...]
    """Origins that requests go to; empty if the host is chosen when the connector is built."""
    document_bytes: int
    title: str
    license: str
    """Licence that the document states; empty if it states none."""
    is_guessed_address: bool = False
    """True if the document specifies no server, and the document's own address is used instead."""
    is_document: bool = True
    """False for an MCP server's tools, which have no licence and declare no credential."""


def service_of(connector: Fqn) -> str:
    """Return the service's name for agents: the repository's name without `connector`."""
    name = _AFFIX.sub("", connector.path[-1].lower())
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")[:24].strip("-") or "service"


class ActionFiles:
    """The action files of one import, each checked with the parser that will read it when it is installed."""

    def __init__(self, service: str) -> None:
        self.names: Final = Names(service)
        self.files: Final[dict[str, bytes]] = {}
        self.made: Final[list[MadeAction]] = []
        self.kept: Final[list[Imported]] = []
        """Operations that the generated actions call."""
        self.refused: Final[list[Unimported]] = []

    def add(self, operation: Imported, name: str, text: str, *, has_preview: bool) -> bool:
        """Add an operation's action file. If the file would be invalid, return False and record the operation as not imported."""
        path = f"actions/{name}/action.md"
        try:
            action = parse_action(text, file=path, allow_placeholder=True)
        except AileronError as error:
            self.refused.append(Unimported(operation.found, f"its action would not be valid: {error.failure.message}"))
            return False
        self.files[path] = text.encode()
        self.kept.append(operation)
        self.made.append(
            MadeAction(name, operation.name, operation.effect.value, action.approval.required, has_preview)
        )
        return True


def make(described: Described, operations: Sequence[FoundOperation], connector: Fqn, choices: Choices) -> Made:
    """Make all files of a connector for the chosen operations. Raises DocumentError if none can be made; problems with
    single operations are in `unimported`.
    """
    origin = _origin(described, choices)
    credential = choose(described, operations, choices.auth)
    importer = Importer(described, credential)
    imported, unimported = _imported(importer, described, operations, choices, origin)
    readers, hidden = _readers(importer, described, operations, imported, choices, origin)
    service = service_of(connector)
    actions = ActionFiles(service)
    used: set[str] = set()
    for operation in imported:
        preview = preview_of(operation, readers.get(operation.found.path), importer.packer.lookup)
        name = actions.names.of(operation.name)
        text = action_text(name, connector, operation, preview, line(described.title, 60), tag=service)
        if actions.add(operation, name, text, has_preview=preview is not None) and preview is not None:
            used.add(preview.op)
    files, kept = actions.files, actions.kept
    unimported += actions.refused
    if not kept:
        raise DocumentError(_nothing(unimported))
    kept += [reader for reader in hidden if reader.name in used and reader not in kept]
    if len(kept) > MAX_OPERATIONS:
        raise _too_many(operations)
    _check_names(kept)
    origins = _origins(origin, kept)
    document = _document(described, importer, kept, credential, origin, choices.answer_depth)
    manifest = manifest_text(
        connector,
        line(described.title, 80),
        line(described.version, 40),
        described.digest,
        [UNBOUND_HOSTS] if choices.is_host_open else [str(server.host) for server in origins],
        credential,
        choices.client_id,
        kept,
    ).encode()
    try:
        parse_connector_manifest(manifest, file="manifest.toml", allow_unbound=True)
    except AileronError as error:
        raise DocumentError(
            f"its manifest would not be valid: {error.failure.message}; choose fewer operations"
        ) from None
    files |= {
        "manifest.toml": manifest,
        "connector.py": _PROGRAM.format(title=_docstring(described.title), package=_PACKAGE).encode(),
        f"{_PACKAGE}/__init__.py": _PACKAGED.encode(),
        f"{_PACKAGE}/document.json": msgspec.json.format(msgspec.json.encode(document), indent=1),
    }
    if (cases := cases_text(document, kept, described.references, is_host_open=choices.is_host_open)) is not None:
        files["tests/cases.toml"] = cases.encode()
    files[RECORD] = record_of(described, operations, choices, files).encoded()
    return Made(
        files=files,
        actions=tuple(actions.made),
        imported=tuple(kept),
        unimported=tuple(unimported),
        left_out={operation.name: operation.left_out for operation in kept if operation.left_out},
        credential=credential,
        has_client=choices.client_id is not None,
        origins=() if choices.is_host_open else origins,
        document_bytes=len(files[f"{_PACKAGE}/document.json"]),
        title=line(described.title, 80),
        is_guessed_address=not (described.servers or choices.server or choices.host or choices.is_host_open),
        license=next(
            (described.license[key] for key in ("identifier", "name", "url") if described.license.get(key)), ""
        ),
    )


def record_of(
    described: Described, operations: Sequence[FoundOperation], choices: Choices, files: Mapping[str, bytes]
) -> ImportRecord:
    """Return the record of the choices and of the files that an author can change."""
    mine = [path for path in files if not path.startswith(f"{_PACKAGE}/")]
    return ImportRecord(
        document_hash=described.digest,
        operations=tuple(operation.name for operation in operations),
        choices=choices,
        texts={path: files[path].decode() for path in sorted(mine)},
    )


def _docstring(title: str) -> str:
    return line(title, 60).replace("\\", "").replace('"', "'")


def _nothing(unimported: Sequence[Unimported]) -> str:
    first = unimported[0] if unimported else None
    why = "" if first is None else f"; {first.found.name}: {first.reason}"
    return f"none of the {len(unimported)} operations can be imported{why}"


def _too_many(operations: Sequence[FoundOperation]) -> DocumentError:
    return DocumentError(
        f"{len(operations)} operations; a connector has at most {MAX_OPERATIONS}: choose fewer with --tag, --ops or --grep"
    )


def _check_names(operations: Sequence[Imported]) -> None:
    names = Counter(operation.name for operation in operations)
    twice = next((name for name, number in names.items() if number > 1), None)
    if twice is not None:
        raise DocumentError(f"two operations would be called {twice!r}; give one of them another name with --rename")


def _origin(described: Described, choices: Choices) -> Origin:
    """Return the origin of the API: from the author's choices, or else the document's first server. If the host is
    chosen only at the build, the origin has a stand-in host, because its path is needed.
    """
    if choices.is_host_open:
        choices = msgspec.structs.replace(choices, host=_OPEN)
    if choices.server is not None:
        return origin_of(choices.server)
    origin = chosen(described.servers, choices.found_at, choices.host, choices.variables)
    if origin is None:
        raise DocumentError("the document does not say where its service is; give --host NAME:PORT")
    return origin


def _imported(
    importer: Importer,
    described: Described,
    operations: Sequence[FoundOperation],
    choices: Choices,
    origin: Origin,
) -> tuple[list[Imported], list[Unimported]]:
    imported: list[Imported] = []
    unimported: list[Unimported] = []
    listed: set[str] = set()
    for found in operations:
        outcome = _one(importer, found, described, choices, origin)
        if isinstance(outcome, Imported):
            imported.append(_named(_with_fields(outcome, choices), choices))
            listed |= {found.name} if outcome.packed.listing is not None else set()
        else:
            unimported.append(outcome)
        if len(imported) > MAX_OPERATIONS:
            raise _too_many(operations)
    unknown = choices.fields.keys() - listed
    if unknown:
        raise DocumentError(f"--fields {min(unknown)}: no imported operation of that name has a list")
    return imported, unimported


def _one(
    importer: Importer, found: FoundOperation, described: Described, choices: Choices, origin: Origin
) -> Imported | Unimported:
    try:
        own = _own_origin(found, described, choices, origin) if found.servers else None
    except DocumentError as error:
        return Unimported(found, str(error))
    return importer.operation(found, None if own == origin else own)


def _own_origin(found: FoundOperation, described: Described, choices: Choices, origin: Origin) -> Origin | None:
    """Return the origin of an operation for which the document states its own server; None if the operation has no
    server of its own. A host that the author chose replaces the document's host.

    Raises DocumentError if the author named a host, or left it open, and the operation is at another host.
    """
    own = chosen(found.servers, choices.found_at, None, choices.variables)
    if own is None:  # a path alone
        if choices.host is None and choices.server is None and not choices.is_host_open:
            raise DocumentError("it is at a server of its own, of which the document says no host; give --host")
        return chosen(found.servers, None, origin.host, choices.variables)
    usual = chosen(described.servers, choices.found_at, None, choices.variables)
    if origin.host == own.host or (usual is not None and usual.host == own.host):
        return msgspec.structs.replace(own, host=origin.host, is_plain=origin.is_plain)
    if choices.host is not None or choices.server is not None or choices.is_host_open:
        raise DocumentError(f"it is at {own.host}; with --host or --server, everything is at that host")
    return own


def _with_fields(operation: Imported, choices: Choices) -> Imported:
    fields = choices.fields.get(operation.name)
    if fields is None or operation.packed.listing is None:
        return operation
    listing: ListShape = msgspec.structs.replace(operation.packed.listing, fields=list(fields))
    return msgspec.structs.replace(operation, packed=msgspec.structs.replace(operation.packed, listing=listing))


def _named(operation: Imported, choices: Choices) -> Imported:
    """Return the operation, renamed if the author chose another name for it.

    Its effect is still derived from the document's name, so that a new name cannot remove the need for approval.
    """
    name = choices.names.get(operation.name)
    if name is None:
        return operation
    return msgspec.structs.replace(
        operation,
        found=msgspec.structs.replace(operation.found, name=name),
        packed=msgspec.structs.replace(operation.packed, operation_id=name),
    )


def _readers(
    importer: Importer,
    described: Described,
    operations: Sequence[FoundOperation],
    imported: Sequence[Imported],
    choices: Choices,
    origin: Origin,
) -> tuple[dict[str, Imported], list[Imported]]:
    """Return the operations that read a path, by path, and a list of those among them that were not chosen. The
    operations in the list only serve previews and have no action.
    """
    readers = {operation.found.path: operation for operation in imported if operation.found.method == "get"}
    wanted = {operation.found.path for operation in imported} - readers.keys()
    hidden = []
    for found in described.operations:
        if found.method == "get" and found.path in wanted:
            outcome = _one(importer, found, described, choices, origin)
            if isinstance(outcome, Imported):
                readers[found.path] = _named(outcome, choices)
                hidden.append(readers[found.path])
    return readers, hidden


def _origins(origin: Origin, operations: Iterable[Imported]) -> tuple[Origin, ...]:
    """Return each origin at most once, the document's first."""
    every = [origin, *(operation.origin for operation in operations if operation.origin is not None)]
    found = {server.host: server for server in reversed(every)}
    ordered = tuple(found[host] for host in dict.fromkeys(server.host for server in every))
    if len(ordered) > _MAX_HOSTS:
        raise DocumentError(f"{len(ordered)} hosts; a connector has at most {_MAX_HOSTS}: choose fewer operations")
    return ordered


def _document(
    described: Described,
    importer: Importer,
    operations: Sequence[Imported],
    credential: Credential,
    origin: Origin,
    answer_depth: int | None,
) -> Document:
    """Return the packed document of the connector."""
    paths: dict[str, dict[str, msgspec.Raw]] = {}
    room = _MAX_DOCUMENT
    for operation in operations:
        packed = msgspec.json.encode(operation.packed)
        room -= len(packed)
        if room < 0:
            raise DocumentError(f"more than {_MAX_DOCUMENT >> 20} MiB of operations: choose fewer")
        paths.setdefault(operation.found.path, {})[operation.found.method] = msgspec.Raw(packed)
    schemas = importer.packer.reachable(_sent(operations))
    schemas |= importer.packer.reachable(_answered(operations), depth=answer_depth)
    return Document(
        openapi=VERSION,
        info=Info(
            title=line(described.title, 200),
            version=line(described.version, 100),
            source=described.digest,
            license={key: value for key, value in described.license.items() if key in ("name", "url", "identifier")},
        ),
        servers=[Server(origin.base)],
        paths=paths,
        components=Components(
            schemas={name: msgspec.Raw(msgspec.json.encode(schema)) for name, schema in sorted(schemas.items())},
            security_schemes={} if credential.kind is None else {credential.kind: _scheme(credential)},
        ),
    )


def _scheme(credential: Credential) -> JSONObject:
    """Return a security scheme in valid OpenAPI, for tools that read the document. The manifest alone decides what is sent."""
    match credential.kind:
        case "basic":
            return {"type": "http", "scheme": "basic"}
        case "oauth2":
            flow: JSONObject = {
                "authorizationUrl": credential.authorize_url,
                "tokenUrl": credential.token_url,
                "scopes": dict.fromkeys(credential.scopes, ""),
            }
            return {"type": "oauth2", "flows": {"authorizationCode": flow}}
        case "oauth2_client":
            flow = {"tokenUrl": credential.token_url, "scopes": dict.fromkeys(credential.scopes, "")}
            return {"type": "oauth2", "flows": {"clientCredentials": flow}}
        case "api_key" | None if credential.query or credential.header:
            place = "query" if credential.query else "header"
            return {"type": "apiKey", "in": place, "name": credential.query or credential.header}
        case "api_key" | None:
            return {"type": "http", "scheme": "bearer"}
        case impossible:
            assert_never(impossible)


def _sent(operations: Iterable[Imported]) -> Iterator[Any]:
    for operation in operations:
        packed = operation.packed
        yield from (parameter.schema for parameter in packed.parameters)
        yield from (media.get("schema") for parameter in packed.parameters for media in parameter.content.values())
        if packed.request_body is not None:
            yield from (media.schema for media in packed.request_body.content.values())


def _answered(operations: Iterable[Imported]) -> Iterator[Any]:
    for operation in operations:
        yield from (media.schema for answer in operation.packed.responses.values() for media in answer.content.values())
