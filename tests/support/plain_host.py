"""A connector in an ordinary process, and a small synchronous host for it. No jail, no policy.

For tests of the SDK and of connectors: the frames are the real ones, the program is started as the template starts it
(`runpy.run_path` with frames on descriptors 3 and 4, in a fork of a process that has imported the SDK, forks.py), and requests go
out for real through http.client. What the real host adds (namespaces, egress rules, scrubbing) is tested elsewhere.

    with ConnectorProcess(program, invoke("list_events", days=7)) as connector:     # frame by frame
        frame = connector.receive()

    report = PlainHost(program, hosts=[GrantedHost("127.0.0.1", 5232, True)], basic=("ada", "secret")).call("list_events")

Every wait ends after `timeout_s`, by TimeoutError, and the process is killed on the way out.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import os
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from aileron.registry.connector_build import build
from aileron_sandbox.frames import (
    PROTOCOL_VERSION,
    AuditEvent,
    Cancel,
    Chunk,
    Decoder,
    Failed,
    Frame,
    FrameFailure,
    FromJail,
    GrantedHost,
    HostSession,
    HttpHead,
    HttpRequest,
    Invoke,
    Log,
    Message,
    Progress,
    Refused,
    Result,
    TcpOpen,
    TcpOpened,
    encode,
)
from tests.support import forks

ROOT: Final = Path(__file__).resolve().parents[2]
IMPORTABLE: Final = [str(ROOT / "sandbox"), str(ROOT / "connectors" / "sdk")]

Sign = Callable[[str, str, dict[str, str], bytes | None], dict[str, str]]

_BOOTSTRAP: Final = """
import fcntl, os, runpy, sys
fd_in, fd_out, program, *importable = sys.argv[1:]
high_in, high_out = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 20) for fd in (fd_in, fd_out))
os.closerange(3, 20)
os.dup2(high_in, 3), os.dup2(high_out, 4), os.close(high_in), os.close(high_out)
sys.argv = [program]
sys.path[:0] = [program, *importable]
runpy.run_path(program, run_name="__main__")
"""


def invoke(op: str, *, hosts: list[GrantedHost] | None = None, protocol: int = PROTOCOL_VERSION, **args: Any) -> Invoke:
    """Return the first frame of an invocation."""
    return Invoke(protocol=protocol, op=op, args=args, hosts=hosts or [], invocation="run_test", deadline_ms=30_000)


def _forked(program: Path, frames_in: int, frames_out: int, printed: int) -> forks.Child:
    with open(os.devnull, "rb") as nothing:
        return forks.start(
            forks.CONNECTOR,
            [str(program)],
            descriptors={0: nothing.fileno(), 1: printed, 2: printed, 3: frames_in, 4: frames_out},
            environment={},
        )


def _started(program: Path, frames_in: int, frames_out: int, printed: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _BOOTSTRAP, str(frames_in), str(frames_out), str(program), *IMPORTABLE],
        pass_fds=(frames_in, frames_out),
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=printed,
        env={},
    )


class ConnectorProcess(contextlib.AbstractContextManager["ConnectorProcess"]):
    """A connector process and the host's end of its frames, both ends watched by a HostSession."""

    def __init__(self, program: Path, first: Invoke, *, timeout_s: float = 20.0) -> None:
        self.sent = bytearray()
        """Every byte that the connector sent as frames."""
        self.given = bytearray()
        """Every byte that the host sent."""
        self._deadline: Final = time.monotonic() + timeout_s
        self._decoder: Final = Decoder(FromJail)
        self._session: Final = HostSession()
        self._printed: Final = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close())
        child_in, self._to = os.pipe()
        self._from, child_out = os.pipe()
        os.set_blocking(self._to, False)
        start = _forked if forks.is_allowed else _started
        self._process: Final = start(program, child_in, child_out, self._printed.fileno())
        os.close(child_in)
        os.close(child_out)
        self.send(first)

    def send(self, message: Message, body: bytes = b"") -> None:
        """Send one frame. ProtocolError if a host may not. Ignore a connector that has ended: `receive` reports that."""
        self._session.sending(message)
        self.send_raw(b"".join(bytes(part) for part in encode(message, body)))

    def send_raw(self, data: bytes) -> None:
        """Send bytes that need not be a frame."""
        self.given += data
        with contextlib.suppress(BrokenPipeError):
            while data:
                self._wait([], [self._to])
                data = data[os.write(self._to, data) :]

    def receive(self) -> Frame:
        """Return the next frame; EOFError if the process ends instead."""
        while (frame := self._decoder.next_frame()) is None:
            data = self._read()
            if not data:
                raise EOFError("the connector has closed its frames")
            self._decoder.feed(data)
        self._session.received(frame)
        return frame

    def receive_or(self, others: list[socket.socket]) -> Frame | list[socket.socket]:
        """Return the next frame, or the sockets that can be read. EOFError if the process ends instead."""
        while (frame := self._decoder.next_frame()) is None:
            readable = self._wait([self._from, *others], [])
            if self._from not in readable:
                return [other for other in others if other in readable]
            data = self._read()
            if not data:
                raise EOFError("the connector has closed its frames")
            self._decoder.feed(data)
        self._session.received(frame)
        return frame

    def receive_until_over(self, told: list[Message] | None = None) -> Result | Failed:
        """Return the final response; collect reports on the way in `told` and ignore cancels. Fail if another frame arrives."""
        while True:
            message = self.receive().message
            match message:
                case Result() | Failed():
                    return message
                case Log() | Progress() | AuditEvent():
                    if told is not None:
                        told.append(message)
                case Cancel():
                    pass  # of an answer whose end had not arrived when it was closed
                case _:
                    raise AssertionError(f"{message} instead of an answer")

    def close_input(self) -> None:
        """Close the host's end, as a host that goes away does."""
        if self._to >= 0:
            os.close(self._to)
            self._to = -1

    def wait(self) -> int:
        """Wait until the process has ended by itself. Return its exit code."""
        return self._process.wait(max(0.1, self._deadline - time.monotonic()))

    def printed(self) -> str:
        """Return its output to stdout and stderr so far."""
        size = os.fstat(self._printed.fileno()).st_size
        return os.pread(self._printed.fileno(), size, 0).decode("utf-8", "replace")  # no seek: the child shares it

    def close(self) -> None:
        """Kill and reap the process if it has not ended."""
        self.close_input()
        if self._from >= 0:
            os.close(self._from)
            self._from = -1
        self._process.kill()
        self._process.wait()
        self._printed.close()

    def _read(self) -> bytes:
        self._wait([self._from], [])
        data = os.read(self._from, 1 << 20)
        self.sent += data
        return data

    def _wait(self, reading: list[Any], writing: list[int]) -> list[Any]:
        left = self._deadline - time.monotonic()
        readable, writable, _ = select.select(reading, writing, [], max(left, 0.0))
        if not readable and not writable:
            raise TimeoutError(f"the connector neither spoke nor listened; it printed: {self.printed()[-2000:]}")
        return readable

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def built_in(folder: Path, *sources: Any, **options: Any) -> Path:
    """Build a connector of what `build` takes into the folder. Return its program: the zip of `aileron connector build`."""
    path = folder / "connector"
    path.write_bytes(build(*sources, **options).connector)
    return path


@dataclasses.dataclass(frozen=True)
class Report:
    """The outcome of one invocation."""

    answer: Result | Failed
    told: list[Message]
    requests: list[HttpRequest]
    sent: bytes
    given: bytes
    printed: str

    @property
    def output(self) -> Any:
        """Output of the result; AssertionError with the failure if there is none."""
        assert isinstance(self.answer, Result), (self.answer, self.printed)
        return self.answer.output

    @property
    def failure(self) -> Failed:
        """The failure; AssertionError with the output if the invocation succeeded."""
        assert isinstance(self.answer, Failed), self.answer
        return self.answer


class RefusedStream(OSError):
    """A refusal of a stream, with its details; `streams` of a PlainHost raises it."""

    def __init__(self, words: str, details: dict[str, Any]) -> None:
        super().__init__(words)
        self.details: Final = details


class _Streams(contextlib.AbstractContextManager["_Streams"]):
    """The streams of one invocation: bytes both ways, in the only thread."""

    def __init__(self, connector: ConnectorProcess) -> None:
        self._connector: Final = connector
        self._sockets: Final[dict[int, socket.socket]] = {}

    def receive(self) -> Frame:
        """Return the connector's next frame; pass the services' bytes on to the connector meanwhile."""
        while isinstance(found := self._connector.receive_or(list(self._sockets.values())), list):
            for stream_id, sock in [pair for pair in self._sockets.items() if pair[1] in found]:
                data = b""
                with contextlib.suppress(OSError):
                    data = sock.recv(1 << 16)
                self._connector.send(Chunk(id=stream_id, end=not data), data)
                if not data:
                    self._sockets.pop(stream_id).close()
        return found

    def add(self, stream_id: int, sock: socket.socket) -> None:
        """Record that the stream is open, and tell the connector."""
        self._sockets[stream_id] = sock
        self._connector.send(TcpOpened(id=stream_id))

    def send(self, message: Chunk, body: bytes) -> None:
        """Pass the connector's bytes on to the service; ignore a service that has gone."""
        sock = self._sockets.get(message.id)
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.sendall(body)
                if message.end:
                    sock.shutdown(socket.SHUT_WR)

    def cancel(self, stream_id: int) -> None:
        """Close the stream that the connector has cancelled."""
        if stream_id in self._sockets:
            self._sockets.pop(stream_id).close()
            self.refuse(stream_id, "cancelled", "closed by the connector")

    def refuse(self, stream_id: int, failure_class: str, words: str, details: dict[str, Any] | None = None) -> None:
        """Report that a stream was refused, or is over."""
        error = FrameFailure(failure_class=failure_class, message=words, details=details or {})
        self._connector.send(Refused(id=stream_id, error=error))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in self._sockets.values():
            sock.close()


class PlainHost:
    """A host that runs operations and sends their requests, one by one, with the credential added where a request asks for one.

    The credential is `basic`, `bearer` or a key in the path (`path_key`, in place of `%7Bkey%7D`). `sign` gives the header
    fields of such a request: of its method, URL, fields and body.

    A host:port that is not granted is refused. `on_request` sees each request before it is sent, and may raise. `at` is where
    the hosts are, whatever their names: a server of the test's that has certificates for them. `streams` connects a requested
    stream; without it there are none.
    """

    def __init__(
        self,
        program: Path,
        *,
        hosts: list[GrantedHost],
        basic: tuple[str, str] | None = None,
        bearer: str | None = None,
        path_key: str | None = None,
        at: tuple[str, int] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 20.0,
        on_request: Callable[[HttpRequest], None] = lambda request: None,
        sign: Sign | None = None,
        streams: Callable[[TcpOpen], socket.socket] | None = None,
    ) -> None:
        self.program: Final = program
        self._hosts: Final = hosts
        self._basic: Final = basic
        self._bearer: Final = bearer
        self._path_key: Final = path_key
        self._at: Final = at
        self._tls: Final = tls
        self._timeout_s: Final = timeout_s
        self._on_request: Final = on_request
        self._sign: Final = sign
        self._streams: Final = streams

    def call(self, op: str, **args: Any) -> Report:
        """Run one invocation in a process of its own. Return its report."""
        told: list[Message] = []
        requests: list[HttpRequest] = []
        uploads: dict[int, tuple[HttpRequest, bytearray]] = {}
        first = invoke(op, hosts=self._hosts, **args)
        with (
            ConnectorProcess(self.program, first, timeout_s=self._timeout_s) as connector,
            _Streams(connector) as streams,
        ):
            while True:
                message, body = streams.receive()
                match message:
                    case Result() | Failed():
                        connector.wait()
                        return Report(
                            message, told, requests, bytes(connector.sent), bytes(connector.given), connector.printed()
                        )
                    case HttpRequest():
                        requests.append(message)
                        if message.body == "stream":
                            uploads[message.id] = (message, bytearray())
                        else:
                            self._answer(connector, message, body)
                    case TcpOpen():
                        self._connect(streams, message)
                    case Chunk(id=stream_id) if stream_id not in uploads:
                        streams.send(message, body or b"")
                    case Chunk():
                        uploads[message.id][1].extend(body or b"")
                        if message.end:
                            request, data = uploads.pop(message.id)
                            self._answer(connector, request, bytes(data))
                    case Cancel():
                        streams.cancel(message.id)  # answers are sent whole, so their final frame has already gone
                    case _:
                        told.append(message)

    def _connect(self, streams: _Streams, message: TcpOpen) -> None:
        try:
            if self._streams is None:
                raise OSError("there are no streams in this test")
            streams.add(message.id, self._streams(message))
        except OSError as error:
            details = error.details if isinstance(error, RefusedStream) else None
            streams.refuse(message.id, "network_error", str(error), details)

    def _answer(self, connector: ConnectorProcess, request: HttpRequest, body: bytes | None) -> None:
        self._on_request(request)
        url = urllib.parse.urlsplit(request.url)
        granted = [host for host in self._hosts if host.url == f"{url.scheme}://{url.netloc}"]
        if not granted:
            words = f"{url.netloc} is not granted"
            error = FrameFailure(failure_class="capability_denied", message=words)
            connector.send(Refused(id=request.id, error=error))
            return
        try:
            status, headers, answer = self._send(request, url, granted[0], body)
        except OSError as error:
            failure = FrameFailure(failure_class="network_error", message=f"{url.netloc}: {error}")
            connector.send(Refused(id=request.id, error=failure))
            return
        connector.send(HttpHead(id=request.id, status=status, headers=headers))
        for at in range(0, len(answer), 1 << 18):
            connector.send(Chunk(id=request.id), answer[at : at + (1 << 18)])
        connector.send(Chunk(id=request.id, end=True))

    def _send(
        self, request: HttpRequest, url: urllib.parse.SplitResult, host: GrantedHost, body: bytes | None
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = (
            http.client.HTTPConnection(host.host, host.port, timeout=self._timeout_s)
            if host.plain
            else http.client.HTTPSConnection(host.host, host.port, timeout=self._timeout_s, context=self._tls)
        )
        if self._at is not None:
            assert self._tls is not None
            plain = socket.create_connection(self._at, timeout=self._timeout_s)
            connection.sock = self._tls.wrap_socket(plain, server_hostname=host.host)
        headers = dict(request.headers)
        if request.credential is not None and self._basic is not None:
            token = base64.b64encode(":".join(self._basic).encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        if request.credential is not None and self._bearer is not None:
            headers["Authorization"] = f"Bearer {self._bearer}"
        if request.credential is not None and self._sign is not None:
            headers = self._sign(request.method, request.url, headers, body)
        path = url.path
        if request.credential is not None and self._path_key is not None:
            path = path.replace("%7Bkey%7D", self._path_key)
        target = path + (f"?{url.query}" if url.query else "")
        try:
            connection.request(request.method, target or "/", body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()
