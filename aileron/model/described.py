"""Descriptions of a closed schema: the tables of its reference page, and JSON Schema for editors.

Pure. Both are made from the `Field`s that the reader of documents (document.py) checks with, so neither can differ from the
reader. Editors underline mistakes by the JSON Schema: it accepts everything that the parser accepts, but cannot express
everything that the parser refuses (such as a key that needs another key, or a reference without an input).

Source: JSON Schema 2020-12; docs/reference/action-file.md, connector-manifest.md. Not here: the schemas (actions/manifest.py,
registry/manifest.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from aileron.model.document import MAX_NUMBER, Field, Kind, Schema, rows
from aileron.model.json_value import JSONObject

__all__ = ["DIALECT", "json_schema", "page_tables"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_TYPES: Final[dict[Kind, JSONObject]] = {
    Kind.STRING: {"type": "string"},
    Kind.INTEGER: {"type": "integer"},
    Kind.NUMBER: {"type": "number", "minimum": -MAX_NUMBER, "maximum": MAX_NUMBER},
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.STRINGS: {"type": "array", "items": {"type": "string"}},
    Kind.VALUE: {},
    Kind.VALUES: {"type": "array"},
    Kind.FREE: {"type": "object"},
    Kind.TABLE: {"type": "object"},
    Kind.TABLES: {"type": "array"},
}
_BOUNDS: Final = {
    Kind.INTEGER: ("minimum", "maximum"),
    Kind.STRING: ("minLength", "maxLength"),
    Kind.STRINGS: ("minItems", "maxItems"),
    Kind.VALUES: ("minItems", "maxItems"),
    Kind.TABLES: ("minItems", "maxItems"),
    Kind.FREE: ("minProperties", "maxProperties"),
}


def json_schema(schema: Schema, title: str) -> JSONObject:
    """Return a JSON Schema for documents in TOML with this schema, for editors that read TOML as JSON."""
    return {"$schema": DIALECT, "title": title, **_object(schema)}


def _object(fields: Schema) -> JSONObject:
    return {
        "type": "object",
        "properties": {key: _property(field) for key, field in fields.items()},
        "required": [key for key, field in fields.items() if field.required],
        "additionalProperties": False,
    }


def _property(field: Field) -> JSONObject:
    found: JSONObject = dict(_TYPES[field.kind])
    if field.fields:
        found |= {"items": _object(field.fields)} if field.kind is Kind.TABLES else _object(field.fields)
    if field.bounds is not None:
        found |= dict(zip(_BOUNDS[field.kind], (field.bounds[0], field.bounds[-1]), strict=True))
    if field.is_unique:
        found["uniqueItems"] = True
    if field.choices:
        found["enum"] = list(field.choices)
    if field.pattern is not None:
        whole = {"pattern": f"^(?:{field.pattern})$"}
        found |= {"items": {"type": "string", **whole}} if field.kind is Kind.STRINGS else whole
    return found | dict(_words(field))


def _words(field: Field) -> Iterator[tuple[str, Any]]:
    if field.says:
        yield "description", _LINK.sub(r"\1", field.says)
    if field.default is not None:
        yield "default", field.default
    if field.example is not None:
        yield "examples", [field.example]


def page_tables(schema: Schema) -> dict[str, str]:
    """Return a dict from each table's TOML header (empty for the top level) to the Markdown table of its keys."""
    tables: dict[str, list[str]] = {}
    for row in rows(schema):
        lines = tables.setdefault(row.table, ["| key | type | required | rule |", "|---|---|---|---|"])
        required = "yes" if row.field.required else "no"
        lines.append(f"| `{row.key}` | {row.field.kind.value} | {required} | {_rule(row.field)} |")
    return {header: "\n".join(lines) for header, lines in tables.items()}


def _rule(field: Field) -> str:
    facts = "; ".join(_facts(field))
    return f"{field.says} ({facts})" if facts else field.says


def _facts(field: Field) -> Iterator[str]:
    if field.choices:
        yield "one of " + ", ".join(f"`{choice}`" for choice in field.choices)
    if field.bounds is not None:
        yield _bounds(field.kind, field.bounds)
    if field.default is not None:
        yield f"default `{_spelled(field.default)}`"


def _bounds(kind: Kind, bounds: range) -> str:
    unit = "" if kind is Kind.INTEGER else " characters" if kind is Kind.STRING else " of them"
    if bounds[-1] == MAX_NUMBER:
        return f"at least {bounds[0]}"
    if bounds[0] == 0 and unit:
        return f"at most {bounds[-1]}{unit}"
    return f"{bounds[0]} to {bounds[-1]}{unit}"


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
