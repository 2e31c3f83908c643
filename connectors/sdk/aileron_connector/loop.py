"""The connector's end of the frame protocol. It reads one invocation, runs the operation, and sends the result.

Runs inside the jail: one process, one thread, one invocation. Frames come in on descriptor 3 and go out on descriptor
4; printed text goes to 1 and 2, the log. An operation may start threads, but only the thread that called `run` may use
this module.

Rules
- A read has no deadline of its own, because the host enforces the deadline of the invocation, and ends the process.
- While the pipe to the host is full, a write reads and stores frames from the host, so that two full pipes cannot cause
  a deadlock.
- Stored answers that the operation has not read yet are bounded by MAX_KEPT_BYTES and MAX_KEPT_FRAMES (plus one read).
- When the host has closed its pipes, this process ends: HostGoneError is not caught by `except Exception`.

    serve(fd_in, fd_out)       # like run(), over any pair of pipes, for tests

Source: docs/reference/frames.md. Not here: operations (operation.py), requests (http.py).
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from aileron_connector import operation
from aileron_connector.failures import ConnectorError, Refused
from aileron_sandbox.frames import (
    PROTOCOL_VERSION,
    Cancel,
    Chunk,
    Decoder,
    Failed,
    Frame,
    FrameError,
    FrameTooLargeError,
    GrantedHost,
    HttpRequest,
    Invoke,
    JailSession,
    Message,
    Result,
    TcpOpen,
    ToJail,
    WebSocketClose,
    WebSocketMessage,
    WebSocketOpen,
    encode,
)

__all__ = ["HOST_THREADS", "Conversation", "HostGoneError", "current", "maybe_current", "run", "serve"]

FRAMES_IN: Final = 3
FRAMES_OUT: Final = 4
MAX_KEPT_BYTES: Final = 8 << 20
"""Maximum number of bytes of unread answers: an eighth of the memory that a connector has by default."""
MAX_KEPT_FRAMES: Final = 1 << 16
"""Maximum number of unread frames. If a service sends single bytes, each frame takes some 120 bytes in addition to its
body: 8 MiB for all of these frames.
"""

_SMALL_READ_BYTES: Final = 4096
_LARGE_READ_BYTES: Final = 1 << 20
_PIPE_BYTES: Final = 256 << 10
"""Capacity of the host's pipe in bytes. If a small read does not take everything, the next one has this size and
empties the pipe.
"""
_MAX_WRAPPED: Final = 16
"""Maximum number of chained exceptions that are searched for a cause. A refusal wrapped by urllib3 and requests needs five."""
_MAX_MESSAGE_CHARACTERS: Final = 2000
"""Maximum number of characters of a failure's message. At four bytes each, they leave room for the rest of a frame's header."""


class HostGoneError(BaseException):
    """Error: the host has closed its end of the pipes, or violated the protocol. An operation must not catch this exception."""


class Conversation:
    """The connector's end of one invocation. It sends frames to the host, and stores the host's frames until they are read."""

    def __init__(self, fd_in: int, fd_out: int) -> None:
        os.set_blocking(fd_out, False)  # only our end of the pipe: the host's end is another file description
        self._in: Final = fd_in
        self._incoming: Final = select.poll()
        self._incoming.register(fd_in, select.POLLIN)
        self._out: Final = fd_out
        self._decoder: Final = Decoder(ToJail)
        self._session: Final = JailSession()
        self._thread: Final = _thread.get_ident()
        self._kept: Final[dict[int, deque[Frame]]] = {}
        self._kept_bytes = 0
        self._kept_frames = 0
        self._reading = _SMALL_READ_BYTES
        self._last_id = 0
        self._is_torn = False
        self.on_heard: Final[set[Callable[[], None]]] = set()
        """Callbacks that run whenever frames were read. Tasks of an event loop use them to wait for frames that another
        task may read.
        """
        self.invoke: Final = self._first_frame()

    @property
    def hosts(self) -> list[GrantedHost]:
        """Destinations that this invocation may reach."""
        return self.invoke.hosts

    def send(self, message: Message, body: bytes | memoryview = b"") -> None:
        """Send one frame. Raises FrameError, and sends nothing, if the frame is not valid or the protocol does not allow it
        now.
        """
        if _thread.get_ident() != self._thread:
            raise RuntimeError("only the thread that called run() may talk to the host")
        if self._is_torn:
            raise HostGoneError("a frame could not be written completely")
        head, body = encode(message, body)
        self._session.sending(message)
        self._is_torn = True
        self._write([memoryview(head), memoryview(body).cast("B")])
        self._is_torn = False

    def open(
        self,
        method: str,
        url: str,
        headers: list[tuple[str, str]],
        credential: str | None,
        body: bytes | None,
        *,
        is_streamed: bool,
    ) -> int:
        """Send an HTTP request and return its id. The `body` is sent in the same frame, is absent, or is streamed later
        with `upload`.
        """
        kind: Any = "stream" if is_streamed else "none" if body is None else "inline"
        request_id = self._last_id + 1
        message = HttpRequest(id=request_id, method=method, url=url, headers=headers, credential=credential, body=kind)
        return self._opened(message, b"" if body is None else body)

    def open_tcp(self, host: str, port: int, *, tls: bool, command: str | None = None) -> int:
        """Request a byte stream to a granted destination and return its id."""
        asked = TcpOpen(id=self._last_id + 1, host=host, port=port, tls=tls, command=command)
        return self._opened(asked, b"")

    def open_websocket(
        self, url: str, headers: list[tuple[str, str]], subprotocols: list[str], credential: str | None
    ) -> int:
        """Request a WebSocket at a granted destination and return its id."""
        asked = WebSocketOpen(
            id=self._last_id + 1, url=url, headers=headers, subprotocols=subprotocols, credential=credential
        )
        return self._opened(asked, b"")

    def say(self, message: WebSocketMessage | WebSocketClose, data: bytes | memoryview) -> bool:
        """Send a fragment of a WebSocket message, or a close. Return False if the host has ended the WebSocket; frames that
        the host sent can still be read.
        """
        self._take_in_what_is_there()
        if self._session.is_answered(message.id):
            self.cancel(message.id)
            return False
        self.send(message, data)
        return True

    def upload(self, request_id: int, data: bytes | memoryview, *, end: bool = False) -> bool:
        """Send a piece of a streamed body. Return False if the response is already complete; the caller should then stop."""
        self._take_in_what_is_there()
        if self._session.is_answered(request_id):
            self.cancel(request_id)
            return False
        self.send(Chunk(id=request_id, end=end), data)
        return True

    def next_answer(self, request_id: int, timeout_s: float | None = None) -> Frame:
        """Wait for the next frame that answers this request. Raises TimeoutError after `timeout_s`, if given."""
        kept = self._kept[request_id]
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
        while not kept:
            if self.is_full:
                raise ConnectorError(
                    "connector_runtime_error",
                    f"more than {MAX_KEPT_BYTES} bytes, or {MAX_KEPT_FRAMES} pieces, of other responses are waiting to be read: "
                    "read or close one before you wait for another",
                )
            if give_up_at is not None:
                self._wait_readable(give_up_at)
            self._take_in(self._read())
        return self._taken(kept)

    def maybe_answer(self, request_id: int) -> Frame | None:
        """Return the next frame that answers this request, or None if none has arrived. Does not block."""
        kept = self._kept[request_id]
        if not kept and not self.is_full and self._is_readable(0):
            self._take_in(self._read())
        return self._taken(kept) if kept else None

    def cancel(self, request_id: int) -> None:
        """Tell the host to stop a request: its upload, and the rest of its answer. Does nothing if the request has ended."""
        if request_id in self._session.open_ids and not self._session.is_cancelled(request_id):
            self.send(Cancel(id=request_id))

    def forget(self, request_id: int) -> None:
        """Cancel a request, and drop all frames that answer it, including later ones."""
        kept = self._kept.pop(request_id, None)
        if kept is not None:
            self._kept_bytes -= sum(len(frame.body or b"") for frame in kept)
            self._kept_frames -= len(kept)
            self.cancel(request_id)

    @property
    def fd_in(self) -> int:
        """File descriptor of the frames from the host. It is readable when there may be an answer. Other code must not read
        it.
        """
        return self._in

    @property
    def fd_out(self) -> int:
        """File descriptor of the frames to the host. Other code must not write to it."""
        return self._out

    @property
    def is_full(self) -> bool:
        """True while more unread frames are stored than the bounds allow. No further frames are read meanwhile."""
        return self._kept_bytes > MAX_KEPT_BYTES or self._kept_frames > MAX_KEPT_FRAMES

    def _opened(self, message: HttpRequest | TcpOpen | WebSocketOpen, body: bytes) -> int:
        self._kept[message.id] = deque()
        try:
            self.send(message, body)
        except FrameError:
            del self._kept[message.id]
            raise
        self._last_id = message.id
        return message.id

    def _taken(self, kept: deque[Frame]) -> Frame:
        frame = kept.popleft()
        self._kept_bytes -= len(frame.body or b"")
        self._kept_frames -= 1
        return frame

    def _first_frame(self) -> Invoke:
        frames: list[Frame] = []
        while not frames:
            frames = self._frames(self._read())
        assert isinstance(frames[0].message, Invoke)  # the session allows no other first frame
        return frames[0].message

    def _take_in(self, data: bytes) -> None:
        for frame in self._frames(data):
            kept = self._kept.get(getattr(frame.message, "id", 0))
            if kept is not None:
                kept.append(frame)
                self._kept_bytes += len(frame.body or b"")
                self._kept_frames += 1
        for heard in tuple(self.on_heard):
            heard()

    def _frames(self, data: bytes) -> list[Frame]:
        frames = []
        try:
            self._decoder.feed(data)
            while (frame := self._decoder.next_frame()) is not None:
                self._session.received(frame)
                frames.append(frame)
        except FrameError as error:
            raise HostGoneError(f"the host does not speak this protocol: {error}") from error
        return frames

    def _take_in_what_is_there(self) -> None:
        while not self.is_full and self._is_readable(0):
            self._take_in(self._read())

    def _wait_readable(self, give_up_at: float) -> None:
        if not self._is_readable(max(0.0, give_up_at - time.monotonic())):
            raise TimeoutError("the host did not answer in time")

    def _is_readable(self, within_s: float) -> bool:
        return bool(self._incoming.poll(within_s * 1000))

    def _read(self) -> bytes:
        wanted = min(max(self._decoder.missing_bytes, self._reading), _LARGE_READ_BYTES)
        data = os.read(self._in, wanted)
        self._reading = _PIPE_BYTES if len(data) >= _SMALL_READ_BYTES else _SMALL_READ_BYTES
        if not data:
            raise HostGoneError("end of frames")
        return data

    def _write(self, parts: list[memoryview]) -> None:
        while parts:
            try:
                written = os.writev(self._out, parts)
            except BlockingIOError:
                self._wait_writable()
                continue
            except BrokenPipeError as error:
                raise HostGoneError("the host no longer reads frames") from error
            while parts and written >= len(parts[0]):
                written -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][written:]

    def _wait_writable(self) -> None:
        poll = select.poll()
        poll.register(self._out, select.POLLOUT)
        if not self.is_full:  # otherwise only wait: the host reads even while its own writes block
            poll.register(self._in, select.POLLIN)
        ready = dict(poll.poll())  # no timeout: the host's deadline ends the process
        if self._in in ready:
            self._take_in(self._read())


_current: Conversation | None = None


def current() -> Conversation:
    """Return the conversation of the running invocation. Raises RuntimeError outside an operation."""
    if _current is None:
        raise RuntimeError("no invocation is running: call this inside an operation, not when the module is loaded")
    return _current


def maybe_current() -> Conversation | None:
    """Return the conversation of the running invocation. None outside an operation, and in the threads in HOST_THREADS."""
    return None if _thread.get_ident() in HOST_THREADS else _current


HOST_THREADS: Final[set[int]] = set()
"""Ids of threads that are not part of the connector: in tests, testing.py answers requests in such threads, and may use
real sockets.
"""


def run() -> None:
    """Serve the one invocation for which this process was started, over descriptors 3 and 4. Call this function last."""
    serve(FRAMES_IN, FRAMES_OUT)


def serve(fd_in: int, fd_out: int) -> None:
    """Serve one invocation over any pair of pipes: read `invoke`, run, send the answer. Raises SystemExit(1) if the host
    has closed its end or violates the protocol.
    """
    global _current  # one process has one invocation, so the author's functions need no handle to pass around
    try:
        conversation = Conversation(fd_in, fd_out)
        _current = conversation
        try:
            answer = _answer(conversation.invoke)
        finally:
            _current = None
        _flush()  # before the answer, after which the host may end this process
        conversation.send(answer)
    except HostGoneError as error:
        with contextlib.suppress(OSError):
            os.write(2, f"aileron_connector: {error}\n".encode())
        raise SystemExit(1) from error


def _answer(invoke: Invoke) -> Result | Failed:
    """Run the operation that the host invoked. Return its output, or the failure that it ended with, as a message that
    fits into a frame.
    """
    if invoke.protocol != PROTOCOL_VERSION:
        return _failed(
            "connector_runtime_error",
            f"the host speaks frames version {invoke.protocol}, this connector version {PROTOCOL_VERSION}: "
            "build it with a matching aileron_connector",
        )
    try:
        return _result(operation.call(invoke.op, invoke.args), invoke.op)
    except ConnectorError as error:
        return _failed(error.failure_class, error.message, error.details)
    except MemoryError:
        return _OUT_OF_MEMORY
    except HostGoneError:
        raise
    except BaseException as error:  # noqa: BLE001  (the end of the task: the host is told of any exception)
        _print_traceback(error)
        return _from_exception(error)


def _result(output: Any, op: str) -> Result:
    """Return the operation's output as a message. Values that no frame can represent are replaced, because the
    operation has had its effects and its output must not be lost. Raises ConnectorError if the output is too large.
    """
    result = Result(output=output)
    try:
        try:
            encode(result)
        except FrameTooLargeError:
            raise
        except FrameError:
            result = Result(output=_carried(output, op))
            encode(result)
    except FrameTooLargeError as error:
        raise ConnectorError(
            "resource_limit_exceeded",
            f"the output of {op} does not fit into one frame ({error}): return less, or return it in pages",
            details={"limit": "output"},
        ) from error
    return result


def _carried(output: Any, op: str) -> Any:
    from aileron_connector.carried import carried, marked  # seldom needed

    try:
        told = carried(output)
    except TypeError as error:
        raise TypeError(f"operation {op!r} returned a value that is not JSON: {error}") from error
    return marked(told.value, told.changes)


def _from_exception(error: BaseException) -> Failed:
    refused = _refusal_behind(error)
    if refused is not None:
        return _failed(refused.failure_class, refused.message, refused.details)
    limit = _limit_of(error)
    words = f"{type(error).__name__}: {error}"
    if limit is not None:
        return _failed("resource_limit_exceeded", words, {"limit": limit})
    return _failed("connector_runtime_error", words)


def _refusal_behind(error: BaseException) -> Refused | None:
    """Return the host's refusal that caused an exception, even if a library wrapped it in an error of its own; None if
    no refusal caused the exception.

    A built-in exception that is not an OSError ends the search: for example, a KeyError that was raised while a refusal
    was handled is a bug.
    """
    behind: BaseException | None = error
    for _ in range(_MAX_WRAPPED):
        if behind is None or isinstance(behind, Refused):
            return behind
        if type(behind).__module__ == "builtins" and not isinstance(behind, OSError):
            return None
        behind = behind.__cause__ or (None if behind.__suppress_context__ else behind.__context__)
    return None


def _limit_of(error: BaseException) -> str | None:
    """Return the limit of the jail that caused an exception, in the words of `details.limit`; None if no limit did.

    Explicit causes (`raise … from`) are searched, too, because libraries use them; implicit contexts are not.
    """
    behind: BaseException | None = error
    for _ in range(_MAX_WRAPPED):
        if isinstance(behind, BaseExceptionGroup):  # asyncio's TaskGroup
            behind = behind.exceptions[0]
        if behind is None or (limit := _limit_named_by(behind)) is not None:
            return None if behind is None else limit
        behind = behind.__cause__
    return None


def _limit_named_by(error: BaseException) -> str | None:
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError):
        if error.errno == errno.EAGAIN:  # also raised by a non-blocking descriptor
            return "processes" if _was_starting_a_process(error) else None
        return _LIMIT_OF_ERRNO.get(error.errno or 0)
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "processes"
    return None


_LIMIT_OF_ERRNO: Final = {
    errno.EMFILE: "files",
    errno.ENFILE: "files",
    errno.EFBIG: "file_size",
    errno.ENOSPC: "scratch",
    errno.EDQUOT: "scratch",
    errno.ENOMEM: "memory",
}
_STARTS_PROCESSES: Final = frozenset({"fork", "forkpty", "posix_spawn", "posix_spawnp"})


def _was_starting_a_process(error: OSError) -> bool:
    """Return whether the function that raised the error starts processes: with subprocess, or with os.fork as
    multiprocessing does.
    """
    last = None
    trace = error.__traceback__
    while trace is not None:
        last, trace = trace, trace.tb_next
    if last is None:
        return False
    code = last.tb_frame.f_code
    return code.co_name == "_execute_child" or not _STARTS_PROCESSES.isdisjoint(code.co_names)


def _failed(failure_class: str, message: str, details: Mapping[str, object] | None = None) -> Failed:
    words = message.encode("utf-8", "replace").decode()[:_MAX_MESSAGE_CHARACTERS]
    failed = Failed(failure_class=failure_class[:64], message=words, details=details or {})
    try:
        try:
            encode(failed)
        except FrameTooLargeError:
            raise
        except FrameError:
            details = _carried_details(details or {})
            failed = Failed(failure_class=failed.failure_class, message=words, details=details)
            encode(failed)
    except (FrameError, TypeError) as error:
        why = f"left out because they cannot be sent: {error}"
        return Failed(failure_class="connector_runtime_error", message=words, details={"details": why})
    return failed


def _carried_details(details: Mapping[str, object]) -> Any:
    from aileron_connector.carried import carried

    return carried(details).value


_OUT_OF_MEMORY: Final = _failed(
    "resource_limit_exceeded", "the connector reached its memory limit", {"limit": "memory"}
)
"""The frame that reports a MemoryError. It is made in advance, because no memory may be left when it is needed."""


def _print_traceback(error: BaseException) -> None:
    # The log is optional. Whatever prevents it (a closed pipe, no memory, no descriptors) must not cost the answer.
    with contextlib.suppress(Exception):
        import traceback  # slow to import, and only needed here

        traceback.print_exception(error)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed or replaced by the connector
            stream.flush()
