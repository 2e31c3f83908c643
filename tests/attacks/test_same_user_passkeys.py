"""Attacks of a same-user process with passkeys: one of its own, one of the person's lent by another page, an edited ledger.

It imitates a device and a browser, and can claim anything about itself. Beside each attempt the person does the same, and it
succeeds.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

import pytest

from tests.attacks.same_user.house import House, forged, house, only_as_an_ordinary_user, signed
from tests.attacks.tally import Attack
from tests.support.authenticator import Told
from tests.support.passkeys import Device

pytestmark = [pytest.mark.jail, only_as_an_ordinary_user]


@pytest.fixture
def home() -> Iterator[House]:
    """Provide a new home for each test, because a passkey stays."""
    with house() as made:
        yield made


@pytest.mark.abuse_case("D24")
def test_a_passkey_of_the_attacker_is_not_enrolled(attack: Attack, home: House) -> None:
    """The enrollment is unsigned, signed by the attacker's key or by the passkey itself, or a ledger row of another
    kind.
    """
    own, question, since = Device(home.home), home.asked(), home.newest()
    made = own.made("laptop")
    assert made.status == 202, made.body
    asked = home.home.must("GET", f"/v1/action-approvals/{made.body['approval_id']}")

    attack.answered("it decides before it is enrolled", "unauthorized", home.kind(own.decide(question["approval_id"])))
    attack.answered("agreed to without a signature", "unauthorized", home.kind(home.decide(asked)))
    attack.answered(
        "agreed to with a key of its own", "unauthorized", home.kind(home.decide(asked, **signed(forged(), asked)))
    )
    attack.answered("agreed to by itself", "unauthorized", home.kind(own.decide(asked["approval_id"])))
    attack.answered("what the record has of them", ["key", "unsigned", "key", "kind"], home.why(since))
    listed = home.home.must("GET", "/v1/passkeys")["passkeys"]
    attack.answered("what came of it", ([], "pending_approval"), (listed, home.status(question)))
    said = home.person("approve", asked["approval_id"])
    attack.worked("the person agrees to one", (0, 200), (said.code, own.decide(question["approval_id"]).status))
    second = Device(home.home)
    again = second.made("another").body["approval_id"]
    attack.answered("one of the person's agrees to another", "unauthorized", home.kind(own.decide(again)))
    with contextlib.closing(sqlite3.connect(home.home.path / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE approvals SET kind = 'binding' WHERE id = ?", (again,))
    settled = own.decide(again).body
    attack.answered(
        "the same, its row edited to be a binding",
        ("failed", "unauthorized"),
        (settled["status"], settled["error"]["class"]),
    )
    attack.answered("what came of it", 1, len(home.home.must("GET", "/v1/passkeys")["passkeys"]))


@pytest.mark.abuse_case("D25")
def test_an_assertion_made_for_another_page_or_question_does_not_decide(attack: Attack, home: House) -> None:
    """The person uses their passkey on a page of another port, in a frame, without verification, or for another question."""
    device, question, other = Device(home.home), home.asked(), home.asked()
    asked = device.made("laptop").body["approval_id"]
    attack.worked("the person enrols theirs", 0, home.person("approve", asked).code)
    since = home.newest()
    port = int(device.origin.rpartition(":")[2])
    lent = {
        "by a page of another port": Told(origin=f"http://localhost:{port + 1}"),
        "by a page of this machine's address": Told(origin=f"http://127.0.0.1:{port}"),
        "by a page that says no port": Told(origin="http://localhost"),
        "in a frame of another site": Told(client={"crossOrigin": True}),
        "for another party": Told(rp_id="example.com"),
        "by a touch alone": Told(is_verified=False),
        "by nobody": Told(is_there=False),
        "for a challenge that is none of ours": Told(challenge="AAAA"),
        "while one was made": Told(type="webauthn.create"),
    }
    for how, told in lent.items():
        answer = device.decide(question["approval_id"], told=told)
        attack.answered(f"an assertion {how}", "unauthorized", home.kind(answer))
    for_other = {**device.decision(other["approval_id"]), "digest": question["digest"]}
    answer = home.home.ask("POST", f"/v1/action-approvals/{question['approval_id']}/decide", for_other)
    attack.answered("an assertion for another question", "unauthorized", home.kind(answer))
    attack.answered(
        "what the record has of them", ({"signature"}, len(lent) + 1), (set(home.why(since)), len(home.why(since)))
    )
    attack.answered("what came of them", ("pending_approval", 0), (home.status(question), home.effects(question)))
    attack.worked("the person decides with it", 200, device.decide(question["approval_id"]).status)
    home.home.result(question)
    attack.worked("and it is done", 1, home.effects(question))
