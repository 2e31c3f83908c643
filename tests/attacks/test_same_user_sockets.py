"""Attacks with a socket in the place of the operator socket: it shows the person something else, and listens.

The person's command trusts no response: it computes what it signs from what it shows, and opens previews itself. So another
plan is detected, a forged preview cannot be approved, and a preview on its way cannot be read.
"""

from __future__ import annotations

import base64
import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.approver_key.box import seal
from aileron.model.decision import PreviewStatement, digest_with_preview, moment, preview_digest
from aileron.model.plan import Plan
from tests.attacks.same_user.between import Between, Passed
from tests.attacks.same_user.house import House, ending, forged, house, only_as_an_ordinary_user
from tests.attacks.same_user.terminal import APPROVER
from tests.attacks.tally import Attack

pytestmark = [pytest.mark.jail, only_as_an_ordinary_user]


@pytest.fixture(scope="module")
def home() -> Iterator[House]:
    """Provide one home for all tests, which change no file."""
    with house() as made:
        yield made


@pytest.mark.abuse_case("D18")
def test_a_plan_that_differs_from_the_signed_one_is_detected(attack: Attack, home: House) -> None:
    """A harmless plan with either digest, and the real plan with another digest, get no valid signature."""
    question = home.asked(path="/effect/real")
    harmless = copy.deepcopy(question["plan"])
    harmless["args"]["path"] = "/harmless"
    harmless["steps"][0]["args"]["path"] = "/harmless"
    own_digest = Plan.from_json(harmless).digest
    lies = {
        "a harmless plan under the real digest": {"plan": harmless},
        "a harmless plan under its own digest": {"plan": harmless, "digest": own_digest},
        "the real plan under another digest": {"digest": own_digest},
        "a plan without its steps": {"plan": {**harmless, "steps": []}},
        "no plan": {"plan": None},
    }
    for name, lie in lies.items():

        def alter(passed: Passed, lie: dict[str, Any] = lie) -> Any:
            is_it = passed.path.endswith(question["approval_id"])
            return {**passed.answer, **lie} if passed.method == "GET" and is_it else passed.answer

        with Between(home.home.path, alter):
            said = home.person("approve", question["approval_id"])
        attack.answered(
            f"a socket in between shows {name}",
            (True, "pending_approval", 0),
            (said.code in (2, 9), home.status(question), home.effects(question)),
            ending(said),
        )
    said = home.person("approve", question["approval_id"])
    attack.worked("shown what is there, the person approves it", (0, 1), (said.code, home.effects(question)))


@pytest.mark.abuse_case("D18")
def test_an_unsigned_confirmation_decides_nothing(attack: Attack, home: House) -> None:
    """The attacker's socket says that nobody signs here: the person's y/N without a passphrase decides nothing."""
    question, since = home.asked(), home.newest()

    def alter(passed: Passed) -> Any:
        return {"status": "none"} if passed.path == "/v1/approver" else passed.answer

    with Between(home.home.path, alter):
        said = home.person("approve", question["approval_id"])
    attack.answered(
        "a socket in between says that nobody signs for this home",
        (6, "pending_approval", 0, ["unsigned"]),
        (said.code, home.status(question), home.effects(question), home.why(since)),
        ending(said),
    )
    with Between(home.home.path, alter):
        said = home.person("approver", "init")
    attack.answered("the same, when the person names themselves anew", 2, said.code, ending(said))
    said = home.person("approve", question["approval_id"])
    attack.worked("told the truth, the person approves it", (0, 1), (said.code, home.effects(question)))


@pytest.mark.abuse_case("D19")
def test_a_decision_about_a_forged_preview_is_refused(attack: Attack, home: House) -> None:
    """Any process can encrypt to the request's key, so the forged preview is shown; the daemon refuses the decision."""
    question, since = home.asked("previewed", path="/effect/previewed"), home.newest()

    def alter(passed: Passed) -> Any:
        if not passed.path.endswith("/preview"):
            return passed.answer
        fields = [{"label": "The service says", "value": "all is well", "multiline": False}]
        digest = digest_with_preview(passed.body["digest"] or question["digest"], preview_digest({"fields": fields}))
        shown = {"fields": fields, "problem": None, "taken_at": moment(0), "digest": digest}
        statement = PreviewStatement(
            approval_id=question["approval_id"],
            **{name: passed.body[name] for name in ("recipient", "nonce", "at", "key_id")},
        )
        sealed = seal(passed.body["recipient"], json.dumps(shown).encode(), statement.signed_bytes())
        return {"sealed": base64.b64encode(sealed).decode()}

    with Between(home.home.path, alter):
        said = home.person("approve", question["approval_id"])
    attack.control("the person was shown it", True, "all is well" in said.out)
    attack.answered(
        "a preview made up by a socket in between",
        (2, "pending_approval", 0, ["digest"]),
        (said.code, home.status(question), home.effects(question), home.why(since)),
        ending(said),
    )
    said = home.person("approve", question["approval_id"])
    attack.worked(
        "shown what is there, the person approves it",
        (0, True, 1),
        (said.code, "hello" in said.out, home.effects(question)),
    )


@pytest.mark.abuse_case("D19")
def test_a_preview_cannot_be_read_in_transit(attack: Attack, home: House) -> None:
    """The preview is encrypted on the socket and in no file, and each request for one needs a new signature."""
    question, since = home.asked("previewed", path="/effect/passing"), home.newest()
    with Between(home.home.path) as between:
        said = home.person("approve", question["approval_id"])
    attack.worked("the person sees it", (0, True), (said.code, "hello" in said.out))
    used = next(exchange for exchange in between.passed if exchange.path.endswith("/preview"))
    attack.answered(
        "a preview, read on its way",
        [],
        [word for word in (b"hello", b"service says", APPROVER.encode()) if word in between.heard_of("/preview")],
    )
    files = [
        path
        for path in home.home.path.rglob("*")
        if path.is_file() and path.suffix in (".db", ".db-wal", ".log", ".json")
    ]
    attack.answered("a preview, in the files of the home", [], [path.name for path in files if _holds_preview(path)])
    other = home.asked("previewed", path="/effect/other")
    this = f"/v1/action-approvals/{other['approval_id']}/preview"
    attack.answered(
        "a preview, asked for with a used signature",
        {"unauthorized", "invalid_request", "already_decided"},
        home.kind(home.home.ask("POST", used.path, used.body)),
    )
    attack.answered("the same for another question", "unauthorized", home.kind(home.home.ask("POST", this, used.body)))
    key = forged()
    statement = PreviewStatement(
        approval_id=other["approval_id"],
        recipient="ab" * 32,
        nonce="cd" * 16,
        at=moment(time.time()),
        key_id=key.key_id,
    )
    own = {
        "recipient": "ab" * 32,
        "nonce": "cd" * 16,
        "at": statement.at,
        "key_id": key.key_id,
        "signature": key.sign(statement),
    }
    attack.answered(
        "a preview, asked for with a key of its own", "unauthorized", home.kind(home.home.ask("POST", this, own))
    )
    attack.answered("what the record has of it", True, len(home.why(since)) >= 3, ", ".join(home.why(since)))


@pytest.mark.abuse_case("D19")
def test_the_approvers_passphrase_does_not_pass_through_the_socket(attack: Attack, home: House) -> None:
    """A signature passes through a socket in between, but neither passphrase nor key."""
    question = home.asked()
    with Between(home.home.path) as between:
        said = home.person("approve", question["approval_id"])
    attack.answered("the approver's passphrase, on its way", False, APPROVER.encode() in between.heard)
    attack.worked("the person approves it", (0, 1), (said.code, home.effects(question)))


def _holds_preview(path: Path) -> bool:
    data = path.read_bytes()
    return b"The service says" in data and b'"hello"' in data
