"""The action file of an imported operation: its inputs, its gate, and the preview that a person sees before they decide.

Pure. An operation that reads runs at once; all others wait for a person. If the document has an operation that reads the same
path, that operation is the preview of a change or a deletion.

Source: docs/reference/action-file.md. Not here: what an operation takes (operations.py), writing (repository.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from aileron.actions.summary import MAX_SUMMARY
from aileron.importing.effects import needs_person
from aileron.importing.inputs import Input
from aileron.importing.listing import Lookup, fields_of, properties_of
from aileron.importing.operations import Imported
from aileron.importing.toml import toml_of
from aileron.importing.words import first_sentence, line, paragraph
from aileron.model.manifest import Effect
from aileron.model.names import RESERVED_TOOLS, TAG, Fqn, tool_name
from aileron.registry.placeholders import UNRELEASED

__all__ = ["Names", "action_text", "preview_of"]

_MAX_ACTION: Final = 64
_MAX_INTENT: Final = 80
_MAX_BODY: Final = 700
"""Maximum number of characters taken from an operation's description in the document for the text of its action: a
model needs enough to choose an action, and not the manual.
"""
_MAX_TITLE: Final = 56
"""Maximum number of characters of a summary's words, so that there is room for values."""
_MAX_PLACES: Final = 4
"""Maximum number of values in one summary."""
_MAX_SHOWN: Final = 6
"""Maximum number of lines of a preview: enough to identify the object."""
_TITLES: Final = (
    "title name subject summary label text message body content description email to recipient amount login username "
    "key id"
).split()
"""Names of inputs that distinguish this call from similar ones, the most telling first."""
_LONG: Final = frozenset("body text message content description notes comment markdown html".split())
"""Names of inputs whose values usually have more than one line."""
_TIMES: Final = re.compile(r"(?i)^(created|updated|modified|timestamp)")
_NOT_TAG: Final = re.compile(r"[^a-z0-9_-]+")
_MAX_TAG: Final = 32
_MAX_TAGS: Final = 8
_QUOTES: Final = str.maketrans("", "", '"“”„«»{}[]')
_CHANGES: Final = frozenset(effect for effect in Effect if not effect.only_adds)


class Names:
    """Allocator of unique action names.

    Each name starts with the service's name, because an agent has actions of many services.
    """

    def __init__(self, service: str) -> None:
        self._service: Final = service
        self._tools: Final[set[str]] = set(RESERVED_TOOLS)
        self._numbers: Final[dict[str, int]] = {}

    def of(self, op: str) -> str:
        """Return the name of the action for an operation."""
        name = op.replace("_", "-")
        whole = name if name == self._service or name.startswith(f"{self._service}-") else f"{self._service}-{name}"
        candidate, stem = whole[:_MAX_ACTION].rstrip("-"), whole[: _MAX_ACTION - 4].rstrip("-")
        number = self._numbers.get(stem, 2)
        while tool_name(candidate) in self._tools:
            candidate, number = f"{stem}-{number}", number + 1
        self._numbers[stem] = number
        self._tools.add(tool_name(candidate))
        return candidate


class Preview(msgspec.Struct, frozen=True):
    """An operation that reads the state that a call is about to change. `shown` maps a label to the path of a value in
    the operation's result.
    """

    op: str
    inputs: tuple[str, ...]
    shown: Mapping[str, str]


def preview_of(operation: Imported, reader: Imported | None, lookup: Lookup) -> Preview | None:
    """Return the preview of a call: the operation that reads the URL path that the call changes, with the values to
    show.

    None if the path cannot be read, or the result has nothing to show.
    """
    if (
        reader is None
        or operation.effect not in _CHANGES
        or operation.found.method not in ("put", "patch", "delete", "post")
    ):
        return None
    if needs_person(reader.found.method, reader.effect):  # a preview is run before anybody decides
        return None
    if (
        operation.found.method == "post"
        and reader.packed.listing is not None
        and not operation.found.path.endswith("}")
    ):
        return None  # a new entry of a list does not exist yet
    mine = {given.name: given.kind for given in operation.inputs if given.required}
    needed = tuple(given.name for given in reader.inputs if given.required)
    if any(mine.get(given.name) != given.kind for given in reader.inputs if given.required):
        return None
    shown = dict(_shown(reader, operation, lookup))
    return Preview(reader.name, needed, shown) if shown else None


def _shown(reader: Imported, operation: Imported, lookup: Lookup) -> Iterator[tuple[str, str]]:
    """Yield a label and the path in the reader's result for each value to show. The label of a value that is about to
    change is `… now`, to tell it from the input with the new value.

    Values that are also in the URL path are not shown again.
    """
    answer, effect = reader.answer, operation.effect
    inputs = {given.name.replace("_", " ") for given in operation.inputs}
    asked = {given.name for given in operation.inputs if given.is_path}
    if reader.packed.listing is not None and not reader.packed.listing.at:
        return
    at = ""
    for wrapper in ("data", "result", "item"):
        properties = properties_of(answer, lookup)
        inner = properties.get(wrapper)
        if inner is not None and len(properties) <= 3 and properties_of(inner, lookup):
            answer, at = inner, f"{at}{wrapper}."
    given: set[str] = set()
    fields = fields_of(answer, lookup)
    if effect is not Effect.DELETE:  # a value that will be overwritten says more than a time
        mine = [name for name in properties_of(answer, lookup) if name.replace("_", " ") in inputs and "." not in name]
        fields = [*fields[:2], *mine, *(name for name in fields if not _TIMES.search(name))]
    for field in fields:
        label = line(field.replace(".", " ").replace("_", " ").strip().capitalize(), 50)
        if effect is not Effect.DELETE or label.lower() in inputs:
            label = f"{label} now"
        if len(given) == _MAX_SHOWN or not label or label in given or field in asked or len(f"{at}{field}") > 200:
            continue
        given.add(label)
        yield label, f"{at}{field}"


def action_text(
    name: str, connector: Fqn, operation: Imported, preview: Preview | None, service: str, *, tag: str, called: str = ""
) -> str:
    """Return the complete text of an action file, with the placeholder hashes of a source file.

    `service` is the title of the document, `tag` its name as a tag; `called` names the call if it has no method and path.
    """
    asks = needs_person(operation.found.method, operation.effect)
    capabilities = [operation.name, *([preview.op] if preview else [])]
    lines = [
        "+++",
        f"name = {toml_of(name)}",
        f"version = {toml_of(UNRELEASED)}",
        f"source = {toml_of(f'{connector}/actions/{name}@{UNRELEASED}')}",
        f"summary = {toml_of(_summary(operation, preview))}",
        f"tags = {toml_of(_tags(operation, tag))}",
        "",
        "[[requires.connectors]]",
        f"name = {toml_of(str(connector))}",
        f"version = {toml_of(UNRELEASED)}",
        'hash = "sha256:bound-at-release"',
        f"capabilities = {toml_of(capabilities)}",
        "",
        "[match]",
        f"intent = {toml_of(_intent(operation, service))}",
    ]
    for given in operation.inputs:
        lines += ["", *_input_lines(given)]
    lines += [
        "",
        "[[execute]]",
        'id = "call"',
        f"connector = {toml_of(str(connector))}",
        f"op = {toml_of(operation.name)}",
        f"idempotent = {toml_of(not asks)}",
        f"effect = {toml_of(operation.effect.value)}",
    ]
    if asks:
        lines += ["", "[approval]", "required = true"]
    if preview is not None:
        references = {given: f"${{args.{given}}}" for given in preview.inputs}
        lines += ["", "[approval.preview]", f"op = {toml_of(preview.op)}"]
        lines += [f"inputs = {toml_of(references)}"] if references else []
        lines += [f"render = {toml_of(dict(preview.shown))}"]
    return "\n".join([*lines, "+++", "", *_body(operation, service, called)]) + "\n"


def _tags(operation: Imported, service: str) -> list[str]:
    """Return an action's tags: the service's name and the operation's tags in the document. A session can be limited to
    actions by their tags.
    """
    words = (
        _NOT_TAG.sub("-", tag.lower()).strip("-_")[:_MAX_TAG].strip("-_") for tag in (service, *operation.found.tags)
    )
    return list(dict.fromkeys(tag for tag in words if TAG.fullmatch(tag)))[:_MAX_TAGS]


def _input_lines(given: Input) -> Iterator[str]:
    yield "[[inputs]]"
    yield f"name = {toml_of(given.name)}"
    yield f"type = {toml_of(given.kind)}"
    yield f"description = {toml_of(given.description)}"
    if not given.required:
        yield "required = false"
    rule = {key: value for key, value in given.rule.items() if key != "type"}
    if given.kind in ("array", "object"):
        yield f"schema = {toml_of(rule)}"
        return
    if given.kind == "string" and given.name in _LONG and "enum" not in rule:
        yield "multiline = true"
    spelled = {"minLength": "min_length", "maxLength": "max_length"}
    for key in ("enum", "pattern", "minimum", "maximum", "minLength", "maxLength"):
        if key in rule:
            yield f"{spelled.get(key, key)} = {toml_of(rule[key])}"


def _title(operation: Imported) -> str:
    said = first_sentence(operation.found.summary, _MAX_TITLE).translate(_QUOTES).strip()
    return said or line(operation.name.replace("_", " ").capitalize(), _MAX_TITLE)


def _intent(operation: Imported, service: str) -> str:
    words = _title(operation)
    return line(f"{words} ({service})" if service.lower() not in words.lower() else words, _MAX_INTENT)


def _summary(operation: Imported, preview: Preview | None) -> str:
    """Return an action's summary: the document's words for the operation, then as many placeholders for inputs that
    distinguish calls as fit.

    The summary of a deletion has the values that the preview found, then those of the path.
    """
    if preview is not None and operation.effect is Effect.DELETE:
        shown = sorted(
            preview.shown, key=lambda label: _TITLES.index(label.lower()) if label.lower() in _TITLES else 50
        )
        return _filled(_title(operation), [f" [{{{label}}}]" for label in shown[:2]], operation)
    pieces = [f"{{{given.name}}}" if given.required else f"[{{{given.name}}}]" for given in _telling(operation)]
    text = _title(operation)
    for number, piece in enumerate(pieces):
        joint = ": " if number == 0 else ", "
        joined = f"{joint}{piece}" if piece.startswith("{") else f"[{joint}{piece[1:]}"
        if number == _MAX_PLACES or len(text) + len(joined) > MAX_SUMMARY:
            break
        text += joined
    return text


def _filled(title: str, found: list[str], operation: Imported) -> str:
    text = title
    for number, piece in enumerate(found):
        text += piece if number == 0 else piece.replace(" [", "[, ")
    text = text.replace(" [", "[ ", 1)
    path = ", ".join(
        f"{{{given.name}}}" for given in [given for given in operation.inputs if given.is_path][-_MAX_PLACES:]
    )
    whole = f"{text} ({path})" if path else text
    return whole if len(whole) <= MAX_SUMMARY else line(title, MAX_SUMMARY)


def _telling(operation: Imported) -> list[Input]:
    """Return the inputs that identify a call: first at most one whose name is in _TITLES, then those in the path, then the
    other required inputs. Arrays and objects occur only if they are in the path.
    """
    plain = [given for given in operation.inputs if given.kind not in ("array", "object")]
    titles = sorted(
        (given for given in plain if given.name in _TITLES and not given.is_path),
        key=lambda given: (_TITLES.index(given.name), not given.required),
    )
    rest = [given for given in plain if given.required and given not in titles and not given.is_path]
    return [*titles[:1], *(given for given in operation.inputs if given.is_path), *rest]


def _body(operation: Imported, service: str, called: str) -> Iterator[str]:
    yield f"# {_title(operation)}"
    said = paragraph(str(operation.found.raw.get("description") or ""), _MAX_BODY).replace("+++", "")
    if said and said.rstrip(".") != _title(operation):
        yield ""
        yield said
    yield ""
    yield f"{service}: {called or f'`{operation.found.method.upper()} {operation.found.path}`'}."
