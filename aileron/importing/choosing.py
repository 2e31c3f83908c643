"""Selection of a document's operations by name, tag or text.

Pure. An author selects by names of operations, tags, or a text to search for; several of these are combined with "or". If none
is given, the operations that read and are not deprecated are selected.

    wanted(described, ops=["list_pets"], tags=["store"], grep="")

Not here: asking a person (aileron/cli/connector_import.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from aileron.importing.found import Described, FoundOperation
from aileron.importing.reading import DocumentError
from aileron.importing.record import Choices
from aileron.model.near import did_you_mean

__all__ = ["by_found_names", "by_words", "tags_of", "wanted"]

UNTAGGED = "(untagged)"
_NAME: Final = re.compile(r"(?=.{1,64}$)[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_MAX_READ: Final = 20_000
"""Maximum number of characters of a description that are searched for a text."""


def tags_of(described: Described) -> list[tuple[str, int, int]]:
    """Return each tag with the number of its operations and the number of those that read, in the order of the document."""
    every: Counter[str] = Counter()
    reads: Counter[str] = Counter()
    for operation in described.operations:
        for tag in operation.tags or (UNTAGGED,):
            every[tag] += 1
            reads[tag] += operation.reads
    return [(tag, every[tag], reads[tag]) for tag in every]


def wanted(
    described: Described, *, ops: Sequence[str] = (), tags: Sequence[str] = (), grep: str = "", everything: bool = False
) -> list[FoundOperation]:
    """Return the selected operations in the order of the document; by default, those that read and are not deprecated.
    Raises DocumentError for an operation or tag that does not exist.
    """
    if everything:
        return list(described.operations)
    if not (ops or tags or grep):
        return [operation for operation in described.operations if operation.reads and not operation.is_old]
    names = set(ops)
    _check_known(names, {operation.name for operation in described.operations} | _ids(described), "operation")
    wanted_tags = {tag.casefold() for tag in tags}
    _check_known(wanted_tags, {tag.casefold() for tag, _, _ in tags_of(described)}, "tag")
    text = grep.casefold()
    return [
        operation
        for operation in described.operations
        if operation.name in names
        or _id(operation) in names
        or wanted_tags & {tag.casefold() for tag in operation.tags or (UNTAGGED,)}
        or (text and text in _text(operation))
    ]


def by_words(described: Described, words: Sequence[str]) -> list[FoundOperation]:
    """Return the operations that a person's words select. A word is `reads`, `all`, a tag or an operation.

    Raises DocumentError for any other word.
    """
    known_tags = {tag.casefold() for tag, _, _ in tags_of(described)}
    chosen: dict[str, FoundOperation] = {}
    for word in words:
        if word == "reads":
            found = wanted(described)
        elif word == "all":
            found = wanted(described, everything=True)
        elif word.casefold() in known_tags:
            found = wanted(described, tags=[word])
        else:
            found = wanted(described, ops=[word])
        chosen |= {operation.name: operation for operation in found}
    return [operation for operation in described.operations if operation.name in chosen]


def by_found_names(described: Described, choices: Choices) -> Choices:
    """Return the choices by the names that the import gives operations. The author may also have written an
    operation's `operationId` in place of that name.

    Raises DocumentError if the document has no operation with the name that the author wrote, or if a name that the author
    chose for an operation is not valid.
    """
    known = {_id(operation): operation.name for operation in described.operations} | {
        operation.name: operation.name for operation in described.operations
    }
    _check_known(set(choices.names), set(known), "operation")
    for name in choices.names.values():
        if not _NAME.fullmatch(name):
            raise DocumentError(
                f"{name[:80]!r} is no name of an operation: lower-case words joined by _, such as create_refund"
            )
    return msgspec.structs.replace(
        choices,
        names={known[op]: name for op, name in choices.names.items()},
        fields={known.get(op, op): fields for op, fields in choices.fields.items()},
    )


def _id(operation: FoundOperation) -> str:
    said = operation.raw.get("operationId")
    return said if isinstance(said, str) else ""


def _ids(described: Described) -> set[str]:
    return {_id(operation) for operation in described.operations} - {""}


def _text(operation: FoundOperation) -> str:
    said = operation.raw.get("description")
    words = said[:_MAX_READ] if isinstance(said, str) else ""
    return f"{operation.name} {operation.method} {operation.path} {operation.summary} {words}".casefold()


def _check_known(names: set[str], known: set[str], kind: str) -> None:
    for name in sorted(names - known):
        question = did_you_mean(name, known)
        raise DocumentError(f"the document has no {kind} {name[:80]!r}" + (f"; {question}" if question else ""))
