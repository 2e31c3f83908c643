"""The relay for a container, which cannot reach the daemon's socket. It sends requests over HTTPS to the daemon's
`/mcp`, with the session's token.

Runs in `aileron-mcp` when AILERON_URL is set: `https://HOST:PORT`, or `http://` on loopback only, because the token
goes with each request. The certificate must be signed by an authority of the system or of AILERON_CA_FILE. Trusts
neither side's bytes. It uses only the standard library, and a thread for each open request: an agent has a handful of
requests, and no event loop has to be imported.

Rules
- As over the socket, a call is never sent twice, a lost answer is reported as lost, and a safe request is sent again.
  If the daemon has forgotten a session or a subscription, the relay renews it, and the client does not notice. The
  relay starts no daemon here.
- Each request has a connection of its own. On a kept-alive connection, the relay could not tell "closed before the
  answer" from "closed before the request", so calls that never began would have an unknown outcome. The price is a TLS
  handshake for each request.
- The relay knows a request's protocol from the request itself. A request with a version in its `_meta` is of the 2026
  protocol, and gets the headers that repeat parts of it. Any other request belongs to the session that `initialize`
  began.
- Cancelling a request of the 2026 protocol closes its connection. In the older versions, a notification cancels the
  request.
- Redirects are never followed, and no proxy is used.

Source: the MCP specification, streamable HTTP transport, 2025-11-25 and 2026-07-28. Not here: the choice of requests that are
sent again (relay_requests.py), events (relay_sse.py), the server (server.py).
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import select
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from aileron.client import Elsewhere
from aileron.mcp.relay_process import MAX_LINE_BYTES, say, token_of
from aileron.mcp.relay_requests import (
    LIST_CHANGED,
    LISTEN,
    MAX_ASKED,
    SAFE,
    Message,
    anew,
    as_line,
    failed,
    list_changed,
    message_of,
    refusal,
    unknown_outcome,
)
from aileron.mcp.relay_sse import EventError, Events
from aileron.mcp.unreadable import IdScanner, id_in

__all__ = ["Endpoint", "Misconfigured", "main"]

OK: Final = 0
UNAVAILABLE: Final = 69
INTERRUPTED: Final = 130

MAX_OPEN: Final = 64
"""Maximum number of open requests, equal to what the daemon's server accepts from one session."""
CONNECT_S: Final = 10.0
"""Seconds within which a connection must be established, with repeated attempts. A restarted daemon is back in two seconds."""
ANSWER_S: Final = 90.0
"""Maximum number of seconds to wait for the next byte of a response. A call is answered after at most 70 s, and a stream
sends something every 15 s.
"""
_TOLD_S: Final = 15.0
"""Maximum seconds to wait until the daemon accepts a notification. Accepting it takes no work."""
_GOODBYE_S: Final = 2.0
_PAUSE_S: Final = 0.25
_MOST_PAUSE_S: Final = 5.0
_MAX_ERROR_BYTES: Final = 1 << 16
_TOO_LONG: Final = f"a message of more than {MAX_LINE_BYTES >> 20} MiB is not passed on"
_MAX_WORDS: Final = 200
_CHUNK: Final = 1 << 16
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Parameter whose value the Mcp-Name header repeats, by method."""
_BOTH: Final = "application/json, text/event-stream"
_ENDED: Final = (
    "the session of this agent is over, or was never one: `aileron sessions new`, where the daemon is, makes another"
)


class Misconfigured(Exception):
    """Error: the environment lacks the daemon's address or the session's token. The message says what to set."""


class Unreachable(Exception):
    """Error: the daemon cannot be reached, so nothing was sent."""


class Lost(Exception):
    """Error: the connection ended, and it is not known whether the daemon read the request."""


class Endpoint:
    """The address of a remote daemon, from which any number of connections to it can be made."""

    def __init__(self, url: str, ca_file: str = "") -> None:
        """Check the address and the file of certificate authorities. Raises Misconfigured."""
        try:
            self._elsewhere = Elsewhere(url, ca_file)
        except ValueError as error:
            raise Misconfigured(str(error)) from None
        self.url = self._elsewhere.url

    def connect(self, until: float, read_s: float) -> http.client.HTTPConnection:
        """Return an established connection to the daemon; retry until `until`, in the time of `time.monotonic()`. Each
        later wait for bytes takes at most `read_s` seconds. Raises Unreachable.
        """
        pause_s = _PAUSE_S
        while True:
            left = until - time.monotonic()
            connection = self._elsewhere.connection(max(left, _PAUSE_S))
            try:
                connection.connect()
                assert connection.sock is not None
                connection.sock.settimeout(read_s)
                return connection
            except ssl.SSLCertVerificationError as error:
                connection.close()
                reason = f"the certificate of {self.url} is not trusted ({error.verify_message}): set AILERON_CA_FILE"
                raise Unreachable(reason) from error
            except OSError as error:
                connection.close()
                if left <= pause_s:
                    raise Unreachable(f"no daemon at {self.url}: {error}") from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)


class _Flight:
    """A request of the client whose answer is not complete yet."""

    def __init__(self, request_id: int | str, message: Message, line: bytes) -> None:
        self.id: Final = request_id
        self.method = str(message["method"])
        self.message = message
        self.line = line
        self.is_modern = _version_of(message) is not None
        self.is_safe = self.method in SAFE
        self.is_heard = False  # True for a subscription that was acknowledged
        self.is_cancelled = False
        self.connection: http.client.HTTPConnection | None = None

    @property
    def tool(self) -> str:
        """Name of the called tool, for `unknown_outcome`; empty for a request that is safe to repeat."""
        if self.is_safe:
            return ""
        name = _params(self.message).get("name")
        return name if isinstance(name, str) else "another"

    def cancel(self) -> None:
        """Close the request's connection from another thread. The request's own thread then ends without an answer."""
        self.is_cancelled = True
        if self.connection is not None and self.connection.sock is not None:
            with contextlib.suppress(OSError):
                self.connection.sock.shutdown(socket.SHUT_RDWR)


class _Session:
    """A session of the MCP versions before 2026. When the daemon has forgotten it, another object for a new session
    replaces this one.
    """

    def __init__(self, handshake: Message, session_id: str, version: str) -> None:
        self.handshake = handshake
        self.id = session_id
        self.version = version
        self.is_initialized = False


class HttpRelay:
    """A relay between a client on standard input and output and a daemon over HTTP."""

    def __init__(self, endpoint: Endpoint, token: str) -> None:
        self._endpoint = endpoint
        self._token = token
        self._session: _Session | None = None
        self._renewing = threading.Lock()
        self._writing = threading.Lock()
        self._knowing = threading.Lock()
        self._flights: dict[str, _Flight] = {}
        self._is_streaming = False
        self.was_met = False

    def take(self, line: bytes) -> None:
        """Process a line of the client. Returns when the next line may be processed: most answers are awaited in threads."""
        message = message_of(line)
        if message is None:
            self._write(as_line(_protocol_error(id_in(line), -32700, "not one JSON object")))
            return
        method, request_id = message.get("method"), message.get("id")
        if isinstance(method, str) and (type(request_id) is int or type(request_id) is str):
            self._begin(_Flight(request_id, message, line))
        elif method == "notifications/cancelled" and self._cancel(message):
            return
        elif "id" in message and method is not None:
            self._write(as_line(_protocol_error(None, -32600, "not one JSON-RPC 2.0 message")))
        else:
            self._notify(message, line)

    def refuse(self, request_id: int | str | None, why: str) -> None:
        """Send the client an error, with the reason `why`, in answer to a line that is not forwarded."""
        self._write(as_line(failed(request_id, why)))

    def close(self) -> None:
        """End the MCP session at the daemon."""
        session = self._session
        if session is None or not session.id:
            return
        with contextlib.suppress(Unreachable, OSError, http.client.HTTPException):
            connection = self._endpoint.connect(time.monotonic(), _GOODBYE_S)
            with contextlib.closing(connection):
                connection.request("DELETE", "/mcp", headers=self._headers(session))
                connection.getresponse()

    # Requests

    def _begin(self, flight: _Flight) -> None:
        key = json.dumps(flight.id)
        with self._knowing:
            is_full = len(self._flights) >= MAX_OPEN
            if not is_full:
                self._flights[key] = flight
        if is_full:
            self._write(as_line(failed(flight.id, f"at most {MAX_OPEN} requests at once; wait for an answer")))
        elif flight.method == "initialize":
            self._carry(flight, key)  # later requests need the session that it begins
        else:
            threading.Thread(target=self._carry, args=(flight, key), daemon=True).start()

    def _carry(self, flight: _Flight, key: str) -> None:
        answer: Message | None
        try:
            answer = self._ask(flight)
        except Unreachable as error:
            answer = failed(flight.id, f"{error}. Nothing was sent", retriable=True)
        except ValueError:  # a header that cannot be one; also UnicodeError
            answer = _protocol_error(flight.id, -32600, "a name in this request cannot be sent")
        except Exception as error:  # noqa: BLE001 - the end of a thread: a bug of ours is told as one
            answer = failed(flight.id, f"a bug in aileron-mcp, please report it: {type(error).__name__}")
        with self._knowing:
            if self._flights.get(key) is flight:
                del self._flights[key]
        if answer is not None and not flight.is_cancelled:
            self._write(as_line(answer))

    def _ask(self, flight: _Flight) -> Message | None:
        """Send a client's request to the daemon, and repeat it if that is safe and necessary. Return the answer for the
        client, or None if it was already written or the request was cancelled. Raises Unreachable.
        """
        body = flight.line
        for asked in range(1, MAX_ASKED + 1):
            session = None if flight.is_modern or flight.method == "initialize" else self._session
            connection = self._endpoint.connect(time.monotonic() + CONNECT_S, ANSWER_S)
            flight.connection = connection
            if flight.is_cancelled:
                connection.close()
                return None
            with contextlib.closing(connection):
                try:
                    return self._exchange(flight, connection, body, session)
                except _Forgotten:
                    self._renew(session)
                    if not flight.is_safe:
                        why = "the daemon was restarted and had not begun this call: nothing was done. Call it again"
                        return failed(flight.id, why, retriable=True)
                except Lost:
                    if flight.is_cancelled or not flight.is_safe:
                        break
                    if flight.is_heard:
                        return self._listen_again(flight)
            body = as_line(anew(flight.message))
            time.sleep(_PAUSE_S * asked)
        return None if flight.is_cancelled else unknown_outcome(flight.id, flight.tool)

    def _listen_again(self, flight: _Flight) -> Message | None:
        """Reopen a subscription whose connection was lost, as often as necessary."""
        while not flight.is_cancelled:
            with contextlib.suppress(Unreachable):
                again = _Flight(flight.id, flight.message, as_line(anew(flight.message)))
                again.is_heard = True
                connection = self._endpoint.connect(time.monotonic() + CONNECT_S, ANSWER_S)
                flight.connection = connection
                with contextlib.closing(connection), contextlib.suppress(Lost, _Forgotten):
                    return self._exchange(flight, connection, again.line, None, is_again=True)
            time.sleep(_PAUSE_S)
        return None

    def _exchange(
        self,
        flight: _Flight,
        connection: http.client.HTTPConnection,
        body: bytes,
        session: _Session | None,
        *,
        is_again: bool = False,
    ) -> Message | None:
        """Send a client's request to the daemon as a POST. Return the answer for the client, or None if it was already
        written. Raises Lost or _Forgotten.
        """
        response = _posted(connection, body.rstrip(b"\n"), {**self._headers(session), **_mirrored(flight.message)})
        self.was_met = True
        if response.status == 503 or (response.status == 404 and session is not None and session.id):
            raise _Forgotten
        kind = response.headers.get_content_type()
        if response.status != 200:
            return _refused(flight.id, response, kind)
        if kind == "application/json":
            return self._answered(flight, response, _whole(response))
        if kind != "text/event-stream":
            return failed(flight.id, f"the daemon answered with {kind}")
        for data in _events(response):
            message = message_of(data)
            if message is None:
                continue
            if "method" not in message:
                return self._answered(flight, response, data)
            self._write(self._heard(flight, message, data, is_again=is_again))
        raise Lost

    def _answered(self, flight: _Flight, response: http.client.HTTPResponse, data: bytes) -> Message | None:
        """Write the daemon's answer to the client and return None; if it must be changed first, return the changed
        answer instead.
        """
        message = message_of(data)
        if message is None or not ("result" in message or "error" in message):
            return failed(flight.id, "the daemon's answer is no message")
        if flight.method == "initialize" and "result" in message:
            version = message["result"].get("protocolVersion") if isinstance(message["result"], dict) else None
            session_id = response.headers.get("Mcp-Session-Id") or ""
            self._session = _Session(anew(flight.message), session_id, version if isinstance(version, str) else "")
        if message.get("id") != flight.id or b"\n" in data or b"\r" in data:
            return {**message, "id": flight.id}
        if not flight.is_cancelled:
            self._write(data + b"\n")
        return None

    def _heard(self, flight: _Flight, message: Message, data: bytes, *, is_again: bool) -> bytes:
        """Convert a notification that the daemon sends before the answer into a line for the client, and return it; empty
        if the client must not get the notification. `is_again` is true on the connection of a reopened subscription.
        """
        if flight.method == LISTEN and message.get("method") == "notifications/subscriptions/acknowledged":
            if flight.is_heard and is_again:
                honoured = _params(message).get("notifications")
                follows = isinstance(honoured, dict) and honoured.get("toolsListChanged") is True
                return as_line(list_changed(flight.id)) if follows else b""
            flight.is_heard = True
        return as_line(message) if b"\n" in data or b"\r" in data else data + b"\n"

    # The session of the older protocols

    def _notify(self, message: Message, line: bytes) -> None:
        """Send the daemon a notification, or the client's answer to a request of the daemon. This waits until the
        daemon has accepted it, because later lines may depend on it.
        """
        session = self._session
        if session is None:
            return  # over HTTP the 2026 protocol has no notifications of the client
        try:
            self._tell(session, line)
        except _Forgotten:
            self._renew(session)
        except (Unreachable, Lost):
            return
        if message.get("method") == "notifications/initialized":
            session.is_initialized = True
            if not self._is_streaming and session.id:
                self._is_streaming = True
                threading.Thread(target=self._stream, daemon=True).start()

    def _tell(self, session: _Session, line: bytes) -> None:
        connection = self._endpoint.connect(time.monotonic() + CONNECT_S, _TOLD_S)
        with contextlib.closing(connection):
            response = _posted(connection, line.rstrip(b"\n"), self._headers(session))
            if response.status in (404, 503) and session.id:
                raise _Forgotten

    def _renew(self, forgotten: _Session | None) -> None:
        """Repeat the handshake of the session `forgotten`, which the daemon has forgotten, unless another thread has
        done so. Notify the client that the tools may have changed.
        """
        with self._renewing, contextlib.suppress(Unreachable, Lost, _Forgotten):
            session = self._session
            if session is None or session is not forgotten:
                return
            message = {**session.handshake, "id": "aileron-relay"}
            connection = self._endpoint.connect(time.monotonic() + CONNECT_S, _TOLD_S)
            with contextlib.closing(connection):
                response = _posted(connection, as_line(message).rstrip(b"\n"), self._headers(None))
                session_id = response.headers.get("Mcp-Session-Id")
                if response.status != 200 or not session_id:
                    return  # the daemon is not ready, or the session has ended: the next request reports it
                is_event = response.headers.get_content_type() == "text/event-stream"
                _ = next(iter(_events(response)), b"") if is_event else _whole(response)
            again = _Session(session.handshake, session_id, session.version)
            if session.is_initialized:
                self._tell(again, b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
                again.is_initialized = True
            self._session = again
            if again.is_initialized:
                self._write(as_line({"jsonrpc": "2.0", "method": LIST_CHANGED}))

    def _stream(self) -> None:
        """Forward the daemon's own messages for as long as the session exists."""
        pause_s = _PAUSE_S
        while (session := self._session) is not None:
            try:
                connection = self._endpoint.connect(time.monotonic() + CONNECT_S, ANSWER_S)
                with contextlib.closing(connection):
                    response = _got(connection, self._headers(session))
                    if response.status in (404, 503):
                        raise _Forgotten
                    if response.status != 200:
                        return  # the daemon offers no stream, or the session's token has ended
                    pause_s = _PAUSE_S
                    for data in _events(response):
                        message = message_of(data)
                        if message is not None:
                            self._write(as_line(message) if b"\n" in data or b"\r" in data else data + b"\n")
            except _Forgotten:
                self._renew(session)
            except (Unreachable, Lost):
                pass
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    # Both

    def _cancel(self, message: Message) -> bool:
        """Close the connection of the request that the notification `message` cancels, if that request is in the 2026
        version of MCP. Return whether the request is open and of that version.
        """
        with self._knowing:
            flight = self._flights.get(json.dumps(_params(message).get("requestId")))
        if flight is not None and flight.is_modern:
            flight.cancel()
            return True
        return False

    def _headers(self, session: _Session | None) -> dict[str, str]:
        headers = {"Accept": _BOTH, "Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        if session is not None and session.id:
            headers["Mcp-Session-Id"] = session.id
        if session is not None and session.version:
            headers["Mcp-Protocol-Version"] = session.version
        return headers

    def _write(self, data: bytes) -> None:
        with self._writing:
            try:
                _write(data)
            except OSError:
                os._exit(OK)  # nobody reads the answers; threads wait for them


class _Forgotten(Exception):
    """Error: the daemon was restarted, and does not know the session or is not ready yet. It has not executed the request."""


def main() -> int:
    """Relay until standard input ends. Return 0, or 69 if the daemon was never reached."""
    signal.signal(signal.SIGTERM, _end)
    try:
        endpoint = Endpoint(os.environ["AILERON_URL"], os.environ.get("AILERON_CA_FILE", ""))
        token = token_of(os.environ)
        if not token:
            raise Misconfigured(
                "AILERON_SESSION_TOKEN is not set: `aileron sessions new`, where the daemon is, makes one"
            )
    except (Misconfigured, ValueError) as error:
        return _refuse_all(str(error))
    relay = HttpRelay(endpoint, token)
    try:
        for line in _lines(relay.refuse):
            relay.take(line)
        relay.close()
    except KeyboardInterrupt:
        relay.close()
        return INTERRUPTED
    except SystemExit:
        relay.close()
        raise
    return OK if relay.was_met else UNAVAILABLE


def _refuse_all(problem: str) -> int:
    """Answer every request with the error `problem`, because some agents do not show standard error to their person.
    Return the exit code.
    """
    say(problem)
    with contextlib.suppress(OSError):
        for line in _lines(lambda request_id, _: _write(as_line(failed(request_id, problem)))):
            _write(refusal(line, problem))
    return UNAVAILABLE


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _lines(refuse: Callable[[int | str | None, str], None]) -> Iterator[bytes]:
    """Yield complete lines of standard input. An overlong line is skipped; when it ends, `refuse` is called with its id."""
    held = bytearray()
    skipped: IdScanner | None = None
    while data := _read():
        *lines, rest = data.split(b"\n")
        for line in lines:
            if skipped is not None:
                skipped.feed(line)
                say(_TOO_LONG)
                refuse(skipped.found(), _TOO_LONG)
            elif held or line:
                yield bytes(held) + line
            held.clear()
            skipped = None
        if skipped is not None:
            skipped.feed(rest)
            continue
        held += rest
        if len(held) > MAX_LINE_BYTES:
            skipped = IdScanner()
            skipped.feed(bytes(held))
            held.clear()


def _read() -> bytes:
    """Wait for bytes on standard input and return them, or empty bytes at its end. The parent process may have made it
    non-blocking.
    """
    while True:
        try:
            return os.read(0, _CHUNK)
        except BlockingIOError:
            select.select([0], [], [])
        except OSError:
            return b""


def _write(data: bytes) -> None:
    """Write all of `data`. Raises OSError if the reader has closed its end."""
    while data:
        try:
            data = data[os.write(1, data) :]
        except BlockingIOError:
            select.select([], [1], [])


def _posted(connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str]) -> http.client.HTTPResponse:
    return _requested(connection, "POST", body, headers)


def _got(connection: http.client.HTTPConnection, headers: dict[str, str]) -> http.client.HTTPResponse:
    return _requested(connection, "GET", None, {**headers, "Accept": "text/event-stream"})


def _requested(
    connection: http.client.HTTPConnection, method: str, body: bytes | None, headers: dict[str, str]
) -> http.client.HTTPResponse:
    try:
        connection.request(method, "/mcp", body, headers)
        return connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise Lost(str(error)) from error


def _whole(response: http.client.HTTPResponse) -> bytes:
    try:
        data = response.read(MAX_LINE_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise Lost(str(error)) from error
    if len(data) > MAX_LINE_BYTES or (response.length or 0) > 0:
        raise Lost("an answer that is cut off")
    return data


def _events(response: http.client.HTTPResponse) -> Iterator[bytes]:
    events = Events()
    try:
        while data := response.read1(_CHUNK):
            yield from events.feed(data)
    except (OSError, http.client.HTTPException, EventError, ValueError) as error:
        raise Lost(str(error)) from error


def _refused(request_id: int | str, response: http.client.HTTPResponse, kind: str) -> Message:
    """Convert a response of the daemon whose status is not 200 into the answer to the client's request."""
    if response.status == 401:
        return failed(request_id, _ENDED)
    data = b""
    with contextlib.suppress(OSError, http.client.HTTPException):
        data = response.read(_MAX_ERROR_BYTES)
    message = (message_of(data) if kind == "application/json" else None) or {}
    error = message.get("error")
    if message.get("jsonrpc") == "2.0" and isinstance(error, dict):
        return {"jsonrpc": "2.0", "id": request_id, "error": error}
    words = error.get("message") if isinstance(error, dict) else None
    if kind == "text/plain":
        words = data[:_MAX_WORDS].decode(errors="replace").strip()
    return failed(request_id, f"the daemon answered {response.status}: {words or response.reason}")


def _mirrored(message: Message) -> dict[str, str]:
    """Return the HTTP headers that repeat parts of a message's body, if MCP requires them."""
    version = _version_of(message)
    if version is None:
        return {}
    method = str(message["method"])
    headers = {"Mcp-Protocol-Version": version, "Mcp-Method": method}
    named = _NAMED.get(method)
    name = _params(message).get(named) if named else None
    return {**headers, "Mcp-Name": header_of(name)} if isinstance(name, str) else headers


def header_of(value: str) -> str:
    """Return the value unchanged if a header can carry it; otherwise in the protocol's base64 form."""
    is_plain = value.isascii() and value.isprintable() and value == value.strip()
    if is_plain and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _version_of(message: Message) -> str | None:
    """Return the MCP version that a request names if it is of 2026 or later; None for any other message."""
    meta = _params(message).get("_meta")
    version = meta.get(_VERSION) if isinstance(meta, dict) else None
    return version if isinstance(version, str) and message.get("method") != "initialize" else None


def _params(message: Message) -> Message:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _protocol_error(request_id: int | str | None, code: int, words: str) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": words}}
