"""OpenAI's Chat Completions: Aileron's tools are added to a request, and calls of them are hidden from the answer.

Rules
- The agent sees one completion: the first round's `id` and `created`, the texts of all rounds separated by empty lines,
  the calls of its own tools numbered from 0, the last round's `finish_reason`, and the token counts of all rounds, if
  the agent asked for them.
- Fields of a message that OpenAI's API does not define, such as `reasoning_content` of other providers, are repeated in
  the next round.
- A request for more than one choice (`n`) or with `functions`, the API's old form, is passed on without Aileron's
  tools.

Pure. Source: platform.openai.com, "Chat Completions", "Function calling". Not here: I/O (exchange.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from aileron.gateway.inject.document import Edit, encoded
from aileron.gateway.inject.events import Event, written
from aileron.gateway.inject.memory import Entry, Memory, key_of
from aileron.gateway.inject.wire import (
    NO_ERROR_OF_ITS_OWN,
    Answer,
    Answered,
    Ask,
    Called,
    NotUnderstoodError,
    Round,
    Tool,
    Wire,
    added_usage,
    canonical,
    check_messages,
    object_of,
    parsed,
    rewritten,
    text_of,
    trail,
)
from aileron.model.json_value import JSON, JSONObject, dict_of, list_of

__all__ = ["ChatAnswer", "ChatAsk"]

_BETWEEN: Final = "\n\n"
_DONE: Final = "[DONE]"
_OURS: Final = ("role", "content", "tool_calls")
"""Fields of a streamed message that this module assembles by rules of their own. The pieces of all other text fields
are joined.
"""
_SAID_ONCE: Final = ("annotations", "audio", "function_call", "parsed")
"""Fields of a model's message that the API sends but does not accept when a later request repeats the message."""


class ChatAsk(Ask):
    """An agent's request `POST /v1/chat/completions`."""

    wire: ClassVar[Wire] = "chat"
    turns: ClassVar[str] = "messages"
    no_choice: ClassVar[str] = '"none"'

    def check(self) -> None:
        """Raise NotUnderstoodError unless the request has messages, asks for one choice, and does not use the old form
        of tools (functions).
        """
        check_messages(self.document, self.turns)
        if self.document.get("n") not in (None, 1):
            raise NotUnderstoodError("n is more than 1")
        if self.document.get("functions") is not None or self.document.get("function_call") is not None:
            raise NotUnderstoodError("it uses functions, the old form of tools")

    def name_of(self, tool: JSONObject) -> JSON:
        """Return the name in a tool's declaration, which is that of a function or of a custom tool."""
        return dict_of(tool.get(str(tool.get("type")))).get("name")

    def declared(self, name: str, tool: Tool) -> JSONObject:
        """Return the declaration of one of Aileron's tools in this API: a function that is not strict, because strict
        schemas have no optional arguments.
        """
        return {
            "type": "function",
            "function": {"name": name, "description": tool.description, "parameters": tool.schema},
        }

    def recalled(self, memory: Memory) -> list[Edit]:
        """Return edits that replace each assistant message by the complete messages that the memory has for it, with
        the calls of Aileron's tools and their results.
        """
        edits: list[Edit] = []
        if memory.is_empty:
            return edits
        for before, message in zip(self._trail(), self.document.elements(self.turns), strict=False):
            said = message.members
            if said.get("role") != "assistant" or (entry := memory.get(_key(before, said))) is None:
                continue
            edits.append(Edit(message.start, message.end, ",".join((*entry.said, *entry.results))))
        return edits

    def continued(self, said: Sequence[str]) -> list[Edit]:
        """Return the edit that appends the JSON messages `said`, which are this request's earlier rounds, to the
        agent's messages.
        """
        return [self.document.append(self.turns, said)]

    def results(self, answered: Sequence[Answered]) -> tuple[str, ...]:
        """Return a `tool` message, as JSON, for the result of each of these calls. The API has no field that marks an
        error, so only the text shows it.
        """
        return tuple(
            encoded({"role": "tool", "tool_call_id": answer.call.id, "content": answer.text}) for answer in answered
        )

    def answer(self, tools: Mapping[str, Tool]) -> ChatAnswer:
        """Return an empty completion, to be filled from the provider's response in each round."""
        return ChatAnswer(tools)

    def entry(self, answer: Answer, said: Sequence[str], results: Sequence[Answered]) -> Mapping[str, Entry]:
        """Return the memory entry that stores the hidden rounds of an answer, under the key of the message that the
        agent will send back.
        """
        message = dict_of(_choice(answer.whole()).get("message"))
        return {_key(self._trail()[-1], message): Entry(tuple(said), self.results(results))}

    def _trail(self) -> list[str]:
        return trail("", (_turn(message.members) for message in self.document.elements(self.turns)))


class ChatAnswer(Answer):
    """The completion that an agent sees as the answer to a Chat Completions request, made from all rounds."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        super().__init__(tools)
        self._first: JSONObject = {}
        self._last: JSONObject = {}
        self._usage: JSON = None
        self._texts: list[str] = []
        self._calls: list[JSONObject] = []
        """Calls of the agent's own tools, as the agent sees them."""
        self._hidden = False
        self._is_whole = False

    @property
    def has_hidden(self) -> bool:
        """True if a call of one of Aileron's tools was hidden from the agent."""
        return self._hidden

    def _reset(self) -> None:
        """Reset the state of one round, for the next round: begin to count calls from 0 again, with an empty text."""
        self._text: list[str] = []
        self._more: JSONObject = {}
        self._grown: dict[str, list[str]] = {}
        """Pieces of the message's other text fields, by field name. They are joined when the round ends, like the
        pieces of calls.
        """
        self._parts: dict[int, _Parts] = {}
        self._round_calls: dict[int, JSONObject] = {}
        self._places: dict[int, int | None] = {}
        """Position of each call among the calls that the agent sees, by the call's index in this round; None for a call
        of one of Aileron's tools. A call is added when its name is known.
        """
        self._held: list[Event] = []
        self._used: JSON = None
        self._finish: JSON = None

    def feed(self, event: Event) -> bytes:
        """Return the bytes that the agent sees of a provider's event: texts, and calls of the agent's own tools. The
        events that end the answer are held back.
        """
        data = parsed(event)
        if data is None:
            if event.data == _DONE:
                self._held.append(event)
                return b""
            return event.raw
        choices = data.get("choices")
        if not isinstance(choices, list):
            return event.raw
        if not self._first.get("id"):
            self._first = data
        self._last = data
        if data.get("usage") is not None:
            self._used = data["usage"]
        if not choices:
            if self._finish is None:  # one provider sends data about the request before all else
                return event.raw if self.rounds == 1 else b""
            self._held.append(event)
            return b""
        return self._of_choice(event, data, dict_of(choices[0]))

    def take(self, document: JSONObject) -> None:
        """Take the provider's completion in a round that was not streamed."""
        self._is_whole = True
        self._first = self._first or document
        self._last = document
        self._used = document.get("usage")
        choice = _choice(document)
        self._finish = choice.get("finish_reason")
        message = dict_of(choice.get("message"))
        if isinstance(content := message.get("content"), str):
            self._text.append(content)
        self._more = {name: value for name, value in message.items() if name not in (*_OURS, *_SAID_ONCE)}
        for index, call in enumerate(list_of(message.get("tool_calls"))):
            self._grow(index, dict_of(call))

    def end_round(self) -> Round:
        """End the round, and return the model's answer in it. It has calls to run only if the finish reason is
        `tool_calls` or `stop`.
        """
        self._usage = added_usage(self._usage, self._used)
        for index, call in self._round_calls.items():
            _settle(call, self._parts[index])
        text = "".join(self._text)
        if text:
            self._texts.append(text)
        calls: list[Called] = []
        theirs: list[str] = []
        for _, call in sorted(self._round_calls.items()):
            function = dict_of(call.get("function"))
            called = self._called(call.get("id"), function.get("name"), str(function.get("arguments") or "{}"))
            if called is None:
                theirs.append(str(call.get("id")))
            else:
                calls.append(called)
        more = {
            name: "".join(self._grown[name]) if name in self._grown else value
            for name, value in self._more.items()
            if value is not None
        }
        message: JSONObject = {"role": "assistant", "content": text or None, **more}
        every = [call for _, call in sorted(self._round_calls.items())]
        shown = [call for index, call in sorted(self._round_calls.items()) if self._places.get(index) is not None]
        is_over = self._finish in ("tool_calls", "stop")
        return Round(
            tuple(calls) if is_over else (),
            tuple(theirs),
            (_assistant(message, every),),
            (_assistant(message, shown),),
            self._finish is not None,
        )

    def end(self) -> bytes:
        """Return the events with the finish reason, the token counts of all rounds, and the end of the stream."""
        return b"".join(self._told(event) for event in self._held)

    def whole(self) -> JSONObject:
        """Return the complete completion that the agent sees: the last round's, with the first round's id, the texts of
        all rounds, and the calls of the agent's own tools.
        """
        if self.is_untouched() and self._is_whole:
            return self._last
        choice = _choice(self._last)
        message = {"role": "assistant", **dict_of(choice.get("message")), "content": _BETWEEN.join(self._texts) or None}
        message.pop("tool_calls", None)
        if self._calls:
            message["tool_calls"] = [*self._calls]
        choice = {**choice, "message": message, "finish_reason": self._reason(choice.get("finish_reason"))}
        completion: JSONObject = {**self._last, **self._identity(), "choices": [choice]}
        return {**completion, "usage": self._usage} if self._usage is not None else completion

    def failure(self, body: bytes) -> bytes:
        """Return a provider's error response in the form in which the API reports an error within a stream."""
        error = object_of(body).get("error") or {"type": "server_error", "message": NO_ERROR_OF_ITS_OWN}
        return written("", encoded({"error": error}))

    def _of_choice(self, event: Event, data: JSONObject, choice: JSONObject) -> bytes:
        delta = dict_of(choice.get("delta"))
        seen = self._seen(delta)
        finish = choice.get("finish_reason")
        if finish is not None:
            self._finish = finish
        if self.is_untouched():
            if finish is None:
                return event.raw
            self._held.append(event)
            return b""
        if finish is not None:
            last = {**data, "choices": [{**choice, "delta": {}}]}
            self._held.append(Event(b"", event.name, encoded(last)))
        if not seen:
            return b""
        shown: JSONObject = {**data, **self._identity(), "choices": [{**choice, "delta": seen, "finish_reason": None}]}
        shown.pop("usage", None)
        return rewritten(event, shown)

    def _seen(self, delta: JSONObject) -> JSONObject:
        """Process a delta (a piece of the message) of the provider's stream. Return the part of it that the agent sees,
        in which the calls of the agent's own tools have new positions; empty if the agent sees nothing of it.
        """
        seen = {name: value for name, value in delta.items() if name not in _OURS}
        for name, value in seen.items():
            if isinstance(value, str) and name in self._grown:
                self._grown[name].append(value)
            elif value is not None:
                self._more[name] = value
                self._grown.pop(name, None)
                if isinstance(value, str):
                    self._grown[name] = [value]
        content = delta.get("content")
        if isinstance(content, str) and content:
            seen["content"] = (_BETWEEN if self._texts and not self._text else "") + content
            self._text.append(content)
        calls: list[JSON] = []
        for number, call in enumerate(list_of(delta.get("tool_calls"))):
            index = dict_of(call).get("index", number)
            if isinstance(index, int) and (shown := self._grow(index, dict_of(call))) is not None:
                calls.append(shown)
        if calls:
            seen["tool_calls"] = calls
        if self.rounds == 1 and "role" in delta:
            return {"role": delta["role"], **({"content": content} if content is not None else {}), **seen}
        return seen

    def _grow(self, index: int, piece: JSONObject) -> JSONObject | None:
        """Add a piece of the provider's stream to the tool call at `index`. Return the part that the agent sees: once
        the call's name is known, first the complete call so far, then each piece. Return None if the agent sees
        nothing.
        """
        call = self._round_calls.setdefault(index, {})
        parts = self._parts.setdefault(index, {})
        _join(call, {name: value for name, value in piece.items() if name != "index"}, parts)
        is_new = index not in self._places
        if is_new:
            name = dict_of(call.get(str(call.get("type", "function")))).get("name")
            if not isinstance(name, str) or not name:
                return None
            _settle(call, parts)
            is_ours = self._called("", name, "") is not None
            self._hidden |= is_ours
            self._places[index] = None if is_ours else len(self._calls)
            if not is_ours:
                self._calls.append(call)
        place = self._places[index]
        if place is None:
            return None
        return {**(json.loads(encoded(call)) if is_new else piece), "index": place}

    def _told(self, event: Event) -> bytes:
        data = parsed(event)
        if self.is_untouched() or data is None:
            return event.raw
        data |= self._identity()
        if data.get("choices"):
            choice = _choice(data)
            data["choices"] = [{**choice, "finish_reason": self._reason(choice.get("finish_reason"))}]
        if data.get("usage") is not None:
            data["usage"] = self._usage
        return rewritten(event, data)

    def _identity(self) -> JSONObject:
        return {name: self._first[name] for name in ("id", "created") if name in self._first}

    def _reason(self, reason: JSON) -> JSON:
        """Return the finish reason that the agent sees, for the model's finish reason. It is `stop` instead of
        `tool_calls` if the model called only Aileron's tools, because the agent would otherwise wait for calls that it
        does not see.
        """
        return "stop" if reason == "tool_calls" and not self._calls else reason


def _assistant(message: JSONObject, calls: list[JSONObject]) -> str:
    return encoded({**message, "tool_calls": [*calls]} if calls else message)


_Parts = dict[tuple[str, ...], list[str]]
"""Type of the pieces of a tool call's texts, by the path of the text in the JSON of the call."""


def _choice(document: JSONObject) -> JSONObject:
    return dict_of(next(iter(list_of(document.get("choices"))), None))


def _settle(call: JSONObject, parts: _Parts) -> None:
    """Join the texts of a tool call that came in pieces, and store them at their paths in the call."""
    for (*way, name), texts in parts.items():
        at = call
        for step in way:
            at = dict_of(at.get(step))
        at[name] = "".join(texts)
    parts.clear()


def _join(call: JSONObject, piece: JSONObject, parts: _Parts, way: tuple[str, ...] = ()) -> None:
    """Merge a piece of a streamed tool call into `call`. Only the call's arguments come in pieces, which are collected
    in `parts`; other fields come whole.
    """
    for name, value in piece.items():
        known = call.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            _join(known, value, parts, (*way, name))
        elif name in ("arguments", "input") and isinstance(value, str) and isinstance(known, str):
            parts.setdefault((*way, name), [known]).append(value)
        elif value is not None and (value != "" or name not in call):
            call[name] = dict(value) if isinstance(value, dict) else value


def _key(before: str, message: JSONObject) -> str:
    """Return the memory key of an assistant's message. It is made from `before`, which is the digest of all earlier
    turns, and from the ids of the message's calls, or from its text if it has no calls.
    """
    ids = [str(dict_of(call).get("id")) for call in list_of(message.get("tool_calls"))]
    if ids:
        return key_of("chat, calls", before, *ids)
    return key_of("chat", before, _text(message))


def _turn(message: JSONObject) -> list[str] | None:
    """Return a message of the conversation as strings, from which the digest of the conversation is made. Return None
    for instructions, because some programs write the time into them.
    """
    if message.get("role") in ("system", "developer"):
        return None
    content = message.get("content")
    rest = [part for part in content if dict_of(part).get("type") != "text"] if isinstance(content, list) else []
    calls = list_of(message.get("tool_calls"))
    called = str(message.get("tool_call_id", ""))
    return [str(message.get("role")), called, _text(message), *map(canonical, (*rest, *calls))]


def _text(message: JSONObject) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return text_of([content])
    parts = content if isinstance(content, list) else []
    return text_of(str(part.get("text", "")) for part in parts if isinstance(part, dict))
