"""A binding serves what it was approved for: its reach, its users, and how it is suspended, rebound and revoked."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.client import Answer
from aileron.model.names import HostPort
from aileron.registry.connector_build import build
from tests.support.approver import Approver, decided_home
from tests.support.home import PROBE, DaemonHome, probe_action
from tests.support.probed import probed_home
from tests.support.told import error_of
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

SOURCE = Path(__file__).parents[1] / "support" / "connectors" / "probe"
BOUND = "basic/probe/me"
FURTHER = "further.example:443"


@pytest.fixture
def home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Start a home with the probe bound, and an action that sends its credential."""
    with probed_home(upstream.port) as made:
        made.add_probe_action("fetch", "path:string?", "with_credential:boolean?")
        yield made


def newer(home: DaemonHome, where: Path, host: str, *more: str) -> None:
    """Install version 2.0.0 of the probe, which requests `more` as well, and its action `fetch-newer`."""
    source = where / "probe"
    shutil.copytree(SOURCE, source)
    manifest = source / "manifest.toml"
    manifest.write_text(manifest.read_text().replace('"1.0.0"', '"2.0.0"'))
    home.install(source, host, *more)
    text = probe_action("fetch", "path:string?", "with_credential:boolean?", name="fetch-newer")
    lines = text.replace(f'name = "{PROBE}"\nversion = "1.0.0"', f'name = "{PROBE}"\nversion = "2.0.0"')
    home.must("POST", "/v1/actions", {"text": lines, "file": "a test"})


def built(source: Path, where: Path, *hosts: str) -> Path:
    """Build a connector's directory and return the path of its archive."""
    archive = where / "built.tar.gz"
    archive.write_bytes(build(source, [HostPort.parse(host) for host in hosts]).archive)
    return archive


def shown(home: DaemonHome, name: str = BOUND) -> dict[str, Any]:
    """Return one binding in full."""
    found: dict[str, Any] = home.must("GET", f"/v1/bindings/{name}")
    return found


def uses(home: DaemonHome, action: str) -> Answer:
    """Run an action that sends its credential."""
    return home.run(action, {"with_credential": True})


def test_a_binding_shows_its_reach_and_the_actions_that_use_it(home: DaemonHome, upstream: CountingServer) -> None:
    """The binding shows its hosts, account, state, and actions by version; once used, also the time of the last use."""
    before = shown(home)
    assert not uses(home, "fetch").is_error
    after = shown(home)

    assert before["reach"]["hosts"] == [f"localhost:{upstream.port}"]
    assert (before["account"], before["state"], before["suspended"]) == ("mira", "ok", [])
    assert before["used_by"] == [{"connector": PROBE, "version": "1.0.0", "suspended": [], "actions": ["fetch"]}]
    assert (before["last_used_at"], after["last_used_at"] is None) == (None, False)


@pytest.mark.abuse_case("O6")
def test_a_connector_version_with_a_wider_reach_needs_a_rebind(
    home: DaemonHome, upstream: CountingServer, tmp_path: Path
) -> None:
    """The old version keeps working; the new one is refused with the extra host's name until the user rebinds."""
    host = f"localhost:{upstream.port}"
    newer(home, tmp_path, host, FURTHER)

    refused = error_of(uses(home, "fetch-newer"))
    old = uses(home, "fetch")
    suspended = shown(home)
    home.must("PATCH", f"/v1/bindings/{BOUND}", {})
    ran = uses(home, "fetch-newer")

    assert refused["class"] == "binding_required"
    assert FURTHER in refused["message"]
    assert f"aileron binding rebind {BOUND}" in refused["message"]
    assert refused["details"]["widened"] == [f"host {FURTHER}"]
    assert (suspended["state"], suspended["suspended"]) == ("suspended", [f"host {FURTHER}"])
    assert [(user["version"], user["suspended"]) for user in suspended["used_by"]] == [
        ("2.0.0", [f"host {FURTHER}"]),
        ("1.0.0", []),
    ]
    assert (old.status, ran.status) == (200, 200)
    assert shown(home)["reach"]["hosts"] == sorted([FURTHER, host])


def test_a_connector_version_with_the_same_reach_needs_no_rebind(
    home: DaemonHome, upstream: CountingServer, tmp_path: Path
) -> None:
    """An update that requests nothing new needs no approval."""
    newer(home, tmp_path, f"localhost:{upstream.port}")

    assert not uses(home, "fetch-newer").is_error
    assert shown(home)["state"] == "ok"


def test_a_pending_plan_does_not_run_with_a_changed_binding(home: DaemonHome, upstream: CountingServer) -> None:
    """The person saw the plan with the earlier binding. A new request runs with the changed one."""
    home.add_probe_action("fetch", "with_credential:boolean?", name="gated", gated=True)
    before = upstream.effects
    first = home.asked("gated", {"with_credential": True})
    home.must("PATCH", f"/v1/bindings/{BOUND}", {"username": "other"})
    home.decide(first, "approve")
    second = home.asked("gated", {"with_credential": True})
    home.decide(second, "approve")

    was, now = home.result(first), home.result(second)

    assert (was["status"], was["error"]["class"]) == ("failed", "binding_failed")
    assert now["status"] == "completed", now
    assert upstream.effects >= before


def test_rebinding_takes_effect_only_after_the_approvers_consent(
    upstream: CountingServer, approver: Approver, tmp_path: Path
) -> None:
    """The question shows what the changed binding would reach."""
    with decided_home(upstream, approver) as home:
        host = f"localhost:{upstream.port}"
        source = tmp_path / "probe"
        shutil.copytree(SOURCE, source)
        (source / "manifest.toml").write_text((source / "manifest.toml").read_text().replace('"1.0.0"', '"2.0.0"'))
        home.ask("GET", "/healthz")
        asked = home.ask("POST", "/v1/connectors", {"path": str(built(source, tmp_path, host, FURTHER))})
        approver.decide(home, asked.body["approval_id"])

        waiting = home.ask("PATCH", f"/v1/bindings/{BOUND}", {})
        question = approver.shown(home, waiting.body["approval_id"])
        meanwhile = shown(home)
        approver.decide(home, waiting.body["approval_id"])
        after = shown(home)

    assert (waiting.status, waiting.body["kind"]) == (202, "binding")
    assert question["subject"]["reaches"] == sorted([FURTHER, host])
    assert question["subject"]["replaces"] is True
    assert (meanwhile["state"], meanwhile["reach"]["hosts"]) == ("suspended", [host])
    assert (after["state"], after["reach"]["hosts"]) == ("ok", sorted([FURTHER, host]))


def test_a_binding_can_be_changed_to_use_a_different_secret(home: DaemonHome, upstream: CountingServer) -> None:
    """The next request carries the new secret."""
    home.must("PUT", "/v1/secrets/other", {"value_base64": base64.b64encode(b"another-secret").decode()})
    home.must("PATCH", f"/v1/bindings/{BOUND}", {"secret": "other"})
    uses(home, "fetch")

    sent = base64.b64decode(upstream.requests[-1][2].removeprefix("Basic "))
    assert sent == b"mira:another-secret"


def test_revoking_a_binding_keeps_its_stored_secret(home: DaemonHome) -> None:
    """The user stored the secret, and another binding may use it. No provider has to be informed."""
    answer = home.must("DELETE", f"/v1/bindings/{BOUND}")

    assert (answer["revoked"], answer["at_provider"]) == (True, None)
    assert error_of(home.ask("GET", f"/v1/bindings/{BOUND}"))["class"] == "not_found"
    assert [secret["name"] for secret in home.must("GET", "/v1/secrets")["secrets"]] == ["pw"]
    assert error_of(uses(home, "fetch"))["class"] == "binding_required"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"connector": PROBE, "name": "basic/probe/new", "flow": "browser"}, "is not a sign-in"),
        ({"connector": PROBE, "name": "oauth2/probe/new", "flow": "browser"}, "needs a credential of kind basic"),
        ({"connector": "github://nobody/nothing", "name": "oauth2/x/y", "flow": "browser"}, "no installed connector"),
    ],
)
def test_an_impossible_sign_in_is_refused_with_the_reason(home: DaemonHome, body: dict[str, str], told: str) -> None:
    """A wrong kind, a wrong name, or a connector that is not installed is refused at once, and no sign-in is on record."""
    refused = error_of(home.ask("POST", "/v1/sign-ins", body))

    assert told in refused["message"]
    assert home.must("GET", "/v1/audit?type=sign_in.started")["events"] == []
