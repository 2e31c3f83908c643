"""The record of an import, stored with its files. It has the chosen operations, the author's choices, and the files as
generated.

With the record, a new document can be imported in the same way, and the author's later changes can be distinguished from the
document's.

Pure. The record is a file of the repository, `import.json`; it is not packed into the connector. Not here: comparing
(updating.py).
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
"""8 MiB: maximum size of a record, enough for 256 actions of 32 KiB, which is sixteen times their usual size."""


class Choices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The author's choices for an import, apart from the choice of operations."""

    found_at: str | None = None
    """The URL that the document came from, which relative server URLs are resolved against."""
    server: str | None = None
    """The address of the API, in place of the document's: `https://host/base`."""
    host: HostPort | None = None
    """The host of the API, in place of the document's."""
    is_host_open: bool = False
    """True if the host is chosen when the connector is built."""
    variables: Mapping[str, str] = {}
    auth: str | None = None
    client_id: str | None = None
    auth_server: str | None = None
    """Authorization server to use for an MCP server that has several."""
    scopes: Sequence[str] = ()
    """Scopes that replace those that an MCP server requests."""
    trust_read_only: bool = False
    """True if an MCP server is trusted to mark tools that only read."""
    fields: Mapping[str, Sequence[str]] = {}
    """Fields of each list member that an agent gets, by the name of the operation that returns the list."""
    names: Mapping[str, str] = {}
    """The author's names of operations, by the names that they replace."""
    answer_depth: int | None = None
    """Number of references, 1 or more, that are followed to describe responses; None follows all references."""


def chosen_now(before: Choices, given: Choices) -> Choices:
    """Return the earlier choices, updated with the author's new ones.

    `server`, `host` and `is_host_open` are one choice: a new one replaces all three.
    """
    changed = {key: value for key, value in msgspec.structs.asdict(given).items() if value}
    if given.server or given.host or given.is_host_open:
        changed |= {"server": given.server, "host": given.host, "is_host_open": given.is_host_open}
    for key in ("variables", "fields", "names"):
        changed[key] = {**getattr(before, key), **getattr(given, key)}
    return msgspec.structs.replace(before, **changed)


class ImportRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of an import. `texts` has the files that an author can change, by path, as generated."""

    version: int = _VERSION
    document_hash: str
    operations: tuple[str, ...]
    """Names of the chosen operations, whether they could be imported or not."""
    choices: Choices
    texts: dict[str, str]

    def encoded(self) -> bytes:
        """Return the record as bytes for storage."""
        return msgspec.json.format(msgspec.json.encode(self, order="deterministic"), indent=1) + b"\n"


def parse_record(data: bytes) -> ImportRecord:
    """Parse a record. Raises DocumentError if `data` is not a record."""
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
