"""The files of an imported connector: each is read back by its own parser, and has the chosen operations only."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aileron.actions.manifest import parse_action
from aileron.connector_tests.cases import parse_cases
from aileron.importing.choosing import by_found_names, wanted
from aileron.importing.reading import DocumentError
from aileron.importing.record import Choices, parse_record
from aileron.importing.repository import Made, make, service_of
from aileron.model.names import Fqn
from aileron.registry.manifest import MAX_OPERATIONS, parse_connector_manifest
from aileron_connector.openapi.document import Document, Operation
from tests.importing.documents import CONNECTOR, Json, action_of, document, found, imported, one_operation, schema_ref

ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
PET = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}, "friend": schema_ref("Pet")},
}
ANSWER = {"200": {"content": {"application/json": {"schema": schema_ref("Pet")}}}}
SCHEMAS = {"schemas": {"Pet": PET, "Unused": {"type": "string"}}}
PATHS = {
    "/pets": {"get": {"operationId": "listPets", "responses": ANSWER}},
    "/pets/{id}": {
        "parameters": [ID],
        "get": {"operationId": "getPet", "responses": ANSWER},
        "delete": {"operationId": "deletePet", "responses": {}},
    },
    "/files": {"get": {"operationId": "files", "servers": [{"url": "https://files.example.com/x"}], "responses": {}}},
}


def packed(made: Made) -> Document:
    """Return the document as the connector reads it."""
    return msgspec.json.decode(made.files["service/document.json"], type=Document)


def test_every_generated_file_can_be_parsed() -> None:
    """The parsers are those that read the files when the connector is installed."""
    made = imported(document(PATHS, components=SCHEMAS))
    manifest = parse_connector_manifest(made.files["manifest.toml"], file="manifest.toml", allow_unbound=True)
    assert manifest.operations is not None
    whole = packed(made)
    names = {
        msgspec.json.decode(raw, type=Operation).operation_id for item in whole.paths.values() for raw in item.values()
    }

    assert (
        names
        == {operation.name for operation in manifest.operations}
        == {"list_pets", "get_pet", "delete_pet", "files"}
    )
    assert [str(host) for host in manifest.hosts] == ["api.example.com:443", "files.example.com:443"]
    assert whole.servers[0].url == "/v1"
    assert set(whole.components.schemas) == {"Pet"}
    assert {case.op for case in parse_cases(made.files["tests/cases.toml"].decode(), file="cases.toml").cases} == names
    for action in made.actions:
        assert parse_action(made.files[f"actions/{action.name}/action.md"].decode(), file="x", allow_placeholder=True)
    for path in ("connector.py", "service/__init__.py"):
        compile(made.files[path], path, "exec")


def test_operations_that_were_not_selected_get_no_action() -> None:
    """The exception is an unchosen read of the same path, which serves as a preview but has no action."""
    there = found(document(PATHS, components=SCHEMAS))
    made = make(there, wanted(there, ops=["deletePet"]), CONNECTOR, Choices())
    manifest = parse_connector_manifest(made.files["manifest.toml"], file="manifest.toml", allow_unbound=True)

    assert [action.op for action in made.actions] == ["delete_pet"]
    assert manifest.operations is not None
    assert [operation.name for operation in manifest.operations] == ["delete_pet", "get_pet"]
    assert [str(origin.host) for origin in made.origins] == ["api.example.com:443"]
    assert b"files" not in b"".join(made.files.values())


def test_aileron_extension_keys_in_a_document_are_ignored() -> None:
    """An author of a document could otherwise decide where arguments go, or name the connector's source."""
    theirs: dict[str, Any] = {
        "x-aileron-argument": "evil",
        "x-aileron-arguments": {"evil": "evil"},
        "x-aileron-list": {"at": ["evil"]},
    }
    body = {
        "content": {"application/json": {"schema": {"properties": {"a": {"type": "string"}}, **theirs}, **theirs}},
        **theirs,
    }
    parameter = {"name": "q", "in": "query", "schema": {"type": "string", **theirs}, **theirs}
    operation = {"operationId": "one", "parameters": [parameter], "requestBody": body, **theirs}
    whole = one_operation(operation, method="post", **theirs)
    whole["info"] = {**whole["info"], "x-aileron-source": "sha256:evil"}
    made = imported(whole)
    (raw,) = packed(made).paths["/pets"].values()
    there = msgspec.json.decode(raw, type=Operation)

    assert b"evil" not in b"".join(made.files.values())
    assert there.parameters[0].argument == "q"
    assert there.request_body is not None
    assert there.request_body.arguments == {"a": "a"}
    assert packed(made).info.source == found(whole).digest


@pytest.mark.computes_for(20)
def test_the_number_of_operations_is_bounded() -> None:
    """The excess is found before all operations are examined."""
    paths: dict[str, Any] = {f"/a{n}": {"get": {}} for n in range(MAX_OPERATIONS)}

    assert len(imported(document(paths)).actions) == MAX_OPERATIONS
    with pytest.raises(DocumentError, match=f"10000 operations; a connector has at most {MAX_OPERATIONS}"):
        imported(document({f"/{'x' * 70}/{n}": {"get": {}} for n in range(10_000)}))


@pytest.mark.computes_for(20)
def test_an_oversized_connector_is_refused_before_it_is_made() -> None:
    """The manifest is too large, or each operation has a large schema of its own."""
    choices = {"type": "string", "enum": [f"{'e' * 60}{n}" for n in range(20)]}
    parameters = [{"name": f"{'p' * 40}{n}", "in": "query", "schema": choices} for n in range(12)]
    with pytest.raises(DocumentError, match=r"manifest would not be valid.*choose fewer operations"):
        imported(document({f"/{n}": {"get": {"parameters": parameters}} for n in range(150)}))

    large = {"200": {"content": {"application/json": {"schema": {"enum": ["x" * 1000] * 1000}}}}}
    answers = {"responses": {"Large": large["200"]}}
    refers = {"responses": {"200": {"$ref": "#/components/responses/Large"}}}
    with pytest.raises(DocumentError, match="MiB of operations: choose fewer"):
        imported(document({f"/{n}": {"get": refers} for n in range(40)}, components=answers))
    assert imported(document({f"/{n}": {"get": refers} for n in range(4)}, components=answers)).actions


def test_the_author_can_choose_the_fields_of_a_list() -> None:
    """Choosing fields for an operation that is not imported is an error."""
    answer = {"200": {"content": {"application/json": {"schema": {"type": "array", "items": PET}}}}}
    whole = one_operation({"operationId": "list", "responses": answer}, components=SCHEMAS)
    (raw,) = packed(imported(whole, fields={"list": ("name",)})).paths["/pets"].values()
    listing = msgspec.json.decode(raw, type=Operation).listing

    assert listing is not None
    assert listing.fields == ["name"]
    with pytest.raises(DocumentError, match="--fields nope"):
        imported(whole, fields={"nope": ("name",)})


def test_a_renamed_operation_needs_the_same_approval() -> None:
    """A new name that sounds like a read does not remove the approval. The record keeps the document's name."""
    made = imported(document(PATHS, components=SCHEMAS), names={"delete_pet": "get_rid", "files": "list_files"})
    record = parse_record(made.files["import.json"])

    assert {(action.name, action.op, action.asks) for action in made.actions} >= {
        ("x-get-rid", "get_rid", True),
        ("x-list-files", "list_files", False),
    }
    assert 'op = "get_rid"' in action_of(made, "x-get-rid")
    assert set(record.operations) == {"list_pets", "get_pet", "delete_pet", "files"}
    with pytest.raises(DocumentError, match="two operations would be called 'get_pet'"):
        imported(document(PATHS, components=SCHEMAS), names={"files": "get_pet"})


def test_only_existing_operations_can_be_renamed() -> None:
    """The new name must be valid for an action."""
    there = found(document(PATHS, components=SCHEMAS))
    said = Choices(names={"getPet": "read_pet", "files": "list_files"}, fields={"listPets": ("id",)})

    assert by_found_names(there, said) == Choices(
        names={"get_pet": "read_pet", "files": "list_files"}, fields={"list_pets": ("id",)}
    )
    for names, problem in (({"get_pets": "read_pet"}, "no operation 'get_pets'"), ({"get_pet": "a b"}, "is no name")):
        with pytest.raises(DocumentError, match=problem):
            by_found_names(there, Choices(names=names))


def test_responses_are_described_to_the_chosen_depth_and_requests_fully() -> None:
    """Values below that depth may be anything."""
    named: Json = {
        "Pet": {"properties": {"name": {"type": "string"}, "owner": schema_ref("Owner")}},
        "Owner": {"properties": {"home": schema_ref("Home")}},
        "Home": {"type": "string"},
        "Wish": {"properties": {"gift": schema_ref("Gift")}},
        "Gift": {"properties": {"name": {"type": "string"}}},
    }
    body = {"content": {"application/json": {"schema": {"properties": {"wish": schema_ref("Wish")}}}}}
    put = {"operationId": "putPet", "responses": ANSWER, "requestBody": body}
    whole = document({"/pets": {"put": put}}, components={"schemas": named})
    schemas = {
        depth: {
            name: msgspec.json.decode(raw)["properties"]
            for name, raw in packed(imported(whole, answer_depth=depth)).components.schemas.items()
            if name != "Home"
        }
        for depth in (None, 1, 2)
    }

    sent = {"Wish.sent": {"gift": schema_ref("Gift.sent")}, "Gift.sent": named["Gift"]["properties"]}

    assert schemas[None]["Owner"] == named["Owner"]["properties"]
    assert schemas[1] == {"Pet": {"name": {"type": "string"}, "owner": True}, **sent}
    assert schemas[2] == {**schemas[1], "Pet": named["Pet"]["properties"], "Owner": {"home": True}}


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("github://me/connector-pets", "pets"),
        ("github://me/Pets_Shop-connector", "pets-shop"),
        ("github://me/aileron-connector-x", "x"),
        ("github://me/connector-" + "a" * 60, "a" * 24),
    ],
)
def test_the_service_is_named_after_the_connectors_repository(name: str, service: str) -> None:
    """Words that every connector's repository name has are dropped."""
    assert service_of(Fqn.parse(name)) == service


def test_a_document_without_importable_operations_is_an_error() -> None:
    """The error has their number and the first reason."""
    paths: Json = {f"/{n}": {"get": {"operationId": f"op{n}", "parameters": [1]}} for n in range(3)}
    with pytest.raises(
        DocumentError, match="none of the 3 operations can be imported; op0: a parameter without a name"
    ):
        imported(document(paths))
