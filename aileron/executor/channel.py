"""Frames over a child's two pipes, for an event loop.

Runs in the daemon; the other end is a jailed connector, trusted with nothing. Tries the system call first and waits only on
EAGAIN: a round trip then costs what the pipe costs. Bounds: one read is at most _READ_BYTES, a frame at most what the codec
allows, and a writer waits for the pipe, which is the back-pressure.

Not here: what a frame means (conversation.py), which may follow which (aileron_sandbox.frames.session).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import anyio

from aileron_sandbox.frames.codec import Decoder, Frame, encode
from aileron_sandbox.frames.messages import FromJail, ToJail

__all__ = ["FrameChannel"]

_READ_BYTES: Final = 256 << 10  # the pipe's size: one read empties it


class FrameChannel:
    """Send and receive frames. One task sends, one receives. The descriptors belong to the Child."""

    def __init__(self, frames_in: int, frames_out: int) -> None:
        self._frames_in = frames_in
        self._frames_out = frames_out
        self._decoder = Decoder(FromJail)

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
        while (frame := self._decoder.next_frame()) is None:
            try:
                data = os.read(self._frames_out, _READ_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._frames_out)
                continue
            if not data:
                return None
            self._decoder.feed(data)
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
