"""GitHub's and Stripe's connectors, which were made from documents and edited: their cases, gates, previews and words.

Not here: the documents, and servers that enforce them or behave like Stripe (tests/documents/test_curated.py).
"""

from __future__ import annotations

import json
import tomllib
from typing import Any, Final

import pytest

from aileron.actions.manifest import parse_action
from aileron.connector_tests.bench import Bench, artifact_of
from aileron.connector_tests.cases import parse_cases
from aileron.importing.effects import needs_person
from aileron.importing.record import parse_record
from aileron.model.manifest import ActionFile, Effect
from tests.support.plain_host import ROOT

CURATED: Final = ("github", "stripe")
MOST_BYTES: Final = 600_000
"""Bytes that one connector in this repository may have, its record included."""
MONEY: Final = {
    "stripe-create-payment",
    "stripe-create-refund",
    "stripe-create-subscription",
    "stripe-update-subscription",
    "stripe-finalize-invoice",
}
SENDS: Final = {"github-add-comment", "github-review-pull", "github-create-release", "stripe-send-invoice"}
DELETES: Final = {"github-delete-file", "stripe-cancel-payment", "stripe-cancel-subscription"}
NOTHING_TO_SHOW: Final = {
    "stripe-create-customer",
    "stripe-create-product",
    "stripe-create-payment-link",
}
"""Actions without a preview: what they create is new and belongs to nothing that has one path."""


def actions_of(name: str) -> dict[str, ActionFile]:
    """Return the action files by their names."""
    paths = sorted((ROOT / "connectors" / name).glob("actions/*/action.md"))
    found = (parse_action(path.read_text(), file=str(path), allow_placeholder=True) for path in paths)
    return {action.name: action for action in found}


def operations_of(name: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return method and operation of the packed document, by operation name."""
    document = json.loads((ROOT / "connectors" / name / "service" / "document.json").read_bytes())
    return {
        operation["operationId"]: (method, operation)
        for methods in document["paths"].values()
        for method, operation in methods.items()
    }


@pytest.mark.jail
@pytest.mark.parametrize("name", CURATED)
def test_the_cases_pass_in_the_jail(name: str) -> None:
    """The cases are those that the import made, and those that were written by hand."""
    folder = ROOT / "connectors" / name
    cases = parse_cases((folder / "tests" / "cases.toml").read_text(), file="cases.toml").cases
    with Bench(artifact_of(folder, ())) as bench:
        reports = bench.run(cases)

    assert {report.case: report.problem for report in reports if report.problem is not None} == {}
    assert len(reports) >= 30


@pytest.mark.parametrize("name", CURATED)
def test_only_reads_run_without_approval(name: str) -> None:
    """The method of the request decides; nothing else is retried or used as a preview."""
    methods = {op: method for op, (method, _) in operations_of(name).items()}
    methods |= {"read_text_file": "get", "write_text_file": "put"}
    for action in actions_of(name).values():
        (step,) = action.steps
        assert action.approval.required is needs_person(methods[step.op], step.effect or Effect.READ), action.name
        assert step.idempotent is (not action.approval.required)
        assert action.preview is None or methods[action.preview.op] == "get"


def test_the_declared_effect_of_each_action_matches_what_its_call_does() -> None:
    """The named actions are all that pay, send or delete, and such a call can have no grant."""
    every = actions_of("github") | actions_of("stripe")
    weighs = {effect: {name for name, action in every.items() if action.steps[0].effect is effect} for effect in Effect}

    assert (weighs[Effect.PAY], weighs[Effect.SEND], weighs[Effect.DELETE]) == (MONEY, SENDS, DELETES)
    assert all(every[name].approval.irreversible for name in MONEY | SENDS | DELETES)
    assert {
        name for name, action in every.items() if action.approval.required and action.preview is None
    } == NOTHING_TO_SHOW


@pytest.mark.parametrize("name", CURATED)
def test_summaries_and_descriptions_are_hand_written(name: str) -> None:
    """Each action has a summary of its own, and short descriptions; no text is the import's."""
    made = parse_record((ROOT / "connectors" / name / "import.json").read_bytes()).texts
    actions = actions_of(name)

    assert 25 <= len(actions) <= 40
    assert len({action.summary for action in actions.values()}) == len(actions)
    assert tuple(f"actions/{action_name}" for action_name in actions) == tuple(
        tomllib.loads((ROOT / "connectors" / name / "suite.toml").read_text())["actions"]
    )
    for action in actions.values():
        assert made.get(f"actions/{action.name}/action.md") != action.text
        assert all(len(spec.description) <= 160 for spec in action.inputs), action.name
        assert name in action.tags


@pytest.mark.parametrize("name", CURATED)
def test_the_openapi_document_is_packed_with_its_licence(name: str) -> None:
    """The licence is beside the document, and packed with it; the connector stays small."""
    folder = ROOT / "connectors" / name
    packed = artifact_of(folder, ()).connector
    licence = (folder / "service" / "LICENSE").read_text()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")

    assert "Permission is hereby granted, free of charge" in licence
    assert b"service/LICENSE" in packed
    assert size < MOST_BYTES
