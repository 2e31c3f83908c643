"""The frame protocol, by which a jailed connector and its host communicate.

codec.py bytes ⇄ frames · frame_messages.py the contents of frames · session.py which frame may follow which

Both ends use this package, and each treats the other as hostile. Pure: no I/O, no clock, no thread. It is preloaded in a
process that is forked for every invocation, so it imports msgspec and a few small modules of the standard library only.

Source: docs/reference/frames.md, from which a connector can be written in any language.
"""

from aileron_sandbox.frames.codec import (
    MAX_BODY_BYTES,
    MAX_DEPTH,
    MAX_HEADER_BYTES,
    Decoder,
    Frame,
    FrameError,
    FrameTooLargeError,
    check_json,
    encode,
)
from aileron_sandbox.frames.frame_messages import (
    PROTOCOL_VERSION,
    AuditEvent,
    Cancel,
    Chunk,
    Failed,
    FrameFailure,
    FromJail,
    GrantedHost,
    HttpHead,
    HttpRequest,
    Invoke,
    Log,
    LogLevel,
    Message,
    Progress,
    Ready,
    Refused,
    Result,
    TcpOpen,
    TcpOpened,
    ToJail,
    WebSocketClose,
    WebSocketMessage,
    WebSocketOpen,
    WebSocketOpened,
    is_close_code,
)
from aileron_sandbox.frames.session import MAX_IN_FLIGHT, HostSession, JailSession, ProtocolError

__all__ = [
    "MAX_BODY_BYTES",
    "MAX_DEPTH",
    "MAX_HEADER_BYTES",
    "MAX_IN_FLIGHT",
    "PROTOCOL_VERSION",
    "AuditEvent",
    "Cancel",
    "Chunk",
    "Decoder",
    "Failed",
    "Frame",
    "FrameError",
    "FrameFailure",
    "FrameTooLargeError",
    "FromJail",
    "GrantedHost",
    "HostSession",
    "HttpHead",
    "HttpRequest",
    "Invoke",
    "JailSession",
    "Log",
    "LogLevel",
    "Message",
    "Progress",
    "ProtocolError",
    "Ready",
    "Refused",
    "Result",
    "TcpOpen",
    "TcpOpened",
    "ToJail",
    "WebSocketClose",
    "WebSocketMessage",
    "WebSocketOpen",
    "WebSocketOpened",
    "check_json",
    "encode",
    "is_close_code",
]
