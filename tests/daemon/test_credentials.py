"""Secrets are lent to the right connector only, for a limited time and number of requests; refusals are on record."""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import PROBE, DaemonHome, daemon_home
from tests.support.told import error_of
from tests.support.upstream_http import CountingServer

pytestmark = [pytest.mark.jail, pytest.mark.abuse_case("E30")]

REFLECTOR = "github://aileron-tests/reflector"
SOURCE = Path(__file__).parents[1] / "support" / "connectors" / "reflector"
THEIRS = b"another-secret-of-another"
BUDGET = 256
"""Requests that one step may make (docs/reference/egress.md)."""


@pytest.fixture(scope="module")
def home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Start a home with two connectors and two secrets; the second connector is not bound yet."""
    with daemon_home() as made:
        made.configure(f'[egress]\nprivate_plain = ["localhost:{upstream.port}"]\n')
        made.install_probe(f"localhost:{upstream.port}")
        made.install(SOURCE, f"localhost:{upstream.port}")
        made.unlock()
        made.must("PUT", "/v1/secrets/theirs", {"value_base64": base64.b64encode(THEIRS).decode()})
        made.bind_probe()
        made.add_probe_action("fetch", "path:string?", "with_credential:boolean?")
        inputs = ("path:string?", "method:string?", "url:string?", "header:string?", "credential:string?")
        made.add_probe_action("ask", *inputs, connector=REFLECTOR)
        made.add_probe_action("hammer", "times:integer", connector=REFLECTOR)
        yield made


@pytest.fixture
def bound(home: DaemonHome) -> Iterator[DaemonHome]:
    """Bind the second connector to a secret of its own for the duration of a test."""
    binding = {"connector": REFLECTOR, "name": "basic/theirs/me", "username": "them", "secret": "theirs"}
    home.must("POST", "/v1/bindings", binding)
    yield home
    home.must("DELETE", f"/v1/bindings/basic/theirs/me?connector={REFLECTOR}")


def types(home: DaemonHome, error: dict[str, Any]) -> list[str]:
    """Return the types of the events recorded about a failure."""
    return [event["type"] for event in home.events(error["audit_id"])]


def test_a_connector_is_lent_its_own_secret_only(bound: DaemonHome, upstream: CountingServer) -> None:
    """Two connectors request a credential of the same kind at the same host; each gets the secret bound to it."""
    bound.run("fetch", {"with_credential": True})
    bound.run("ask", {"credential": "basic"})

    sent = [base64.b64decode(value.removeprefix("Basic ")) for _method, _path, value in upstream.requests[-2:]]
    assert sent == [b"mira:hunter2-hunter2", b"them:" + THEIRS]


def test_a_connector_without_a_binding_gets_no_secret(home: DaemonHome, upstream: CountingServer) -> None:
    """A secret that another connector uses for the same kind and host makes no difference."""
    before = len(upstream.requests)
    error = error_of(home.run("ask", {"credential": "basic"}))

    assert error["class"] == "binding_required"
    assert len(upstream.requests) == before


@pytest.mark.abuse_case("E32")
@pytest.mark.parametrize(
    "credential", ["oauth2", "api_key", "basic/probe/me", "basic/theirs/me", f"{PROBE}", "pw", "BASIC", "*"]
)
def test_a_connector_can_request_a_credential_only_by_its_kind(
    bound: DaemonHome, upstream: CountingServer, credential: str
) -> None:
    """A different kind, account or connector and a secret's name are refused, and each refusal is on record."""
    before = len(upstream.requests)
    error = error_of(bound.run("ask", {"credential": credential}))

    assert (error["class"], error["details"]["reason"]) == ("capability_denied", "credential_not_granted")
    assert types(bound, error)[-2:] == ["egress.denied", "run.finished"]
    assert len(upstream.requests) == before


def test_a_credential_is_not_sent_to_a_host_outside_its_binding(bound: DaemonHome, upstream: CountingServer) -> None:
    """The request is denied and recorded, and nothing arrives there."""
    with CountingServer() as elsewhere:
        for url in (f"http://localhost:{elsewhere.port}/", f"http://127.0.0.1:{upstream.port}/"):
            error = error_of(bound.run("ask", {"credential": "basic", "url": url}))
            assert (error["class"], error["details"]["reason"]) == ("capability_denied", "host_not_granted")
            assert types(bound, error)[-2:] == ["egress.denied", "run.finished"]
        assert elsewhere.requests == []


@pytest.mark.abuse_case("E35")
def test_a_request_beyond_the_runs_request_budget_is_refused(bound: DaemonHome, upstream: CountingServer) -> None:
    """The last request within the budget is served, as counted upstream; the error and the record name the limit."""
    before = len(upstream.requests)
    assert bound.run("hammer", {"times": BUDGET}).body["result"] == BUDGET
    assert len(upstream.requests) == before + BUDGET

    error = error_of(bound.run("hammer", {"times": BUDGET + 1}))
    assert (error["class"], error["details"]["limit"]) == ("resource_limit_exceeded", "requests")
    assert len(upstream.requests) == before + 2 * BUDGET
    finished = bound.events(error["audit_id"])[-1]
    assert finished["type"] == "run.finished"
    assert "resource_limit_exceeded" in str(finished)


def test_the_secret_of_a_revoked_binding_is_never_sent_again(bound: DaemonHome, upstream: CountingServer) -> None:
    """A kept-alive connection from before the revocation does not carry the secret either."""
    assert bound.run("ask", {"credential": "basic"}).status == 200
    bound.must("DELETE", f"/v1/bindings/basic/theirs/me?connector={REFLECTOR}")
    before = len(upstream.requests)
    try:
        assert error_of(bound.run("ask", {"credential": "basic"}))["class"] == "binding_required"
        assert len(upstream.requests) == before
    finally:
        binding = {"connector": REFLECTOR, "name": "basic/theirs/me", "username": "them", "secret": "theirs"}
        bound.must("POST", "/v1/bindings", binding)


def test_no_secret_is_lent_while_the_vault_is_locked(bound: DaemonHome, upstream: CountingServer) -> None:
    """Requests are served again once the vault is unlocked."""
    bound.must("POST", "/v1/vault/lock")
    before = len(upstream.requests)
    try:
        assert error_of(bound.run("ask", {"credential": "basic"}))["class"] == "vault_locked"
        assert len(upstream.requests) == before
    finally:
        bound.unlock()
    assert bound.run("ask", {"credential": "basic"}).status == 200


@pytest.mark.abuse_case("E6")
def test_a_connector_cannot_reach_the_daemon_even_if_settings_allow_its_port(upstream: CountingServer) -> None:
    """The connector has the port in its grant and the configuration has the exception: the request is refused and on record."""
    with daemon_home() as home:
        home.must("GET", "/v1/status")
        port = tomllib.loads((home.path / "config.toml").read_text())["daemon"]["port"]
        home.stop()
        with (home.path / "config.toml").open("a") as config:
            config.write(f'[egress]\nprivate_plain = ["localhost:{port}", "localhost:{upstream.port}"]\n')
        home.install(SOURCE, f"localhost:{port}", f"localhost:{upstream.port}")
        home.add_probe_action("ask", "url:string?", "credential:string?", connector=REFLECTOR)
        home.unlock()
        binding = {"connector": REFLECTOR, "name": "basic/theirs/me", "username": "them", "secret": "pw"}
        home.must("POST", "/v1/bindings", binding)

        error = error_of(home.run("ask", {"url": f"http://localhost:{port}/"}))
        assert (error["class"], error["details"]["reason"]) == ("capability_denied", "address_own")
        assert "egress.denied" in types(home, error)
        assert home.run("ask", {"url": f"http://localhost:{upstream.port}/"}).status == 200
