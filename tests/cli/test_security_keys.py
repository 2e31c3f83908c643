"""Decisions at the command line with a security key: the real command, library, daemon and ledger, and a key in Python.

Only the kernel's HID layer is missing, compared with a real key: tests/support/usb_ports.py.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.approver_key.security_key import OFFER
from tests.cli.command import Answer, Answers, Command, Said
from tests.cli.person import APPROVER, INIT, SIGN, flat
from tests.cli.test_console_terminal import variables
from tests.cli.test_signing_with_the_daemon import PREVIEW
from tests.support.home import DaemonHome, asking_home, probe_action
from tests.support.probed import probed_home
from tests.support.security_key import PIN, Plugged, SoftKey
from tests.support.tmux import Tmux
from tests.support.upstream_http import CountingServer
from tests.support.usb_ports import with_keys

pytestmark = pytest.mark.jail

TYPE_YES = ("to approve: ", "yes")
ENTER = ("Approver passphrase: ", "")
ASK_PIN = ("PIN of Test Key 5: ", PIN)
ROUTE = "/v1/action-approvals"


class Desk:
    """A home with an approver, an enrolled security key, and a terminal."""

    def __init__(self, home: DaemonHome, port: Plugged) -> None:
        self.home = home
        self.port = port
        self.key = port.key

    def enrol(self, key: SoftKey, name: str = "my key") -> str:
        """Enrol a passkey on the page and consent at a terminal with the passphrase. Return the passkey's id."""
        options = self.home.must("POST", "/v1/passkeys/options", {"name": name})
        asked = self.home.ask(
            "POST", "/v1/passkeys", key.enrolled(options, str(self.home.must("GET", "/v1/status")["web"]))
        )
        assert asked.status == 202, asked.body
        yes = [("to approve: ", "allow"), SIGN]
        said = self.at_terminal("approve", asked.body["approval_id"], answers=yes).exits(0)
        assert OFFER not in said.out  # no passkey may consent to another
        (enrolled,) = [
            passkey for passkey in self.home.must("GET", "/v1/passkeys")["passkeys"] if passkey["name"] == name
        ]
        assert enrolled["id"] in key.key_ids()
        return str(enrolled["id"])

    def asked(self) -> str:
        """Make a question wait and return its id."""
        return str(self.home.asked("ask-first", {"text": "hello there"})["approval_id"])

    def at_terminal(self, *words: str, answers: Answers = ()) -> Said:
        """Run the command at a terminal with the key plugged in. Check that PIN and passphrase are not shown."""
        command = Command(self.home.path, program=with_keys(self.port))
        said = command.at_terminal(*words, answers=answers, NO_COLOR="1")
        assert PIN not in said.out
        assert APPROVER not in said.out
        return said

    def approve(self, question: str, *answers: Answer) -> Said:
        """Approve at a terminal: type the word, then the given answers."""
        return self.at_terminal("approve", question, answers=[TYPE_YES, *answers])

    def result(self, question: str, wait: float = 0) -> dict[str, Any]:
        """Return the result of a question."""
        return self.home.result({"approval_id": question}, wait=wait)

    def status(self, question: str) -> str:
        """Return a question's status, waiting up to 10 seconds for its end."""
        return str(self.result(question, 10)["status"])


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A home for all tests; each test asks its own question."""
    with asking_home() as home, Plugged(SoftKey()) as port:
        Command(home.path).at_terminal("approver", "init", answers=INIT).exits(0)
        made = Desk(home, port)
        made.enrol(port.key)
        yield made


@pytest.fixture(autouse=True)
def honest(desk: Desk) -> Iterator[None]:
    """Make the key honest again after each test, reset its PIN tries, and withdraw all open questions."""
    yield
    for approval in desk.home.must("GET", ROUTE)["approvals"]:
        if approval["status"] == "pending_approval":
            desk.home.must("POST", f"{ROUTE}/{approval['approval_id']}/cancel", {})
    desk.key.lie.__init__()  # type: ignore[misc]
    desk.key.touch = lambda: True
    desk.key.tries = 8
    desk.key.unplugged()


def events(home: DaemonHome, kind: str, approval: str) -> list[dict[str, Any]]:
    """Return the audit events of this kind about this question."""
    found = home.must("GET", "/v1/audit?limit=500")["events"]
    return [event for event in found if event["type"] == kind and event.get("approval") == approval]


def test_a_security_key_approves_after_enter_is_pressed_the_pin_typed_and_the_key_touched(desk: Desk) -> None:
    """The decision is on record with the passkey's id; the ledger verifies on its own afterwards."""
    question, touched = desk.asked(), desk.key.touched
    said = desk.approve(question, ENTER, ASK_PIN).exits(0)
    assert OFFER in flat(said)
    assert "Touch Test Key 5" in said.out
    assert desk.status(question) == "completed"
    assert desk.key.touched == touched + 1
    (decided,) = events(desk.home, "approval.decided", question)
    assert decided["key_id"] in desk.key.key_ids()
    Command(desk.home.path)("audit", "verify").exits(0)


def test_the_passphrase_can_sign_although_a_security_key_is_plugged_in(desk: Desk) -> None:
    """The security key need not be touched."""
    question, touched = desk.asked(), desk.key.touched
    said = desk.approve(question, SIGN)

    assert (said.code, desk.status(question), desk.key.touched) == (0, "completed", touched)
    (decided,) = events(desk.home, "approval.decided", question)
    assert decided["key_id"].startswith("ed25519:")


def test_without_a_security_key_an_empty_line_asks_for_the_passphrase_again(desk: Desk) -> None:
    """The prompt offers no security key; the passphrase then decides."""
    question = desk.asked()
    said = Command(desk.home.path).at_terminal("approve", question, answers=[TYPE_YES, ENTER, SIGN]).exits(0)
    assert OFFER not in flat(said)


def test_a_touch_of_the_security_key_signs_a_denial(desk: Desk) -> None:
    """The agent gets the person's reason."""
    question = desk.asked()
    desk.at_terminal("deny", question, answers=[("sent to the agent", "not today"), ENTER, ASK_PIN]).exits(0)
    result = desk.result(question)
    assert (result["status"], result["reason"]) == ("denied", "not today")


def test_after_a_wrong_pin_the_command_asks_again_and_without_a_touch_decides_nothing(desk: Desk) -> None:
    """The command is interrupted at the touch: the question still waits, and the key has signed nothing."""
    question, signed = desk.asked(), len(desk.key.signed)
    desk.key.touch = lambda: False
    said = desk.approve(
        question,
        ENTER,
        ("PIN of Test Key 5: ", "wrong-1"),
        ("Wrong PIN, 7 tries left before it blocks. PIN of Test Key 5: ", PIN),
        ("Touch Test Key 5", "\x03"),
    ).exits(130)
    assert said.out.rstrip().endswith("interrupted")
    assert desk.result(question)["status"] == "pending_approval"
    assert len(desk.key.signed) == signed


def test_keystrokes_typed_while_waiting_for_a_touch_are_discarded(desk: Desk) -> None:
    """Typed keys are not echoed, and do not answer the next prompt."""
    question = desk.asked()
    looks = itertools.count()
    has_typed = threading.Event()
    desk.key.touch = lambda: has_typed.is_set() and next(looks) > 5

    def type_blind() -> str:
        has_typed.set()
        return "rm -rf typed-blind"

    said = desk.approve(question, ENTER, ASK_PIN, ("Touch Test Key 5", type_blind)).exits(0)
    assert "typed-blind" not in said.out


def test_the_pin_is_in_no_file_of_the_home_and_not_in_the_audit_trail(desk: Desk) -> None:
    """Positive control: the same search finds the text of the question."""
    question = desk.asked()
    assert desk.approve(question, ENTER, ("PIN of Test Key 5: ", "wrong-pin-1357"), ("Wrong PIN", PIN)).code == 0

    written = b"".join(
        path.read_bytes() for path in desk.home.path.rglob("*") if path.is_file() and os.access(path, os.R_OK)
    )
    told = json.dumps(desk.home.must("GET", "/v1/audit?limit=500")).encode()
    assert b"hello there" in written + told
    for pin in (PIN.encode(), b"wrong-pin-1357"):
        assert pin not in written + told


# Attacks


@pytest.mark.parametrize("lie", ["unverified", "other_digest", "other_key"])
def test_an_invalid_signature_of_the_security_key_is_not_sent(desk: Desk, lie: str) -> None:
    """The question still waits, and no refused decision is recorded."""
    question = desk.asked()
    setattr(desk.key.lie, lie, True)
    said = desk.approve(question, ENTER, ASK_PIN)

    assert said.code != 0, said
    assert "nothing is signed" in flat(said)
    assert desk.result(question)["status"] == "pending_approval"
    assert events(desk.home, "approval.refused", question) == []


def test_the_daemon_refuses_an_unverified_and_a_replayed_security_key_signature(desk: Desk) -> None:
    """The requests bypass the command; the refusals are recorded with the reason. Positive control: the same body, verified."""
    from aileron.approver_key.security_key import client_data
    from aileron.model.decision import DecisionStatement, moment
    from aileron.model.passkey import Assertion, challenge_of

    (passkey,) = desk.home.must("GET", "/v1/passkeys")["passkeys"]

    def body(question: str, *, verified: bool) -> dict[str, Any]:
        statement = DecisionStatement(
            approval_id=question,
            digest=desk.home.must("GET", f"{ROUTE}/{question}")["digest"],
            decision="approve",
            reason=None,
            at=moment(time.time()),
            key_id=passkey["id"],
        )
        client = client_data(challenge_of(statement), passkey["origin"])
        data, signature = desk.key.touch_alone(passkey["credential_id"], hashlib.sha256(client).digest(), verified)
        said = Assertion(signature, data, client).spelled()
        return {
            "decision": "approve",
            "digest": statement.digest,
            "reason": None,
            "at": statement.at,
            "key_id": statement.key_id,
            "signature": said,
        }

    first, second = desk.asked(), desk.asked()
    unverified = desk.home.ask("POST", f"{ROUTE}/{first}/decide", body(first, verified=False))
    assert (unverified.status, unverified.body["error"]["class"]) == (401, "unauthorized")
    good = body(first, verified=True)
    assert desk.home.ask("POST", f"{ROUTE}/{second}/decide", good).is_error
    assert desk.home.ask("POST", f"{ROUTE}/{first}/decide", good).status == 200
    assert desk.home.ask("POST", f"{ROUTE}/{first}/decide", good).body["error"]["class"] == "already_decided"
    assert [event["reason"] for event in events(desk.home, "approval.refused", first)] == [
        "decided",
        "signature",
    ]  # the newest first


def test_a_revoked_passkey_cannot_sign(desk: Desk) -> None:
    """The key is not touched, because it holds no passkey that this home still accepts."""
    other = SoftKey()
    with Plugged(other) as port:
        own = Desk(desk.home, port)
        own.enrol(other, "for a while")
        assert Command(desk.home.path)("approver", "revoke-passkey", "for a while").code == 0
        question = own.asked()
        said = own.approve(question, ENTER, ASK_PIN)  # offered for the other passkey, which this key lacks
        assert "holds no passkey of this home" in flat(said)
        assert (other.touched, own.result(question)["status"]) == (0, "pending_approval")


# A preview


def test_loading_and_approving_a_preview_takes_two_touches_but_the_pin_only_once(
    upstream: CountingServer, tmp_path: Path
) -> None:
    """The second touch signs a digest that covers the preview."""
    with probed_home(upstream.port) as home, Plugged(SoftKey()) as port:
        file = tmp_path / "seen.md"
        text = probe_action("effect", "path:string?", name="seen", gated=True).replace(
            '["effect"]', '["effect", "fetch"]'
        )
        head, fence, body = text.rpartition("+++")
        file.write_text(head + PREVIEW + fence + body)
        assert Command(home.path)("action", "add", str(file)).code == 0
        assert Command(home.path).at_terminal("approver", "init", answers=INIT).code == 0
        desk = Desk(home, port)
        desk.enrol(port.key)
        asked = home.asked("seen", {"path": "/effect"})
        question = str(asked["approval_id"])
        said = desk.at_terminal("approve", question, answers=[ENTER, ASK_PIN, TYPE_YES]).exits(0)
        assert (said.out.count("Touch Test Key 5"), said.out.count("PIN of"), port.key.touched) == (2, 1, 2)
        (decided,) = events(home, "approval.decided", question)
        assert decided["key_id"] in port.key.key_ids()
        assert decided["digest"] != asked["digest"]
        assert Command(home.path)("audit", "verify").code == 0


# In the console


def test_in_tmux_an_approval_in_the_console_takes_a_pin_and_a_touch(desk: Desk) -> None:
    """The person types no passphrase in tmux, where other programs could have typed the keys."""
    question, touched = desk.asked(), desk.key.touched
    with Tmux([*with_keys(desk.port), "console"], variables(desk.home.path)) as at:
        at.until("1 waiting", "passphrase each time", "hello there")
        at.keys("Enter")
        at.until_pressed("End", "▸ proof")
        at.until_pressed("A", "and press Enter")
        at.type("yes")
        at.until("Security key found", "Approver passphrase, to approve")
        at.keys("Enter")
        at.until("PIN of Test Key 5")
        assert desk.result(question)["status"] == "pending_approval"
        at.type(PIN)
        at.until("✓ done", "nothing waiting")
        assert PIN not in at.text
        at.keys("q")
        at.until_over()

    assert (desk.status(question), desk.key.touched) == ("completed", touched + 1)
