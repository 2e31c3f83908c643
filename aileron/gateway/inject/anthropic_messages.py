"""Anthropic's Messages: Aileron's tools are added to a request, and calls of them are hidden from the answer.

Rules
- A content block of the model is repeated unchanged in the next round: `thinking` with its signature, `redacted_thinking`, the
  blocks of the provider's own tools. Only an empty text is left out, because the API does not accept one from a client.
- The agent sees one message: the first round's id, the blocks of all rounds numbered consecutively, the last round's
  `stop_reason`, and the token counts of all rounds.
- In a turn with calls of both the agent's and Aileron's tools, Aileron's tools run before the message ends. In the
  agent's next request, their results are inserted before the results of the agent's tools.

Pure. Source: docs.anthropic.com, "Messages", "Streaming", "Tool use", "Extended thinking". Not here: I/O (exchange.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from aileron.gateway.inject.document import Document, Edit, Value, encoded, loaded
from aileron.gateway.inject.events import Event, written
from aileron.gateway.inject.memory import Entry, Memory, key_of
from aileron.gateway.inject.wire import (
    NO_ERROR_OF_ITS_OWN,
    Answer,
    Answered,
    Ask,
    Called,
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

__all__ = ["MessagesAnswer", "MessagesAsk"]

_DELTAS: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_USED: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "server_tool_use")
"""Token counts in the `usage` of the stream's first event that the stream's last event can repeat."""


class MessagesAsk(Ask):
    """An agent's request `POST /v1/messages`."""

    wire: ClassVar[Wire] = "messages"
    turns: ClassVar[str] = "messages"
    no_choice: ClassVar[str] = '{"type":"none"}'

    def check(self) -> None:
        """Raise NotUnderstoodError unless the request has messages."""
        check_messages(self.document, self.turns)

    def name_of(self, tool: JSONObject) -> JSON:
        """Return the name in a tool's declaration; the provider's own server tools have a name as well."""
        return tool.get("name")

    def declared(self, name: str, tool: Tool) -> JSONObject:
        """Return the declaration of one of Aileron's tools in this API, without `cache_control`, because a cache
        breakpoint that the agent set after its own tools covers this tool too.
        """
        return {"name": name, "description": tool.description, "input_schema": tool.schema}

    def recalled(self, memory: Memory) -> list[Edit]:
        """Return edits that replace each assistant message by the complete messages, with calls of Aileron's tools,
        that the memory has for it. The results of these calls are inserted before the results of the agent's own calls.
        """
        edits: list[Edit] = []
        if memory.is_empty:
            return edits
        messages = self.document.elements(self.turns)
        trails = self._trail()
        for before, message, after in zip(trails[1:], messages[1:], (*messages[2:], None), strict=False):
            said = message.members
            if said.get("role") != "assistant" or (entry := memory.get(_key(before, said))) is None:
                continue
            results: list[Edit] = []
            if entry.results:
                at = None if after is None or not _answers_calls(after.members) else self._content_at(after)
                if at is None:
                    continue
                results = [Edit(at, at, "".join(f"{result}," for result in entry.results))]
            edits += [Edit(message.start, message.end, _marked(",".join(entry.said), said)), *results]
        return edits

    def _trail(self) -> list[str]:
        return trail("", (_turn(message.members) for message in self.document.elements(self.turns)))

    def _content_at(self, message: Value) -> int | None:
        """Return the index in the text at which a message's content blocks begin; None if the message has no content,
        or if two programs could read different content in it.
        """
        try:
            content = Document.at(self.document.text, message.start).find("content")
        except ValueError:
            return None
        return None if content is None else content.start + 1

    def continued(self, said: Sequence[str]) -> list[Edit]:
        """Return the edit that appends the JSON messages `said`, which are this request's earlier rounds, to the
        agent's messages.
        """
        return [self.document.append(self.turns, said)]

    def results(self, answered: Sequence[Answered]) -> tuple[str, ...]:
        """Return one user message, as JSON, with the results of these calls of Aileron's tools."""
        return (f'{{"role":"user","content":[{",".join(map(_result, answered))}]}}',)

    def answer(self, tools: Mapping[str, Tool]) -> MessagesAnswer:
        """Return an empty message, to be filled from the provider's response in each round."""
        return MessagesAnswer(tools)

    def entry(self, answer: Answer, said: Sequence[str], results: Sequence[Answered]) -> Mapping[str, Entry]:
        """Return the memory entry that stores the hidden rounds of an answer, under the key of the message that the
        agent will send back.
        """
        key = _key(self._trail()[-1], {"role": "assistant", "content": answer.whole().get("content")})
        return {key: Entry(tuple(said), tuple(map(_result, results)))}


class MessagesAnswer(Answer):
    """The message that an agent sees as the answer to a Messages request, made from all rounds."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        super().__init__(tools)
        self._visible: list[JSONObject] = []
        self._theirs: list[str] = []
        self._first: JSONObject = {}
        self._last: JSONObject = {}
        self._usage: JSON = {}
        self._hidden = False
        self._is_whole = False

    @property
    def keep_alive(self) -> bytes:
        """A ping event, in the form of the API, which the agent ignores."""
        return written("ping", '{"type":"ping"}')

    @property
    def has_hidden(self) -> bool:
        """True if a content block was hidden from the agent, because it calls one of Aileron's tools."""
        return self._hidden

    def _reset(self) -> None:
        """Reset the state of one round, for the next round: begin to count content blocks from 0 again."""
        self._blocks: dict[int, JSONObject] = {}
        self._inputs: dict[int, list[str]] = {}
        self._grown: dict[int, dict[str, list[JSON]]] = {}
        """Pieces of the texts and citations of content blocks that arrived after the start of the block, by the block's
        index and the field's name. They are joined when the round ends.
        """
        self._places: dict[int, int | None] = {}
        self._held: list[tuple[Event, JSONObject]] = []
        self._used: JSONObject = {}
        self._stop: JSON = None

    def feed(self, event: Event) -> bytes:
        """Return the bytes that the agent sees of a provider's event: content blocks are renumbered over all rounds.
        The events that end the message are held back.
        """
        data = parsed(event)
        match None if data is None else data.get("type"):
            case "message_start":
                return self._started(event, data or {})
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                return self._of_block(event, data or {})
            case "message_delta" | "message_stop":
                self._held.append((event, data or {}))
                self._ending(data or {})
                return b""
        return event.raw

    def take(self, document: JSONObject) -> None:
        """Take the provider's message in a round that was not streamed."""
        self._is_whole = True
        self._first = self._first or document
        self._last = document
        self._used = dict_of(document.get("usage"))
        self._stop = document.get("stop_reason")
        for index, block in enumerate(list_of(document.get("content"))):
            self._add(index, dict_of(block))

    def end_round(self) -> Round:
        """End the round, and return the model's answer in it. It has calls to run only if the model's stop reason is
        `tool_use`.
        """
        self._usage = added_usage(self._usage, self._used)
        for index, parts in self._inputs.items():
            text = "".join(parts).strip() or "{}"
            self._blocks[index]["input"] = _input(text)
            if (place := self._places[index]) is not None:
                self._visible[place]["input"] = _input(text)
        for index, fields in self._grown.items():
            place = self._places[index]
            for block in (self._blocks[index], *(() if place is None else (self._visible[place],))):
                _put_together(block, fields)
        calls: list[Called] = []
        theirs: list[str] = []
        for index, block in sorted(self._blocks.items()):
            if block.get("type") != "tool_use":
                continue
            arguments = "".join(self._inputs.get(index, ())) or encoded(block.get("input") or {})
            called = self._called(block.get("id"), block.get("name"), arguments)
            if called is None:
                theirs.append(str(block.get("id")))
            else:
                calls.append(called)
        self._theirs += theirs
        blocks = [(index, block) for index, block in sorted(self._blocks.items()) if not _is_empty(block)]
        said = _assistant([block for _, block in blocks])
        shown = _assistant([block for index, block in blocks if self._places[index] is not None])
        return Round(
            tuple(calls) if self._stop == "tool_use" else (), tuple(theirs), said, shown, self._stop is not None
        )

    def end(self) -> bytes:
        """Return the events `message_delta`, with the token counts of all rounds, and `message_stop`."""
        return b"".join(self._told(event, data) for event, data in self._held)

    def whole(self) -> JSONObject:
        """Return the complete message that the agent sees: the last round's, with the first round's id and the blocks
        of all rounds.
        """
        if self.is_untouched() and self._is_whole:
            return self._last
        message: JSONObject = {**self._last, "content": [*self._visible], "usage": self._usage}
        if self._first.get("id") is not None:
            message["id"] = self._first["id"]
        if "stop_reason" in message:
            message["stop_reason"] = self._reason(message["stop_reason"])
        return message

    def failure(self, body: bytes) -> bytes:
        """Return a provider's error response as an event of the agent's stream. The event has the same JSON as the
        response.
        """
        return written("error", encoded(_error(body)))

    def _started(self, event: Event, data: JSONObject) -> bytes:
        message = dict_of(data.get("message"))
        self._used = dict_of(message.get("usage"))
        self._last = message
        if self._first:
            return b""
        self._first = message
        return event.raw

    def _of_block(self, event: Event, data: JSONObject) -> bytes:
        index = data.get("index")
        if not isinstance(index, int):
            return event.raw
        match data["type"]:
            case "content_block_start":
                self._add(index, dict_of(data.get("content_block")))
            case "content_block_delta":
                self._grow(index, dict_of(data.get("delta")))
        place = self._places.get(index, index)
        if place is None:
            return b""
        return event.raw if place == index else rewritten(event, {**data, "index": place})

    def _add(self, index: int, block: JSONObject) -> None:
        self._blocks[index] = dict(block)
        self._grown.pop(index, None)
        is_ours = block.get("type") == "tool_use" and self._called("", block.get("name"), "") is not None
        self._hidden |= is_ours
        self._places[index] = None if is_ours else len(self._visible)
        if not is_ours:
            self._visible.append(dict(block))

    def _grow(self, index: int, delta: JSONObject) -> None:
        if index not in self._blocks:
            return
        kind = str(delta.get("type"))
        if kind == "input_json_delta":
            self._inputs.setdefault(index, []).append(str(delta.get("partial_json", "")))
            return
        fields = self._grown.setdefault(index, {})
        if kind == "citations_delta":
            fields.setdefault("citations", []).append(delta.get("citation"))
            return
        name = _DELTAS.get(kind, kind.removesuffix("_delta"))
        fields.setdefault(name, []).append(str(delta.get(name) or ""))

    def _ending(self, data: JSONObject) -> None:
        delta = dict_of(data.get("delta"))
        if "stop_reason" in delta:
            self._stop = delta["stop_reason"]
        self._last = {**self._last, **delta}
        counted = {name: value for name, value in dict_of(data.get("usage")).items() if value is not None}
        self._used = {**self._used, **counted}

    def _told(self, event: Event, data: JSONObject) -> bytes:
        if self.is_untouched() or data.get("type") != "message_delta":
            return event.raw
        delta = dict_of(data.get("delta"))
        named = {*dict_of(data.get("usage")), *_USED}
        usage: JSONObject = {
            name: value for name, value in dict_of(self._usage).items() if name in named and value is not None
        }
        if "stop_reason" in delta:
            delta = {**delta, "stop_reason": self._reason(delta["stop_reason"])}
        return rewritten(event, {**data, "delta": delta, "usage": usage})

    def _reason(self, reason: JSON) -> JSON:
        """Return the stop reason that the agent sees, for the model's stop reason. It is `end_turn` instead of
        `tool_use` if the model called only Aileron's tools, because the agent would otherwise wait for calls that it
        does not see.
        """
        return "end_turn" if reason == "tool_use" and not self._theirs else reason


def _put_together(block: JSONObject, fields: Mapping[str, Sequence[JSON]]) -> None:
    for name, parts in fields.items():
        if name == "citations":
            block[name] = [*list_of(block.get(name)), *parts]
        else:
            block[name] = "".join((str(block.get(name) or ""), *map(str, parts)))


def _key(before: str, message: JSONObject) -> str:
    """Return the memory key of an assistant's message. It is made from `before`, which is the digest of all earlier
    turns, and from the ids of the message's calls, or from its text if it has no calls.
    """
    if ids := _ids(message, "tool_use", "id"):
        return key_of("messages, calls", before, *ids)
    return key_of("messages", before, _texts(message))


def _turn(message: JSONObject) -> list[str]:
    """Return a message of the conversation as strings, from which the digest of the conversation is made. Thinking
    blocks are left out, because programs drop them from older turns.
    """
    rest = [block for block in _blocks(message) if block.get("type") not in ("text", "thinking", "redacted_thinking")]
    return [str(message.get("role")), _texts(message), *(canonical(_plain(block)) for block in rest)]


def _plain(block: JSONObject) -> JSONObject:
    """Return a content block. If it is a tool result, its content is a list of text blocks, even if it was a string.
    Any other block is unchanged.
    """
    content = block.get("content")
    if block.get("type") == "tool_result" and (content is None or isinstance(content, str)):
        return {**block, "content": [{"type": "text", "text": content}] if content else []}
    return block


def _blocks(message: JSONObject) -> list[JSONObject]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _texts(message: JSONObject) -> str:
    return text_of(str(block.get("text", "")) for block in _blocks(message) if block.get("type") == "text")


def _ids(message: JSONObject, kind: str, name: str) -> list[str]:
    return [str(block.get(name)) for block in _blocks(message) if block.get("type") == kind]


def _answers_calls(message: JSONObject) -> bool:
    return message.get("role") == "user" and bool(_ids(message, "tool_result", "tool_use_id"))


def _marked(said: str, message: JSONObject) -> str:
    """Return the JSON messages `said`, which replace `message`, with the `cache_control` of its last block, if that
    block has one.
    """
    blocks = _blocks(message)
    mark = blocks[-1].get("cache_control") if blocks else None
    end = "}]}"
    if mark is None or not said.endswith(end):
        return said
    return f'{said.removesuffix(end)},"cache_control":{encoded(mark)}{end}'


def _result(answered: Answered) -> str:
    result: JSONObject = {"type": "tool_result", "tool_use_id": answered.call.id, "content": answered.text}
    return encoded({**result, "is_error": True} if answered.is_error else result)


def _input(text: str) -> JSON:
    """Decode the input of a tool call, assembled from the pieces of a stream. Return an empty object if the input is
    not an object, because the API requires one.
    """
    try:
        found = loaded(text)
        encoded(found)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _assistant(blocks: list[JSONObject]) -> tuple[str, ...]:
    return (f'{{"role":"assistant","content":{encoded(blocks)}}}',) if blocks else ()


def _is_empty(block: JSONObject) -> bool:
    return block.get("type") == "text" and not block.get("text")


def _error(body: bytes) -> JSONObject:
    found = object_of(body)
    if found.get("type") == "error":
        return found
    return {"type": "error", "error": {"type": "api_error", "message": NO_ERROR_OF_ITS_OWN}}
