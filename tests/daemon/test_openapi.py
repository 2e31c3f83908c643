"""The API describes itself: a real daemon is asked for every route, and each response checked against `/openapi.json`.

Every test that asks a daemon checks that a response has exactly the keys that its types declare (tests/support/answers.py);
here an independent validator checks responses against the document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jsonschema
import pytest

from aileron import __version__
from aileron.api.openapi import openapi_document
from aileron.api.routes import ROUTES
from tests.support.answers import route_of
from tests.support.home import PASSPHRASE, PROBE, DaemonHome, asking_home, probe_action
from tests.support.shaped import shaped

REFUSED_HERE = {
    "POST /v1/vault/init",  # the home has a vault
    # the home has no approver and no passkey
    *("POST /v1/approver", "POST /v1/grants", "DELETE /v1/grants/{id}"),
    *("POST /v1/passkeys", "POST /v1/passkeys/options", "DELETE /v1/passkeys/{id}"),
    *("POST /v1/action-approvals/{id}/challenge", "POST /v1/action-approvals/{id}/preview"),
    # nothing is published
    *("POST /v1/keyring/look", "POST /v1/keyring/revoke", "GET /v1/hub", "GET /v1/hub/entry"),
    *("POST /v1/fetches/{id}/resolve", "POST /v1/fetches/{id}/install"),
    # the home has no provider
    *("POST /v1/sign-ins", "GET /v1/sign-ins/{id}", "DELETE /v1/sign-ins/{id}", "POST /v1/services/sign-ins"),
}
"""Routes that cannot succeed in this walk; other tests in tests/daemon have each succeed, against the same types."""
SUITE = 'name = "mine"\ndescription = "A few."\nactions = ["github://someone/things/act@1.0.0"]\n'


class Walk:
    """Sends requests, and keeps the responses by route."""

    def __init__(self, home: DaemonHome) -> None:
        self.home = home
        self.seen: dict[str, list[tuple[int, Any]]] = {}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request, keep the response and return its body."""
        answer = self.home.ask(method, path, body, wait_s=5.0)
        route = route_of(method, path)
        assert route is not None, (method, path)
        self.seen.setdefault(f"{method} {route.path}", []).append((answer.status, answer.body))
        return answer.body

    def each(self, *requests: tuple[str, str] | tuple[str, str, Any]) -> None:
        """Send these requests in order."""
        for request in requests:
            self.ask(*request)

    def whole(self) -> None:
        """Call every route, in an order in which most of them succeed."""
        for steps in (self._look, self._actions, self._approvals, self._packages, self._secrets, self._sessions):
            steps()
        self.each(
            ("GET", "/v1/audit?limit=200"),
            ("GET", "/v1/audit?form=record&limit=3"),
            ("GET", "/v1/audit/verify"),
            ("POST", "/v1/stop"),
        )

    def _look(self) -> None:
        lists = "actions action-approvals approver approver/inventory passkeys grants connectors keyring bindings"
        for path in (
            "/openapi.json",
            "/healthz",
            "/v1/status",
            "/v1/vault/status",
            *(f"/v1/{name}" for name in lists.split()),
        ):
            self.ask("GET", path)

    def _actions(self) -> None:
        self.each(
            ("GET", "/v1/actions/give-back"),
            ("POST", "/v1/actions", {"text": probe_action("give_back", "text:string", name="more"), "file": "here"}),
            ("PATCH", "/v1/actions/more", {"enabled": False}),
            ("POST", "/v1/actions/more/resume", {"unchanged": True}),
            ("POST", "/v1/actions/more/run", {"args": {"text": "x"}}),
            ("DELETE", "/v1/actions/more"),
            ("POST", "/v1/actions/give-back/run", {"args": {"text": "x"}, "dry_run": True}),
        )
        run = self.ask("POST", "/v1/actions/give-back/run", {"args": {"text": "x"}})
        self.each(
            ("GET", f"/v1/runs/{run['audit_id']}"),
            ("GET", f"/v1/audit/{run['audit_id']}"),
        )

    def _approvals(self) -> None:
        asked = self.ask("POST", "/v1/actions/ask-first/run", {"args": {"text": "x"}})
        question = f"/v1/action-approvals/{asked['approval_id']}"
        self.each(
            ("GET", "/v1/action-approvals"),
            ("POST", f"{question}/ask", {"question": "who is that?"}),
            ("POST", f"{question}/answer", {"answer": "my sister"}),
        )
        edited = self.ask("POST", f"{question}/edit", {"args": {"text": "y"}})
        self.ask("POST", f"{question}/challenge", {"decision": "deny", "digest": edited["digest"]})
        signed = dict.fromkeys(("recipient", "nonce", "at", "key_id", "signature"), "00")
        self.each(
            ("POST", f"{question}/preview", signed),
            ("GET", question),
            ("POST", f"{question}/decide", {"decision": "approve", "digest": edited["digest"], "reason": "why not"}),
            ("GET", f"{question}/result?wait=5"),
        )
        again = self.ask("POST", "/v1/actions/ask-first/run", {"args": {"text": "z"}})
        self.each(
            ("POST", f"/v1/action-approvals/{again['approval_id']}/cancel"),
            ("GET", f"/v1/action-approvals/{again['approval_id']}"),
        )
        named = {"passphrase": PASSPHRASE, "public_key": "", "inventory": "", "at": "", "signature": ""}
        self.each(
            ("POST", "/v1/approver", named),
            ("POST", "/v1/passkeys/options", {"name": "phone"}),
            ("POST", "/v1/passkeys", {"client_data": "", "attestation": ""}),
            ("DELETE", "/v1/passkeys/none"),
            ("POST", "/v1/grants", {"action": "ask-first", "uses": 1, "for_s": 60}),
            ("DELETE", "/v1/grants/none"),
        )

    def _packages(self) -> None:
        self.each(
            ("POST", "/v1/connectors", {"path": str(self.home.path / "built.tar.gz")}),
            ("POST", "/v1/connectors/verify"),
            ("GET", "/v1/connectors/updates"),
            ("POST", "/v1/connectors/remove-unused", {"dry_run": True}),
        )
        fetch = self.ask("POST", "/v1/fetches", {"what": "sync"})["fetch"]
        self.each(
            ("GET", f"/v1/fetches/{fetch}?wait=5"),
            ("DELETE", f"/v1/fetches/{fetch}"),
            ("POST", f"/v1/fetches/{fetch}/resolve", {"text": ""}),
            ("POST", f"/v1/fetches/{fetch}/install", {}),
            ("POST", "/v1/suites", {"text": SUITE, "file": "here"}),
            ("POST", "/v1/keyring", {"authority": "github://someone", "key": KEY, "source": "a letter"}),
            ("POST", "/v1/keyring/look", {"authority": "github://someone"}),
            ("POST", "/v1/keyring/revoke", {"authority": "github://nobody"}),
            ("GET", "/v1/hub?text=mail&kind=neither"),
            ("GET", "/v1/hub/entry?name=none"),
            ("POST", "/v1/services", {"service": "telegram", "actions": ["telegram-get-chat"]}),
            (
                "POST",
                "/v1/services/sign-ins",
                {"service": "telegram", "actions": ["telegram-get-chat"], "flow": "browser"},
            ),
            ("GET", "/v1/services"),
            ("POST", "/v1/services/telegram/update", {}),
            ("DELETE", "/v1/services/telegram"),
        )

    def _secrets(self) -> None:
        self.each(
            ("GET", "/v1/bindings/basic/probe/me"),
            ("PATCH", "/v1/bindings/basic/probe/me", {"username": "nora"}),
            ("DELETE", "/v1/bindings/basic/probe/me"),
            ("POST", "/v1/bindings", {"connector": PROBE, "name": "basic/probe/you", "username": "m", "secret": "pw"}),
            ("POST", "/v1/sign-ins", {"connector": PROBE, "name": "oauth2/probe/me", "flow": "device"}),
            ("GET", "/v1/sign-ins/none"),
            ("DELETE", "/v1/sign-ins/none"),
            ("PUT", "/v1/secrets/other", {"value_base64": "bm9ib2R5cyBzZWNyZXQ="}),
            ("GET", "/v1/secrets"),
            ("DELETE", "/v1/secrets/other"),
            ("GET", "/v1/connectors"),
        )
        (probe,) = self.ask("GET", "/v1/connectors")["connectors"]
        self.ask("DELETE", f"/v1/connectors/{probe['hash']}")
        copy = str(self.home.path / "copy.vault")
        self.each(
            ("POST", "/v1/vault/init", {"passphrase": PASSPHRASE}),
            (
                "POST",
                "/v1/vault/rotate",
                {"passphrase": PASSPHRASE, "new_passphrase": PASSPHRASE, "recovery_codes": True},
            ),
            ("POST", "/v1/vault/backup", {"file": copy}),
            ("POST", "/v1/vault/lock"),
            ("POST", "/v1/vault/restore", {"file": copy, "passphrase": PASSPHRASE}),
            ("POST", "/v1/vault/unlock", {"passphrase": PASSPHRASE}),
        )

    def _sessions(self) -> None:
        session = self.ask("POST", "/v1/sessions", {"agent": "someone", "folder": "/"})["id"]
        self.each(
            ("GET", f"/v1/sessions/{session}"),
            ("POST", f"/v1/sessions/{session}/end", {"exit_code": 0}),
            ("GET", "/v1/sessions"),
        )


KEY = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
"""An Ed25519 public key that belongs to no one: RFC 8032, section 7.1, test 1."""


@pytest.fixture(scope="module")
def walk() -> Iterator[Walk]:
    """Start a daemon and call every route."""
    with asking_home() as home:
        walked = Walk(home)
        walked.whole()
        yield walked


@pytest.fixture(scope="module")
def document(walk: Walk) -> dict[str, Any]:
    """Return the API document of the daemon."""
    ((_, told),) = walk.seen["GET /openapi.json"]
    found: dict[str, Any] = told
    return found


class Answered(NamedTuple):
    """A response, and the schema that the document has for it."""

    route: str
    status: int
    body: Any
    schema: dict[str, Any]


def answers(walk: Walk, document: dict[str, Any]) -> Iterator[Answered]:
    """Yield all responses except the document itself."""
    for route, found in walk.seen.items():
        method, _, path = route.partition(" ")
        responses = document["paths"][path.replace(":path}", "}")][method.lower()]["responses"]
        for status, body in found:
            content = (responses.get(str(status)) or responses["default"])["content"]["application/json"]
            if schema := content.get("schema"):
                yield Answered(route, status, body, {**schema, "components": document["components"]})


def test_every_route_is_in_the_openapi_document_and_was_called(walk: Walk, document: dict[str, Any]) -> None:
    """The route table, the document and these requests agree, and every route that can succeed here did."""
    table = {f"{route.method} {route.path}" for route in ROUTES}
    described = {f"{method.upper()} {path}" for path, operations in document["paths"].items() for method in operations}

    assert described == {route.replace(":path}", "}") for route in table}
    assert set(walk.seen) == table
    assert {route for route, found in walk.seen.items() if all(status >= 400 for status, _ in found)} == REFUSED_HERE
    assert (document["openapi"], document["info"]["version"]) == ("3.1.1", __version__)


def test_every_response_matches_its_schema_in_the_openapi_document(walk: Walk, document: dict[str, Any]) -> None:
    """The validator knows nothing of Aileron's types; as a control, it rejects responses without their required keys."""
    seen = list(answers(walk, document))
    for response in seen:
        jsonschema.Draft202012Validator.check_schema(response.schema)
        problems = [
            error.message for error in jsonschema.Draft202012Validator(response.schema).iter_errors(response.body)
        ]
        assert problems == [], (response.route, response.status)

    for response in seen:  # the control: without its first key none of them is valid
        if response.status == 200 and response.body and (required := _required(response, document)):
            lacking = {name: value for name, value in response.body.items() if name not in required}
            assert not jsonschema.Draft202012Validator(response.schema).is_valid(lacking), response.route


def _required(response: Answered, document: dict[str, Any]) -> set[str]:
    """Return the required keys of a response that has one type."""
    name = response.schema.get("$ref", "").rpartition("/")[2]
    return set(document["components"]["schemas"].get(name, {}).get("required", ()))


def test_no_description_has_an_accidental_markdown_code_block() -> None:
    """A docstring's second paragraph is indented like its source, which Markdown would show as code."""
    schemas = shaped(openapi_document(__version__))["components"]["schemas"]
    described = {name: schema["description"] for name, schema in schemas.items() if "description" in schema}

    assert "An `[[operations]]` entry" in described["Operation"]
    assert "\n\n" in described["Operation"]
    assert [name for name, text in described.items() if "\n    " in text or not text.strip()] == []
