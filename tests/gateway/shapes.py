r"""Requests of agents and responses of the three APIs, as they were seen on the wire, shortened only in the prose.

A request is its head (with `{host}` for the authority it is sent to) and its body; a response is its head and its chunks, or its
one body. Their meaning is not described here.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from collections.abc import Iterable

__all__ = ["ANSWERS", "REQUESTS", "Answer", "Request", "sse"]


@dataclasses.dataclass(frozen=True)
class Request:
    """A request; `pieces` are its chunks if it is sent in chunks."""

    head: str
    pieces: tuple[bytes, ...] = ()
    is_chunked: bool = False

    def raw(self, host: str) -> bytes:
        """Return the bytes that are sent to this host."""
        body = b"".join(self.pieces)
        fields = [line.replace("{host}", host).replace("{length}", str(len(body))) for line in self.head.splitlines()]
        head = "\r\n".join(fields).encode() + b"\r\n\r\n"
        return head + (in_chunks(self.pieces) if self.is_chunked else body)


@dataclasses.dataclass(frozen=True)
class Answer:
    """A response; it comes in `chunks`, or else as one `body`."""

    head: str
    chunks: tuple[bytes, ...] | None = None
    body: bytes = b""

    def raw(self) -> bytes:
        """Return the bytes that are sent."""
        lines = [line.replace("{length}", str(len(self.body))) for line in self.head.splitlines()]
        tail = self.body if self.chunks is None else in_chunks(self.chunks)
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + tail


def in_chunks(pieces: Iterable[bytes]) -> bytes:
    """Return the pieces in the chunked coding (RFC 9112 section 7.1)."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def sse(*events: tuple[str | None, object]) -> tuple[bytes, ...]:
    """Return server-sent events, one chunk each."""
    lines = []
    for name, data in events:
        payload = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
        lines.append((f"event: {name}\n" if name else "") + f"data: {payload}\n\n")
    return tuple(line.encode() for line in lines)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


_ASK = _json({"model": "m", "stream": True, "messages": [{"role": "user", "content": "Zürich, 東京 \u0000 \\ud83d"}]})

REQUESTS = {
    "claude": Request(
        "POST /v1/messages?beta=true HTTP/1.1\nAccept: application/json\nX-Stainless-Retry-Count: 0\nX-Stainless-Timeout: 600\n"
        "X-Stainless-Lang: js\nanthropic-dangerous-direct-browser-access: true\nanthropic-version: 2023-06-01\n"
        "x-api-key: sk-ant-own\nx-app: cli\nUser-Agent: claude-cli/2.1.329 (external, sdk-cli)\ncontent-type: application/json\n"
        "anthropic-beta: interleaved-thinking-2025-05-14,context-management-2025-06-27\nanthropic-beta: advanced-tool-use\n"
        "Connection: keep-alive\nHost: {host}\nAccept-Encoding: gzip, deflate, br, zstd\nContent-Length: {length}",
        (_ASK,),
    ),
    "claude, counting": Request(
        "POST /v1/messages/count_tokens?beta=true HTTP/1.1\nHost: {host}\nanthropic-version: 2023-06-01\nx-api-key: sk-ant-own\n"
        "content-type: application/json\nContent-Length: {length}",
        (_ASK,),
    ),
    "codex": Request(
        "POST /v1/responses HTTP/1.1\nversion: 0.169.0\nauthorization: Bearer sk-own\nconversation_id: 0199\nsession_id: 0199\n"
        'accept: text/event-stream\ncontent-type: application/json\nuser-agent: codex_exec/0.169.0 (Debian; x86_64) "term"\n'
        "originator: codex_exec\nhost: {host}\ncontent-length: {length}",
        (_ASK,),
    ),
    "codex, compressed": Request(
        "POST /v1/responses HTTP/1.1\nauthorization: Bearer sk-own\ncontent-encoding: zstd\ncontent-type: application/json\n"
        "host: {host}\ncontent-length: {length}",
        (b"\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00hello\x00\xff",),
    ),
    "opencode": Request(
        "POST /v1/chat/completions HTTP/1.1\nContent-Type: application/json\nAuthorization: Bearer sk-own\n"
        "User-Agent: ai-sdk/openai-compatible/1.0.29 runtime/bun/1.3.8\nConnection: keep-alive\nAccept: */*\n"
        "Host: {host}\nAccept-Encoding: gzip, deflate, br, zstd\nContent-Length: {length}",
        (_ASK,),
    ),
    "goose, in chunks": Request(
        "POST /v1/chat/completions HTTP/1.1\nauthorization: Bearer sk-own\ncontent-type: application/json\n"
        "transfer-encoding: chunked\naccept: */*\nhost: {host}\nuser-agent: goose",
        (_ASK[:7], _ASK[7:], b" ", b"\n" * 70000),
        is_chunked=True,
    ),
    "models": Request(
        "GET /v1/models?limit=1000&x=%2F+%20&&b HTTP/1.1\nHost: {host}\nAuthorization: Bearer sk-own\nEmpty:"
    ),
    "one model": Request(
        "GET /v1/models/gpt-6.1%2Fx HTTP/1.1\nhost: {host}\nanthropic-version: 2023-06-01\nx-api-key: k"
    ),
    "a path nobody knows": Request(
        "DELETE /v1/responses/resp_1/x;y=1/@ HTTP/1.1\nHost: {host}\nauthorization: Bearer k"
    ),
    "another method": Request(
        "PATCH /v1/messages/batches/b HTTP/1.1\nHost: {host}\nContent-Length: {length}", (b"{}",)
    ),
    "a post without a body": Request("POST /v1/responses/resp_1/cancel HTTP/1.1\nHost: {host}\nContent-Length: 0"),
}

_STREAM = (
    "HTTP/1.1 200 OK\nDate: Sat, 21 Nov 2026 20:00:00 GMT\nContent-Type: text/event-stream; charset=utf-8\n"
    "Transfer-Encoding: chunked\nConnection: keep-alive\nCache-Control: no-cache\n"
)
_MESSAGES = sse(
    ("message_start", {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": []}}),
    (
        "content_block_start",
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    ),
    ("ping", {"type": "ping"}),
    (
        "content_block_delta",
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Grüezi 👋"}},
    ),
    ("content_block_stop", {"type": "content_block_stop", "index": 0}),
    ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
    ("message_stop", {"type": "message_stop"}),
)
_CHAT = sse(
    (
        None,
        {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hi"}}]},
    ),
    (None, {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {}}]}}]}),
    (None, {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None}),
    (None, "[DONE]"),
)
_RESPONSES = sse(
    ("response.created", {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1"}}),
    ("response.output_text.delta", {"type": "response.output_text.delta", "sequence_number": 1, "delta": "a"}),
    ("response.completed", {"type": "response.completed", "sequence_number": 2, "response": {"id": "resp_1"}}),
)
_TEXT = _json({"id": "msg_1", "content": [{"type": "text", "text": "x" * 5000}], "stop_reason": "end_turn"})
_PLAIN = "HTTP/1.1 {status}\nDate: Sat, 21 Nov 2026 20:00:00 GMT\ncontent-type: application/json\nContent-Length: {{length}}\n"


def _failure(status: str, kind: str, more: str = "") -> Answer:
    body = _json({"type": "error", "error": {"type": kind, "message": "…"}, "request_id": "req_1"})
    return Answer(_PLAIN.format(status=status) + "request-id: req_1\n" + more, body=body)


ANSWERS = {
    "messages, streamed": Answer(
        _STREAM + "anthropic-ratelimit-requests-remaining: 4999\nrequest-id: req_1\nSet-Cookie: a=1\nSet-Cookie: b=2",
        _MESSAGES,
    ),
    "chat completions, streamed": Answer(_STREAM + "openai-processing-ms: 120\nx-request-id: req_1", _CHAT),
    "responses, streamed": Answer(
        _STREAM + 'x-request-id: req_1\nAlt-Svc: h3=":443"; ma=86400\nServer: cloudflare', _RESPONSES
    ),
    "whole": Answer(_PLAIN.format(status="200 OK") + "Vary: Accept-Encoding", body=_TEXT),
    "whole, gzip": Answer(
        _PLAIN.format(status="200 OK") + "content-encoding: gzip", body=gzip.compress(_TEXT, mtime=0)
    ),
    "streamed, deflate": Answer(_STREAM + "Content-Encoding: deflate", (zlib.compress(_MESSAGES[0]), b"\x00" * 100)),
    "whole, br": Answer(_PLAIN.format(status="200 OK") + "content-encoding: br", body=b"\x0b\x02\x80hello\x03\xff\x00"),
    "whole, zstd": Answer(
        _PLAIN.format(status="200 OK") + "content-encoding: zstd", body=b"\x28\xb5\x2f\xfd\x00\r\n0\r\n\r\n"
    ),
    "400": _failure("400 Bad Request", "invalid_request_error"),
    "401": _failure("401 Unauthorized", "authentication_error", "WWW-Authenticate: Bearer\n"),
    "429": _failure("429 Too Many Requests", "rate_limit_error", "retry-after: 17\nx-should-retry: true\n"),
    "529": _failure("529 ", "overloaded_error", "retry-after: 1\n"),
    "nothing": Answer("HTTP/1.1 204 No Content\nrequest-id: req_1"),
    "not modified": Answer('HTTP/1.1 304 Not Modified\nETag: "x"\nContent-Length: 500'),
    "moved": Answer("HTTP/1.1 307 Temporary Redirect\nLocation: https://evil.example/v1/messages\nContent-Length: 0"),
    "empty": Answer("HTTP/1.1 200 OK\nContent-Length: 0"),
    "empty, in chunks": Answer("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", ()),
}
