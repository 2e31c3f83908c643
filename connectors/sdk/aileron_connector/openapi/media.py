"""Media types, grouped into five kinds by the way in which their bodies are written and read.

>>> kind_of("application/vnd.api+json; charset=utf-8")
'json'

Every type that is not known to be text is binary. Binary arguments and outputs are base64, so that no byte is changed.
Pure. Source: RFC 6838, RFC 6839 (the suffixes), RFC 7303.
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["Kind", "essence", "kind_of"]

Kind = Literal["json", "form", "multipart", "text", "binary"]

_JSON: Final = frozenset({"application/json", "text/json", "application/x-json"})
_TEXT: Final = frozenset(
    {
        "application/csv",
        "application/ecmascript",
        "application/graphql",
        "application/javascript",
        "application/json-seq",
        "application/jsonl",
        "application/jsonlines",
        "application/ndjson",
        "application/sql",
        "application/toml",
        "application/x-httpd-php",
        "application/x-jsonlines",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-toml",
        "application/x-yaml",
        "application/xml",
        "application/xml-dtd",
        "application/yaml",
        "image/svg+xml",
    }
)
_TEXT_SUFFIXES: Final = ("+xml", "+yaml", "+json-seq")


def essence(media_type: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return media_type.partition(";")[0].strip().lower()


def kind_of(media_type: str) -> Kind:
    """Return the kind of a media type, such as `json` or `binary`. The kind decides how the body is written and read."""
    name = essence(media_type)
    if name in _JSON or name.endswith("+json"):
        return "json"
    if name == "application/x-www-form-urlencoded":
        return "form"
    if name == "multipart/form-data":
        return "multipart"
    if name.startswith("text/") or name in _TEXT or name.endswith(_TEXT_SUFFIXES):
        return "text"
    return "binary"
