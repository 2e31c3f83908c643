"""The tables of docs/reference/openapi-documents.md, measured here; the words around them are written by people.

$ python -m tests.documents.measure           # all: some minutes
    $ python -m tests.documents.measure corpus    # what is imported of each document
    $ python -m tests.documents.measure examples  # which of the documents' own examples can be given
    $ python -m tests.documents.measure contract  # every operation of some documents against a server that enforces them

Not here: the tests that compare (test_corpus.py).
"""

from __future__ import annotations

import functools
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.documents.contract import CALLED, calls
from tests.documents.corpus import Outcome, imported_whole
from tests.documents.examples import Bodies
from tests.documents.install import PRISM_VERSION, Servers, Tools, installed, servers_installed
from tests.documents.reasons import grouped
from tests.documents.table import DOCUMENTS, named

__all__ = ["PAGE", "corpus_rows", "example_rows"]

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "openapi-documents.md"
_MARKS: Final = "<!-- {what}: written by `python -m tests.documents.measure`, do not edit -->", "<!-- end of {what} -->"
_EXAMPLES: Final = re.compile(r"^\| ([^|]+) \| ([0-9]+) \| ([0-9]+) \| ([0-9]+) \| ([0-9]+) \|$", re.MULTILINE)
_ROW: Final = re.compile(r"^\| ([^|]+) \| [^|]* ([^ |]+) \| ([0-9]+) \| ([0-9]+) \|", re.MULTILINE)


def corpus_rows(page: str) -> dict[str, tuple[str, int, int]]:
    """Return document → version, operations, imported; as the page has it."""
    return {title: (version, int(found), int(imported)) for title, version, found, imported in _ROW.findall(page)}


@functools.cache
def _outcomes(tools: Tools, servers: Servers) -> list[Outcome]:
    outcomes = []
    for document in DOCUMENTS:
        outcomes.append(imported_whole(document, tools, servers))
        print(f"{document.title}: {outcomes[-1].percent:.1f} %", file=sys.stderr)
    return outcomes


def _corpus(tools: Tools, servers: Servers) -> str:
    outcomes = _outcomes(tools, servers)
    found, imported = sum(outcome.found for outcome in outcomes), sum(outcome.imported for outcome in outcomes)
    lines = [
        f"{len(outcomes)} documents, {found} operations, {imported} imported: {100 * imported / found:.1f} %. "
        f"CPython {platform.python_version()}.",
        "",
        "| document | package | operations | imported | connectors | seconds | packed documents | archives |",
        "|---|---|---|---|---|---|---|---|",
        *map(_row, outcomes),
        "",
        "| operations | not imported, because the operation |",
        "|---|---|",
    ]
    every: Counter[str] = Counter()
    where: dict[str, list[str]] = {}
    for outcome in outcomes:
        for words, number in grouped(outcome.refused).items():
            every[words] += number
            where.setdefault(words, []).append(f"{outcome.document.title} {number}")
    lines += [f"| {number} | {words} ({', '.join(where[words])}) |" for words, number in every.most_common()]
    return "\n".join(lines)


def example_rows(page: str) -> dict[str, tuple[int, int, int, int]]:
    """Return document → JSON bodies, those with an example, accepted, contradicting; as the page has it."""
    _, _, part = page.partition(_MARKS[0].format(what="examples"))
    return {title: (int(a), int(b), int(c), int(d)) for title, a, b, c, d in _EXAMPLES.findall(part)}


def _examples(tools: Tools, servers: Servers) -> str:
    outcomes = [outcome for outcome in _outcomes(tools, servers) if outcome.bodies.with_example]
    every = sum((outcome.bodies for outcome in outcomes), Bodies())
    lines = [
        f"{len(outcomes)} documents, {every.with_example} JSON bodies with an example, {every.accepted} accepted: "
        f"{100 * every.accepted / every.with_example:.1f} %. {every.fitting} of the examples fit the schema of their own "
        f"document; of these {100 * every.accepted / every.fitting:.1f} %. CPython {platform.python_version()}.",
        "",
        "| document | JSON bodies | with an example | accepted | refused by its own schema |",
        "|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        bodies = outcome.bodies
        cells = (bodies.of_json, bodies.with_example, bodies.accepted, bodies.contradicting)
        lines.append(f"| {outcome.document.title} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _row(outcome: Outcome) -> str:
    document = outcome.document
    cells = [
        document.title,
        f"{document.registry}: {document.package} {document.version}",
        str(outcome.found),
        str(outcome.imported),
        str(outcome.connectors),
        f"{outcome.s:.1f}",
        _kib(outcome.packed_bytes),
        _kib(outcome.archive_bytes),
    ]
    return f"| {' | '.join(cells)} |"


def _contract(tools: Tools, servers: Servers) -> str:
    lines = [
        f"Prism {PRISM_VERSION}. CPython {platform.python_version()}.",
        "",
        "| document | operations called | contract kept | contract broken | not seen | seconds |",
        "|---|---|---|---|---|---|",
    ]
    reasons: Counter[str] = Counter()
    for document in map(named, CALLED):
        began = time.monotonic()
        made = list(calls(document, tools))
        unseen = Counter(call.reason for call in made if call.reason)
        reasons.update(unseen)
        broken = sum(call.problem is not None for call in made)
        cells = [
            len(made),
            len(made) - broken - unseen.total(),
            broken,
            unseen.total(),
            f"{time.monotonic() - began:.0f}",
        ]
        lines.append(f"| {document.title} | {' | '.join(map(str, cells))} |")
        print(f"{document.title}: {broken} broken", file=sys.stderr)
    lines += ["", "| operations | not seen, because |", "|---|---|"]
    lines += [f"| {number} | {reason} |" for reason, number in reasons.most_common()]
    return "\n".join(lines)


def _kib(size: int) -> str:
    return f"{(size + 1023) >> 10} KiB"


_PARTS: Final[dict[str, Callable[[Tools, Servers], str]]] = {
    "corpus": _corpus,
    "examples": _examples,
    "contract": _contract,
}


def main(parts: Sequence[str]) -> None:
    """Measure and write each part."""
    tools, servers = installed(), servers_installed()
    for what in parts or tuple(_PARTS):
        begin, end = (mark.format(what=what) for mark in _MARKS)
        made = _PARTS[what](tools, servers)
        page = PAGE.read_text(encoding="utf-8")
        before, found, rest = page.partition(begin)
        _, also_found, after = rest.partition(end)
        if not found or not also_found:
            raise ValueError(f"{PAGE} has lost its marks {begin} and {end}")
        PAGE.write_text(f"{before}{begin}\n\n{made}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
