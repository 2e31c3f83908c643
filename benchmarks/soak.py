"""Does anything stay behind? Thousands of invocations, in every way they can end, and what the machine holds before and after.

    python -m benchmarks.soak INVOCATIONS

Counted on the host and in the template: processes, namespaces, mounts, descriptors, control groups, and the files of the
directories in which something could be left. The first round is not counted: it is what fills the pools (control groups that are
used again, children that are forked ahead). Each count must be the same after the last round as after the first; memory of the
template, which a leak would show in too, is printed beside.

The ways to end: a result, an exit, a traceback, a forbidden call, an attempt to reach a network, too much memory, killed while it
sleeps, closed before it is born. Eight at once, as a busy daemon has them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import json
import os
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime

__all__ = ["Counts", "soak"]

ENDINGS: Final = {
    "result": "import os\nos.write(4, b'done')\n",
    "exit": "raise SystemExit(3)\n",
    "traceback": "raise ValueError\n",
    "forbidden call": "import ctypes, os\nctypes.CDLL(None).ptrace(0, 0, 0, 0)\n",
    "network": "import socket\nsocket.socket().connect(('93.184.216.34', 443))\n",
    "memory": "bytearray(1 << 30)\n",
    "killed": "import time\nopen('/tmp/x', 'wb').write(bytes(1 << 16))\ntime.sleep(3600)\n",
    "closed at once": "import time\ntime.sleep(3600)\n",
}
TOGETHER: Final = len(ENDINGS)
ROUND: Final = 8 * TOGETHER
DEADLINE_S: Final = 30.0
SETTLE_S: Final = 10.0
"""For what the kernel takes apart behind the scenes: namespaces and groups go a moment after their last process."""


@dataclasses.dataclass(frozen=True)
class Counts:
    """What is there at one moment. Equal counts are the whole point."""

    processes: int
    """Below this process: the template, its stub, and those that wait."""
    namespaces: int
    """Of all kinds, on the whole machine as far as this user can see."""
    mounts: int
    """Of this process and of the template."""
    descriptors: int
    """Of this process and of the template."""
    groups: int
    """Control groups on the machine."""
    files: int
    """In /tmp, /dev/shm and the working directory."""


def soak(invocations: int) -> tuple[Counts, Counts, float, int]:
    """Counts after a first round and after so many invocations more, seconds, and the growth of the template in KiB (RSS)."""
    with contextlib.ExitStack() as stack:
        programs = [stack.enter_context(_program(source)) for source in ENDINGS.values()]
        template = stack.enter_context(Template.start(PythonRuntime.of_this_interpreter()))
        for _ in range(ROUND // TOGETHER):
            _together(template, programs)
        before, memory_before = _settled(template), _memory_kib(template)
        began = time.monotonic()
        for _ in range(-(-invocations // TOGETHER)):
            _together(template, programs)
        seconds = time.monotonic() - began
        after = _settled(template, like=before)
        return before, after, seconds, _memory_kib(template) - memory_before


def _together(template: Template, programs: list[int]) -> None:
    """One child for each way to end, at the same time; all have ended when this returns."""
    with contextlib.ExitStack() as stack:
        children: list[Child] = []
        for name, program in zip(ENDINGS, programs, strict=True):
            child = Child.open(template, program, Policy())
            if name == "closed at once":
                child.close()
            else:
                children.append(stack.enter_context(child))
        for name, child in zip(ENDINGS, children, strict=False):
            if name == "killed":
                child.kill()
            child.wait(DEADLINE_S)


def _settled(template: Template, like: Counts | None = None) -> Counts:
    """Once the counts are `like` that, or have not changed for a while; as they are after SETTLE_S."""
    until = time.monotonic() + SETTLE_S
    counts, same = _counts(template), 0
    while time.monotonic() < until and counts != like and same < 20:
        time.sleep(0.02)
        template.pump()
        gc.collect()
        now = _counts(template)
        same = same + 1 if now == counts and like is None else 0
        counts = now
    return counts


def _counts(template: Template) -> Counts:
    inside = _template_itself(template)
    both = [os.getpid(), inside]
    return Counts(
        processes=len(psutil.Process().children(recursive=True)),
        namespaces=len(_namespaces()),
        mounts=sum(len(Path(f"/proc/{pid}/mountinfo").read_bytes().splitlines()) for pid in both),
        descriptors=sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in both if _is_readable(pid)),
        groups=sum(1 for _ in Path("/sys/fs/cgroup").rglob("aileron-jails-*/*/")),
        files=sum(len(os.listdir(place)) for place in ("/tmp", "/dev/shm", ".") if os.path.isdir(place)),
    )


def _template_itself(template: Template) -> int:
    """Below its stub."""
    return next(iter(psutil.Process(template.pid).children())).pid


def _is_readable(pid: int) -> bool:
    """The template is not dumpable: only root can look at its descriptors."""
    return os.access(f"/proc/{pid}/fd", os.R_OK)


def _namespaces() -> set[str]:
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                found |= {os.readlink(link) for link in (process / "ns").iterdir()}
    return found


def _memory_kib(template: Template) -> int:
    return int(psutil.Process(_template_itself(template)).memory_info().rss) >> 10


@contextlib.contextmanager
def _program(source: str) -> Iterator[int]:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("__main__.py", source)
    fd = os.memfd_create("soak", os.MFD_CLOEXEC)
    try:
        os.write(fd, data.getvalue())
        yield fd
    finally:
        os.close(fd)


def main() -> int:
    """Print and keep what came of it; 1 if anything was left behind."""
    invocations = int(sys.argv[1])
    print(f"{invocations} invocations, each way to end in turn", flush=True)
    before, after, seconds, grown_kib = soak(invocations)
    for name, count in dataclasses.asdict(before).items():
        print(f"  {name:<12} {count:>6} before {getattr(after, name):>6} after")
    print(f"  {seconds:.0f} s; the template grew by {grown_kib} KiB")
    found = {
        "invocations": invocations,
        "before": dataclasses.asdict(before),
        "after": dataclasses.asdict(after),
        "seconds": round(seconds, 1),
        "template_grew_kib": grown_kib,
    }
    results = Path(__file__).resolve().parent / "results" / "soak.json"
    results.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return 0 if before == after else 1


if __name__ == "__main__":
    sys.exit(main())
