"""Steps that use earlier steps' results, in real jails, and what a person and the record see of them."""

from __future__ import annotations

import pytest

from aileron.model.canonical import canonical_json, sha256_digest
from tests.support.home import DaemonHome, probe_action

pytestmark = pytest.mark.jail


def add(home: DaemonHome, given: str, *, gated: bool = False) -> None:
    """Add an action of two steps: `first` returns the call's `text`, and the second gets the inputs in `given`."""
    text = probe_action("give_back", "text:string", "flag:boolean?", gated=gated)
    second = (
        f'[[execute]]\nid = "second"\nconnector = "{_connector(text)}"\nop = "give_back"\n[execute.inputs]\n{given}\n'
    )
    text = text.replace('id = "step"', 'id = "first"').replace("[[inputs]]", f"{second}[[inputs]]", 1)
    home.must("POST", "/v1/actions", {"text": text, "file": "a test", "replace": True})


def _connector(text: str) -> str:
    return text.split('name = "', 2)[2].split('"', 1)[0]


@pytest.mark.abuse_case("B10")
def test_a_step_gets_an_earlier_steps_result(home: DaemonHome) -> None:
    """The result is inserted as a value or inside a text; text in it that looks like a reference stays text."""
    add(home, 'text = "it said ${first.text}, ${first.number}"\nflag = "${first.flag}"')

    answer = home.run("give-back", {"text": "${first.number} ☃", "flag": True})

    given = {"text": "it said ${first.number} ☃, 0", "flag": True}
    assert answer.body["result"] == {**given, "number": 0, "share": 0.0}
    first, second = (event for event in home.events(answer.body["audit_id"]) if event["type"] == "run.started")
    assert "args" not in first
    assert second["args"] == sha256_digest(canonical_json(given))


def test_steps_of_a_run_have_different_idempotency_keys(home: DaemonHome) -> None:
    """Otherwise, a service would take the second of two equal messages for a repetition of the first."""
    text = probe_action("tell_key")
    head = f'[[execute]]\nconnector = "{_connector(text)}"\n'
    more = f'{head}id = "second"\nop = "tell_key"\n{head}id = "both"\nop = "give_back"\n[execute.inputs]\n'
    given = 'text = "${step.key} ${second.key}"\n'
    text = text.replace('["tell_key"]', '["tell_key", "give_back"]').replace("+++\n\n", f"{more}{given}+++\n\n")
    home.must("POST", "/v1/actions", {"text": text, "file": "a test", "replace": True})

    first, second = home.run("tell-key").body["result"]["text"].split()

    assert len(first) == len(second) == 32
    assert first != second


def test_an_action_fails_if_an_earlier_result_lacks_the_referenced_value(home: DaemonHome) -> None:
    """The error is bad_input with the reference; the first step stays done, and the second gets no jail."""
    add(home, 'text = "${first.messages.0.id}"')

    answer = home.run("give-back", {"text": "x"})

    assert (answer.status, answer.body["error"]["class"]) == (422, "bad_input")
    assert "${first.messages.0.id}" in answer.body["error"]["message"]
    types = [event["type"] for event in home.events(answer.body["error"]["audit_id"])]
    assert types == ["run.requested", "run.started", "run.finished"]


def test_a_question_shows_which_step_a_value_will_come_from(home: DaemonHome) -> None:
    """The approved run then uses the value of that step's result."""
    add(home, 'text = "again ${first.text}"', gated=True)
    question = home.asked("give-back", {"text": "x"})

    step = home.must("GET", f"/v1/action-approvals/{question['approval_id']}")["plan"]["steps"][1]
    home.decide(question, "approve")

    assert step["args"] == {"text": "again ${first.text}"}
    assert step["filled"] == [{"at": "/text", "parts": ["again ", {"step": "first", "path": ["text"]}]}]
    assert home.result(question)["result"]["text"] == "again x"
