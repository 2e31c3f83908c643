"""Measure what frames cost over the bytes they carry, against the same bytes behind a length, over the same kind of pipes.

A round trip goes to another process and back: there as a `chunk` frame with its body, through the codec and the session of
both ends, the far end being the connector's own loop (aileron_connector); or as raw bytes behind four bytes of length, read
into a buffer made beforehand. Goals: at most 1.25 for 64 B and 4 KiB, at most 1.2 for 1 MiB.

Small round trips depend on the scheduler: 9 µs or 50, depending on whether it put both ends on one core. So the benchmark places
them: on two cores, as a daemon and a connector would be (the goals are for that), and on one core, where only the processor's own
work is left. The near end is blocking, like the peer; a near end with an event loop, like the daemon's, is shown as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator

from aileron.executor.channel import FrameChannel
from aileron_connector.loop import Conversation
from aileron_sandbox.frames import (
    PROTOCOL_VERSION,
    Chunk,
    Decoder,
    Frame,
    FromJail,
    HostSession,
    HttpHead,
    HttpRequest,
    Invoke,
    Message,
    encode,
)
from aileron_sandbox.kernel import keep_freed_memory, use_one_malloc_arena
from benchmarks import page
from benchmarks.measure import Measured, Question, Variant, answer, at_most, interleave

SIZES = {"64 B": (64, 1.25, 50), "4 KiB": (4 << 10, 1.25, 50), "1 MiB": (1 << 20, 1.2, 10)}
"""Bytes of the body, the goal, and round trips in one turn."""
ROUNDS = 24
PIPE_BYTES = 256 << 10
"""Size of both sides' pipes, the same as the jail's."""
_READ_BYTES = 256 << 10
RAW, FRAMES, LOOP = "raw bytes behind a length", "frames", "frames, the daemon's event loop"


def main() -> None:
    """Measure and report."""
    keep_freed_memory()  # as the daemon does
    allowed = os.sched_getaffinity(0)
    near, far = min(allowed), max(allowed)
    try:
        os.sched_setaffinity(0, {near})
        for name, (size, goal, times) in SIZES.items():
            payload = os.urandom(size)
            apart, together = _measure(payload, times, far), _measure(payload, times, near)
            taken = {**apart, **{f"{variant}, one core": samples for variant, samples in together.items()}}
            asked = [
                Question(f"frame round trip, {name}", FRAMES, RAW, at_most(goal)),
                Question(f"frame round trip, {name}, the daemon's event loop", LOOP, RAW),
                Question(f"frame round trip, {name}, both ends on one core", f"{FRAMES}, one core", f"{RAW}, one core"),
            ]
            answer(f"frames-{size}.json", taken, asked)
    finally:
        os.sched_setaffinity(0, allowed)


def _measure(payload: bytes, times: int, core: int) -> dict[str, list[float]]:
    """Measure round trips to a far end on this core."""
    with (
        _far_end(_echo_raw, core) as (raw_in, raw_out),
        _far_end(_echo_frames, core) as (frames_in, frames_out),
        _far_end(_echo_frames, core) as (loop_in, loop_out),
        asyncio.Runner() as runner,
    ):
        variants: dict[str, Variant] = {
            RAW: _raw(raw_in, raw_out, payload, times),
            FRAMES: _blocking(frames_in, frames_out, payload, times),
            LOOP: _event_loop(loop_in, loop_out, payload, times, runner),
        }
        return interleave(variants, ROUNDS)


@contextlib.contextmanager
def _far_end(serve: Callable[[int, int], None], core: int) -> Iterator[tuple[int, int]]:
    """Run another process on `core`, forked while this one has a single thread. It ends when we close our end.

    Yield our descriptors.
    """
    theirs_in, ours_in = os.pipe2(os.O_CLOEXEC)
    ours_out, theirs_out = os.pipe2(os.O_CLOEXEC)
    for pipe in (ours_in, theirs_out):
        with contextlib.suppress(PermissionError):  # an ordinary user has a budget, pipe(7); then all pipes are small
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    pid = os.fork()
    if pid == 0:
        try:
            os.closerange(3, min(theirs_in, theirs_out))  # an earlier far end must see the end of its own pipe
            os.close(ours_in)
            os.close(ours_out)
            os.sched_setaffinity(0, {core})
            use_one_malloc_arena()  # as the template does
            keep_freed_memory()
            with contextlib.suppress(SystemExit):
                serve(theirs_in, theirs_out)
        finally:
            os._exit(0)
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield ours_in, ours_out
    finally:
        os.close(ours_in)
        os.close(ours_out)
        os.waitpid(pid, 0)


# Raw bytes


def _echo_raw(source: int, target: int) -> None:
    received = bytearray((1 << 20) + 4)
    while (count := _receive_raw(source, received)) > 0:
        _write(target, [memoryview(received)[:count]])


def _raw(ours_in: int, ours_out: int, payload: bytes, times: int) -> Variant:
    received = bytearray(len(payload) + 4)
    length = len(payload).to_bytes(4, "big")

    def turn() -> Measured:
        return Measured(_clocked(once) for _ in range(times))

    def once() -> None:
        _write(ours_in, [memoryview(length), memoryview(payload)])
        assert _receive_raw(ours_out, received) == len(received)

    return turn


def _receive_raw(source: int, received: bytearray) -> int:
    """Read a message with its length in front into `received`. Return its bytes with the length, 0 at the end."""
    view, have, whole = memoryview(received), 0, 4
    while have < whole:
        count = os.readv(source, [view[have:]])
        if count == 0:
            return 0
        have += count
        if have >= 4:
            whole = 4 + int.from_bytes(view[:4], "big")
    return have


def _write(target: int, parts: list[memoryview]) -> None:
    while parts:
        written = os.writev(target, parts)
        while parts and written >= len(parts[0]):
            written -= len(parts.pop(0))
        if parts:
            parts[0] = parts[0][written:]


# Frames


def _echo_frames(source: int, target: int) -> None:
    """Serve the connector's end through the SDK: send a streamed request, and send back its answer piece by piece."""
    conversation = Conversation(source, target)
    request = conversation.open("POST", "https://localhost/", [], None, None, is_streamed=True)
    conversation.next_answer(request)
    while True:
        conversation.send(Chunk(id=request), conversation.next_answer(request).body or b"")


_INVOKE = Invoke(protocol=PROTOCOL_VERSION, op="echo", args={}, hosts=[], invocation="benchmark", deadline_ms=60_000)


def _blocking(ours_in: int, ours_out: int, payload: bytes, times: int) -> Variant:
    session, decoder = HostSession(), Decoder(FromJail)

    def send(message: Message, body: bytes = b"") -> None:
        head, rest = encode(message, body)
        session.sending(message)
        _write(ours_in, [memoryview(head), memoryview(rest)] if body else [memoryview(head)])

    def receive() -> Frame:
        while (frame := decoder.next_frame()) is None:
            decoder.feed(os.read(ours_out, _READ_BYTES))
        session.received(frame)
        return frame

    def turn() -> Measured:
        return Measured(_clocked(once) for _ in range(times))

    def once() -> None:
        send(chunk, payload)
        assert len(receive().body or b"") == len(payload)

    send(_INVOKE)
    request = receive().message
    assert isinstance(request, HttpRequest)
    send(HttpHead(id=request.id, status=200, headers=[]))
    chunk = Chunk(id=request.id)
    return turn


def _event_loop(ours_in: int, ours_out: int, payload: bytes, times: int, runner: asyncio.Runner) -> Variant:
    os.set_blocking(ours_in, False)
    os.set_blocking(ours_out, False)
    session, channel = HostSession(), FrameChannel(ours_in, ours_out)

    async def begin() -> Chunk:
        session.sending(_INVOKE)
        await channel.send(_INVOKE)
        request = await receive()
        assert isinstance(request.message, HttpRequest)
        head = HttpHead(id=request.message.id, status=200, headers=[])
        session.sending(head)
        await channel.send(head)
        return Chunk(id=request.message.id)

    async def receive() -> Frame:
        frame = await channel.receive()
        assert frame is not None
        session.received(frame)
        return frame

    async def turn() -> Measured:
        taken = []
        for _ in range(times):
            began = time.perf_counter()
            session.sending(chunk)
            await channel.send(chunk, payload)
            assert len((await receive()).body or b"") == len(payload)
            taken.append(time.perf_counter() - began)
        return Measured(taken)

    chunk = runner.run(begin())
    return lambda: runner.run(turn())


def _clocked(once: Callable[[], None]) -> float:
    began = time.perf_counter()
    once()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
    page.write()
