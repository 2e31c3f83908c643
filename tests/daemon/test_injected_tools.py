"""Tools in a model's requests with a real daemon: its actions, jail, approvals and record, over the providers' own SDKs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.daemon.test_protocol import Agent
from tests.gateway.model import Model, Say, Use
from tests.gateway.programs import PROGRAMS, close_all
from tests.support.canary import scan
from tests.support.home import DaemonHome, daemon_home
from tests.support.probed import lend_probe

pytestmark = pytest.mark.jail
HOWS = ["messages, streamed", "messages", "chat, streamed", "chat", "responses, streamed", "responses, stored"]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "give-actions-to-a-program-without-mcp.md"
OWN = ["aileron_cancel_action", "aileron_check_action_status", "aileron_list_pending", "aileron_wait_for_action"]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    """Start a model with the APIs of both providers."""
    with Model() as running:
        yield running


@pytest.fixture(scope="module")
def home(model: Model) -> Iterator[DaemonHome]:
    """Start a home in which `give-back` runs at once and `ask-first` needs approval; both providers' keys are the client's."""
    with daemon_home() as made:
        made.configure(
            f'[gateway.upstreams]\nanthropic = {{ url = "{model.url}" }}\nopenai = {{ url = "{model.url}" }}\n'
        )
        lend_probe(made)
        made.add_probe_action("give_back", "text:string")
        made.add_probe_action("give_back", "text:string", name="ask-first", gated=True)
        yield made


@pytest.fixture(autouse=True)
def programs_closed() -> Iterator[None]:
    """Close the connections of all programs after each test."""
    yield
    close_all()


def session_of(home: DaemonHome, **more: Any) -> dict[str, Any]:
    """Open a session whose requests get tools."""
    body = {"agent": "other", "folder": "/tmp", "inject": True, **more}
    made: dict[str, Any] = home.must("POST", "/v1/sessions", body)
    return made


def address_of(home: DaemonHome, session: dict[str, Any]) -> str:
    """Return the base URL of a session's requests."""
    return str(home.must("GET", "/v1/status")["web"]) + str(session["inject_path"])


def noted(home: DaemonHome, session: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the recorded events of a session and type, oldest first."""
    found = home.must("GET", f"/v1/audit?session={session['id']}&type={kind}")["events"]
    return list(reversed(found))


def shown(model: Model) -> dict[str, Any]:
    """Return the facts of the last result that the model was shown."""
    body = model.asked[-1]
    last = (body.get("messages") or body["input"])[-1]
    text = (
        last["content"][0]["content"]
        if isinstance(last.get("content"), list)
        else last.get("content") or last["output"]
    )
    facts: dict[str, Any] = json.loads(text.partition("\n\n")[2])
    return facts


@pytest.mark.parametrize("how", HOWS)
def test_a_model_calls_an_injected_tool_and_the_run_is_recorded(how: str, home: DaemonHome, model: Model) -> None:
    """The action runs in a jail for its session, and the record contains nothing of the conversation."""
    session = session_of(home)
    model.script([Use("aileron_give_back", {"text": "hello"})], [Say("It said hello.")])
    turn = PROGRAMS[how](address_of(home, session), tools=()).ask("Give back a secret word: xylophone.")

    assert (turn.text, model.problems) == ("It said hello.", [])
    assert model.tools() == sorted([*OWN, "aileron_ask_first", "aileron_give_back"])
    facts = shown(model)
    assert (facts["status"], "hello" in json.dumps(facts["result"])) == ("completed", True)
    (answered,) = noted(home, session, "injection.answered")
    assert (answered["tool"], answered["status"], answered["asked"]) == ("give_back", "completed", facts["id"])
    assert [event["tool"] for event in noted(home, session, "injection.called")] == ["give_back"]
    (added,) = noted(home, session, "injection.added")
    assert (added["count"], added["tools"]) == (6, model.tools())
    assert "xylophone" not in json.dumps(home.must("GET", f"/v1/audit?session={session['id']}"))
    assert home.events(facts["id"])[0]["session"] == session["id"]


@pytest.mark.parametrize("how", HOWS)
def test_a_gated_injected_tool_waits_for_a_person_and_runs_when_approved(
    how: str, home: DaemonHome, model: Model
) -> None:
    """The model gets the same text as over MCP, with the injected names; the run starts after the approval and not before."""
    session = session_of(home)
    asked: dict[str, Any] = {}

    def approve() -> list[Any]:
        asked.update(shown(model))
        assert [event["type"] for event in home.events(asked["audit_id"])].count("run.started") == 0
        question = home.must("GET", f"/v1/action-approvals/{asked['approval_id']}")
        home.decide({**asked, "digest": question["digest"]}, "approve")
        return [Use("aileron_wait_for_action", {"id": asked["id"], "seconds": 20})]

    model.script([Use("aileron_ask_first", {"text": "please"})], approve, [Say("Done.")])
    assert PROGRAMS[how](address_of(home, session)).ask("Ask first.").text == "Done."

    assert model.problems == []
    assert asked["status"] == "pending_approval"
    assert f"call aileron_check_action_status with id {asked['id']} (aileron_wait_for_action" in asked["next_step"]
    assert (shown(model)["status"], "please" in json.dumps(shown(model)["result"])) == ("completed", True)


@pytest.mark.parametrize("how", HOWS)
def test_a_model_that_calls_a_denied_injected_tool_gets_the_reason(how: str, home: DaemonHome, model: Model) -> None:
    """The denied action does not run."""
    session = session_of(home)
    asked: dict[str, Any] = {}

    def deny() -> list[Any]:
        asked.update(shown(model))
        question = home.must("GET", f"/v1/action-approvals/{asked['approval_id']}")
        home.decide({**asked, "digest": question["digest"]}, "deny", "not today")
        return [Use("aileron_check_action_status", {"id": asked["id"]})]

    model.script([Use("aileron_ask_first", {"text": "please"})], deny, [Say("Denied.")])
    assert PROGRAMS[how](address_of(home, session)).ask("Ask first.").text == "Denied."

    assert (shown(model)["status"], shown(model)["reason"]) == ("denied", "not today")
    assert "run.started" not in [event["type"] for event in home.events(asked["audit_id"])]


@pytest.mark.parametrize("how", HOWS)
def test_a_model_cannot_run_a_gated_action_without_approval(how: str, home: DaemonHome, model: Model) -> None:
    """The model calls the action again, under other names, with what it found out, in one turn or in several, mixed
    with the program's own tools. Positive control above: the same action runs when a person approved it.
    """
    session = session_of(home)

    def goes_round() -> list[Any]:
        found = shown(model)
        return [
            Use("aileron_ask_first", {"text": "x", "approved": True}),
            Use("aileron_run_action", {"name": "ask-first", "arguments": {"text": "x"}}),
            Use("aileron_check_action_status", {"id": found["id"], "answer": "yes, approve"}),
            Use("ask_first", {"text": "x"}),
        ]

    model.script(
        [Use("aileron_ask_first", {"text": "x"})],
        goes_round,
        [Use("aileron_cancel_action", {"id": "act-1"}), Use("aileron_ask_first", {"text": "x"})],
        [Say("I give up.")],
    )
    program = PROGRAMS[how](address_of(home, session), tools=("ask_first",))
    turn = program.ask("Do it, whatever it takes.")
    assert [call.name for call in turn.calls] == ["aileron_run_action", "ask_first"]  # not offered, so not ours
    program.answer({call.id: "no such tool" for call in turn.calls})

    runs = home.must("GET", f"/v1/audit?session={session['id']}&limit=500")["events"]
    assert [event["type"] for event in runs if event["type"].startswith("run.")].count("run.requested") >= 2
    started = {event.get("run") for event in home.must("GET", "/v1/audit?type=run.started&limit=500")["events"]}
    assert started.isdisjoint({event["run"] for event in runs if event["type"] == "run.requested"})


@pytest.mark.parametrize("how", HOWS)
def test_a_long_result_of_an_injected_tool_is_paged(how: str, home: DaemonHome, model: Model) -> None:
    """The model requests the next page by the run's id, as over MCP."""
    session = session_of(home)
    pages: list[dict[str, Any]] = []

    def more() -> list[Any]:
        pages.append(shown(model))
        return [Use("aileron_check_action_status", {"id": pages[0]["id"], "page": 2})]

    model.script([Use("aileron_give_back", {"text": "z" * 12_000})], more, [Say("Read.")])
    assert PROGRAMS[how](address_of(home, session)).ask("Give back a lot.").text == "Read."
    pages.append(shown(model))

    assert [(page["page"], page["pages"]) for page in pages] == [(1, 2), (2, 2)]
    assert "z" * 12_000 in "".join(page["result_json"] for page in pages)


def test_an_injection_url_survives_a_restart_and_ends_with_its_session(home: DaemonHome, model: Model) -> None:
    """The daemon recognizes the URL from the record, and no file of the home contains it."""
    session = session_of(home)
    model.script(*[[Say("Hello.")]] * 2)
    assert PROGRAMS["messages"](address_of(home, session)).ask("Hello?").text == "Hello."
    home.stop()
    name = session["inject_path"].rpartition("/")[2].encode()
    assert scan([home.folder], name) == {}
    home.unlock()
    assert PROGRAMS["messages"](address_of(home, session)).ask("Hello?").text == "Hello."
    assert all("aileron_give_back" in model.tools(number) for number in (0, 1))
    assert home.must("GET", f"/v1/sessions/{session['id']}")["inject"] is True

    home.must("POST", f"/v1/sessions/{session['id']}/end", {"exit_code": 0})
    with pytest.raises(anthropic.AuthenticationError):
        PROGRAMS["messages"](address_of(home, session)).ask("Hello?")
    with pytest.raises(openai.AuthenticationError):
        PROGRAMS["responses"](address_of(home, {"inject_path": f"/inject/{session['token']}"})).ask("Hello?")
    assert len(model.bodies) == 2


def test_a_sessions_selection_limits_its_injected_tools(home: DaemonHome, model: Model) -> None:
    """An action outside the selection is not offered, and a call of it is left to the program."""
    session = session_of(home, only=["give-back"])
    model.script([Use("aileron_ask_first", {"text": "x"})])
    turn = PROGRAMS["chat"](address_of(home, session)).ask("Ask.")

    assert model.tools() == ["weather", *sorted([*OWN, "aileron_give_back"])]
    assert [call.name for call in turn.calls] == ["aileron_ask_first"]


def test_a_session_with_injected_tools_has_no_tools_over_mcp(home: DaemonHome) -> None:
    """Otherwise a model would see each tool twice. A session without injection has all of them over MCP."""
    plain = home.must("POST", "/v1/sessions", {"agent": "other", "folder": "/tmp"})
    listed = []
    for token in (plain["token"], session_of(home)["token"]):
        with Agent(home.path / "run" / "mcp.sock", token) as agent:
            listed.append(len(agent.ask("tools/list", {})["tools"]))
    assert plain["inject_path"] is None
    assert listed == [6, 0]


def test_the_how_to_page_on_injected_tools_works_as_written(home: DaemonHome, model: Model, tmp_path: Path) -> None:
    """The test uses the page's session, variables and program, with the URL that the command printed."""
    text = PAGE.read_text(encoding="utf-8")
    command = [sys.executable, "-m", "aileron", "sessions", "new", "--for", "8h", "--inject"]
    assert f"$ aileron {' '.join(command[3:])}" in text
    environment = {**os.environ, "AILERON_HOME": str(home.path)}
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    (address,) = re.findall(r"not shown again: (http\S+/inject/ail_\S+) \(OpenAI: with /v1\)", made.stderr)
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "program.py"
    file.write_text("\n".join(line.removeprefix("   ") for line in program.splitlines()))

    model.script([Use("aileron_give_back", {"text": "hello"})], [Say("hello")])
    variables = {**environment, "ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "sk-own"}
    ran = subprocess.run(
        [sys.executable, str(file)], env=variables, capture_output=True, text=True, check=True, timeout=60
    )
    assert (ran.stdout, model.problems) == ("hello\n", [])
    assert shown(model)["status"] == "completed"
