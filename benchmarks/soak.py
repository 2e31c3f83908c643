"""Check that invocations leave nothing behind: thousands of them, ending in every way, with counts before and after.

    python -m benchmarks.soak INVOCATIONS

It counts, for this process and all its descendants: processes, namespaces, mounts, descriptors, temporary files. The first round
is not counted: it fills the pool of children that are forked ahead. Each count must be the same after the last round as after
the first. Control groups are reused, and there are as many as there were children at once, so they must be gone with the
template. A namespace without a process shows in none of these counts: so all of it runs in a user namespace that may have
MOST_NAMESPACES of each kind, and if namespaces stayed behind, the next invocation would fail.
The growth of the template's memory, which would also show a leak, is printed as well.

The ways to end: a result, an exit, a traceback, a forbidden call, an attempt to reach a network, too much memory, killed while it
sleeps, closed before it is born. Eight run at once, as in a busy daemon.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from aileron_sandbox import kernel
from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from tests.support.zipped import zipped

__all__ = ["Counts", "Soaked", "soak"]

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
MOST_NAMESPACES: Final = 256
"""Most namespaces of each kind at once: ten are in use, and the kernel removes ended ones in the background, in batches."""
SETTLE_S: Final = 10.0
"""Seconds for the kernel to remove namespaces and groups, which go a moment after their last process."""


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts at one moment, compared for equality."""

    processes: int
    """Processes below this one: the template, its stub, and waiting children."""
    namespaces: int
    """Namespaces of all kinds, of the same processes."""
    mounts: int
    """Mounts of this process and of the template."""
    descriptors: int
    """Descriptors of this process and of the template."""
    files: int
    """Files in the directory for temporary files, which is this process's own."""


@dataclasses.dataclass(frozen=True)
class Soaked:
    """Result of a soak."""

    before: Counts
    """Counts after a first round."""
    after: Counts
    """Counts after all further invocations."""
    groups_left: int
    """Control groups that were left when all was closed."""
    seconds: float
    template_grew_kib: int
    """Growth of the template's resident memory in KiB."""

    @property
    def is_clean(self) -> bool:
        """True if nothing stayed behind."""
        return self.before == self.after and not self.groups_left


def soak(invocations: int) -> Soaked:
    """Run this many invocations and compare the counts.

    Call it in a process of its own with one thread: the process leaves its user and mount namespaces.
    """
    _bound_namespaces()
    with contextlib.ExitStack() as stack:
        os.environ["TMPDIR"] = tempfile.tempdir = stack.enter_context(tempfile.TemporaryDirectory())
        programs = [stack.enter_context(_program(source)) for source in ENDINGS.values()]
        template = stack.enter_context(Template.start(PythonRuntime.of_this_interpreter(), memory_by="groups"))
        for _ in range(ROUND // TOGETHER):
            _together(template, programs)
        before, memory_before = _settled(template), _memory_kib(template)
        began = time.monotonic()
        for _ in range(-(-invocations // TOGETHER)):
            _together(template, programs)
        seconds = time.monotonic() - began
        after = _settled(template, like=before)
        grown_kib = _memory_kib(template) - memory_before
    groups = list(Path("/sys/fs/cgroup").rglob(f"aileron-jails-{os.getpid()}-*"))
    return Soaked(before, after, len(groups), seconds, grown_kib)


def _together(template: Template, programs: list[int]) -> None:
    """Run a child for each way to end, at the same time. All have ended on return."""
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


def _bound_namespaces() -> None:
    uid, gid = os.getuid(), os.getgid()
    # The mounts are this process's own from here on: what others mount meanwhile is not counted.
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"1000 {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"1000 {gid} 1", encoding="ascii")
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        Path(f"/proc/sys/user/max_{kind}_namespaces").write_text(str(MOST_NAMESPACES), encoding="ascii")


def _settled(template: Template, like: Counts | None = None) -> Counts:
    """Return the counts once they equal `like`, or without `like` have not changed for a while; at the latest after SETTLE_S."""
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
    both = [os.getpid(), _template_itself(template)]
    everybody = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return Counts(
        processes=len(everybody),
        namespaces=len(_namespaces([process.pid for process in everybody])),
        mounts=sum(len(Path(f"/proc/{pid}/mountinfo").read_bytes().splitlines()) for pid in both),
        descriptors=sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in both if _is_readable(pid)),
        files=len(os.listdir(tempfile.gettempdir())),
    )


def _template_itself(template: Template) -> int:
    """Return the id of the template's process, which is a child of its stub."""
    pid: int = next(iter(psutil.Process(template.pid).children())).pid
    return pid


def _is_readable(pid: int) -> bool:
    """Return whether a process's descriptors can be listed: the template is not dumpable, so only root can list its."""
    return os.access(f"/proc/{pid}/fd", os.R_OK)


def _namespaces(pids: list[int]) -> set[str]:
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found |= {os.readlink(link) for link in Path(f"/proc/{pid}/ns").iterdir()}
    return found


def _memory_kib(template: Template) -> int:
    return int(psutil.Process(_template_itself(template)).memory_info().rss) >> 10


@contextlib.contextmanager
def _program(source: str) -> Iterator[int]:
    fd = os.memfd_create("soak", os.MFD_CLOEXEC)
    try:
        os.write(fd, zipped(source))
        yield fd
    finally:
        os.close(fd)


def main() -> int:
    """Run the soak, print and keep its result. Return 1 if anything was left behind, else 0."""
    invocations = int(sys.argv[1])
    print(f"{invocations} invocations, each way to end in turn", flush=True)
    soaked = soak(invocations)
    for name, count in dataclasses.asdict(soaked.before).items():
        print(f"  {name:<12} {count:>6} before {getattr(soaked.after, name):>6} after")
    print(f"  control groups left: {soaked.groups_left}")
    print(f"  {soaked.seconds:.0f} s; the template grew by {soaked.template_grew_kib} KiB")
    results = Path(__file__).resolve().parent / "results" / "soak.json"
    results.write_text(json.dumps({"invocations": invocations, **dataclasses.asdict(soaked)}) + "\n", encoding="utf-8")
    return 0 if soaked.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
