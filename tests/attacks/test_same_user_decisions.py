"""Attacks of a same-user process that decides in the person's place: on both sockets, with forged signatures, at a terminal.

It has a shell, all files, both sockets and pseudo-terminals; it knows neither passphrase. Beside each attempt the person does
the same at their terminal, and it succeeds.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.client import Client
from aileron.model.decision import moment
from tests.attacks.same_user.between import Between
from tests.attacks.same_user.house import (
    House,
    ending,
    forged,
    house,
    only_as_an_ordinary_user,
    signed,
    the_persons_key,
)
from tests.attacks.same_user.terminal import APPROVER, DEADLINE_S, PERSON, environment
from tests.attacks.tally import Attack
from tests.cli.command import Said
from tests.support.home import PASSPHRASE

pytestmark = [pytest.mark.jail, only_as_an_ordinary_user]


@pytest.fixture(scope="module")
def home() -> Iterator[House]:
    """Provide one home for all tests, which change no file."""
    with house() as made:
        yield made


@pytest.mark.abuse_case("D1")
def test_a_decision_that_the_person_did_not_sign_is_refused(attack: Attack, home: House) -> None:
    """The decision has no signature, half of one, one by the attacker's key, or one in the person's name by the
    attacker's key.
    """
    question, key, since = home.asked(), forged(), home.newest()
    persons = str(home.approver()["key_id"])
    tries: dict[str, tuple[dict[str, Any], str, str]] = {
        "without a signature": ({}, "unauthorized", "unsigned"),
        "a denial without a signature": ({"decision": "deny"}, "unauthorized", "unsigned"),
        "signed with a key of its own": (signed(key, question), "unauthorized", "key"),
        "in the person's name, signed with a key of its own": (
            {**signed(key, question, key_id=persons), "key_id": persons},
            "unauthorized",
            "signature",
        ),
        "a signature of zeros": (
            {"at": moment(time.time()), "key_id": persons, "signature": "A" * 86 + "=="},
            "unauthorized",
            "signature",
        ),
        "a signature that is none": (
            {"at": moment(time.time()), "key_id": persons, "signature": "yes, by me"},
            "unauthorized",
            "signature",
        ),
    }
    for attempt, (body, expected, why) in tries.items():
        before = len(home.why(since))
        answer = home.decide(question, **body)
        attack.answered(f"POST decide, {attempt}", (expected, [why]), (home.kind(answer), home.why(since)[before:]))
    attack.answered(
        "POST decide, half a signature",
        ("invalid_request", 7),
        (home.kind(home.decide(question, key_id=persons)), len(home.why(since))),
    )
    attack.answered("what came of them", ("pending_approval", 0), (home.status(question), home.effects(question)))
    said = home.person("approve", question["approval_id"])
    attack.worked("the person approves it", (0, 1), (said.code, home.effects(question)))


@pytest.mark.abuse_case("D2")
def test_a_real_signature_is_valid_once_and_only_for_what_was_signed(attack: Attack, home: House) -> None:
    """A man-in-the-middle socket withholds the signature, and the attacker uses it for other statements and a second
    time.
    """
    first, second, since = home.asked(), home.asked(), home.newest()
    with Between(home.home.path, keeps=lambda method, path: method == "POST" and path.endswith("/decide")) as between:
        home.person("deny", first["approval_id"], "--reason", "not now")
    kept = next(exchange.body for exchange in between.passed if exchange.path.endswith("/decide"))
    attack.control("a signed denial was on its way", ("deny", "not now"), (kept["decision"], kept.get("reason")))
    tries = {
        "a denial sent as an approval": (first, {**kept, "decision": "approve"}),
        "with another reason": (first, {**kept, "reason": "ask again, it is fine"}),
        "without its reason": (first, {name: value for name, value in kept.items() if name != "reason"}),
        "for another question": (second, {**kept, "digest": second["digest"]}),
        "with another time": (first, {**kept, "at": moment(time.time())}),
        "with another newest row": (first, {**kept, "head": f"1:{'0' * 64}"}),
        "for the digest of another question": (first, {**kept, "digest": second["digest"]}),
    }
    for attempt, (question, body) in tries.items():
        answer = _sent(home, question, body)
        attack.answered(f"a real signature, {attempt}", "unauthorized", home.kind(answer))
    attack.answered(
        "what the record has of them", ({"signature"}, len(tries)), (set(home.why(since)), len(home.why(since)))
    )
    attack.worked(
        "what the person signed counts", ("ok", "denied"), (home.kind(_sent(home, first, kept)), home.status(first))
    )
    attack.answered("the same once more", "already_decided", home.kind(_sent(home, first, kept)))
    attack.answered("what the record has of that", "decided", home.why(since)[-1])


@pytest.mark.abuse_case("D3")
def test_a_used_signature_does_not_approve_the_same_request_again(attack: Attack, home: House) -> None:
    """An agent repeats the request: the new question has another id, which the signature does not cover."""
    first = home.asked(path="/effect/same")
    with Between(home.home.path) as between:
        said = home.person("approve", first["approval_id"])
    used = next(exchange.body for exchange in between.passed if exchange.path.endswith("/decide"))
    attack.worked("the person approves it", (0, 1), (said.code, home.effects(first)))
    again = home.asked(path="/effect/same")
    attack.control("it is the same in every byte", first["digest"], again["digest"])

    attack.answered("the used signature, for the same question", "already_decided", home.kind(_sent(home, first, used)))
    attack.answered("the used signature, for the same asked again", "unauthorized", home.kind(_sent(home, again, used)))
    attack.answered("what came of it", ("pending_approval", 1), (home.status(again), home.effects(again)))


@pytest.mark.abuse_case("D4")
def test_a_signature_with_a_wrong_time_or_digest_is_refused(attack: Attack, home: House) -> None:
    """The real key signed two minutes ago, yesterday, two minutes ahead, or for a digest that no plan has."""
    question, since = home.asked(), home.newest()
    with the_persons_key(home.home.path) as key:
        for attempt, seconds in (("two minutes old", -120), ("of yesterday", -86400), ("of in two minutes", 120)):
            body = signed(key, question, at=moment(time.time() + seconds))
            attack.answered(f"a real signature, {attempt}", "unauthorized", home.kind(home.decide(question, **body)))
        attack.answered(
            "a real signature, its time in another spelling",
            {"unauthorized", "invalid_request"},
            home.kind(home.decide(question, **signed(key, question, at="2026-11-21 13:00:00+00:00"))),
        )
        other = "sha256:" + "0" * 64
        body = {**signed(key, question, digest=other), "digest": other}
        attack.answered(
            "a real signature for a plan that nobody froze", "invalid_request", home.kind(home.decide(question, **body))
        )
        attack.answered(
            "what the record has of them",
            ["time", "time", "time", "time", "digest"],
            home.why(since),
        )
        attack.worked("one of now counts", "ok", home.kind(home.decide(question, **signed(key, question))))
    assert home.home.result(question)["status"] == "completed"


@pytest.mark.abuse_case("D5")
def test_the_agent_socket_decides_nothing(attack: Attack, home: House) -> None:
    """Even a valid signature is refused there. No route shows, edits, previews, unlocks or grants, and attempts are
    counted.
    """
    question, since = home.asked(), home.newest()
    agent = Client(home.home.path, operator=False)
    this = f"/v1/action-approvals/{question['approval_id']}"
    with the_persons_key(home.home.path) as key:
        real = signed(key, question)
    tries = [
        ("POST", f"{this}/decide", {"decision": "approve", "digest": question["digest"], **real}),
        ("GET", "/v1/action-approvals", None),
        ("GET", this, None),
        ("POST", f"{this}/edit", {"args": {"path": "/other"}}),
        ("POST", f"{this}/ask", {"question": "shall I?"}),
        ("POST", f"{this}/preview", {}),
        ("GET", "/v1/approver/inventory", None),
        ("POST", "/v1/approver", {}),
        ("POST", "/v1/grants", {"action": "send", "constraints": [], "uses": 1, "for_s": 60}),
        ("GET", "/v1/grants", None),
        ("POST", "/v1/actions", {"text": "", "file": "x"}),
        ("POST", "/v1/connectors", {"path": "/tmp"}),
        ("POST", "/v1/bindings", {}),
        ("PUT", "/v1/secrets/pw", {"value_base64": ""}),
        ("POST", "/v1/vault/unlock", {"passphrase": "x"}),
        ("POST", "/v1/vault/lock", None),
        ("GET", "/v1/audit", None),
        ("POST", "/v1/stop", None),
    ]
    answers = {
        f"{method} {path.replace(this, '…/ID')}": home.kind(agent.request(method, path, body))
        for method, path, body in tries
    }
    attack.all_answered("the agents' socket", "unauthorized", answers)
    attack.answered(
        "an answer where nobody asked",
        "invalid_request",
        home.kind(agent.request("POST", f"{this}/answer", {"answer": "the person says yes"})),
    )
    refused = home.events("caller.refused", since)
    counted = {str(event["route"]) for event in refused}
    attack.answered("what the record has of them", True, len(counted) >= 3, f"{len(refused)} rows of caller.refused")
    attack.worked("the same on the operator's socket", "ok", home.kind(home.decide(question, **real)))


@pytest.mark.abuse_case("D6")
def test_a_terminal_without_the_approvers_passphrase_cannot_decide(attack: Attack, home: House) -> None:
    """`approve --yes` and a denial in a pseudo-terminal fail with guesses, the vault's passphrase, or none."""
    question, since = home.asked(), home.newest()
    guesses = {
        "guessing": PERSON.but((r"passphrase[^\n]*:", "hunter2 hunter2")),
        "the vault's passphrase": PERSON.but((r"passphrase[^\n]*:", PASSPHRASE)),
        "nothing but Enter and the end": PERSON.but((r"passphrase[^\n]*:", "\x04")),
    }
    for attempt, someone in guesses.items():
        said = home.tried("approve", question["approval_id"], "--yes", someone=someone)
        attack.answered(
            f"aileron approve ID --yes in a terminal of its own, {attempt}", {2, 6}, said.code, ending(said)
        )
    said = home.tried("deny", question["approval_id"], "--reason", "x", someone=guesses["guessing"])
    attack.answered("aileron deny ID in a terminal of its own, guessing", 6, said.code, ending(said))
    attack.answered("what came of them", ("pending_approval", 0), (home.status(question), home.effects(question)))
    attack.control("none of it reached the daemon as a decision", [], home.why(since))
    said = home.person("approve", question["approval_id"], "--yes")
    attack.worked("the person, who knows it", (0, 1), (said.code, home.effects(question)))


@pytest.mark.abuse_case("D7")
def test_the_passphrase_is_accepted_only_from_a_terminal(attack: Attack, home: House, tmp_path: Path) -> None:
    """Even the right one is refused from a variable, file, pipe or argument, so that no script ever stores it."""
    question = home.asked()
    file = tmp_path / "phrase"
    file.write_text(APPROVER)
    program = [sys.executable, "-m", "aileron", "approve", question["approval_id"], "--yes"]
    ways: dict[str, tuple[list[str], dict[str, str], str]] = {
        "in the environment": ([], {"AILERON_APPROVER_PASSPHRASE": APPROVER, "AILERON_PASSPHRASE": APPROVER}, ""),
        "in the vault's variable": ([], {"AILERON_VAULT_PASSPHRASE": APPROVER}, ""),
        "on standard input": ([], {}, f"{APPROVER}\n{APPROVER}\n"),
        "with --passphrase-file": (["--passphrase-file", str(file)], {}, ""),
        "with --approver-passphrase-file": (["--approver-passphrase-file", str(file)], {}, ""),
        "with --reason": (["--reason", APPROVER], {}, APPROVER),
    }
    for way, (words, variables, given) in ways.items():
        done = subprocess.run(
            [*program, *words],
            input=given,
            text=True,
            capture_output=True,
            env=environment(home.home.path, **variables),
            timeout=DEADLINE_S,
            start_new_session=True,
            check=False,
        )
        said = Said(done.returncode, done.stdout, done.stderr)
        attack.answered(f"the approver's own passphrase {way}", {2, 6}, said.code, ending(said))
        assert APPROVER not in done.stdout + done.stderr
    attack.answered("what came of them", ("pending_approval", 0), (home.status(question), home.effects(question)))
    said = home.person("approve", question["approval_id"])
    attack.worked("typed at a terminal", (0, 1), (said.code, home.effects(question)))


def _sent(home: House, question: dict[str, Any], body: dict[str, Any]) -> Any:
    return home.home.ask("POST", f"/v1/action-approvals/{question['approval_id']}/decide", body)
