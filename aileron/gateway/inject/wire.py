"""The parts that the three APIs have in common: the values that their modules take and return, and the interface of
these modules.

An `Ask` is a parsed request of an agent. An `Answer` is the response that the agent sees, made from all rounds. A round is one
request to the provider and its response; rounds in which the model called only Aileron's tools are hidden from the agent.

Names. An Aileron tool is called `aileron_` plus its name, with at most MAX_NAME characters. If the agent declares a tool of the
same name, Aileron's tool becomes `aileron2_…`, and so on: a tool of the agent's is never renamed.

Pure. Source: docs/reference/injected-tools.md. Not here: sockets and time limits (exchange.py), the execution of a tool
(daemon/).

>>> named([Tool("send_mail", "Sends.", {})], frozenset({"aileron_send_mail"}))
{'aileron2_send_mail': Tool(name='send_mail', description='Sends.', schema={})}
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final, Literal

import msgspec

from aileron.gateway.inject.document import Document, Edit, encoded, loaded, spliced
from aileron.gateway.inject.events import Event, written
from aileron.gateway.inject.memory import Entry, Memory, key_of
from aileron.model.json_value import JSON, JSONObject, dict_of, list_of

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
"""Maximum number of characters of a tool's name in all three APIs; they are letters, digits, `_` and `-`."""
MAX_EVENT_VALUES: Final = 1 << 17
"""Maximum number of JSON values in one server-sent event. Such events are decoded on the event loop, which takes 20 ms
at this limit. The longest event repeats a complete answer, of which one byte in twenty counts as a value.
"""
NO_ERROR_OF_ITS_OWN: Final = "the API answered with an error that is none of its own"
"""Text that an agent gets in a stream if a provider failed and sent no error in the form of its API."""
_DIGEST: Final = 8
_SPACES: Final = b" \t\n\r\v\f"


class NotUnderstoodError(ValueError):
    """Error: Aileron's tools cannot be added to a request, which is passed on unchanged. The message is Aileron's own
    text, and is recorded.
    """


class Tool(msgspec.Struct, frozen=True):
    """A tool of Aileron's to offer to the model. `name` is its own name, which can differ from the name that the model
    sees. `schema` is a JSON Schema of an object.
    """

    name: str
    description: str
    schema: JSONObject


class Called(msgspec.Struct, frozen=True):
    """A call of one of Aileron's tools. `name` is the name that the model used, `tool` the tool's own name; `arguments`
    are unchecked JSON.
    """

    id: str
    name: str
    tool: str
    arguments: str


class Answered(msgspec.Struct, frozen=True):
    """A call of one of Aileron's tools with its result: the text for the model, and whether the text reports an error."""

    call: Called
    text: str
    is_error: bool


class Round(msgspec.Struct, frozen=True):
    """A model's answer in one round: the calls of Aileron's tools to run, and the ids of the calls of the agent's own tools.
    `said` are JSON fragments that repeat the complete answer in the next request; `shown` are these fragments without calls of
    Aileron's tools. `is_over` is true if the provider reported that the model has stopped, even if the stop cut the
    answer short; it is false if the answer broke off or failed.
    """

    calls: tuple[Called, ...]
    theirs: tuple[str, ...]
    said: tuple[str, ...]
    shown: tuple[str, ...]
    is_over: bool


def named(tools: Iterable[Tool], theirs: frozenset[str]) -> dict[str, Tool]:
    """Return the tools by the names under which the model gets them, sorted. `theirs` are the names of the agent's own tools;
    no tool of Aileron's gets one of these names.
    """
    found: dict[str, Tool] = {}
    for tool in sorted(tools, key=lambda tool: tool.name):
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
    """Return a text's parts joined, without ASCII whitespace, for comparison: agents trim texts, and join their parts
    in different ways.
    """
    trimmed = "".join(part.strip() for part in parts).encode(errors="surrogatepass")
    return trimmed.translate(None, _SPACES).decode(errors="surrogatepass")


_MARKS: Final = frozenset({"cache_control"})
"""Names of the JSON members that `canonical` leaves out, because agents move them from one turn to another."""


def canonical(value: JSON) -> str:
    """Encode a JSON value for comparison: without cache marks, and with sorted members."""
    return json.dumps(_unmarked(value), sort_keys=True, separators=(",", ":"))


def _unmarked(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {name: _unmarked(member) for name, member in value.items() if name not in _MARKS}
    return [_unmarked(member) for member in value] if isinstance(value, list) else value


def trail(root: str, turns: Iterable[Sequence[str] | None]) -> list[str]:
    """Return digests of a conversation as the agent sends it: `root` before the first of the `turns`, and one after
    each turn. A turn that is None does not change the digest.

    A key that contains one of these digests occurs only in this conversation. The ids of calls and the words alone can
    also occur in other conversations.
    """
    found = [root]
    for turn in turns:
        found.append(found[-1] if turn is None else key_of("turn", found[-1], *turn))
    return found


def added_usage(total: JSON, other: JSON) -> JSON:
    """Return the sum of the token counts of two answers, which are JSON. Numbers are added, at any depth. Any other
    value is taken from `other` if `other` has it.
    """
    if isinstance(total, dict) and isinstance(other, dict):
        return {name: added_usage(total.get(name), other.get(name)) for name in {**total, **other}}
    if isinstance(total, bool) or isinstance(other, bool):
        return other
    if isinstance(total, int | float) and isinstance(other, int | float):
        return total + other
    return total if other is None else other


class Ask(ABC):
    """Base class of an agent's request to a model's API."""

    wire: ClassVar[Wire]
    turns: ClassVar[str]
    """Name of the request's member that contains the conversation."""
    no_choice: ClassVar[str]
    """Value of the member `tool_choice` that forbids the model every tool call."""

    def __init__(self, document: Document) -> None:
        """Take the request's JSON object. Raises NotUnderstoodError if tools cannot be added to the request."""
        self.document: Final = document
        self._check()

    @property
    def is_stream(self) -> bool:
        """True if the request asks for a stream of events."""
        return self.document.get("stream") is True

    def body(self, tools: Mapping[str, Tool], memory: Memory, said: Sequence[str] = (), *, ends: bool = False) -> bytes:
        """Return the body of a round's request: with the tools, the hidden rounds of earlier answers from `memory`, and
        this request's earlier rounds from `said`.
        """
        edits = self.recalled(memory)
        edits += self.continued(said) if said else []
        # Edits that may add a member come last: they insert where the last member ends, after any edit at the end of its value.
        edits.append(
            self.document.append("tools", [encoded(self.declared(name, tool)) for name, tool in tools.items()])
        )
        if ends:
            edits.append(self.document.put("tool_choice", self.no_choice))
        return spliced(self.document.text, edits).encode()

    def tool_names(self) -> frozenset[str]:
        """Return the names of the agent's own tools."""
        return frozenset(
            name for tool in list_of(self.document.get("tools")) if isinstance(name := self.name_of(dict_of(tool)), str)
        )

    def _check(self) -> None:
        """Raise NotUnderstoodError if the JSON object is not a request of the API, or Aileron's tools cannot be added
        to it.
        """
        tools = self.document.get("tools")
        if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
            raise NotUnderstoodError("tools is no list of objects")
        if self.document.get("stream") not in (None, True, False):
            raise NotUnderstoodError("stream is neither true nor false")
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raise NotUnderstoodError if a part of the request that only this API has cannot be understood."""

    @abstractmethod
    def name_of(self, tool: JSONObject) -> JSON:
        """Return the name that a tool's declaration in the request has."""

    @abstractmethod
    def declared(self, name: str, tool: Tool) -> JSONObject:
        """Return the declaration of one of Aileron's tools in this API."""

    @abstractmethod
    def recalled(self, memory: Memory) -> list[Edit]:
        """Return the edits of the request's text that insert the hidden rounds of earlier answers into the
        conversation.
        """

    @abstractmethod
    def continued(self, said: Sequence[str]) -> list[Edit]:
        """Return the edits of the request's text that append this request's earlier rounds (`said`) to the
        conversation.
        """

    @abstractmethod
    def results(self, answered: Sequence[Answered]) -> tuple[str, ...]:
        """Return the results of these calls as JSON fragments of the conversation, which follow the model's answer."""

    @abstractmethod
    def answer(self, tools: Mapping[str, Tool]) -> Answer:
        """Return an empty answer to this request, to be filled from the provider's response in each round."""

    @abstractmethod
    def entry(self, answer: Answer, said: Sequence[str], results: Sequence[Answered]) -> Mapping[str, Entry]:
        """Return the memory entries that store the hidden rounds of an answer, by key: everything that was `said`,
        including the last round, and the `results` of the calls of Aileron's tools in that round. For an answer without
        hidden rounds, only the keys matter.
        """


class Answer(ABC):
    """Base class of the answer that an agent sees, made from all rounds. Each round is passed in as events (`feed`) or
    complete (`take`); then `end_round` is called.
    """

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools: Final = tools
        self.rounds = 0
        self._reset()

    @property
    def keep_alive(self) -> bytes:
        """Bytes that a client ignores in a stream. They are sent while a tool runs."""
        return b": aileron\n\n"

    def begin_round(self) -> None:
        """Begin a round, in which the provider gives another answer."""
        self.rounds += 1
        self._reset()

    @abstractmethod
    def _reset(self) -> None:
        """Clear the state of one round, for the next round."""

    @abstractmethod
    def feed(self, event: Event) -> bytes:
        """Take an event of the provider's stream, and return the bytes of it that are sent to the agent at once."""

    @abstractmethod
    def take(self, document: JSONObject) -> None:
        """Take the provider's answer in a round that was not streamed."""

    @abstractmethod
    def end_round(self) -> Round:
        """End the round, and return the model's answer in it."""

    @abstractmethod
    def end(self) -> bytes:
        """Return the bytes of the events that end the answer, which were held back."""

    @abstractmethod
    def whole(self) -> JSONObject:
        """Return the complete answer that the agent sees, over all rounds, as a JSON object."""

    @abstractmethod
    def failure(self, body: bytes) -> bytes:
        """Return a provider's error response in a later round, in the form in which its API reports an error within a
        stream.
        """

    def is_untouched(self) -> bool:
        """Return whether the provider's answer can be sent to the agent unchanged.

        It can if the provider answered once and the answer has no call of an injected tool, which the gateway hides.
        """
        return self.rounds == 1 and not self.has_hidden

    @property
    @abstractmethod
    def has_hidden(self) -> bool:
        """True if the model called one of Aileron's tools."""

    def _called(self, id_: JSON, name: JSON, arguments: str) -> Called | None:
        """Return a model's call if it calls one of Aileron's tools; None if it calls one of the agent's own."""
        if not isinstance(name, str) or (tool := self._tools.get(name)) is None:
            return None
        return Called(str(id_), name, tool.name, arguments)


def rewritten(event: Event, data: JSONObject) -> bytes:
    """Return the bytes of an event with the name of `event`, and with `data`."""
    return written(event.name, encoded(data))


def parsed(event: Event) -> JSONObject | None:
    """Return an event's data; None if the data is not a JSON object. Raises ValueError or RecursionError for JSON that
    other programs could read differently.
    """
    try:
        data = loaded(event.data, MAX_EVENT_VALUES)
    except json.JSONDecodeError:
        return None
    return data if isinstance(data, dict) else None


def object_of(body: bytes) -> JSONObject:
    """Return the JSON object that the body of a response contains; an empty one if it contains none."""
    try:
        return dict_of(json.loads(body))
    except (ValueError, RecursionError):
        return {}


def check_messages(document: Document, name: str) -> None:
    """Raise NotUnderstoodError if the member `name`, which contains the conversation, is not a list of messages."""
    messages = document.get(name)
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise NotUnderstoodError(f"{name} is no list of objects")
