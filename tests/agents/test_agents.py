"""The five agents, as their makers publish them, through `aileron launch`: what the model is shown, and what never leaves.

One conversation for each agent (script.py); every test looks at one thing in it. What each agent does with it is a cell of
docs/reference/agents.md, and the page is compared with the conversation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from aileron.model.names import RESERVED_TOOLS, tool_name
from tests.agents.agents import ALL, Trap, desk
from tests.agents.llm.server import LAST_WORDS, LanguageModel
from tests.agents.observe import ROWS, UPSTREAM_KEY, Seen, cells, documented, observed
from tests.agents.script import GREETING, LONG, MEANT, REASON, Notes, list_and_call, prepare
from tests.support.canary import find
from tests.support.home import PASSPHRASE, SECRET, daemon_home

pytestmark = [pytest.mark.jail, pytest.mark.slow, pytest.mark.timeout(1800)]
"""Half an hour: if nothing is cached, the first test installs all five agents."""


@pytest.fixture(scope="module", params=list(ALL))
def seen(request: pytest.FixtureRequest) -> Iterator[Seen]:
    """Return the observed conversation of one agent."""
    with observed(ALL[request.param]) as conversation:
        yield conversation


def test_the_conversation_reaches_its_end(seen: Seen) -> None:
    """The scripted model gets through its whole script; the agent prints the last word and exits with 0."""
    assert seen.model.is_finished, f"{seen.model.problem}\n{seen.ended.out[-3000:]}\n{seen.ended.err[-3000:]}"
    assert seen.ended.code == 0, seen.ended.err[-3000:]
    assert LAST_WORDS in seen.ended.out


def test_every_tool_is_offered_with_its_schema(seen: Seen) -> None:
    """The model's first turn has the actions and Aileron's own tools, with their inputs."""
    offered = seen.notes.offered
    assert offered is not None
    for name in ("give_back", "ask_first", "check_action_status", "wait_for_action", "cancel_action", "list_pending"):
        assert offered.tool(name), f"{name} is not offered"
    tool = offered.tool("give_back")

    assert tool is not None
    assert "text" in tool.schema["properties"]
    assert "A test" in tool.description


def test_an_ungated_call_returns_its_result(seen: Seen) -> None:
    """The model reads what the connector returned."""
    assert seen.notes.called is not None
    assert GREETING in seen.notes.called.text
    assert "completed" in seen.notes.called.text
    assert not seen.notes.called.is_error


def test_a_gated_call_answers_at_once_and_completes_after_approval(seen: Seen) -> None:
    """The model is told at once that a person must decide, with the id. The person approves while it waits, and it
    gets the result.
    """
    assert seen.notes.pending is not None
    assert seen.notes.approved is not None
    assert "pending_approval" in seen.notes.pending.text
    assert "may I" not in seen.notes.pending.text
    assert not seen.notes.pending.is_error
    assert "may I" in seen.notes.approved.text
    assert "completed" in seen.notes.approved.text


def test_a_denial_has_its_reason(seen: Seen) -> None:
    """The model reads what the person wrote, and the action did not run."""
    assert seen.notes.denied is not None
    assert REASON in seen.notes.denied.text
    assert "approval_denied" in seen.notes.denied.text or "denied" in seen.notes.denied.text
    assert "and now" not in seen.notes.denied.text


def test_a_connector_error_has_its_class_and_message(seen: Seen) -> None:
    """The model can tell the person what went wrong, and whether another try is worthwhile."""
    assert seen.notes.failed is not None
    assert "external_api_error" in seen.notes.failed.text
    assert "the upstream said 503" in seen.notes.failed.text


def test_a_long_result_is_shown_completely_page_by_page(seen: Seen) -> None:
    """The agents do not truncate a page; at most one word at each page break is split."""
    shown = "".join(page.text for page in seen.notes.pages)

    assert len(seen.notes.pages) > 2
    assert len([word for word in LONG.split() if word not in shown]) < len(seen.notes.pages)


def test_an_action_added_during_the_session_can_be_used(seen: Seen) -> None:
    """Only agents that list the tools again can use it; the others need a new session."""
    if seen.agent.follows:
        assert seen.notes.late is not None, "the new action was never offered"
        assert GREETING in seen.notes.late.text
    else:
        assert seen.notes.late is None
        assert len(seen.tap.asked("tools/list")) == 1


def test_an_action_disabled_during_the_session_does_not_run(seen: Seen) -> None:
    """An agent may still offer the action; then the agent or Aileron refuses the call, and the model is told."""
    if seen.notes.withdrawn:
        assert seen.agent.follows
        return
    assert seen.notes.switched_off is not None
    assert GREETING not in seen.notes.switched_off.text
    for call in seen.tap.calls("soon_gone"):
        assert seen.tap.answer(call)["structuredContent"]["error"]["class"] == "action_disabled"
        assert "action_disabled" in seen.notes.switched_off.text


def test_the_model_is_reached_only_through_the_gateway(seen: Seen) -> None:
    """Each request has the vault's key, which only the gateway adds. The trap proxy was asked for no other host."""
    assert seen.model.turns
    for asked in [*seen.model.turns, *seen.model.asides]:
        assert asked.key == UPSTREAM_KEY
        assert asked.wire == seen.agent.wire
    assert seen.egress == []


def test_the_agents_files_and_output_contain_no_secret(seen: Seen) -> None:
    """Neither the model's key, nor a connector's secret, nor its session's token is in its files, its output, or a body it sent.

    The token is in no field that reached the model either: the gateway accepts it as the key and puts the real key
    there.
    """
    assert seen.tap.token.startswith("ail_")
    secrets = (UPSTREAM_KEY.encode(), SECRET, PASSPHRASE.encode(), seen.tap.token.encode())

    assert seen.leaks == {}
    assert find((seen.ended.out + seen.ended.err).encode(), *secrets) == []
    for request in seen.model.requests:
        assert find(request.body, *secrets) == []
        assert seen.tap.token.encode() not in request.head


def test_an_agent_configured_with_the_output_of_mcp_config_can_call_actions(seen: Seen) -> None:
    """The agent is started by itself, with that text in its own configuration: the actions are offered, and one is called.

    No daemon ran: the agent's server started it, and the tools were there in the first turn. So was the action that was
    added during the session of an agent that did not list the tools again.
    """
    assert seen.pasted.called is not None, f"{seen.pasted_ended.out[-3000:]}\n{seen.pasted_ended.err[-3000:]}"
    assert GREETING in seen.pasted.called.text
    assert seen.pasted.offered is not None
    assert seen.pasted.offered.tool("late_comer")
    assert seen.pasted_ended.code == 0


def test_an_agent_survives_a_restart_of_the_daemon(seen: Seen) -> None:
    """The next call succeeds without any support by the agent."""
    assert seen.pasted.restarted is not None
    assert GREETING in seen.pasted.restarted.text
    assert not seen.pasted.restarted.is_error


def test_one_of_300_actions_is_found_and_run(seen: Seen) -> None:
    """The 300 actions are not listed: the model is offered tools that find and run one, sees what was found, and the
    right one ran.
    """
    assert seen.many.offered is not None, f"{seen.many_ended.out[-3000:]}\n{seen.many_ended.err[-3000:]}"
    for name in sorted(RESERVED_TOOLS):
        assert seen.many.offered.tool(name), f"{name} is not offered"
    for name in ("give_back", tool_name(MEANT)):
        assert not seen.many.offered.tool(name), f"{name} is offered"
    assert seen.many.found is not None
    assert "asks_a_person" in seen.many.found.text
    assert seen.many.called is not None
    assert GREETING in seen.many.called.text
    assert seen.ran == [MEANT]
    assert seen.many_ended.code == 0


def test_doctor_checks_an_agent_from_its_configuration_to_a_tool_call(seen: Seen) -> None:
    """The steps pass in this order: configured, started, tools listed, one tool called."""
    assert seen.doctor.code == 0, seen.doctor.out + seen.doctor.err
    assert cells(seen)["`aileron doctor`"] == "configured, started, tools, call"
    assert seen.agent.version in seen.doctor.out


def test_no_file_of_the_person_is_changed(seen: Seen) -> None:
    """The person's configuration is as it was, byte for byte."""
    assert seen.changed == []


def test_the_session_is_recorded(seen: Seen) -> None:
    """The record has the agent, its folder and how it ended; the session's runs belong to it."""
    asked = seen.home.must("GET", f"/v1/sessions/{seen.session['id']}")

    assert asked["agent"] == seen.agent.name
    assert asked["folder"] == str(seen.desk.folder)
    assert (asked["status"], asked["exit_code"]) == ("ended", 0)
    assert asked["runs"] >= 4


def test_the_reference_page_about_agents_documents_the_observed_behaviour(seen: Seen) -> None:
    """Every cell of this agent's column in docs/reference/agents.md matches."""
    assert documented()[seen.agent.name] == cells(seen)


def test_the_network_trap_notices_an_agent_that_contacts_its_maker() -> None:
    """This is the positive control: without its quiet variables, Claude Code asks the proxy for its maker's server."""
    loud = dataclasses.replace(ALL["claude"], quiet={})
    notes = Notes()
    with daemon_home() as home, Trap() as trap, desk(loud, home.path, trap) as place:
        home.unlock()
        prepare(home)
        place.paste_configuration()
        with LanguageModel(lambda: list_and_call(notes, home)) as model:
            ended = place.start(model.port)

    assert model.is_finished, f"{model.problem}\n{ended.out[-3000:]}\n{ended.err[-3000:]}"
    assert "api.anthropic.com:443" in trap.asked_for


def test_codex_calls_tools_from_javascript_for_a_model_it_knows() -> None:
    """A model that codex knows is offered no tool but one that runs JavaScript; the call in it arrives as any other.

    The server's instructions are shown to the model beside the name under which it finds the tools.
    """
    notes = Notes()
    with daemon_home() as home, Trap() as trap, desk(ALL["codex"], home.path, trap) as place:
        home.unlock()
        prepare(home)
        home.stop()
        place.paste_configuration()
        place.replace(".codex/config.toml", 'model = "scripted"\n', "")
        with LanguageModel(lambda: list_and_call(notes, home)) as model:
            ended = place.start(model.port)

    assert model.is_finished, f"{model.problem}\n{ended.out[-3000:]}\n{ended.err[-3000:]}"
    assert notes.offered is not None
    assert notes.called is not None
    tool = notes.offered.tool("give_back")
    assert tool is not None
    assert tool.by_script == "exec"
    assert "mcp__aileron: Aileron runs actions for you" in "".join(text for _role, text in notes.offered.told)
    assert GREETING in notes.called.text
    assert trap.asked_for == []


def test_the_reference_page_about_agents_has_exactly_the_rows_and_agents_of_the_code() -> None:
    """The rows and columns are in the order of the code."""
    columns = documented()

    assert list(columns) == list(ALL)
    assert [list(column) for column in columns.values()] == [list(ROWS)] * len(ALL)
