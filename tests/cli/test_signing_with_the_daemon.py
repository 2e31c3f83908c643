"""Signed decisions with a real daemon and a real key: from `approver init` to the signature and its record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.registry.signatures import SigningKey
from tests.cli.command import Command
from tests.cli.person import APPROVER, INIT, SIGN, at_terminal
from tests.support.home import PASSPHRASE, PROBE, DaemonHome, other_probe, probe_action
from tests.support.probed import probed_home
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail
YES_OR_NO = ("to approve: ", "yes")
YES = ("leave it waiting: ", "y")
LEAVE = ("leave it waiting: ", "")
WHY = ("sent to the agent): ", "")
PREVIEW = """
[approval.preview]
op = "fetch"
inputs = { path = "/read" }
render = { Status = "status", Body = "body", Missing = "nothing.here" }
multiline = ["Body"]
"""


@pytest.fixture(scope="module")
def home(upstream: CountingServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonHome]:
    """A home with some actions and a credential, and then an approver, created at a terminal."""
    folder = tmp_path_factory.mktemp("actions")
    with probed_home(upstream.port) as home:
        for name, text in (
            ("effect", probe_action("effect", "path:string?", gated=True)),
            (
                "undoable",
                _with(probe_action("effect", "path:string?", name="undoable", gated=True), "irreversible = false"),
            ),
            ("held", _with(probe_action("effect", "path:string?", name="held", gated=True), "undo_window_s = 60")),
            ("seen", _previewed(probe_action("effect", "path:string?", name="seen", gated=True))),
        ):
            file = folder / f"{name}.md"
            file.write_text(text)
            Command(home.path)("action", "add", str(file)).exits(0)
        Command(home.path).at_terminal("approver", "init", answers=INIT).exits(0)
        yield home


def _with(text: str, line: str) -> str:
    return text.replace("[approval]\n", f"[approval]\n{line}\n")


def _previewed(text: str) -> str:
    head, fence, body = text.replace('["effect"]', '["effect", "fetch"]').rpartition("+++")
    return head + PREVIEW + fence + body


def waiting(aileron: Command, action: str, *words: str) -> str:
    """Request a run as an agent and return the id of its question."""
    said = aileron("run", action, *words, "--json")
    assert (said.code, said.json["status"]) == (75, "pending_approval"), said
    return str(said.json["approval_id"])


def test_a_run_is_signed_at_the_terminal_and_recorded(aileron: Command, upstream: CountingServer) -> None:
    """The action runs once; the chain is valid with the signature in it, and `doctor` names the key."""
    before = upstream.effects
    at_terminal(aileron, "run", "effect", "path=/x", answers=[YES, SIGN]).exits(0)
    assert upstream.effects == before + 1
    verified = aileron("audit", "verify", "--json")
    assert verified.json["ok"], verified
    status = aileron("approver", "status", "--json").json
    assert f"signed by {status['key_id']}" in " ".join(aileron("doctor").out.split())


def test_run_prompts_for_the_vaults_passphrase_in_a_home_with_an_approver(home: DaemonHome, aileron: Command) -> None:
    """The vault holds the approver, so nothing runs while it is locked, as after each restart of the daemon."""
    home.must("POST", "/v1/vault/lock")
    assert aileron("run", "effect").code == 4
    vault, no = ("The vault is locked. Its passphrase: ", PASSPHRASE), ("leave it waiting: ", "n")
    why = ("agent and signed): ", "")
    said = at_terminal(aileron, "run", "effect", "path=/x", answers=[vault, no, why])

    assert "withdrawn" in said.out, said


def test_an_agents_request_is_signed_at_another_terminal(aileron: Command, upstream: CountingServer) -> None:
    """A script with every passphrase but no terminal cannot sign; the person can, and `show` says which key signed."""
    asked, before = waiting(aileron, "effect", "path=/x"), upstream.effects
    refused = aileron("approve", asked, "--yes", given=f"y\n{APPROVER}\n", AILERON_VAULT_PASSPHRASE=PASSPHRASE)
    assert (refused.code, upstream.effects) == (6, before)
    said = at_terminal(aileron, "approve", asked[-12:], "--reason", "fine", answers=[YES_OR_NO, SIGN])

    assert (said.code, upstream.effects) == (0, before + 1), said
    assert "signed\tby ed25519:" in aileron("approval", "show", asked).out


def test_a_denial_signed_at_a_terminal_reaches_the_agent_with_its_reason(
    aileron: Command, upstream: CountingServer
) -> None:
    """The agent reads the reason in the result of its own request."""
    asked, before = waiting(aileron, "effect", "--idempotency-key", "no"), upstream.effects
    at_terminal(aileron, "deny", asked, "--reason", "not today", answers=[SIGN]).exits(0)
    assert aileron("run", "effect", "--idempotency-key", "no", "--json").json["error"]["details"] == {
        "reason": "not today"
    }
    assert upstream.effects == before


def test_approve_loads_a_preview_before_its_prompt_and_signs_preview_and_plan(
    aileron: Command, upstream: CountingServer
) -> None:
    """The decision covers preview and plan; the action runs once."""
    upstream.page = "the draft that only the person reads"
    asked, before = waiting(aileron, "seen", "path=/x"), upstream.effects
    said = at_terminal(aileron, "approve", asked, answers=[SIGN, YES_OR_NO])

    assert (said.code, upstream.effects) == (0, before + 1), said
    assert "\nStatus      200\nBody        the draft that only the person reads\n" in said.out
    assert "Missing" not in said.out


def test_arguments_can_be_edited_and_the_agent_is_told(aileron: Command, upstream: CountingServer) -> None:
    """The run uses the person's arguments."""
    asked = waiting(aileron, "effect", "path=/x", "--idempotency-key", "edited")
    said = at_terminal(
        aileron, "approval", "edit", ask_id(asked), answers=[YES_OR_NO, SIGN], EDITOR="sed -i s:/x:/edited:"
    ).exits(0)
    assert "edited      ≠ path" in said.out
    heard = aileron("run", "effect", "path=/x", "--idempotency-key", "edited", "--json")
    assert heard.json["executed_arguments"] == {"path": "/edited"}


def ask_id(asked: str) -> str:
    """Return the end of the id, as a person types it."""
    return asked[-10:]


def test_the_agent_answers_a_question_of_the_person(aileron: Command, home: DaemonHome) -> None:
    """The question is asked at the terminal, answered on the agent socket, and shown as not verified."""
    asked = waiting(aileron, "effect", "path=/x", "--idempotency-key", "why")
    assert aileron("approval", "ask", asked, "why this one?").code == 0
    assert aileron("run", "effect", "path=/x", "--idempotency-key", "why", "--json").json["question"] == "why this one?"
    answer = home.agent.ask("POST", f"/v1/action-approvals/{asked}/answer", {"answer": "because \x1b[2J"})
    assert answer.status == 200, answer.body
    shown = at_terminal(aileron, "approval", "show", asked).out

    assert "you asked\n  │ why this one?\nthe agent\n  │ because \\x1b[2J\n" in shown
    assert aileron("approval", "cancel", asked).code == 0


def test_a_run_can_be_cancelled_during_its_undo_window(aileron: Command, upstream: CountingServer) -> None:
    """The run has not started while its undo window is open."""
    asked, before = waiting(aileron, "held", "path=/x"), upstream.effects
    said = at_terminal(aileron, "approve", asked, "--wait", "0", answers=[YES_OR_NO, SIGN]).exits(0)
    assert f"aileron approval cancel {asked}" in said.out
    assert "held for 60 s after approval" in said.out
    assert aileron("approval", "cancel", asked).code == 0
    assert upstream.effects == before


def test_an_action_is_added_with_a_signature(aileron: Command, tmp_path: Path) -> None:
    """A script exits with 75 and adds nothing; at the terminal the action is added and runs."""
    file = tmp_path / "added.md"
    file.write_text(probe_action("give_back", "text:string?", name="added"))
    aileron("action", "add", str(file), "--yes").exits(75)
    assert "added" not in aileron("action", "list").out
    said = at_terminal(aileron, "action", "add", str(file), answers=[YES, SIGN]).exits(0)
    assert said.out.endswith("added\nadded\n")
    assert aileron("run", "added", "text=7").json["text"] == "7"


def test_removing_an_actions_approval_rule_needs_consent(
    aileron: Command, home: DaemonHome, upstream: CountingServer
) -> None:
    """The file was edited directly: runs are refused with the fix, and need no approval after consent."""
    file = home.path / "actions" / "undoable.md"
    text, before = file.read_text(), upstream.effects
    without = text.replace("irreversible = false\nrequired = true", "irreversible = false\nrequired = false")
    assert without != text
    file.write_text(without)
    try:
        agent = aileron("run", "undoable", "--json")
        assert (agent.code, agent.json["error"]["class"]) == (6, "consent_required"), agent
        assert agent.json["error"]["fix"].startswith("aileron approve act-")
        left = at_terminal(aileron, "run", "undoable", answers=[LEAVE])
        assert (left.code, upstream.effects) == (6, before)
        said = at_terminal(aileron, "run", "undoable", answers=[YES, SIGN])

        assert (said.code, upstream.effects) == (0, before + 1), said
        assert "ALLOWS MORE" in said.out
        assert '│ name = "undoable"' in said.out
    finally:
        file.write_text(text)


def test_changing_the_secret_of_a_binding_or_the_value_of_a_used_secret_waits_for_a_signature(
    aileron: Command, home: DaemonHome
) -> None:
    """The changes are a different secret for the connector, and a new value for a secret in use."""
    words = ("binding", "setup", PROBE, "--name", "basic/probe/other", "--username", "u", "--secret", "pw")
    assert aileron(*words).code == 75
    bound = at_terminal(aileron, *words, answers=[YES, SIGN])
    set_ = at_terminal(aileron, "secret", "set", "pw", answers=[("Value of pw: ", "hunter2-hunter2"), YES, SIGN])

    assert (bound.code, set_.code) == (0, 0), (bound, set_)
    assert "basic/probe/other" in aileron("binding", "list").out
    assert "used by     basic/probe/me" in set_.out
    assert aileron("binding", "revoke", "basic/probe/other").code == 0


def test_a_publishers_key_waits_for_a_signature(aileron: Command, tmp_path: Path) -> None:
    """The card says what the key could sign; it is trusted afterwards, and revoked without a signature."""
    file, key = tmp_path / "acme.pub", SigningKey.generate().public
    file.write_text(key.to_pem())
    words = ("keyring", "trust", "github://acme", "--key", str(file))
    said = at_terminal(aileron, *words, answers=[YES, SIGN]).exits(0)
    for shown in (
        "publisher",
        "github://acme and all its repositories",
        key.fingerprint,
        "this key with what the publisher states elsewhere",
    ):
        assert shown in " ".join(said.out.split())
    assert aileron("keyring", "list").out == f"github://acme\t{key.fingerprint}\n"
    assert aileron("keyring", "revoke", "github://acme").code == 0
    assert aileron("keyring", "list").out == ""


def test_a_signed_standing_grant_allows_runs_within_its_constraints(aileron: Command, upstream: CountingServer) -> None:
    """A run outside the grant needs approval, and so does every run after the grant is revoked."""
    before = upstream.effects
    irreversible = aileron("grant", "add", "effect", "--uses", "2", "--for", "1h")
    words = ("grant", "add", "undoable", "--one-of", "path=/a,/b", "--uses", "2", "--for", "1h")
    said = at_terminal(aileron, *words, answers=[YES, SIGN])

    assert irreversible.code != 75, irreversible
    assert said.code == 0, said
    assert 'path is one of "/a", "/b"' in said.out
    assert aileron("run", "undoable", "path=/a").code == 0
    assert upstream.effects == before + 1
    waiting(aileron, "undoable", "path=/c")
    (listed,) = aileron("grant", "list", "--json").json["grants"]
    assert (listed["used"], listed["uses"]) == (1, 2)
    assert 'undoable, path is one of "/a", "/b"' in aileron("grant", "list").out
    assert aileron("grant", "revoke", listed["id"][-10:]).code == 0
    waiting(aileron, "undoable", "path=/a")


def test_a_locked_vault_is_unlocked_before_a_decision(aileron: Command, upstream: CountingServer) -> None:
    """The vault says who decides: its passphrase is asked for first, then the approver's."""
    asked, before = waiting(aileron, "effect", "path=/x"), upstream.effects
    assert aileron("vault", "lock").code == 0
    answers = [("The vault is locked. Its passphrase: ", PASSPHRASE), YES_OR_NO, SIGN]
    said = at_terminal(aileron, "approve", asked, answers=answers)

    assert (said.code, upstream.effects) == (0, before + 1), said


def test_pending_consents_are_listed(aileron: Command, tmp_path: Path) -> None:
    """Both `approval list` and `status` show them."""
    file = tmp_path / "counted.md"
    file.write_text(probe_action("give_back", "text:string?", name="counted"))
    assert aileron("action", "add", str(file)).code == 75
    listed = aileron("approval", "list").out

    assert "\taction_file\tcounted\tpending_approval\t" in listed
    assert "Add the action “counted”" in aileron("status").out


def test_a_connector_is_installed_with_a_signature(aileron: Command, home: DaemonHome, tmp_path: Path) -> None:
    """The content differs from the installed one of the same version, and both are kept."""
    archive = tmp_path / "other.tar.gz"
    archive.write_bytes(other_probe("localhost:2"))
    words = ("connector", "install", str(archive), "--keep-both")
    assert aileron(*words).code == 75
    said = at_terminal(aileron, *words, answers=[YES, SIGN]).exits(0)
    assert "localhost:2" in said.out
    assert len(aileron("connector", "list").out.splitlines()) == 2
