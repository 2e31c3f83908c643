"""Run all benchmarks, one after the other, then print the table: `python -m benchmarks [NAME…]`; `--page` measures nothing.

Each runs in a process of its own, so that one that fails, hangs or grows does not touch the next. It has DEADLINE_S; then it is
interrupted, as by Ctrl-C, so that it ends what it started, and killed only if that takes longer than END_S. A benchmark that
failed is named at the end and makes the exit code 1; a goal that is missed does not: it is a finding, not a fault.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from benchmarks import page
from benchmarks.measure import RESULTS

BENCHMARKS: Final = (
    "start",
    "jail",
    "peers",
    "frames",
    "run",
    "noise",
    "flood",
    "egress",
    "logins",
    "gateway",
    "client",
    "relay",
    "cell",
    "console",
    "decisions",
    "ledger",
    "load",
)
DEADLINE_S: Final = 1200.0
"""Seconds for one benchmark: `start` waits 750 s for what ends by itself, and takes 900; the longest of the others takes 240."""
END_S: Final = 30.0


def main(words: Sequence[str]) -> int:
    """Run the named benchmarks, or all. Return 0, 1 if a benchmark failed, or 2 if a name is unknown."""
    if list(words) == ["--page"]:
        page.write()
        print(page.summary(RESULTS))
        return 0
    unknown = set(words) - set(BENCHMARKS)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    # An installed package is compiled; uncompiled, what is measured is mostly the compiler.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.monotonic()
    failed = [name for name in words or BENCHMARKS if not _has_run(name)]
    page.write()
    print(f"\n{page.summary(RESULTS)}\n\n{time.monotonic() - began:.0f} s in all")
    for name in failed:
        print(f"FAILED: {name} (its rows above, if any, are of an earlier run)", file=sys.stderr)
    return 1 if failed else 0


def _has_run(name: str) -> bool:
    print(f"\n{name}", flush=True)
    began = time.monotonic()
    # A shell's background job, and so this one, may have been told to ignore SIGINT.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{listen}; from benchmarks.bench_{name} import main; main()"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            print(f"{name}: not done after {DEADLINE_S:.0f} s", file=sys.stderr)
            process.send_signal(signal.SIGINT)
            _wait_or_kill(process)
        except KeyboardInterrupt:  # the terminal has told it too
            _wait_or_kill(process)
            raise
    print(f"  {time.monotonic() - began:.0f} s", flush=True)
    return process.returncode == 0


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
