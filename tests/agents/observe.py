"""An agent's whole conversation, and what the model, the daemon's socket and the person saw of it.

with observed(ALL["claude"]) as seen:
        seen.notes.denied.text        # what the model was shown
        cells(seen)["protocol"]       # the same as one word of docs/reference/agents.md

Everything runs on loopback: a daemon in a home of its own, whose gateway leads to the scripted model with a key from the vault,
and the agent as `aileron launch` starts it. Not here: what must be true of it (test_agents.py).
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aileron.model.names import tool_name
from tests.agents.agents import Agent, Desk, Ended, Trap, desk
from tests.agents.llm.server import LanguageModel
from tests.agents.llm.wires import Asked, Shown
from tests.agents.script import (
    GREETING,
    LONG,
    MEANT,
    REASON,
    Notes,
    everything,
    find_and_run,
    install_many,
    list_and_call,
    prepare,
)
from tests.agents.tap import Tap
from tests.support.canary import scan
from tests.support.home import PASSPHRASE, SECRET, DaemonHome, daemon_home

__all__ = ["ROWS", "UPSTREAM_KEY", "Seen", "cells", "documented", "lead_to", "observed"]

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "agents.md"

UPSTREAM_KEY: Final = "sk-canary-7c1f0a9be254"
"""The key that the gateway adds, and that no agent may have."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """The traces of one conversation. `egress` are the names it asked a proxy for, `leaks` the files of its own and of
    Aileron's that have a secret in them, `changed` the person's files that are no longer as they were.

    `pasted` is what a second, short one left, in which the agent was started by itself and without a daemon, with what `aileron
    mcp config` printed in its own configuration, and spoke to the model directly. `many` is what a third one left, in the same
    way, with 300 more actions; `ran` are the actions that ran in it.
    """

    agent: Agent
    home: DaemonHome
    desk: Desk
    ended: Ended
    model: LanguageModel
    notes: Notes
    tap: Tap
    doctor: Ended
    pasted: Notes
    pasted_ended: Ended
    many: Notes
    many_ended: Ended
    ran: list[str]
    egress: list[str]
    leaks: dict[str, list[str]]
    changed: list[str]
    session: dict[str, Any]


@contextlib.contextmanager
def observed(agent: Agent, *options: str) -> Iterator[Seen]:
    """Launch the agent with these options and run the conversations; the home stays until the end, for more checks."""
    with daemon_home() as home, Trap() as trap, desk(agent, home.path, trap) as place:
        notes = Notes()
        home.unlock()
        home.must("PUT", "/v1/secrets/upstream", {"value_base64": base64.b64encode(UPSTREAM_KEY.encode()).decode()})
        tap = Tap(home.path / "run" / "mcp.sock")
        with LanguageModel(lambda: everything(notes, home, tap, follows=agent.follows)) as model:
            lead_to(home, model.port)
            prepare(home)
            own = place.files()
            doctor = place.doctor()
            with tap:
                ended = place.launch(*options)
            changed = [name for name, data in own.items() if place.files().get(name) != data]
        pasted = Notes()
        with LanguageModel(lambda: list_and_call(pasted, home)) as direct:
            place.paste_configuration()
            home.stop()
            pasted_ended = place.start(direct.port)
        many = Notes()
        install_many(home)
        before = _ran(home)
        with LanguageModel(lambda: find_and_run(many, home)) as direct:
            many_ended = place.start(direct.port)
        leaks = scan([place.path, home.path], UPSTREAM_KEY.encode(), SECRET, PASSPHRASE.encode(), tap.token.encode())
        session = next(each for each in home.must("GET", "/v1/sessions")["sessions"] if each["exit_code"] is not None)
        yield Seen(
            agent=agent,
            home=home,
            desk=place,
            ended=ended,
            model=model,
            notes=notes,
            tap=tap,
            doctor=doctor,
            pasted=pasted,
            pasted_ended=pasted_ended,
            many=many,
            many_ended=many_ended,
            ran=[action for run_id, action in _ran(home).items() if run_id not in before],
            egress=list(trap.asked_for),
            leaks=leaks,
            changed=changed,
            session=session,
        )


def lead_to(home: DaemonHome, port: int) -> None:
    """Make the scripted model both providers, with the key from the vault; the daemon reads that when it starts."""
    home.stop()
    kept = (home.path / "config.toml").read_text(encoding="utf-8") if (home.path / "config.toml").exists() else ""
    upstream = f'url = "http://127.0.0.1:{port}"\nsecret = "upstream"\n'
    home.configure(f"{kept}\n[gateway.upstreams.anthropic]\n{upstream}\n[gateway.upstreams.openai]\n{upstream}")
    home.unlock()


def _ran(home: DaemonHome) -> dict[str, str]:
    """Return the newest runs that were requested, with their actions."""
    events = home.must("GET", "/v1/audit?type=run.requested")["events"]
    return {event["run"]: event["action"] for event in events}


def _many(seen: Seen) -> str:
    if seen.many.found is None or tool_name(MEANT) not in seen.many.found.text:
        return "no"
    is_called = seen.many.called is not None and GREETING in seen.many.called.text and seen.ran == [MEANT]
    return "found, called" if is_called else "found"


def _offered(seen: Seen) -> str:
    return "up front" if seen.notes.offered else "no"


def _name(seen: Seen) -> str:
    assert seen.notes.offered
    tool = seen.notes.offered.tool("give_back")
    assert tool
    return f"`{tool.namespace}` / `{tool.name}`" if tool.namespace else f"`{tool.name}`"


def _gated(seen: Seen) -> str:
    at_once = seen.notes.pending is not None and "pending_approval" in seen.notes.pending.text
    after = seen.notes.approved is not None and "may I" in seen.notes.approved.text
    return "waits, then the result" if at_once and after else "no"


def _denied(seen: Seen) -> str:
    return "the reason" if seen.notes.denied is not None and REASON in seen.notes.denied.text else "no"


def _failed(seen: Seen) -> str:
    shown = seen.notes.failed
    if shown is None or "external_api_error" not in shown.text or "the upstream said 503" not in shown.text:
        return "no"
    return "class and message, as an error" if shown.is_error else "class and message"


def _added(seen: Seen) -> str:
    if seen.notes.late is None:
        next_one = seen.pasted.offered
        return "in the next session" if next_one and next_one.tool("late_comer") else "no"
    return "offered, called" if GREETING in seen.notes.late.text else "offered"


def _switched_off(seen: Seen) -> str:
    if seen.notes.withdrawn:
        return "no longer offered"
    if not seen.tap.calls("soon_gone"):
        return "offered, refused by the agent"
    refused = seen.notes.switched_off is not None and "action_disabled" in seen.notes.switched_off.text
    return "offered, refused by Aileron" if refused else "no"


def _part(seen: Seen) -> str:
    """Return which half of a result the model was shown: both say the same, but only the text begins with a sentence."""
    shown = seen.notes.called
    if shown is None:
        return "nothing"
    (call, *_) = seen.tap.calls("give_back")
    result = seen.tap.answer(call)
    if result["content"][0]["text"] in shown.text:
        return "text"
    return "`structuredContent`" if _has_json(shown, result["structuredContent"]) else "something else"


def _has_json(shown: Shown, wanted: Any) -> bool:
    """Return whether a JSON value stands somewhere in the text, however it is spaced and ordered."""
    decoder = json.JSONDecoder()
    for at, letter in enumerate(shown.text):
        if letter == "{":
            with contextlib.suppress(ValueError):
                if decoder.raw_decode(shown.text, at)[0] == wanted:
                    return True
    return False


def _instructions(seen: Seen) -> str:
    assert seen.notes.offered
    return _where(seen.notes.offered, seen.tap.instructions)


def _where(asked: Asked, instructions: str) -> str:
    """Return in which part of a request the server's instructions stand."""
    begin = instructions[:60]
    assert begin, "the server gave no instructions"
    for role, text in asked.told:
        if begin in text:
            return {"system": "system prompt", "developer": "system prompt", "tools": "beside the tools"}.get(
                role, "a message"
            )
    return "a tool's description" if any(begin in tool.description for tool in asked.tools) else "not shown"


def _doctor(seen: Seen) -> str:
    proven = [line.split("\t")[1] for line in seen.doctor.out.splitlines() if line.startswith("ok\t")]
    return ", ".join(proven) if seen.doctor.code == 0 else "no"


def _long(seen: Seen) -> str:
    shown = "".join(page.text for page in seen.notes.pages)
    words = [word for word in LONG.split() if word not in shown]
    return (
        f"{len(seen.notes.pages)} pages, whole"
        if len(words) < len(seen.notes.pages)
        else f"{len(words)} words are missing"
    )


def _cold(seen: Seen) -> str:
    """Return the table's word for the first turn of a session that had to start the daemon."""
    return "started, tools offered" if seen.pasted.offered and seen.pasted.offered.tool("give_back") else "no"


def _restarted(seen: Seen) -> str:
    shown = seen.pasted.restarted
    return "the next call works" if shown and GREETING in shown.text and not shown.is_error else "no"


def _pasted(seen: Seen) -> str:
    if seen.pasted.offered is None or seen.pasted.called is None:
        return "no"
    return "offered, called" if GREETING in seen.pasted.called.text else "offered"


def _gateway(seen: Seen) -> str:
    wires = {"messages": "Messages", "chat": "Chat Completions", "responses": "Responses"}
    keyed = seen.model.turns and all(asked.key == UPSTREAM_KEY for asked in seen.model.turns)
    return wires[seen.model.turns[0].wire] if keyed else "no"


ROWS: Final = {
    "version": lambda seen: seen.agent.version,
    "protocol": lambda seen: seen.tap.spoke,
    "model's API, through the gateway": _gateway,
    "tools offered to the model": _offered,
    "name of the tool of `give-back`": _name,
    "server's instructions": _instructions,
    "shown of a result": _part,
    "call": lambda seen: "the result" if seen.notes.called and GREETING in seen.notes.called.text else "no",
    "gated call, approved meanwhile": _gated,
    "gated call, denied with a reason": _denied,
    "error of a connector": _failed,
    "long result": _long,
    "action added in the session": _added,
    "action switched off in the session": _switched_off,
    "by what `aileron mcp config` prints": _pasted,
    "one of 300 actions, by `find_action` and `run_action`": _many,
    "no daemon at the start": _cold,
    "daemon restarted in the session": _restarted,
    "`aileron doctor`": _doctor,
}
"""The rows of the table in docs/reference/agents.md, each with the function that finds its word."""


def cells(seen: Seen) -> dict[str, str]:
    """Return one column of the table."""
    return {row: word(seen) for row, word in ROWS.items()}


@functools.cache
def documented() -> dict[str, dict[str, str]]:
    """Return the table of the page, column by column."""
    table = re.search(r"(?:^\|.*\n?)+", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert table, "the page has no table"
    (_corner, *agents), _rule, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()
    ]
    return {agent: {row[0]: row[number] for row in rows} for number, agent in enumerate(agents, 1)}
