"""The record of an import, kept beside its files: which operations were chosen, the author's choices, and the files as
they were made.

With it a new document can be imported in the same way, and the author's changes since are told from the document's.

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
    """The author's choices beside the operations."""

    found_at: str | None = None
    """The URL of the document, to which relative servers are relative."""
    server: str | None = None
    """The address of the API, in the place of the document's: `https://host/base`."""
    host: HostPort | None = None
    """The host of the API, in the place of the document's."""
    is_host_open: bool = False
    """True if the host is named when the connector is built."""
    variables: Mapping[str, str] = {}
    auth: str | None = None
    client_id: str | None = None
    auth_server: str | None = None
    """Authorization server to sign in at, for an MCP server that has several."""
    scopes: Sequence[str] = ()
    """Scopes in the place of those that an MCP server asks for."""
    trust_read_only: bool = False
    """True if an MCP server is trusted when it says that a tool only reads."""
    fields: Mapping[str, Sequence[str]] = {}
    """Fields of each member that an agent gets, by operation with a list."""
    names: Mapping[str, str] = {}
    """Names of operations, in place of the document's names."""
    answer_depth: int | None = None
    """Number of references through which answers are described, 1 or more; None: as far as the document goes."""


def chosen_now(before: Choices, given: Choices) -> Choices:
    """Return the earlier choices with the author's new ones. A server, a host, and an open host are one choice."""
    changed = {key: value for key, value in msgspec.structs.asdict(given).items() if value}
    if given.server or given.host or given.is_host_open:
        changed |= {"server": given.server, "host": given.host, "is_host_open": given.is_host_open}
    for key in ("variables", "fields", "names"):
        changed[key] = {**getattr(before, key), **getattr(given, key)}
    return msgspec.structs.replace(before, **changed)


class ImportRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of an import. `texts` are the files that an author can change, by their paths, as they were made."""

    version: int = _VERSION
    document_hash: str
    operations: tuple[str, ...]
    """Names of the operations that were chosen, imported or not."""
    choices: Choices
    texts: dict[str, str]

    def encoded(self) -> bytes:
        """Return the record as it is stored."""
        return msgspec.json.format(msgspec.json.encode(self, order="deterministic"), indent=1) + b"\n"


def parse_record(data: bytes) -> ImportRecord:
    """Read a record. DocumentError for a file that is none."""
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
