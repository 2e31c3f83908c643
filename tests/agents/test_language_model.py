"""The scripted model by itself: the same conversation over each wire, streamed and whole."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from tests.agents.llm.server import LAST_WORDS, LanguageModel, Script
from tests.agents.llm.wires import Wire

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def script() -> Script:
    """Make one call and check its result."""
    turn = yield "give_back", {"text": "hello"}
    assert turn.shown.text == "it said hello"


class Caller:
    """A client of one wire that knows nothing of the server: it sends what an agent would send, and reads the answer
    as one would.
    """

    def __init__(self, wire: Wire, stream: bool, port: int) -> None:
        self._wire = wire
        self._stream = stream
        self._port = port
        self._said: list[dict[str, Any]] = [{"role": "user", "content": "go"}]

    def ask(self, *, tools: bool = True) -> dict[str, Any]:
        """Send one request; return the text that came, or the call (`id`, `name`, `arguments`)."""
        requests: dict[Wire, tuple[str, dict[str, Any]]] = {
            "messages": ("/v1/messages?beta=true", {"messages": self._said, "max_tokens": 100}),
            "chat": ("/v1/chat/completions", {"messages": self._said}),
            "responses": ("/v1/responses", {"input": self._said}),
        }
        path, body = requests[self._wire]
        body |= {"model": "any", "stream": self._stream}
        if tools:
            body["tools"] = [self._tool()]
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200
            data = answer.read()
        finally:
            connection.close()
        return self._understood(_events(data) if self._stream else [json.loads(data)])

    def tell(self, call: dict[str, Any], result: str) -> None:
        """Put a call and its result into the conversation, as this wire has them."""
        arguments = json.loads(call["arguments"])
        if self._wire == "messages":
            use = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": arguments}
            block = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": result}]}
            self._said += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [block]}]
        elif self._wire == "chat":
            function = {"name": call["name"], "arguments": call["arguments"]}
            use = {"role": "assistant", "tool_calls": [{"id": call["id"], "type": "function", "function": function}]}
            self._said += [use, {"role": "tool", "tool_call_id": call["id"], "content": result}]
        else:
            item = {
                "type": "function_call",
                "call_id": call["id"],
                "name": call["name"],
                "arguments": call["arguments"],
            }
            self._said += [item, {"type": "function_call_output", "call_id": call["id"], "output": result}]

    def _tool(self) -> dict[str, Any]:
        name = "mcp__aileron__give_back"
        if self._wire == "messages":
            return {"name": name, "input_schema": SCHEMA}
        if self._wire == "chat":
            return {"type": "function", "function": {"name": name, "parameters": SCHEMA}}
        tool = {"type": "function", "name": "give_back", "parameters": SCHEMA}
        return {"type": "namespace", "name": "mcp__aileron", "tools": [tool]}

    def _understood(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        return {"messages": _of_messages, "chat": _of_chat, "responses": _of_responses}[self._wire](events)


def _events(data: bytes) -> list[dict[str, Any]]:
    """Return the data of server-sent events that is JSON, and check that each event's name is its type."""
    found = []
    for block in data.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        if fields and fields["data"] != "[DONE]":
            found.append(json.loads(fields["data"]))
            assert fields.get("event") == found[-1].get("type")
    return found


def _of_messages(events: list[dict[str, Any]]) -> dict[str, Any]:
    if len(events) == 1:
        (block,) = events[0]["content"]
        arguments = json.dumps(block.get("input"))
    else:
        (block,) = [event["content_block"] for event in events if event["type"] == "content_block_start"]
        (delta,) = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        block, arguments = {**block, "text": delta.get("text")}, delta.get("partial_json", "")
    if block["type"] == "text":
        return {"text": block["text"]}
    return {"id": block["id"], "name": block["name"], "arguments": arguments}


def _of_chat(events: list[dict[str, Any]]) -> dict[str, Any]:
    choices = [choice for event in events for choice in event["choices"]]
    assert [choice["finish_reason"] for choice in choices][-1] in ("stop", "tool_calls")
    message = choices[0].get("message") or choices[0]["delta"]
    if message["content"] is not None:
        return {"text": message["content"]}
    (call,) = message["tool_calls"]
    return {"id": call["id"], **call["function"]}


def _of_responses(events: list[dict[str, Any]]) -> dict[str, Any]:
    whole = events[0] if len(events) == 1 else events[-1]["response"]
    assert whole["status"] == "completed"
    (item,) = whole["output"]
    if item["type"] == "message":
        return {"text": item["content"][0]["text"]}
    assert item["namespace"] == "mcp__aileron"
    return {"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", ["messages", "chat", "responses"])
def test_a_conversation_follows_the_script_in_every_api(wire: Wire, stream: bool) -> None:
    """A call, the same call when it is requested again, its result and the last words come in order; an aside in
    between changes nothing.
    """
    with LanguageModel(script) as model:
        caller = Caller(wire, stream, model.port)

        call = caller.ask()
        again = caller.ask()
        aside = caller.ask(tools=False)
        caller.tell(call, "it said hello")
        last = caller.ask()

    assert call == again
    assert json.loads(call["arguments"]) == {"text": "hello"}
    assert aside["text"]
    assert last == {"text": LAST_WORDS}
    assert model.is_finished
    assert (len(model.turns), len(model.asides)) == (3, 1)
    assert model.turns[0].tool("give_back") is not None
    assert model.turns[0].tool("another") is None


def test_a_mistake_in_the_script_is_reported_to_the_test() -> None:
    """The agent's conversation ends, and `problem` has the reason."""
    with LanguageModel(script) as model:
        caller = Caller("chat", False, model.port)
        caller.tell(caller.ask(), "something else")
        caller.ask()

    assert not model.is_finished
    assert "AssertionError" in model.problem


def test_a_tool_that_is_not_offered_ends_the_conversation() -> None:
    """The problem names the tools that are offered."""

    def another() -> Script:
        yield "another", {}

    with LanguageModel(another) as model:
        answer = Caller("messages", False, model.port).ask()

    assert "text" in answer
    assert model.problem == "another is not offered: mcp__aileron__give_back"


def test_the_scripted_model_can_repeat_its_whole_script_in_every_conversation() -> None:
    """A second conversation begins where the first did, and comes to the same end."""
    with LanguageModel(script, again=True) as model:
        ends = []
        for _conversation in range(2):
            caller = Caller("chat", True, model.port)
            caller.tell(caller.ask(), "it said hello")
            ends.append(caller.ask())

    assert ends == [{"text": LAST_WORDS}] * 2
    assert model.is_finished
