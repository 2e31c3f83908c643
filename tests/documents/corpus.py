"""A document imported whole, as connectors of at most 200 operations each, and each of them built as its author would build it.

An operation counts as imported if it is in a connector that was built and its action passes what `action add` asks of one.
Operations that need another credential than their slice are imported once more among themselves, as the reason says to do.

    outcome = imported_whole(DOCUMENTS[0])

Not here: which documents (table.py), the page (measure.py), calls (contract.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from aileron.actions.fitting import check_action
from aileron.actions.manifest import bind_placeholders, parse_action
from aileron.importing.fetching import load
from aileron.importing.found import Described, FoundOperation, described
from aileron.importing.reading import DocumentError
from aileron.importing.record import Choices
from aileron.importing.repository import Made, make
from aileron.importing.servers import chosen
from aileron.model.failure import AileronError
from aileron.model.names import Fqn, HostPort
from aileron.registry.artifact import Artifact, Trust, connector_of
from aileron.registry.connector_build import Application, build
from tests.documents.examples import Bodies, bodies_in
from tests.documents.install import Servers, Tools
from tests.documents.table import Document

__all__ = ["Outcome", "description_of", "imported_whole", "made_of", "write"]

CONNECTOR: Final = Fqn.parse("github://aileron-tests/connector-documents")
_SLICE: Final = 200
"""Operations of one connector: it may have 256, some of which only previews call."""
_ANOTHER: Final = "it needs another credential"
_APPLICATION: Final = Application(client_id="aileron-tests")
_HOST: Final = HostPort("api.example.com", 443)
"""Host for a document that does not say where its service is."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result for one document. `refused` counts reasons, as they were given; `s` is seconds from its bytes to the
    last file.
    """

    document: Document
    found: int
    imported: int
    with_another: int
    """Imported operations in a connector with another credential than the document's first."""
    refused: Counter[str]
    connectors: int
    s: float
    packed_bytes: int
    archive_bytes: int
    bodies: Bodies
    """JSON bodies of the document, with its own examples."""
    problems: tuple[str, ...]
    """Imported operations whose connector could not be built or whose action does not fit it."""

    @property
    def percent(self) -> float:
        """Percentage of the operations found that were imported."""
        return 100 * self.imported / self.found


def description_of(document: Document, tools: Tools, servers: Servers) -> Described:
    """Return the document, read."""
    folder = servers.documents if document.is_of_a_server else tools.documents
    return described(load([str(folder / document.file)]))


def imported_whole(document: Document, tools: Tools, servers: Servers) -> Outcome:
    """Import every operation of a document, in slices."""
    began = time.monotonic()
    found = description_of(document, tools, servers)
    slices = list(made_of(document, found, found.operations))
    unimported = [operation for made in slices for operation in made.unimported]
    others: list[Made] = []
    while again := [operation for operation in unimported if operation.reason.startswith(_ANOTHER)]:
        tried = list(_made_again(document, found, [operation.found for operation in again]))
        if not tried:
            break
        others += tried
        unimported = [operation for operation in unimported if operation not in again]
        unimported += [operation for made in tried for operation in made.unimported]
    took = time.monotonic() - began
    imported = archived = 0
    problems: list[str] = []
    for made in [*slices, *others]:
        archive, wrong = _built(made)
        problems += wrong
        archived += len(archive)
        imported += len(made.actions) - len(wrong)
    return Outcome(
        document=document,
        found=len(found.operations),
        imported=imported,
        with_another=sum(len(made.actions) for made in others),
        refused=Counter(operation.reason for operation in unimported),
        connectors=len(slices) + len(others),
        s=took,
        packed_bytes=sum(made.document_bytes for made in [*slices, *others]),
        archive_bytes=archived,
        bodies=sum((bodies_in(made, found) for made in [*slices, *others]), Bodies()),
        problems=tuple(problems),
    )


def made_of(
    document: Document, found: Described, operations: Sequence[FoundOperation], host: HostPort | None = None
) -> Iterator[Made]:
    """Make the repositories of these operations; `host` replaces the document's."""
    if host is None and chosen(found.servers, None, None, {}) is None:
        host = _HOST
    for at in range(0, len(operations), _SLICE):
        yield make(found, operations[at : at + _SLICE], CONNECTOR, Choices(host=host, auth=document.auth))


def _made_again(document: Document, found: Described, operations: Sequence[FoundOperation]) -> Iterator[Made]:
    """Make the repositories for another credential; yield nothing if none of the operations can be had with any."""
    with contextlib.suppress(DocumentError):
        yield from made_of(document, found, operations)


def write(made: Made, folder: Path) -> None:
    """Write the files of a repository."""
    for path, data in made.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def _built(made: Made) -> tuple[bytes, list[str]]:
    """Build the archive; return it, and the problems of its actions."""
    with tempfile.TemporaryDirectory(prefix="ail-") as name:
        write(made, Path(name))
        has_client = b"bound-at-release" in made.files["manifest.toml"]
        archive = build(Path(name), application=_APPLICATION if has_client else None).archive
    return archive, list(_misfits(made, connector_of(archive, Trust())))


def _misfits(made: Made, connector: Artifact) -> Iterator[str]:
    for action in made.actions:
        path = f"actions/{action.name}/action.md"
        try:
            text = bind_placeholders(made.files[path].decode(), file=path, pins=lambda *_: [connector.pin.hash])
            check_action(parse_action(text, file=path), lambda _: connector.manifest, file=path)
        except AileronError as error:
            yield f"{action.name}: {error.failure.message}"
