"""A language model that follows a script: an HTTP server on loopback which the agents take for the real one.

A script is a generator of steps, written once for all agents. `yield "tool", {…}` uses a tool of our MCP server, by the name it
has there, and gets the result as the model is then shown it, with the whole request; a return ends the conversation. It runs
in the server's thread between two turns of the agent, so it can also do what a person would meanwhile.

    def script() -> Script:
        turn = yield "give_back", {"text": "hello"}
        assert "hello" in turn.shown.text

    with LanguageModel(script) as model:
        ...run an agent against http://127.0.0.1:{model.port}...
    assert model.is_finished, model.problem

Only requests in which an agent offers tools of its own are turns; any words answer the others (a title, a summary). A repeated
turn gets the same answer. Every request is kept. Not here: the wires (wires.py).
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple

from tests.agents.llm.wires import Asked, Say, Shown, Use, read, speak
from tests.support.serving import Service
from tests.support.upstream import Seen, answer

__all__ = ["LAST_WORDS", "LanguageModel", "Script", "Turn"]

LAST_WORDS: Final = "Everything was done."
_ASIDE: Final = Say("A conversation")
_ADDED: Final = re.compile(r"aileron_[a-z].*")
"""Pattern of the tools that the gateway adds. It adds them to requests for a title as well, in which the agent has none."""


class Turn(NamedTuple):
    """The result of its last call as the model is shown it, and the whole request."""

    shown: Shown
    asked: Asked


Script = Generator[tuple[str, dict[str, Any]], Turn, None]


class LanguageModel(Service):
    """A running server; a context manager. With `again`, a conversation that begins after the end gets the whole script."""

    def __init__(self, script: Callable[[], Script], *, again: bool = False) -> None:
        super().__init__(None)
        self._make = script
        self._script = script()
        self._again = again
        self._step: Say | Use | None = None
        self._calls = 0
        self.turns: list[Asked] = []
        self.asides: list[Asked] = []
        self.is_finished = False
        self.problem = "the script has not come to its end"

    @property
    def requests(self) -> list[Seen]:
        """Every request that came, turns or not, as it was on the wire."""
        return self._upstream.requests

    def _answer(self, seen: Seen) -> bytes | Iterable[bytes]:
        asked = read(seen)
        if asked is not None:
            return speak(asked, self._next(asked))
        path = seen.target.partition("?")[0]
        if path == "/v1/models":
            return _json({"object": "list", "data": [], "has_more": False})
        if path.endswith("/count_tokens"):
            return _json({"input_tokens": 10})
        return answer(b"{}", "Content-Type: application/json", status="404 Not Found")

    def _next(self, asked: Asked) -> Say | Use:
        if all(map(_ADDED.fullmatch, (tool.name for tool in asked.tools))):
            self.asides.append(asked)
            return _ASIDE
        with self._lock:
            self.turns.append(asked)
            if self._again and self._step is not None and not any(call.startswith("call_") for call in asked.results):
                self._script, self._step, self.is_finished = self._make(), None, False
            if self._step is None:
                self._step = self._advance(asked, None)
            elif isinstance(self._step, Use) and self._step.call_id in asked.results:
                self._step = self._advance(asked, Turn(asked.results[self._step.call_id], asked))
            return self._step

    def _advance(self, asked: Asked, turn: Turn | None) -> Say | Use:
        """Return the script's next step. A mistake in it, or a tool that is not offered, ends the conversation: `problem`."""
        try:
            name, args = next(self._script) if turn is None else self._script.send(turn)
        except StopIteration:
            self.is_finished = True
            return Say(LAST_WORDS)
        except Exception:  # noqa: BLE001 - the thread's end: the test reads `problem`
            self.problem = traceback.format_exc()
            return Say("The script has a mistake.")
        tool = asked.tool(name)
        if tool is None:
            self.problem = f"{name} is not offered: {', '.join(tool.name for tool in asked.tools)}"
            return Say(f"There is no tool {name}.")
        self._calls += 1
        return Use(f"call_{self._calls}", tool, args)


def _json(value: dict[str, Any]) -> bytes:
    return answer(json.dumps(value).encode(), "Content-Type: application/json")
