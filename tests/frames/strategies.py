"""Hypothesis strategies for messages, shared by the tests of the frames."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from aileron_sandbox.frames import (
    AuditEvent,
    Cancel,
    Chunk,
    Failed,
    FrameFailure,
    GrantedHost,
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
    is_close_code,
)

text = st.text(max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=12
)
json_maps: st.SearchStrategy[dict[str, Any]] = st.dictionaries(text, json_values, max_size=4)
ids = st.integers(1, 2**32 - 1)
headers = st.lists(st.tuples(text, text), max_size=4)
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
bodies = st.binary(max_size=300)
websocket_parts = st.one_of(
    st.builds(WebSocketMessage, id=ids, text=st.booleans(), more=st.booleans()),
    st.builds(WebSocketClose, id=ids),
    st.builds(WebSocketClose, id=ids, code=st.integers(1000, 4999).filter(is_close_code), reason=text),
)

to_jail = st.one_of(
    st.builds(
        Invoke,
        protocol=st.integers(0, 9),
        op=text,
        args=json_maps,
        hosts=st.lists(st.builds(GrantedHost, text, st.integers(1, 65535), st.booleans()), max_size=3),
        invocation=text,
        deadline_ms=st.integers(0, 2**53 - 1),
    ),
    st.builds(HttpHead, id=ids, status=st.integers(100, 999), headers=headers),
    st.builds(TcpOpened, id=ids),
    st.builds(Refused, id=ids, error=st.builds(FrameFailure, failure_class=text, message=text, details=json_maps)),
    st.builds(Chunk, id=ids, end=st.booleans()),
    st.builds(WebSocketOpened, id=ids, headers=headers, subprotocol=st.none() | text),
    websocket_parts,
)
from_jail = st.one_of(
    st.builds(Ready),
    st.builds(Log, level=st.sampled_from(["debug", "info", "warning", "error"]), message=text, fields=json_maps),
    st.builds(Progress, done=numbers, total=st.none() | numbers, message=st.none() | text),
    st.builds(AuditEvent, event=text, fields=json_maps),
    st.builds(
        HttpRequest,
        id=ids,
        method=text,
        url=text,
        headers=headers,
        credential=st.none() | text,
        body=st.sampled_from(["none", "inline", "stream"]),
    ),
    st.builds(Chunk, id=ids, end=st.booleans()),
    st.builds(
        TcpOpen,
        id=ids,
        host=text,
        port=st.integers(1, 65535),
        tls=st.booleans(),
        command=st.none() | st.text(min_size=1, max_size=20),
    ),
    st.builds(
        WebSocketOpen,
        id=ids,
        url=text,
        headers=headers,
        subprotocols=st.lists(text, max_size=3),
        credential=st.none() | text,
    ),
    websocket_parts,
    st.builds(Cancel, id=ids),
    st.builds(Result, output=json_values),
    st.builds(Failed, failure_class=text, message=text, details=json_maps),
)


def may_have_body(message: Message) -> bool:
    """Return whether raw bytes may follow this message, as docs/reference/frames.md says."""
    return isinstance(message, Chunk | WebSocketMessage) or (
        isinstance(message, HttpRequest) and message.body == "inline"
    )
