"""A client of one MCP server over streamable HTTP. It lists the server's tools, and calls one of them.

    with Client(wire) as client:
        client.open(MODERN)
        for page in client.pages(): ...
        result = client.call("add_note", {"text": "milk"})

Both variants of the protocol are spoken: a session that begins with `initialize` (revisions up to 2025-11-25), and
requests that are each complete in themselves (2026-07-28). Requests are sent by a function of the caller (`wire`), so
that this client also serves the author's command, which sends them without a host.

Runs in the jail, and in the author's command. The server is not trusted.

Rules
- An answer is one message with the id of the request. Another id, another kind of body, or a missing end is a failure.
- A server's requests to its client (for a model, for a person's answer, for folders) are refused, except that `ping` is answered.
- A session ends with the conversation. If the server has forgotten the session (404), a new session is begun, at most once,
  and the requests are repeated, because a request of an unknown session was not executed. Nothing else is repeated.
- Redirects are not followed; the failure states their target.
- A list of tools also ends at a cursor that is empty or was returned before, because some servers return these on the
  last page.
- A failure after a call was sent says that the call may have been executed.

Source: Model Context Protocol 2025-11-25 and 2026-07-28, Lifecycle, Transports and Tools. Not here: comparing tools
(comparing.py), converting results (results.py), resuming streams.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeGuard, TypeVar

from aileron_connector.carried import carried
from aileron_connector.failures import ConnectorError, ExternalApiError, Refused, redirect_place
from aileron_connector.mcp.headers import value_of
from aileron_connector.mcp.rpc_messages import (
    UNSUPPORTED_VERSION,
    Message,
    MessageError,
    RpcError,
    decoded,
    notification,
    one_line,
    refusal,
    reply,
    request,
)
from aileron_connector.mcp.sse import MAX_EVENT_BYTES, Events, StreamError
from aileron_sandbox.frames import JSON, JSONObject

__all__ = [
    "LATEST",
    "MAX_TOOLS",
    "MODERN",
    "REVISIONS",
    "Answer",
    "Client",
    "Fields",
    "Pairs",
    "RpcFailure",
    "SessionGoneError",
    "Wire",
]

MODERN: Final = "2026-07-28"
"""MCP revision without sessions."""
LATEST: Final = "2025-11-25"
"""Newest MCP revision with sessions; the client offers it in `initialize`."""
REVISIONS: Final = (LATEST, "2025-06-18", "2025-03-26", "2024-11-05")
"""MCP revisions that a server may choose in its answer to `initialize`."""
MAX_TOOLS: Final = 2_000
"""Maximum number of tools of one server: ten times as many as the largest known server has, and more than a connector can
offer.
"""

_MAX_PAGES: Final = 100
"""Maximum number of pages of a tool list. An invocation has 256 requests."""
_MAX_CURSOR: Final = 4096
_MAX_STREAM_BYTES: Final = 16 << 20
"""Maximum number of bytes of one streamed answer: four messages of the maximum size. Most messages are progress
reports, which are not stored.
"""
_MAX_MESSAGES: Final = 10_000
"""Maximum number of messages in one answer: one message every 6 ms for a minute."""
_MAX_ASKED: Final = 16
"""Maximum number of requests that the server may send to its client within one answer. Each is refused, and a server
that still sends more is broken.
"""
_MAX_ERROR_BYTES: Final = 64 << 10
_MAX_PROGRESS: Final = 200
_PROGRESS_EVERY_S: Final = 0.1
"""Minimum number of seconds between two reports of progress that are passed on. They are for people who watch."""
_MAX_AMOUNT: Final = 1 << 53
_MAX_SESSION: Final = 1024
_PARTING_S: Final = 1.0
"""Seconds to wait for the answers to closing messages. The client does not need these answers."""
_META: Final = "io.modelcontextprotocol/"
_WHO: Final = {"name": "aileron", "version": "1"}
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
"""Status of the response to a request whose session has ended (2025-11-25, Session Management)."""
_NO_SESSION: Final = (-32000, -32001)
"""Codes with which the official SDKs report an unknown session."""
_NOT_ABOUT_REVISION: Final = (401, 403, 429)
"""Statuses of refusals that do not depend on the protocol's revision."""

T = TypeVar("T")
Pairs = Sequence[tuple[str, str]]
Progressed = Callable[[float, float | None, str | None], None]


class Fields(Protocol):
    """Header fields of an HTTP answer."""

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the first value of the header `name`, ignoring case, or `default` if there is none."""


class Answer(Protocol):
    """The HTTP answer to one request. It has the interface of aileron_connector.http.Response."""

    @property
    def status(self) -> int:
        """HTTP status of the answer."""

    @property
    def headers(self) -> Fields:
        """The answer's headers."""

    @property
    def retry_after_s(self) -> int | None:
        """Seconds after which the service allows a retry, or None."""

    def iter_bytes(self) -> Iterator[bytes]:
        """Yield the body in pieces."""

    def close(self) -> None:
        """Close the answer, and drop its unread rest."""


class Wire(Protocol):
    """A function that sends requests to the MCP server. After `give_up_at`, it raises TimeoutError, and so does reading
    the answer.
    """

    def __call__(self, method: str, headers: Pairs, body: bytes | None, give_up_at: float | None) -> Answer:
        """Send a request, wait for the head of the answer (status and headers), and return the answer."""


class RpcFailure(ExternalApiError):
    """Error: the server refused a request, with a JSON-RPC error or only with an HTTP status (`code` is then None)."""

    def __init__(self, words: str, code: int | None, status: int | None, retry_after_s: int | None = None) -> None:
        details = {"code": code} if code is not None and abs(code) < _MAX_AMOUNT else {}
        super().__init__(words, status=status, retry_after_s=retry_after_s, details=details)
        self.code: Final = code

    @classmethod
    def of(cls, method: str, error: RpcError, status: int | None = None, retry_after_s: int | None = None) -> Self:
        """Make the failure from a JSON-RPC error."""
        said = one_line(error.message)
        words = f"the server refused {method} (code {error.code}){f': {said}' if said else ''}"
        return cls(words, error.code, status, retry_after_s)

    @property
    def is_about_revision(self) -> bool:
        """True if the refusal may mean that the server speaks the other variant of the protocol (with sessions instead
        of without, or the reverse).
        """
        return self.code == UNSUPPORTED_VERSION or self.status in (400, 404, 405, 406)

    @property
    def is_about_session(self) -> bool:
        """True if the server refused a request because it does not know the session.

        The specification requires 404; servers based on the SDKs' own examples answer 400 with one of the errors in _NO_SESSION.
        """
        has_words = self.code in _NO_SESSION and "session" in self.message.lower()
        return self.status == _NOT_FOUND or (self.status == _BAD_REQUEST and has_words)


class SessionGoneError(RpcFailure):
    """Error: the server no longer knows the session, so it has not executed the request."""


class Client:
    """An MCP client for one server. After `give_up_at`, in seconds of `time.monotonic()`, waits raise an error."""

    def __init__(self, wire: Wire, on_progress: Progressed | None = None, give_up_at: float | None = None) -> None:
        self._wire: Final = wire
        self._on_progress: Final = on_progress
        self._give_up_at: Final = give_up_at
        self._number = 0
        self._session = ""
        self._progress = 0
        self._next_progress_at = 0.0
        self.protocol = ""
        """Protocol revision of this conversation; empty before `open`."""
        self.server: JSONObject = {}
        """The server's description of itself (`serverInfo`)."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Beginning and end

    def open(self, expected: str = "") -> None:
        """Begin the conversation. `expected` is the MCP revision that the server spoke earlier; if empty, find out
        which one it speaks.
        """
        if expected == MODERN:
            self.protocol = MODERN  # this revision needs no message before a request
        elif expected:
            self._initialize()
        else:
            self._find_out()

    def close(self) -> None:
        """End the session, if there is one, so that the server can free it. A refusal is ignored."""
        if not self._session:
            return
        with contextlib.suppress(ConnectorError, TimeoutError):
            headers, self._session = self._headers(), ""
            self._wire("DELETE", headers, None, time.monotonic() + _PARTING_S).close()

    def in_session(self, work: Callable[[], T]) -> T:
        """Run `work` and return its result. If the server has forgotten the session meanwhile, begin a new session and
        repeat all of `work`, once.
        """
        try:
            return work()
        except SessionGoneError:
            self._session = ""
            self._initialize()
        return work()

    def _find_out(self) -> None:
        self.protocol = MODERN
        try:
            found = self._ask("server/discover", {})
        except ExternalApiError as error:
            if error.status in _NOT_ABOUT_REVISION:
                raise
            self._initialize()
            return
        versions = found.get("supportedVersions")
        if not isinstance(versions, list) or MODERN not in versions:
            self._initialize()
            return
        meta = found.get("_meta")
        about = meta.get(f"{_META}serverInfo") if isinstance(meta, dict) else None
        self.server = about if isinstance(about, dict) else {}

    def _initialize(self) -> None:
        self.protocol = ""
        params = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": _WHO}
        found = self._ask("initialize", params)
        chosen = found.get("protocolVersion")
        if chosen not in REVISIONS:
            told = one_line(str(chosen), 40)
            raise ExternalApiError(f"the server speaks the revision {told!r}, which is not known here")
        self.protocol = str(chosen)
        about = found.get("serverInfo")
        self.server = about if isinstance(about, dict) else {}
        self._tell(notification("notifications/initialized"))

    # Tools

    def pages(self) -> Iterator[list[JSONObject]]:
        """Yield the server's tools, one list per page, each tool as the server describes it. A further page is requested
        only when it is needed.
        """
        cursor: str | None = None
        seen: set[str] = set()
        listed: dict[str, JSONObject] = {}
        number = 0
        for _ in range(_MAX_PAGES):
            found = self._page(cursor)
            said = found.get("tools")
            tools = [entry for entry in said if _is_tool(entry)] if isinstance(said, list) else []
            if not isinstance(said, list) or len(tools) < len(said):
                raise ExternalApiError("the server's list of tools is none")
            number += len(tools)
            if number > MAX_TOOLS:
                raise ExternalApiError(f"the server lists more than {MAX_TOOLS} tools")
            # Drop a page that is repeated by a server that ignores the cursor. The caller handles two tools with one name.
            fresh = [tool for tool in tools if listed.get(str(tool["name"])) != tool] if seen else tools
            listed |= {str(tool["name"]): tool for tool in tools}
            yield fresh
            after = found.get("nextCursor")
            if after is None or after == "" or (isinstance(after, str) and after in seen):
                return
            if not isinstance(after, str) or len(after) > _MAX_CURSOR:
                raise ExternalApiError("the server's list of tools does not end: its cursor is none")
            seen.add(after)
            cursor = after
        raise ExternalApiError(f"the server's list of tools has more than {_MAX_PAGES} pages")

    def _page(self, cursor: str | None) -> JSONObject:
        params = {} if cursor is None else {"cursor": cursor}
        try:
            return self._ask("tools/list", params)
        except RpcFailure as error:
            if cursor is not None or self.protocol != MODERN or not error.is_about_revision:
                raise
            self._initialize()  # the server has gone back to sessions
            return self._ask("tools/list", params)

    def call(self, name: str, arguments: JSONObject, headers: Pairs = ()) -> JSONObject:
        """Call a tool of the server and return its result unchanged. `headers` repeat arguments in header fields; only
        the revision without sessions has them.
        """
        params = {"name": name, "arguments": arguments, "_meta": {"progressToken": self._number + 1}}
        more = [("Mcp-Name", value_of(name)), *headers] if self.protocol == MODERN else []
        try:
            return self._ask("tools/call", params, more)
        except TimeoutError:
            self._cancel()
            raise _late(
                "the tool has not answered in time; it was told to stop, and may have been carried out"
            ) from None
        except RpcFailure:
            raise
        except ExternalApiError as error:
            words = f"{error.message}; the call may have been carried out, so do not simply repeat it"
            raise ExternalApiError(words, status=error.status, details=error.details) from error

    def _cancel(self) -> None:
        if self.protocol == MODERN:
            return  # closing the stream cancels the call
        params = {"requestId": self._number, "reason": "no time is left"}
        with contextlib.suppress(ConnectorError, TimeoutError):
            self._tell(notification("notifications/cancelled", params), time.monotonic() + _PARTING_S)

    # Requests

    def _ask(self, method: str, params: Mapping[str, object], headers: Pairs = ()) -> JSONObject:
        """Send a JSON-RPC request and return its result. If the answer is late, a tool call raises TimeoutError, and
        any other request ConnectorError.
        """
        self._number += 1
        if self.protocol == MODERN:
            about = {"protocolVersion": MODERN, "clientInfo": _WHO, "clientCapabilities": {}}
            own = params.get("_meta")
            meta = {**(own if isinstance(own, dict) else {}), **{_META + key: value for key, value in about.items()}}
            params = {**params, "_meta": meta}
            headers = [("Mcp-Method", method), *headers]
        try:
            message = self._asked(method, request(self._number, method, params), headers)
        except TimeoutError:
            if method == "tools/call":
                raise
            raise _late(f"the server has not answered {method} in time; no tool was called") from None
        assert message.result is not None  # an error was raised already
        # For a call, results.py replaces what no frame can carry, and reports it.
        return message.result if method == "tools/call" else carried(message.result).value

    def _asked(self, method: str, body: bytes, headers: Pairs) -> Message:
        session = self._session
        answer = self._wire("POST", [*self._headers(), *headers], body, self._give_up_at)
        try:
            message = self._message(answer, method)
            if method == "initialize":
                self._session = _session_of(answer)
            return message
        except RpcFailure as error:
            if session and error.is_about_session:
                raise SessionGoneError(error.message, error.code, error.status) from None
            raise
        finally:
            answer.close()

    def _headers(self) -> list[tuple[str, str]]:
        found = [("Accept", "application/json, text/event-stream"), ("Content-Type", "application/json")]
        if self._session:
            found.append(("Mcp-Session-Id", self._session))
        if self.protocol:
            found.append(("MCP-Protocol-Version", self.protocol))
        return found

    def _tell(self, body: bytes, give_up_at: float | None = None) -> None:
        """Send a JSON-RPC notification, which gets no answer."""
        try:
            answer = self._wire("POST", self._headers(), body, give_up_at or self._give_up_at)
        except TimeoutError:
            raise _late("the server has not answered in time; no tool was called") from None
        answer.close()
        if 300 <= answer.status < 400:
            raise _redirected(answer, "a notification")
        if answer.status >= 300:
            raise ExternalApiError(
                f"the server answered a notification with status {answer.status}", status=answer.status
            )

    # Answers

    def _message(self, answer: Answer, method: str) -> Message:
        if answer.status >= 400:
            raise _refused(answer, method)
        if answer.status >= 300:
            raise _redirected(answer, method)
        kind = _kind(answer)
        if answer.status == 200 and kind == "application/json":
            return self._own(_decoded(_read(answer, MAX_EVENT_BYTES)), method)
        if answer.status == 200 and kind == "text/event-stream":
            return self._streamed(answer, method)
        told = one_line(kind, 60) or "no content type"
        raise ExternalApiError(
            f"the server answered {method} with status {answer.status} and {told}, which is no message"
        )

    def _streamed(self, answer: Answer, method: str) -> Message:
        """Read an event stream up to the answer to the request, and return the answer. Messages before it are handled or
        refused.
        """
        events, size, number, asked = Events(), 0, 0, 0
        for piece in answer.iter_bytes():
            size += len(piece)
            for data in _fed(events, piece):
                number += 1
                message = (
                    _decoded(data) if data else None
                )  # an event without data marks where a resumed stream would begin (2025-11-25)
                if message is not None and message.is_answer:
                    return self._own(message, method)
                asked += message is not None and message.is_request
                if number > _MAX_MESSAGES or asked > _MAX_ASKED:
                    raise ExternalApiError(f"the server says too much before it answers {method}")
                if message is not None:
                    self._heard(message)
            if size > _MAX_STREAM_BYTES:
                raise ExternalApiError(f"the answer to {method} is larger than {_MAX_STREAM_BYTES} bytes")
        raise ExternalApiError(f"the stream ended before {method} was answered")

    def _own(self, message: Message, method: str) -> Message:
        """Return `message` if it is the result of this client's latest request. Raises RpcFailure if it is an error,
        ExternalApiError if it is not an answer to that request.
        """
        if not message.is_answer or (message.id is not None and message.id != self._number):
            raise ExternalApiError(f"the server answered {method} with a message that is no answer to it")
        if message.error is not None:
            raise RpcFailure.of(method, message.error)
        if message.id is None:
            raise ExternalApiError(f"the server answered {method} with a message that is no answer to it")
        return message

    def _heard(self, message: Message) -> None:
        if message.is_request:
            self._refuse(message)
        elif message.method == "notifications/progress":
            self._progressed(message.params)

    def _refuse(self, message: Message) -> None:
        """Refuse a request of the server to this client, or answer a `ping`. In the revision without sessions no answer
        is possible, so the request raises an error.
        """
        if self.protocol == MODERN or message.id is None:
            raise ExternalApiError("the server asked something of its client, which this revision does not have")
        is_ping = message.method == "ping"
        body = reply(message.id, {}) if is_ping else refusal(message.id, "not supported")
        with contextlib.suppress(ExternalApiError):
            self._tell(body)

    def _progressed(self, params: JSONObject) -> None:
        done, total, said = params.get("progress"), params.get("total"), params.get("message")
        is_ours = params.get("progressToken") == self._number
        if (
            self._on_progress is None
            or not is_ours
            or not _is_amount(done)
            or time.monotonic() < self._next_progress_at
        ):
            return
        if self._progress == _MAX_PROGRESS:
            return
        self._progress += 1
        self._next_progress_at = time.monotonic() + _PROGRESS_EVERY_S
        words = one_line(said, 200) if isinstance(said, str) else ""
        self._on_progress(done, total if _is_amount(total) else None, words or None)


def _late(words: str) -> ConnectorError:
    return ConnectorError("resource_limit_exceeded", words, details={"limit": "wall"})


def _is_amount(value: Any) -> TypeGuard[int | float]:
    return type(value) in (int, float) and -_MAX_AMOUNT < value < _MAX_AMOUNT


def _is_tool(value: JSON) -> TypeGuard[JSONObject]:
    return isinstance(value, dict) and isinstance(value.get("name"), str)


def _kind(answer: Answer) -> str:
    return (answer.headers.get("content-type", "") or "").partition(";")[0].strip().lower()


def _session_of(answer: Answer) -> str:
    """Return the session's id from a header field of the answer; empty if there is none. Raises ExternalApiError if the
    id is too long, or has characters other than visible ASCII, which the specification forbids: such an id could not be
    sent back.
    """
    session = answer.headers.get("mcp-session-id", "") or ""
    if len(session) > _MAX_SESSION or not all("\x21" <= char <= "\x7e" for char in session):
        raise ExternalApiError("the server's session has a name that no header can have")
    return session


def _read(answer: Answer, most: int) -> bytes:
    pieces, size = [], 0
    for piece in answer.iter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise ExternalApiError(f"the server's message is larger than {most} bytes")
    return b"".join(pieces)


def _fed(events: Events, piece: bytes) -> list[bytes]:
    try:
        return events.feed(piece)
    except StreamError as error:
        raise ExternalApiError(f"the server sent {error}") from None


def _decoded(data: bytes) -> Message:
    try:
        return decoded(data)
    except MessageError as error:
        # A tool may have run: the caller gets what came, since the call must not simply be repeated.
        came = one_line(data[:_MAX_ERROR_BYTES].decode("utf-8", "replace"))
        raise ExternalApiError(f"the server sent {error}", details={"answer": came} if came else {}) from None


def _redirected(answer: Answer, what: str) -> ExternalApiError:
    place = redirect_place(answer.headers.get("location", "") or "")
    where = f" to {place}, which is not followed: import that address" if place else ", and names no place"
    details = {"location": place} if place else {}
    words = f"the server redirects {what}{where} (status {answer.status})"
    return ExternalApiError(words, status=answer.status, details=details)


def _refused(answer: Answer, method: str) -> ExternalApiError:
    """Return the failure for a response with an error status. It includes the JSON-RPC error, if the body has one."""
    data = b""
    with contextlib.suppress(Refused):  # if the body breaks off, the caller still needs the status
        for piece in answer.iter_bytes():
            data += piece
            if len(data) > _MAX_ERROR_BYTES:
                break
    try:
        error = decoded(data).error if _kind(answer) == "application/json" else None
    except MessageError:
        error = None
    if error is not None:
        return RpcFailure.of(method, error, answer.status, answer.retry_after_s)
    words = f"the server answered {method} with status {answer.status}"
    return RpcFailure(words, None, answer.status, answer.retry_after_s)
