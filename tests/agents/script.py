"""The model's part in a test, the same for all agents, and notes of what the model was shown.

One conversation goes through everything an agent is used for: a call, a call a person approves meanwhile, one they deny, one
whose connector fails, an action that appears, one that is switched off. The script does what the person would do, through the
operator socket, and notes what the model is shown; the tests read the notes.

Not here: which agent, and how it is started (agents.py), what must be true of the notes (test_agents.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
from collections.abc import Iterator

from aileron.model.names import tool_name
from tests.agents.llm.server import Script
from tests.agents.llm.wires import Asked, Shown
from tests.agents.tap import Tap
from tests.support.home import DaemonHome
from tests.support.many_actions import many_actions

__all__ = [
    "GREETING",
    "LONG",
    "MEANT",
    "REASON",
    "Notes",
    "decide",
    "everything",
    "find_and_run",
    "id_in",
    "install_many",
    "list_and_call",
    "prepare",
]

GREETING = "a word in return"
REASON = "Not on a Friday, please."
LONG = " ".join(f"word{number:04}" for number in range(2500))
"""A text of 22 KiB: an argument may not be much longer, and every agent would cut it."""
MEANT = "tasks-add-task-comment"
"""The action among 300 that the model looks for; `_WORDS` is what it asks for."""
_WORDS = "comment on a task"
_WAITS_S = 15.0
"""Seconds that an agent may take from one request to the next."""
_LISTS_S = 1.0
_TURNS = 10
"""Number of turns that a new list may take to reach the model, with up to `_LISTS_S` seconds before each: an agent
makes its next request while it still reads the list, and those that follow needed three at most.
"""


@dataclasses.dataclass
class Notes:
    """The requests and results that the model was shown, by step of the script."""

    offered: Asked | None = None
    called: Shown | None = None
    pending: Shown | None = None
    approved: Shown | None = None
    denied: Shown | None = None
    failed: Shown | None = None
    pages: list[Shown] = dataclasses.field(default_factory=list)
    restarted: Shown | None = None
    late: Shown | None = None
    withdrawn: bool = False
    found: Shown | None = None
    switched_off: Shown | None = None


def prepare(home: DaemonHome) -> None:
    """Install and bind the connector, and add the actions of the script; the vault is open."""
    home.install_probe()
    home.bind_probe()
    home.add_probe_action("give_back", "text:string", name="give-back")
    home.add_probe_action("give_back", "text:string", name="ask-first", gated=True)
    home.add_probe_action("fail_as", "status:integer", name="fail-now")
    home.add_probe_action("give_back", "text:string", name="soon-gone")


def list_and_call(notes: Notes, home: DaemonHome) -> Script:
    """List the tools without a running daemon, and call one: before and after the daemon was stopped and started again."""
    turn = yield "list_pending", {}
    notes.offered = turn.asked

    home.unlock()
    turn = yield "give_back", {"text": GREETING}
    notes.called = turn.shown

    home.stop()
    home.unlock()
    turn = yield "give_back", {"text": GREETING}
    notes.restarted = turn.shown


def install_many(home: DaemonHome) -> None:
    """Install 300 more actions as files, so that nobody is asked about them."""
    (connector,) = home.must("GET", "/v1/connectors")["connectors"]
    for name, text in many_actions(pin=connector["hash"]).items():
        path = home.path / "actions" / f"{name}.md"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)


def find_and_run(notes: Notes, home: DaemonHome) -> Script:
    """Find and run one of the 300 actions: the model uses only the name and the argument that it was shown."""
    turn = yield "find_action", {"words": _WORDS}
    notes.offered, notes.found = turn.asked, turn.shown
    tool = tool_name(MEANT)
    assert tool in turn.shown.text, f"{tool} is not shown: {turn.shown.text[:2000]}"
    assert "input_schema" in turn.shown.text

    home.unlock()
    turn = yield "run_action", {"name": tool, "arguments": {"text": GREETING}}
    notes.called = turn.shown


def everything(notes: Notes, home: DaemonHome, tap: Tap, *, follows: bool) -> Script:
    """Go through the whole list; `follows` says whether this agent is known to list the tools again when they change."""
    turn = yield "give_back", {"text": GREETING}
    notes.offered, notes.called = turn.asked, turn.shown

    turn = yield "ask_first", {"text": "may I"}
    notes.pending = turn.shown
    asked = id_in(notes.pending)
    with _approved_meanwhile(home, tap):
        turn = yield "wait_for_action", {"id": asked, "seconds": 50}
    notes.approved = turn.shown

    turn = yield "ask_first", {"text": "and now"}
    decide(home, "deny", REASON)
    turn = yield "check_action_status", {"id": id_in(turn.shown)}
    notes.denied = turn.shown

    turn = yield "fail_now", {"status": 503}
    notes.failed = turn.shown

    turn = yield "give_back", {"text": LONG}
    notes.pages.append(turn.shown)
    while following := re.search(r'"next_page"\s*:\s*(\d+)', turn.shown.text):
        run = re.search(r'"audit_id"\s*:\s*"([^"]+)"', turn.shown.text)
        assert run, f"no id is shown: {turn.shown.text}"
        turn = yield "check_action_status", {"id": run[1], "page": int(following[1])}
        notes.pages.append(turn.shown)

    lists = _lists(tap)
    home.add_probe_action("give_back", "text:string", name="late-comer")
    for _turn in range(_TURNS if follows else 2):
        turn = yield "give_back", {"text": "is there anything new"}
        if turn.asked.tool("late_comer"):
            turn = yield "late_comer", {"text": GREETING}
            notes.late = turn.shown
            break
        _wait_for_list(tap, lists, follows)

    lists = _lists(tap)
    home.must("PATCH", "/v1/actions/soon-gone", {"enabled": False})
    for _turn in range(_TURNS if follows else 2):
        turn = yield "give_back", {"text": "is anything gone"}
        if not turn.asked.tool("soon_gone"):
            notes.withdrawn = True
            break
        _wait_for_list(tap, lists, follows)
    else:
        turn = yield "soon_gone", {"text": GREETING}
        notes.switched_off = turn.shown


def id_in(shown: Shown) -> str:
    """Return the id of the question, as the model finds it in what it is shown."""
    found = re.search(r'"approval_id"\s*:\s*"([^"]+)"', shown.text)
    assert found, f"no id is shown: {shown.text}"
    return found[1]


def decide(home: DaemonHome, decision: str, reason: str | None = None) -> None:
    """Give the person's decision on the one question about an action; an agent in a cell may have others, about hosts."""
    asked = home.must("GET", "/v1/action-approvals")["approvals"]
    (question,) = [each for each in asked if (each["kind"], each["status"]) == ("action", "pending_approval")]
    answer = home.decide(question, decision, reason)
    assert not answer.is_error, answer.body


@contextlib.contextmanager
def _approved_meanwhile(home: DaemonHome, tap: Tap) -> Iterator[None]:
    """Approve the question in a thread as soon as the agent has begun to wait."""

    def person() -> None:
        if tap.wait(lambda tap: bool(tap.calls("wait_for_action")), _WAITS_S):
            decide(home, "approve")

    thread = threading.Thread(target=person)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _lists(tap: Tap) -> int:
    """Return how often the tools were listed and the list was answered."""
    return len([each for each in tap.asked("tools/list") if tap.answer(each)])


def _wait_for_list(tap: Tap, lists: int, follows: bool) -> None:
    """Wait until an agent that follows has listed the tools again; some do so only with their next request to the model."""
    if follows:
        tap.wait(lambda tap: _lists(tap) > lists, _LISTS_S)
