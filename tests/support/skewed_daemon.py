"""A daemon whose clock is wrong: `time.time` is off by so many seconds from before its first import, and everything else is real.

    with skewed_daemon(home, -86400.0):
        ...                                   # whoever asks in this home is answered by it

Not libfaketime: preloaded, it also takes `clock_nanosleep(2)`, and with a moment that has passed that fails with EINVAL, which
`time.sleep` of Python 3.11 runs into on a machine under load. What it would fake besides is the clock of C code: certificates are
checked by the real one here.
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
    """Run one for `home`, by a clock that is ahead by `offset_s`."""
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
