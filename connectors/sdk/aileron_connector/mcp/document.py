"""Types for `service/tools.json`, the packed tools of one MCP server. An import writes this file, and a connector reads it.

Each tool is described twice. `listed` is exactly the server's description: name, title, description, schemas and annotations.
A call compares `listed` with the server's present description. `sent` and `answered` are the tool's schemas in the keywords
of aileron_connector/check.py; arguments and answers are checked against them; named schemas are in `components.schemas`, as
in a packed OpenAPI document.

Tools and schemas stay undecoded until they are used (`msgspec.Raw`): a run needs one tool, and a server may have hundreds.

Source: docs/reference/packed-mcp-tools.md. Not here: comparing (comparing.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from aileron_connector.check import Schema
from aileron_sandbox.frames import JSONObject

__all__ = ["FORMAT", "FROZEN", "Components", "Tool", "Tools", "canonical", "digest_of", "frozen_part"]

FORMAT: Final = 1
FROZEN: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""Keys of a tool's description that matter to the agents and people who choose and call the tool, unlike icons and `_meta`."""


class Tool(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A packed tool. `arguments` maps properties of the tool's schema to arguments of the operation. If it is empty,
    `argument` names the one argument that holds all properties.
    """

    digest: str
    """SHA-256 of `listed` in canonical form, as `sha256:` and 64 hex digits. It identifies the description that a person
    approved.
    """
    listed: JSONObject
    arguments: dict[str, str] = {}
    argument: str = ""
    sent: Schema | bool = True
    answered: Schema | bool = True


class Components(msgspec.Struct, frozen=True, omit_defaults=True):
    """Named schemas, to which the schemas of the tools refer."""

    schemas: dict[str, msgspec.Raw] = {}


class Tools(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The contents of `tools.json`. The keys of `tools` are the names of the operations that call the tools."""

    format: int
    title: str
    version: str = ""
    path: str
    """Path of the MCP server, on the first host of the manifest."""
    protocol: str
    """MCP revision that was used when the tools were listed."""
    credential: str = ""
    """Kind of credential that the manifest declares; empty if the server needs no credential."""
    tools: dict[str, msgspec.Raw]
    components: Components = Components()


def frozen_part(listed: JSONObject) -> JSONObject:
    """Return the part of a server's tool description that a call compares with the packed one: the keys in FROZEN."""
    return {key: listed[key] for key in FROZEN if listed.get(key) is not None}


def canonical(listed: Mapping[str, object]) -> bytes:
    """Return the canonical JSON of a tool's description. Equal descriptions give equal bytes, whatever the order of
    their keys.
    """
    return msgspec.json.encode(listed, order="sorted")


def digest_of(listed: JSONObject) -> str:
    """Return the digest of a tool description's canonical form, as `sha256:` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(canonical(listed)).hexdigest()}"
