"""A connector of a packed document in the real jail: it is built, started there, and called."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.connector_tests.bench import Bench, artifact_of
from aileron.connector_tests.cases import parse_cases
from aileron.model.failure import AileronError, FailureClass
from tests.connectors.openapi.packed import connector_of, document, parameter

pytestmark = pytest.mark.jail

ITEM = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}, "required": ["id"]}
ITEMS = {"type": "array", "items": {"$ref": "#/components/schemas/Item"}}
SECURED: dict[str, Any] = {"security": [{"api_key": []}]}
PATHS: dict[str, Any] = {
    "/items": {
        "get": {
            "operationId": "list_items",
            **SECURED,
            "parameters": [parameter("page", schema={"type": "integer"})],
            "responses": {"200": {"content": {"application/json": {"schema": ITEMS}}}},
            "x-aileron-list": {"fields": ["id"], "argument": "fields"},
        },
        "post": {
            "operationId": "add_item",
            **SECURED,
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/New"}}},
                "x-aileron-arguments": {"name": "name"},
            },
            "responses": {"201": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Item"}}}}},
        },
    },
    "/items/{id}": {
        "delete": {
            "operationId": "delete_item",
            **SECURED,
            "parameters": [parameter("id", "path", schema={"type": "integer"})],
            "responses": {"204": {}},
        }
    },
}
NEW = {"type": "object", "properties": {"name": {"type": "string", "minLength": 1}}, "required": ["name"]}
CASES = """\
[[case]]
name = "a page, and the next"
op = "list_items"
args = { page = 1 }
output = { items = [{ id = 1 }], next = { page = 2 } }

[[case.exchange]]
method = "GET"
path = "/v1/items?page=1"
credential = "api_key"
headers = { Link = '<https://api.example.com/v1/items?page=2>; rel="next"' }
json = [{ id = 1 }]

[[case]]
name = "one more"
op = "add_item"
args = { name = "x" }
output = { id = 2, name = "x" }

[[case.exchange]]
method = "POST"
path = "/v1/items"
credential = "api_key"
sends = { name = "x" }
status = 201
json = { id = 2, name = "x" }

[[case]]
name = "one less"
op = "delete_item"
args = { id = 2 }
output = { status = 204 }

[[case.exchange]]
method = "DELETE"
path = "/v1/items/2"
credential = "api_key"
status = 204

[[case]]
name = "what does not fit is not sent"
op = "add_item"
args = { name = "" }
failure = "bad_input"
details = { argument = "name" }

[[case]]
name = "the service refuses"
op = "delete_item"
args = { id = 3 }
failure = "external_api_error"
details = { status = 409, retry_after_s = 7, problem = { title = "Locked", detail = "by ada" } }

[[case.exchange]]
method = "DELETE"
path = "/v1/items/3"
credential = "api_key"
status = 409
headers = { Retry-After = "7", Content-Type = "application/problem+json" }
body = '{"title": "Locked", "detail": "by ada"}'
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Return a bench with the built connector; skip without a jail, and fail in CI."""
    directory = connector_of(tmp_path, document(PATHS, {"Item": ITEM, "New": NEW}))
    try:
        made = Bench(artifact_of(directory, ()))
    except AileronError as error:
        if error.failure.failure_class is FailureClass.SANDBOX_UNAVAILABLE and not os.environ.get("AILERON_MUST_JAIL"):
            pytest.skip(f"no jail here: {error}")
        raise
    with made as open_bench:
        yield open_bench


def test_a_packed_document_runs_as_a_connector(bench: Bench) -> None:
    """Each kind of request is sent as expected, and invalid arguments and answers have their failure class."""
    reports = bench.run(parse_cases(CASES, file="cases.toml").cases)
    assert [(report.case, report.problem) for report in reports if report.problem] == []
    assert len(reports) == 5
    assert [report.log for report in reports] == [()] * 5
