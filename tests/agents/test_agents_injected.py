"""Two agents, as their makers publish them, in sessions whose requests get tools: by Messages and by Chat Completions.

Neither has our server then: the gateway adds the actions and makes the calls, and the agent sees one answer without them.

Not here: each API and each way to fail (tests/gateway/test_inject.py), what agents do over MCP (test_agents.py).
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
from collections.abc import Iterator

import pytest

from tests.agents.agents import ALL, Desk, Ended, Trap, desk
from tests.agents.llm.server import LAST_WORDS, LanguageModel, Script
from tests.agents.observe import UPSTREAM_KEY, lead_to
from tests.agents.script import GREETING, REASON, Notes, decide, id_in, prepare
from tests.agents.tap import Tap
from tests.support.home import DaemonHome, daemon_home

pytestmark = [pytest.mark.jail, pytest.mark.slow, pytest.mark.timeout(1800)]
WIRES = {"claude": "messages", "goose": "chat"}


@dataclasses.dataclass(frozen=True)
class Injected:
    """The traces of one conversation."""

    home: DaemonHome
    place: Desk
    ended: Ended
    model: LanguageModel
    notes: Notes
    tap: Tap


def _script(notes: Notes, home: DaemonHome) -> Script:
    """Call an action that runs, one that a person approves before the model asks again, and one that they deny."""
    turn = yield "give_back", {"text": GREETING}
    notes.offered, notes.called = turn.asked, turn.shown

    turn = yield "ask_first", {"text": "may I"}
    notes.pending = turn.shown
    decide(home, "approve")
    turn = yield "wait_for_action", {"id": id_in(turn.shown), "seconds": 50}
    notes.approved = turn.shown

    turn = yield "ask_first", {"text": "and now"}
    decide(home, "deny", REASON)
    turn = yield "check_action_status", {"id": id_in(turn.shown)}
    notes.denied = turn.shown


@contextlib.contextmanager
def _conversation(name: str) -> Iterator[Injected]:
    with daemon_home() as home, Trap() as trap, desk(ALL[name], home.path, trap) as place:
        home.unlock()
        home.must("PUT", "/v1/secrets/upstream", {"value_base64": base64.b64encode(UPSTREAM_KEY.encode()).decode()})
        notes = Notes()
        tap = Tap(home.path / "run" / "mcp.sock")
        with LanguageModel(lambda: _script(notes, home)) as model:
            lead_to(home, model.port)
            prepare(home)
            with tap:
                ended = place.launch("--inject")
            yield Injected(home, place, ended, model, notes, tap)


@pytest.fixture(scope="module", params=list(WIRES))
def seen(request: pytest.FixtureRequest) -> Iterator[Injected]:
    """Return one agent's whole conversation."""
    with _conversation(request.param) as conversation:
        yield conversation


def test_the_model_calls_actions_that_the_agent_does_not_know(seen: Injected) -> None:
    """Only the model sees the injected tools: one call runs, one runs after approval, and one is denied."""
    assert seen.model.is_finished, f"{seen.model.problem}\n{seen.ended.out[-3000:]}\n{seen.ended.err[-3000:]}"
    assert seen.ended.code == 0, seen.ended.err[-3000:]
    assert LAST_WORDS in seen.ended.out
    assert seen.notes.called is not None
    assert GREETING in seen.notes.called.text
    assert seen.notes.pending is not None
    assert "pending_approval" in seen.notes.pending.text
    assert seen.notes.approved is not None
    assert "may I" in seen.notes.approved.text
    assert seen.notes.denied is not None
    assert REASON in seen.notes.denied.text


def test_only_the_gateway_offers_the_injected_actions(seen: Injected) -> None:
    """The agent's own output does not mention them, and no call goes over MCP."""
    assert {turn.wire for turn in seen.model.turns} == {WIRES[seen.place.agent.name]}
    assert seen.notes.offered is not None
    ours = [tool.name for tool in seen.notes.offered.tools if "give_back" in tool.name]
    assert ours == ["aileron_give_back"]
    assert seen.tap.asked("tools/call") == []
    assert "aileron_give_back" not in seen.ended.out
    events = seen.home.must("GET", "/v1/audit?type=injection.answered")["events"]
    assert [event["tool"] for event in reversed(events)] == [
        "give_back",
        "ask_first",
        "wait_for_action",
        "ask_first",
        "check_action_status",
    ]
