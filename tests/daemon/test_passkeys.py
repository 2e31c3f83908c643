"""A passkey that the approver's key enrolled decides runs and most changes like that key, and nothing beyond that."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import sqlite3
import time
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest

from aileron.approver_key.box import Recipient
from aileron.client import Answer
from aileron.model.consent import PASSKEY_DECIDES, ConsentKind
from aileron.model.decision import PreviewStatement, moment
from tests.cli.command import Command
from tests.daemon.test_signed_decisions import previewing
from tests.support.approver import Approver, decided_home
from tests.support.authenticator import Algorithm, Told, cbor
from tests.support.home import PASSPHRASE, DaemonHome, daemon_home, probe_action
from tests.support.passkeys import Device
from tests.support.told import refusals, word
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

ROUTE = "/v1/action-approvals"


@pytest.fixture(scope="module")
def home(upstream: CountingServer, approver: Approver) -> Iterator[DaemonHome]:
    """Start a home with an approver, the vault open."""
    with decided_home(upstream, approver) as made:
        yield made


@pytest.fixture
def own_home(upstream: CountingServer, approver: Approver) -> Iterator[DaemonHome]:
    """Start such a home for tests that stop its daemon, or count what it has."""
    with decided_home(upstream, approver) as made:
        yield made


@pytest.fixture(scope="module")
def device(home: DaemonHome, approver: Approver) -> Device:
    """Return a passkey that decides for the home of this module."""
    made = Device(home)
    made.enrol(approver, "the phone")
    return made


def verified(home: DaemonHome) -> dict[str, Any]:
    """Return the result of a check of the record."""
    found: dict[str, Any] = home.must("GET", "/v1/audit/verify")
    return found


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_a_passkey_decides_and_the_record_proves_it(
    home: DaemonHome, approver: Approver, upstream: CountingServer, algorithm: Algorithm
) -> None:
    """The recorded decision has the passkey's id and a signature of three parts, and verification counts it as signed."""
    device, before = Device(home, algorithm), upstream.effects
    device.enrol(approver, f"a {algorithm} device")
    question = home.asked("gated")
    counted = verified(home)["decisions"]["signed"]

    decided = device.decide(question["approval_id"], reason="looks right")

    assert (decided.status, word(decided)) == (200, "approved")
    assert home.result(question)["status"] == "completed"
    assert upstream.effects == before + 1
    (event,) = [event for event in home.events(question["audit_id"]) if event["type"] == "approval.decided"]
    assert (event["key_id"], event["signature"].count(".")) == (device.key_id, 2)
    found = verified(home)
    assert found["ok"], found
    assert found["decisions"] == {"signed": counted + 1, "unsigned": 0, "unchecked": 0}


def test_the_web_page_can_decide_with_only_the_fields_that_the_daemon_returned(
    home: DaemonHome, device: Device
) -> None:
    """The device signs the daemon's challenge; the page computes nothing. A changed reason is refused."""
    question = home.asked("gated")
    route = f"{ROUTE}/{question['approval_id']}"
    asked = {"decision": "deny", "digest": question["digest"], "reason": "not today"}
    told = home.must("POST", f"{route}/challenge", asked)
    chosen = device.chosen(told["statements"])
    signature = device.answer(chosen["publicKey"]["challenge"]).spelled()

    body = {**asked, "at": told["at"], "key_id": chosen["key_id"], "signature": signature}
    other = home.ask("POST", f"{route}/challenge", {**asked, "digest": "sha256:" + "0" * 64})

    assert chosen["name"] == "the phone"
    assert word(other) == "invalid_request"
    assert word(home.ask("POST", f"{route}/decide", {**body, "reason": "put in its mouth"})) == "unauthorized"
    assert word(home.ask("POST", f"{route}/decide", body)) == "denied"
    assert home.result(question)["reason"] == "not today"


def test_a_decision_with_an_incorrect_passkey_assertion_is_refused_and_recorded(
    home: DaemonHome, device: Device, approver: Approver, upstream: CountingServer
) -> None:
    """A wrong page, relying party, question, key or time, and an unverified person, are refused and recorded."""
    before = upstream.effects
    question, other = home.asked("gated"), home.asked("gated", {"path": "/other"})
    approval_id = question["approval_id"]
    good, stranger = device.decision(approval_id), Device(home)
    port = device.origin.rpartition(":")[2]
    signature, data, client = good["signature"].split(".")
    tries: list[tuple[dict[str, Any], str]] = [
        (device.decision(approval_id, told=Told(origin=f"http://localhost:{int(port) - 1}")), "signature"),
        (device.decision(approval_id, told=Told(origin="http://localhost")), "signature"),
        (device.decision(approval_id, told=Told(client={"crossOrigin": True})), "signature"),
        (device.decision(approval_id, told=Told(rp_id="example.com")), "signature"),
        (device.decision(approval_id, told=Told(is_verified=False)), "signature"),
        (device.decision(approval_id, told=Told(is_there=False)), "signature"),
        (device.decision(approval_id, told=Told(type="webauthn.create")), "signature"),
        (device.decision(other["approval_id"]), "signature"),
        ({**good, "digest": other["digest"]}, "signature"),
        ({**good, "decision": "deny"}, "signature"),
        ({**good, "reason": "put in its mouth"}, "signature"),
        (stranger.decision(approval_id), "key"),
        ({**stranger.decision(approval_id), "key_id": device.key_id}, "signature"),
        ({**good, "key_id": approver.key_id}, "signature"),
        ({**approver.decision(home, approval_id), "key_id": device.key_id}, "signature"),
        ({**good, "signature": f"{signature}.{data}"}, "signature"),
        ({**good, "signature": f"{signature}.{data}.{client}.{client}"}, "signature"),
        ({**good, "signature": f"{signature}.{data}.{'A' * 100_000}"}, "signature"),
        (device.decision(approval_id, at=time.time() - 400), "time"),
        (device.decision(approval_id, at=time.time() + 100), "time"),
    ]

    answers = [home.ask("POST", f"{ROUTE}/{approval_id}/decide", body) for body, _ in tries]

    assert [word(answer) for answer in answers] == ["unauthorized"] * len(tries)
    assert refusals(home, approval_id) == [why for _, why in tries]
    assert home.result(question, wait=0)["status"] == "pending_approval"
    assert word(home.ask("POST", f"{ROUTE}/{approval_id}/decide", good)) == "approved"  # the control
    assert home.result(question)["status"] == "completed"
    assert word(home.ask("POST", f"{ROUTE}/{approval_id}/decide", good)) == "already_decided"
    slow = device.decide(other["approval_id"], "deny", at=time.time() - 200)  # people may search for their phone
    assert word(slow) == "denied"
    assert upstream.effects == before + 1
    assert verified(home)["ok"]


def test_a_passkey_opens_a_preview_and_then_decides_its_question(
    home: DaemonHome, device: Device, approver: Approver, upstream: CountingServer
) -> None:
    """The preview takes one assertion, once, and the decision another, which covers what was shown, as with the key."""
    question, recipient = home.asked(previewing(home, approver, "fetch")), Recipient()
    route = f"{ROUTE}/{question['approval_id']}/preview"
    statement = PreviewStatement(
        approval_id=question["approval_id"],
        recipient=recipient.public,
        nonce=secrets.token_hex(16),
        at=moment(time.time()),
        key_id=device.key_id,
    )
    body = {name: value for name, value in msgspec.to_builtins(statement).items() if name != "approval_id"}
    upstream.page = "what only the person reads"

    strange = home.ask("POST", route, {**body, "signature": Device(home).sign(statement)})
    answer = home.must("POST", route, {**body, "signature": device.sign(statement)})
    again = home.ask("POST", route, {**body, "signature": device.sign(statement)})

    preview = json.loads(recipient.open(base64.b64decode(answer["sealed"]), statement.signed_bytes()))
    assert upstream.page in [field["value"] for field in preview["fields"]]
    assert (word(strange), word(again)) == ("unauthorized", "unauthorized")
    assert word(device.decide(question["approval_id"], digest=preview["digest"])) == "approved"
    assert home.result(question)["status"] == "completed"
    assert verified(home)["ok"]


def test_a_change_of_an_action_file_can_be_approved_with_a_passkey(home: DaemonHome, device: Device) -> None:
    """The change is an action's file, as with the approver's key."""
    answer = home.ask("POST", "/v1/actions", {"text": probe_action("give_back", name="by-passkey"), "file": "x"})

    assert word(device.decide(answer.body["approval_id"])) == "completed"
    assert home.run("by-passkey").status == 200


def test_a_passkey_cannot_approve_the_enrollment_of_another_passkey_but_can_deny_it(
    home: DaemonHome, device: Device, approver: Approver
) -> None:
    """Only the approver's key approves an enrollment, and the daemon gives no challenge for it; a denial only narrows."""
    second = Device(home)
    asked = second.made("a second one")
    approval_id = asked.body["approval_id"]

    tried = device.decide(approval_id)
    own = second.decide(approval_id)
    page = {"decision": "approve", "digest": asked.body["digest"]}
    offered = home.ask("POST", f"{ROUTE}/{approval_id}/challenge", page)
    denied = device.decide(approval_id, "deny")

    assert asked.body["kind"] == "passkey"
    assert [word(answer) for answer in (tried, own, offered)] == ["unauthorized"] * 3
    assert "a passkey cannot approve this" in tried.body["error"]["message"]
    assert refusals(home, approval_id) == ["kind", "kind"]
    assert word(denied) == "denied"
    assert second.key_id not in [passkey["id"] for passkey in home.must("GET", "/v1/passkeys")["passkeys"]]
    second.enrol(approver, "a second one")  # the control
    assert second.key_id in [passkey["id"] for passkey in home.must("GET", "/v1/passkeys")["passkeys"]]


def test_a_forged_kind_in_the_ledger_lets_no_passkey_approve_an_enrollment(
    own_home: DaemonHome, approver: Approver
) -> None:
    """The edited row calls the enrollment a binding, but the signed subject itself says what it is."""
    device, second = Device(own_home), Device(own_home)
    device.enrol(approver)
    approval_id = second.made("a second one").body["approval_id"]
    with contextlib.closing(sqlite3.connect(own_home.path / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE approvals SET kind = 'binding' WHERE id = ?", (approval_id,))

    decided = device.decide(approval_id)

    assert (decided.body["status"], decided.body["error"]["class"]) == ("failed", "unauthorized")
    assert [passkey["name"] for passkey in own_home.must("GET", "/v1/passkeys")["passkeys"]] == ["laptop"]
    assert not verified(own_home)["ok"]


def test_a_passkey_cannot_approve_a_change_of_settings(own_home: DaemonHome, approver: Approver) -> None:
    """Settings, on which the jail and all else depends, cannot be approved on a page."""
    device = Device(own_home)
    device.enrol(approver)
    own_home.stop()
    text = (own_home.path / "config.toml").read_text(encoding="utf-8")
    own_home.configure(text.replace("[egress]\n", '[egress]\nprivate = ["nas.local:443"]\n'))
    own_home.unlock()
    (row,) = [approval for approval in own_home.must("GET", f"{ROUTE}")["approvals"] if approval["kind"] == "settings"]

    tried = device.decide(row["approval_id"])

    assert word(tried) == "unauthorized"
    assert refusals(own_home, row["approval_id"]) == ["kind"]
    assert word(approver.decide(own_home, row["approval_id"])) == "completed"


def test_a_passkey_cannot_enroll_an_approver(home: DaemonHome, device: Device) -> None:
    """The signature of a passkey is refused in its own name and in that of the current key."""
    thief = Approver()
    body = thief.appointment(home, thief)
    statement = PreviewStatement(approval_id="x", recipient="x", nonce="x", at="x", key_id=device.key_id)
    tries = [
        {**body, "replaces": device.key_id, "old_signature": device.sign(statement)},
        {**body, "replaces": home.must("GET", "/v1/approver")["key_id"], "old_signature": device.sign(statement)},
    ]

    assert [word(home.ask("POST", "/v1/approver", attempt)) for attempt in tries] == ["unauthorized"] * 2


def test_enrolling_a_passkey_needs_an_unused_challenge_answered_on_ailerons_own_page(
    home: DaemonHome, approver: Approver
) -> None:
    """Another page, an unverified person, a wrong or used challenge, or an unsupported key lead to no question."""
    device = Device(home)
    lies = [
        (Told(origin="http://localhost:1"), "unauthorized"),
        (Told(rp_id="example.com"), "unauthorized"),
        (Told(is_verified=False), "unauthorized"),
        (Told(type="webauthn.get"), "unauthorized"),
        (Told(challenge="AAAA"), "invalid_request"),
        (Told(key={**device.cose, 3: 0}), "unauthorized"),
        (Told(key={**device.cose, 3: -35}), "unauthorized"),
        (Told(attestation=cbor({})), "unauthorized"),
    ]

    assert [word(device.made("mine", told)) for told, _ in lies] == [why for _, why in lies]
    body = device.make(device.options("mine"))
    first, again = home.ask("POST", "/v1/passkeys", body), home.ask("POST", "/v1/passkeys", body)
    assert (word(first), word(again)) == ("pending_approval", "invalid_request")
    assert approver.agree(home, first)["status"] == "completed"
    assert "decides already" in str(_twice(device).body)
    for name in ("", " x", "a\u202eb", "x" * 65, "mine"):
        assert word(home.ask("POST", "/v1/passkeys/options", {"name": name})) == "invalid_request", name


def _twice(device: Device) -> Answer:
    """Enroll the same device once more, with a browser that ignores the excluded credentials."""
    options = device.options("mine again")
    options["publicKey"]["excludeCredentials"] = []
    return device.home.ask("POST", "/v1/passkeys", device.make(options))


def test_the_enrollment_options_exclude_enrolled_passkeys_and_require_verification(
    home: DaemonHome, device: Device
) -> None:
    """A device thus holds one passkey of a home, and verifies the person."""
    first, second = device.home.must("POST", "/v1/passkeys/options", {"name": "n"}), device.options("n")
    public = first["publicKey"]

    assert [parameter["alg"] for parameter in public["pubKeyCredParams"]] == [-7, -8, -257]
    assert public["authenticatorSelection"] == {
        "residentKey": "preferred",
        "requireResidentKey": False,
        "userVerification": "required",
    }
    listed = [passkey["credential_id"] for passkey in home.must("GET", "/v1/passkeys")["passkeys"]]
    assert [descriptor["id"] for descriptor in public["excludeCredentials"]] == listed
    assert home.must("GET", "/v1/approver")["passkeys"] == len(listed)
    assert (public["rp"]["id"], public["attestation"], public["timeout"]) == ("localhost", "none", 300_000)
    assert public["user"]["id"] != second["publicKey"]["user"]["id"]
    assert public["challenge"] != second["publicKey"]["challenge"]


def test_a_revoked_passkey_can_no_longer_decide(
    own_home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """The passkey stops at once; its earlier decisions stay proved. It can be enrolled again."""
    device, before = Device(own_home), upstream.effects
    first = device.enrol(approver)
    done, waits = own_home.asked("gated"), own_home.asked("gated", {"path": "/late"})
    assert word(device.decide(done["approval_id"])) == "approved"
    assert own_home.result(done)["status"] == "completed"
    held = device.decision(waits["approval_id"])

    revoked = own_home.ask("DELETE", f"/v1/passkeys/{device.key_id}")
    late = own_home.ask("POST", f"{ROUTE}/{waits['approval_id']}/decide", held)

    assert revoked.body == {"removed": device.key_id}
    assert (word(late), refusals(own_home, waits["approval_id"])) == ("unauthorized", ["key"])
    assert own_home.ask("DELETE", f"/v1/passkeys/{device.key_id}").body["error"]["class"] == "not_found"
    assert own_home.must("GET", "/v1/passkeys") == {"passkeys": []}
    found = verified(own_home)
    assert found["ok"], found
    assert device.enrol(approver, "back again") != first
    assert word(device.decide(waits["approval_id"])) == "approved"
    assert own_home.result(waits)["status"] == "completed"
    assert upstream.effects == before + 2
    assert verified(own_home)["ok"]


def test_revoking_a_passkey_ends_its_approvals_in_the_undo_window(own_home: DaemonHome, approver: Approver) -> None:
    """The run was approved and can still be undone; after the revocation it does not run."""
    text = probe_action("effect", "path:string?", name="held", gated=True)
    text = text.replace("[approval]\n", "[approval]\nundo_window_s = 600\n")
    approver.agree(own_home, own_home.ask("POST", "/v1/actions", {"text": text, "file": "x"}))
    device = Device(own_home)
    device.enrol(approver)
    question = own_home.asked("held")
    assert word(device.decide(question["approval_id"])) == "approved"

    own_home.must("DELETE", f"/v1/passkeys/{device.key_id}")

    result = own_home.result(question)
    assert (result["status"], result["error"]["class"]) == ("failed", "unauthorized")
    assert verified(own_home)["ok"]


def test_replacing_the_approver_ends_all_passkeys(own_home: DaemonHome, approver: Approver) -> None:
    """Only the key that enrolled a passkey vouches for it; the new key can enroll the same passkey again."""
    device, successor = Device(own_home), Approver()
    device.enrol(approver)
    successor.appoint(own_home, approver)
    question = own_home.asked("gated")

    assert word(device.decide(question["approval_id"])) == "unauthorized"
    assert own_home.must("GET", "/v1/passkeys") == {"passkeys": []}
    device.enrol(successor)
    assert word(device.decide(question["approval_id"])) == "approved"
    assert verified(own_home)["ok"]


def test_a_passkey_survives_a_restart_but_not_a_changed_port(own_home: DaemonHome, approver: Approver) -> None:
    """The port is part of the page's identity: on another one the passkey is listed as unusable."""
    device = Device(own_home)
    device.enrol(approver)
    own_home.stop()
    own_home.unlock()
    question = own_home.asked("gated")
    assert word(device.decide(question["approval_id"])) == "approved"
    assert own_home.result(question)["status"] == "completed"
    own_home.stop()
    text = (own_home.path / "config.toml").read_text(encoding="utf-8")
    port = int(device.origin.rpartition(":")[2])
    own_home.configure(text.replace(str(port), str(port + 1 if port % 2 else port - 1)))
    own_home.unlock()
    question = own_home.asked("gated")

    (listed,) = own_home.must("GET", "/v1/passkeys")["passkeys"]
    body = {"decision": "approve", "digest": question["digest"]}
    told = own_home.must("POST", f"{ROUTE}/{question['approval_id']}/challenge", body)
    moved = Told(origin=own_home.must("GET", "/v1/status")["web"])

    assert (listed["origin"], listed["usable"]) == (device.origin, False)
    assert moved.origin != device.origin
    assert told["statements"] == []
    assert word(device.decide(question["approval_id"], told=moved)) == "unauthorized"


def test_no_passkey_is_available_while_the_vault_is_locked(own_home: DaemonHome, approver: Approver) -> None:
    """The vault holds them."""
    device = Device(own_home)
    device.enrol(approver)
    own_home.must("POST", "/v1/vault/lock")

    answers = [
        own_home.ask("GET", "/v1/passkeys"),
        own_home.ask("POST", "/v1/passkeys/options", {"name": "x"}),
        own_home.ask("DELETE", f"/v1/passkeys/{device.key_id}"),
    ]

    assert [word(answer) for answer in answers] == ["vault_locked"] * 3


def test_commands_list_and_revoke_passkeys(own_home: DaemonHome, approver: Approver) -> None:
    """A passkey is revoked by name or id, without a signature; the error for an unknown one names the command that lists them."""
    aileron = Command(own_home.path)
    first, second = Device(own_home), Device(own_home)
    assert aileron("approver", "passkeys").out == ""
    first.enrol(approver, "the phone")
    second.enrol(approver, "the laptop")

    listed = aileron("approver", "passkeys", "--json").json["passkeys"]
    shown = aileron("approver", "passkeys").out
    missing = aileron("approver", "revoke-passkey", "the watch")
    revoked = aileron("approver", "revoke-passkey", "the phone")
    again = aileron("approver", "revoke-passkey", second.key_id, "--json")

    assert [passkey["id"] for passkey in listed] == sorted([first.key_id, second.key_id])
    assert "the phone" in shown
    assert first.key_id in shown
    assert (missing.code, "aileron approver passkeys" in missing.err) == (3, True)
    assert (revoked.code, revoked.err) == (0, "revoked the phone: it can no longer sign decisions\n")
    assert again.json == {"removed": second.key_id}
    assert own_home.must("GET", "/v1/passkeys") == {"passkeys": []}


def test_a_home_without_an_approver_has_no_passkeys() -> None:
    """A home without an approver has no key that could enroll one."""
    with daemon_home() as home:
        home.unlock()

        assert home.must("GET", "/v1/passkeys") == {"passkeys": []}
        assert word(home.ask("POST", "/v1/passkeys/options", {"name": "x"})) == "consent_required"


def _changed(home: DaemonHome, kind: str, where: str, value: str) -> None:
    """Overwrite a fact of the newest event of a type in the file, and leave its row's hash as it is."""
    with contextlib.closing(sqlite3.connect(home.path / "ledger.db")) as ledger, ledger:
        seq, record = ledger.execute(
            "SELECT seq, record FROM events WHERE type = ? ORDER BY seq DESC LIMIT 1", (kind,)
        ).fetchone()
        facts = json.loads(record)
        facts[where] = value
        ledger.execute(
            "UPDATE events SET record = ? WHERE seq = ?", (msgspec.json.encode(facts, order="sorted").decode(), seq)
        )


def test_audit_verify_finds_a_changed_passkey_event(own_home: DaemonHome, approver: Approver) -> None:
    """The row's hash shows the change before any signature is checked; tests/audit covers a recomputed chain."""
    device = Device(own_home)
    device.enrol(approver)
    question = own_home.asked("gated")
    device.decide(question["approval_id"])
    own_home.result(question)
    own_home.stop()
    assert verified(own_home)["ok"]
    _changed(own_home, "passkey.added", "name", "another")

    found = verified(own_home)

    assert (found["ok"], found["problem"]["reason"]) == (False, "hash")


def test_an_older_vault_does_not_restore_a_revoked_passkey(own_home: DaemonHome, approver: Approver) -> None:
    """A backup from before the revocation is restored: the record knows of it, and the passkey is removed again."""
    kept, gone = Device(own_home), Device(own_home)
    kept.enrol(approver, "kept")
    gone.enrol(approver, "gone")
    own_home.must("POST", "/v1/vault/backup", {"file": str(own_home.path / "copy.json")})
    own_home.must("DELETE", f"/v1/passkeys/{gone.key_id}")
    late = Device(own_home)
    late.enrol(approver, "enrolled after the copy")
    own_home.must("POST", "/v1/vault/restore", {"file": str(own_home.path / "copy.json"), "passphrase": PASSPHRASE})
    own_home.unlock()

    question = own_home.asked("gated")

    assert [passkey["name"] for passkey in own_home.must("GET", "/v1/passkeys")["passkeys"]] == ["kept"]
    assert [word(signer.decide(question["approval_id"])) for signer in (gone, late)] == ["unauthorized"] * 2
    assert word(kept.decide(question["approval_id"])) == "approved"
    found = verified(own_home)
    assert found["ok"], found


def test_a_passkeys_enrollment_can_be_proved_after_the_ledger_was_deleted(
    own_home: DaemonHome, approver: Approver
) -> None:
    """The vault kept the approver's signature and writes it into the new ledger."""
    device = Device(own_home)
    device.enrol(approver)
    own_home.stop()
    for path in own_home.path.glob("ledger.db*"):
        path.unlink()
    own_home.unlock()
    question = own_home.asked("gated")

    assert word(device.decide(question["approval_id"])) == "approved"
    found = verified(own_home)
    assert found["ok"], found
    assert found["decisions"] == {"signed": 1, "unsigned": 0, "unchecked": 0}


def test_passkeys_can_approve_every_kind_of_consent_except_settings_and_passkeys() -> None:
    """A new kind fails here until someone decides whether a passkey may approve it."""
    assert set(ConsentKind) - PASSKEY_DECIDES == {ConsentKind.PASSKEY, ConsentKind.SETTINGS}
