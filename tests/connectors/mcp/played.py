"""A server that answers as a test wants, without a network: the other end of a client's wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from aileron_connector.mcp.client import LATEST, Pairs

JSON = "application/json"
STREAM = "text/event-stream"
TOOL: dict[str, Any] = {"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}
DONE = {"content": [{"type": "text", "text": "done"}]}
RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {"protocolVersion": LATEST, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
    "tools/list": {"tools": [TOOL]},
    "tools/call": DONE,
}


class Fields:
    """The headers of an answer."""

    def __init__(self, pairs: dict[str, str]) -> None:
        self._pairs = {name.lower(): value for name, value in pairs.items()}

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return a header's value, whatever the case of its name."""
        return self._pairs.get(name.lower(), default)


class Said:
    """An answer, whose body may be endless. `is_closed` is True once the client is done with it."""

    def __init__(self, pieces: Iterable[bytes] = (), kind: str = JSON, status: int = 200, **headers: str) -> None:
        self.status = status
        self.headers = Fields(
            {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
        )
        self.retry_after_s: int | None = None
        self.is_closed = False
        self._pieces = pieces

    def iter_bytes(self) -> Iterator[bytes]:
        """Yield the body."""
        yield from self._pieces

    def close(self) -> None:
        """Note that the answer is closed."""
        self.is_closed = True


def answer(number: Any, result: Any = DONE) -> dict[str, Any]:
    """Return an answer to a request."""
    return {"jsonrpc": "2.0", "id": number, "result": result}


def event(*messages: Any) -> bytes:
    """Return messages as events."""
    return b"".join(b"data: " + json.dumps(message).encode() + b"\n\n" for message in messages)


Reply = Callable[[dict[str, Any]], Said]


class Played:
    """A wire with a server behind it. `on` has replies for some methods; the others get a correct answer."""

    def __init__(self, **on: Reply) -> None:
        self._on = on
        self.sent: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.said: list[Said] = []

    @property
    def methods(self) -> list[str]:
        """The methods of the requests, in order."""
        return [message.get("method", "answer") if method == "POST" else method for method, _, message in self.sent]

    def __call__(self, method: str, headers: Pairs, body: bytes | None, give_up_at: float | None) -> Said:
        message = json.loads(body) if body else {}
        self.sent.append((method, dict(headers), message))
        reply = self._on.get(message.get("method", method).rpartition("/")[2])
        said = self._usual(message) if reply is None else reply(message)
        self.said.append(said)
        return said

    def _usual(self, message: dict[str, Any]) -> Said:
        result = RESULTS.get(message.get("method", ""))
        if result is None:
            is_asked = "id" in message and "method" in message
            return Said(status=404 if is_asked else 202)
        return Said([json.dumps(answer(message["id"], result)).encode()])
