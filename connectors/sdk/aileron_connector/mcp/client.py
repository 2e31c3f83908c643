"""A conversation with an MCP server over streamable HTTP: which tools there are, and a call of one.

    with Client(wire) as client:
        client.open(MODERN)
        for page in client.pages(): ...
        result = client.call("add_note", {"text": "milk"})

Both of the protocol's ways are spoken: a session that begins with `initialize` (revisions up to 2025-11-25), and requests that
each say all there is to know (2026-07-28). How bytes get there is the caller's `wire`, so that the connector and the author's
command, which sends them itself, speak alike.

Runs in the jail, and in the author's command. The server is not trusted.

Rules
- An answer is one message with the number of the request. Another number, another kind of body, or no end is a failure.
- What a server asks of us is refused: no model is lent, no person is asked, no folder is named. `ping` is answered.
- A session ends with the conversation. If the server has forgotten it (404), another is begun, once, and what was asked in it is
  asked again: a request of a session that is not known was not carried out. Nothing else is repeated.
- Redirects are not followed; where they lead is said.
- A list of tools ends with a cursor that is empty or was there before, which some servers write on its last page.
- A failure after a call was sent says that the call may have been carried out.

Source: Model Context Protocol 2025-11-25 and 2026-07-28, Lifecycle, Transports and Tools. Not here: whether a tool is still the
same (comparing.py), what its result becomes (results.py), streams that are resumed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeGuard, TypeVar

from aileron_connector.carried import carried
from aileron_connector.failures import ConnectorError, ExternalApiError, Refused, redirect_place
from aileron_connector.mcp.headers import value_of
from aileron_connector.mcp.messages import (
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
"""The revision without sessions."""
LATEST: Final = "2025-11-25"
"""The newest with them, which `initialize` offers."""
REVISIONS: Final = (LATEST, "2025-06-18", "2025-03-26", "2024-11-05")
"""Those that a server may choose instead."""
MAX_TOOLS: Final = 2_000
"""Of one server: ten times what the largest known has, and more than a connector can offer."""

_MAX_PAGES: Final = 100
"""Of a list: an invocation has 256 requests."""
_MAX_CURSOR: Final = 4096
_MAX_STREAM_BYTES: Final = 16 << 20
"""16 MiB of one answer: four of the largest messages, most of which is progress that nobody keeps."""
_MAX_MESSAGES: Final = 10_000
"""In one answer: a message each 6 ms for a minute."""
_MAX_ASKED: Final = 16
"""Requests of a server to us in one answer: who is refused so often does not listen."""
_MAX_ERROR_BYTES: Final = 64 << 10
_MAX_PROGRESS: Final = 200
_PROGRESS_EVERY_S: Final = 0.1
"""Progress is for people who watch."""
_MAX_AMOUNT: Final = 1 << 53
_MAX_SESSION: Final = 1024
_PARTING_S: Final = 1.0
"""For what is said at the end, which nobody waits for."""
_META: Final = "io.modelcontextprotocol/"
_WHO: Final = {"name": "aileron", "version": "1"}
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
"""Status that tells a request with a session that the session is over (2025-11-25, Session Management)."""
_NO_SESSION: Final = (-32000, -32001)
"""Codes of the official SDKs for a session that is not known."""
_NOT_ABOUT_REVISION: Final = (401, 403, 429)
"""Statuses that say nothing about which revision a server speaks."""

T = TypeVar("T")
Pairs = Sequence[tuple[str, str]]
Progressed = Callable[[float, float | None, str | None], None]


class Fields(Protocol):
    """Headers of an answer."""

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of `name`, whatever its case."""


class Answer(Protocol):
    """The answer to one request, as aileron_connector.http gives it."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Fields:
        """Its headers."""

    @property
    def retry_after_s(self) -> int | None:
        """When to come back, if it says so."""

    def iter_bytes(self) -> Iterator[bytes]:
        """The body in pieces."""

    def close(self) -> None:
        """Be done with it."""


class Wire(Protocol):
    """How a request gets to the server. TimeoutError after `give_up_at`, also while the answer is read."""

    def __call__(self, method: str, headers: Pairs, body: bytes | None, give_up_at: float | None) -> Answer:
        """Send it, and wait for the head of its answer."""


class RpcFailure(ExternalApiError):
    """The server refused a request: with an error of the protocol, or with a status alone (`code` None)."""

    def __init__(self, words: str, code: int | None, status: int | None, retry_after_s: int | None = None) -> None:
        details = {"code": code} if code is not None and abs(code) < _MAX_AMOUNT else {}
        super().__init__(words, status=status, retry_after_s=retry_after_s, details=details)
        self.code: Final = code

    @classmethod
    def of(cls, method: str, error: RpcError, status: int | None = None, retry_after_s: int | None = None) -> Self:
        """Of the protocol's error."""
        said = one_line(error.message)
        words = f"the server refused {method} (code {error.code}){f': {said}' if said else ''}"
        return cls(words, error.code, status, retry_after_s)

    @property
    def is_about_revision(self) -> bool:
        """Whether the server may speak the other way."""
        return self.code == UNSUPPORTED_VERSION or self.status in (400, 404, 405, 406)

    @property
    def is_about_session(self) -> bool:
        """Return whether the server refused a request because it does not know the session.

        That is 404 by the specification, and 400 with an error of these in servers that are made after the SDKs' own examples.
        """
        has_words = self.code in _NO_SESSION and "session" in self.message.lower()
        return self.status == _NOT_FOUND or (self.status == _BAD_REQUEST and has_words)


class SessionGoneError(RpcFailure):
    """The server does not know the session any more, so it has not done what it was asked for."""


class Client:
    """One conversation. `give_up_at`, in seconds of `time.monotonic()`, is when to stop waiting and say so."""

    def __init__(self, wire: Wire, on_progress: Progressed | None = None, give_up_at: float | None = None) -> None:
        self._wire: Final = wire
        self._on_progress: Final = on_progress
        self._give_up_at: Final = give_up_at
        self._number = 0
        self._session = ""
        self._progress = 0
        self._next_progress_at = 0.0
        self.protocol = ""
        """The revision that is spoken."""
        self.server: dict[str, Any] = {}
        """What the server says of itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Beginning and end

    def open(self, expected: str = "") -> None:
        """Begin. `expected`: the revision that was spoken before; empty: find out."""
        if expected == MODERN:
            self.protocol = MODERN  # nothing to say ahead of a request
        elif expected:
            self._initialize()
        else:
            self._find_out()

    def close(self) -> None:
        """End the session, if there is one, so that none is left at the server. It may refuse to."""
        if not self._session:
            return
        with contextlib.suppress(ConnectorError, TimeoutError):
            headers, self._session = self._headers(), ""
            self._wire("DELETE", headers, None, time.monotonic() + _PARTING_S).close()

    def in_session(self, work: Callable[[], T]) -> T:
        """Do `work`, and all of it once more in a new session if the server has forgotten this one meanwhile."""
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
        about = found.get("_meta", {}).get(f"{_META}serverInfo") if isinstance(found.get("_meta"), dict) else None
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

    def pages(self) -> Iterator[list[dict[str, Any]]]:
        """The tools, page by page, each as the server lists it. Read no further than you need."""
        cursor: str | None = None
        seen: set[str] = set()
        listed: dict[str, Any] = {}
        number = 0
        for _ in range(_MAX_PAGES):
            found = self._page(cursor)
            tools = found.get("tools")
            if not isinstance(tools, list) or not all(_is_tool(one) for one in tools):
                raise ExternalApiError("the server's list of tools is none")
            number += len(tools)
            if number > MAX_TOOLS:
                raise ExternalApiError(f"the server lists more than {MAX_TOOLS} tools")
            # A page that comes again, where a server does not read the cursor; what only has a name twice is the caller's matter.
            fresh = (
                [tool for tool in tools if tool["name"] not in listed or listed[tool["name"]] != tool]
                if seen
                else tools
            )
            listed |= {tool["name"]: tool for tool in tools}
            yield fresh
            cursor = found.get("nextCursor")
            if cursor is None or cursor == "" or (isinstance(cursor, str) and cursor in seen):
                return
            if not isinstance(cursor, str) or len(cursor) > _MAX_CURSOR:
                raise ExternalApiError("the server's list of tools does not end: its cursor is none")
            seen.add(cursor)
        raise ExternalApiError(f"the server's list of tools has more than {_MAX_PAGES} pages")

    def _page(self, cursor: str | None) -> dict[str, Any]:
        params = {} if cursor is None else {"cursor": cursor}
        try:
            return self._ask("tools/list", params)
        except RpcFailure as error:
            if cursor is not None or self.protocol != MODERN or not error.is_about_revision:
                raise
            self._initialize()  # it has gone back to sessions
            return self._ask("tools/list", params)

    def call(self, name: str, arguments: dict[str, Any], headers: Pairs = ()) -> dict[str, Any]:
        """Call a tool and give its result, as it came. `headers` are those of marked arguments, for revisions that have them."""
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
            return  # the stream is closed, which says it
        params = {"requestId": self._number, "reason": "no time is left"}
        with contextlib.suppress(ConnectorError, TimeoutError):
            self._tell(notification("notifications/cancelled", params), time.monotonic() + _PARTING_S)

    # Requests

    def _ask(self, method: str, params: dict[str, Any], headers: Pairs = ()) -> dict[str, Any]:
        """The result of a request. TimeoutError for a call that is late; for all else that is a failure."""
        self._number += 1
        if self.protocol == MODERN:
            about = {"protocolVersion": MODERN, "clientInfo": _WHO, "clientCapabilities": {}}
            meta = {**params.get("_meta", {}), **{_META + key: value for key, value in about.items()}}
            params = {**params, "_meta": meta}
            headers = [("Mcp-Method", method), *headers]
        try:
            message = self._asked(method, request(self._number, method, params), headers)
        except TimeoutError:
            if method == "tools/call":
                raise
            raise _late(f"the server has not answered {method} in time; no tool was called") from None
        assert message.result is not None  # what has an error was raised
        # Of a call, results.py says what had to be replaced.
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
        """Send what has no answer."""
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
        """The answer in a stream; what else is in it is heard or refused."""
        events, size, number, asked = Events(), 0, 0, 0
        for piece in answer.iter_bytes():
            size += len(piece)
            for data in _fed(events, piece):
                number += 1
                message = (
                    _decoded(data) if data else None
                )  # without data: where a resumed stream would begin (2025-11-25)
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
        """The answer, if it is one to what was asked."""
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
        """A request to us. Where there are no sessions there is nowhere to answer, and no server may ask."""
        if self.protocol == MODERN or message.id is None:
            raise ExternalApiError("the server asked something of its client, which this revision does not have")
        is_ping = message.method == "ping"
        body = reply(message.id, {}) if is_ping else refusal(message.id, "not supported")
        with contextlib.suppress(ExternalApiError):
            self._tell(body)

    def _progressed(self, params: dict[str, Any]) -> None:
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


def _is_tool(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str)


def _kind(answer: Answer) -> str:
    return (answer.headers.get("content-type", "") or "").partition(";")[0].strip().lower()


def _session_of(answer: Answer) -> str:
    """The session's name: visible ASCII, as the specification says, or it is none that could be sent back."""
    session = answer.headers.get("mcp-session-id", "") or ""
    if len(session) > _MAX_SESSION or not all("\x21" <= one <= "\x7e" for one in session):
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
        # A tool may have run: what came goes to whoever asked, since it cannot be asked for again.
        came = one_line(data[:_MAX_ERROR_BYTES].decode("utf-8", "replace"))
        raise ExternalApiError(f"the server sent {error}", details={"answer": came} if came else {}) from None


def _redirected(answer: Answer, what: str) -> ExternalApiError:
    place = redirect_place(answer.headers.get("location", "") or "")
    where = f" to {place}, which is not followed: import that address" if place else ", and names no place"
    details = {"location": place} if place else {}
    words = f"the server redirects {what}{where} (status {answer.status})"
    return ExternalApiError(words, status=answer.status, details=details)


def _refused(answer: Answer, method: str) -> ExternalApiError:
    """An error status, with the protocol's error where the body is one."""
    data = b""
    with contextlib.suppress(Refused):  # if it breaks off, its status is still what the caller has to know
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
