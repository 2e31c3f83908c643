"""Fuzz tests of streams (mutated, cut anywhere, in any order), and a second model of which frame may follow which.

`make fuzz` runs these for as long as its budget allows (tests/fuzz.py). What they find is kept as a line of
tests/attacks/corpus/frames.txt, which every run replays and begins its mutations with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, note, target
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from aileron_sandbox.frames import (
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    MAX_IN_FLIGHT,
    Cancel,
    Chunk,
    Decoder,
    Failed,
    Frame,
    FrameError,
    FrameFailure,
    FromJail,
    HostSession,
    HttpHead,
    HttpRequest,
    Invoke,
    JailSession,
    Log,
    Message,
    ProtocolError,
    Refused,
    Result,
    TcpOpen,
    TcpOpened,
    ToJail,
    WebSocketClose,
    WebSocketMessage,
    WebSocketOpen,
    WebSocketOpened,
    encode,
)
from tests.frames.strategies import bodies, from_jail, may_have_body, to_jail

CORPUS: Final = Path(__file__).parents[1] / "attacks" / "corpus" / "frames.txt"


def corpus() -> list[tuple[str, bytes]]:
    """Return (recorded outcome, stream) of each line, `outcome hex`; empty lines and text after # are for people."""
    lines = (line.split("#")[0].split() for line in CORPUS.read_text(encoding="ascii").splitlines())
    return [(words[0], bytes.fromhex("".join(words[1:]))) for words in lines if words]


SEEDS: Final = [data for _, data in corpus()]


def spelled(message: Message, body: bytes) -> bytes:
    """Return a frame as `encode` writes it."""
    return b"".join(bytes(part) for part in encode(message, body if may_have_body(message) else b""))


def read(data: bytes, cuts: list[int], incoming: Any) -> tuple[list[Frame], str | None]:
    """Return the frames of a stream that arrives in these pieces, and the reason if it ended with an error."""
    decoder = Decoder(incoming)
    frames: list[Frame] = []
    at = 0
    try:
        for cut in sorted({min(cut, len(data)) for cut in cuts} | {len(data)}):
            decoder.feed(data[at:cut])
            at = cut
            while (frame := decoder.next_frame()) is not None:
                frames.append(frame)
            assert 0 <= decoder.missing_bytes <= 8 + MAX_HEADER_BYTES + MAX_BODY_BYTES
    except FrameError as error:
        with pytest.raises(FrameError):
            decoder.next_frame()
        return frames, str(error)
    return frames, None


valid = st.builds(spelled, from_jail | to_jail, bodies)
streams = st.lists(valid | st.sampled_from(SEEDS), min_size=1, max_size=4).map(b"".join)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Draw a stream of frames with a few bytes changed, inserted, removed, repeated or replaced."""
    data = bytearray(draw(streams))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        size = draw(st.integers(0, 12))
        match draw(st.integers(0, 5)):
            case 0:
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                data[at:at] = draw(st.binary(max_size=12))
            case 2:
                del data[at : at + size]
            case 3:
                data[at:at] = data[at : at + size] * draw(st.integers(1, 8))
            case 4:
                data[at : at + 1] = bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) if data else b""
            case _:
                interesting = [
                    b"\xdd\xff\xff\xff\xff",
                    b"\xdf\xff\xff\xff\xff",
                    b"\xc1",
                    b"\xd4\x05x",
                    b"\xcb\x7f\xf8" + bytes(6),
                    b"\x91" * 70,
                ]
                data[at : at + size] = draw(st.sampled_from(interesting))
    return bytes(data)


@pytest.mark.abuse_case("M10")
@pytest.mark.parametrize(
    ("kept", "data"), corpus(), ids=lambda value: value if isinstance(value, str) else value.hex()[:24]
)
def test_every_stream_of_the_corpus_has_its_recorded_outcome(kept: str, data: bytes) -> None:
    """Each line of the corpus gives its recorded `frames`, `refused` or `waits`, whole and byte by byte."""
    for cuts in ([], list(range(len(data)))):
        frames, why = read(data, cuts, FromJail | ToJail)
        assert ("refused" if why else "frames" if frames else "waits") == kept, why


@pytest.mark.abuse_case("M10")
@given(mutated(), st.lists(st.integers(0, 400), max_size=12))
def test_a_mutated_stream_gives_frames_or_a_frame_error_for_every_split(data: bytes, cuts: list[int]) -> None:
    """Other exceptions do not occur; every split gives the same frames and reason; an accepted frame can be sent again."""
    for incoming in (FromJail, ToJail):
        frames, why = read(data, cuts, incoming)
        target(float(len(frames)), label=f"frames to {incoming is ToJail}")
        assert (frames, why) == read(data, [], incoming)
        assert why is None or (why.isprintable() and len(why) < 300)
        for frame in frames:
            again = b"".join(bytes(part) for part in encode(frame.message, frame.body or b""))
            assert read(again, [], incoming) == ([frame], None)


@given(st.binary(max_size=64), st.lists(st.integers(0, 64), max_size=4))
def test_arbitrary_bytes_give_frames_or_a_frame_error(data: bytes, cuts: list[int]) -> None:
    """The test above starts from valid frames, this one from any bytes."""
    assert read(data, cuts, FromJail) == read(data, [], FromJail)


ids = st.integers(1, 5)
REQUEST: Final = {"method": "GET", "url": "https://h/", "headers": []}


ANSWERS: Final = ("head", "opened", "chunk", "end", "refused", "upgraded", "message", "part", "close")


class Opinion:
    """Second model of the protocol, by tables: what is open, and which frames may follow now."""

    def __init__(self) -> None:
        self.over = False
        self.last = 0
        self.up: dict[int, str] = {}
        """State of each request's upload: `no` body to come, `waits` for tcp_opened or websocket_opened, or `open`."""
        self.down: dict[int, str] = {}
        """State of each request's answer: awaits `head`, `body` or `messages`."""
        self.kind: dict[int, str] = {}
        self.parts: dict[tuple[int, str], bool] = {}
        """True for text: the kind of the unfinished message, by request and direction."""
        self.cancelled: set[int] = set()

    def open(self) -> set[int]:
        """Return the ids that take one of MAX_IN_FLIGHT places."""
        return {number for number in self.kind if self.up[number] != "no" or number in self.down}

    def lets_jail(self, message: Message) -> bool:
        """Return whether the jail may send this message, and record its effect if it may."""
        if self.over:
            return False
        match message:
            case HttpRequest(id=number) | TcpOpen(id=number) | WebSocketOpen(id=number):
                if number <= self.last or len(self.open()) == MAX_IN_FLIGHT:
                    return False
                self.last = number
                self.kind[number] = type(message).__name__
                streams = isinstance(message, HttpRequest) and message.body == "stream"
                self.up[number] = "waits" if not isinstance(message, HttpRequest) else "open" if streams else "no"
                self.down[number] = "head"
            case Chunk(id=number, end=end):
                if self.up.get(number) != "open" or self.kind[number] == "WebSocketOpen":
                    return False
                if end:
                    self.up[number] = "no"
            case WebSocketMessage() | WebSocketClose():
                return self.lets_up(message)
            case Cancel(id=number):
                if number > self.last or (number in self.cancelled and number in self.open()):
                    return False
                if number in self.open():
                    self.cancelled.add(number)
                    self.up[number] = "no"
            case Result() | Failed():
                self.over = True
        return True

    def lets_up(self, message: WebSocketMessage | WebSocketClose) -> bool:
        """Return whether the jail may send this WebSocket frame, and record its effect if it may."""
        if self.up.get(message.id) != "open" or self.kind[message.id] != "WebSocketOpen":
            return False
        if isinstance(message, WebSocketClose):
            self.up[message.id] = "no"
            return True
        return self.lets_part(message, "up")

    def lets_part(self, part: WebSocketMessage, direction: str) -> bool:
        """Return whether the part fits the unfinished message: text with text, binary with binary."""
        key = part.id, direction
        if self.parts.get(key, part.text) != part.text:
            return False
        if part.more:
            self.parts[key] = part.text
        else:
            self.parts.pop(key, None)
        return True

    def lets_host(self, message: Message) -> bool:
        """Return whether the host may send this message, and record its effect if it may."""
        number = getattr(message, "id", 0)
        awaited = self.down.get(number)
        if self.over or awaited is None:
            return False
        match message:
            case HttpHead() | TcpOpened() | WebSocketOpened():
                fits: dict[str, tuple[type, ...]] = {
                    "HttpRequest": (HttpHead,),
                    "TcpOpen": (TcpOpened,),
                    "WebSocketOpen": (WebSocketOpened, HttpHead),
                }
                if awaited != "head" or not isinstance(message, fits[self.kind[number]]):
                    return False
                self.down[number] = "messages" if isinstance(message, WebSocketOpened) else "body"
                if self.up[number] == "waits" and not isinstance(message, HttpHead):
                    self.up[number] = "open"
            case WebSocketMessage():
                return awaited == "messages" and self.lets_part(message, "down")
            case WebSocketClose():
                if awaited != "messages":
                    return False
                del self.down[number]
            case Chunk(end=end):
                if awaited != "body":
                    return False
                if end:
                    del self.down[number]
            case Refused():
                del self.down[number]
        return True


class Session(RuleBasedStateMachine):
    """The host's session against the model: a hostile jail sends any frame at any time, and so does a confused host."""

    @initialize()
    def invoked(self) -> None:
        """Start the conversation with an invoke."""
        self.host, self.jail, self.opinion = HostSession(), JailSession(), Opinion()
        first = Invoke(protocol=1, op="x", args={}, hosts=[], invocation="i", deadline_ms=1)
        self.host.sending(first)
        self.jail.received(Frame(first, None))

    def _from_jail(self, message: Message) -> None:
        before = self.host.open_ids, self.host.is_over
        allowed = self.opinion.lets_jail(message)
        note(f"{message} {'may' if allowed else 'may not'}")
        try:
            self.host.received(Frame(message, b"" if may_have_body(message) else None))
        except ProtocolError:
            assert not allowed
            assert (self.host.open_ids, self.host.is_over) == before, "what is refused changes nothing"
        else:
            assert allowed

    def _to_jail(self, message: Message) -> None:
        allowed = self.opinion.lets_host(message)
        note(f"host: {message} {'may' if allowed else 'may not'}")
        try:
            self.host.sending(message)
        except ProtocolError:
            assert not allowed
        else:
            assert allowed

    @rule(number=ids, ahead=st.integers(0, 3), body=st.sampled_from(["none", "inline", "stream"]))
    def request(self, number: int, ahead: int, body: Any) -> None:
        """Request something with an id that may be new or not."""
        self._from_jail(HttpRequest(id=self.opinion.last + ahead if ahead else number, body=body, **REQUEST))  # type: ignore[arg-type]

    @rule(number=ids, ahead=st.integers(0, 3))
    def stream(self, number: int, ahead: int) -> None:
        """Open a stream of bytes."""
        self._from_jail(TcpOpen(id=self.opinion.last + ahead if ahead else number, host="h", port=25, tls=True))

    @rule(number=ids, ahead=st.integers(0, 3))
    def websocket(self, number: int, ahead: int) -> None:
        """Open a WebSocket."""
        self._from_jail(WebSocketOpen(id=self.opinion.last + ahead if ahead else number, url="wss://h/", headers=[]))

    @rule(back=st.integers(0, 4), text=st.booleans(), more=st.booleans(), closes=st.booleans())
    def message(self, back: int, text: bool, more: bool, closes: bool) -> None:
        """Send a message on one of the last ids, or close it."""
        number = max(1, self.opinion.last - back)
        self._from_jail(WebSocketClose(id=number) if closes else WebSocketMessage(id=number, text=text, more=more))

    @rule(count=st.integers(1, MAX_IN_FLIGHT))
    def many(self, count: int) -> None:
        """Send this many requests at once."""
        for _ in range(count):
            self._from_jail(HttpRequest(id=self.opinion.last + 1, body="none", **REQUEST))  # type: ignore[arg-type]

    @rule(back=st.integers(0, 4), end=st.booleans())
    def upload(self, back: int, end: bool) -> None:
        """Send a chunk for one of the last ids."""
        self._from_jail(Chunk(id=max(1, self.opinion.last - back), end=end))

    @rule(back=st.integers(-1, 4))
    def cancel(self, back: int) -> None:
        """Cancel one of the last ids, or one that does not exist."""
        self._from_jail(Cancel(id=max(1, self.opinion.last - back)))

    @rule()
    def say(self) -> None:
        """Send a log, which is allowed at any time before the end."""
        self._from_jail(Log(level="info", message="m"))

    @rule(back=st.integers(-1, 4), what=st.sampled_from(ANSWERS))
    def answer(self, back: int, what: str) -> None:
        """Answer one of the last ids as the host."""
        number = max(1, self.opinion.last - back)
        error = FrameFailure(failure_class="network_error", message="m")
        answers: dict[str, Message] = {
            "head": HttpHead(id=number, status=200, headers=[]),
            "opened": TcpOpened(id=number),
            "chunk": Chunk(id=number),
            "end": Chunk(id=number, end=True),
            "refused": Refused(id=number, error=error),
            "upgraded": WebSocketOpened(id=number, headers=[]),
            "message": WebSocketMessage(id=number),
            "part": WebSocketMessage(id=number, text=True, more=True),
            "close": WebSocketClose(id=number),
        }
        self._to_jail(answers[what])

    @rule(really=st.integers(0, 9), fails=st.booleans())
    def end(self, really: int, fails: bool) -> None:
        """End the conversation now and then: afterwards no frame is accepted."""
        if really == 0:
            self._from_jail(Failed(failure_class="x", message="m") if fails else Result(output=None))

    @invariant()
    def agree(self) -> None:
        """Check that session and model agree on the end and on the open ids."""
        if not hasattr(self, "host"):
            return
        assert self.host.is_over == self.opinion.over
        assert set(self.host.open_ids) == (set() if self.opinion.over else self.opinion.open())
        assert len(self.host.open_ids) <= MAX_IN_FLIGHT


@pytest.mark.abuse_case("M10")
def test_the_frame_session_agrees_with_a_second_model_of_the_protocol() -> None:
    """Thousands of conversations ignore the order of frames: each is accepted or refused as the model's tables say."""
    run_state_machine_as_test(Session)


test_the_frame_session_agrees_with_a_second_model_of_the_protocol.is_fuzzed = True  # type: ignore[attr-defined]
