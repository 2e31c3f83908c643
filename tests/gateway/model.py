r"""A model's API on loopback that follows a script, on all three wires, and accepts only requests that the real ones accept.

Each turn is the model's part after one request, as a list of steps; the response has the form that its request asks for. A
request whose history the providers would refuse is refused: a call without its result, a result without its call, a thought with
another signature. Requests are kept as they came (`bodies`) and parsed (`asked`).

    with Model([Say("Let me look."), Use("aileron_look")], [Say("It is sunny.")]) as model:
        ...

The agents' own tools and MCP are elsewhere (tests/agents/llm).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from tests.support.serving import Service
from tests.support.upstream import Seen, answer, chunked_answer

__all__ = ["Fail", "Model", "Say", "Search", "Step", "Think", "Turn", "Use", "usage_of"]


@dataclasses.dataclass(frozen=True)
class Say:
    """Words of the model."""

    text: str


@dataclasses.dataclass(frozen=True)
class Think:
    """A thought, which a provider accepts again only unchanged."""

    text: str


@dataclasses.dataclass(frozen=True)
class Use:
    """A call of a tool; `args` may be a text that is not JSON."""

    name: str
    args: dict[str, Any] | str = dataclasses.field(default_factory=dict)

    @property
    def arguments(self) -> str:
        """The arguments as JSON."""
        return self.args if isinstance(self.args, str) else json.dumps(self.args)


@dataclasses.dataclass(frozen=True)
class Search:
    """A tool of the provider's own, used within the turn (Messages only)."""


@dataclasses.dataclass(frozen=True)
class Fail:
    """An error of the API in place of a turn."""

    status: str
    kind: str = "overloaded_error"


Step = Say | Think | Use | Search
Turn = Sequence[Step] | Fail | Callable[[], Sequence[Step]]
_USED = 10
"""Tokens in, and tokens out, of each turn."""


def usage_of(turns: int) -> int:
    """Return the tokens of that many turns, in or out."""
    return turns * _USED


class Model(Service):
    """A running server; a context manager."""

    def __init__(self, *turns: Turn, stop: str | None = None) -> None:
        """Take the script; `stop` replaces the reason for which each turn would end."""
        super().__init__(None)
        self._turns = list(turns)
        self._stop = stop
        self.bodies: list[bytes] = []
        self.fields: list[dict[str, str]] = []
        self.problems: list[str] = []

    def script(self, *turns: Turn) -> None:
        """Set the turns from now on, and forget the requests so far."""
        self._turns, self.bodies, self.fields, self.problems = list(turns), [], [], []

    @property
    def url(self) -> str:
        """The URL for the settings."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The parsed requests."""
        return [json.loads(body) for body in self.bodies]

    @property
    def raw(self) -> bytes:
        """All bytes that arrived, heads included."""
        return bytes(self._upstream.received)

    def tools(self, number: int = 0) -> list[str]:
        """Return the names of the tools that a request offered."""
        return [tool.get("name") or tool["function"]["name"] for tool in self.asked[number].get("tools", [])]

    def _answer(self, seen: Seen) -> bytes | Iterable[bytes]:
        path = seen.target.partition("?")[0]
        with self._lock:
            number = len(self.bodies)
            self.bodies.append(seen.body)
            self.fields.append({name.lower(): value for name, value in seen.fields})
            turn = self._turns[number] if number < len(self._turns) else [Say("There is no more to say.")]
        body = json.loads(seen.body)
        wire = _WIRES[path]
        try:
            wire.check(body)
        except (AssertionError, KeyError, TypeError) as wrong:
            self.problems.append(f"request {number}: {wrong!r}")
            turn = Fail("400 Bad Request", "invalid_request_error")
        if callable(turn):
            turn = turn()
        if isinstance(turn, Fail):
            error = {"type": turn.kind, "message": "The script says so."}
            return answer(
                json.dumps({"type": "error", "error": error}).encode(),
                "Content-Type: application/json",
                status=turn.status,
            )
        whole = wire.whole(number, turn, body, self._stop)
        if not body.get("stream"):
            return answer(json.dumps(whole).encode(), "Content-Type: application/json", "request-id: req_1")
        return chunked_answer(
            wire.events(whole, body), "Content-Type: text/event-stream; charset=utf-8", "request-id: req_1"
        )


def _event(data: dict[str, Any]) -> bytes:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def _halves(text: str) -> list[str]:
    half = max(1, len(text) // 2)
    return [part for part in (text[:half], text[half:]) if part]


class _Messages:
    @staticmethod
    def check(body: dict[str, Any]) -> None:
        """Check that each call is answered in the next message, and nothing else is."""
        names = [tool["name"] for tool in body.get("tools", [])]
        assert len(names) == len(set(names)), "two tools of one name"
        open_calls: list[str] = []
        for message in body["messages"]:
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            assert blocks, "an empty message"
            answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            if message["role"] == "user":
                assert sorted(answered) == sorted(open_calls), f"{open_calls} were called and {answered} answered"
                open_calls = []
            assert not open_calls, f"{open_calls} were not answered"
            for block in blocks:
                if block["type"] == "text":
                    assert block["text"], "an empty text"
                if block["type"] == "thinking":
                    assert block["signature"] == f"signed {block['thinking']}", "a thought was changed"
                if block["type"] == "tool_use":
                    assert message["role"] == "assistant"
                    assert isinstance(block["input"], dict)
                    open_calls.append(block["id"])
        assert not open_calls, f"{open_calls} were not answered"

    @staticmethod
    def whole(number: int, turn: Sequence[Step], body: dict[str, Any], stop: str | None) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        for place, step in enumerate(turn):
            match step:
                case Say():
                    content.append({"type": "text", "text": step.text})
                case Think():
                    content.append({"type": "thinking", "thinking": step.text, "signature": f"signed {step.text}"})
                case Use():
                    content.append(
                        {"type": "tool_use", "id": f"toolu_{number}_{place}", "name": step.name, "input": step.args}
                    )
                case Search():
                    content.append(
                        {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search", "input": {}}
                    )
                    content.append(
                        {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{number}", "content": []}
                    )
        reason = stop or ("tool_use" if any(isinstance(step, Use) for step in turn) else "end_turn")
        usage = {"input_tokens": _USED, "output_tokens": _USED, "cache_read_input_tokens": 3}
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }

    @staticmethod
    def events(whole: dict[str, Any], _body: dict[str, Any]) -> Iterator[bytes]:
        begun = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
        yield _event({"type": "message_start", "message": begun})
        yield _event({"type": "ping"})
        for index, block in enumerate(whole["content"]):
            empty, deltas = dict(block), []
            match block["type"]:
                case "text":
                    empty["text"] = ""
                    deltas = [{"type": "text_delta", "text": part} for part in _halves(block["text"])]
                case "thinking":
                    empty |= {"thinking": "", "signature": ""}
                    deltas = [{"type": "thinking_delta", "thinking": part} for part in _halves(block["thinking"])]
                    deltas.append({"type": "signature_delta", "signature": block["signature"]})
                case "tool_use":
                    empty["input"] = {}
                    given = block["input"]
                    parts = ["", *_halves(given if isinstance(given, str) else json.dumps(given))]
                    deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
            yield _event({"type": "content_block_start", "index": index, "content_block": empty})
            for delta in deltas:
                yield _event({"type": "content_block_delta", "index": index, "delta": delta})
            yield _event({"type": "content_block_stop", "index": index})
        stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield _event({"type": "message_delta", "delta": stop, "usage": {"output_tokens": _USED}})
        yield _event({"type": "message_stop"})


class _Chat:
    @staticmethod
    def check(body: dict[str, Any]) -> None:
        """Check that the results of calls follow directly after their message, and stand nowhere else."""
        names = [(tool.get("function") or tool.get("custom"))["name"] for tool in body.get("tools", [])]
        assert len(names) == len(set(names)), "two tools of one name"
        assert len(names) <= 128
        open_calls: list[str] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                assert message["tool_call_id"] in open_calls, "a result of nothing"
                open_calls.remove(message["tool_call_id"])
                continue
            assert not open_calls, f"{open_calls} were not answered"
            if message["role"] == "assistant":
                assert message.get("content") or message.get("tool_calls"), "an empty message"
            open_calls = [call["id"] for call in message.get("tool_calls") or []]
        assert not open_calls, f"{open_calls} were not answered"

    @staticmethod
    def whole(number: int, turn: Sequence[Step], body: dict[str, Any], stop: str | None) -> dict[str, Any]:
        text = "".join(step.text for step in turn if isinstance(step, Say))
        message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
        calls = [
            {
                "id": f"call_{number}_{place}",
                "type": "function",
                "function": {"name": step.name, "arguments": step.arguments},
            }
            for place, step in enumerate(turn)
            if isinstance(step, Use)
        ]
        if calls:
            message["tool_calls"] = calls
        return {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 1000 + number,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": stop or ("tool_calls" if calls else "stop"),
                    "logprobs": None,
                }
            ],
            "usage": {
                "prompt_tokens": _USED,
                "completion_tokens": _USED,
                "total_tokens": 2 * _USED,
                "prompt_tokens_details": {"cached_tokens": 3},
            },
        }

    @staticmethod
    def events(whole: dict[str, Any], body: dict[str, Any]) -> Iterator[bytes]:
        (choice,) = whole["choices"]
        message = choice["message"]
        frame = {**whole, "object": "chat.completion.chunk"}
        usage = frame.pop("usage")
        wants_usage = (body.get("stream_options") or {}).get("include_usage")

        def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
            more = {"usage": None} if wants_usage else {}
            return _event(
                {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}], **more}
            )

        yield chunk({"role": "assistant", "content": "" if message["content"] else None, "refusal": None})
        for part in _halves(message["content"] or ""):
            yield chunk({"content": part})
        for index, call in enumerate(message.get("tool_calls", [])):
            function = call["function"]
            first = {**call, "index": index, "function": {**function, "arguments": ""}}
            yield chunk({"tool_calls": [first]})
            for part in _halves(function["arguments"]):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
        yield chunk({}, choice["finish_reason"])
        if wants_usage:
            yield _event({**frame, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


_STORED: dict[str, list[dict[str, Any]]] = {}
"""Conversation up to each response, by the response's id."""


class _Responses:
    @staticmethod
    def check(body: dict[str, Any]) -> None:
        """Check that each call has its output, here or in the stored conversation."""
        names = [tool["name"] for tool in body.get("tools", []) if "name" in tool]
        assert len(names) == len(set(names)), "two tools of one name"
        called = {item["call_id"] for item in _conversation(body) if item.get("type") == "function_call"}
        answered = [item["call_id"] for item in _conversation(body) if item.get("type") == "function_call_output"]
        assert sorted(called) == sorted(answered), f"{called} were called and {answered} answered"
        for item in _conversation(body):
            if item.get("type") == "reasoning" and body.get("store") is False:
                assert item.get("encrypted_content"), "a thought that nobody kept"

    @staticmethod
    def whole(number: int, turn: Sequence[Step], body: dict[str, Any], stop: str | None) -> dict[str, Any]:
        output: list[dict[str, Any]] = []
        for place, step in enumerate(turn):
            name = f"{number}_{place}"
            match step:
                case Say():
                    part = {"type": "output_text", "text": step.text, "annotations": [], "logprobs": []}
                    output.append({"type": "message", "id": f"msg_{name}", "role": "assistant", "content": [part]})
                case Think():
                    thought: dict[str, Any] = {"type": "reasoning", "id": f"rs_{name}", "summary": []}
                    if "reasoning.encrypted_content" in (body.get("include") or []):
                        thought["encrypted_content"] = f"sealed {step.text}"
                    output.append(thought)
                case Use():
                    output.append(
                        {
                            "type": "function_call",
                            "id": f"fc_{name}",
                            "call_id": f"call_{name}",
                            "name": step.name,
                            "arguments": step.arguments,
                        }
                    )
                case Search():
                    output.append({"type": "web_search_call", "id": f"ws_{name}"})
        output = [{**item, "status": "completed"} if item["type"] != "reasoning" else item for item in output]
        response = f"resp_{id(body)}_{number}"
        _STORED[response] = [*_conversation(body), *output]
        return {
            "id": response,
            "object": "response",
            "created_at": 1000 + number,
            "status": stop or "completed",
            "model": body["model"],
            "tools": body.get("tools", []),
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "output": output,
            "usage": {
                "input_tokens": _USED,
                "output_tokens": _USED,
                "total_tokens": 2 * _USED,
                "input_tokens_details": {"cached_tokens": 3},
                "output_tokens_details": {"reasoning_tokens": 1},
            },
        }

    @staticmethod
    def events(whole: dict[str, Any], _body: dict[str, Any]) -> Iterator[bytes]:
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        for index, item in enumerate(whole["output"]):
            events += _item_events(index, item)
        events.append({"type": f"response.{whole['status']}", "response": whole})
        for number, event in enumerate(events):
            yield _event({**event, "sequence_number": number})


def _conversation(body: dict[str, Any]) -> list[dict[str, Any]]:
    given = body.get("input") or []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    previous = body.get("previous_response_id")
    return [*(_STORED[previous] if previous else []), *items]


def _item_events(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    at = {"item_id": item["id"], "output_index": index}
    begun = {**item, "status": "in_progress"} if "status" in item else item
    inner: list[dict[str, Any]] = []
    if item["type"] == "message":
        (part,) = item["content"]
        begun = {**begun, "content": []}
        inner = [
            {"type": "response.content_part.added", **at, "content_index": 0, "part": {**part, "text": ""}},
            *(
                {"type": "response.output_text.delta", **at, "content_index": 0, "delta": half, "logprobs": []}
                for half in _halves(part["text"])
            ),
            {"type": "response.output_text.done", **at, "content_index": 0, "text": part["text"], "logprobs": []},
            {"type": "response.content_part.done", **at, "content_index": 0, "part": part},
        ]
    if item["type"] == "function_call":
        begun = {**begun, "arguments": ""}
        inner = [
            *(
                {"type": "response.function_call_arguments.delta", **at, "delta": half}
                for half in _halves(item["arguments"])
            ),
            {
                "type": "response.function_call_arguments.done",
                **at,
                "name": item["name"],
                "arguments": item["arguments"],
            },
        ]
    return [
        {"type": "response.output_item.added", "output_index": index, "item": begun},
        *inner,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


_WIRES: Final[dict[str, type[_Messages | _Chat | _Responses]]] = {
    "/v1/messages": _Messages,
    "/v1/chat/completions": _Chat,
    "/v1/responses": _Responses,
}
