"""What an import did, kept beside what it made: which operations were chosen, with which words of the author, and the files as
they were made.

So a new document can be imported in the same way, and what the author changed since is told from what the document changed.

Pure. The record is a file of the repository, `import.json`; it is not packed. Not here: comparing (updating.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from aileron.importing.reading import DocumentError
from aileron.model.names import HostPort

__all__ = ["RECORD", "Choices", "ImportRecord", "chosen_now", "parse_record"]

RECORD: Final = "import.json"
_VERSION: Final = 1
_MAX_BYTES: Final = 8 << 20
"""8 MiB: 256 actions of 32 KiB, which is sixteen times what they have."""


class Choices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the author said beside the operations."""

    found_at: str | None = None
    """The URL of the document, which relative servers are relative to."""
    server: str | None = None
    """The address of the API, in the place of the document's: `https://host/base`."""
    host: HostPort | None = None
    """In the place of the document's."""
    is_host_open: bool = False
    """The host is named when the connector is built."""
    variables: Mapping[str, str] = {}
    auth: str | None = None
    client_id: str | None = None
    auth_server: str | None = None
    """Of an MCP server with several authorization servers, the one to sign in at."""
    scopes: Sequence[str] = ()
    """In the place of those that an MCP server asks for."""
    trust_read_only: bool = False
    """Of an MCP server: its word that a tool only reads is taken."""
    fields: Mapping[str, Sequence[str]] = {}
    """Of an operation with a list, the fields that are told of each member."""
    names: Mapping[str, str] = {}
    """What operations are called, in place of the document's names."""
    answer_depth: int | None = None
    """How many references deep answers are described, 1 or more; None: as far as the document goes."""


def chosen_now(before: Choices, given: Choices) -> Choices:
    """The choices of before with what the author says now. A server, a host, and a host that is open are one choice."""
    changed = {key: value for key, value in msgspec.structs.asdict(given).items() if value}
    if given.server or given.host or given.is_host_open:
        changed |= {"server": given.server, "host": given.host, "is_host_open": given.is_host_open}
    for key in ("variables", "fields", "names"):
        changed[key] = {**getattr(before, key), **getattr(given, key)}
    return msgspec.structs.replace(before, **changed)


class ImportRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `texts` are the files that an author may change, by their paths, as they were made."""

    version: int = _VERSION
    document_hash: str
    operations: tuple[str, ...]
    """Those that were chosen, imported or not."""
    choices: Choices
    texts: dict[str, str]

    def encoded(self) -> bytes:
        """As it is kept."""
        return msgspec.json.format(msgspec.json.encode(self, order="deterministic"), indent=1) + b"\n"


def parse_record(data: bytes) -> ImportRecord:
    """Read one. DocumentError for a file that is none."""
    try:
        if len(data) > _MAX_BYTES:
            raise ValueError(f"more than {_MAX_BYTES} bytes")
        found = msgspec.json.decode(data, type=ImportRecord)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{RECORD} cannot be read: {error}") from None
    if found.version != _VERSION:
        raise DocumentError(f"{RECORD} is of version {found.version}; expected {_VERSION}: import into a new directory")
    for path in ("manifest.toml", *found.texts):
        if path.startswith("/") or ".." in path.split("/") or path not in found.texts:
            raise DocumentError(f"{RECORD} names {path[:200]!r}, which is no file of the repository, or lacks it")
    return found
