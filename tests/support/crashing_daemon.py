"""A real daemon that kills itself with SIGKILL at one chosen moment of a run: `python -m tests.support.crashing_daemon …`.

Arguments: HOME READY_FD POINT N. POINT is one of `POINTS`; the process dies at the N-th time it is passed, counted from the
first request to the spine on. Wrapped from outside, so that the product has no hook for it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from aileron.config import Home
from aileron.daemon.supervise import supervise
from aileron.executor.channel import FrameChannel
from aileron.ledger.sqlite import Ledger
from aileron.runs.perform import Spine

POINTS = ("before_commit", "after_commit", "before_send", "after_send", "after_receive")


class _Fuse:
    """Counts down once armed, then kills the process: no cleanup, no flush."""

    def __init__(self, point: str, count: int) -> None:
        self._point = point
        self._left = count
        self.armed = False

    def passes(self, point: str) -> None:
        if self.armed and point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _wrap(fuse: _Fuse) -> None:
    commit, send, receive, request = Ledger.commit, FrameChannel.send, FrameChannel.receive, Spine.request

    async def crashing_commit(self: Ledger, work: Any) -> Any:
        fuse.passes("before_commit")
        done = await commit(self, work)
        fuse.passes("after_commit")
        return done

    async def crashing_send(self: FrameChannel, *arguments: Any) -> None:
        fuse.passes("before_send")
        await send(self, *arguments)
        fuse.passes("after_send")

    async def crashing_receive(self: FrameChannel) -> Any:
        frame = await receive(self)
        fuse.passes("after_receive")
        return frame

    async def arming_request(self: Spine, *arguments: Any) -> Any:
        fuse.armed = True
        return await request(self, *arguments)

    Ledger.commit = crashing_commit  # type: ignore[method-assign]
    FrameChannel.send = crashing_send  # type: ignore[method-assign]
    FrameChannel.receive = crashing_receive  # type: ignore[method-assign]
    Spine.request = arming_request  # type: ignore[method-assign]


if __name__ == "__main__":
    home, ready, point, count = sys.argv[1:5]
    _wrap(_Fuse(point, int(count)))

    def tell(word: str) -> None:
        """As aileron.daemon.__main__ does."""
        os.write(int(ready), word.encode())
        os.close(int(ready))

    sys.exit(supervise(Home(Path(home)), tell))
