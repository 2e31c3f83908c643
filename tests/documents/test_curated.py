"""The repository's connectors made from documents, tested with these documents and a server that behaves like Stripe.

Edits stay, requests fit the document, and Stripe's connector does what it says. Decisions are signed. Effects are
checked where they matter: at the server, over HTTP, with no Aileron in between.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from aileron.actions.manifest import parse_action
from aileron.connector_tests.bench import Bench, artifact_of
from aileron.model.manifest import ActionFile
from tests.cli.command import Command, Said
from tests.cli.person import SIGN, at_terminal, flat
from tests.documents.arguments import value_of
from tests.documents.desk import CHANGE, Desk, desk_of_update
from tests.documents.install import Servers, Tools
from tests.documents.prism import enforcing_json
from tests.documents.real_servers import STRIPE_KEY, localstripe
from tests.documents.table import named
from tests.support.plain_host import ROOT
from tests.support.shaped import shaped

pytestmark = [pytest.mark.jail, pytest.mark.timeout(120)]
CURATED: Final = ("github", "stripe")
GIVEN: Final = {
    "since": "2026-01-31T00:00:00Z",
    "until": "2026-01-31T00:00:00Z",
    "created": {"gte": 1767225600},
    "metadata": {"order": "42"},
}
"""Values for inputs whose rule does not say everything."""
UNSEEN: Final = {
    "read_text_file": "the path is no file",
    "create_payment_link": "Cannot deserialize JSON object array in form data",
    "create_subscription": "Cannot deserialize JSON object array in form data",
    "update_subscription": "Cannot deserialize JSON object array in form data",
}
"""Operations at which Prism itself fails: it makes up a directory for a file, and does not read lists of objects in
forms. The cases of the connectors have them.
"""
PAY: Final = [SIGN, ("Type pay to approve: ", "pay")]


def sources(name: str) -> Path:
    """Return the folder of a connector."""
    return ROOT / "connectors" / name


def files_of(folder: Path) -> dict[str, bytes]:
    """Return every file by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.parametrize("name", CURATED)
def test_an_update_from_the_same_document_changes_no_byte(name: str, tools: Tools, tmp_path: Path) -> None:
    """Neither the edited files nor the generated ones change."""
    copy = tmp_path / name
    shutil.copytree(sources(name), copy, ignore=shutil.ignore_patterns("__pycache__"))
    said = updated(name, copy, tools.documents / named(name).file)

    assert "no operation that you chose has changed" in said.err
    assert files_of(copy) == files_of(sources(name))


def test_an_update_from_a_newer_document_keeps_edits(tools: Tools, tmp_path: Path) -> None:
    """A new input is added beside edited ones, which are as they were."""
    copy, newer = tmp_path / "stripe", tmp_path / "newer.json"
    shutil.copytree(sources("stripe"), copy, ignore=shutil.ignore_patterns("__pycache__"))
    document = json.loads((tools.documents / named("stripe").file).read_bytes())
    document["info"]["version"] = "newer"
    document["paths"]["/v1/customers"]["get"]["parameters"].append(
        {"name": "aloud", "in": "query", "required": False, "schema": {"type": "string", "maxLength": 9}}
    )
    newer.write_text(json.dumps(document))
    said = updated("stripe", copy, newer)
    action = Path("actions", "stripe-list-customers", "action.md")
    text = (copy / action).read_text()

    assert "! inputs aloud: none -> " in said.err
    assert 'name = "aloud"' in text
    assert text.replace(_input_of(text, "aloud"), "") == (sources("stripe") / action).read_text()


def updated(name: str, copy: Path, document: Path) -> Said:
    """Run `aileron connector import --update`, which has to succeed without a conflict."""
    words = ("connector", "import", str(document), f"github://aileron/connector-{name}", str(copy), "--update")
    said = Command(copy.parent)(*words)
    assert said.code == 0, said
    return said


def _input_of(text: str, name: str) -> str:
    begin = text.index(f'[[inputs]]\nname = "{name}"')
    return text[begin : text.index("\n\n", begin) + 2]


@pytest.mark.parametrize("name", CURATED)
def test_an_actions_request_fits_the_published_document(name: str, tools: Tools) -> None:
    """Each action runs in the real jail with all its inputs, against a server that enforces the document."""
    problems: dict[str, str] = {}
    with enforcing_json(used_part(name, tools), tools) as at, Bench(artifact_of(sources(name), ())) as bench:
        for action in actions_of(name):
            (step,) = action.steps
            args = {spec.name: shaped(GIVEN.get(spec.name, value_of(spec))) for spec in action.inputs}
            failure = bench.call(step.op, args, at.upstream).failure
            if failure is not None:
                problems[step.op] = f"{failure.message}; {args}; {str(failure.details)[:600]}"
    unseen = {op for op, problem in problems.items() if UNSEEN.get(op, "nothing") in problem}

    assert {op: problem for op, problem in problems.items() if op not in unseen} == {}


def actions_of(name: str) -> list[ActionFile]:
    """Return the action files of one connector."""
    paths = sorted(sources(name).glob("actions/*/action.md"))
    return [parse_action(path.read_text(), file=str(path), allow_placeholder=True) for path in paths]


def used_part(name: str, tools: Tools) -> dict[str, Any]:
    """Return the published document with the operations of the connector, and what they refer to.

    Stripe's answers are left out: they refer to each other so much that Prism does not start; localstripe gives real
    ones. So are the properties of Stripe's forms that no action gives: Prism takes each object that is not there for an
    empty one, and complains.
    """
    whole = json.loads((tools.documents / named(name).file).read_bytes())
    packed = json.loads((sources(name) / "service" / "document.json").read_bytes())
    whole["paths"] = {
        path: {key: value for key, value in whole["paths"][path].items() if key in (*methods, "parameters")}
        for path, methods in packed["paths"].items()
    }
    if name == "stripe":
        anything = {"200": {"description": "", "content": {"application/json": {"schema": {"type": "object"}}}}}
        inputs = {action.steps[0].op: {spec.name for spec in action.inputs} for action in actions_of(name)}
        for path, methods in whole["paths"].items():
            for method, operation in methods.items():
                operation["responses"] = anything
                given = inputs[packed["paths"][path][method]["operationId"]]
                for media in operation.get("requestBody", {}).get("content", {}).values():
                    found = media["schema"].get("properties", {})
                    media["schema"]["properties"] = {key: value for key, value in found.items() if key in given}
    components: dict[str, Any] = {"securitySchemes": whole["components"].get("securitySchemes", {})}
    waiting = [whole["paths"]]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict) and isinstance(value.get("$ref"), str):
            _, _, kind, key = value["$ref"].split("/")
            if key not in components.setdefault(kind, {}):
                components[kind][key] = whole["components"][kind][key]
                waiting.append(components[kind][key])
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {key: whole[key] for key in ("openapi", "info", "paths")} | {
        "components": components,
        "security": whole.get("security", []),
    }


@pytest.fixture(scope="module")
def shop(servers: Servers, tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Return a home with Stripe's connector from this repository, moved to a local server with `--update --host`."""
    copy = tmp_path_factory.mktemp("s") / "stripe"
    shutil.copytree(sources("stripe"), copy)
    document = tools.documents / named("stripe").file
    with (
        localstripe(servers) as server,
        desk_of_update(server, "github://aileron/connector-stripe", copy, document, STRIPE_KEY) as made,
    ):
        yield made


def added(shop: Desk, path: str, body: dict[str, Any]) -> str:
    """Add an object at the server; return its id."""
    status, made = shop.server.asked("POST", path, body)
    assert status == 200, made
    return str(made["id"])


def test_customers_are_listed_without_approval(shop: Desk) -> None:
    """The agent never has the key that lists them."""
    ann = added(shop, "/v1/customers", {"name": "Ann", "email": "ann@example.com"})
    said = shop.must("run", "stripe-list-customers", "limit=100")

    assert ann in [customer["id"] for customer in said.json["data"]]
    assert STRIPE_KEY not in said.out + said.err


def test_a_customer_is_added_and_changed_only_after_approval(shop: Desk) -> None:
    """A denied call adds no customer. The card of the change shows the current state."""
    words = ("stripe-create-customer", "name=Bo", "email=bo@example.com")
    refused = at_terminal(shop.aileron, "deny", shop.asked(*words), "--reason", "not now", answers=[SIGN])
    before = customers(shop)
    added_ = at_terminal(shop.aileron, "approve", shop.asked(*words), answers=[("Approve? [y/N] ", "y"), SIGN])
    (bo,) = [customer for customer in customers(shop) if customer["name"] == "Bo"]
    asked = shop.asked("stripe-update-customer", f"customer={bo['id']}", "email=bo@example.org")
    changed = at_terminal(shop.aileron, "approve", asked, answers=CHANGE)

    assert (refused.code, added_.code, changed.code) == (0, 0, 0), (refused, added_, changed)
    assert "Bo" not in [customer["name"] for customer in before]
    assert "Add a customer: “Bo”, “bo@example.com”" in flat(added_)
    assert "bo@example.com" in flat(changed)
    assert shop.server.asked("GET", f"/v1/customers/{bo['id']}")[1]["email"] == "bo@example.org"


def customers(shop: Desk) -> list[dict[str, Any]]:
    """Return the server's customers."""
    return list(shop.server.asked("GET", "/v1/customers?limit=100")[1]["data"])


def test_a_payment_runs_only_after_a_person_types_pay(shop: Desk) -> None:
    """The test makes a charge and a partial refund, whose card shows the payment. A denied refund moves no money."""
    cy = added(shop, "/v1/customers", {"name": "Cy"})
    card = {"number": "4242424242424242", "exp_month": 12, "exp_year": 2040, "cvc": "123"}
    method = added(shop, "/v1/payment_methods", {"type": "card", "card": card})
    added(shop, f"/v1/payment_methods/{method}/attach", {"customer": cy})
    words = ("amount=1999", "currency=usd", f"customer={cy}", f"payment_method={method}", "confirm=true")
    charged = at_terminal(shop.aileron, "approve", shop.asked("stripe-create-payment", *words), answers=PAY)
    listed = shop.must("run", "stripe-list-payments").json["data"]
    (payment,) = [intent for intent in listed if intent["customer"] == cy]
    back = ("stripe-create-refund", f"payment_intent={payment['id']}", "amount=500")
    refused = at_terminal(shop.aileron, "deny", shop.asked(*back), "--reason", "wrong one", answers=[SIGN])
    refunds = f"/v1/refunds?payment_intent={payment['id']}"
    before = shop.server.asked("GET", refunds)[1]["data"]
    refunded = at_terminal(shop.aileron, "approve", shop.asked(*back), answers=PAY)
    (refund,) = shop.server.asked("GET", refunds)[1]["data"]

    assert (charged.code, refused.code, refunded.code) == (0, 0, 0), (charged, refused, refunded)
    assert "Cy" in flat(charged)
    assert (payment["amount"], payment["status"], before) == (1999, "succeeded", [])
    assert (refund["amount"], refund["payment_intent"]) == (500, payment["id"])
    assert "1999" in flat(refunded)
