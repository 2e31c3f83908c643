"""Frames over a child's pipes share the daemon's event loop: no channel has it to itself."""

from __future__ import annotations

import contextlib
import os

import anyio
import anyio.lowlevel
import pytest

from aileron.executor.channel import FrameChannel, Share
from aileron_sandbox.frames import Progress, encode


def test_a_frame_channel_within_its_share_of_the_event_loop_never_waits() -> None:
    """The share is a quarter of the time, which neither 1 ms in every 10 nor an occasional burst of 4 ms exceeds."""
    share = Share(0.0)
    assert [share.pause_s(number / 100, 0.001) for number in range(1, 1000)] == [0.0] * 999
    assert [share.pause_s(10 + number, 0.004) for number in range(100)] == [0.0] * 100


@pytest.mark.parametrize("piece_s", [0.00005, 0.001, 0.08])
def test_a_busy_frame_channel_uses_about_a_quarter_of_the_event_loop(piece_s: float) -> None:
    """A channel that never pauses by itself gets a fifth to a quarter of the time, in small pieces or large ones."""
    share, now, spent = Share(0.0), 0.0, 0.0
    while spent < 1.0:
        now += piece_s
        spent += piece_s
        now += share.pause_s(now, piece_s)
    assert 0.19 < spent / now <= 0.27


def test_after_the_machine_was_suspended_a_frame_channel_waits_only_briefly() -> None:
    """Three seconds pass within one frame that needs none of them: the channel must not wait twelve seconds."""
    assert Share(0.0).pause_s(3.0, 3.0) <= 0.4


@pytest.mark.anyio
async def test_a_pipe_that_is_always_full_does_not_starve_other_tasks() -> None:
    """The writer always has another frame ready; other tasks of the event loop still run before it ends."""
    read, write = os.pipe()
    nothing_read, nothing_write = os.pipe()
    header, _ = encode(Progress(done=1))
    frames = bytes(header) * 3000
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    channel = FrameChannel(nothing_write, read)
    turns = 0
    try:
        async with anyio.create_task_group() as tasks:

            async def others() -> None:
                nonlocal turns
                while True:
                    await anyio.lowlevel.checkpoint()
                    turns += 1

            tasks.start_soon(others)
            view = memoryview(frames)
            for _ in range(3000):
                if view:
                    with contextlib.suppress(BlockingIOError):
                        view = view[os.write(write, view) :]
                assert await channel.receive() is not None
            tasks.cancel_scope.cancel()
    finally:
        for fd in (read, write, nothing_read, nothing_write):
            os.close(fd)
    assert turns > 10
