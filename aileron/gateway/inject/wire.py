"""What the three APIs have in common: the values that go in and out, and what the module of each API answers.

An `Ask` is one request of an agent that was understood. An `Answer` is what that agent sees, over all rounds: a round is one
request to the provider and its answer, and those in which the model called only our tools are hidden from the agent.

Names. A tool of ours is `aileron_` and its name, at most MAX_NAME characters. Where the agent declares that very name, the
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
"""Of one event, which is read on the loop: 20 ms. The longest has an answer's words, and one byte in twenty counts."""
NO_ERROR_OF_ITS_OWN: Final = "the API answered with an error that is none of its own"
"""What an agent reads in a stream where a provider failed and said nothing in the form of its API."""
_DIGEST: Final = 8
_SPACES: Final = b" \t\n\r\v\f"


class NotUnderstoodError(ValueError):
    """A request that is passed on as it is. Its words are ours, for the record."""


class Tool(msgspec.Struct, frozen=True):
    """What the model is to be offered, under its own name. `schema` is a JSON Schema of an object."""

    name: str
    description: str
    schema: Mapping[str, Any]


class Called(msgspec.Struct, frozen=True):
    """One call of a tool of ours. `name` is as the model said it, `tool` its own; `arguments` are JSON that nobody checked."""

    id: str
    name: str
    tool: str
    arguments: str


class Answered(msgspec.Struct, frozen=True):
    """What a model is told of a call."""

    call: Called
    text: str
    is_error: bool


class Round(msgspec.Struct, frozen=True):
    """What a model said in one round: calls of ours that may run, and the ids of the agent's. `said` are the fragments of JSON
    that say all of it in the next request, `shown` the same without calls of ours. `is_over`: the model came to an end.
    """

    calls: tuple[Called, ...]
    theirs: tuple[str, ...]
    said: tuple[str, ...]
    shown: tuple[str, ...]
    is_over: bool


def named(tools: Iterable[Tool], theirs: frozenset[str]) -> dict[str, Tool]:
    """The tools by the names that the model is told, sorted."""
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
    """A text as it is compared: agents trim it, and join what came in parts in ways of their own."""
    trimmed = "".join(part.strip() for part in parts).encode(errors="surrogatepass")
    return trimmed.translate(None, _SPACES).decode(errors="surrogatepass")


_MARKS: Final = frozenset({"cache_control"})
"""Members that a program moves from turn to turn."""


def canonical(value: Any) -> str:
    """Anything of a turn that is no text, as it is compared: without marks for the cache, members sorted."""
    return json.dumps(_unmarked(value), sort_keys=True, separators=(",", ":"))


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmarked(member) for name, member in value.items() if name not in _MARKS}
    return [_unmarked(member) for member in value] if isinstance(value, list) else value


def trail(root: str, turns: Iterable[Sequence[str] | None]) -> list[str]:
    """Digests of a conversation as its program sends it: before the first of the `turns`, and behind each. None says nothing.

    A key that has one is found again in this conversation alone: ids of calls, and words, are used again in others.
    """
    found = [root]
    for turn in turns:
        found.append(found[-1] if turn is None else key_of("turn", found[-1], *turn))
    return found


def added_usage(one: Any, other: Any) -> Any:
    """Two accounts of tokens as one: numbers are added, wherever they stand; of all else the later counts."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: added_usage(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, bool) or isinstance(other, bool):
        return other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one + other
    return one if other is None else other


class Ask(ABC):
    """One request of an agent."""

    wire: ClassVar[Wire]
    turns: ClassVar[str]
    """The member in which the conversation is."""
    no_choice: ClassVar[str]
    """What `tool_choice` is where no tool can be called."""

    def __init__(self, document: Document) -> None:
        """NotUnderstoodError."""
        self.document: Final = document
        self._check()

    @property
    def is_stream(self) -> bool:
        """Whether the answer is wanted in events."""
        return self.document.get("stream") is True

    def body(self, tools: Mapping[str, Tool], memory: Memory, said: Sequence[str] = (), *, ends: bool = False) -> bytes:
        """The request of a round: with the tools, what `memory` has of earlier answers, and what was said in the rounds before.

        `ends`: no tool can be called in it.
        """
        edits = self.recalled(memory)
        edits += self.continued(said) if said else []
        # What may be a new member comes last: a value that ends where the members do has its own edits before that.
        edits.append(
            self.document.append("tools", [encoded(self.declared(name, tool)) for name, tool in tools.items()])
        )
        if ends:
            edits.append(self.document.put("tool_choice", self.no_choice))
        return spliced(self.document.text, edits).encode()

    def tool_names(self) -> frozenset[str]:
        """What the agent's own tools are called."""
        return frozenset(
            name for tool in self.document.get("tools") or () if isinstance(name := self.name_of(tool), str)
        )

    def _check(self) -> None:
        """NotUnderstoodError for what is none of the API's requests, or none that can go on with tools of ours."""
        tools = self.document.get("tools")
        if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
            raise NotUnderstoodError("tools is no list of objects")
        if self.document.get("stream") not in (None, True, False):
            raise NotUnderstoodError("stream is neither true nor false")
        self.check()

    @abstractmethod
    def check(self) -> None:
        """NotUnderstoodError where this API's request cannot be understood."""

    @abstractmethod
    def name_of(self, tool: dict[str, Any]) -> Any:
        """The name of a declared tool."""

    @abstractmethod
    def declared(self, name: str, tool: Tool) -> dict[str, Any]:
        """A tool of ours as this API has it."""

    @abstractmethod
    def recalled(self, memory: Memory) -> list[Edit]:
        """What puts hidden rounds back into the conversation."""

    @abstractmethod
    def continued(self, said: Sequence[str]) -> list[Edit]:
        """What puts the rounds of this request behind it."""

    @abstractmethod
    def results(self, answered: Sequence[Answered]) -> tuple[str, ...]:
        """The results of calls as fragments of the conversation, behind what the model said."""

    @abstractmethod
    def answer(self, tools: Mapping[str, Tool]) -> Answer:
        """What the agent will see of it."""

    @abstractmethod
    def entry(self, answer: Answer, said: Sequence[str], results: Sequence[Answered]) -> Mapping[str, Entry]:
        """Return what to remember of an answer, by key: all that was `said`, the last round included, and the `results` of our
        calls in that round. Only the keys matter for an answer without hidden rounds.
        """


class Answer(ABC):
    """What one agent sees, over all rounds. A round is fed as events, or taken whole; then `end_round`."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools: Final = tools
        self.rounds = 0
        self._reset()

    @property
    def keep_alive(self) -> bytes:
        """What a client reads past while a tool runs."""
        return b": aileron\n\n"

    def begin_round(self) -> None:
        """Another answer of the provider comes."""
        self.rounds += 1
        self._reset()

    @abstractmethod
    def _reset(self) -> None:
        """What is kept of one round is empty: nothing of the next was said yet."""

    @abstractmethod
    def feed(self, event: Event) -> bytes:
        """What the agent sees of an event at once."""

    @abstractmethod
    def take(self, document: dict[str, Any]) -> None:
        """A whole answer."""

    @abstractmethod
    def end_round(self) -> Round:
        """It is over."""

    @abstractmethod
    def end(self) -> bytes:
        """The events that end the answer, which were held back."""

    @abstractmethod
    def whole(self) -> dict[str, Any]:
        """The answer whole, with all that was taken."""

    @abstractmethod
    def failure(self, body: bytes) -> bytes:
        """A provider's own error in a later round, as its API says one within a stream."""

    def is_untouched(self) -> bool:
        """Whether the agent may see what the provider said as it was."""
        return self.rounds == 1 and not self.has_hidden

    @property
    @abstractmethod
    def has_hidden(self) -> bool:
        """Whether the model called a tool of ours."""

    def _called(self, id_: Any, name: Any, arguments: str) -> Called | None:
        """A call of ours; None for one of the agent's."""
        tool = self._tools.get(name) if isinstance(name, str) else None
        return None if tool is None else Called(str(id_), name, tool.name, arguments)


def rewritten(event: Event, data: dict[str, Any]) -> bytes:
    """An event with other data."""
    return written(event.name, encoded(data))


def parsed(event: Event) -> dict[str, Any] | None:
    """An event's data; None where it is no object. ValueError or RecursionError where somebody else may read it otherwise."""
    try:
        data = loaded(event.data, MAX_EVENT_VALUES)
    except json.JSONDecodeError:
        return None
    return data if isinstance(data, dict) else None


def object_of(body: bytes) -> dict[str, Any]:
    """The object that a body is; an empty one where it is none."""
    try:
        return dict_of(json.loads(body))
    except (ValueError, RecursionError):
        return {}


def check_messages(document: Document, name: str) -> None:
    """NotUnderstoodError where the conversation is no list of messages."""
    messages = document.get(name)
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise NotUnderstoodError(f"{name} is no list of objects")


def dict_of(value: Any) -> dict[str, Any]:
    """A value that should be an object; an empty one where it is none."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """A value that should be an array; an empty one where it is none."""
    return value if isinstance(value, list) else []
