"""The webhook connector, as it is built: the requests that it asks the host to send, and its reading of the answers."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aileron.actions.manifest import parse_action
from aileron.model.names import HostPort
from aileron.registry.connector_build import build
from aileron.registry.manifest import parse_connector_manifest
from aileron.registry.suite import SuiteSource, parse_suite, wanted
from aileron_sandbox.frames import GrantedHost
from tests.support.plain_host import ROOT, PlainHost, Report, built_in
from tests.support.upstream import Authority, Seen, Upstream, answer

SOURCE = ROOT / "connectors" / "webhook"
HOST = "hooks.example.com"
Call = Callable[..., Report]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the zip that `aileron connector build` makes."""
    return built_in(tmp_path_factory.mktemp("built"), SOURCE, [HostPort(HOST, 443)])


class Hooks:
    """The receiver's answer to the next request."""

    def __init__(self) -> None:
        self.status = "204 No Content"

    def __call__(self, _seen: Seen) -> bytes:
        return answer(b"" if self.status.startswith("204") else b"words of a stranger", status=self.status)


@pytest.fixture
def hooks() -> Hooks:
    """Return a receiver that accepts everything."""
    return Hooks()


@pytest.fixture
def upstream(hooks: Hooks, authority: Authority) -> Iterator[Upstream]:
    """Return the receiver's server."""
    with Upstream(hooks, authority.server_context(HOST)) as upstream:
        yield upstream


@pytest.fixture
def call(upstream: Upstream, program: Path, authority: Authority) -> Call:
    """Return a function that runs an operation: call(op, **args)."""
    tls = ssl.create_default_context(cafile=str(authority.ca_file))
    return PlainHost(
        program, hosts=[GrantedHost(HOST, 443, False)], bearer="x", at=("127.0.0.1", upstream.port), tls=tls
    ).call


def test_the_manifest_the_action_and_the_suite_are_valid() -> None:
    """They are read as in an install; sending is gated, and never retried."""
    manifest = parse_connector_manifest(build(SOURCE, [HostPort(HOST, 443)]).manifest, file="m")
    path = SOURCE / "actions" / "webhook-send" / "action.md"
    action = parse_action(path.read_text(encoding="utf-8"), file=str(path), allow_placeholder=True)
    suite = parse_suite((SOURCE / "suite.toml").read_text(encoding="utf-8"), file="suite.toml")
    source = SuiteSource.parse("github://aileron/connector-webhook/suite.toml@v0.0.0-dev")

    assert [str(host) for host in manifest.hosts] == [f"{HOST}:443"]
    assert manifest.credential is not None
    assert manifest.credential.kind == "hmac"
    assert (action.approval.required, action.steps[0].idempotent) == (True, False)
    assert [str(artifact) for artifact in wanted(suite, source)] == [action.source]


def test_an_event_is_sent_as_standard_webhooks_requires(call: Call, upstream: Upstream) -> None:
    """The host is asked to sign it; the connector sets no field of the signature."""
    report = call("send_event", event="invoice.paid", data={"invoice": 42, "für": ["é"]}, path="/hooks/a")

    assert report.output["status"] == 204
    (asked,) = report.requests
    assert (asked.method, asked.url, asked.credential) == ("POST", f"https://{HOST}/hooks/a", "hmac")
    assert [name for name, _value in asked.headers] == ["Content-Type"]
    body = json.loads(upstream.requests[0].body)
    assert list(body) == ["type", "timestamp", "data"]
    assert (body["type"], body["data"]) == ("invoice.paid", {"invoice": 42, "für": ["é"]})
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", body["timestamp"])
    assert report.output["bytes"] == len(upstream.requests[0].body)


@pytest.mark.parametrize(
    ("args", "argument"),
    [
        ({"event": "no spaces"}, "event"),
        ({"event": ""}, "event"),
        ({"event": "a..b"}, "event"),
        ({"path": "hooks"}, "path"),
        ({"path": "/a?b=c"}, "path"),
        ({"path": "//evil.example/\n"}, "path"),
        ({"data": {"text": "x" * 21_000}}, "data"),
    ],
    ids=["blank", "empty", "dots", "relative", "query", "line", "long"],
)
def test_an_event_that_cannot_be_sent_is_refused_before_any_request(
    call: Call, upstream: Upstream, args: dict[str, object], argument: str
) -> None:
    """The failure names the argument to change."""
    report = call("send_event", **{"event": "a.b", "data": {}, "path": "/", **args})

    assert report.failure.failure_class == "bad_input"
    assert report.failure.details["argument"] == argument
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ("302 Found", "somewhere else"),
        ("401 Unauthorized", "store the receiver's key with `aileron secret set NAME`"),
        ("404 Not Found", "does not take the event"),
        ("410 Gone", "takes no more events"),
        ("503 Later", "may have handled the event"),
    ],
    ids=["302", "401", "404", "410", "503"],
)
def test_a_refusal_by_the_receiver_is_a_failure_that_does_not_quote_it(
    call: Call, hooks: Hooks, status: str, says: str
) -> None:
    """The message is in our words: the text of a receiver's answer is not for agents."""
    hooks.status = status
    report = call("send_event", event="a.b", data={})

    assert report.failure.failure_class == "external_api_error"
    assert report.failure.details["status"] == int(status[:3])
    assert says in report.failure.message
    assert "stranger" not in str(report.answer) + report.printed
