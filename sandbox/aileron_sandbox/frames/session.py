"""The order in which frames may be sent, checked by two small state machines: the host's view and the jail's.

Each end passes to its session every frame it is about to send and every frame it has received, in order.
ProtocolError means that the frame is not allowed at this point. The other end is not trusted: a host that sees
ProtocolError ends the jail.

Rules
1. `invoke` comes once, and is the host's first frame. Before it the jail sends nothing, or `ready` as its first frame;
   `invoke` and `ready` may cross.
2. The jail ends with one `result` or `failure`. Nothing follows it, and requests still open end with it.
3. Each request id is larger than the one before. At most MAX_IN_FLIGHT requests are open at once.
4. A request has two halves. Down (host to jail): `http_head`, chunks, the last with `end`; or `refused` at any time,
   also after the head. Exactly one final frame ends this half: the chunk with `end`, or `refused`. Up (jail to host),
   only for `body="stream"`: chunks, the last with `end`; or `cancel`. The request no longer counts as open when both
   halves have ended. A stream (`tcp_open`) is a request whose answer begins with `tcp_opened` instead of `http_head`,
   and that always has an up half, which opens with `tcp_opened` only. Either half may end first. A WebSocket
   (`websocket_open`) is a request whose halves carry messages. Both halves open with `websocket_opened`, and each ends
   with `websocket_close`. The parts of a message follow one another, and are of one type. If `http_head` comes instead,
   the service opened no WebSocket: the answer is that of a request, and the up half ends without a message.
5. The answer may be complete, or refused, before the request's body is. The jail then still ends its half, with `cancel`.
6. After `cancel` the jail waits for the final frame and discards all frames before it; the host sends the final frame soon
   (`refused` unless the answer was just complete). So both sides agree on the end of a cancelled request.
7. A `cancel` that crosses the final frame on the way reaches the host after the request has ended, and is ignored.

The sessions cannot check rule 6's "soon". Pure; no I/O, no clock. Source: docs/reference/frames.md.
"""

from __future__ import annotations

from typing import Final, Literal

from aileron_sandbox.frames.codec import Frame, FrameError
from aileron_sandbox.frames.frame_messages import (
    AuditEvent,
    Cancel,
    Chunk,
    Failed,
    HttpHead,
    HttpRequest,
    Invoke,
    Log,
    Message,
    Progress,
    Ready,
    Refused,
    Result,
    TcpOpen,
    TcpOpened,
    WebSocketClose,
    WebSocketMessage,
    WebSocketOpen,
    WebSocketOpened,
)

__all__ = ["MAX_IN_FLIGHT", "HostSession", "JailSession", "ProtocolError"]

MAX_IN_FLIGHT: Final = 32
"""Maximum number of open requests: more than a connector's page of lookups, and few enough that 32 buffers of 1 MiB
fit in a jail.
"""


class ProtocolError(FrameError):
    """Error: the frame is well formed, but not allowed at this point."""


_Kind = Literal["http", "tcp", "websocket"]
_HEADS: Final[dict[_Kind, str]] = {"http": "http_head", "tcp": "tcp_opened", "websocket": "websocket_opened"}
"""The frame that begins the answer, by kind of request. If the service opens no WebSocket, it is `http_head` instead
of `websocket_opened`.
"""


class _Messages:
    """A check of one direction of a WebSocket: the parts of a message must all be text, or all be binary."""

    __slots__ = ("_is_text",)

    def __init__(self) -> None:
        self._is_text: bool | None = None  # type of the unfinished message; None between messages

    def take(self, part: WebSocketMessage) -> None:
        if self._is_text not in (None, part.text):
            raise ProtocolError(f"a message of request {part.id} that is text and binary")
        self._is_text = part.text if part.more else None


class _Request:
    """The state of one request: its upload (up, jail to host) and its answer (down, host to jail)."""

    __slots__ = ("cancelled", "down", "has_head", "is_answered", "is_open", "is_uploading", "kind", "up")

    def __init__(self, *, is_uploading: bool, kind: _Kind) -> None:
        self.kind: _Kind = kind
        self.is_uploading = is_uploading
        self.has_head = False
        self.up, self.down = _Messages(), _Messages()
        self.is_open = kind == "http"  # True if the jail may send bytes or messages
        self.is_answered = False
        self.cancelled = False


class _Session:
    """The state of one invocation, which the host and the jail each keep for themselves. Its methods get the frames of
    both directions in order.
    """

    def __init__(self) -> None:
        self._invoked = False
        self._over = False
        self._has_spoken = False  # True once the jail has sent a frame
        self._last_id = 0
        self._requests: Final[dict[int, _Request]] = {}

    @property
    def is_over(self) -> bool:
        """True once a `result` or `failure` has been sent."""
        return self._over

    @property
    def open_ids(self) -> tuple[int, ...]:
        """Ids of the requests that have not ended, oldest first."""
        return tuple(self._requests)

    def is_cancelled(self, request_id: int) -> bool:
        """Return whether the jail has cancelled this request and the request is still open."""
        request = self._requests.get(request_id)
        return request is not None and request.cancelled

    def is_answered(self, request_id: int) -> bool:
        """Return whether the final frame of this request was sent. The host then ignores the rest of its upload."""
        request = self._requests.get(request_id)
        return request_id <= self._last_id if request is None else request.is_answered

    def _from_jail(self, message: Message) -> None:
        is_first, self._has_spoken = not self._has_spoken, True
        if isinstance(message, Ready):
            if not is_first:
                raise ProtocolError("ready after another frame")
            return
        self._check_running(message)
        match message:
            case Chunk(id=request_id, end=end):
                self._upload(request_id, end)
            case WebSocketMessage(id=request_id):
                self._uploading_websocket(request_id, message).up.take(message)
            case WebSocketClose(id=request_id):
                self._uploaded(request_id, self._uploading_websocket(request_id, message))
            case Log() | Progress() | AuditEvent():
                pass
            case HttpRequest(id=request_id, body=body):
                self._open(request_id, _Request(is_uploading=body == "stream", kind="http"))
            case TcpOpen(id=request_id):
                self._open(request_id, _Request(is_uploading=True, kind="tcp"))
            case WebSocketOpen(id=request_id):
                self._open(request_id, _Request(is_uploading=True, kind="websocket"))
            case Cancel(id=request_id):
                self._cancel(request_id)
            case Result() | Failed():
                self._over = True
                self._requests.clear()
            case _:
                raise ProtocolError(f"a jail cannot send {_name(message)}")

    def _to_jail(self, message: Message) -> None:
        if isinstance(message, Invoke):
            if self._invoked:
                raise ProtocolError("second invoke")
            self._invoked = True
            return
        self._check_running(message)
        match message:
            case Chunk(id=request_id, end=end):
                request = self._unanswered(request_id, message)
                if not request.has_head:
                    raise ProtocolError(f"chunk before {_HEADS[request.kind]} of request {request_id}")
                if request.kind == "websocket" and request.is_open:
                    raise ProtocolError(f"chunk for request {request_id}, which is an open WebSocket")
                if end:
                    self._answered(request_id, request)
            case WebSocketMessage(id=request_id) | WebSocketClose(id=request_id):
                request = self._unanswered(request_id, message)
                if request.kind != "websocket" or not request.is_open:
                    raise ProtocolError(f"{_name(message)} for request {request_id}, which is no open WebSocket")
                if isinstance(message, WebSocketMessage):
                    request.down.take(message)
                else:
                    self._answered(request_id, request)
            case HttpHead(id=request_id) | TcpOpened(id=request_id) | WebSocketOpened(id=request_id):
                request = self._unanswered(request_id, message)
                if request.has_head:
                    raise ProtocolError(f"second {_name(message)} for request {request_id}")
                is_no_websocket = request.kind == "websocket" and isinstance(message, HttpHead)
                if _name(message) != _HEADS[request.kind] and not is_no_websocket:
                    raise ProtocolError(f"{_name(message)} does not fit request {request_id}")
                request.has_head, request.is_open = True, not is_no_websocket
            case Refused(id=request_id):
                self._answered(request_id, self._unanswered(request_id, message))
            case _:
                raise ProtocolError(f"a host cannot send {_name(message)}")

    def _check_running(self, message: Message) -> None:
        if not self._invoked:
            raise ProtocolError(f"{_name(message)} before invoke")
        if self._over:
            raise ProtocolError(f"{_name(message)} after the result")

    def _open(self, request_id: int, request: _Request) -> None:
        if request_id <= self._last_id:
            raise ProtocolError(f"request id {request_id} is not larger than {self._last_id}, the last one")
        if len(self._requests) >= MAX_IN_FLIGHT:
            raise ProtocolError(f"more than {MAX_IN_FLIGHT} requests open at once")
        self._last_id = request_id
        self._requests[request_id] = request

    def _upload(self, request_id: int, end: bool) -> None:
        request = self._requests.get(request_id)
        if request is None or not request.is_uploading or request.kind == "websocket":
            raise ProtocolError(f"chunk for request {request_id}, which does not expect one")
        if not request.is_open:
            raise ProtocolError(f"chunk before tcp_opened of stream {request_id}")
        if end:
            self._uploaded(request_id, request)

    def _uploading_websocket(self, request_id: int, message: Message) -> _Request:
        request = self._requests.get(request_id)
        if request is None or not request.is_uploading or request.kind != "websocket" or not request.is_open:
            raise ProtocolError(f"{_name(message)} for request {request_id}, which does not expect one")
        return request

    def _cancel(self, request_id: int) -> None:
        if request_id > self._last_id:
            raise ProtocolError(f"cancel of request {request_id}, which was never issued")
        request = self._requests.get(request_id)
        if request is None:
            return  # rule 7
        if request.cancelled:
            raise ProtocolError(f"second cancel of request {request_id}")
        request.cancelled = True
        self._uploaded(request_id, request)

    def _unanswered(self, request_id: int, message: Message) -> _Request:
        request = self._requests.get(request_id)
        if request is None or request.is_answered:
            known = "has ended or was never issued" if request_id <= self._last_id else "was never issued"
            raise ProtocolError(f"{_name(message)} for request {request_id}, which {known}")
        return request

    def _answered(self, request_id: int, request: _Request) -> None:
        request.is_answered = True
        if not request.is_uploading:
            del self._requests[request_id]

    def _uploaded(self, request_id: int, request: _Request) -> None:
        request.is_uploading = False
        if request.is_answered:
            del self._requests[request_id]


class HostSession(_Session):
    """The order of frames in one invocation, as the host checks it."""

    def sending(self, message: Message) -> None:
        """Record that `message` is about to be sent to the jail. Raises ProtocolError if it is not allowed now, which
        is the caller's mistake.
        """
        self._to_jail(message)

    def received(self, frame: Frame) -> None:
        """Record that `frame` came from the jail. Raises ProtocolError if the frame is not allowed now; the caller
        must then end the jail.
        """
        self._from_jail(frame.message)


class JailSession(_Session):
    """The order of frames in one invocation, as the jail checks it."""

    def sending(self, message: Message) -> None:
        """Record that `message` is about to be sent to the host. Raises ProtocolError if it is not allowed now, which
        is the caller's mistake.
        """
        if isinstance(message, Cancel) and message.id not in self._requests:
            raise ProtocolError(f"cancel of request {message.id}, which is not open")
        self._from_jail(message)

    def received(self, frame: Frame) -> None:
        """Record that `frame` came from the host. Raises ProtocolError if the frame is not allowed now.

        After the result has been sent, answers that were already on their way may still arrive; they are ignored.
        """
        if self._over and not isinstance(frame.message, Invoke):
            return
        self._to_jail(frame.message)


def _name(message: Message) -> str:
    return str(message.__struct_config__.tag)
