"""Changes that let an agent do more need an approver's consent: files, connectors, bindings, secrets, grants, settings."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.client import Answer
from aileron.model.canonical import sha256_digest
from tests.support.approver import Approver, decided_home
from tests.support.home import PROBE, DaemonHome, other_probe, probe_action
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

GATE = "required = true"


@pytest.fixture
def home(upstream: CountingServer, approver: Approver) -> Iterator[DaemonHome]:
    """Start a home with an approver, a gated action and a free one."""
    with decided_home(upstream, approver) as made:
        yield made


def word(answer: Answer) -> str:
    """Return the class of a failure, or the status."""
    return str(answer.body["error"]["class"] if answer.is_error else answer.body.get("status", "completed"))


def edit(home: DaemonHome, name: str, before: str, after: str) -> None:
    """Replace text in an installed action's file, as an editor does."""
    file = home.path / "actions" / f"{name}.md"
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def test_an_action_whose_approval_rule_was_removed_needs_consent_to_run(
    home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """Refusals name the question, the same one for every try; after consent the file runs as it is."""
    before = upstream.effects
    edit(home, "gated", GATE, "required = false")

    refused, again = home.run("gated"), home.run("gated")
    approval_id = refused.body["error"]["details"]["approval_id"]
    question = approver.shown(home, approval_id)
    agreed = approver.decide(home, approval_id)
    ran = home.run("gated")

    assert (word(refused), word(again)) == ("consent_required", "consent_required")
    assert again.body["error"]["details"]["approval_id"] == approval_id
    assert [change["where"] for change in question["subject"]["changes"] if change["widens"]]
    assert (word(agreed), ran.status, upstream.effects) == ("completed", 200, before + 1)


def test_the_message_of_a_pending_change_says_where_to_decide(home: DaemonHome) -> None:
    """Like the message of a pending run, it has the review page's URL and the command that opens it."""
    asked = home.must("POST", "/v1/actions", {"text": probe_action("talk", "words:string"), "file": "a test"})

    assert f" {asked['review_url']} " in asked["message"]
    assert f"`aileron open approval {asked['approval_id']}`" in asked["message"]


def test_a_denied_change_of_an_action_file_stays_refused(home: DaemonHome, approver: Approver) -> None:
    """The action runs again once the file is changed back, because that version has consent."""
    edit(home, "free", 'op = "effect"', 'op = "fetch"')
    edit(home, "free", 'capabilities = ["effect"]', 'capabilities = ["effect", "fetch"]')
    refused = home.run("free")
    denied = approver.decide(home, refused.body["error"]["details"]["approval_id"], "deny", reason="no")
    still = home.run("free")
    edit(home, "free", 'op = "fetch"', 'op = "effect"')
    edit(home, "free", 'capabilities = ["effect", "fetch"]', 'capabilities = ["effect"]')

    assert (word(refused), word(denied), word(still)) == ("consent_required", "denied", "consent_required")
    assert home.run("free").status == 200


def test_changed_prose_or_a_narrower_action_needs_no_consent(home: DaemonHome) -> None:
    """A corrected title and an added approval rule take effect without a question."""
    edit(home, "free", "# A test", "# A better title")
    first = home.run("free")
    edit(home, "free", "+++\n\n# A better", "[approval]\nrequired = true\n+++\n\n# A better")

    assert (first.status, home.run("free").status) == (200, 202)


def test_an_action_file_copied_into_the_home_needs_consent_to_run(home: DaemonHome, approver: Approver) -> None:
    """A file that was put into the directory by hand runs only after consent."""
    text = (home.path / "actions" / "free.md").read_text().replace('name = "free"', 'name = "dropped"', 1)
    (home.path / "actions" / "dropped.md").write_text(text)

    refused = home.run("dropped")
    dry = home.ask("POST", "/v1/actions/dropped/run", {"args": {}, "dry_run": True})
    approver.decide(home, refused.body["error"]["details"]["approval_id"])

    assert (word(refused), word(dry)) == ("consent_required", "consent_required")
    assert home.run("dropped").status == 200


def test_a_new_action_or_connector_or_binding_or_secret_value_waits_for_consent(
    home: DaemonHome, approver: Approver, tmp_path: Path
) -> None:
    """Each request gets 202 and is carried out after consent; a secret needs consent if a binding uses it."""
    archive = tmp_path / "other.tar.gz"
    archive.write_bytes(other_probe("localhost:1"))
    value = base64.b64encode(b"another-password").decode()
    binding = {"connector": PROBE, "name": "basic/probe/other", "username": "mira", "secret": "pw"}
    lists = ("actions", "connectors", "bindings")
    before = {name: home.must("GET", f"/v1/{name}") for name in lists}
    vault = (home.path / "vault.json").read_bytes()

    answers = {
        "action": home.ask("POST", "/v1/actions", {"text": probe_action("fetch", name="more"), "file": "x"}),
        "secret": home.ask("PUT", "/v1/secrets/pw", {"value_base64": value}),  # before another binding uses it
        "binding": home.ask("POST", "/v1/bindings", binding),  # before the connector, which widens it
        "connector": home.ask("POST", "/v1/connectors", {"path": str(archive), "on_conflict": "keep_both"}),
    }
    unchanged = {name: home.must("GET", f"/v1/{name}") for name in lists}
    untouched = (home.path / "vault.json").read_bytes()
    settled = {name: approver.agree(home, answer) for name, answer in answers.items()}

    assert {name: answer.status for name, answer in answers.items()} == dict.fromkeys(answers, 202)
    assert (unchanged, untouched) == (before, vault)
    assert {name: decision["status"] for name, decision in settled.items()} == dict.fromkeys(answers, "completed"), (
        settled
    )
    assert len(home.must("GET", "/v1/connectors")["connectors"]) == 2
    assert len(home.must("GET", "/v1/bindings")["bindings"]) == 2
    assert "more" in {action["name"] for action in home.must("GET", "/v1/actions")["actions"]}
    assert word(home.run("more")) == "binding_required"  # the daemon does not guess which of the two bindings
    assert home.must("GET", "/v1/audit/verify")["ok"]


def test_unused_secrets_and_removals_need_no_consent(home: DaemonHome) -> None:
    """A secret that no binding uses can be stored; actions can be disabled or removed, and bindings revoked."""
    value = base64.b64encode(b"some-other-value").decode()

    assert home.ask("PUT", "/v1/secrets/unused", {"value_base64": value}).status == 200
    assert home.ask("PATCH", "/v1/actions/free", {"enabled": False}).status == 200
    assert home.ask("DELETE", "/v1/actions/free").status == 200
    assert home.ask("DELETE", "/v1/bindings/basic/probe/me").status == 200


def test_consent_to_an_action_ends_with_its_removal(home: DaemonHome) -> None:
    """Adding an installed file again is no change; after the removal, adding it needs consent again."""
    text = (home.path / "actions" / "free.md").read_text()

    same = home.ask("POST", "/v1/actions", {"text": text, "file": "x", "replace": True})
    home.must("DELETE", "/v1/actions/free")
    again = home.ask("POST", "/v1/actions", {"text": text, "file": "x"})
    (home.path / "actions" / "free.md").write_text(text)

    assert (same.status, again.status, word(home.run("free"))) == (200, 202, "consent_required")


def test_an_archive_replaced_after_it_was_shown_is_not_installed(
    home: DaemonHome, approver: Approver, tmp_path: Path
) -> None:
    """The file changes between the question and the decision."""
    archive = tmp_path / "connector.tar.gz"
    archive.write_bytes(other_probe("localhost:1"))
    answer = home.ask("POST", "/v1/connectors", {"path": str(archive), "on_conflict": "keep_both"})
    archive.write_bytes(other_probe("localhost:2"))

    settled = approver.agree(home, answer)

    assert (settled["status"], settled["error"]["class"]) == ("failed", "hash_mismatch")
    assert len(home.must("GET", "/v1/connectors")["connectors"]) == 1


def granted(home: DaemonHome, **others: object) -> Answer:
    """Request a grant for the action `undoable`."""
    body = {
        "action": "undoable",
        "constraints": [{"argument": "path", "operator": "prefix", "value": "/team/"}],
        "uses": 2,
        "for_s": 3600,
    }
    return home.ask("POST", "/v1/grants", {**body, **others})


def test_a_standing_grant_allows_only_runs_within_its_constraints_and_number_of_uses(
    home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """A run outside the constraint, beyond the number of uses or after revocation needs approval; each use is on record."""
    text = probe_action("effect", "path:string?", name="undoable", gated=True)
    text = text.replace("[approval]\n", "[approval]\nirreversible = false\n")
    approver.agree(home, home.ask("POST", "/v1/actions", {"text": text, "file": "x"}))
    waiting = granted(home)
    not_yet = home.run("undoable", {"path": "/team/a"})
    grant = approver.agree(home, waiting)["result"]["id"]

    ran = [home.run("undoable", {"path": path}) for path in ("/team/a", "/elsewhere", "/team/b", "/team/c")]
    (listed,) = home.must("GET", "/v1/grants")["grants"]
    used = home.must("GET", "/v1/audit?type=grant.used&order=oldest")["events"]
    second = approver.agree(home, granted(home))["result"]["id"]
    home.must("DELETE", f"/v1/grants/{second}")

    assert (word(waiting), not_yet.status) == ("pending_approval", 202)
    assert [answer.status for answer in ran] == [200, 202, 200, 202]
    assert (listed["id"], listed["used"], listed["over"]) == (grant, 2, True)
    assert [event["run"] for event in used] == [ran[0].body["audit_id"], ran[2].body["audit_id"]]
    assert home.run("undoable", {"path": "/team/d"}).status == 202
    assert home.must("GET", "/v1/audit/verify")["ok"]


def test_a_standing_grant_that_requires_an_argument_to_be_absent_refuses_calls_with_it(
    home: DaemonHome, approver: Approver
) -> None:
    """The constraint `absent` keeps its effect after the vault was locked and read again."""
    text = probe_action("effect", "path:string?", name="exact", gated=True)
    text = text.replace("[approval]\n", "[approval]\nirreversible = false\n")
    approver.agree(home, home.ask("POST", "/v1/actions", {"text": text, "file": "x"}))
    absent = [{"argument": "path", "operator": "absent", "value": None}]
    approver.agree(home, granted(home, action="exact", constraints=absent, uses=9))
    home.must("POST", "/v1/vault/lock")
    home.unlock()

    assert home.run("exact", {"path": "/team/a"}).status == 202
    assert home.run("exact", {}).status == 200


def test_a_question_about_a_standing_grant_includes_the_action_file(home: DaemonHome, approver: Approver) -> None:
    """The file must have the digest that the grant names. Once it has changed, the question leaves it out, so that the
    console reports the limits as unknown.
    """
    text = probe_action("effect", "path:string?", name="undoable", gated=True)
    text = text.replace("[approval]\n", "[approval]\nirreversible = false\n")
    approver.agree(home, home.ask("POST", "/v1/actions", {"text": text, "file": "x"}))
    this = f"/v1/action-approvals/{granted(home).body['approval_id']}"
    asked = home.must("GET", this)
    edit(home, "undoable", "# A test", "# Another test")

    assert sha256_digest(asked["granted_text"].encode()) == asked["subject"]["action_digest"]
    assert "granted_text" not in home.must("GET", this)


def test_no_standing_grant_is_made_for_an_action_that_cannot_be_undone(home: DaemonHome) -> None:
    """An action without a gate and an action that does not exist get no grant either."""
    answers = [granted(home, action="gated"), granted(home, action="free"), granted(home, action="nowhere")]

    assert [answer.is_error for answer in answers] == [True, True, True]
    assert home.must("GET", "/v1/action-approvals")["approvals"] == []


def test_a_standing_grant_without_an_approver_is_refused_with_the_enrollment_command(bare_home: DaemonHome) -> None:
    """A grant must be signed, and a home without an approver has no key to sign it."""
    bare_home.install_probe()
    text = probe_action("effect", "path:string?", name="undoable", gated=True)
    text = text.replace("[approval]\n", "[approval]\nirreversible = false\n")
    bare_home.must("POST", "/v1/actions", {"text": text, "file": "x"})
    bare_home.unlock()
    bare_home.bind_probe()

    answer = granted(bare_home)

    assert word(answer) == "consent_required"
    assert "aileron approver init" in answer.body["error"]["message"]


def test_only_a_home_without_an_approver_accepts_an_action_without_its_connector(
    bare_home: DaemonHome, home: DaemonHome
) -> None:
    """An approver could not be shown which hosts it reaches. Without one, the run reports the missing connector."""
    text = probe_action("effect", name="early").replace("bound-at-release", "0" * 64)

    added = bare_home.ask("POST", "/v1/actions", {"text": text, "file": "x"})
    ran = bare_home.run("early")
    asked = home.ask("POST", "/v1/actions", {"text": text, "file": "x"})

    assert (added.status, word(ran), word(asked)) == (200, "not_found", "hash_mismatch")  # another hash there
    assert home.must("GET", "/v1/action-approvals")["approvals"] == []


def test_changed_settings_take_effect_after_consent(
    home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """An exception is written into config.toml: the daemon starts with the old value, reports the waiting setting, and asks."""
    home.stop()
    more = f'[egress]\nprivate_plain = ["localhost:{upstream.port}", "localhost:9"]\n'
    home.configure(more)
    home.unlock()

    status = home.must("GET", "/v1/status")
    (question,) = home.must("GET", "/v1/action-approvals")["approvals"]
    ran = home.run("free")
    agreed = approver.decide(home, question["approval_id"])
    home.stop()
    home.unlock()

    assert status["settings_waiting"] == ["egress.private_plain"]
    assert (question["kind"], ran.status, word(agreed)) == ("settings", 200, "completed")
    assert home.must("GET", "/v1/status")["settings_waiting"] == []
    assert home.run("free").status == 200


@pytest.mark.parametrize("tampered", ["written", "removed"])
def test_a_tampered_copy_of_the_approved_settings_stops_every_run(
    home: DaemonHome, approver: Approver, upstream: CountingServer, tampered: str
) -> None:
    """The daemon compares `agreed/settings.json` with the open vault; consent to all of config.toml repairs it."""
    home.stop()
    file = home.path / "agreed" / "settings.json"
    wider = file.read_text().replace('"egress.private":[]', '"egress.private":["evil.example:443"]')
    assert wider != file.read_text()
    if tampered == "written":
        file.write_text(wider)
    else:
        file.unlink()
        home.configure(f'[egress]\nprivate_plain = ["localhost:{upstream.port}"]\nprivate = ["evil.example:443"]\n')
    home.unlock()

    refused = home.run("free")
    (question,) = home.must("GET", "/v1/action-approvals")["approvals"]
    agreed = approver.decide(home, question["approval_id"])
    home.stop()
    home.unlock()

    assert word(refused) == "consent_required"
    assert (question["kind"], word(agreed)) == ("settings", "completed")
    assert home.run("free").status == 200
