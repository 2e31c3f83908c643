"""Attacks of a same-user process that edits the home's files while the daemon is stopped, and waits for the person to unlock.

It stops the daemon, as it may, edits ledger, vault or key with full knowledge of their formats, the hash chain included, and
starts the daemon again. Then the person unlocks the vault as usual. Nothing runs that they did not approve.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.client import Answer
from aileron.ledger.chain import columns_of, link, make_record
from aileron.model.decision import moment
from tests.attacks.same_user.house import (
    House,
    ending,
    forged,
    house,
    only_as_an_ordinary_user,
    signed,
    the_persons_key,
)
from tests.attacks.same_user.terminal import PERSON
from tests.attacks.tally import Attack
from tests.support.home import PASSPHRASE, daemon_home

pytestmark = [pytest.mark.jail, only_as_an_ordinary_user]


@pytest.fixture
def home() -> Iterator[House]:
    """Provide a new home for each test, because the tests leave it changed."""
    with house() as made:
        yield made


@contextlib.contextmanager
def stopped(home: House) -> Iterator[sqlite3.Connection]:
    """Stop the daemon and provide the ledger's file; afterwards start the daemon, and have the person unlock the vault."""
    home.home.stop()
    with contextlib.closing(sqlite3.connect(home.home.path / "ledger.db")) as ledger:
        yield ledger
        ledger.commit()
    home.home.ask("GET", "/healthz")
    home.person("vault", "unlock").exits(0)


@pytest.mark.abuse_case("D12")
def test_a_ledger_row_edited_to_approved_starts_no_run(attack: Attack, home: House) -> None:
    """The edited row has no signature, one copied from another question, or one by the attacker's key."""
    key, used = forged(), home.asked()
    assert home.person("approve", used["approval_id"]).code == 0
    questions = {
        name: home.asked()
        for name in (
            "without a signature",
            "with the signature of another",
            "with one of its own",
            "in the person's name",
        )
    }
    persons = str(home.approver()["key_id"])
    with stopped(home) as ledger:
        of_another = ledger.execute(
            "SELECT key_id, signed_at, signature FROM approvals WHERE id = ?", (used["approval_id"],)
        ).fetchone()
        own = signed(key, questions["with one of its own"])
        theirs = signed(key, questions["in the person's name"], key_id=persons)
        made = {
            "without a signature": (None, None, None),
            "with the signature of another": of_another,
            "with one of its own": (own["key_id"], own["at"], own["signature"]),
            "in the person's name": (persons, theirs["at"], theirs["signature"]),
        }
        for name, (key_id, at, signature) in made.items():
            _approved_by_hand(ledger, questions[name], key_id, at, signature)
    for name, question in questions.items():
        state = home.home.result(question, wait=3)
        attack.answered(
            f"a row of the ledger that says approved, {name}",
            (True, 0),
            (state["status"] != "completed", home.effects(question)),
            _words(state),
        )
    fresh = home.asked()
    said = home.person("approve", fresh["approval_id"])
    attack.worked("what the person approves after that runs", (0, 1), (said.code, home.effects(fresh)))


@pytest.mark.abuse_case("D12")
def test_a_row_inserted_into_the_ledger_starts_no_run(attack: Attack, home: House) -> None:
    """The row comes with an approved run, or repeats an old question with its real signature of an hour ago."""
    old, put_in = home.asked(), home.asked()
    with the_persons_key(home.home.path) as key:
        at = moment(time.time() - 3600)
        stale = signed(key, old, at=at)
    with stopped(home) as ledger:
        _approved_by_hand(ledger, old, stale["key_id"], stale["at"], stale["signature"], expires_in_s=86400)
        copied = f"act-{secrets.token_hex(4)}-copied"
        columns = [row[1] for row in ledger.execute("PRAGMA table_info(approvals)")]
        row = dict(
            zip(
                columns,
                ledger.execute("SELECT * FROM approvals WHERE id = ?", (put_in["approval_id"],)).fetchone(),
                strict=True,
            )
        )
        row |= {"id": copied, "state": "approved", "decided_us": row["created_us"], "surface": "operator"}
        ledger.execute(
            f"INSERT INTO approvals ({','.join(row)}) VALUES ({','.join('?' * len(row))})", tuple(row.values())
        )
        ledger.execute("UPDATE runs SET status = 'approved', approval = ? WHERE id = ?", (copied, row["run"]))
    state = home.home.result(old, wait=3)
    attack.answered(
        "a real signature of an hour ago, with a new time to expire",
        (True, 0),
        (state["status"] != "completed", home.effects(old)),
    )
    answer = home.home.ask("GET", f"/v1/action-approvals/{copied}/result?wait=3", wait_s=3)
    attack.answered("a row put in", (True, 0), (answer.body.get("status") != "completed", home.effects(put_in)))
    fresh = home.asked()
    said = home.person("approve", fresh["approval_id"])
    attack.worked("what the person approves after that runs", (0, 1), (said.code, home.effects(fresh)))


@pytest.mark.abuse_case("D13")
def test_an_approval_that_is_used_and_then_rolled_back_does_not_run_again(attack: Attack, home: House) -> None:
    """The ledger is rolled back to the approval, without any later row: the effect still happens only once."""
    question = home.asked()
    said = home.person("approve", question["approval_id"])
    attack.worked("the person approved it", (0, 1), (said.code, home.effects(question)))
    with stopped(home) as ledger:
        _set_back(ledger, question)
    state = home.home.result(question, wait=3)
    attack.answered(
        "a used approval put back, and all that came after it cut off", 1, home.effects(question), _words(state)
    )


@pytest.mark.abuse_case("D13")
def test_approvals_and_grants_withdrawn_before_a_ledger_rollback_stay_withdrawn(attack: Attack, home: House) -> None:
    """The ledger is rolled back to before a held approval was cancelled, and a standing grant revoked or used up."""
    held = home.asked("hold")
    assert home.person("approve", held["approval_id"], "--wait", "0").code == 0
    assert home.person("approval", "cancel", held["approval_id"]).code == 0
    attack.control("cancelled while it was held", "cancelled", home.status(held))
    revoked, kept = _granted(home, uses=3), _granted(home, uses=1)
    assert home.person("grant", "revoke", revoked).code == 0
    attack.worked("a grant lets one through", "ok", home.kind(home.home.run("send", {"path": "/effect/granted"})))
    assert home.home.run("send", {"path": "/effect/spent"}).status == 202
    with stopped(home) as ledger:
        _set_back(ledger, held)
        ledger.execute("UPDATE grant_uses SET used = 0, revoked_us = NULL")
        ledger.execute("UPDATE approvals SET state = 'approved' WHERE id IN (?, ?)", (revoked, kept))
    state = home.home.result(held, wait=25)
    attack.answered(
        "a cancelled approval put back", ("failed", 0), (state["status"], home.effects(held)), _words(state)
    )
    in_force = [grant["id"] for grant in home.home.must("GET", "/v1/grants")["grants"]]
    attack.answered("a revoked grant put back", False, revoked in in_force)
    answer = home.home.run("send", {"path": "/effect/once-more"})
    attack.answered("a grant that was used up, its uses set to none", 202, answer.status)


@pytest.mark.abuse_case("D12")
def test_an_approval_moved_to_another_plan_does_not_run(attack: Attack, home: House) -> None:
    """The attacker exchanges plan, digest or both of a held approval, and keeps the person's signature."""
    tries = {"another plan": ("subject",), "another digest": ("digest",), "both": ("subject", "digest")}
    for name, columns in tries.items():
        approved, other = home.asked("hold"), home.asked()
        said = home.person("approve", approved["approval_id"], "--wait", "0")
        assert said.code in (0, 75), said
        with stopped(home) as ledger:
            for column in columns:
                ledger.execute(
                    f"UPDATE approvals SET {column} = (SELECT {column} FROM approvals WHERE id = ?),"
                    " expires_us = expires_us + 86400000000 WHERE id = ?",
                    (other["approval_id"], approved["approval_id"]),
                )
        answer = home.home.ask("GET", f"/v1/action-approvals/{approved['approval_id']}/result?wait=4", wait_s=4)
        attack.answered(f"an approved row with {name}", 0, home.effects(other), _state(answer))
    fresh = home.asked()
    said = home.person("approve", fresh["approval_id"])
    attack.worked("what the person approves after that runs", (0, 1), (said.code, home.effects(fresh)))


@pytest.mark.abuse_case("D10")
def test_an_edited_vault_file_decides_nothing(attack: Attack, home: House) -> None:
    """The attacker edits public key, consents or grants, removes the approver, or exchanges the vault; the intact file
    works again.
    """
    vault, key = home.home.path / "vault.json", forged()
    good = vault.read_text(encoding="utf-8")
    with daemon_home() as other:
        other.must("POST", "/v1/vault/init", {"passphrase": "a phrase of its own"})
        own = (other.path / "vault.json").read_text(encoding="utf-8")
    document = json.loads(good)
    part = document["consents"]
    tries = {
        "its own public key": {
            **document,
            "consents": {**part, "public_key": key.public_key.hex(), "key_id": key.key_id},
        },
        "no consents": {**document, "consents": {**part, "agreed": []}},
        "a grant": {**document, "consents": {**part, "grants": [_grant()]}},
        "no approver at all": {name: value for name, value in document.items() if name != "consents"},
        "a vault of its own": json.loads(own),
    }
    question = home.asked()
    for name, edited in tries.items():
        home.home.stop()
        vault.write_text(json.dumps(edited, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")
        home.home.ask("GET", "/healthz")
        unlocked = home.person("vault", "unlock")
        answer = home.decide(question, **signed(key, question))
        attack.answered(
            f"vault.json with {name}",
            (True, True, 0),
            (unlocked.code != 0, home.kind(answer) != "ok", home.effects(question)),
            ending(unlocked),
        )
    home.home.stop()
    vault.write_text(good, encoding="utf-8")
    home.home.ask("GET", "/healthz")
    assert home.person("vault", "unlock").code == 0
    said = home.person("approve", question["approval_id"])
    attack.worked("with the vault as it was, the person approves it", (0, 1), (said.code, home.effects(question)))


@pytest.mark.abuse_case("D11")
def test_an_older_vault_file_restores_no_permission(attack: Attack) -> None:
    """The ledger shows that each copy is outdated: before the approver, a grant's use or revocation, a narrower file, a
    new key.
    """
    with house(appoint=False) as home:
        vault, file = home.home.path / "vault.json", home.home.path / "actions" / "open.md"
        copies = {"from before the approver": vault.read_bytes()}
        home.appoint()
        assert home.person("grant", "add", "send", "--uses", "1", "--for", "1h").code == 0
        copies["from before a grant was used"] = vault.read_bytes()
        attack.worked("the grant lets one through", "ok", home.kind(home.home.run("send", {"path": "/effect/granted"})))
        copies["from before a grant was revoked"] = vault.read_bytes()
        (grant,) = home.home.must("GET", "/v1/grants")["grants"]
        assert home.person("grant", "revoke", grant["id"]).code == 0
        for name, data in copies.items():
            home.home.stop()
            vault.write_bytes(data)
            home.home.ask("GET", "/healthz")
            home.person("vault", "unlock")
            answer = home.home.run("send", {"path": "/effect/older"}, wait=3)
            attack.answered(f"an older vault.json, {name}", {202, 409, 423}, answer.status, _told(answer))
        newest = _swapped(home, copies["from before a grant was revoked"])
        wider, narrower = file.read_text(encoding="utf-8"), _gated(file.read_text(encoding="utf-8"))
        said = home.person("action", "add", str(_written(home, narrower)), "--force", "--yes")
        attack.worked(
            "the person agrees to a narrower file", (0, 202), (said.code, home.home.run("open", {"text": "x"}).status)
        )
        newest = _swapped(home, newest)
        file.write_text(wider, encoding="utf-8")
        answer = home.home.run("open", {"text": "x"}, wait=3)
        attack.answered(
            "an older vault.json, and the wider action file of then", {403, 409, 423}, answer.status, _told(answer)
        )
        file.write_text(narrower, encoding="utf-8")
        newest = _swapped(home, newest)
        assert home.person("approver", "init", "--replace").code == 0
        newest = _swapped(home, newest)
        said = home.person("approver", "status")
        attack.answered("an older vault.json, with the approver of then", False, "ready" in said.out, ending(said))
        _swapped(home, newest)
        question = home.asked()
        said = home.person("approve", question["approval_id"])
        attack.worked("with the newest, the person decides", (0, 1), (said.code, home.effects(question)))


@pytest.mark.abuse_case("D9")
def test_an_attackers_approver_key_file_decides_nothing(attack: Attack, home: House) -> None:
    """approver.json is replaced by one whose passphrase the attacker knows, but the vault names another public key."""
    file = home.home.path / "approver.json"
    good = file.read_bytes()
    with house() as other:
        own = (other.home.path / "approver.json").read_bytes()
    question, since = home.asked(), home.newest()
    file.write_bytes(own)
    said = home.tried("approve", question["approval_id"], "--yes")
    attack.answered(
        "a key of its own as approver.json",
        (9, "pending_approval", 0),
        (said.code, home.status(question), home.effects(question)),
        ending(said),
    )
    file.write_bytes(good[:-20] + b'"' + good[-19:])
    said = home.tried("approve", question["approval_id"], "--yes")
    attack.answered(
        "a damaged approver.json", (True, "pending_approval"), (said.code != 0, home.status(question)), ending(said)
    )
    file.unlink()
    said = home.tried("approve", question["approval_id"], "--yes")
    attack.answered(
        "no approver.json", (True, "pending_approval"), (said.code != 0, home.status(question)), ending(said)
    )
    attack.control("none of it was a decision", [], home.events("approval.decided", since))
    file.write_bytes(good)
    file.chmod(0o600)
    said = home.person("approve", question["approval_id"])
    attack.worked("with the person's, they approve it", (0, 1), (said.code, home.effects(question)))


@pytest.mark.abuse_case("D8")
def test_an_attacker_cannot_name_or_replace_the_approver(attack: Attack) -> None:
    """The attacker tries to create, repeat and --replace one without the vault's passphrase or the current key."""
    with house(appoint=False) as home:
        wrong = PERSON.but(
            (r"vault[^\n]*passphrase[^\n]*:", "not the vaults one"), (r"passphrase[^\n]*:", "my own phrase, 1 2 3")
        )
        said = home.tried("approver", "init", someone=wrong)
        attack.answered(
            "approver init first, guessing the vault's passphrase",
            (True, "none"),
            (said.code != 0, home.approver()["status"]),
            ending(said),
        )
        answer = home.home.ask("POST", "/v1/approver", _appointment("guessed passphrase"))
        attack.answered("POST approver first, guessing", "unauthorized", home.kind(answer))
        home.appoint()
        persons, since = home.approver()["key_id"], home.newest()
        said = home.tried("approver", "init", someone=wrong)
        attack.answered("approver init again", True, said.code != 0, ending(said))
        said = home.tried("approver", "init", "--replace", someone=wrong)
        attack.answered("approver init --replace, guessing both", True, said.code != 0, ending(said))
        knows_one = PERSON.but(
            (r"vault[^\n]*passphrase[^\n]*:", PASSPHRASE), (r"passphrase[^\n]*:", "my own phrase, 1 2 3")
        )
        said = home.tried("approver", "init", "--replace", someone=knows_one)
        attack.answered(
            "approver init --replace, with the vault's passphrase and without the old key's",
            True,
            said.code != 0,
            ending(said),
        )
        answer = home.home.ask("POST", "/v1/approver", _appointment(PASSPHRASE))
        attack.answered(
            "POST approver with the vault's passphrase and a key of its own",
            {"unauthorized", "invalid_request"},
            home.kind(answer),
        )
        answer = home.home.ask("POST", "/v1/approver", _appointment(PASSPHRASE, replaces=persons))
        attack.answered(
            "the same, naming the key it replaces, without its signature",
            {"unauthorized", "invalid_request"},
            home.kind(answer),
        )
        attack.answered("who decides after all this", persons, home.approver()["key_id"])
        refused = len(home.events("approval.refused", since)) + len(home.events("vault.unlock_failed", since))
        attack.answered("what the record has of it", True, refused >= 3, f"{refused} rows of refusals")
        said = home.person("approver", "init", "--replace")
        attack.worked("the person, with both", (0, True), (said.code, home.approver()["key_id"] != persons))


def _approved_by_hand(
    ledger: sqlite3.Connection,
    question: dict[str, Any],
    key_id: str | None,
    at: str | None,
    signature: str | None,
    expires_in_s: int = 600,
) -> None:
    """Write the rows that the daemon itself would have written, the chain included."""
    now_us = int(time.time() * 1e6)
    expires_us = now_us + expires_in_s * 1_000_000
    ledger.execute(
        "UPDATE approvals SET state = 'approved', decided_us = ?, expires_us = ?, surface = 'operator', key_id = ?,"
        " signed_at = ?, signature = ? WHERE id = ?",
        (now_us, expires_us, key_id, at, signature, question["approval_id"]),
    )
    (run,) = ledger.execute("SELECT run FROM approvals WHERE id = ?", (question["approval_id"],)).fetchone()
    ledger.execute("UPDATE runs SET status = 'approved' WHERE id = ?", (run,))
    facts = {
        "type": "approval.decided",
        "approval": question["approval_id"],
        "decision": "approve",
        "digest": question["digest"],
        "surface": "operator",
        "run": run,
    }
    more = {"key_id": key_id, "signed_at": at, "signature": signature}
    _append(ledger, facts | {name: value for name, value in more.items() if value is not None}, now_us)


def _append(ledger: sqlite3.Connection, facts: dict[str, Any], at_us: int) -> None:
    seq, previous = ledger.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    record = make_record(seq + 1, at_us, facts)
    ledger.execute(
        "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (seq + 1, at_us, *columns_of(facts), record.decode(), previous, link(previous, record)),
    )


def _set_back(ledger: sqlite3.Connection, question: dict[str, Any]) -> None:
    """Remove the rows after the decision and restore the states of that time, as if the daemon had ended right after it."""
    approval = question["approval_id"]
    rows = ledger.execute("SELECT seq, record FROM events ORDER BY seq").fetchall()
    (decided,) = [
        seq
        for seq, record in rows
        if json.loads(record).get("type") == "approval.decided" and json.loads(record)["approval"] == approval
    ]
    ledger.execute("DELETE FROM events WHERE seq > ?", (decided,))
    ledger.execute("UPDATE approvals SET state = 'approved' WHERE id = ?", (approval,))
    ledger.execute("UPDATE runs SET status = 'approved', outcome = NULL WHERE approval = ?", (approval,))


def _granted(home: House, uses: int) -> str:
    """Have the person sign a grant, and return its id."""
    before = {grant["id"] for grant in home.home.must("GET", "/v1/grants")["grants"]}
    assert home.person("grant", "add", "send", "--uses", str(uses), "--for", "1h").code == 0
    (made,) = {grant["id"] for grant in home.home.must("GET", "/v1/grants")["grants"]} - before
    return str(made)


def _swapped(home: House, data: bytes) -> bytes:
    """Replace the vault while the daemon is stopped, and have the person unlock it. Return the file that was there."""
    vault = home.home.path / "vault.json"
    home.home.stop()
    was = vault.read_bytes()
    vault.write_bytes(data)
    home.home.ask("GET", "/healthz")
    home.person("vault", "unlock")
    return was


def _gated(text: str) -> str:
    end = text.index("\n+++", 4)
    return f"{text[:end]}\n[approval]\nrequired = true{text[end:]}"


def _written(home: House, text: str) -> Path:
    path = home.home.path.parent / "written.md"
    path.write_text(text, encoding="utf-8")
    return path


def _told(answer: Answer) -> str:
    error = answer.body.get("error") or {}
    return ": ".join(str(part) for part in (answer.status, error.get("class"), error.get("message")) if part)


def _state(answer: Answer) -> str:
    return _words(answer.body)


def _words(state: dict[str, Any]) -> str:
    """Return a run's status, and the reason."""
    error = state.get("error") or {}
    return ": ".join(str(part) for part in (state.get("status"), error.get("class"), error.get("message")) if part)


def _grant() -> dict[str, Any]:
    return {
        "id": "act-20261121T000000-00000000000000000000",
        "action": "send",
        "action_digest": "sha256:" + "0" * 64,
        "credentials": [],
        "constraints": [],
        "uses": 100,
        "used": 0,
        "until": int(time.time()) + 86400,
    }


def _appointment(passphrase: str, replaces: str | None = None) -> dict[str, Any]:
    from aileron.model.decision import ApproverStatement

    key, at, inventory = forged(), moment(time.time()), "sha256:" + "0" * 64
    statement = ApproverStatement(
        public_key=key.public_key.hex(), inventory=inventory, replaces=replaces, at=at, key_id=key.key_id
    )
    body = {
        "passphrase": passphrase,
        "public_key": key.public_key.hex(),
        "inventory": inventory,
        "at": at,
        "signature": key.sign(statement),
    }
    return body if replaces is None else {**body, "replaces": replaces, "old_signature": key.sign(statement)}
