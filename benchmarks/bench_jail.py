"""What does a fresh jail cost? Against bubblewrap around the same interpreter running the same echo.

Four questions, each interleaved in one run:
- How long from asking for a jail until its first frame is here? (no goal of its own)
- How long from asking until every process of it is reaped? Goals: after a pause 0.075 of bubblewrap with Python, at once 0.09,
  and below bubblewrap with /bin/true.
- How many a second, sustained, with two or four callers, whichever is best for each side? Goal: at least 10 times.
- How much memory (PSS, proc_pid_smaps(5)) does one hold that waits for its frame? Goal: at most 0.12.

The first two are asked twice, because the template prepares a child ahead of demand: after a pause of PAUSE_S, when one is
ready, and again at once, when none is. The pause is not measured, and the peer has none to profit from.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from benchmarks import page
from benchmarks.measure import Goal, Measured, Question, Samples, answer, at_least, at_most, best_of, interleave
from benchmarks.peers import (
    BWRAP_MISSING,
    BWRAP_PYTHON,
    BWRAP_TRUE,
    CALLERS,
    ECHO,
    FRAME,
    MSGSPEC,
    READY,
    bwrap_echo,
    bwrap_echoes,
    bwrap_first_frame,
    bwrap_true,
    bwrap_waiting,
    read_some,
    waiting_echo,
)

ROUNDS = 200
PAUSE_S = 0.02
"""Preparing a child takes the template some 3 ms; this is enough on a machine that is busy besides."""
DEADLINE_S = 30.0

RATE_ROUNDS = 8
RATE_JAILS, RATE_PEERS = 200, 40
"""Invocations in one window of the sustained rate: about half a second of each."""

MEMORY_ROUNDS = 5
IDLE = 8
"""Jails that wait at the same moment while one is looked at; the same number of peers."""

PAUSED, AGAIN = "jail, after a pause", "jail, again at once"


def main() -> None:
    """Measure and report."""
    runtime = PythonRuntime.of_this_interpreter(packages={"msgspec": MSGSPEC}, preload=("msgspec", "zipimport"))
    with Template.start(runtime) as template, contextlib.ExitStack() as programs:
        echo = programs.enter_context(_program(ECHO.format(source=3, target=4)))
        waiting = programs.enter_context(_program(waiting_echo(3, 4)))
        _measure_latency(template, echo)
        _measure_rate(template, echo)
        _measure_memory(template, waiting)


@contextlib.contextmanager
def _program(source: str) -> Iterator[int]:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("__main__.py", source)
    fd = os.memfd_create("echo", os.MFD_CLOEXEC)
    try:
        os.write(fd, data.getvalue())
        yield fd
    finally:
        os.close(fd)


# How long


def _measure_latency(template: Template, program: int) -> None:
    def reaped() -> None:
        with Child.open(template, program, Policy()) as child:
            os.write(child.frames_in, FRAME)
            child.wait(DEADLINE_S)
            assert os.read(child.frames_out, 65536) == FRAME

    def first_frame() -> Measured:
        began = time.perf_counter()
        with Child.open(template, program, Policy()) as child:
            os.write(child.frames_in, FRAME)
            assert read_some(child.frames_out, DEADLINE_S) == FRAME
            seconds = time.perf_counter() - began
            child.wait(DEADLINE_S)
        return Measured([seconds])

    def pause() -> None:
        time.sleep(PAUSE_S)

    before = {PAUSED: pause, AGAIN: reaped}
    peers = {} if BWRAP_MISSING else {BWRAP_PYTHON: bwrap_first_frame}
    taken = interleave({PAUSED: first_frame, AGAIN: first_frame, **peers}, ROUNDS, before=before)
    answer(
        "jail-first-frame.json",
        taken,
        [
            Question("jail: request to first frame, after a pause", PAUSED, BWRAP_PYTHON),
            Question("jail: request to first frame, again at once", AGAIN, BWRAP_PYTHON),
        ],
        missing=_missing(),
    )
    others = {} if BWRAP_MISSING else {BWRAP_PYTHON: bwrap_echo, BWRAP_TRUE: bwrap_true}
    taken = interleave({PAUSED: reaped, AGAIN: reaped, **others}, ROUNDS, before=before)
    answer(
        "jail-reaped.json",
        taken,
        [
            Question("jail: request to reaped, after a pause", PAUSED, BWRAP_PYTHON, at_most(0.075)),
            Question("jail: request to reaped, again at once", AGAIN, BWRAP_PYTHON, at_most(0.09)),
            Question("jail: request to reaped, after a pause", PAUSED, BWRAP_TRUE, Goal("below", 1.0)),
            Question("jail: request to reaped, again at once", AGAIN, BWRAP_TRUE, Goal("below", 1.0)),
        ],
        missing=_missing(),
    )


# How many


def _measure_rate(template: Template, program: int) -> None:
    ours = {f"jail, {callers} callers": _rate(callers, _in_flight(template, program)) for callers in CALLERS}
    theirs = {
        f"{BWRAP_PYTHON}, {callers} callers": _rate(callers, lambda callers: bwrap_echoes(callers, RATE_PEERS))
        for callers in CALLERS
    }
    taken = interleave({**ours, **({} if BWRAP_MISSING else theirs)}, RATE_ROUNDS, warm_ups=1)
    peer = next(iter(theirs)) if BWRAP_MISSING else best_of(taken, list(theirs), "per s")
    question = Question(
        "jail: invocations a second, sustained", best_of(taken, list(ours), "per s"), peer, at_least(10)
    )
    answer("jail-rate.json", taken, [question], "per s", dict.fromkeys(theirs, BWRAP_MISSING or ""))


def _rate(callers: int, run: Callable[[int], int]) -> Callable[[], Measured]:
    """Invocations a second over one window."""

    def window() -> Measured:
        began = time.perf_counter()
        count = run(callers)
        return Measured([count / (time.perf_counter() - began)])

    return window


def _in_flight(template: Template, program: int) -> Callable[[int], int]:
    """As many jails at once as there are callers, all of one thread: the way an event loop drives them."""

    def run(callers: int) -> int:
        running: set[Child] = set()
        left = RATE_JAILS
        try:
            while left or running:
                while left and len(running) < callers:
                    child = Child.open(template, program, Policy())
                    running.add(child)
                    os.write(child.frames_in, FRAME)
                    left -= 1
                if not select.select([template], [], [], DEADLINE_S)[0]:
                    raise TimeoutError(f"no jail ended for {DEADLINE_S} s")
                for child in set(template.pump()):  # born and ended between two looks, it is told twice
                    if child.ending is not None:
                        assert os.read(child.frames_out, 65536) == FRAME
                        running.discard(child)
                        child.close()
        finally:
            for child in running:
                child.close()
        return RATE_JAILS

    return run


# How much memory


def _measure_memory(template: Template, program: int) -> None:
    jail, shares = "a jail", "a jail, with its share of the template"
    question = "idle: memory (PSS) of one of 8"
    asked = [
        Question(question, jail, BWRAP_PYTHON, at_most(0.12)),
        Question(f"{question}, the template's included", shares, BWRAP_PYTHON),
    ]
    try:
        with _waiting_jails(template, program) as children:
            _pss(_process_of(children[0], template))
    except PermissionError:
        why = dict.fromkeys((jail, shares), "only root may look at the memory of a jail")
        answer("jail-memory.json", {}, asked, "bytes", why)
        return

    def ours() -> Measured:
        with _waiting_jails(template, program) as children:
            return Measured(_pss(_process_of(child, template)) for child in children)

    def with_shares() -> Measured:
        with _waiting_jails(template, program):
            return Measured([sum(map(_pss, _tree(template.pid))) / IDLE])

    def theirs() -> Measured:
        with contextlib.ExitStack() as stack:
            waiting = [stack.enter_context(bwrap_waiting()) for _ in range(IDLE)]
            return Measured(sum(map(_pss, _tree(process.pid))) for process in waiting)

    peers = {} if BWRAP_MISSING else {BWRAP_PYTHON: theirs}
    taken: Samples = interleave({jail: ours, shares: with_shares, **peers}, MEMORY_ROUNDS, warm_ups=1)
    answer("jail-memory.json", taken, asked, "bytes", _missing())


@contextlib.contextmanager
def _waiting_jails(template: Template, program: int) -> Iterator[list[Child]]:
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child.open(template, program, Policy())) for _ in range(IDLE)]
        for child in children:
            assert read_some(child.frames_out, DEADLINE_S) == READY
        time.sleep(PAUSE_S)  # what the template prepares ahead is part of it
        yield children
        for child in children:
            os.write(child.frames_in, FRAME)
        for child in children:
            child.wait(DEADLINE_S)


def _tree(pid: int) -> list[int]:
    return [pid, *(process.pid for process in psutil.Process(pid).children(recursive=True))]


def _process_of(child: Child, template: Template) -> int:
    """The process that holds the other end of a child's pipe as descriptor 3. PermissionError unless root."""
    pipe = os.fstat(child.frames_in).st_ino
    for pid in _tree(template.pid):
        with contextlib.suppress(FileNotFoundError):
            if os.stat(f"/proc/{pid}/fd/3").st_ino == pipe:
                return pid
    raise LookupError("no process reads the pipe of this child")


def _pss(pid: int) -> int:
    """Bytes: private pages whole, shared ones divided by those who share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    raise LookupError("smaps_rollup has no Pss")


def _missing() -> dict[str, str]:
    return dict.fromkeys((BWRAP_PYTHON, BWRAP_TRUE), BWRAP_MISSING) if BWRAP_MISSING else {}


if __name__ == "__main__":
    main()
    page.write()
