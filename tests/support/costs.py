"""Seconds and processor time of targets and of files of tests, each as a line of a file in the folder AILERON_TEST_COSTS.

    python -m tests.support.costs measure NAME COMMAND…     runs COMMAND as the target NAME
    python -m tests.support.costs show                      prints the table

`Files` is a plugin of pytest that tests/conftest.py registers where the variable is set. Processor time is of everything that was
started, including daemons that have left their parents: a control group of its own (v1, cpuacct) counts it. Without such groups
it is the time of this process and of the children that it waited for, which is less.

Standard library only: set-up is measured too. Source: Documentation/admin-guide/cgroup-v1/cpuacct.rst of Linux.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["FOLDER", "Files", "table"]

FOLDER: Final = "AILERON_TEST_COSTS"
"""The variable that names the folder."""
_TARGET: Final = "AILERON_TEST_TARGET"
"""The variable that tells the started command its target: another Python runs the same files."""
_SHOWN_FILES: Final = 20
_SUBSYSTEM: Final = "cpuacct"


class _Meter:
    """A meter of the processor time of this process and of everything that it starts from now on."""

    def __init__(self) -> None:
        self._group: Path | None = None
        with contextlib.suppress(OSError, StopIteration):
            place = _place()
            group = place / f"aileron-tests-{os.getpid()}"
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
            self._group = group

    def used_s(self) -> float:
        """Return the processor time used, in seconds."""
        if self._group is not None:
            return int((self._group / "cpuacct.usage").read_text()) / 1e9
        spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in spent)

    def close(self) -> None:
        """Remove the group; processes that still run in it move to its parent."""
        if self._group is not None:
            with contextlib.suppress(OSError):
                _dissolve(self._group)


def _place() -> Path:
    """Return this process's control group in the hierarchy that counts processor time. StopIteration if there is none."""
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    inside = next(path for _, subsystems, path in lines if _SUBSYSTEM in subsystems.split(","))
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    mounted = next(on for _, on, kind, options, *_ in mounts if kind == "cgroup" and _SUBSYSTEM in options.split(","))
    return Path(mounted) / inside.lstrip("/")


def _dissolve(group: Path) -> None:
    for below in [path for path in group.iterdir() if path.is_dir()]:
        _dissolve(below)
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):  # it has ended
            (group.parent / "cgroup.procs").write_text(pid)
    group.rmdir()


def _write(folder: Path, **line: str | float) -> None:
    with (folder / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


class Files:
    """A pytest plugin that writes a line for each file of tests of this process, once the next one begins or all are over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._meter: _Meter | None = None
        self._file: str | None = None
        self._since = 0.0, 0.0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """End the previous file when a test of another begins."""
        if self._meter is None:
            self._meter = _Meter()  # not sooner: of processes side by side each has one
        file = nodeid.partition("::")[0]
        if file != self._file:
            self._end()
            self._file, self._since = file, (time.monotonic(), self._meter.used_s())

    def pytest_unconfigure(self) -> None:
        """End the last file; its time includes the teardown of the session's fixtures."""
        self._end()
        if self._meter is not None:
            self._meter.close()

    def _end(self) -> None:
        if self._file is not None and self._meter is not None:
            wall_s, used_s = time.monotonic() - self._since[0], self._meter.used_s() - self._since[1]
            target = os.environ.get(_TARGET, "")
            _write(self._folder, file=self._file, of=target, wall_s=wall_s, used_s=used_s)


def table(lines: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table: every target, then the files that took longest."""
    sorted_lines = sorted(lines, key=lambda line: -line["wall_s"])
    targets = [line for line in sorted_lines if "target" in line]
    files = [line for line in sorted_lines if "file" in line]
    yield f"{'seconds':>9} {'processor':>9}  target"
    for line in targets:
        yield f"{line['wall_s']:9.1f} {line['used_s']:9.1f}  {line['target']}"
    yield f"{'seconds':>9} {'processor':>9}  file ({min(len(files), _SHOWN_FILES)} of {len(files)})"
    for line in files[:_SHOWN_FILES]:
        yield f"{line['wall_s']:9.1f} {line['used_s']:9.1f}  {line['file']} {line['of']}"


def _measure(folder: Path, target: str, command: list[str]) -> int:
    meter, began = _Meter(), time.monotonic()
    status = subprocess.run(command, env=os.environ | {_TARGET: target}, check=False).returncode
    _write(folder, target=target, wall_s=time.monotonic() - began, used_s=meter.used_s())
    meter.close()
    return status


def main() -> int:
    """Measure or show, according to the arguments. Return the exit code."""
    folder = Path(os.environ[FOLDER])
    match sys.argv[1:]:
        case ["measure", target, *command] if command:
            return _measure(folder, target, command)
        case ["show"]:
            written = "".join(path.read_text() for path in sorted(folder.glob("*.jsonl")))
            print("\n".join(table(map(json.loads, written.splitlines()))))
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
