"""A daemon whose clock is wrong: `time.time` is off by `offset_s` from before its first import, and everything else is real.

    with skewed_daemon(home, -86400.0):
        ...                                   # whoever asks in this home is answered by it

It does not use libfaketime, which also replaces `clock_nanosleep(2)` when preloaded: with a moment that has passed that fails
with EINVAL, as `time.sleep` of Python 3.11 finds on a machine under load. The clock of C code stays real here: certificates are
checked by it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["skewed_daemon"]

_END_S: Final = 15.0


@contextlib.contextmanager
def skewed_daemon(home: Path, offset_s: float) -> Iterator[None]:
    """Run a daemon for `home`, by a clock that is ahead by `offset_s`."""
    ready, told = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.skewed_daemon", str(home), str(told), str(offset_s)],
        pass_fds=[told],
        cwd=Path(__file__).resolve().parents[2],
        stdin=subprocess.DEVNULL,
    ) as process:
        os.close(told)
        try:
            with open(ready, "rb") as pipe:
                assert pipe.read() == b"ready"
            yield
        finally:
            process.terminate()
            process.wait(_END_S)


def _skew(offset_s: float) -> None:
    clock, clock_ns = time.time, time.time_ns
    time.time = lambda: clock() + offset_s
    time.time_ns = lambda: clock_ns() + int(offset_s * 1e9)


if __name__ == "__main__":
    _skew(float(sys.argv[3]))
    from aileron.daemon.__main__ import main

    sys.exit(main(sys.argv[1:3]))
