"""Frames over a child's two pipes, for an event loop.

Runs in the daemon; the other end is a jailed connector, trusted with nothing. Tries the system call first and waits only on
EAGAIN: a round trip then costs what the pipe costs. Bounds: one read is at most _READ_BYTES, a frame at most what the codec
allows, and a writer waits for the pipe, which is the back-pressure.

A child that always has another frame ready never makes `receive` wait, and the loop, its deadlines too, would belong to it
alone. So reading is paid for (`Share`): past a quarter of the time the reader sleeps, and the child meets a full pipe.

Not here: what a frame means (conversation.py), which may follow which (aileron_sandbox.frames.session).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Final

import anyio

from aileron_sandbox.frames.codec import Decoder, Frame, encode
from aileron_sandbox.frames.messages import FromJail, ToJail

__all__ = ["FrameChannel", "Share"]

_READ_BYTES: Final = 256 << 10  # the pipe's size: one read empties it
_SHARE: Final = 0.25
"""Of the loop's time for one connector's frames: four that flood leave as much as one that computes would."""
_AHEAD_S: Final = 0.005
"""Spent before anybody is made to wait: 200 small frames in a row, or 50 MB in large ones, are no flood."""
_MOST_S: Final = 0.1
"""The most that one frame is charged, in seconds: the dearest takes 0.08 s to decode. Where the clock says more, this process had
to wait for a processor meanwhile, and the connector is not made to wait four times as long for that.
"""
_FRAME_S: Final = 20e-6
"""What a frame costs beside its decoding: the session, and what is done about it (measured: 5 to 30 µs)."""


class Share:
    """How much of the loop's time one connector may have spent; times in seconds of one monotonic clock."""

    def __init__(self, now: float) -> None:
        self._owed = 0.0
        self._at = now

    def pause_s(self, now: float, spent_s: float) -> float:
        """Note that `spent_s` more were spent, on one frame; how long to do nothing now. 0 for whoever keeps to the share."""
        self._owed = max(0.0, self._owed - (now - self._at) * _SHARE) + min(spent_s, _MOST_S)
        self._at = now
        return 0.0 if self._owed <= _AHEAD_S else self._owed / _SHARE


class FrameChannel:
    """Send and receive frames. One task sends, one receives. The descriptors belong to the Child."""

    def __init__(self, frames_in: int, frames_out: int) -> None:
        self._frames_in = frames_in
        self._frames_out = frames_out
        self._decoder = Decoder(FromJail)
        self._share = Share(time.monotonic())
        self._kept: Frame | None = None
        """Taken from the decoder and paid for, while its reader is made to wait, and after that if they were cancelled then."""

    async def send(self, message: ToJail, body: bytes | memoryview = b"") -> None:
        """Write one frame whole. BrokenPipeError when the child has closed its end.

        Cancelled half way, the stream is torn: only for a task that ends with the conversation.
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
        """The next frame, or None at the end of the stream. FrameError for bytes that are not frames."""
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
        """A frame that is here already, where the child has left and sends nothing more. FrameError as `receive`."""
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
