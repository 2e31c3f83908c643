"""Two accounts of one service: an agent is offered the choice, its calls use the named account, and it learns no more."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon.test_protocol import Agent
from tests.support.home import PROBE, DaemonHome, probed_home
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail
HOME, WORK = "basic/notes/home", "basic/notes/work"


@pytest.fixture
def home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Make a home with two actions of the probe, and one account of it."""
    with probed_home(upstream.port) as home:
        home.add_probe_action("fetch", "path:string?", "with_credential:boolean?")
        home.add_probe_action("effect", "path:string?", name="ask-first", gated=True)
        bind(home, HOME)
        yield home


def bind(home: DaemonHome, name: str) -> None:
    """Bind one account to the probe."""
    username = name.rpartition("/")[2]
    home.must("POST", "/v1/bindings", {"connector": PROBE, "name": name, "username": username, "secret": "pw"})


def agent(home: DaemonHome) -> Agent:
    """Connect an agent to the protocol's socket."""
    return Agent(home.path / "run" / "mcp.sock")


def properties(connection: Agent, tool: str) -> dict[str, Any]:
    """Return the properties of a tool's arguments."""
    tools = {definition["name"]: definition for definition in connection.ask("tools/list", {})["tools"]}
    found: dict[str, Any] = tools[tool]["inputSchema"]["properties"]
    return found


def user(upstream: CountingServer) -> str:
    """Return the user name that the last request to the service carried."""
    return base64.b64decode(upstream.requests[-1][2].removeprefix("Basic ")).decode().partition(":")[0]


def test_the_account_argument_exists_only_while_two_accounts_are_bound(home: DaemonHome) -> None:
    """The agent is notified of a changed tool list when the second account is added, and when it is removed."""
    with agent(home) as connection:
        assert set(properties(connection, "fetch")) == {"path", "with_credential"}
        bind(home, WORK)
        assert connection.read()["method"] == "notifications/tools/list_changed"
        about = properties(connection, "fetch")["useAccount"]
        assert about["enum"] == ["home", "work"]
        assert "home: home (basic/notes/home); work: work (basic/notes/work)" in about["description"]

        home.must("DELETE", "/v1/bindings/basic%2Fnotes%2Fwork")
        assert connection.read()["method"] == "notifications/tools/list_changed"
        assert "useAccount" not in properties(connection, "fetch")


def test_a_call_uses_the_account_that_it_names(home: DaemonHome, upstream: CountingServer) -> None:
    """The name is the identity or the full name; without one, or with a wrong one, the error lists the choices."""
    bind(home, WORK)
    with agent(home) as connection:
        for name, expected in (("home", "home"), ("work", "work"), (WORK, "work")):
            answer = connection.call("fetch", with_credential=True, useAccount=name)
            assert answer["status"] == "completed", answer
            assert user(upstream) == expected
            asked = home.events(answer["audit_id"])[0]
            assert asked["steps"][0]["credential"] == f"basic/notes/{expected}"

        before = len(upstream.requests)
        for wrong in ({}, {"useAccount": "eve"}, {"useAccount": "home,work"}, {"useAccount": ""}):
            refused = connection.call("fetch", **wrong)
            assert refused["error"]["class"] == "binding_required"
            assert refused["error"]["details"]["choices"] == [HOME, WORK]
            assert refused["next_step"].endswith(f"useAccount, one of: {HOME}, {WORK}.")
        assert len(upstream.requests) == before


def test_the_account_is_in_the_plan_but_not_among_the_arguments(home: DaemonHome) -> None:
    """The plan that a person is shown has the account; the arguments that the agent sent do not."""
    bind(home, WORK)
    with agent(home) as connection:
        waiting = connection.call("ask_first", path="/effect", useAccount="work")
        shown = home.must("GET", f"/v1/action-approvals/{waiting['approval_id']}")

        assert shown["plan"]["args"] == {"path": "/effect"}
        assert shown["plan"]["steps"][0]["args"] == {"path": "/effect"}
        assert shown["plan"]["steps"][0]["grant"]["credential"]["account"] == "work"
        assert home.decide(shown, "approve").status == 200
        assert home.result(shown)["status"] == "completed"


def test_an_agent_learns_of_no_account_that_its_action_cannot_use(home: DaemonHome, upstream: CountingServer) -> None:
    """Neither the tool list nor the error for a wrong name reveals another connector's accounts."""
    other = "basic/secret-society/me"
    source = home.path / "other"
    _other_connector(source)
    home.install(source, f"localhost:{upstream.port}")
    for name in (other, "basic/secret-society/you"):
        home.must(
            "POST",
            "/v1/bindings",
            {"connector": "github://aileron-tests/other", "name": name, "username": "m", "secret": "pw"},
        )
    bind(home, WORK)
    with agent(home) as connection:
        seen = [connection.ask("tools/list", {}), connection.call("fetch"), connection.call("fetch", useAccount="me")]
        named = connection.call("fetch", useAccount=other)

    assert named["error"]["class"] == "binding_required"
    assert named["error"]["details"]["choices"] == [HOME, WORK]
    assert "secret-society" not in json.dumps(seen)


def _other_connector(source: Any) -> None:
    import shutil
    from pathlib import Path

    shutil.copytree(Path(__file__).parents[1] / "support" / "connectors" / "probe", source)
    manifest = source / "manifest.toml"
    manifest.write_text(manifest.read_text().replace("aileron-tests/probe", "aileron-tests/other"))
