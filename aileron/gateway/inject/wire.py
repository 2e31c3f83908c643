"""The parts that the three APIs have in common: the values that go in and out, and the interface of each API's module.

An `Ask` is one request of an agent that was understood. An `Answer` is what that agent sees, over all rounds: a round is one
request to the provider and its answer, and those in which the model called only our tools are hidden from the agent.

Names. A tool of ours is `aileron_` and its name, at most MAX_NAME characters. If the agent declares that very name, the
agent's stays and ours is `aileron2_…`, and so on: an agent never sees a tool of its own under another name.

Pure. Source: docs/reference/injected-tools.md. Not here: sockets and time (exchange.py), what a tool does (daemon/).

>>> named([Tool("send_mail", "Sends.", {})], frozenset({"aileron_send_mail"}))
{'aileron2_send_mail': Tool(name='send_mail', description='Sends.', schema={})}
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import msgspec

from aileron.gateway.inject.document import Document, Edit, encoded, loaded, spliced
from aileron.gateway.inject.events import Event, written
from aileron.gateway.inject.memory import Entry, Memory, key_of

__all__ = [
    "MAX_NAME",
    "NO_ERROR_OF_ITS_OWN",
    "PREFIX",
    "Answer",
    "Answered",
    "Ask",
    "Called",
    "NotUnderstoodError",
    "Round",
    "Tool",
    "Wire",
    "added_usage",
    "canonical",
    "check_messages",
    "dict_of",
    "list_of",
    "named",
    "object_of",
    "parsed",
    "rewritten",
    "text_of",
    "trail",
]

Wire = Literal["messages", "chat", "responses"]
PREFIX: Final = "aileron"
MAX_NAME: Final = 64
"""Characters of a tool's name in all three APIs; they are letters, digits, `_` and `-`."""
MAX_EVENT_VALUES: Final = 1 << 17
"""Values of one event, which is read on the loop: 20 ms. The longest repeats an answer's words, and one byte in twenty counts."""
NO_ERROR_OF_ITS_OWN: Final = "the API answered with an error that is none of its own"
"""Text that an agent reads in a stream if a provider failed and sent nothing in the form of its API."""
_DIGEST: Final = 8
_SPACES: Final = b" \t\n\r\v\f"


class NotUnderstoodError(ValueError):
    """A request that is passed on as it is. The message is ours, for the record."""


class Tool(msgspec.Struct, frozen=True):
    """A tool to offer to the model, under its own name. `schema` is a JSON Schema of an object."""

    name: str
    description: str
    schema: Mapping[str, Any]


class Called(msgspec.Struct, frozen=True):
    """A call of a tool of ours. `name` is as the model said it, `tool` its own; `arguments` are JSON that nobody checked."""

    id: str
    name: str
    tool: str
    arguments: str


class Answered(msgspec.Struct, frozen=True):
    """A call, and the result that the model is told."""

    call: Called
    text: str
    is_error: bool


class Round(msgspec.Struct, frozen=True):
    """A model's answer in one round: calls of ours that may run, and the ids of the agent's. `said` are the fragments of JSON
    that repeat all of it in the next request, `shown` the same without calls of ours. `is_over`: the model came to an end.
    """

    calls: tuple[Called, ...]
    theirs: tuple[str, ...]
    said: tuple[str, ...]
    shown: tuple[str, ...]
    is_over: bool


def named(tools: Iterable[Tool], theirs: frozenset[str]) -> dict[str, Tool]:
    """Return the tools by the names that the model is told, sorted."""
    found: dict[str, Tool] = {}
    for tool in sorted(tools, key=lambda one: one.name):
        number = 1
        while (name := _name(tool.name, number)) in theirs or name in found:
            number += 1
        found[name] = tool
    return dict(sorted(found.items()))


def _name(name: str, number: int) -> str:
    whole = f"{PREFIX}{number if number > 1 else ''}_{name}"
    if len(whole) <= MAX_NAME:
        return whole
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{whole[: MAX_NAME - _DIGEST - 1]}_{digest}"


def text_of(parts: Iterable[str]) -> str:
    """Return a text in the form in which it is compared: agents trim it, and join its parts in ways of their own."""
    trimmed = "".join(part.strip() for part in parts).encode(errors="surrogatepass")
    return trimmed.translate(None, _SPACES).decode(errors="surrogatepass")


_MARKS: Final = frozenset({"cache_control"})
"""Members that a program moves from turn to turn."""


def canonical(value: Any) -> str:
    """Return a part of a turn that is no text, in the form in which it is compared: without cache marks, members sorted."""
    return json.dumps(_unmarked(value), sort_keys=True, separators=(",", ":"))


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmarked(member) for name, member in value.items() if name not in _MARKS}
    return [_unmarked(member) for member in value] if isinstance(value, list) else value


def trail(root: str, turns: Iterable[Sequence[str] | None]) -> list[str]:
    """Return digests of a conversation as its program sends it: before the first of the `turns`, and behind each. A turn None is
    skipped.

    A key that contains one is found again in this conversation alone: ids of calls, and words, are used again in others.
    """
    found = [root]
    for turn in turns:
        found.append(found[-1] if turn is None else key_of("turn", found[-1], *turn))
    return found


def added_usage(one: Any, other: Any) -> Any:
    """Return the sum of two accounts of tokens: numbers are added, wherever they stand; of all else the later counts."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: added_usage(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, bool) or isinstance(other, bool):
        return other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one + other
    return one if other is None else other


class Ask(ABC):
    """A request of an agent."""

    wire: ClassVar[Wire]
    turns: ClassVar[str]
    """Name of the member that has the conversation."""
    no_choice: ClassVar[str]
    """Value of `tool_choice` with which no tool can be called."""

    def __init__(self, document: Document) -> None:
        """Check the request. NotUnderstoodError."""
        self.document: Final = document
        self._check()

    @property
    def is_stream(self) -> bool:
        """True if the request asks for a stream of events."""
        return self.document.get("stream") is True

    def body(self, tools: Mapping[str, Tool], memory: Memory, said: Sequence[str] = (), *, ends: bool = False) -> bytes:
        """Return the request of a round: with the tools, the hidden rounds of earlier answers in `memory`, and those of this
        request in `said`.

        `ends`: no tool can be called in it.
        """
        edits = self.recalled(memory)
        edits += self.continued(said) if said else []
        # An edit that may add a member comes last: a value that ends where the members do has its own edits before that.
        edits.append(
            self.document.append("tools", [encoded(self.declared(name, tool)) for name, tool in tools.items()])
        )
        if ends:
            edits.append(self.document.put("tool_choice", self.no_choice))
        return spliced(self.document.text, edits).encode()

    def tool_names(self) -> frozenset[str]:
        """Return the names of the agent's own tools."""
        return frozenset(
            name for tool in self.document.get("tools") or () if isinstance(name := self.name_of(tool), str)
        )

    def _check(self) -> None:
        """Raise NotUnderstoodError if this is no request of the API, or one that cannot go on with tools of ours."""
        tools = self.document.get("tools")
        if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
            raise NotUnderstoodError("tools is no list of objects")
        if self.document.get("stream") not in (None, True, False):
            raise NotUnderstoodError("stream is neither true nor false")
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raise NotUnderstoodError if this API's request cannot be understood."""

    @abstractmethod
    def name_of(self, tool: dict[str, Any]) -> Any:
        """Return the name of a declared tool."""

    @abstractmethod
    def declared(self, name: str, tool: Tool) -> dict[str, Any]:
        """Return the declaration of a tool of ours in this API."""

    @abstractmethod
    def recalled(self, memory: Memory) -> list[Edit]:
        """Return the edits that put hidden rounds back into the conversation."""

    @abstractmethod
    def continued(self, said: Sequence[str]) -> list[Edit]:
        """Return the edits that put the rounds of this request behind it."""

    @abstractmethod
    def results(self, answered: Sequence[Answered]) -> tuple[str, ...]:
        """Return the results of calls as fragments of the conversation, behind what the model said."""

    @abstractmethod
    def answer(self, tools: Mapping[str, Tool]) -> Answer:
        """Return an empty answer to this request, for the agent."""

    @abstractmethod
    def entry(self, answer: Answer, said: Sequence[str], results: Sequence[Answered]) -> Mapping[str, Entry]:
        """Return what to remember of an answer, by key: all that was `said`, the last round included, and the `results` of our
        calls in that round. Only the keys matter for an answer without hidden rounds.
        """


class Answer(ABC):
    """The answer that one agent sees, over all rounds. A round is fed as events, or taken whole; then `end_round`."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools: Final = tools
        self.rounds = 0
        self._reset()

    @property
    def keep_alive(self) -> bytes:
        """Bytes that a client ignores in a stream, sent while a tool runs."""
        return b": aileron\n\n"

    def begin_round(self) -> None:
        """Begin a round: another answer of the provider comes."""
        self.rounds += 1
        self._reset()

    @abstractmethod
    def _reset(self) -> None:
        """Clear what is kept of one round, for the next."""

    @abstractmethod
    def feed(self, event: Event) -> bytes:
        """Take an event, and return what the agent sees of it at once."""

    @abstractmethod
    def take(self, document: dict[str, Any]) -> None:
        """Take a whole answer."""

    @abstractmethod
    def end_round(self) -> Round:
        """End the round, and return what the model said in it."""

    @abstractmethod
    def end(self) -> bytes:
        """Return the events that end the answer, which were held back."""

    @abstractmethod
    def whole(self) -> dict[str, Any]:
        """Return the whole answer, with all rounds that were taken."""

    @abstractmethod
    def failure(self, body: bytes) -> bytes:
        """Return a provider's error in a later round, as its API reports one within a stream."""

    def is_untouched(self) -> bool:
        """Return whether the agent may see what the provider said as it was."""
        return self.rounds == 1 and not self.has_hidden

    @property
    @abstractmethod
    def has_hidden(self) -> bool:
        """True if the model called a tool of ours."""

    def _called(self, id_: Any, name: Any, arguments: str) -> Called | None:
        """Return a call of ours; None for one of the agent's."""
        tool = self._tools.get(name) if isinstance(name, str) else None
        return None if tool is None else Called(str(id_), name, tool.name, arguments)


def rewritten(event: Event, data: dict[str, Any]) -> bytes:
    """Return an event with other data."""
    return written(event.name, encoded(data))


def parsed(event: Event) -> dict[str, Any] | None:
    """Return an event's data; None if it is no object. ValueError or RecursionError if other programs could read it otherwise."""
    try:
        data = loaded(event.data, MAX_EVENT_VALUES)
    except json.JSONDecodeError:
        return None
    return data if isinstance(data, dict) else None


def object_of(body: bytes) -> dict[str, Any]:
    """Return the object that a body is; an empty one if it is none."""
    try:
        return dict_of(json.loads(body))
    except (ValueError, RecursionError):
        return {}


def check_messages(document: Document, name: str) -> None:
    """Raise NotUnderstoodError if the conversation is no list of messages."""
    messages = document.get(name)
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise NotUnderstoodError(f"{name} is no list of objects")


def dict_of(value: Any) -> dict[str, Any]:
    """Return a value that should be an object; an empty one if it is none."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a value that should be an array; an empty one if it is none."""
    return value if isinstance(value, list) else []
