"""Documents of nearly forty services, each imported whole: what is imported is built, and every action of it can be added."""

from __future__ import annotations

import functools

import pytest

from tests.documents.corpus import Outcome, imported_whole
from tests.documents.examples import Bodies
from tests.documents.install import Servers, Tools
from tests.documents.measure import PAGE, corpus_rows, example_rows
from tests.documents.reasons import grouped
from tests.documents.table import DOCUMENTS, Document

pytestmark = pytest.mark.timeout(600)
LEAST = 95
"""Per cent of all operations of all documents, and of all examples of bodies."""


@functools.cache
def outcome_of(document: Document, tools: Tools, servers: Servers) -> Outcome:
    """Import a document once for all tests."""
    return imported_whole(document, tools, servers)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_nearly_every_operation_of_a_document_is_imported(document: Document, tools: Tools, servers: Servers) -> None:
    """The reason for each operation that is left out is in a known list."""
    outcome = outcome_of(document, tools, servers)

    assert outcome.problems == ()
    assert outcome.found == outcome.imported + outcome.refused.total()
    assert outcome.percent >= document.floor
    assert grouped(outcome.refused).total() == outcome.refused.total()


def test_95_per_cent_of_all_operations_are_imported(tools: Tools, servers: Servers) -> None:
    """The test counts over the documents of GitHub, Stripe and 36 other services."""
    outcomes = [outcome_of(document, tools, servers) for document in DOCUMENTS]

    assert len(outcomes) >= 20
    assert {"github", "stripe"} <= {outcome.document.name for outcome in outcomes}
    assert 100 * sum(outcome.imported for outcome in outcomes) / sum(outcome.found for outcome in outcomes) >= LEAST


def test_the_openapi_documents_page_lists_how_many_operations_are_imported(tools: Tools, servers: Servers) -> None:
    """`python -m tests.documents.measure corpus` writes the page's table."""
    told = corpus_rows(PAGE.read_text(encoding="utf-8"))

    assert told == {
        document.title: (document.version, outcome.found, outcome.imported)
        for document in DOCUMENTS
        for outcome in (outcome_of(document, tools, servers),)
    }


def test_the_documents_own_examples_are_accepted_or_listed(tools: Tools, servers: Servers) -> None:
    """Examples that contradict their own document count too; each that is not accepted is under `left_out` with its reason."""
    every = sum((outcome_of(document, tools, servers).bodies for document in DOCUMENTS), Bodies())

    assert every.unlisted == ()
    assert every.with_example > 1000
    assert 100 * every.accepted / every.with_example >= LEAST


def test_the_openapi_documents_page_lists_how_many_examples_are_accepted(tools: Tools, servers: Servers) -> None:
    """`python -m tests.documents.measure examples` writes the page's table."""
    told = example_rows(PAGE.read_text(encoding="utf-8"))

    assert told == {
        document.title: (bodies.of_json, bodies.with_example, bodies.accepted, bodies.contradicting)
        for document in DOCUMENTS
        for bodies in (outcome_of(document, tools, servers).bodies,)
        if bodies.with_example
    }
