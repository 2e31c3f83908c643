"""Messages of JSON-RPC 2.0 as used by the Model Context Protocol, that is, one at a time, without batches.

    decoded(b'{"jsonrpc": "2.0", "id": 1, "result": {}}').is_answer     # True

Runs in the jail, and in the author's command. The server is not trusted: bytes that are not exactly one message raise
MessageError, and a server's error message is truncated before it is shown.

Source: JSON-RPC 2.0; Model Context Protocol 2025-11-25 and 2026-07-28, Base Protocol. Not here: the order of messages
(client.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from aileron_connector.carried import parsed
from aileron_sandbox.frames import JSONObject

__all__ = [
    "METHOD_NOT_FOUND",
    "UNSUPPORTED_VERSION",
    "Message",
    "MessageError",
    "RpcError",
    "decoded",
    "notification",
    "one_line",
    "refusal",
    "reply",
    "request",
]

METHOD_NOT_FOUND: Final = -32601
UNSUPPORTED_VERSION: Final = -32022
"""Error code of a server that does not support the revision of a request. The error's data lists the supported revisions."""
_MAX_WORDS: Final = 600
"""Maximum number of characters of a server's error text."""


class MessageError(ValueError):
    """Error: the bytes are not exactly one valid JSON-RPC message."""


class RpcError(msgspec.Struct, frozen=True):
    """A JSON-RPC error: the server's reason why a request failed."""

    code: int
    message: str = ""
    data: Any = None


class Message(msgspec.Struct, frozen=True):
    """A JSON-RPC message: a request, a notification or an answer, as its fields say."""

    jsonrpc: Literal["2.0"]
    id: int | str | None = None
    method: str | None = None
    params: JSONObject = {}
    result: JSONObject | None = None
    error: RpcError | None = None

    @property
    def is_answer(self) -> bool:
        """True if the message answers a request."""
        return self.method is None

    @property
    def is_request(self) -> bool:
        """True if the message needs an answer."""
        return self.method is not None and self.id is not None


def decoded(data: bytes) -> Message:
    """Decode one JSON-RPC message. Raises MessageError. The message may have values that no frame can carry
    (aileron_connector/carried.py).
    """
    try:
        message = msgspec.convert(parsed(data), Message)
    except ValueError as error:  # ValidationError too
        raise MessageError(f"no message of JSON-RPC 2.0: {str(error)[:200]}") from None
    has = (message.result is not None, message.error is not None)
    if message.is_answer and has not in ((True, False), (False, True)):
        raise MessageError("no message of JSON-RPC 2.0: an answer has either a result or an error")
    if not message.is_answer and any(has):
        raise MessageError("no message of JSON-RPC 2.0: it is a request and an answer")
    return message


def request(number: int, method: str, params: Mapping[str, object]) -> bytes:
    """Encode a JSON-RPC request. `number` is its id."""
    return _encoded({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def notification(method: str, params: Mapping[str, object] | None = None) -> bytes:
    """Encode a JSON-RPC notification, that is, a message without an answer."""
    return _encoded({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})})


def reply(to: int | str, result: Mapping[str, object]) -> bytes:
    """Encode an answer with a result. `to` is the id of the request."""
    return _encoded({"jsonrpc": "2.0", "id": to, "result": result})


def refusal(to: int | str, words: str) -> bytes:
    """Encode an answer with an error, for a request that is not supported here. `to` is the id of the request."""
    return _encoded({"jsonrpc": "2.0", "id": to, "error": {"code": METHOD_NOT_FOUND, "message": words}})


def one_line(text: str, most: int = _MAX_WORDS) -> str:
    """Return a server's text on one line, without invisible characters, for a message to people and agents."""
    words = " ".join(text[: 4 * most].split())
    seen = "".join([character for character in words if character.isprintable()])
    return seen if len(seen) <= most else f"{seen[: most - 1]}…"


def _encoded(message: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(message)
