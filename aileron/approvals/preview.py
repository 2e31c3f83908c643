"""Rendering of a preview: the parts of an operation's output that the action selects, as text, in the action's order.

Pure; runs in the daemon. Trusts neither side: the paths are from an untrusted file, and the output is from a connector, which
received it from a service, where anybody can have written it. Hidden characters are kept: the code that shows text makes them
visible.

A path consists of names and array indexes separated by dots. In an array of `{name, value}` tables, the form of mail headers, a
name (in any case) selects the value of the table with that name. If several tables have the name, the name selects all their
values, so that none can hide another. A path that begins with `...` starts at the first name that matches, searching level by
level from the top, so that data which a service nests deep inside cannot replace data that the connector wrote itself.

>>> planned = [("Subject", "message.headers.Subject"), ("Size", "...size"), ("Cc", "message.cc")]
>>> answer = {"message": {"headers": [{"name": "subject", "value": "Hi"}]}, "meta": {"size": 3}}
>>> [line.value for line in _lines(answer, planned, frozenset())]
['Hi', '3', None]

Source: docs/reference/action-file.md. Not here: the request for a preview by an approver (daemon/), and its run (runs/spine.py).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any, Final

from aileron.model.json_value import JSONObject
from aileron.model.plan import PlannedPreview
from aileron.model.preview import PreviewField

__all__ = ["MAX_VALUE_BYTES", "rendered"]

MAX_VALUE_BYTES: Final = 64 << 10
"""64 KiB, about 30 screens: maximum size of one value as UTF-8. A preview's 32 values still fit in one response of the
daemon.
"""
_MAX_NODES: Final = 200_000
"""Maximum number of tables and lists that are searched for names; a result has at most 131,072 values
(docs/reference/failures.md).
"""
_ANYWHERE: Final = "..."


_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class _Missing:
    """Type of the marker for a path that matches nothing in the output."""


_MISSING: Final = _Missing()


def rendered(output: Any, preview: PlannedPreview) -> list[PreviewField]:
    """Return the lines of the preview, in its order, with values from `output`.

    `output` is the output of the preview operation, as JSON values.
    """
    return _lines(output, preview.render, preview.multiline)


def _lines(output: Any, render: Iterable[tuple[str, str]], multiline: Collection[str]) -> list[PreviewField]:
    paths = [(label, path.startswith(_ANYWHERE), path.removeprefix(_ANYWHERE).split(".")) for label, path in render]
    nearest = _nearest(output, {parts[0] for _, is_anywhere, parts in paths if is_anywhere})
    lines = []
    for label, is_anywhere, parts in paths:
        found = nearest.get(parts[0], _MISSING) if is_anywhere else _at(output, parts[:1])
        value = _at(found, parts[1:])
        lines.append(PreviewField(label, _text(value), label in multiline))
    return lines


def _text(value: Any) -> str | None:
    if value is _MISSING or value is None:
        return None
    return _bounded_text(value) if isinstance(value, str) else _bounded_json(value)


def _nearest(output: Any, names: set[str]) -> JSONObject:
    """Return, for each name, the value of the first object key with that name, searching level by level. Names that are not found
    are absent.
    """
    found: JSONObject = {}
    waiting = deque([output] if isinstance(output, dict | list) else [])
    for _ in range(_MAX_NODES):
        if not waiting or len(found) == len(names):
            break
        node = waiting.popleft()
        if isinstance(node, dict):
            for name in names.intersection(node):
                found.setdefault(name, node[name])
        children = node.values() if isinstance(node, dict) else node
        waiting.extend(child for child in children if isinstance(child, dict | list))
    return found


def _at(value: Any, parts: list[str]) -> Any:
    for part in parts:
        value = _inside(value, part)
    return value


def _inside(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return value.get(part, _MISSING)
    if not isinstance(value, list):
        return _MISSING
    if part.isascii() and part.isdigit():
        # Nine digits are past any list, and int() of a thousand digits is slow.
        return value[int(part)] if len(part) < 10 and int(part) < len(value) else _MISSING
    named = [member["value"] for member in value if _is_named(member, part)]
    if not named:
        return _MISSING
    return named[0] if len(named) == 1 else named


def _is_named(member: Any, name: str) -> bool:
    if not isinstance(member, dict) or "value" not in member:
        return False
    found = member.get("name")
    return isinstance(found, str) and found.lower() == name.lower()


def _bounded_text(text: str) -> str:
    data = text.encode("utf-8", "replace")  # a lone surrogate has no UTF-8 form, and this text is hashed
    if len(data) <= MAX_VALUE_BYTES:
        return data.decode()
    kept = data[:MAX_VALUE_BYTES].decode("utf-8", "ignore")
    return f"{kept}\n(cut here: {len(data) - len(kept.encode())} of {len(data)} bytes are not shown)"


def _bounded_json(value: Any) -> str:
    """Return `value` as JSON, encoded only up to the size that is shown, because every line may select an output of 16 MiB."""
    pieces: list[str] = []
    size = 0
    try:
        for piece in _COMPACT.iterencode(value):
            pieces.append(piece)
            size += len(piece)  # characters, each at least one byte
            if size > MAX_VALUE_BYTES:
                break
    except (RecursionError, TypeError, ValueError):
        return "(a value that cannot be shown)"
    data = "".join(pieces).encode("utf-8", "replace")
    if len(data) <= MAX_VALUE_BYTES:
        return data.decode()
    return f"{data[:MAX_VALUE_BYTES].decode('utf-8', 'ignore')}\n(cut here: the rest after {MAX_VALUE_BYTES} bytes is not shown)"
