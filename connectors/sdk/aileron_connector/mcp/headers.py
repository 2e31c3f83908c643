"""Headers that repeat parts of a request's body, as MCP revision 2026-07-28 requires: the method, the name, and the
arguments that a tool marks.

Pure. Runs in the jail, and in the author's command.

Source: Model Context Protocol 2026-07-28, Transports (Standard and Custom Headers).

>>> value_of("add_note"), value_of("Zürich")
('add_note', '=?base64?WsO8cmljaA==?=')
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aileron_sandbox.frames import JSON, JSONObject

__all__ = ["MARK", "argument_headers", "header_problem", "value_of"]

MARK: Final = "x-mcp-header"
"""Keyword in the schema of a property whose value is also sent as a header."""
_PREFIX: Final = "Mcp-Param-"
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_PLAIN: Final = re.compile(r"(?! )[\x20-\x7e]*(?<! )")
_WRAPPED: Final = re.compile(r"=\?base64\?.*\?=")
_KINDS: Final = ("string", "integer", "boolean")
_MAX_DEPTH: Final = 64


def value_of(text: str) -> str:
    """Return a text as a header's value: unchanged, or in base64 if a header cannot contain the text."""
    if _PLAIN.fullmatch(text) and not _WRAPPED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def argument_headers(schema: Any, arguments: Mapping[str, JSON]) -> list[tuple[str, str]]:
    """Return one header for each argument that is marked in the schema and given in the call."""
    found = []
    for path, name, _ in _marked(schema, (), 0):
        value: Any = arguments
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            found.append((_PREFIX + name, "true" if value else "false"))
        elif isinstance(value, str | int | float):
            found.append((_PREFIX + name, value_of(str(value))))
    return found


def header_problem(schema: Any) -> str | None:
    """Return an error in a schema's `x-mcp-header` keywords, or None. A tool with such an error must not be called."""
    names: set[str] = set()
    for _, name, inner in _marked(schema, (), 0):
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            return f"{MARK} is not the name of a header"
        if inner.get("type") not in _KINDS:
            return f"{MARK} {name} marks what is no string, integer or boolean"
        if name.lower() in names:
            return f"{MARK} {name} stands twice"
        names.add(name.lower())
    if _count(schema, 0) != len(names):
        return f"{MARK} marks what is no property of the arguments"
    return None


def _marked(schema: Any, path: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], Any, JSONObject]]:
    """Yield path, header name and schema of each property that has the keyword `x-mcp-header`."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or depth > _MAX_DEPTH:
        return
    for name, inner in properties.items():
        if isinstance(inner, dict):
            if MARK in inner:
                yield (*path, name), inner[MARK], inner
            yield from _marked(inner, (*path, name), depth + 1)


def _count(value: Any, depth: int) -> int:
    """Return the number of `x-mcp-header` keywords anywhere in a schema, to find out whether it has one outside of
    properties, which is an error.
    """
    if depth > _MAX_DEPTH * 2:
        return 0
    if isinstance(value, dict):
        here = int(MARK in value and not isinstance(value[MARK], dict))
        return here + sum(_count(member, depth + 1) for member in value.values())
    return sum(_count(member, depth + 1) for member in value) if isinstance(value, list) else 0
