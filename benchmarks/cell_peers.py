"""Comparison of a cell with other sandboxes for agents: `python -m benchmarks.cell_peers` measures, `--page` rewrites the page.

The attempts are those of tests/attacks/cell, made by the same program under each sandbox (cell_sandboxes.py), and under none as a
control. Each is started at a controlling terminal of its own, as an agent is. Also measured: two things in the project that a
cell allows and others do not, which traffic reaches a listed host, whether output to the terminal arrives as it was written,
and how long it takes until the first line of a shell script has run.

    tried = attempts(house, SANDBOXES)      # answers by sandbox and attempt
    verdict("EACCES")                       # "refused"; the words of the page

Rules
- It runs as an ordinary user, because ordinary users start agents: for root, most of these sandboxes behave differently.
- Starts take turns, and are compared as ratios. The two libraries start a program in the calling process, as they document it,
  and need no interpreter; nono-py returns the output only when the program has ended, which costs it a few hundred microseconds.
- A sandbox that is not installed is left out, with the way to install it, and so is one that does not start here, with its error.

Not here: what a peer does not do (the page, with its sources).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import pty
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from benchmarks import cell_library
from benchmarks.cell_sandboxes import BARE, SANDBOXES, Place, Sandbox
from benchmarks.measure import RESULTS, Measured, interleave
from tests.attacks.cell.household import IN_A_HOME_OF_ITS_OWN, NOT_THERE, REFUSED, Household, household
from tests.support.home import DaemonHome, daemon_home

__all__ = [
    "BEGIN",
    "END",
    "FILE",
    "PAGE",
    "ListedHost",
    "NotStarted",
    "attempts",
    "block",
    "in_the_project",
    "verdict",
    "way_out",
]

FILE: Final = "cell-peers.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "explanation" / "cell-and-other-sandboxes.md"
BEGIN: Final = "<!-- results: written by `python -m benchmarks.cell_peers`, do not edit -->"
END: Final = "<!-- end of results -->"
_FOLDER: Final = Path(os.environ.get("AILERON_BENCH_DIR", "/var/tmp"))
"""Folder of the household. It is not /tmp, because some sandboxes let a program write anything there."""
_ROUNDS: Final = 20
_DEADLINE_S: Final = 60.0
_READ_BYTES: Final = 65536
_SHORT_S: Final = 0.01
"""Seconds of a start below which a rounded millisecond would hide a difference."""
_IN_THE_PROJECT: Final = Path(__file__).parents[1] / "tests" / "attacks" / "cell" / "in_the_project.py"
_WAY_OUT: Final = _IN_THE_PROJECT.with_name("way_out.py")
_MARKS: Final = {
    "reach a host that is listed": b"localhost",
    "name another host in TLS": b"elsewhere.example",
    "speak to it without TLS": b"no TLS at all",
    "reach a host that is not listed": b"unlisted.example",
}
"""Bytes that the host has received if an attempt of way_out.py arrived, by attempt."""
_AT_A_TERMINAL: Final = ["setsid", "--ctty", "--wait"]
_CLIPBOARD: Final = b"\x1b]52;c;YQ==\x07"
_AFTER: Final = b"after it"
_POSSIBLE, _REFUSED, _NO_OBJECT, _NO_EFFECT = "possible", "refused", "no object", "no effect"
_NOT_ARRIVED: Final = "it did not arrive"
_IN_VAIN: Final = "ok, in a home that nobody else sees"
_CLIPBOARD_SHOWN: Final = {True: "**possible**", False: "no effect"}
_SHOWN: Final = {_POSSIBLE: "**possible**", _REFUSED: "refused", _NO_OBJECT: "no object", _NO_EFFECT: "no effect"}


@dataclasses.dataclass(frozen=True)
class NotStarted(Exception):
    """Error: the program did not run in a sandbox; with the output instead."""

    said: str


def main(words: Sequence[str]) -> int:
    """Measure, or write the page again. Return 0, or 2 for unknown arguments or for root."""
    if list(words) == ["--page"]:
        _write_page()
        return 0
    if words:
        print("usage: python -m benchmarks.cell_peers [--page]", file=sys.stderr)
        return 2
    if os.geteuid() == 0:
        print("error: for root, these sandboxes are not what an agent's user gets", file=sys.stderr)
        print("  fix: start it as an ordinary user", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="peers-", dir=_FOLDER) as folder:
        tempfile.tempdir = folder  # all that the household is made of
        record = _measured()
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / FILE).write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(block(RESULTS))
    if Path(__file__).parent / "results" == RESULTS:
        _write_page()
    return 0


def attempts(house: Household, sandboxes: Sequence[Sandbox]) -> Iterator[tuple[Sandbox, dict[str, str] | NotStarted]]:
    """Yield each sandbox, in order, with the answer to each attempt, or with NotStarted."""
    place = Place.of(house)
    for sandbox in sandboxes:
        house.unmark()
        words = [*_AT_A_TERMINAL, *sandbox.command(place), str(house.program())]
        try:
            answers = house.tried(words)
        except AssertionError as error:
            yield sandbox, NotStarted(str(error))
            continue
        reached = house.marked
        in_vain = {name for name in IN_A_HOME_OF_ITS_OWN - reached if answers[name] == "ok"}
        yield sandbox, {**answers, **dict.fromkeys(in_vain, _IN_VAIN)}


def verdict(answer: str) -> str:
    """Translate an answer to the words of the page. ValueError for an answer that household.py does not list."""
    if answer == "ok":
        return _POSSIBLE
    if answer == _IN_VAIN:
        return _NO_EFFECT
    if answer in REFUSED or answer == _NOT_ARRIVED:
        return _REFUSED
    if answer in NOT_THERE:
        return _NO_OBJECT
    raise ValueError(f"an answer to an attempt that is in no list of household.py: {answer!r}")


def block(results: Path) -> str:
    """Return the generated part of the page."""
    record = json.loads((results / FILE).read_text(encoding="utf-8"))
    sandboxes = record["sandboxes"]
    machine = record["machine"]
    bare = statistics.median(next(found for found in sandboxes if found["name"] == BARE)["start_s"])
    lines = [
        f"Measured as an ordinary user on {machine['cores']} cores, Linux {machine['kernel']}, "
        f"CPython {machine['python']}, with a load average of {machine['load']:.1f}. "
        f"A start without a sandbox takes {bare * 1e3:.1f} ms.",
        "",
        f"| sandbox | version | possible, of {len(sandboxes[0]['answers'])} | refused | no object or no effect | start |",
        "|---|---|---|---|---|---|",
        *(_summary(found, bare) for found in sandboxes),
        "",
        "What a cell allows, and some of the others do not; and the other way round:",
        "",
        *_heading("in the project, at the terminal", sandboxes),
        *(_row(name, "in_the_project", sandboxes) for name in sandboxes[0]["in_the_project"]),
        _cells("set the clipboard by what it prints", (_CLIPBOARD_SHOWN[found["clipboard"]] for found in sandboxes)),
        "",
        "If one host is listed, or the network is shared; the first row is what has to work:",
        "",
        *_heading("on its way out", sandboxes),
        *(_row(name, "way_out", sandboxes) for name in sandboxes[0]["way_out"]),
        "",
        "The attempts:",
        "",
        *_heading("attempt", sandboxes),
        *(_row(name, "answers", sandboxes) for name in sandboxes[0]["answers"]),
    ]
    if record["left_out"]:
        lines += ["", "Left out:", "", *(f"- {name}: {why}" for name, why in record["left_out"].items())]
    return "\n".join([*lines, ""])


def _summary(found: Mapping[str, Any], bare: float) -> str:
    verdicts = [verdict(answer) for answer in found["answers"].values()]
    nothing = verdicts.count(_NO_OBJECT) + verdicts.count(_NO_EFFECT)
    start = statistics.median(found["start_s"])
    counted = [str(count) for count in (verdicts.count(_POSSIBLE), verdicts.count(_REFUSED), nothing)]
    shown = (
        f"{start * 1e3:.1f} ms ({start / bare:.1f} ×)"
        if start < _SHORT_S
        else f"{start * 1e3:.0f} ms ({start / bare:.0f} ×)"
    )
    return _cells(found["name"], [found["version"] or "–", *counted, shown])


def _heading(first: str, sandboxes: Sequence[Mapping[str, Any]]) -> list[str]:
    return [_cells(first, (found["name"] for found in sandboxes)), f"|---|{'---|' * len(sandboxes)}"]


def _row(attempt: str, kind: str, sandboxes: Sequence[Mapping[str, Any]]) -> str:
    return _cells(attempt, (_SHOWN[verdict(found[kind][attempt])] for found in sandboxes))


def _cells(first: str, others: Iterable[str]) -> str:
    return f"| {' | '.join([first, *others])} |"


def _write_page() -> None:
    before, found, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, also_found, after = rest.partition(END)
    if not found or not also_found:
        raise ValueError(f"{PAGE} has lost its marks {BEGIN} and {END}")
    PAGE.write_text(f"{before}{BEGIN}\n\n{block(RESULTS)}\n{END}{after}", encoding="utf-8")


def _measured() -> dict[str, Any]:
    left_out = {sandbox.name: sandbox.missing for sandbox in SANDBOXES if sandbox.missing}
    there = [sandbox for sandbox in SANDBOXES if not sandbox.missing]
    taken: list[dict[str, Any]] = []
    with ListedHost() as host, daemon_home() as home, household(home) as house:
        host.allow(home)
        home.unlock()
        place = Place.of(house)
        for sandbox, answers in attempts(house, there):
            print(f"  {sandbox.name}", file=sys.stderr, flush=True)
            if isinstance(answers, NotStarted):
                left_out[sandbox.name] = f"it did not start here: {answers.said.strip()}"
                continue
            taken.append(
                {
                    "name": sandbox.name,
                    "version": sandbox.version(),
                    "answers": answers,
                    "in_the_project": in_the_project(sandbox, place, house.environment),
                    "way_out": way_out(sandbox, house, host),
                    "clipboard": _clipboard_arrives(sandbox, place, house.environment),
                }
            )
        names = {found["name"] for found in taken}
        starts = _starts([sandbox for sandbox in there if sandbox.name in names], place, house)
    for found in taken:
        found["start_s"] = [round(value, 6) for value in starts[found["name"]]]
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }
    return {"machine": machine, "sandboxes": taken, "left_out": left_out}


def in_the_project(sandbox: Sandbox, place: Place, environment: Mapping[str, str]) -> dict[str, str]:
    """Run in_the_project.py and return its answers: about a hook, and about a socket that is made while the program waits."""
    (place.project / ".git" / "hooks").mkdir(parents=True, exist_ok=True)
    shutil.copy(_IN_THE_PROJECT, place.project)
    program = place.project / "look"
    python = Path(sys.executable).resolve()
    program.write_text(f'#!/bin/sh\ncd "$(dirname "$0")" && exec {python} {_IN_THE_PROJECT.name}\n')
    program.chmod(0o755)
    appears = place.project / "meanwhile.sock"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, place.project / ".git")
        process = stack.enter_context(
            subprocess.Popen(
                [*sandbox.command(place), str(program)],
                cwd=place.project,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        )
        stack.callback(process.kill)
        assert process.stdin is not None
        assert process.stdout is not None
        _until(process.stdout.fileno(), b"ready\n")
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(appears))
        stack.callback(appears.unlink)
        listener.listen()
        process.stdin.write(b"\n")
        answers: dict[str, str] = json.loads(_until(process.stdout.fileno(), b"}\n"))
        process.wait(_DEADLINE_S)
    return answers


class ListedHost:
    """Servers on a port of localhost and on an unlisted port of every address.

    They keep the first bytes of each connection and close it.
    """

    def __init__(self) -> None:
        self._listeners = [socket.create_server((address, 0)) for address in ("127.0.0.1", "0.0.0.0")]
        self.port, self.unlisted_port = (int(listener.getsockname()[1]) for listener in self._listeners)
        self.arrived: Final[list[bytes]] = []
        self._threads = [
            threading.Thread(target=self._serve, args=(listener,), daemon=True) for listener in self._listeners
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for listener, thread in zip(self._listeners, self._threads, strict=True):
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join(_DEADLINE_S)

    def allow(self, home: DaemonHome) -> None:
        """Let cells reach this host, whose address is private, and ask about no others. Call it before the daemon starts."""
        home.configure(f'[egress]\nprivate = ["localhost:{self.port}"]\n[launch.cell]\nask_hosts = false\n')

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed
                return
            with connection:
                connection.settimeout(_DEADLINE_S)
                with contextlib.suppress(OSError):
                    self.arrived.append(connection.recv(_READ_BYTES))


def way_out(sandbox: Sandbox, house: Household, host: ListedHost) -> dict[str, str]:
    """Run way_out.py in a sandbox that lists the host and return its answers. NotStarted if it fails.

    Bytes that arrived at the host count as success, whatever the program itself was told.
    """
    place = Place.of(house)
    shutil.copy(_WAY_OUT, place.project)
    program = place.project / "leave"
    python = Path(sys.executable).resolve()
    command = f"{python} {_WAY_OUT.name} localhost {host.port} {house.facts['address']} {host.unlisted_port}"
    program.write_text(f'#!/bin/sh\ncd "$(dirname "$0")" && exec {command}\n')
    program.chmod(0o755)
    host.arrived.clear()
    done = subprocess.run(
        [*sandbox.command(dataclasses.replace(place, listed=host.port)), str(program)],
        cwd=place.project,
        env=house.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_DEADLINE_S,
        check=False,
    )
    if done.returncode != 0:
        raise NotStarted(done.stderr.decode("utf-8", "replace"))
    answers: dict[str, str] = json.loads(done.stdout)
    for attempt, mark in _MARKS.items():
        if any(mark in arrived for arrived in host.arrived):
            answers[attempt] = "ok"
        elif answers[attempt] in {"ok", "ECONNRESET", "EPIPE"}:
            answers[attempt] = _NOT_ARRIVED
    return answers


def _clipboard_arrives(sandbox: Sandbox, place: Place, environment: Mapping[str, str]) -> bool:
    """Return whether a sequence that sets the clipboard reaches the terminal in which the sandbox was started."""
    program = place.project / "paste"
    program.write_bytes(b"#!/bin/sh\nprintf '\\033]52;c;YQ==\\007after it' >&0\n")
    program.chmod(0o755)
    outer, inner = pty.openpty()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, outer)
        try:
            process = subprocess.Popen(
                [*_AT_A_TERMINAL, *sandbox.command(place), str(program)],
                cwd=place.project,
                env=environment,
                stdin=inner,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        finally:
            os.close(inner)
        stack.enter_context(process)
        stack.callback(process.kill)
        seen = _until(outer, _AFTER)
        process.wait(_DEADLINE_S)
    return _CLIPBOARD in seen


def _until(fd: int, wanted: bytes) -> bytes:
    seen, ends = b"", time.monotonic() + _DEADLINE_S
    while wanted not in seen:
        if not select.select([fd], [], [], max(0.0, ends - time.monotonic()))[0]:
            raise TimeoutError(f"{wanted!r} did not come within {_DEADLINE_S:g} s, but {seen!r}")
        more = os.read(fd, _READ_BYTES)
        if not more:
            raise EOFError(f"{wanted!r} did not come, but {seen!r}")
        seen += more
    return seen


def _starts(sandboxes: Sequence[Sandbox], place: Place, house: Household) -> dict[str, list[float]]:
    """Return the seconds until the first line of a script has run, by sandbox."""
    program = place.project / "start"
    program.write_bytes(b"#!/bin/sh\necho started\n")
    program.chmod(0o755)
    in_process: dict[str, Callable[[], object]] = {
        "sandlock": lambda: _started_by_sandlock(place, program),
        "nono-py": lambda: _started_by_nono(place, program),
    }

    def started(sandbox: Sandbox) -> Callable[[], object]:
        words = [*sandbox.command(place), str(program)]
        return in_process.get(sandbox.name, lambda: _started(words, place, house.environment))

    return interleave({sandbox.name: started(sandbox) for sandbox in sandboxes}, _ROUNDS, warm_ups=2)


def _started(words: Sequence[str], place: Place, environment: Mapping[str, str]) -> Measured:
    began = time.perf_counter()
    with subprocess.Popen(
        words,
        cwd=place.project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        line = _until(process.stdout.fileno(), b"\n")
        seconds = time.perf_counter() - began
        process.wait(_DEADLINE_S)
    assert line == b"started\n", line
    return Measured([seconds])


def _started_by_sandlock(place: Place, program: Path) -> Measured:
    from sandlock.sandbox import StdioMode

    sandbox = cell_library.sandlock(str(place.project))
    began = time.perf_counter()
    with sandbox.popen([str(program)], stdout=StdioMode.PIPED) as process:
        line = _until(process.stdout.fileno(), b"\n")
        seconds = time.perf_counter() - began
        process.wait()
    assert line == b"started\n", line
    return Measured([seconds])


def _started_by_nono(place: Place, program: Path) -> Measured:
    import nono_py

    granted = cell_library.capabilities(str(place.project))
    environment = list(cell_library.ENVIRONMENT.items())
    began = time.perf_counter()
    done = nono_py.sandboxed_exec(
        granted, [str(program)], cwd=str(place.project), env=environment, enforcement_mode="seccomp"
    )
    seconds = time.perf_counter() - began
    assert (done.exit_code, done.stdout) == (0, b"started\n"), done.stderr
    return Measured([seconds])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
