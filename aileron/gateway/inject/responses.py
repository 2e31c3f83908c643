"""OpenAI's Responses: Aileron's tools are added to a request, and calls of them are hidden from the answer.

Rules
- The request of a next round is the agent's request with the model's items appended to its `input`. Reasoning items are
  repeated as they came, unless the provider stores nothing and they carry no `encrypted_content`, because the API could not
  find such items again. With a `conversation`, the provider stores the model's items itself, so only the results are sent.
- The agent sees one response: the first round's id, the items of all rounds numbered consecutively, renumbered events, and the
  token counts of all rounds. The agent's next request has the first round's id as `previous_response_id`. That id is
  replaced by the last round's, because only that response includes the results of Aileron's tools.
- Aileron's tools are removed from the list of tools that the API repeats.
- A request that runs in the background, or takes its tools from a stored prompt, is passed on without Aileron's tools.

Pure. Source: platform.openai.com, "Responses", "Function calling", "Conversation state". Not here: I/O (exchange.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from aileron.gateway.inject.document import Edit, Value, encoded
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
    object_of,
    parsed,
    rewritten,
    text_of,
    trail,
)
from aileron.model.json_value import JSON, JSONObject, dict_of, list_of

__all__ = ["ResponsesAnswer", "ResponsesAsk"]

_BEGINS: Final = ("response.created", "response.queued", "response.in_progress")
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")


class ResponsesAsk(Ask):
    """An agent's request `POST /v1/responses`."""

    wire: ClassVar[Wire] = "responses"
    turns: ClassVar[str] = "input"
    no_choice: ClassVar[str] = '"none"'

    def check(self) -> None:
        """Raise NotUnderstoodError unless the input, if any, is a text or a list of items, the request does not run in
        the background, and its tools are not those of a stored prompt.
        """
        given = self.document.get(self.turns)
        is_items = isinstance(given, list) and all(isinstance(item, dict) for item in given)
        if not (given is None or isinstance(given, str) or is_items):
            raise NotUnderstoodError("input is neither a text nor a list of objects")
        if self.document.get("background"):
            raise NotUnderstoodError("it runs in the background")
        if self.document.get("prompt") is not None:
            raise NotUnderstoodError("its tools are those of a stored prompt")

    def name_of(self, tool: JSONObject) -> JSON:
        """Return the name in a tool's declaration; functions and custom tools have one."""
        return tool.get("name")

    def declared(self, name: str, tool: Tool) -> JSONObject:
        """Return the declaration of one of Aileron's tools in this API: a function that is not strict, against the
        API's default, because strict schemas have no optional arguments.
        """
        return {
            "type": "function",
            "name": name,
            "description": tool.description,
            "parameters": tool.schema,
            "strict": False,
        }

    def recalled(self, memory: Memory) -> list[Edit]:
        """Return edits that replace each sequence of consecutive items of the model by the complete items that the
        memory has for it. The results of calls of Aileron's tools precede the results of the agent's own calls.
        """
        edits: list[Edit] = []
        if memory.is_empty:
            return edits
        items = self.document.elements(self.turns)
        trails = self._trail()
        for start, end in _runs(items):
            said = [item.members for item in items[start:end]]
            entry = memory.get(_key(trails[start], said))
            if entry is not None:
                text = ",".join((*entry.said, *entry.results))
                edits.append(Edit(items[start].start, items[end - 1].end, text))
        results: tuple[str, ...] = ()
        previous = self.document.find("previous_response_id")
        if previous is not None and (stored := memory.get(_stored(str(previous.value)))) is not None:
            edits.append(Edit(previous.start, previous.end, encoded(stored.said[0])))
            results = stored.results
        elif self.document.get("conversation") is not None:
            calls = (str(item.members.get("call_id")) for item in items if "output" in item.members)
            kept = (memory.get(self._kept(call)) for call in calls)
            results = next((entry.results for entry in kept if entry is not None), ())
        if results and items:
            edits.append(Edit(items[0].start, items[0].start, "".join(f"{result}," for result in results)))
        return edits

    def continued(self, said: Sequence[str]) -> list[Edit]:
        """Return the edits that append the JSON items `said`, which are this request's earlier rounds, to the agent's
        input.
        """
        given = self.document.find(self.turns)
        if given is None or given.value is None:
            return [self.document.put(self.turns, f"[{','.join(said)}]")]
        if isinstance(given.value, str):
            return [
                Edit(given.start, given.start, '[{"role":"user","content":'),
                Edit(given.end, given.end, f"}},{','.join(said)}]"),
            ]
        return [self.document.append(self.turns, said)]

    def results(self, answered: Sequence[Answered]) -> tuple[str, ...]:
        """Return a `function_call_output` item, as JSON, for the result of each call."""
        return tuple(
            encoded({"type": "function_call_output", "call_id": answer.call.id, "output": answer.text})
            for answer in answered
        )

    def answer(self, tools: Mapping[str, Tool]) -> ResponsesAnswer:
        """Return an empty response for the agent, to be filled from the provider's response in each round."""
        return ResponsesAnswer(
            tools,
            is_stored=self.document.get("store") is not False,
            is_kept=self.document.get("conversation") is not None,
        )

    def entry(self, answer: Answer, said: Sequence[str], results: Sequence[Answered]) -> Mapping[str, Entry]:
        """Return the memory entries that store the hidden rounds of an answer. There is one under each key by which the
        agent's next request can refer to the answer: the response's items, the response's id, or the agent's calls in a
        conversation that the provider stores.
        """
        assert isinstance(answer, ResponsesAnswer)
        sent = self.results(results)
        if self.document.get("conversation") is not None:
            return {self._kept(call): Entry((), sent) for call in answer.theirs}
        output = [item for item in list_of(answer.whole().get("output")) if isinstance(item, dict)]
        entries = {_key(self._trail()[-1], output): Entry(tuple(said), sent)}
        if answer.first_id and answer.last_id:
            entries[_stored(answer.first_id)] = Entry((answer.last_id,), sent)
        return entries

    def _trail(self) -> list[str]:
        """Return the digests of the conversation after each turn (`wire.trail`). They start from the id of the response
        that the request continues.
        """
        items = self.document.elements(self.turns)
        given = self.document.get(self.turns)
        turns: list[JSONObject] = [item.members for item in items] or [{"role": "user", "content": given}]
        return trail(str(self.document.get("previous_response_id") or ""), map(_turn, turns))

    def _kept(self, call: str) -> str:
        return key_of("conversation, call", canonical(self.document.get("conversation")), call)


class ResponsesAnswer(Answer):
    """The response that an agent sees, made from all rounds. `is_stored` is true if the provider stores it, `is_kept`
    if it belongs to a conversation, of which the provider stores all items.
    """

    def __init__(self, tools: Mapping[str, Tool], *, is_stored: bool, is_kept: bool) -> None:
        super().__init__(tools)
        self._is_stored: Final = is_stored
        self._is_kept: Final = is_kept
        self._first: JSONObject = {}
        self._last: JSONObject = {}
        self._usage: JSON = None
        self._output: list[JSONObject] = []
        self._count = 0
        """Number of the response's items whose beginning the agent has seen."""
        self._sent = 0
        """Number of the stream's events that the agent has received."""
        self.theirs: list[str] = []
        """Ids of the calls that the agent has to answer."""
        self._hidden = False
        self._is_whole = False

    @property
    def has_hidden(self) -> bool:
        """True if an item, a call of one of Aileron's tools, was hidden from the agent."""
        return self._hidden

    @property
    def first_id(self) -> str:
        """Id by which the agent knows the response: in a stream the first round's id, as the id cannot change within a
        stream; otherwise the last round's.
        """
        return str((self._last if self._is_whole else self._first).get("id") or "")

    @property
    def last_id(self) -> str:
        """Id of the last round's response, under which the provider has stored the complete answer."""
        return str(self._last.get("id") or "")

    def _reset(self) -> None:
        """Reset the state of one round, for the next round: begin to count items from 0 again."""
        self._items: dict[int, JSONObject] = {}
        self._places: dict[int, int | None] = {}
        self._held: list[tuple[Event, JSONObject]] = []
        self._status: JSON = None

    def feed(self, event: Event) -> bytes:
        """Return the bytes that the agent sees of a provider's event: items are renumbered over all rounds. The event
        that ends the response is held back.
        """
        data = parsed(event)
        if data is None:
            return event.raw
        kind = data.get("type")
        if kind in _BEGINS:
            response = dict_of(data.get("response"))
            self._last = response
            if self.rounds > 1:
                return b""
            self._first = response
            return self._shown(event, {**data, "response": self._without_ours(response)})
        if kind in _ENDS:
            self._end_with(dict_of(data.get("response")))
            self._held.append((event, data))
            return b""
        index = data.get("output_index")
        if not isinstance(index, int):
            return self._shown(event, data)
        if kind == "response.output_item.added":
            self._begin_item(index, dict_of(data.get("item")))
        if kind == "response.output_item.done":
            self._begin_item(index, dict_of(data.get("item")))
            self._items[index] = dict_of(data.get("item"))
        place = self._places.get(index, index)
        return b"" if place is None else self._shown(event, {**data, "output_index": place})

    def take(self, document: JSONObject) -> None:
        """Take the provider's response in a round that was not streamed."""
        self._is_whole = True
        self._first = self._first or document
        for index, item in enumerate(list_of(document.get("output"))):
            self._begin_item(index, dict_of(item))
            self._items[index] = dict_of(item)
        self._end_with(document)

    def end_round(self) -> Round:
        """End the round, and return the model's answer in it. It has calls to run only if the response's status is
        `completed`.
        """
        if not self._items:
            for index, item in enumerate(list_of(self._last.get("output"))):
                self._begin_item(index, dict_of(item))
                self._items[index] = dict_of(item)
        calls: list[Called] = []
        theirs: list[str] = []
        said: list[str] = []
        shown: list[str] = []
        for index, item in sorted(self._items.items()):
            if self._places.get(index) is not None:
                self._output.append(item)
            if item.get("type") == "function_call" and self._is_ours(item):
                called = self._called(item.get("call_id"), item.get("name"), str(item.get("arguments") or "{}"))
                calls += [] if called is None else [called]
            elif _is_call(item):
                theirs.append(str(item.get("call_id")))
            if not self._is_kept and (self._is_stored or not _is_lost(item)):
                said.append(encoded(item))
                shown += [] if self._places.get(index) is None else [encoded(item)]
        self.theirs += theirs
        may_run = tuple(calls) if self._status == "completed" else ()
        return Round(may_run, tuple(theirs), tuple(said), tuple(shown), self._status in ("completed", "incomplete"))

    def end(self) -> bytes:
        """Return the closing event with the complete response, including the items and token counts of all rounds."""
        return b"".join(self._shown(event, {**data, "response": self.whole()}) for event, data in self._held)

    def whole(self) -> JSONObject:
        """Return the complete response that the agent sees: the last round's, under the id that the agent knows, with
        the items and token counts of all rounds.
        """
        response = self._without_ours(self._last)
        if self.is_untouched():
            return response
        response = {**response, "output": [*self._output]}
        if self.first_id:
            response["id"] = self.first_id
        if not self._is_whole and "created_at" in self._first:
            response["created_at"] = self._first["created_at"]
        return {**response, "usage": self._usage} if self._usage is not None else response

    def failure(self, body: bytes) -> bytes:
        """Return a provider's error response in the form in which the API reports an error within a stream."""
        found = dict_of(object_of(body).get("error")) or {"type": "server_error", "message": NO_ERROR_OF_ITS_OWN}
        error = {  # as the API's reference has it, and under `error` as its SDK looks for it
            "type": "error",
            "error": found,
            "code": found.get("code") or found.get("type"),
            "message": str(found.get("message")),
            "param": found.get("param"),
            "sequence_number": self._sent,
        }
        return written("error", encoded(error))

    def _begin_item(self, index: int, item: JSONObject) -> None:
        if index in self._places:
            return
        is_ours = self._is_ours(item)
        self._hidden |= is_ours
        self._places[index] = None if is_ours else self._count
        self._count += not is_ours

    def _is_ours(self, item: JSONObject) -> bool:
        is_function = item.get("type") == "function_call" and not item.get("namespace")
        return is_function and self._called("", item.get("name"), "") is not None

    def _end_with(self, response: JSONObject) -> None:
        self._last = response
        self._status = response.get("status")
        self._usage = added_usage(self._usage, response.get("usage"))

    def _without_ours(self, response: JSONObject) -> JSONObject:
        tools = response.get("tools")
        if not isinstance(tools, list):
            return response
        kept = [tool for tool in tools if self._called("", dict_of(tool).get("name"), "") is None]
        return response if len(kept) == len(tools) else {**response, "tools": kept}

    def _shown(self, event: Event, data: JSONObject) -> bytes:
        """Return the bytes of an event with its number among the events that the agent sees. An event that the new
        number does not change keeps its original bytes.
        """
        if "sequence_number" in data:
            data = {**data, "sequence_number": self._sent}
        self._sent += 1
        return event.raw if data == parsed(event) else rewritten(event, data)


def _is_call(item: JSONObject) -> bool:
    """Return whether an item of a response is a call that the agent has to answer."""
    return "call_id" in item and not str(item.get("type")).endswith("_output")


def _is_lost(item: JSONObject) -> bool:
    return item.get("type") == "reasoning" and not item.get("encrypted_content")


def _is_said(item: JSONObject) -> bool:
    """Return whether an item of a conversation comes from the model."""
    kind = item.get("type", "message")
    if kind == "message":
        return item.get("role") == "assistant"
    return kind == "reasoning" or (kind.endswith("_call") if isinstance(kind, str) else False)


def _runs(items: Sequence[Value]) -> Iterator[tuple[int, int]]:
    """Yield the start and end index of each sequence of consecutive items that come from the model."""
    start: int | None = None
    for place, item in enumerate(items):
        if _is_said(item.members):
            start = place if start is None else start
        elif start is not None:
            yield start, place
            start = None
    if start is not None:
        yield start, len(items)


def _key(before: str, said: Sequence[JSONObject]) -> str:
    """Return the memory key of a model's consecutive items. It is made from `before`, which is the digest of all
    earlier turns, and from the ids of the items' calls, or from their text if there are no calls.
    """
    ids = [str(item["call_id"]) for item in said if _is_call(item)]
    if ids:
        return key_of("responses, calls", before, *ids)
    return key_of("responses", before, "".join(_text(item) for item in said))


def _turn(item: JSONObject) -> list[str] | None:
    """Return an item of the conversation as strings, from which the digest of the conversation is made. Return None for
    reasoning, which programs drop, and for instructions, because some programs write the time into them.
    """
    kind = item.get("type", "message")
    if kind == "reasoning" or item.get("role") in ("system", "developer"):
        return None
    if kind != "message":
        return [canonical({name: value for name, value in item.items() if name not in ("id", "status")})]
    content = item.get("content")
    rest = [part for part in content if "text" not in dict_of(part)] if isinstance(content, list) else []
    return [str(item.get("role")), _text(item), *map(canonical, rest)]


def _stored(response: str) -> str:
    return key_of("response", response)


def _text(item: JSONObject) -> str:
    content = item.get("content")
    if item.get("type", "message") != "message":
        return ""
    if isinstance(content, str):
        return text_of([content])
    parts = content if isinstance(content, list) else []
    return text_of(str(part.get("text", "")) for part in parts if isinstance(part, dict))
