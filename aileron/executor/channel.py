"""Sending and receiving frames over a jailed child's two pipes, in an event loop.

Runs in the daemon; the other end is a jailed connector, trusted with nothing. The channel attempts the system call
first and waits only on EAGAIN, so a round trip costs no more than the pipe does. Its bounds: one read has at most
_READ_BYTES, a frame at most the size that the codec allows, and a writer waits for the pipe, which is the
back-pressure.

A child that always has another frame ready never makes `receive` wait, and would block the loop and its deadlines. So
the time of reading is counted (`Share`): beyond a quarter of the loop's time the reader sleeps, and the child's pipe
fills up.

Not here: the meaning of frames (conversation.py), their legal order (aileron_sandbox.frames.session).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Final

import anyio

from aileron_sandbox.frames.codec import Decoder, Frame, encode
from aileron_sandbox.frames.frame_messages import FromJail, ToJail

__all__ = ["FrameChannel", "Share"]

_READ_BYTES: Final = 256 << 10  # the pipe's size: one read empties it
_SHARE: Final = 0.25
"""Maximum fraction of the event loop's time for one connector's frames. Four connectors that send without pause leave
as much time for other work as one program that computes without pause.
"""
_AHEAD_S: Final = 0.005
"""Seconds of the loop's time that a connector can use before it must wait. 200 small frames in a row, or 50 MB in large
frames, do not exceed it.
"""
_MOST_S: Final = 0.1
"""Maximum number of seconds that are charged for one frame; the most expensive frame takes 0.08 s to decode. If more time
has passed, this process waited for a processor, and the connector must not be made to wait four times as long for that.
"""
_FRAME_S: Final = 20e-6
"""Seconds charged for a frame in addition to its decoding, for checking its order and acting on it (measured: 5 to 30 µs)."""


class Share:
    """A count of the event loop's time that one connector has used. Times are in seconds of one monotonic clock."""

    def __init__(self, now: float) -> None:
        self._owed = 0.0
        self._at = now

    def pause_s(self, now: float, spent_s: float) -> float:
        """Add `spent_s`, the seconds that the event loop spent on one frame of this connector. Return how many seconds to
        pause before its next frame; 0 while the connector does not exceed its share of the loop's time.
        """
        self._owed = max(0.0, self._owed - (now - self._at) * _SHARE) + min(spent_s, _MOST_S)
        self._at = now
        return 0.0 if self._owed <= _AHEAD_S else self._owed / _SHARE


class FrameChannel:
    """A channel for frames over the two pipes of a jailed child. One task sends, another receives. The Child owns the pipes."""

    def __init__(self, frames_in: int, frames_out: int) -> None:
        self._frames_in = frames_in
        self._frames_out = frames_out
        self._decoder = Decoder(FromJail)
        self._share = Share(time.monotonic())
        self._kept: Frame | None = None
        """A frame that was taken from the decoder and counted. It is stored here while the reader pauses, and
        afterwards if the pause was cancelled.
        """

    async def send(self, message: ToJail, body: bytes | memoryview = b"") -> None:
        """Write one complete frame. Raises BrokenPipeError if the child has closed its end.

        A cancelled send can leave half a frame in the pipe, so a task may be cancelled here only if the conversation
        ends with it.
        """
        header, payload = encode(message, body)
        parts: list[bytes | memoryview] = [header, payload] if len(payload) else [header]
        while parts:
            try:
                written = os.writev(self._frames_in, parts)
            except BlockingIOError:
                await anyio.wait_writable(self._frames_in)
                continue
            parts = _rest(parts, written)

    async def receive(self) -> Frame | None:
        """Return the next frame from the child, or None at the end of the stream. Raises FrameError for bytes that are
        not frames.
        """
        if self._kept is not None:
            return self._taken()
        spent_s = 0.0
        while True:
            began = time.monotonic()
            frame = self._decoder.next_frame()
            if frame is None:
                try:
                    data = os.read(self._frames_out, _READ_BYTES)
                except BlockingIOError:
                    await anyio.wait_readable(self._frames_out)
                    continue
                if not data:
                    return None
                self._decoder.feed(data)
            now = time.monotonic()
            spent_s += now - began
            if frame is not None:
                self._kept = frame
                if pause_s := self._share.pause_s(now, spent_s + _FRAME_S):
                    await anyio.sleep(pause_s)
                return self._taken()

    def rest(self) -> Frame | None:
        """Return a frame that has already arrived, or None. Call this only once the child has left and no more bytes
        can arrive. Raises FrameError for bytes that are not frames.
        """
        if self._kept is not None:
            return self._taken()
        while (frame := self._decoder.next_frame()) is None:
            try:
                data = os.read(self._frames_out, _READ_BYTES)
            except BlockingIOError:
                return None
            if not data:
                return None
            self._decoder.feed(data)
        return frame

    def _taken(self) -> Frame | None:
        frame, self._kept = self._kept, None
        return frame


def _rest(parts: Sequence[bytes | memoryview], written: int) -> list[bytes | memoryview]:
    rest: list[bytes | memoryview] = []
    for part in parts:
        if written >= len(part):
            written -= len(part)
        else:
            rest.append(memoryview(part)[written:])
            written = 0
    return rest
