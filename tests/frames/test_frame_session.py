"""Tests of which frame may follow which: each refusal beside what is allowed, and the races between two honest ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aileron_sandbox.frames import (
    MAX_IN_FLIGHT,
    AuditEvent,
    Cancel,
    Chunk,
    Failed,
    Frame,
    FrameError,
    FrameFailure,
    HostSession,
    HttpHead,
    HttpRequest,
    Invoke,
    JailSession,
    Log,
    Message,
    Progress,
    ProtocolError,
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

INVOKE = Invoke(protocol=1, op="x", args={}, hosts=[], invocation="i", deadline_ms=1000)
Script = list[tuple[str, Message]]
LOG = Log(level="info", message="m")
RESULT = Result(output=None)


def request(request_id: int, body: str = "none") -> HttpRequest:
    """Return a request of the jail."""
    return HttpRequest(id=request_id, method="GET", url="https://h/", headers=[], body=body)  # type: ignore[arg-type]


def head(request_id: int) -> HttpHead:
    """Return the head of an answer."""
    return HttpHead(id=request_id, status=200, headers=[])


def stream(stream_id: int) -> TcpOpen:
    """Return the jail's request for a stream."""
    return TcpOpen(id=stream_id, host="h", port=25, tls=True)


def opened(stream_id: int) -> TcpOpened:
    """Return the message that a stream is connected."""
    return TcpOpened(id=stream_id)


def websocket(request_id: int) -> WebSocketOpen:
    """Return the jail's request for a WebSocket."""
    return WebSocketOpen(id=request_id, url="wss://h/", headers=[])


def upgraded(request_id: int) -> WebSocketOpened:
    """Return the message that a WebSocket is open."""
    return WebSocketOpened(id=request_id, headers=[])


def said(request_id: int, *, text: bool = True, more: bool = False) -> WebSocketMessage:
    """Return a message of a WebSocket, or a part of one."""
    return WebSocketMessage(id=request_id, text=text, more=more)


def closed(request_id: int) -> WebSocketClose:
    """Return the frame with which either side closes a WebSocket."""
    return WebSocketClose(id=request_id, code=1000)


def refused(request_id: int) -> Refused:
    """Return the refusal of a request."""
    return Refused(id=request_id, error=FrameFailure(failure_class="network_error", message="m"))


def frame(message: Message) -> Frame:
    """Return the message as it arrives."""
    return Frame(message, b"x" if isinstance(message, Chunk | WebSocketMessage) else None)


def played(*script: tuple[str, Message]) -> tuple[HostSession, JailSession]:
    """Return both sessions after a conversation without delays. `>` goes to the jail, `<` comes from it."""
    host, jail = HostSession(), JailSession()
    for direction, message in script:
        if direction == ">":
            host.sending(message)
            jail.received(frame(message))
        else:
            jail.sending(message)
            host.received(frame(message))
    return host, jail


HONEST: dict[str, Script] = {
    "a result alone": [(">", INVOKE), ("<", RESULT)],
    "ready before it is told anything": [("<", Ready()), (">", INVOKE), ("<", LOG), ("<", RESULT)],
    "ready when invoke is on its way": [(">", INVOKE), ("<", Ready()), ("<", RESULT)],
    "a failure alone": [(">", INVOKE), ("<", Failed(failure_class="x", message="m"))],
    "what is told on the way": [
        (">", INVOKE), ("<", LOG), ("<", Progress(done=1)), ("<", AuditEvent(event="e")), ("<", LOG), ("<", RESULT),
    ],
    "a request": [
        (">", INVOKE), ("<", request(1)), (">", head(1)), (">", Chunk(id=1)), (">", Chunk(id=1, end=True)), ("<", RESULT),
    ],
    "a refused request": [(">", INVOKE), ("<", request(1)), (">", refused(1)), ("<", request(2)), ("<", RESULT)],
    "refused after the head": [
        (">", INVOKE), ("<", request(1)), (">", head(1)), (">", Chunk(id=1)), (">", refused(1)), ("<", RESULT),
    ],
    "an upload": [
        (">", INVOKE), ("<", request(7, "stream")), ("<", Chunk(id=7)), ("<", Chunk(id=7, end=True)), (">", head(7)),
        (">", Chunk(id=7, end=True)), ("<", RESULT),
    ],
    "an answer during the upload": [
        (">", INVOKE), ("<", request(1, "stream")), (">", head(1)), ("<", Chunk(id=1)), (">", Chunk(id=1)),
        ("<", Chunk(id=1, end=True)), (">", Chunk(id=1, end=True)), ("<", RESULT),
    ],
    "an answer complete before the upload": [
        (">", INVOKE), ("<", request(1, "stream")), (">", head(1)), (">", Chunk(id=1, end=True)), ("<", Chunk(id=1)),
        ("<", Cancel(id=1)), ("<", request(2)), ("<", RESULT),
    ],
    "an upload refused early": [
        (">", INVOKE), ("<", request(1, "stream")), (">", refused(1)), ("<", Chunk(id=1)), ("<", Chunk(id=1, end=True)),
        ("<", RESULT),
    ],
    "a cancelled request": [
        (">", INVOKE), ("<", request(1)), (">", head(1)), ("<", Cancel(id=1)), (">", Chunk(id=1)), (">", refused(1)),
        ("<", RESULT),
    ],
    "a cancelled upload": [
        (">", INVOKE), ("<", request(1, "stream")), ("<", Chunk(id=1)), ("<", Cancel(id=1)), (">", refused(1)), ("<", RESULT),
    ],
    "answers out of order": [
        (">", INVOKE), ("<", request(1)), ("<", request(5)), (">", head(5)), (">", head(1)),
        (">", Chunk(id=5, end=True)), (">", Chunk(id=1, end=True)), ("<", RESULT),
    ],
    "a stream, both directions at once": [
        (">", INVOKE), ("<", stream(1)), (">", opened(1)), ("<", Chunk(id=1)), (">", Chunk(id=1)), ("<", Chunk(id=1)),
        ("<", Chunk(id=1, end=True)), (">", Chunk(id=1)), (">", Chunk(id=1, end=True)), ("<", RESULT),
    ],
    "a stream whose service ends first": [
        (">", INVOKE), ("<", stream(1)), (">", opened(1)), (">", Chunk(id=1, end=True)), ("<", Chunk(id=1)),
        ("<", Chunk(id=1, end=True)), ("<", request(2)), ("<", RESULT),
    ],
    "a stream that is refused": [
        (">", INVOKE), ("<", stream(1)), (">", refused(1)), ("<", Cancel(id=1)), ("<", stream(2)), ("<", RESULT),
    ],
    "a stream that breaks": [
        (">", INVOKE), ("<", stream(1)), (">", opened(1)), ("<", Chunk(id=1)), (">", refused(1)), ("<", Chunk(id=1)),
        ("<", Cancel(id=1)), ("<", RESULT),
    ],
    "a stream that is closed": [
        (">", INVOKE), ("<", stream(1)), (">", opened(1)), ("<", Cancel(id=1)), (">", Chunk(id=1)), (">", refused(1)),
        ("<", RESULT),
    ],
    "a stream cancelled before it is open": [
        (">", INVOKE), ("<", stream(1)), ("<", Cancel(id=1)), (">", opened(1)), (">", Chunk(id=1, end=True)), ("<", RESULT),
    ],
    "a WebSocket, both directions at once": [
        (">", INVOKE), ("<", websocket(1)), (">", upgraded(1)), ("<", said(1)), (">", said(1, more=True)), ("<", said(1)),
        (">", said(1)), (">", said(1, text=False)), ("<", closed(1)), (">", said(1)), (">", closed(1)), ("<", RESULT),
    ],
    "a WebSocket that the service closes": [
        (">", INVOKE), ("<", websocket(1)), (">", upgraded(1)), (">", closed(1)), ("<", said(1)), ("<", closed(1)),
        ("<", request(2)), ("<", RESULT),
    ],
    "a WebSocket that the service does not open": [
        (">", INVOKE), ("<", websocket(1)), (">", head(1)), (">", Chunk(id=1)), (">", Chunk(id=1, end=True)),
        ("<", Cancel(id=1)), ("<", RESULT),
    ],
    "a WebSocket that is refused": [
        (">", INVOKE), ("<", websocket(1)), (">", refused(1)), ("<", Cancel(id=1)), ("<", RESULT),
    ],
    "a WebSocket that breaks": [
        (">", INVOKE), ("<", websocket(1)), (">", upgraded(1)), (">", said(1, more=True)), (">", refused(1)), ("<", said(1)),
        ("<", Cancel(id=1)), ("<", RESULT),
    ],
    "a WebSocket that is cancelled": [
        (">", INVOKE), ("<", websocket(1)), (">", upgraded(1)), ("<", said(1)), ("<", Cancel(id=1)), (">", said(1)),
        (">", refused(1)), ("<", RESULT),
    ],
    "a result while requests are open": [(">", INVOKE), ("<", request(1)), (">", head(1)), ("<", RESULT)],
}  # fmt: skip


@pytest.mark.parametrize("script", HONEST.values(), ids=HONEST)
def test_every_legal_conversation_is_accepted(script: Script) -> None:
    """Positive control: each is legal from beginning to end, and leaves no request open."""
    host, jail = played(*script)
    assert host.is_over
    assert jail.is_over
    assert host.open_ids == jail.open_ids == ()


OPEN: Script = [(">", INVOKE), ("<", request(3))]
ANSWERED: Script = [*OPEN, (">", head(3)), (">", Chunk(id=3, end=True))]
UPLOADING: Script = [(">", INVOKE), ("<", request(3, "stream"))]
CONNECTING: Script = [(">", INVOKE), ("<", stream(3))]
CONNECTED: Script = [*CONNECTING, (">", opened(3))]
UPGRADING: Script = [(">", INVOKE), ("<", websocket(3))]
UPGRADED: Script = [*UPGRADING, (">", upgraded(3))]
NOT_UPGRADED: Script = [*UPGRADING, (">", head(3))]
REFUSALS: dict[str, tuple[Script, tuple[str, Message], str]] = {
    "ready, twice": ([("<", Ready())], ("<", Ready()), "ready after another frame"),
    "ready after a log": ([(">", INVOKE), ("<", LOG)], ("<", Ready()), "ready after another frame"),
    "ready after the result": ([(">", INVOKE), ("<", RESULT)], ("<", Ready()), "ready after another frame"),
    "a log after ready, before invoke": ([("<", Ready())], ("<", LOG), "log before invoke"),
    "ready from the host": ([], (">", Ready()), "ready before invoke"),
    "a log before invoke": ([], ("<", LOG), "log before invoke"),
    "a result before invoke": ([], ("<", RESULT), "result before invoke"),
    "a request before invoke": ([], ("<", request(1)), "http before invoke"),
    "a head before invoke": ([], (">", head(1)), "http_head before invoke"),
    "a second invoke": ([(">", INVOKE)], (">", INVOKE), "second invoke"),
    "a second result": ([(">", INVOKE), ("<", RESULT)], ("<", RESULT), "result after the result"),
    "a failure after the result": (
        [(">", INVOKE), ("<", RESULT)], ("<", Failed(failure_class="x", message="m")), "failure after the result",
    ),
    "a log after the result": ([(">", INVOKE), ("<", RESULT)], ("<", LOG), "log after the result"),
    "a request after the result": ([(">", INVOKE), ("<", RESULT)], ("<", request(1)), "http after the result"),
    "a used id": (ANSWERED, ("<", request(3)), "not larger than 3"),
    "a smaller id": (OPEN, ("<", request(2)), "not larger than 3"),
    "a head for an id never issued": (OPEN, (">", head(4)), "never issued"),
    "a head for an id skipped": (OPEN, (">", head(1)), "has ended or was never issued"),
    "a second head": ([*OPEN, (">", head(3))], (">", head(3)), "second http_head"),
    "a chunk before the head": (OPEN, (">", Chunk(id=3)), "before http_head"),
    "a chunk after the end": (ANSWERED, (">", Chunk(id=3)), "has ended"),
    "a refusal after the end": (ANSWERED, (">", refused(3)), "has ended"),
    "a chunk after a refusal": ([*OPEN, (">", refused(3))], (">", Chunk(id=3)), "has ended"),
    "a second refusal": ([*OPEN, (">", refused(3))], (">", refused(3)), "has ended"),
    "an answer after the end, upload still open": (
        [*UPLOADING, (">", head(3)), (">", Chunk(id=3, end=True))], (">", Chunk(id=3)), "has ended",
    ),
    "a chunk for a request without one": (OPEN, ("<", Chunk(id=3)), "does not expect one"),
    "a chunk for an id never issued": (OPEN, ("<", Chunk(id=9)), "does not expect one"),
    "a chunk after the upload's end": (
        [*UPLOADING, ("<", Chunk(id=3, end=True))], ("<", Chunk(id=3)), "does not expect one",
    ),
    "a chunk after cancel": ([*UPLOADING, ("<", Cancel(id=3))], ("<", Chunk(id=3)), "does not expect one"),
    "a cancel of an id never issued": (OPEN, ("<", Cancel(id=4)), "cancel of request 4, which (was never issued|is not open)"),
    "a second cancel": ([*OPEN, ("<", Cancel(id=3))], ("<", Cancel(id=3)), "second cancel"),
    "too many requests": (
        [(">", INVOKE), *[("<", request(at)) for at in range(1, MAX_IN_FLIGHT + 1)]],
        ("<", request(MAX_IN_FLIGHT + 1)), "more than 32 requests",
    ),
    "a stream before invoke": ([], ("<", stream(1)), "tcp_open before invoke"),
    "a stream with a used id": (ANSWERED, ("<", stream(3)), "not larger than 3"),
    "bytes for a stream that is not open": (CONNECTING, ("<", Chunk(id=3)), "before tcp_opened"),
    "bytes for a stream that was refused": ([*CONNECTING, (">", refused(3))], ("<", Chunk(id=3)), "before tcp_opened"),
    "bytes of a stream that is not open": (CONNECTING, (">", Chunk(id=3)), "before tcp_opened"),
    "a stream opened twice": (CONNECTED, (">", opened(3)), "second tcp_opened"),
    "a stream opened after it was refused": ([*CONNECTING, (">", refused(3))], (">", opened(3)), "has ended"),
    "a head for a stream": (CONNECTING, (">", head(3)), "does not fit"),
    "a stream opened for a request": (OPEN, (">", opened(3)), "does not fit"),
    "bytes after the end of this direction": (
        [*CONNECTED, ("<", Chunk(id=3, end=True))], ("<", Chunk(id=3)), "does not expect one",
    ),
    "bytes after the end of the other direction": ([*CONNECTED, (">", Chunk(id=3, end=True))], (">", Chunk(id=3)), "has ended"),
    "bytes after a stream was closed": ([*CONNECTED, ("<", Cancel(id=3))], ("<", Chunk(id=3)), "does not expect one"),
    "too many streams": (
        [(">", INVOKE), *[("<", stream(at)) for at in range(1, MAX_IN_FLIGHT + 1)]],
        ("<", stream(MAX_IN_FLIGHT + 1)), "more than 32 requests",
    ),
    "a WebSocket with a used id": (ANSWERED, ("<", websocket(3)), "not larger than 3"),
    "a message before a WebSocket is open": (UPGRADING, ("<", said(3)), "does not expect one"),
    "a message to the jail before it is open": (UPGRADING, (">", said(3)), "no open WebSocket"),
    "a WebSocket closed before it is open": (UPGRADING, ("<", closed(3)), "does not expect one"),
    "a message on what was not opened": (NOT_UPGRADED, ("<", said(3)), "does not expect one"),
    "a message to the jail on what was not opened": (NOT_UPGRADED, (">", said(3)), "no open WebSocket"),
    "a chunk on a WebSocket": (UPGRADED, ("<", Chunk(id=3)), "does not expect one"),
    "a chunk to the jail on a WebSocket": (UPGRADED, (">", Chunk(id=3)), "open WebSocket"),
    "a WebSocket opened twice": (UPGRADED, (">", upgraded(3)), "second websocket_opened"),
    "a WebSocket opened after its head": (NOT_UPGRADED, (">", upgraded(3)), "second websocket_opened"),
    "a head after a WebSocket is open": (UPGRADED, (">", head(3)), "second http_head"),
    "a WebSocket opened for a request": (OPEN, (">", upgraded(3)), "does not fit"),
    "a WebSocket opened as a stream": (UPGRADING, (">", opened(3)), "does not fit"),
    "a message after the close": ([*UPGRADED, ("<", closed(3))], ("<", said(3)), "does not expect one"),
    "a message to the jail after the close": ([*UPGRADED, (">", closed(3))], (">", said(3)), "has ended"),
    "a second close": ([*UPGRADED, ("<", closed(3))], ("<", closed(3)), "does not expect one"),
    "a message for a request": (UPLOADING, ("<", said(3)), "does not expect one"),
    "a message for a stream": (CONNECTED, (">", said(3)), "no open WebSocket"),
    "a message that is text, then binary": (
        [*UPGRADED, ("<", said(3, more=True))], ("<", said(3, text=False)), "text and binary",
    ),
    "a message to the jail that is binary, then text": (
        [*UPGRADED, (">", said(3, text=False, more=True))], (">", said(3)), "text and binary",
    ),
    "the host asks for a WebSocket": ([(">", INVOKE)], (">", websocket(1)), "a host cannot send"),
    "the jail says that a WebSocket is open": (UPGRADING, ("<", upgraded(3)), "a jail cannot send"),
    "the host asks for a stream": ([(">", INVOKE)], (">", stream(1)), "a host cannot send"),
    "the jail opens a stream": (CONNECTING, ("<", opened(3)), "a jail cannot send"),
    "the jail speaks as the host": ([(">", INVOKE)], ("<", INVOKE), "a jail cannot send"),
    "the host speaks as the jail": ([(">", INVOKE)], (">", LOG), "a host cannot send"),
}  # fmt: skip


@pytest.mark.abuse_case("M4", "M5")
@pytest.mark.parametrize(("script", "last", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_frame_out_of_order_is_refused(script: Script, last: tuple[str, Message], words: str) -> None:
    """The receiver refuses it for this reason, whoever sent it."""
    host, jail = played(*script)
    direction, message = last
    before = host.open_ids, jail.open_ids
    if direction == "<":
        with pytest.raises(ProtocolError, match=words):
            host.received(frame(message))
    else:
        with pytest.raises(ProtocolError, match=words):
            jail.received(frame(message))
    assert (host.open_ids, jail.open_ids) == before


@pytest.mark.parametrize(("script", "last", "words"), REFUSALS.values(), ids=REFUSALS)
def test_the_sender_s_own_frame_session_refuses_a_frame_out_of_order(
    script: Script, last: tuple[str, Message], words: str
) -> None:
    """The sender learns of its mistake before the frame is sent."""
    host, jail = played(*script)
    direction, message = last
    sender = host if direction == ">" else jail
    with pytest.raises(ProtocolError, match=words):
        sender.sending(message)


def test_protocol_errors_are_frame_errors() -> None:
    """A caller can catch both with one `except FrameError`."""
    with pytest.raises(FrameError):
        HostSession().received(frame(LOG))


def test_a_cancel_that_crosses_the_last_chunk_is_ignored() -> None:
    """1. The host ends the answer. 2. The jail, unaware, cancels. 3. Both arrive: no error, and no request is open."""
    host, jail = played((">", INVOKE), ("<", request(1)), (">", head(1)))
    host.sending(Chunk(id=1, end=True))
    jail.sending(Cancel(id=1))
    host.received(frame(Cancel(id=1)))
    jail.received(frame(Chunk(id=1, end=True)))
    assert host.open_ids == jail.open_ids == ()


def test_answers_on_their_way_when_the_result_is_sent_are_no_error() -> None:
    """The jail ignores them; the host may not send more once it has the result."""
    host, jail = played((">", INVOKE), ("<", request(1)))
    host.sending(head(1))
    jail.sending(RESULT)
    jail.received(frame(head(1)))
    host.received(frame(RESULT))
    with pytest.raises(ProtocolError, match="after the result"):
        host.sending(Chunk(id=1))


def test_an_ended_request_no_longer_counts_against_the_bound_on_open_requests() -> None:
    """The bound counts open requests, not all requests so far."""
    script: Script = [(">", INVOKE)]
    for at in range(1, 3 * MAX_IN_FLIGHT):
        script += [("<", request(at)), (">", refused(at))]
    played(*script)


def test_a_frame_session_knows_which_requests_are_cancelled_or_answered() -> None:
    """Both ends ask it which requests are cancelled and which have an answer."""
    host, _ = played(*UPLOADING, ("<", Cancel(id=3)))
    assert host.is_cancelled(3)
    assert not host.is_answered(3)
    host.sending(refused(3))
    assert host.is_answered(3)
    assert not host.is_cancelled(3)
    assert not host.is_answered(4)


jail_says = st.one_of(
    st.just(Ready()),
    st.just(LOG),
    st.builds(request, st.integers(1, 6), st.sampled_from(["none", "inline", "stream"])),
    st.builds(stream, st.integers(1, 6)),
    st.builds(Chunk, id=st.integers(1, 6), end=st.booleans()),
    st.builds(Cancel, id=st.integers(1, 6)),
    st.just(RESULT),
)
host_says = st.one_of(
    st.builds(head, st.integers(1, 6)),
    st.builds(opened, st.integers(1, 6)),
    st.builds(Chunk, id=st.integers(1, 6), end=st.booleans()),
    st.builds(refused, st.integers(1, 6)),
)
steps = st.one_of(
    st.tuples(st.just("jail says"), jail_says),
    st.tuples(st.just("host says"), host_says),
    st.tuples(st.sampled_from(["to jail arrives", "to host arrives"]), st.none()),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=60))
def test_every_frame_that_an_end_may_send_is_accepted_by_the_other_end_however_late(
    steps: list[tuple[str, Message | None]],
) -> None:
    """Two honest ends never see an error, whatever crosses on the way, and agree in the end on which requests are open."""
    host, jail = HostSession(), JailSession()
    to_jail: list[Message] = [INVOKE]
    to_host: list[Message] = []
    host.sending(INVOKE)
    for what, message in steps:
        _step(what, message, host, jail, to_jail, to_host)
    while to_jail or to_host:
        _step("to jail arrives", None, host, jail, to_jail, to_host)
        _step("to host arrives", None, host, jail, to_jail, to_host)
    assert host.open_ids == jail.open_ids


def _step(
    what: str,
    message: Message | None,
    host: HostSession,
    jail: JailSession,
    to_jail: list[Message],
    to_host: list[Message],
) -> None:
    if what == "to jail arrives" and to_jail:
        jail.received(frame(to_jail.pop(0)))
    elif what == "to host arrives" and to_host:
        host.received(frame(to_host.pop(0)))
    elif message is not None:
        sender, queue = (host, to_jail) if what == "host says" else (jail, to_host)
        try:
            sender.sending(message)
        except ProtocolError:
            return  # not allowed now, so an honest end does not send it
        queue.append(message)
