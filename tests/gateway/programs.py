"""Programs that speak to a model through the providers' own SDKs, one for each API, streamed or not. They keep their history as
the SDKs' documentation says: the model's message follows the request, exactly as it was received.

    program = PROGRAMS["chat, streamed"](f"http://127.0.0.1:{port}/inject/{NAME}")
    turn = program.ask("What is the weather?")
    turn.text, turn.calls, turn.used

Streams are read with the SDKs' accumulators, which check order, indexes and ids of events. The model's words come from elsewhere.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol

import anthropic
import openai

__all__ = ["PROGRAMS", "Program", "Turn", "close_all"]

TIMEOUT_S = 30.0
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}}


_OPEN: list[anthropic.Anthropic | openai.OpenAI] = []


def close_all() -> None:
    """Close the connections of all programs so far."""
    while _OPEN:
        _OPEN.pop().close()


class Call(NamedTuple):
    """A call of a tool of the program's own."""

    id: str
    name: str
    args: dict[str, Any]


class Turn(NamedTuple):
    """A program's view of one response. `used` are the tokens in and out."""

    text: str
    calls: list[Call]
    used: tuple[int, int]
    stop: str | None
    whole: Any


class Program(Protocol):
    """A conversation with a model."""

    def ask(self, text: str, **more: Any) -> Turn:
        """Send a person's message, and return the model's turn."""
        ...

    def answer(self, results: dict[str, str], **more: Any) -> Turn:
        """Send the results of the program's own tools, by the ids of the calls, and return the model's turn."""
        ...


class _Messages:
    """A program with `anthropic`, for Messages."""

    def __init__(self, url: str, *, stream: bool, tools: tuple[str, ...] = ("weather",), retries: int = 0) -> None:
        self.client = anthropic.Anthropic(base_url=url, api_key="sk-own", max_retries=retries, timeout=TIMEOUT_S)
        _OPEN.append(self.client)
        self.stream = stream
        self.tools: list[Any] = [{"name": name, "description": "Tells.", "input_schema": WEATHER} for name in tools]
        self.history: list[Any] = []

    def ask(self, text: str, **more: Any) -> Turn:
        self.history.append({"role": "user", "content": text})
        return self._go(more)

    def answer(self, results: dict[str, str], **more: Any) -> Turn:
        content = [{"type": "tool_result", "tool_use_id": id_, "content": text} for id_, text in results.items()]
        self.history.append({"role": "user", "content": content})
        return self._go(more)

    def _go(self, more: dict[str, Any]) -> Turn:
        asked: dict[str, Any] = {"model": "m", "max_tokens": 100, "messages": self.history, **more}
        if self.tools:
            asked["tools"] = self.tools
        if self.stream:
            with self.client.messages.stream(**asked) as stream:
                message: Any = stream.get_final_message()
        else:
            message = self.client.messages.create(**asked)
        content = [block.to_dict() for block in message.content]
        if content:
            self.history.append({"role": "assistant", "content": content})
        return Turn(
            "".join(block.text for block in message.content if block.type == "text"),
            [Call(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"],
            (message.usage.input_tokens, message.usage.output_tokens),
            message.stop_reason,
            message,
        )


class _Chat:
    """A program with `openai`, for Chat Completions."""

    def __init__(self, url: str, *, stream: bool, tools: tuple[str, ...] = ("weather",), retries: int = 0) -> None:
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="sk-own", max_retries=retries, timeout=TIMEOUT_S)
        _OPEN.append(self.client)
        self.stream = stream
        self.tools: list[Any] = [
            {"type": "function", "function": {"name": name, "description": "Tells.", "parameters": WEATHER}}
            for name in tools
        ]
        self.history: list[Any] = []

    def ask(self, text: str, **more: Any) -> Turn:
        self.history.append({"role": "user", "content": text})
        return self._go(more)

    def answer(self, results: dict[str, str], **more: Any) -> Turn:
        self.history += [{"role": "tool", "tool_call_id": id_, "content": text} for id_, text in results.items()]
        return self._go(more)

    def _go(self, more: dict[str, Any]) -> Turn:
        asked: dict[str, Any] = {"model": "m", "messages": self.history, **more}
        if self.tools:
            asked["tools"] = self.tools
        if self.stream:
            asked["stream_options"] = {"include_usage": True}
            with self.client.chat.completions.stream(**asked) as stream:
                try:
                    completion: Any = stream.get_final_completion()
                except openai.LengthFinishReasonError as cut_off:
                    completion = cut_off.completion
        else:
            completion = self.client.chat.completions.create(**asked)
        (choice,) = completion.choices
        message = choice.message
        said: dict[str, Any] = {"role": "assistant", "content": message.content}
        if message.tool_calls:
            said["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
                for call in message.tool_calls
            ]
        self.history.append(said)
        return Turn(
            message.content or "",
            [
                Call(call.id, call.function.name, json.loads(call.function.arguments))
                for call in message.tool_calls or []
            ],
            (completion.usage.prompt_tokens, completion.usage.completion_tokens),
            choice.finish_reason,
            completion,
        )


class _Responses:
    """A program with `openai`, for Responses; `stored` uses `previous_response_id`, else all items are sent each time."""

    def __init__(
        self,
        url: str,
        *,
        stream: bool,
        tools: tuple[str, ...] = ("weather",),
        retries: int = 0,
        stored: bool = False,
    ) -> None:
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="sk-own", max_retries=retries, timeout=TIMEOUT_S)
        _OPEN.append(self.client)
        self.stream = stream
        self.stored = stored
        self.tools: list[Any] = [
            {"type": "function", "name": name, "description": "Tells.", "parameters": WEATHER, "strict": False}
            for name in tools
        ]
        self.history: list[Any] = []
        self.previous: str | None = None

    def ask(self, text: str, **more: Any) -> Turn:
        return self._go([{"role": "user", "content": text}], more)

    def answer(self, results: dict[str, str], **more: Any) -> Turn:
        return self._go(
            [{"type": "function_call_output", "call_id": id_, "output": text} for id_, text in results.items()], more
        )

    def _go(self, items: list[Any], more: dict[str, Any]) -> Turn:
        self.history += items
        asked: dict[str, Any] = {"model": "m", **more}
        if self.tools:
            asked["tools"] = self.tools
        if self.stored:
            asked["input"] = items
            if self.previous is not None:
                asked["previous_response_id"] = self.previous
        else:
            asked |= {"input": self.history, "store": False, "include": ["reasoning.encrypted_content"]}
        if self.stream:
            with self.client.responses.stream(**asked) as stream:
                ends = [event for event in stream if event.type in ("response.completed", "response.incomplete")]
                response: Any = ends[-1].response
        else:
            response = self.client.responses.create(**asked)
        self.previous = response.id
        self.history += [
            {name: value for name, value in item.to_dict().items() if name not in ("parsed_arguments",)}
            for item in response.output
        ]
        return Turn(
            response.output_text,
            [
                Call(item.call_id, item.name, json.loads(item.arguments))
                for item in response.output
                if item.type == "function_call"
            ],
            (response.usage.input_tokens, response.usage.output_tokens),
            response.status,
            response,
        )


PROGRAMS: dict[str, Any] = {
    "messages": lambda url, **more: _Messages(url, stream=False, **more),
    "messages, streamed": lambda url, **more: _Messages(url, stream=True, **more),
    "chat": lambda url, **more: _Chat(url, stream=False, **more),
    "chat, streamed": lambda url, **more: _Chat(url, stream=True, **more),
    "responses": lambda url, **more: _Responses(url, stream=False, **more),
    "responses, streamed": lambda url, **more: _Responses(url, stream=True, **more),
    "responses, stored": lambda url, **more: _Responses(url, stream=False, stored=True, **more),
    "responses, stored and streamed": lambda url, **more: _Responses(url, stream=True, stored=True, **more),
}
"""Every kind of program; called with the gateway's address for a session, and `tools`, the names of the program's own."""
