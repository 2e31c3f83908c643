"""Attacks of a same-user process that changes what may happen, not a decision: actions, connectors, bindings, grants.

It types the person's commands with `--yes`, sends requests to the operator socket, and edits the files themselves, settings
too, while the daemon runs and while it is stopped. Each time a question waits and nothing is changed, until the person
consents.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.same_user.house import House, ending, house, only_as_an_ordinary_user
from tests.attacks.tally import Attack
from tests.support.home import PROBE, other_probe, probe_action

pytestmark = [pytest.mark.jail, only_as_an_ordinary_user]

WAITS = 75


@pytest.fixture
def home() -> Iterator[House]:
    """Provide a new home for each test, because the tests leave it changed."""
    with house() as made:
        yield made


@pytest.mark.abuse_case("D20")
def test_an_action_file_edited_to_allow_more_does_not_run(attack: Attack, home: House) -> None:
    """The edits remove the approval, change the operation, make it repeatable, extend the expiry, or add a file."""
    actions = home.home.path / "actions"
    good = (actions / "send.md").read_text(encoding="utf-8")
    gate = good[good.index("[approval]") : good.index("+++", 10)]
    ungated = good.replace(gate, "")
    edits = {
        "without its gate": ungated,
        "with `required = false`": good.replace("required = true\nexpires", "required = false\nexpires"),
        "with another operation": good.replace('"effect"', '"fetch"'),
        "to be repeated": good.replace("idempotent = false", "idempotent = true"),
        "with a question that lives for a day": good.replace('"15m"', '"24h"'),
    }
    for name, text in edits.items():
        if text == good:
            continue
        (actions / "send.md").write_text(text, encoding="utf-8")
        path = f"/effect/{secrets.token_hex(4)}"
        answer = home.home.run("send", {"path": path}, wait=5)
        attack.answered(
            f"an action file {name}", ("consent_required", False), (home.kind(answer), _was_asked(home, path))
        )
    (actions / "planted.md").write_text(ungated.replace('"send"', '"planted"'), encoding="utf-8")
    answer = home.home.run("planted", {"path": "/effect/planted"}, wait=5)
    attack.answered(
        "an action file of its own",
        ("consent_required", False),
        (home.kind(answer), _was_asked(home, "/effect/planted")),
    )
    refused = home.events("run.refused")
    attack.answered("what the record has of it", True, len(refused) >= 6, f"{len(refused)} rows of run.refused")
    waiting = answer.body["error"]["details"]["approval_id"]
    (actions / "send.md").write_text(good.replace("# A test", "# A test of prose"), encoding="utf-8")
    attack.worked("other prose needs nobody", "pending_approval", home.status(home.asked()))
    said = home.person("approve", waiting)
    attack.worked(
        "what the person agrees to runs",
        (0, "ok"),
        (said.code, home.kind(home.home.run("planted", {"path": "/effect/p2"}))),
    )


@pytest.mark.abuse_case("D21")
def test_a_command_with_the_option_yes_only_creates_a_question(attack: Attack, home: House, tmp_path: Path) -> None:
    """`--yes` answers the command's prompt, not the person's question: exit 75, a pending approval, and no change."""
    file = tmp_path / "mine.md"
    file.write_text(probe_action("effect", "path:string", name="mine"), encoding="utf-8")
    archive = tmp_path / "other.tar.gz"
    archive.write_bytes(other_probe("localhost:9"))
    tries = {
        "action add --yes": ("action", "add", str(file), "--yes"),
        "connector install --yes": ("connector", "install", str(archive), "--replace", "--yes"),
        "binding setup --yes": (
            "binding",
            "setup",
            PROBE,
            "--name",
            "basic/probe/other",
            "--username",
            "x",
            "--secret",
            "pw",
            "--yes",
        ),
        "grant add --yes": ("grant", "add", "send", "--uses", "9", "--for", "1h", "--yes"),
    }
    before = _installed(home)
    questions = {}
    for name, words in tries.items():
        said = home.command(*words, "--json")
        attack.answered(
            f"aileron {name}", (WAITS, before), (said.code, _installed(home)), "exit 75, nothing is changed"
        )
        questions[name] = said.json["approval_id"]
    said = home.command("secret", "set", "pw", "--json", given=b"another-secret")
    attack.answered("aileron secret set, of a secret that is bound", WAITS, said.code)
    listed = {entry["approval_id"] for entry in home.home.must("GET", "/v1/action-approvals")["approvals"]}
    attack.control("all of them wait for the person", True, set(questions.values()) <= listed)
    said = home.person("approve", questions["action add --yes"])
    attack.worked("the person agrees to one", (0, True), (said.code, "mine" in _installed(home)["actions"]))
    said = home.person("deny", questions["binding setup --yes"], "--reason", "not mine")
    attack.worked("and denies one", (0, False), (said.code, "basic/probe/other" in _installed(home)["bindings"]))


@pytest.mark.abuse_case("D21")
def test_requests_on_the_operator_socket_only_create_questions(attack: Attack, home: House, tmp_path: Path) -> None:
    """Each request gets status 202 and a pending approval, and changes nothing."""
    archive = tmp_path / "other.tar.gz"
    archive.write_bytes(other_probe("localhost:9"))
    before = _installed(home)
    tries = {
        "POST actions": (
            "POST",
            "/v1/actions",
            {"text": probe_action("effect", "path:string", name="mine"), "file": "x"},
        ),
        "POST connectors": ("POST", "/v1/connectors", {"path": str(archive), "on_conflict": "replace"}),
        "POST bindings": (
            "POST",
            "/v1/bindings",
            {"connector": PROBE, "name": "basic/probe/other", "username": "x", "secret": "pw"},
        ),
        "PUT secrets": ("PUT", "/v1/secrets/pw", {"value_base64": base64.b64encode(b"another-secret").decode()}),
        "POST grants": ("POST", "/v1/grants", {"action": "send", "constraints": [], "uses": 1, "for_s": 60}),
    }
    for name, (method, path, body) in tries.items():
        answer = home.home.ask(method, path, body)
        attack.answered(
            f"{name} on the operator's socket",
            (202, "pending_approval", before),
            (answer.status, answer.body.get("status"), _installed(home)),
            "202, pending_approval, nothing is changed",
        )
        decided = home.home.ask(
            "POST",
            f"/v1/action-approvals/{answer.body['approval_id']}/decide",
            {"decision": "approve", "digest": answer.body["digest"]},
        )
        attack.answered(
            f"{name}, then deciding it unsigned",
            ("unauthorized", before),
            (home.kind(decided), _installed(home)),
            "unauthorized, nothing is changed",
        )
        last = answer.body["approval_id"]
    said = home.person("approve", last)
    attack.worked(
        "the person agrees to the last of them", (0, 1), (said.code, len(home.home.must("GET", "/v1/grants")["grants"]))
    )


@pytest.mark.abuse_case("D22")
def test_edited_settings_do_not_take_effect_without_consent(attack: Attack, home: House) -> None:
    """Neither config.toml with another private host and a weaker jail nor an edited copy of the accepted settings
    takes effect.
    """
    config = home.home.path / "config.toml"
    good = config.read_text(encoding="utf-8")
    layers = home.home.must("GET", "/v1/status")["jail"]["layers"]
    edited = good.replace("private_plain = [", 'private = ["localhost:9"]\nprivate_plain = ["localhost:9", ')
    config.write_text(f'{edited}\n[sandbox]\nmode = "landlock"\n', encoding="utf-8")
    home.home.stop()
    status = home.home.must("GET", "/v1/status")
    assert home.person("vault", "unlock").code == 0
    attack.answered("config.toml, sandbox.mode", layers, status["jail"]["layers"], "the layers of before")
    attack.answered(
        "config.toml, what waits",
        ["egress.private", "egress.private_plain", "sandbox.mode"],
        sorted(status["settings_waiting"]),
    )
    attack.control("runs go on as they were agreed to", "ok", home.kind(home.home.run("open", {"text": "x"})))
    agreed = home.home.path / "agreed" / "settings.json"
    kept = agreed.read_bytes()
    agreed.write_bytes(kept.replace(b'"namespaces"', b'"landlock"'))
    home.home.stop()
    home.home.ask("GET", "/healthz")
    assert home.person("vault", "unlock").code == 0
    answer = home.home.run("open", {"text": "x"}, wait=5)
    attack.answered("the copy of what was agreed to, edited", "consent_required", home.kind(answer))
    agreed.unlink()
    home.home.stop()
    home.home.ask("GET", "/healthz")
    assert home.person("vault", "unlock").code == 0
    answer = home.home.run("open", {"text": "x"}, wait=5)
    attack.answered("the copy of what was agreed to, removed", "consent_required", home.kind(answer))
    agreed.write_bytes(kept)
    agreed.chmod(0o600)
    home.home.stop()
    home.home.ask("GET", "/healthz")
    assert home.person("vault", "unlock").code == 0
    rows = [row for row in home.home.must("GET", "/v1/action-approvals")["approvals"] if row["kind"] == "settings"]
    first = min(rows, key=lambda row: str(row["created_at"]))  # the others are of the copies that were tampered with
    said = home.person("approve", first["approval_id"])
    home.home.stop()
    waiting = home.home.must("GET", "/v1/status")["settings_waiting"]
    attack.worked("what the person agrees to is in force", (0, []), (said.code, waiting))


@pytest.mark.abuse_case("D23")
def test_a_standing_grant_admits_only_runs_within_its_constraints(attack: Attack, home: House) -> None:
    """Other arguments, one use more than granted, an edited file, and a revoked grant each ask the person again."""
    said = home.person("grant", "add", "send", "--uses", "2", "--for", "1h", "--prefix", "path=/effect/ok")
    attack.worked("the person grants two uses", 0, said.code)
    (grant,) = home.home.must("GET", "/v1/grants")["grants"]
    irreversible = home.person("grant", "add", "hold", "--uses", "2", "--for", "1h")
    attack.answered(
        "a grant for what cannot be undone", True, irreversible.code not in (0, WAITS), ending(irreversible)
    )
    attack.answered("other arguments", 202, home.home.run("send", {"path": "/effect/other"}).status)
    for number in (1, 2):
        attack.worked(f"use {number} of 2", "ok", home.kind(home.home.run("send", {"path": f"/effect/ok{number}"})))
    attack.answered(
        "once more",
        (202, False),
        (home.home.run("send", {"path": "/effect/ok3"}).status, _was_asked(home, "/effect/ok3")),
    )
    attack.control("each use is on record", 2, len(home.events("grant.used")))
    said = home.person("grant", "add", "send", "--uses", "2", "--for", "1h")
    attack.worked("the person grants anew", 0, said.code)
    file = home.home.path / "actions" / "send.md"
    good = file.read_text(encoding="utf-8")
    file.write_text(good.replace("# A test", "# Another"), encoding="utf-8")
    attack.answered("with the action's file edited", 202, home.home.run("send", {"path": "/effect/ok4"}).status)
    file.write_text(good, encoding="utf-8")
    for grant in home.home.must("GET", "/v1/grants")["grants"]:
        assert home.person("grant", "revoke", grant["id"]).code == 0
    attack.answered(
        "after it was revoked",
        (202, False),
        (home.home.run("send", {"path": "/effect/ok5"}).status, _was_asked(home, "/effect/ok5")),
    )


def _was_asked(home: House, path: str) -> bool:
    return any(asked == path for _, asked, _ in home.upstream.requests)


def _installed(home: House) -> dict[str, list[str]]:
    return {
        "actions": sorted(action["name"] for action in home.home.must("GET", "/v1/actions")["actions"]),
        "connectors": sorted(connector["hash"] for connector in home.home.must("GET", "/v1/connectors")["connectors"]),
        "bindings": sorted(binding["name"] for binding in home.home.must("GET", "/v1/bindings")["bindings"]),
        "grants": sorted(grant["id"] for grant in home.home.must("GET", "/v1/grants")["grants"]),
        "secrets": sorted(
            f"{secret['name']} {secret['updated_at']}" for secret in home.home.must("GET", "/v1/secrets")["secrets"]
        ),
    }
