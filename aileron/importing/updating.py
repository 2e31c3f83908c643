"""The repetition of an import with a newer document, which keeps the author's own changes and reports what is different.

Pure. Files that an author can change are merged line by line, with the previously generated file as the base. Changes
are reported per operation, with the same words and weight as in a person's question at installation: changes to an
action file by actions/widening.py, changes to the manifest by registry/consent.py.

Source: docs/how-to/import-an-api.md (A newer document). Not here: reading and writing the files
(aileron/cli/connector_import.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from aileron.actions.manifest import parse_action
from aileron.actions.merging import merged_closely
from aileron.actions.widening import changes
from aileron.importing.action_merging import merged_action
from aileron.importing.found import Described, FoundOperation
from aileron.importing.reading import DocumentError
from aileron.importing.record import RECORD, ImportRecord, parse_record
from aileron.importing.repository import Made
from aileron.model.consent import Change
from aileron.model.failure import AileronError
from aileron.model.json_value import JSONObject
from aileron.model.manifest import ActionFile
from aileron.registry.consent import capability_changes
from aileron.registry.manifest import parse_connector_manifest
from aileron_connector.mcp.comparing import differences
from aileron_connector.mcp.document import Tool, Tools
from aileron_connector.openapi.document import Document, Operation

__all__ = ["OperationUpdate", "Update", "chosen_again", "compared"]

_MANIFEST: Final = "manifest.toml"
_DOCUMENT: Final = "service/document.json"
_TOOLS: Final = "service/tools.json"


class OperationUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that is new, changed or removed, as `kind` says."""

    op: str
    kind: str
    """Kind of the update: `changed`, `added` or `removed`."""
    changes: tuple[Change, ...] = ()
    reason: str = ""
    """The reason why a removed operation is no longer imported."""

    @property
    def widens(self) -> bool:
        """True if the operation is new, or if one of its changes widens what it can do."""
        return self.kind == "added" or any(change.widens for change in self.changes)


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """The files to write and to remove, and what the update changes."""

    made: Made
    files: dict[str, bytes]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    """Action files whose operation is gone, but which are kept because the author changed them."""
    conflicts: tuple[str, ...]
    """Files in which the author and the document changed the same lines; each place is marked."""
    deleted: tuple[str, ...]
    """Action files that the author deleted, which are therefore not generated again."""
    connector: tuple[Change, ...]
    """Changes to what the connector may do."""
    operations: tuple[OperationUpdate, ...]
    not_chosen: int
    """Number of operations that are new in the document and were not chosen."""

    @property
    def is_empty(self) -> bool:
        """True if nothing changes except the document's hash."""
        return not (self.connector or self.operations or self.conflicts)


def chosen_again(described: Described, record: ImportRecord) -> list[FoundOperation]:
    """Return the operations that were chosen in the previous import and that the document still has."""
    names = set(record.operations)
    return [operation for operation in described.operations if operation.name in names]


def compared(
    made: Made,
    described: Described,
    operations: Sequence[FoundOperation],
    record: ImportRecord,
    now: Mapping[str, bytes],
) -> Update:
    """Return the update: the new files compared with those that the previous import generated, and with `now`, the
    repository's current files.

    Raises DocumentError if one of the current files cannot be used.
    """
    fresh = parse_record(made.files[RECORD]).texts
    files = {path: data for path, data in made.files.items() if path not in fresh}
    conflicts: list[str] = []
    deleted = [path for path in fresh if path in record.texts and path not in now and path.startswith("actions/")]
    for path, text in fresh.items():
        if path in deleted:  # deleted by the author: do not add it again
            continue
        merge = merged_action if path.startswith("actions/") else merged_closely
        whole = merge(record.texts.get(path, ""), _text(now, path, record.texts.get(path, "")), text)
        files[path] = whole.text.encode()
        if whole.conflicts:
            conflicts.append(path)
    gone = [path for path in record.texts if path not in fresh and path in now]
    kept = tuple(path for path in gone if now[path] != record.texts[path].encode())
    return Update(
        made=made,
        files={path: data for path, data in files.items() if now.get(path) != data},
        removed=tuple(path for path in gone if path not in kept),
        kept=kept,
        conflicts=tuple(conflicts),
        deleted=tuple(deleted),
        connector=_connector_changes(record, made),
        operations=tuple(_operation_updates(record, made, fresh, now)),
        not_chosen=len(
            {operation.name for operation in described.operations}
            - {operation.name for operation in operations}
            - set(record.operations)
        ),
    )


def _text(now: Mapping[str, bytes], path: str, before: str) -> str:
    """Return the text of the author's file at `path`, or `before`, the previously generated text, if the author removed
    the file.
    """
    try:
        return now[path].decode() if path in now else before
    except UnicodeDecodeError:
        raise DocumentError(f"{path} is not valid UTF-8") from None


def _connector_changes(record: ImportRecord, made: Made) -> tuple[Change, ...]:
    try:
        before = parse_connector_manifest(record.texts[_MANIFEST].encode(), file=_MANIFEST, allow_unbound=True)
    except AileronError as error:
        raise DocumentError(f"{RECORD} has a manifest that is none: {error.failure.message}") from None
    after = parse_connector_manifest(made.files[_MANIFEST], file=_MANIFEST, allow_unbound=True)
    return capability_changes(before, after)


def _operation_updates(
    record: ImportRecord, made: Made, fresh: Mapping[str, str], now: Mapping[str, bytes]
) -> Iterator[OperationUpdate]:
    before, after = _actions(record.texts), _actions(fresh)
    answers_before, answers_after = _answers(now), _answers(made.files)
    listed_before, listed_after = _listed(now), _listed(made.files)
    renamed = parse_record(made.files[RECORD]).choices.names
    reasons = {renamed.get(failure.found.name, failure.found.name): failure.reason for failure in made.unimported}
    for op, action in after.items():
        if op not in before:
            yield OperationUpdate(op=op, kind="added")
            continue
        found = list(changes(before[op], action))
        if answers_before.get(op) != answers_after.get(op):
            found.append(Change.of("answer", "as it was", "differs", widens=False))
        found += _of_tool(listed_before.get(op, {}), listed_after.get(op, {}))
        if found:
            yield OperationUpdate(op=op, kind="changed", changes=tuple(found))
    for op in before:
        if op not in after:
            why = reasons.get(op, "you gave it another name" if op in renamed else "the document no longer has it")
            yield OperationUpdate(op=op, kind="removed", reason=why)


def _actions(texts: Mapping[str, str]) -> dict[str, ActionFile]:
    """Return the actions by the operation that each calls."""
    files = [(path, text) for path, text in texts.items() if path.startswith("actions/")]
    try:
        parsed = [parse_action(text, file=path, allow_placeholder=True) for path, text in files]
    except AileronError as error:
        raise DocumentError(f"{RECORD} has an action that is none: {error.failure.message}") from None
    return {action.steps[0].op: action for action in parsed}


def _listed(files: Mapping[str, bytes]) -> dict[str, JSONObject]:
    """Return an MCP server's tools by operation, as the server listed them."""
    try:
        found = msgspec.json.decode(files.get(_TOOLS, b"null"), type=Tools | None)
        tools = {} if found is None else found.tools
        return {name: msgspec.json.decode(raw, type=Tool).listed for name, raw in tools.items()}
    except (ValueError, RecursionError):
        return {}


def _of_tool(before: JSONObject, after: JSONObject) -> Iterator[Change]:
    """Yield the changes between two versions of a tool as its server listed it. A model reads all of it, so every
    change widens, as a new input does.
    """
    for difference in differences(before, after):
        yield Change.of(f"tool {difference.place}", difference.before or None, difference.after or None)


def _answers(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the responses of each operation in the packed document among `files`, with the schemas that they name, for
    comparison.
    """
    document = files.get(_DOCUMENT)
    if document is None:
        return {}
    try:
        found = msgspec.json.decode(document, type=Document)
        operations = [
            msgspec.json.decode(raw, type=Operation) for path in found.paths.values() for raw in path.values()
        ]
    except (ValueError, RecursionError):
        return {}
    return {
        operation.operation_id: _with_schemas(msgspec.json.encode(operation.responses), found)
        for operation in operations
    }


def _with_schemas(responses: bytes, document: Document) -> bytes:
    """Return responses with the named schemas that they use, directly or through others."""
    text, told = responses, dict[str, bytes]()
    waiting = [text]
    while waiting:
        part = waiting.pop()
        for name, raw in document.components.schemas.items():
            if name not in told and f'"#/components/schemas/{name}"'.encode() in part:
                told[name] = bytes(raw)
                waiting.append(told[name])
    return text + b"".join(told[name] for name in sorted(told))
