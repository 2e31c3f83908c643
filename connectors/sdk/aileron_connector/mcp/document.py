"""The packed tools of one server, as types: what an import writes and a connector reads, `service/tools.json`.

Each tool is there twice. `listed` is what the server said of it, to the letter: name, title, description, schemas and
annotations. A call compares it with what the server says now. `sent` and `answered` are its schemas in the keywords of
aileron_connector/check.py, which arguments and answers are held to; named schemas are in `components.schemas`, as in a packed
OpenAPI document.

Tools and schemas stay undecoded until they are asked for (`msgspec.Raw`): a run needs one tool, and a server may have hundreds.

Source: docs/reference/packed-mcp-tools.md. Not here: comparing (comparing.py).
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

__all__ = ["FORMAT", "FROZEN", "Components", "Tool", "Tools", "canonical", "digest_of", "frozen_part"]

FORMAT: Final = 1
FROZEN: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""What a server says of a tool to those who choose and call it. Icons and `_meta` are for others."""


class Tool(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One tool. `arguments`: property to argument; or `argument`: the one that is all of them."""

    digest: str
    """sha256 of `listed` in canonical form, `sha256:` and 64 hex digits: which text was agreed to, for records."""
    listed: dict[str, Any]
    arguments: dict[str, str] = {}
    argument: str = ""
    sent: dict[str, Any] | bool = True
    answered: dict[str, Any] | bool = True


class Components(msgspec.Struct, frozen=True, omit_defaults=True):
    """Schemas by name."""

    schemas: dict[str, msgspec.Raw] = {}


class Tools(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All of it. `tools` are by the operations that call them."""

    format: int
    title: str
    version: str = ""
    path: str
    """Of the server, on the first host of the manifest."""
    protocol: str
    """The revision that was spoken when the tools were listed."""
    credential: str = ""
    """The kind that the manifest declares; empty: none."""
    tools: dict[str, msgspec.Raw]
    components: Components = Components()


def frozen_part(listed: dict[str, Any]) -> dict[str, Any]:
    """What of a listed tool is frozen, and compared."""
    return {key: listed[key] for key in FROZEN if listed.get(key) is not None}


def canonical(listed: dict[str, Any]) -> bytes:
    """Bytes that are the same for the same values, whatever the order of their keys."""
    return msgspec.json.encode(listed, order="sorted")


def digest_of(listed: dict[str, Any]) -> str:
    """`sha256:` and 64 hex digits, over the canonical form."""
    return f"sha256:{hashlib.sha256(canonical(listed)).hexdigest()}"
