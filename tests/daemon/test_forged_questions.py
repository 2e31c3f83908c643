"""Questions are forged in the ledger: what a person signs there is true, or it has no effect.

The digest matches what is shown, and the signature is the approver's. What is shown must be what the daemon itself
would have asked.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aileron.client import Answer
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.names import HostPort
from aileron.model.plan import Plan
from aileron.registry.content import ContentStore
from aileron.registry.install import read_artifact
from tests.support.approver import Approver, decided_home
from tests.support.home import PROBE, DaemonHome, other_probe, probe_action
from tests.support.told import word
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

PROBE_SOURCE = Path(__file__).parents[1] / "support" / "connectors" / "probe"


@pytest.fixture
def home(upstream: CountingServer, approver: Approver) -> Iterator[DaemonHome]:
    """Start a home with an approver, a gated action and a free one, the vault open."""
    with decided_home(upstream, approver) as made:
        yield made


def forge(home: DaemonHome, approval_id: str, about: dict[str, Any]) -> None:
    """Replace a question's row, bytes and digest in the ledger while the daemon runs and the vault is open."""
    with contextlib.closing(sqlite3.connect(home.path / "ledger.db")) as ledger, ledger:
        changed = ledger.execute(
            "UPDATE approvals SET subject = ?, digest = ? WHERE id = ?",
            (msgspec.json.encode(about, order="sorted"), sha256_digest(canonical_json(about)), approval_id),
        )
        assert changed.rowcount == 1


def failed(answer: Answer) -> tuple[Any, Any]:
    """Return how an approved consent ended, and its failure class."""
    return answer.body.get("status"), (answer.body.get("error") or {}).get("class")


def asked(home: DaemonHome, kind: str, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """Make the daemon ask a question of this kind, and return its id and subject."""
    archive = tmp_path / "other.tar.gz"
    archive.write_bytes(other_probe("localhost:1"))
    undoable = probe_action("fetch", name="more")
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "action_file": ("/v1/actions", {"text": undoable, "file": "x"}),
        "connector": ("/v1/connectors", {"path": str(archive), "on_conflict": "keep_both"}),
        "binding": (
            "/v1/bindings",
            {"connector": PROBE, "name": "basic/probe/other", "username": "mira", "secret": "pw"},
        ),
    }
    answer = home.ask("POST", *requests[kind])
    assert answer.status == 202, f"it was done before: {answer.body}"
    approval_id = str(answer.body["approval_id"])
    return approval_id, home.must("GET", f"/v1/action-approvals/{approval_id}")["subject"]


LIES: dict[str, dict[str, Any]] = {
    "action_file": {"reaches": [], "credentials": []},
    "connector": {"reaches": [], "credential": None},
    "binding": {"reaches": []},
}


@pytest.mark.parametrize("kind", LIES)
def test_an_approved_consent_that_shows_less_than_the_change_is_not_carried_out(
    home: DaemonHome, approver: Approver, tmp_path: Path, kind: str
) -> None:
    """Reach and credentials are computed again after the decision. The unforged question is carried out."""
    approval_id, subject = asked(home, kind, tmp_path)
    lists = ("actions", "connectors", "bindings")
    before = {name: home.must("GET", f"/v1/{name}") for name in lists}

    forge(home, approval_id, {**subject, **LIES[kind]})
    agreed = approver.decide(home, approval_id)
    unchanged = {name: home.must("GET", f"/v1/{name}") for name in lists}
    again, asked_anew = asked(home, kind, tmp_path)

    assert failed(agreed) == ("failed", "hash_mismatch")
    assert unchanged == before
    assert asked_anew == subject
    assert word(approver.decide(home, again)) == "completed"  # the control


def test_a_secret_used_by_more_bindings_than_shown_is_not_replaced(home: DaemonHome, approver: Approver) -> None:
    """The ledger's question is forged to say that no binding uses the secret."""
    body = {"value_base64": base64.b64encode(b"a value of their own").decode()}
    before = home.must("GET", "/v1/secrets")
    approval_id = home.ask("PUT", "/v1/secrets/pw", body).body["approval_id"]
    subject = home.must("GET", f"/v1/action-approvals/{approval_id}")["subject"]

    forge(home, approval_id, {**subject, "bindings": []})
    agreed = approver.decide(home, approval_id)

    assert failed(agreed) == ("failed", "hash_mismatch")
    assert home.must("GET", "/v1/secrets") == before
    assert approver.agree(home, home.ask("PUT", "/v1/secrets/pw", body))["status"] == "completed"  # the control


def test_settings_that_differ_from_the_question_do_not_take_effect(home: DaemonHome, approver: Approver) -> None:
    """The forged question shows no change and has values that are not in config.toml."""
    home.stop()
    file = home.path / "config.toml"
    file.write_text(file.read_text().replace("private_plain = [", 'private_plain = ["localhost:2", '))
    home.unlock()
    (row,) = [
        approval for approval in home.must("GET", "/v1/action-approvals")["approvals"] if approval["kind"] == "settings"
    ]
    subject = home.must("GET", f"/v1/action-approvals/{row['approval_id']}")["subject"]
    evil = {**subject["after"], "egress.private": ["localhost:3"]}

    forge(home, row["approval_id"], {**subject, "before": evil, "after": evil})
    agreed = approver.decide(home, row["approval_id"])
    waiting = home.must("GET", "/v1/status")["settings_waiting"]
    home.stop()
    home.unlock()
    rows = [
        approval for approval in home.must("GET", "/v1/action-approvals")["approvals"] if approval["kind"] == "settings"
    ]

    assert failed(agreed) == ("failed", "hash_mismatch")
    assert waiting == ["egress.private_plain"]
    assert word(approver.decide(home, rows[0]["approval_id"])) == "completed"  # the control


def test_a_plan_with_a_connector_that_no_approved_file_names_does_not_run(
    home: DaemonHome, approver: Approver, upstream: CountingServer, tmp_path: Path
) -> None:
    """The connector has a known name and version but was put into the store by hand: the signed plan is refused."""
    question, untouched = home.asked("gated"), home.asked("gated")
    plan = Plan.from_json(approver.shown(home, question["approval_id"])["plan"])
    source = tmp_path / "probe"
    shutil.copytree(PROBE_SOURCE, source)
    (source / "extra.py").write_text("# other bytes\n")
    other = read_artifact(source, [HostPort("localhost", upstream.port)])
    ContentStore(home.path / "store" / "connectors").put(other.connector, other.manifest_bytes)
    step = msgspec.structs.replace(plan.steps[0], connector=other.pin)
    forged = msgspec.structs.replace(
        plan,
        action_text=plan.action_text.replace(plan.steps[0].connector.hash, other.pin.hash),
        action_digest=sha256_digest(plan.action_text.replace(plan.steps[0].connector.hash, other.pin.hash).encode()),
        steps=(step,),
    )
    effects = upstream.effects

    forge(home, question["approval_id"], forged.to_json())
    approver.decide(home, question["approval_id"])
    result = home.result(question)

    assert (result["status"], (result.get("error") or {}).get("class")) == ("failed", "consent_required"), result
    assert upstream.effects == effects
    approver.decide(home, untouched["approval_id"])  # the control
    assert home.result(untouched)["status"] == "completed"


def test_a_plan_with_more_hosts_than_its_action_file_allows_does_not_run(
    home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """Connector and action file are the approved ones; only the frozen plan was forged to have an extra host."""
    question = home.asked("gated")
    plan = Plan.from_json(approver.shown(home, question["approval_id"])["plan"])
    step = plan.steps[0]
    grant = msgspec.structs.replace(step.grant, hosts=(*step.grant.hosts, HostPort("example.com", 443)))
    forged = msgspec.structs.replace(plan, steps=(msgspec.structs.replace(step, grant=grant),))
    effects = upstream.effects

    forge(home, question["approval_id"], forged.to_json())
    approver.decide(home, question["approval_id"])
    result = home.result(question)

    assert (result["status"], (result.get("error") or {}).get("class")) == ("failed", "hash_mismatch"), result
    assert upstream.effects == effects
