"""Calls of imported operations, through the real jail and the real egress, to a server that enforces the same document.

A call keeps the contract if Prism accepts what we send, and we accept what it answers. Prism's own failures, which are not about
our request, have a reason in OF_PRISM. An operation for which no request can be right is in OF_DOCUMENT.

    for call in calls(named("gitea"), tools, most=60): ...

Not here: the server (prism.py), arguments (arguments.py), numbers (measure.py).
"""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aileron.connector_tests.bench import Bench, artifact_of
from aileron.importing.fetching import load
from aileron.importing.found import described
from aileron.importing.operations import Imported
from aileron.model.failure import Failure
from tests.documents.arguments import arguments
from tests.documents.corpus import made_of, write
from tests.documents.install import Tools
from tests.documents.prism import Enforced, enforcing
from tests.documents.table import Document

__all__ = ["CALLED", "NO_VALUE", "OF_DOCUMENT", "OF_PRISM", "Call", "calls"]

CALLED: Final = ("twilio", "gitea", "asana", "jira", "digitalocean")
"""The documents whose operations are called, by their names."""
NO_VALUE: Final = "no value is known that fits"
OF_PRISM: Final = {
    "Prism's answer does not fit the document": re.compile(r'"location": ?\["response"'),
    "the document has no schema for the answer, and Prism makes none up": re.compile(r"but schema is not defined"),
    "Prism answers 303 without a place": re.compile(r"names no place where the answer is \(status 303\)"),
}
"""Patterns of Prism's failures for a good request, with the reason for each."""
OF_DOCUMENT: Final = {
    (
        "digitalocean",
        "droplet_actions_post_by_tag",
    ): "the document takes no value: each fits both branches of its `oneOf`",
}
"""Operations that Prism refuses for every argument, each examined by hand."""
_OF_REQUEST: Final = re.compile(r'"location": ?\["request"')


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of an operation. `problem` is None if the contract was kept. `reason`, from these lists, says why that
    could not be seen.
    """

    op: str
    args: dict[str, Any] | None
    problem: str | None = None
    reason: str | None = None


def calls(document: Document, tools: Tools, *, most: int | None = None) -> Iterator[Call]:
    """Call each imported operation of the document, or every nth, so that about `most` of them are called."""
    with enforcing(document, tools) as at:
        found = described(load([str(at.file)]))
        every = 1 if most is None else max(1, len(found.operations) // most)
        for made in made_of(document, found, found.operations[::every]):
            with tempfile.TemporaryDirectory(prefix="ail-") as folder:
                write(made, Path(folder))
                with Bench(artifact_of(Path(folder), (at.upstream.address,))) as bench:
                    for operation in made.imported:
                        yield _call(bench, operation, at, OF_DOCUMENT.get((document.name, operation.name)))


def _call(bench: Bench, operation: Imported, at: Enforced, known: str | None) -> Call:
    args = arguments(operation)
    if args is None:
        return Call(operation.name, None, reason=NO_VALUE)
    failure = bench.call(operation.name, args, at.upstream).failure
    if failure is None:
        return Call(operation.name, args)
    reason = known or _of_prism(failure)
    said = f"{failure.failure_class.value}: {failure.message}; {_details(failure)[:1500]}"
    return Call(operation.name, args, problem=None if reason else said, reason=reason)


def _of_prism(failure: Failure) -> str | None:
    said = f"{failure.message}; {_details(failure)}"
    if _OF_REQUEST.search(said):
        return None
    return next((reason for reason, pattern in OF_PRISM.items() if pattern.search(said)), None)


def _details(failure: Failure) -> str:
    """Return a failure's details as JSON; text stays as it is."""
    return "; ".join(value if isinstance(value, str) else json.dumps(value) for value in failure.details.values())
