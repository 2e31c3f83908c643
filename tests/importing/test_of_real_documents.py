"""What documents of real services have that no table of ours had thought of; each was a fault once."""

from __future__ import annotations

import json
from typing import Any

from aileron.importing.found import described
from aileron.importing.reading import read_all
from aileron.importing.record import Choices
from aileron.importing.repository import Made, make
from aileron.model.names import Fqn


def made_of(operation: dict[str, Any], *, path: str = "/a", schemas: dict[str, Any] | None = None) -> Made:
    """A repository of one operation, `change_it`."""
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Things", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": {path: {"post": {"operationId": "changeIt", "responses": {}, **operation}}},
        "components": {"schemas": schemas or {}},
    }
    found = described(read_all("a.json", {"a.json": json.dumps(document).encode()}))
    return make(found, found.operations, Fqn.parse("github://me/connector-things"), Choices())


def body(schema: dict[str, Any]) -> dict[str, Any]:
    """An operation with this body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def test_a_boolean_that_can_only_be_true_is_left_out_where_it_is_optional() -> None:
    """An input has no enum of booleans: the action was refused whole."""
    only_true = {"type": "boolean", "enum": [True]}
    made = made_of(body({"type": "object", "properties": {"a": {"type": "string"}, "confirmed": only_true}}))

    assert [given.name for given in made.imported[0].inputs] == ["a"]
    assert made.left_out == {"change_it": ("confirmed: only true, which an input cannot say",)}
