"""Types for the packed tools of one server, `service/tools.json`, which an import writes and a connector reads.

Each tool is described twice. `listed` is exactly what the server said of it: name, title, description, schemas and
annotations. A call compares it with what the server says now. `sent` and `answered` are its schemas in the keywords of
aileron_connector/check.py, against which arguments and answers are checked; named schemas are in `components.schemas`, as in a
packed OpenAPI document.

Tools and schemas stay undecoded until they are used (`msgspec.Raw`): a run needs one tool, and a server may have hundreds.

Source: docs/reference/packed-mcp-tools.md. Not here: comparing (comparing.py).
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

__all__ = ["FORMAT", "FROZEN", "Components", "Tool", "Tools", "canonical", "digest_of", "frozen_part"]

FORMAT: Final = 1
FROZEN: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""Keys with which a server describes a tool to those that choose and call it. Icons and `_meta` are for others."""


class Tool(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A packed tool. `arguments` maps properties to argument names; or `argument` names the one argument that has all of them."""

    digest: str
    """SHA-256 of `listed` in canonical form, `sha256:` and 64 hex digits: for records, which text the consent was for."""
    listed: dict[str, Any]
    arguments: dict[str, str] = {}
    argument: str = ""
    sent: dict[str, Any] | bool = True
    answered: dict[str, Any] | bool = True


class Components(msgspec.Struct, frozen=True, omit_defaults=True):
    """Named schemas of the document."""

    schemas: dict[str, msgspec.Raw] = {}


class Tools(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The whole file. The keys of `tools` are the operations that call them."""

    format: int
    title: str
    version: str = ""
    path: str
    """Path of the server, on the first host of the manifest."""
    protocol: str
    """Revision of the protocol that was spoken when the tools were listed."""
    credential: str = ""
    """Kind of credential that the manifest declares; empty if none."""
    tools: dict[str, msgspec.Raw]
    components: Components = Components()


def frozen_part(listed: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a listed tool that is frozen and compared."""
    return {key: listed[key] for key in FROZEN if listed.get(key) is not None}


def canonical(listed: dict[str, Any]) -> bytes:
    """Return bytes that are equal for equal values, in whatever order their keys are."""
    return msgspec.json.encode(listed, order="sorted")


def digest_of(listed: dict[str, Any]) -> str:
    """Return `sha256:` and 64 hex digits, over the canonical form."""
    return f"sha256:{hashlib.sha256(canonical(listed)).hexdigest()}"
