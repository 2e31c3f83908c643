"""Three ways to speak to a language model, both directions: Anthropic's Messages, OpenAI's Chat Completions and Responses.

`read` turns a request into one `Asked`, whatever the wire: which tools the model is offered, which results it is shown, what
else it is told. `speak` turns one `Say` or `Use` into the answer, as one document or as server-sent events, as the request
wants it. Pure: bytes in, bytes out. It knows what the five agents send and need, and ignores everything else.

    asked = read(seen)                                  # None where it is no conversation: a list of models, a count
    declared = asked.tool("give_back")                  # whatever the agent made of the name
    pieces = speak(asked, Use("call-1", declared, {"text": "hello"}))

Source: the public API references of both makers. Not here: which step comes next (server.py), errors, images, reasoning.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

from tests.support.upstream import Seen, answer, chunked_answer

__all__ = ["Asked", "Declared", "Say", "Shown", "Use", "Wire", "read", "speak"]

Wire = Literal["messages", "chat", "responses"]
WIRES: Final[dict[str, Wire]] = {
    "/v1/messages": "messages",
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
}
_SERVER: Final = "aileron"
"""The name under which the agents know our MCP server."""
_MODEL: Final = "scripted"


@dataclasses.dataclass(frozen=True)
class Declared:
    """A tool as the model is offered it; `namespace` is set if the wire groups tools (Responses, as codex uses it).

    `by_script`: it is not offered itself, but callable from the JavaScript that the tool of this name runs ("code mode").
    """

    name: str
    namespace: str | None
    description: str
    schema: dict[str, Any]
    raw: dict[str, Any]
    by_script: str | None = None


@dataclasses.dataclass(frozen=True)
class Shown:
    """The result of one tool call as the model is shown it: the text, and whether it is marked as an error."""

    text: str
    is_error: bool


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request for the model's next words. `told` has everything that is neither a tool nor a result, by role."""

    wire: Wire
    target: str
    fields: dict[str, str]
    body: dict[str, Any]
    tools: tuple[Declared, ...]
    results: dict[str, Shown]
    told: tuple[tuple[str, str], ...]

    @property
    def stream(self) -> bool:
        """True if the request wants the answer piece by piece."""
        return bool(self.body.get("stream"))

    @property
    def key(self) -> str:
        """The API key of the request, from whichever header field carried it."""
        return self.fields.get("x-api-key") or self.fields.get("authorization", "").removeprefix("Bearer ")

    def tool(self, name: str) -> Declared | None:
        """Return the tool of our server with this name, as this agent spells it; None if it is not offered."""
        spelled = {f"mcp__{_SERVER}__{name}", f"{_SERVER}__{name}", f"{_SERVER}_{name}"}
        for tool in self.tools:
            inside = tool.namespace is not None and tool.namespace.rstrip("_").endswith(_SERVER) and tool.name == name
            if tool.name in spelled or inside:
                return tool
        for tool in self.tools:
            if tool.raw.get("type") == "custom" and tool.name == "exec":
                return Declared(name, tool.namespace, "", {}, tool.raw, by_script=tool.name)
        return None


@dataclasses.dataclass(frozen=True)
class Say:
    """A final answer of the model: it ends its turn with these words."""

    text: str


@dataclasses.dataclass(frozen=True)
class Use:
    """A tool call of the model."""

    call_id: str
    tool: Declared
    args: dict[str, Any]

    @property
    def arguments(self) -> str:
        """The arguments as JSON."""
        return json.dumps(self.args)

    @property
    def script(self) -> str:
        """The call as JavaScript, for an agent that has its model write that: find the tool as the model must, call
        it, show all.
        """
        found = f"ALL_TOOLS.find((tool) => tool.name.endsWith({json.dumps(f'{_SERVER}__{self.tool.name}')}))"
        return f"const found = {found};\ntext(await tools[found.name]({self.arguments}));\n"


def read(seen: Seen) -> Asked | None:
    """Return the parsed request, or None if it does not ask for the model's words."""
    wire = WIRES.get(seen.target.partition("?")[0])
    if wire is None or seen.method != "POST":
        return None
    body = json.loads(seen.body)
    fields = {name.lower(): value for name, value in seen.fields}
    tools, results, told = {"messages": _messages, "chat": _chat, "responses": _responses}[wire](body)
    return Asked(wire, seen.target, fields, body, tuple(tools), results, tuple(told))


_Parts = tuple[list[Declared], dict[str, Shown], list[tuple[str, str]]]


def _messages(body: dict[str, Any]) -> _Parts:
    tools = [
        Declared(tool["name"], None, tool.get("description", ""), tool.get("input_schema", {}), tool)
        for tool in body.get("tools", [])
    ]
    results, told = {}, [("system", _text(body.get("system", "")))]
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if block["type"] == "tool_result":
                results[block["tool_use_id"]] = Shown(_text(block.get("content", "")), bool(block.get("is_error")))
            elif block["type"] == "text":
                told.append((message["role"], block["text"]))
    return tools, results, told


def _chat(body: dict[str, Any]) -> _Parts:
    functions = [tool["function"] for tool in body.get("tools", []) if tool.get("type") == "function"]
    tools = [
        Declared(each["name"], None, each.get("description", ""), each.get("parameters", {}), each)
        for each in functions
    ]
    results, told = {}, []
    for message in body["messages"]:
        text = _text(message.get("content") or "")
        if message["role"] == "tool":
            results[message["tool_call_id"]] = Shown(text, False)
        else:
            told.append((message["role"], text))
    return tools, results, told


def _responses(body: dict[str, Any]) -> _Parts:
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    offered = [*body.get("tools", [])]
    for item in items:
        offered += item["tools"] if item.get("type") == "additional_tools" else []
    tools: list[Declared] = []
    for tool in offered:
        if tool["type"] == "namespace":
            tools += [_function(inner, tool["name"]) for inner in tool["tools"]]
        elif "name" in tool:
            tools.append(_function(tool, None))
    told = [("system", _text(body.get("instructions") or ""))]
    told += [("tools", tool.get("description", "")) for tool in offered if tool["type"] == "namespace"]
    results = {}
    for item in items:
        if item.get("type") in ("function_call_output", "custom_tool_call_output"):
            results[item["call_id"]] = Shown(_text(item["output"]), False)
        elif item.get("type", "message") == "message":
            told.append((item["role"], _text(item["content"])))
    return tools, results, told


def _function(tool: dict[str, Any], namespace: str | None) -> Declared:
    return Declared(tool["name"], namespace, tool.get("description", ""), tool.get("parameters", {}), tool)


def _text(content: str | list[Any]) -> str:
    """Return the words of a content, in order; parts without text (an image, a file) have none."""
    if isinstance(content, str):
        return content
    return "\n".join(part if isinstance(part, str) else part.get("text", "") for part in content)


def speak(asked: Asked, step: Say | Use) -> bytes | Iterable[bytes]:
    """Return the answer to one request, in the form that a script of tests/support/upstream.py returns."""
    whole = {"messages": _message, "chat": _completion, "responses": _response}[asked.wire](step)
    if not asked.stream:
        return answer(json.dumps(whole).encode(), "Content-Type: application/json")
    events = {"messages": _message_events, "chat": _chat_events, "responses": _response_events}[asked.wire](whole)
    return chunked_answer(events, "Content-Type: text/event-stream", "Cache-Control: no-cache")


def _event(data: dict[str, Any]) -> bytes:
    """Return one server-sent event, named after its type if it has one."""
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


# Messages


def _message(step: Say | Use) -> dict[str, Any]:
    if isinstance(step, Say):
        block: dict[str, Any] = {"type": "text", "text": step.text}
    else:
        block = {"type": "tool_use", "id": step.call_id, "name": step.tool.name, "input": step.args}
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": _MODEL,
        "content": [block],
        "stop_reason": "tool_use" if isinstance(step, Use) else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 10},
    }


def _message_events(whole: dict[str, Any]) -> Iterator[bytes]:
    (block,) = whole["content"]
    begun = {**whole, "content": [], "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    if block["type"] == "text":
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield _event({"type": "message_start", "message": begun})
    yield _event({"type": "content_block_start", "index": 0, "content_block": empty})
    yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _event({"type": "content_block_stop", "index": 0})
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 10}})
    yield _event({"type": "message_stop"})


# Chat Completions

_CHAT_USAGE: Final = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


def _completion(step: Say | Use) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(step, Say):
        message["content"] = step.text
    else:
        function = {"name": step.tool.name, "arguments": step.arguments}
        message["tool_calls"] = [{"id": step.call_id, "type": "function", "function": function}]
    reason = "stop" if isinstance(step, Say) else "tool_calls"
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1,
        "model": _MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": _CHAT_USAGE,
    }


def _chat_events(whole: dict[str, Any]) -> Iterator[bytes]:
    (choice,) = whole["choices"]
    frame = {"id": whole["id"], "object": "chat.completion.chunk", "created": 1, "model": _MODEL}
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": 0, **call} for call in delta["tool_calls"]]
    yield _event({**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _event({**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    yield _event({**frame, "choices": [], "usage": _CHAT_USAGE})
    yield b"data: [DONE]\n\n"


# Responses


def _response(step: Say | Use) -> dict[str, Any]:
    if isinstance(step, Say):
        text = {"type": "output_text", "text": step.text, "annotations": []}
        item: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "content": [text]}
    elif step.tool.by_script is not None:
        item = {"type": "custom_tool_call", "id": f"ctc_{step.call_id}", "call_id": step.call_id}
        item |= {"name": step.tool.by_script, "namespace": step.tool.namespace, "input": step.script}
    else:
        item = {"type": "function_call", "id": f"fc_{step.call_id}", "call_id": step.call_id}
        item |= {"name": step.tool.name, "arguments": step.arguments}
        if step.tool.namespace is not None:
            item["namespace"] = step.tool.namespace
    usage = {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}  # type: ignore[dict-item]
    return {
        "id": "resp_scripted",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": _MODEL,
        "output": [{**item, "status": "completed"}],
        "usage": usage,
    }


def _response_events(whole: dict[str, Any]) -> Iterator[bytes]:
    (item,) = whole["output"]
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *(_text_events(item) if item["type"] == "message" else _call_events(item)),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    for number, event in enumerate(events):
        yield _event({**event, "sequence_number": number})


def _text_events(item: dict[str, Any]) -> list[dict[str, Any]]:
    (part,) = item["content"]
    at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    return [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **at, "delta": part["text"]},
        {"type": "response.output_text.done", **at, "text": part["text"]},
        {"type": "response.content_part.done", **at, "part": part},
    ]


def _call_events(item: dict[str, Any]) -> list[dict[str, Any]]:
    at = {"item_id": item["id"], "output_index": 0}
    field, kind = ("input", "custom_tool_call_input") if "input" in item else ("arguments", "function_call_arguments")
    begun = {**item, "status": "in_progress", field: ""}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": f"response.{kind}.delta", **at, "delta": item[field]},
        {"type": f"response.{kind}.done", **at, field: item[field]},
    ]
