"""A packed document at work: which operations it has, where their requests go, and that it is not loaded without need."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aileron.registry.connector_build import build
from aileron_connector import ConnectorError, openapi, operation
from aileron_connector.openapi.service import Service
from aileron_connector.testing import Reply, call
from aileron_sandbox.frames import Chunk, FrameFailure, GrantedHost, HttpHead, HttpRequest, Refused
from tests.connectors.openapi.packed import connector_of, declared, document, parameter
from tests.support.plain_host import IMPORTABLE, ConnectorProcess, invoke

GET = {"operationId": "list_items", "responses": {}}


def asked(of: dict[str, Any], hosts: list[str], server: str = "/v1") -> Any:
    """Call the one operation of a document; return what happened."""
    with declared(document({"/items": {"get": {**GET, **of}}}, server=server)):
        return call("list_items", {}, answer=lambda _: Reply.of({}), hosts=hosts)


@pytest.mark.parametrize(
    ("server", "servers", "url"),
    [
        ("/v1", [], "http://127.0.0.1:8080/v1/items"),
        ("/v1/", [], "http://127.0.0.1:8080/v1/items"),
        ("", [], "http://127.0.0.1:8080/items"),
        ("/", [], "http://127.0.0.1:8080/items"),
        ("/v1", [{"url": "/v2"}], "http://127.0.0.1:8080/v2/items"),
        ("/v1", [{"url": "https://UP.example.com/a"}], "https://up.example.com/a/items"),
        ("/v1", [{"url": "https://up.example.com:443"}], "https://up.example.com/items"),
    ],
)
def test_a_request_goes_to_the_first_host_or_to_the_host_of_its_operation(server: str, servers: Any, url: str) -> None:
    """The first host may have been bound when the connector was built."""
    done = asked({"servers": servers}, ["http://127.0.0.1:8080", "https://up.example.com"], server)
    assert [request.url for request in done.requests] == [url]


@pytest.mark.parametrize("url", ["https://other.example.com/a", "https://up.example.com:8443", "http://up.example.com"])
def test_an_operation_of_another_host_needs_that_host_in_the_manifest(url: str) -> None:
    """The host must match by name and port; the error says that it is missing, and no request is sent."""
    done = asked({"servers": [{"url": url}]}, ["http://127.0.0.1:8080", "https://up.example.com"])
    assert "which is not among the hosts of the connector's manifest" in done.failure.message
    assert done.requests == ()


def test_a_call_fails_if_the_manifest_names_no_host() -> None:
    """The manifest has no network."""
    assert asked({}, []).failure.message == "no host is granted, so that there is nobody to ask"


@pytest.mark.parametrize(("security", "kind"), [([{"api_key": []}], "api_key"), ([], None), ([{}], None)])
def test_a_request_names_the_credential_of_its_operation(security: Any, kind: str | None) -> None:
    """An operation without security has none."""
    assert asked({"security": security}, ["https://api.example.com"]).requests[0].credential == kind


def test_operations_are_called_by_their_ids() -> None:
    """An argument may have any name; the error for an unknown operation lists the known ones."""
    paths = {
        "/items": {"get": GET, "post": {**GET, "operationId": "add_item"}},
        "/self": {"get": {**GET, "operationId": "me", "parameters": [parameter("self"), parameter("name")]}},
    }
    with declared(document(paths)) as service:
        assert service.names == ["list_items", "add_item", "me"]
        done = call("me", {"self": 1, "name": 2}, answer=[Reply.of({})], hosts=["https://api.example.com"])
        assert done.requests[0].url == "https://api.example.com/v1/self?self=1&name=2"
        failure = call("gone").failure
        assert (failure.failure_class, failure.details) == (
            "unknown_op",
            {"operations": ["add_item", "list_items", "me"]},
        )
        failure = call("list_items", {"x": 1}).failure
        assert (failure.failure_class, failure.details) == ("bad_input", {"argument": "x"})


def test_an_operation_that_two_documents_declare_is_an_error() -> None:
    """Two documents with the same operation are a mistake of the connector's author."""
    with declared(document({"/items": {"get": GET}})) as service, pytest.raises(ValueError, match="declared twice"):
        service.declare()


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 5000, document({"/x": {"get": {}}})])
def test_an_invalid_packed_document_is_refused(data: bytes) -> None:
    """The error comes before anything is called."""
    with pytest.raises(ConnectorError, match="the connector's document cannot be read"):
        Service(data)


def test_an_idempotency_key_is_set_by_the_connector_only() -> None:
    """The key is the same in each try of one invocation. A caller who could set it could have a new request pass for
    an old one.
    """
    put = {"/send/{txn}": {"put": {**GET, "parameters": [parameter("txn", "path"), parameter("q")]}}}
    with declared(document(put), {"list_items": "txn"}):
        urls = [call("list_items", {"q": 1}, answer=[Reply.of({})]).requests[0].url for _ in range(2)]
        failure = call("list_items", {"txn": "mine"}).failure

    assert urls[0] == urls[1]
    assert re.fullmatch(r"https://notes\.example\.com/v1/send/[0-9a-f]{32}\?q=1", urls[0])
    assert (failure.failure_class, failure.details) == ("bad_input", {"argument": "txn"})


def test_an_idempotency_key_of_an_unknown_operation_is_refused() -> None:
    """A newer document may have renamed the operation, and without its key it would not be safe to repeat."""
    with pytest.raises(ValueError, match="idempotency of 'gone': the document has no such operation"):
        Service(document({"/items": {"get": GET}}), {"gone": "txn"})


def test_a_broken_operation_does_not_affect_the_others() -> None:
    """An operation is decoded when it is called."""
    with declared(document({"/x": {"get": GET, "post": {"operationId": "broken", "parameters": 7}}})):
        assert call("list_items", {}, answer=[Reply.of({})]).output == {}
        assert "the connector's document cannot be read" in call("broken").failure.message


def test_a_connector_of_a_single_statement_knows_the_operations_of_its_packed_document(tmp_path: Path) -> None:
    """The packed document is read from the package beside it, in the built archive."""
    program = tmp_path / "built"
    program.write_bytes(build(connector_of(tmp_path, document({"/items": {"get": GET}}))).connector)
    with ConnectorProcess(program, invoke("gone")) as process:
        message: Any = process.receive_until_over()
    assert message.failure_class == "unknown_op"
    assert message.details == {"operations": ["list_items"]}


def test_an_error_response_that_breaks_off_keeps_its_status(tmp_path: Path) -> None:
    """The status has arrived, and it decides what the caller does."""
    program = tmp_path / "built"
    program.write_bytes(build(connector_of(tmp_path, document({"/items": {"get": GET}}))).connector)
    with ConnectorProcess(program, invoke("list_items", hosts=[GrantedHost("api.example.com", 443, False)])) as process:
        asked = process.receive().message
        assert isinstance(asked, HttpRequest)
        process.send(HttpHead(id=asked.id, status=429, headers=[("Retry-After", "7"), ("Content-Type", "text/plain")]))
        process.send(Chunk(id=asked.id), b"slow do")
        process.send(Refused(id=asked.id, error=FrameFailure(failure_class="network_error", message="gone")))
        message: Any = process.receive_until_over()
    assert message.message == "the service answered with status 429: slow do"
    assert message.details == {"status": 429, "retry_after_s": 7, "text": "slow do"}


def test_operations_of_a_document_can_be_declared_without_starting_to_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`declare` adds the operations without starting to serve."""
    connector_of(tmp_path, document({"/items": {"get": GET}}))
    monkeypatch.syspath_prepend(str(tmp_path))
    known = dict(operation.OPERATIONS)
    try:
        assert openapi.declare("service").names == ["list_items"]
        assert call("list_items", {}, answer=[Reply.of([])]).output == {"items": []}
    finally:
        operation.OPERATIONS.clear()
        operation.OPERATIONS.update(known)
        sys.modules.pop("service", None)


def test_a_connector_without_a_document_does_not_load_openapi() -> None:
    """Loading would take some milliseconds in each jail that is not made from a template."""
    program = "import sys, aileron_connector; print(json.dumps([name for name in sys.modules if 'openapi' in name]))"
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys; sys.path[:0] = {IMPORTABLE!r}; {program}"],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == []
