"""Measure the cost of a fresh jail, against bubblewrap around the same interpreter running the same echo.

Four questions, each interleaved in one run:
- How long from asking for a jail until its first frame is here? (no goal of its own)
- How long from asking until every process of it is reaped? Goals: after a pause 0.075 of bubblewrap with Python, at once 0.09,
  and below bubblewrap with /bin/true.
- How many a second, sustained, with two or four callers, whichever is best for each side? Goal: at least 10 times.
- How much memory (proc_pid_smaps(5)) does a jail hold while it waits for its frame? Proportional (PSS) with eight that wait: goal
  at most 0.12; with fifty: no goal. Private and dirty, the cost of one more: goal at most 1.2 MB, whatever the peer's is.
- How many pages had to be found, made or copied for it by then (minor faults, proc_pid_stat(5))? No goal: each takes 0.5 to 2 µs.

The first two are asked twice, because the template prepares a child ahead of demand: after a pause of PAUSE_S, when one is
ready, and again at once, when none is. The pause is not measured, and the peer prepares nothing ahead that a pause could help.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil

from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from benchmarks import page
from benchmarks.jails import (
    AGAIN,
    DEADLINE_S,
    PAUSE_S,
    PAUSED,
    first_frame,
    paused_or_again,
    program,
    reaped,
)
from benchmarks.measure import (
    Goal,
    Measured,
    Question,
    Samples,
    Variant,
    answer,
    at_least,
    at_most,
    best_of,
    bytes_at_most,
    interleave,
)
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
from tests.support.zipped import zipped

ROUNDS = 200

RATE_ROUNDS = 8
_MINOR_FAULTS: Final = 7
"""Index of field 10 of proc_pid_stat(5), counted from the state, which is field 3."""
RATE_JAILS, RATE_PEERS = 200, 40
"""Invocations in one window of the sustained rate: about half a second of each."""

MEMORY_ROUNDS = 5
IDLE, MANY = 8, 50
"""Jails that wait at the same time while each is measured; the same number of peers."""
MANY_ROUNDS = 3
JAIL, SHARES = "a jail", "a jail, with its share of the template"
JAIL_DIRTY, JAIL_50 = "a jail, private dirty", f"a jail, one of {MANY}"
BWRAP_DIRTY, BWRAP_50 = f"{BWRAP_PYTHON}, private dirty", f"{BWRAP_PYTHON}, one of {MANY}"
_MEMORY: Final = (
    Question(f"idle: memory (PSS) of one of {IDLE}", JAIL, BWRAP_PYTHON, at_most(0.12)),
    Question(f"idle: memory (PSS) of one of {IDLE}, the template's included", SHARES, BWRAP_PYTHON),
    Question("idle: private dirty memory of one that waits", JAIL_DIRTY, BWRAP_DIRTY, bytes_at_most(1_200_000)),
    Question(f"idle: memory (PSS) of one of {MANY}", JAIL_50, BWRAP_50),
)


def main() -> None:
    """Measure and report."""
    runtime = PythonRuntime.of_this_interpreter(packages={"msgspec": MSGSPEC}, preload=("msgspec", "zipimport"))
    with Template.start(runtime) as template, contextlib.ExitStack() as programs:
        echo = programs.enter_context(program(zipped(ECHO.format(source=3, target=4))))
        waiting = programs.enter_context(program(zipped(waiting_echo(3, 4))))
        _measure_latency(template, echo)
        _measure_rate(template, echo)
        _measure_memory(template, waiting)


# How long


def _measure_latency(template: Template, echo: int) -> None:
    before = paused_or_again(template, echo)
    peers = {} if BWRAP_MISSING else {BWRAP_PYTHON: bwrap_first_frame}
    taken = interleave({**dict.fromkeys((PAUSED, AGAIN), first_frame(template, echo)), **peers}, ROUNDS, before=before)
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
    taken = interleave({**dict.fromkeys((PAUSED, AGAIN), reaped(template, echo)), **others}, ROUNDS, before=before)
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
    """Return a variant that measures invocations a second over one window."""

    def window() -> Measured:
        began = time.perf_counter()
        count = run(callers)
        return Measured([count / (time.perf_counter() - began)])

    return window


def _in_flight(template: Template, program: int) -> Callable[[int], int]:
    """Return a function that keeps as many jails running as there are callers, from one thread, as an event loop drives them."""

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
                # A child that was born and ended between two calls is reported twice
                for child in set(template.pump()):
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
    why = _memory_hidden(template, program)
    if why is not None:
        answer("jail-memory.json", {}, _MEMORY, "bytes", dict.fromkeys((JAIL, SHARES, JAIL_DIRTY, JAIL_50), why))
        return
    ours: dict[str, Variant] = {
        JAIL: _of_jails(template, program, IDLE, pss),
        SHARES: _with_shares(template, program),
        JAIL_DIRTY: _of_jails(template, program, IDLE, private_dirty),
    }
    theirs: dict[str, Variant] = {BWRAP_PYTHON: _of_peers(IDLE, pss), BWRAP_DIRTY: _of_peers(IDLE, private_dirty)}
    many: dict[str, Variant] = {JAIL_50: _of_jails(template, program, MANY, pss)}
    many_theirs: dict[str, Variant] = {BWRAP_50: _of_peers(MANY, pss)}
    taken: Samples = {
        **interleave({**ours, **({} if BWRAP_MISSING else theirs)}, MEMORY_ROUNDS, warm_ups=1),
        **interleave({**many, **({} if BWRAP_MISSING else many_theirs)}, MANY_ROUNDS, warm_ups=0),
    }
    answer("jail-memory.json", taken, _MEMORY, "bytes", _missing())
    _measure_faults(template, program)


def _measure_faults(template: Template, program: int) -> None:
    taken = interleave(
        {
            JAIL: _of_jails(template, program, IDLE, faults),
            **({} if BWRAP_MISSING else {BWRAP_PYTHON: _of_peers(IDLE, faults)}),
        },
        MEMORY_ROUNDS,
        warm_ups=1,
    )
    asked = [Question("idle: page faults of one that waits", JAIL, BWRAP_PYTHON)]
    answer("jail-faults.json", taken, asked, "count", _missing())


def _memory_hidden(template: Template, program: int) -> str | None:
    """Return why the memory of a jail cannot be read, or None if it can."""
    try:
        with _waiting_jails(template, program, 1) as children:
            pss(_process_of(children[0], template))
    except PermissionError:
        return "only root may look at the memory of a jail"
    return None


def _of_jails(template: Template, program: int, count: int, size: Callable[[int], int]) -> Callable[[], Measured]:
    """Return a variant that measures the size of each of `count` waiting jails."""

    def ours() -> Measured:
        with _waiting_jails(template, program, count) as children:
            return Measured(size(_process_of(child, template)) for child in children)

    return ours


def _with_shares(template: Template, program: int) -> Callable[[], Measured]:
    """Return a variant that measures the memory of all the template's processes, divided by the number of waiting jails."""

    def ours() -> Measured:
        with _waiting_jails(template, program, IDLE):
            return Measured([sum(map(pss, tree(template.pid))) / IDLE])

    return ours


def _of_peers(count: int, size: Callable[[int], int]) -> Callable[[], Measured]:
    """Return a variant that measures the size of each of `count` waiting peers, with all of its processes."""

    def theirs() -> Measured:
        with contextlib.ExitStack() as stack:
            waiting = [stack.enter_context(bwrap_waiting()) for _ in range(count)]
            return Measured(sum(map(size, tree(process.pid))) for process in waiting)

    return theirs


@contextlib.contextmanager
def _waiting_jails(template: Template, program: int, count: int) -> Iterator[list[Child]]:
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child.open(template, program, Policy())) for _ in range(count)]
        for child in children:
            assert read_some(child.frames_out, DEADLINE_S) == READY
        time.sleep(PAUSE_S)  # what the template prepares ahead is part of it
        yield children
        for child in children:
            os.write(child.frames_in, FRAME)
        for child in children:
            child.wait(DEADLINE_S)


def tree(pid: int) -> list[int]:
    """Return the id of the process and of all its descendants."""
    return [pid, *(process.pid for process in psutil.Process(pid).children(recursive=True))]


def _process_of(child: Child, template: Template) -> int:
    """Return the process that holds the other end of a child's pipe as descriptor 3. PermissionError unless root."""
    pipe = os.fstat(child.frames_in).st_ino
    for pid in tree(template.pid):
        with contextlib.suppress(FileNotFoundError):
            if os.stat(f"/proc/{pid}/fd/3").st_ino == pipe:
                return pid
    raise LookupError("no process reads the pipe of this child")


def pss(pid: int) -> int:
    """Return a process's proportional memory in bytes: private pages whole, shared ones divided by their number of users."""
    return _rolled_up(pid, "Pss")


def private_dirty(pid: int) -> int:
    """Return the bytes of unshared pages that a process has written to: the memory that one more of it takes."""
    return _rolled_up(pid, "Private_Dirty")


def faults(pid: int) -> int:
    """Return the number of pages that were found, made or copied on first touch since the process was forked."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return int(fields[_MINOR_FAULTS])


def _rolled_up(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) << 10
    raise LookupError(f"smaps_rollup has no {field}")


def _missing() -> dict[str, str]:
    return dict.fromkeys((BWRAP_PYTHON, BWRAP_TRUE, BWRAP_DIRTY, BWRAP_50), BWRAP_MISSING) if BWRAP_MISSING else {}


if __name__ == "__main__":
    main()
    page.write()
