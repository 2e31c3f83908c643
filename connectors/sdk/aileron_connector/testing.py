"""Test harness for operations in an ordinary process, without daemon and jail. Your test provides the answers, or a
real server does.

    from aileron_connector.testing import Reply, call
    import connector                                        # yours; `@op` makes its operations known

    def test_notes_are_listed():
        done = call("list_notes", {"limit": 2}, answer=[Reply.of([{"id": 1}])])
        assert done.output == {"notes": [{"id": 1}]}
        assert done.requests[0].url == "https://notes.example.com/notes?limit=2"

`answer` is a list of replies, one for each request in order, or a function from a `Request` to a `Reply`;
`for_real(headers=…)` returns such a function, which sends the request with your test credential in `headers`. Requests of
libraries (transports/) come here as well. The operation runs in the calling thread, so debuggers and coverage work.

It does not do what the host does: rules of egress, scrubbing, limits, isolation. Test those with `aileron connector
install` and `aileron run`. Streams (tcp.py) and WebSockets (websocket.py) are refused. Runs only in tests.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import io
import json
import os
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from aileron_connector import loop
from aileron_sandbox.frames import (
    MAX_BODY_BYTES,
    PROTOCOL_VERSION,
    AuditEvent,
    Cancel,
    Chunk,
    Decoder,
    Failed,
    FrameFailure,
    FromJail,
    GrantedHost,
    HostSession,
    HttpHead,
    HttpRequest,
    Invoke,
    JSONObject,
    Log,
    Message,
    Progress,
    Refused,
    Result,
    TcpOpen,
    WebSocketOpen,
    encode,
)

__all__ = ["Done", "Reply", "Request", "Unreachable", "call", "for_real"]

_READ_BYTES: Final = 1 << 20
_REAL_TIMEOUT_S: Final = 30.0
"""Seconds for each wait for a real server, equal to the default time limit of a connector's whole invocation."""
_DEADLINE_MS: Final = 30_000


@dataclasses.dataclass(frozen=True)
class Request:
    """A request that an operation, or a library that it uses, has sent. `credential` is the requested kind of credential."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    credential: str | None

    def json(self) -> Any:
        """Decode the body as JSON."""
        return json.loads(self.body)


@dataclasses.dataclass(frozen=True)
class Reply:
    """A service's answer to one request."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, value: Any, status: int = 200) -> Reply:
        """Make a JSON answer with the body `value`."""
        return cls(status, json.dumps(value).encode(), (("content-type", "application/json"),))


class Unreachable(Exception):
    """Error: the service cannot be reached. Raise this in an `answer` function, or list it as a reply, to give the
    operation a `network_error`.
    """


Answer = Callable[[Request], Reply] | Sequence[Reply | Unreachable]


@dataclasses.dataclass(frozen=True)
class Done:
    """The result of an operation: its `output`, or the `failure` that the caller would see, and its reports."""

    answer: Result | Failed
    requests: tuple[Request, ...]
    logs: tuple[Log, ...]
    audits: tuple[AuditEvent, ...]
    progress: tuple[Progress, ...]

    @property
    def output(self) -> Any:
        """The operation's output. Raises AssertionError with the failure if there is no output."""
        if isinstance(self.answer, Failed):
            raise AssertionError(f"{self.answer.failure_class}: {self.answer.message}")
        return self.answer.output

    @property
    def failure(self) -> Failed:
        """The operation's failure. Raises AssertionError with the output if the operation succeeded."""
        if isinstance(self.answer, Result):
            raise AssertionError(f"it succeeded: {self.answer.output!r}")
        return self.answer


def call(
    op: str,
    args: Mapping[str, object] | None = None,
    *,
    answer: Answer = (),
    hosts: Iterable[str] = ("https://notes.example.com",),
) -> Done:
    """Run the declared operation `op`. `hosts` are the origins that it may reach, as `hosts()` returns them.

    A request to another origin is refused as `capability_denied`, which would end a real invocation. Raises AssertionError if
    the number of requests differs from the number of replies.
    """
    replies = _Replies(answer)
    granted = [_granted(origin) for origin in hosts]
    given: Any = dict(args or {})  # arguments that are not JSON are refused when the frame is encoded
    first = Invoke(
        protocol=PROTOCOL_VERSION,
        op=op,
        args=given,
        hosts=granted,
        invocation="test",
        deadline_ms=_DEADLINE_MS,
    )
    our_in, host_out = os.pipe()
    host_in, our_out = os.pipe()
    host = _Host(host_in, host_out, granted, replies)
    thread = threading.Thread(target=host.run, args=(first,), name="host of a test")
    thread.start()
    try:
        loop.serve(our_in, our_out)
    except SystemExit:
        pass  # the host ended before the operation did, and `done` says why
    finally:
        os.close(our_in)  # nothing reads further frames of the host
        os.close(our_out)  # and nothing more is sent to the host
        thread.join()
    done = host.done()
    replies.check_used()
    return done


def for_real(
    headers: Mapping[str, str] | None = None, *, tls: ssl.SSLContext | None = None
) -> Callable[[Request], Reply]:
    """Return an `answer` that sends each request to its real server. `headers` are added to requests that name a credential."""

    def send(request: Request) -> Reply:
        url = urllib.parse.urlsplit(request.url)
        connection = (
            http.client.HTTPConnection(url.netloc, timeout=_REAL_TIMEOUT_S)
            if url.scheme == "http"
            else http.client.HTTPSConnection(url.netloc, timeout=_REAL_TIMEOUT_S, context=tls)
        )
        sent = [*request.headers, *((headers or {}).items() if request.credential else ())]
        with contextlib.closing(connection):
            target = (url.path or "/") + (f"?{url.query}" if url.query else "")
            try:
                _put(connection, request.method, target, sent, request.body)
                answer = connection.getresponse()
                return Reply(answer.status, answer.read(), tuple(answer.getheaders()))
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"{url.netloc}: {error}") from error

    return send


def _put(
    connection: http.client.HTTPConnection, method: str, target: str, headers: list[tuple[str, str]], body: bytes
) -> None:
    connection.putrequest(method, target, skip_accept_encoding=True)
    for name, value in headers:
        if name.lower() not in {"content-length", "host", "transfer-encoding", "accept-encoding", "connection"}:
            connection.putheader(name, value)
    connection.putheader("Accept-Encoding", "identity")
    if body or method in {"POST", "PUT", "PATCH"}:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body or None)


class _Replies:
    """The answers that the test specified, as a list or a function."""

    def __init__(self, answer: Answer) -> None:
        self._answer: Final = answer
        self._used = 0
        self.problem: str | None = None

    def to(self, request: Request) -> Reply:
        """Return the reply to this request: the next in the test's list, or the result of the test's function."""
        if callable(self._answer):
            return self._answer(request)
        if self._used >= len(self._answer):
            self.problem = f"request {self._used + 1}, {request.method} {request.url}, has no reply left"
            raise Unreachable(self.problem)
        self._used += 1
        reply = self._answer[self._used - 1]
        if isinstance(reply, Unreachable):
            raise reply
        return reply

    def check_used(self) -> None:
        """Raise AssertionError if the test listed more or fewer replies than there were requests."""
        if self.problem is None and not callable(self._answer) and self._used < len(self._answer):
            self.problem = f"{self._used} requests were made, but there are {len(self._answer)} replies"
        if self.problem is not None:
            raise AssertionError(self.problem)


class _Host:
    """A stand-in for the host: the host's end of the frames, in a thread of the test."""

    def __init__(self, fd_in: int, fd_out: int, hosts: list[GrantedHost], replies: _Replies) -> None:
        self._in: Final = fd_in
        self._out: Final = fd_out
        self._hosts: Final = hosts
        self._replies: Final = replies
        self._session: Final = HostSession()
        self._decoder: Final = Decoder(FromJail)
        self._uploads: Final[dict[int, tuple[HttpRequest, io.BytesIO]]] = {}
        self._told: Final[list[Message]] = []
        self._requests: Final[list[Request]] = []
        self._answer: Result | Failed | None = None
        self._error: BaseException | None = None

    def run(self, first: Invoke) -> None:
        """Serve one invocation, from its first frame to its last."""
        ident = threading.get_ident()
        loop.HOST_THREADS.add(ident)  # so that libraries in `answer` connect without the transports
        try:
            self._send(first)
            for message, body in self._frames():
                self._take(message, body or b"")
        except BaseException as error:  # noqa: BLE001  (the end of a thread: `done` raises it in the test's thread)
            self._error = error
        finally:
            loop.HOST_THREADS.discard(ident)
            os.close(self._out)
            os.close(self._in)

    def done(self) -> Done:
        """Return the result of the operation. If the test's `answer` raised an exception, raise that exception."""
        if self._error is not None:
            raise self._error
        if self._answer is None:
            raise AssertionError("the operation ended without an answer")
        logs, audits, progress = (
            tuple(message for message in self._told if isinstance(message, kind))
            for kind in (Log, AuditEvent, Progress)
        )
        return Done(self._answer, tuple(self._requests), logs, audits, progress)  # type: ignore[arg-type]

    def _frames(self) -> Iterator[Any]:
        while data := os.read(self._in, _READ_BYTES):
            self._decoder.feed(data)
            while (frame := self._decoder.next_frame()) is not None:
                self._session.received(frame)
                yield frame

    def _take(self, message: Message, body: bytes) -> None:
        match message:
            case Result() | Failed():
                self._answer = message
            case HttpRequest(body="stream"):
                self._uploads[message.id] = (message, io.BytesIO())
            case HttpRequest():
                self._respond(message, body)
            case Chunk():
                request, data = self._uploads[message.id]
                data.write(body)
                if message.end:
                    self._respond(request, data.getvalue())
            case TcpOpen():
                self._refuse(
                    message.id, "network_error", "streams are not available in tests: install the connector to use them"
                )
            case WebSocketOpen():
                self._refuse(
                    message.id,
                    "network_error",
                    "WebSockets are not available in tests: write a [[case.websocket]] in tests/cases.toml",
                )
            case Cancel():
                if not self._session.is_answered(message.id):
                    self._refuse(message.id, "cancelled", "cancelled by the connector")
            case _:
                self._told.append(message)

    def _respond(self, message: HttpRequest, body: bytes) -> None:
        asked = Request(message.method, message.url, tuple(map(tuple, message.headers)), body, message.credential)  # type: ignore[arg-type]
        self._requests.append(asked)
        url = urllib.parse.urlsplit(message.url)
        if _granted(f"{url.scheme}://{url.netloc}") not in self._hosts:
            self._refuse(message.id, "capability_denied", f"{url.netloc} is not among the hosts of this test")
            return
        try:
            reply = self._replies.to(asked)
        except Unreachable as error:
            self._refuse(message.id, "network_error", str(error) or "unreachable", {"phase": "connect"})
            return
        dropped = {"transfer-encoding", "connection"}
        headers = [(name, value) for name, value in reply.headers if name.lower() not in dropped]
        self._send(HttpHead(id=message.id, status=reply.status, headers=headers))
        for at in range(0, len(reply.body), MAX_BODY_BYTES):
            self._send(Chunk(id=message.id), reply.body[at : at + MAX_BODY_BYTES])
        self._send(Chunk(id=message.id, end=True))

    def _refuse(self, request_id: int, failure_class: str, words: str, details: JSONObject | None = None) -> None:
        error = FrameFailure(failure_class=failure_class, message=words, details=details or {})
        self._send(Refused(id=request_id, error=error))

    def _send(self, message: Message, body: bytes = b"") -> None:
        self._session.sending(message)
        data = b"".join(map(bytes, encode(message, body)))
        with contextlib.suppress(BrokenPipeError):  # the operation has answered and no longer reads
            while data:
                data = data[os.write(self._out, data) :]


def _granted(origin: str) -> GrantedHost:
    url = urllib.parse.urlsplit(origin)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError(f"{origin!r} is not an origin; expected https://HOST or http://HOST:PORT")
    return GrantedHost(url.hostname, url.port or (80 if url.scheme == "http" else 443), url.scheme == "http")
