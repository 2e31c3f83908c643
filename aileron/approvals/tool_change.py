"""Reports of connectors that a server has changed a tool, and the differences, parsed before a person is asked.

Pure; runs in the daemon. The connector is untrusted, and so is the server whose text it passes on. Their text is bounded here,
and accepted only as JSON in canonical form. The digest covers that form, so the bytes shown are the bytes accepted. A
definition that cannot be shown in full cannot be accepted.

>>> changes = tool_changes('{"description":"Adds."}', '{"description":"Deletes."}')
>>> [(change.where, change.before, change.after) for change in changes]
[('description', 'Adds.', 'Deletes.')]

Source: docs/adr/0056-changed-tools.md, docs/reference/packed-mcp-tools.md. Not here: suspension (daemon/consent_service/).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import msgspec

from aileron.model.consent import Change
from aileron.model.failure import Failure, FailureClass

__all__ = [
    "MAX_CHANGES",
    "MAX_DEFINITION_BYTES",
    "TOOL_CHANGED",
    "HowChanged",
    "ToolReport",
    "reported",
    "tool_changes",
]

TOOL_CHANGED: Final = "tool_changed"
"""The `details.reason` of a connector's failure that reports a changed tool, and of every refusal that follows."""
MAX_DEFINITION_BYTES: Final = 20 << 10
"""20 KiB: maximum size of a complete tool as JSON. Two of them fit one frame, and a person must read the tool."""
MAX_CHANGES: Final = 64
"""Maximum number of differences that are listed singly: three screens. The complete definition is shown in addition."""
_MAX_WHERE: Final = 200
_MAX_DEPTH: Final = 64
"""Maximum nesting depth to which two definitions of a tool are compared member by member; values below it are compared
as a whole.
"""
_MAX_NESTED: Final = 200
"""Maximum nesting depth of a tool's definition; no connector is made from a deeper one (importing/mcp_listing.py). A definition
nested to just below the interpreter's recursion limit could be parsed in one function, but not in another that is called some
frames deeper."""
_ABSENT: Final = object()

HowChanged = Literal["changed", "gone", "untold"]
"""Kinds of change: the server describes the tool differently; it no longer has the tool; or the connector did not report the
tool's current form in a way that can be shown.
"""


class ToolReport(NamedTuple):
    """A connector's report that a tool has changed. `before` and `now` are definitions in canonical form if the tool `changed`,
    otherwise None.
    """

    how: HowChanged
    before: str | None = None
    now: str | None = None


def reported(failure: Failure) -> ToolReport | None:
    """Return the report of a changed tool in a connector's failure; None for any other failure."""
    details = failure.details
    if failure.failure_class is not FailureClass.EXTERNAL_API_ERROR or details.get("reason") != TOOL_CHANGED:
        return None
    if details.get("gone") is True:
        return ToolReport("gone")
    before, now = _definition(details.get("before")), _definition(details.get("now"))
    if before is None or now is None or before == now:
        return ToolReport("untold")
    return ToolReport("changed", before, now)


def tool_changes(before: str, now: str) -> tuple[Change, ...]:
    """Return the differences between two definitions of a tool, located by dotted names and by `[0]` in arrays. Each one counts
    as widening, because no untrusted text is harmless. If there are more than MAX_CHANGES, the last one says so.
    """
    found = list(islice(_found(msgspec.json.decode(before), msgspec.json.decode(now), "", 0), MAX_CHANGES + 1))
    if len(found) > MAX_CHANGES:
        return (*found[:MAX_CHANGES], Change.of("more", None, "further places differ: read the whole definition"))
    return tuple(found)


def _definition(said: Any) -> str | None:
    """Return `said` if it is a tool's definition: a text that is a JSON object in canonical form, so that no name
    appears twice in it. None for anything else, and for a text that is too long or nested too deeply.
    """
    if not isinstance(said, str) or len(said.encode("utf-8", "replace")) > MAX_DEFINITION_BYTES:
        return None
    try:
        value = msgspec.json.decode(said)
        is_canonical = msgspec.json.encode(value, order="sorted") == said.encode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return said if is_canonical and isinstance(value, dict) and not _is_deep(value) else None


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_NESTED):
        inner = [child for outer in level for child in (outer.values() if isinstance(outer, dict) else outer)]
        level = [child for child in inner if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def _found(value: Any, other: Any, where: str, depth: int) -> Iterator[Change]:
    if isinstance(value, dict) and isinstance(other, dict) and depth < _MAX_DEPTH:
        for name in [*value, *(name for name in other if name not in value)]:
            here = f"{where}.{name}" if where else name
            yield from _found(value.get(name, _ABSENT), other.get(name, _ABSENT), here, depth + 1)
    elif isinstance(value, list) and isinstance(other, list) and len(value) == len(other) and depth < _MAX_DEPTH:
        for number, (left, right) in enumerate(zip(value, other, strict=True)):
            yield from _found(left, right, f"{where}[{number}]", depth + 1)
    elif _json(value) != _json(other):
        yield Change.of(where[:_MAX_WHERE], _spelled(value), _spelled(other))


def _spelled(value: Any) -> str | None:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str | None:
    return None if value is _ABSENT else msgspec.json.encode(value, order="sorted").decode()
