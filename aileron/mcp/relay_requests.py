"""A client's open requests. If the daemon disconnects, this module decides which are sent again, and how the others are
answered.

Runs in the relay (`aileron-mcp`), which an agent starts. Trusts neither side's bytes: a line that is not one JSON object, or
whose parts have wrong types, is relayed and otherwise ignored. No I/O.

Rules
- A request is sent again only if its method is in `SAFE`; a `tools/call` never is. A repeated request is encoded again
  from the parsed message. So a line that another parser would read as a call (for example, because of a duplicate key)
  is not repeated as a call.
- Every other open request gets one answer, which says that its outcome is unknown.
- The handshake of the 2025 protocol (`initialize`) belongs to a connection. It is repeated for each new connection, and its
  answer is hidden from the client, which already has one. A `subscriptions/listen` of the 2026 protocol is opened again with
  its original id.
- Bounds: at most `MAX_OPEN` requests, and at most `MAX_KEPT_BYTES` of requests that may be sent again.

>>> conversation = ClientConversation()
>>> conversation.sent(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_mail"}}')
>>> json.loads(conversation.lost())["error"]["data"]
{'retriable': False, 'class': 'outcome_unknown'}

Source: the MCP specification, 2025-11-25 (lifecycle) and 2026-07-28 (server/discover, subscriptions); JSON-RPC 2.0.
Not here: sockets and when to reconnect (relay.py), HTTP (relay_http.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:  # the relay imports no more than it needs to start
    from aileron.model.json_value import JSON, JSONObject


__all__ = [
    "LISTEN",
    "LIST_CHANGED",
    "MAX_ASKED",
    "MAX_KEPT_BYTES",
    "MAX_OPEN",
    "SAFE",
    "ClientConversation",
    "Message",
    "TooLong",
    "anew",
    "as_line",
    "failed",
    "list_changed",
    "message_of",
    "refusal",
    "takes_back",
    "unknown_outcome",
    "wants_answer",
]

MAX_OPEN: Final = 1024
"""Maximum number of open requests. An agent has a handful. At the maximum, no more input is read until a request is
answered.
"""
MAX_KEPT_BYTES: Final = 1 << 20
"""Maximum total size in bytes of the requests stored to be sent again. One request has some hundred bytes. A request that
does not fit is not sent again.
"""
MAX_ASKED: Final = 4
"""Maximum number of times that one request is sent, if the daemon disconnects each time."""
SAFE: Final = frozenset({"initialize", "server/discover", "tools/list", "ping", "subscriptions/listen"})
"""Methods whose requests change nothing, and so can be sent twice."""

LISTEN: Final = "subscriptions/listen"
LIST_CHANGED: Final = "notifications/tools/list_changed"
SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_LOOKS: Final = frozenset({"check_action_status", "find_action", "wait_for_action", "list_pending"})
"""Aileron's tools that only read: an agent can safely repeat a call whose outcome is unknown."""
_MAX_ID: Final = 1024
"""Maximum number of characters of an id that is remembered. Ids of agents have at most forty."""
FAILED: Final = -32000
"""Error code that the SDKs themselves use if a connection ends before the answer. The specification leaves the code to
implementations.
"""

Message: TypeAlias = "JSONObject"
"""A decoded JSON-RPC message. Nothing in it is checked except that it is an object."""


class ClientConversation:
    """The open requests and the handshake of one client, kept while connections to daemons come and go."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._kept_bytes = 0
        self._handshake: Message | None = None  # the client's `initialize`, to be repeated
        self._promised: Message | None = None  # the answer to it that the client got
        self._is_initialized = False
        self._was_lost = False
        self.is_early = False
        """True if the client's list of tools did not come from a running daemon. When a daemon runs, the client is notified
        that the tools may have changed.
        """
        self.broken = ""
        """Reason to end the relay, if the new daemon does not support what the old one promised the client; otherwise empty."""
        self._hidden: set[str] = set()  # ids of the relay's own requests, whose answers the client must not see
        self._made = 0

    @property
    def is_full(self) -> bool:
        """True if no more requests can be remembered."""
        return len(self._open) >= MAX_OPEN

    @property
    def is_waiting(self) -> bool:
        """True if a request waits for an answer from a daemon. Open subscriptions do not count."""
        return any(not request.is_listening for request in self._open.values())

    @property
    def is_resuming(self) -> bool:
        """True if some answers of the new daemon must not reach the client, so each line of the daemon must go through
        `heard`.
        """
        return bool(self._hidden) or self.is_early or any(request.is_reopened for request in self._open.values())

    def sent(self, line: bytes) -> None:
        """Record that a line of the client, or a part of it, was sent to the daemon."""
        message = message_of(line)
        if message is None:
            return
        method, request_id = message.get("method"), _id_of(message.get("id"))
        if not isinstance(method, str):
            return
        if request_id is not None:
            self._forget(_encoded(request_id))
            self._remember(request_id, method, message)
        elif method == "notifications/initialized":
            self._is_initialized = True
        elif method == "notifications/cancelled":
            self._cancelled(message)

    def heard(self, line: bytes) -> bytes:
        """Process a line from the daemon, and return the bytes to write to the client: usually the same line, or nothing."""
        message = message_of(line)
        if message is None:
            return line
        if "method" in message:
            return self._notified(message, line)
        key = _key(message.get("id"))
        if key is None:
            return line
        if key in self._hidden:
            self._hidden.discard(key)
            return self._resumed_with(message)
        answered = self._forget(key)
        if answered is not None and answered.method == "initialize" and "result" in message:
            self._handshake, self._promised = answered.again, message
        return line

    def _resumed_with(self, message: Message) -> bytes:
        """Process the daemon's answer to the handshake that the relay repeated, which the client must not see. Return a
        notification that the tools may have changed, or nothing.
        """
        if not _keeps(_result(self._promised), _result(message)):
            self.broken = "the daemon speaks the protocol otherwise than this agent was told: start the agent again"
            return b""
        is_news = self._is_initialized and (self._was_lost or self.is_early)
        self.is_early = False
        return as_line({"jsonrpc": "2.0", "method": LIST_CHANGED}) if is_news else b""

    def lost(self) -> bytes:
        """Record that the daemon disconnected. Return, as lines, error answers to requests that cannot be sent again.
        `resumed` sends the others again.
        """
        self._hidden.clear()
        self._was_lost = True
        for request in self._open.values():
            request.is_reopened = False
        over = [request for request in self._open.values() if request.again is None or request.asked >= MAX_ASKED]
        return b"".join(self._give_up(request, unknown_outcome(request.id, request.tool)) for request in over)

    def resumed(self) -> bytes:
        """Return the lines that must be sent to a new daemon before any other line."""
        lines = []
        if self._handshake is not None:
            own = self._own_id()
            self._hidden.add(_encoded(own))
            lines.append(as_line({**self._handshake, "id": own}))
            if self._is_initialized:
                lines.append(as_line({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        for request in self._open.values():
            if request.again is not None:
                request.asked += 1
                request.is_reopened = request.is_heard
                lines.append(as_line(request.again))
        return b"".join(lines)

    def give_up(self, why: str) -> bytes:
        """Return error answers, with the reason `why`, to all waiting requests. Subscriptions stay open for the next daemon."""
        over = [request for request in self._open.values() if not request.is_listening]
        return b"".join(self._give_up(request, failed(request.id, why)) for request in over)

    def _remember(self, request_id: int | str, method: str, message: Message) -> None:
        request = _Open(request_id, method, _tool(message))
        if method in SAFE:
            size = _size(message)
            if size is not None and self._kept_bytes + size <= MAX_KEPT_BYTES:
                request.again, request.size = anew(message), size
                self._kept_bytes += size
        self._open[_encoded(request_id)] = request

    def _forget(self, key: str) -> _Open | None:
        request = self._open.pop(key, None)
        if request is not None:
            self._kept_bytes -= request.size
        return request

    def _give_up(self, request: _Open, answer: Message) -> bytes:
        self._forget(_encoded(request.id))
        return as_line(answer)

    def _cancelled(self, message: Message) -> None:
        params = message.get("params")
        key = _key(params.get("requestId")) if isinstance(params, dict) else None
        if key is not None and key in self._open and self._open[key].method != "initialize":
            self._forget(key)  # neither its answer nor a reopened subscription is wanted

    def _notified(self, message: Message, line: bytes) -> bytes:
        if message.get("method") != _ACKNOWLEDGED:
            return line
        subscription = self._open.get(_key(_meta(message).get(SUBSCRIPTION)) or "")
        if subscription is None or not subscription.is_listening:
            return line
        subscription.is_heard, was_reopened = True, subscription.is_reopened
        subscription.asked, subscription.is_reopened = 1, False
        news = as_line(list_changed(subscription.id)) if _follows_tools(message) else b""
        if was_reopened:
            return news
        is_early, self.is_early = self.is_early, False
        return line + news if is_early else line

    def _own_id(self) -> str:
        """Return an id for the relay's own request that differs from all ids of the client."""
        while True:
            self._made += 1
            own = f"aileron-relay-{self._made}"
            if _encoded(own) not in self._open:
                return own


class _Open:
    """An open request of the client: its id and method, and the message if it can be sent again."""

    __slots__ = ("again", "asked", "id", "is_heard", "is_reopened", "method", "size", "tool")

    def __init__(self, request_id: int | str, method: str, tool: str) -> None:
        self.id = request_id
        self.method = method
        self.tool = tool
        self.again: Message | None = None
        self.size = 0
        self.asked = 1
        self.is_heard = False
        self.is_reopened = False

    @property
    def is_listening(self) -> bool:
        return self.method == LISTEN


def message_of(line: bytes) -> Message | None:
    """Return the JSON object of a line, or None if the line is anything else."""
    try:
        value = json.loads(line.decode())
    except (ValueError, RecursionError):  # UnicodeDecodeError and numbers of too many digits are ValueErrors
        return None
    return value if isinstance(value, dict) else None


def refusal(line: bytes, why: str) -> bytes:
    """Return an error answer, with the reason `why`, to a line that cannot be forwarded; empty if the line is no request."""
    message = message_of(line)
    if message is None:
        from aileron.mcp.unreadable import id_in

        asked = id_in(line)
        return b"" if asked is None else as_line(failed(asked, why))
    request_id = _id_of(message.get("id"))
    if request_id is None or not isinstance(message.get("method"), str):
        return b""
    return as_line(failed(request_id, why))


class TooLong:
    """An overlong line that is still arriving. Only its id is stored, which many clients write last."""

    def __init__(self, begun: bytes) -> None:
        from aileron.mcp.unreadable import IdScanner

        self._scanner = IdScanner()
        self._scanner.feed(begun)

    def feed(self, piece: bytes) -> None:
        """Process the next piece of the overlong line."""
        self._scanner.feed(piece)

    def refusal(self, why: str) -> bytes:
        """Return the error for the overlong line, with the reason `why` and the line's id, or a null id if the line has
        none.
        """
        return as_line(failed(self._scanner.found(), why))


def wants_answer(line: bytes) -> bool:
    """Return whether the client expects an answer to the line. False for notifications and answers."""
    message = message_of(line)
    return message is None or ("method" in message and "id" in message)


def takes_back(line: bytes) -> bool:
    """Return whether the line cancels an earlier request."""
    message = message_of(line)
    return message is not None and message.get("method") == "notifications/cancelled"


def failed(request_id: int | str | None, why: str, **data: JSON) -> Message:
    """Return an error response with the reason `why`. `data` is added to the error, for programs."""
    error: Message = {"code": FAILED, "message": f"aileron: {why}"}
    return {"jsonrpc": "2.0", "id": request_id, "error": {**error, "data": data} if data else error}


def unknown_outcome(request_id: int | str, tool: str) -> Message:
    """Return the answer to a request whose daemon disconnected before it answered. `tool` is the name of the called tool, or
    empty for a request that is safe to repeat.
    """
    if not tool:
        return failed(request_id, "the daemon went away before it answered: ask again")
    if tool in _LOOKS:
        return failed(request_id, f"the daemon was restarted during this call: call {tool} again", retriable=True)
    why = (
        "the daemon went away during this call, and whether it was carried out is not known. Do not repeat it. "
        "If it needs approval, list_pending shows whether it waits; otherwise ask the person to look: aileron audit list"
    )
    return failed(request_id, why, retriable=False, **{"class": "outcome_unknown"})


def list_changed(subscription: int | str) -> Message:
    """Return the notification for a subscription of the 2026 protocol that the tools may have changed."""
    return {"jsonrpc": "2.0", "method": LIST_CHANGED, "params": {"_meta": {SUBSCRIPTION: subscription}}}


def as_line(message: Message) -> bytes:
    """Return a message as one line."""
    return json.dumps(message).encode() + b"\n"  # ASCII: also an id with half of a surrogate pair


def anew(message: Message) -> Message:
    """Return a copy of a request to send again, with only the members that JSON-RPC defines."""
    kept = {"jsonrpc": "2.0", "id": message["id"], "method": message["method"]}
    return {**kept, "params": message["params"]} if isinstance(message.get("params"), dict) else kept


def _result(message: Message | None) -> Message:
    result = message.get("result") if message is not None else None
    return result if isinstance(result, dict) else {}


def _keeps(promised: Message, given: Message) -> bool:
    """Return whether a daemon's answer to a repeated handshake (`given`) has the version and at least the capabilities
    of the first answer (`promised`).
    """
    if promised.get("protocolVersion") != given.get("protocolVersion"):
        return False
    then, now = promised.get("capabilities"), given.get("capabilities")
    if not isinstance(then, dict) or not isinstance(now, dict):
        return then == now
    return all(now.get(name) == value for name, value in then.items())


def _size(message: Message) -> int | None:
    try:
        return len(json.dumps(anew(message), allow_nan=False))
    except (ValueError, RecursionError):
        return None


def _id_of(value: JSON) -> int | str | None:
    """Return `value` if it is a JSON-RPC id; None if it is not, or is too long to be remembered."""
    if type(value) is int:  # not a bool
        return value
    return value if isinstance(value, str) and len(value) <= _MAX_ID else None


def _key(value: JSON) -> str | None:
    """Return a dict key for a JSON-RPC id, which differs for 1 and "1". None for a value that is no id."""
    request_id = _id_of(value)
    return None if request_id is None else _encoded(request_id)


def _encoded(request_id: int | str) -> str:
    return json.dumps(request_id)


def _tool(message: Message) -> str:
    if message["method"] in SAFE:
        return ""
    params = message.get("params")
    name = params.get("name") if message["method"] == "tools/call" and isinstance(params, dict) else None
    return name if isinstance(name, str) and name in _LOOKS else "another"


def _meta(message: Message) -> Message:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def _follows_tools(message: Message) -> bool:
    params = message.get("params")
    honoured = params.get("notifications") if isinstance(params, dict) else None
    return isinstance(honoured, dict) and honoured.get("toolsListChanged") is True
