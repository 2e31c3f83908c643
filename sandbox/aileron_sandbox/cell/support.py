"""A report on whether this machine can run a cell, made by running one. If it cannot, the report has the failed step
and the fix.

Runs on the host. A layer counts as in force because a program ran while confined by all layers. `examine_cell` does
not raise for a machine without cells, since reporting that is its purpose.

>>> examine_cell().available        # doctest: +SKIP
True

Not here: the connector's jail (support.py of the package above).
"""

from __future__ import annotations

import dataclasses
import os
import select
import time
from typing import Final

from aileron_sandbox.cell.door import Cell, Ended, NotStarted
from aileron_sandbox.cell.policy import Bind, CellPolicy
from aileron_sandbox.unavailable import JailUnavailable

__all__ = ["CellReport", "examine_cell"]

_DEADLINE_S: Final = 20.0  # `true` takes a millisecond; a machine that is starting up takes its time
_ROOTS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_REPORT: Final = "report this as a bug, with this report"


@dataclasses.dataclass(frozen=True)
class CellReport:
    """The result of trying a cell. `layers` are in force for every cell on this machine. If no cell is available, `what`
    describes the failure, and `fix` says what to do.
    """

    available: bool
    layers: tuple[str, ...]
    what: str | None
    fix: str | None

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return dataclasses.asdict(self)


def examine_cell() -> CellReport:
    """Make one cell, run `true` in it, and report the layers in force. Takes about 0.1 s."""
    try:
        return CellReport(available=True, layers=_try_once(), what=None, fix=None)
    except JailUnavailable as error:
        return CellReport(available=False, layers=(), what=error.what, fix=error.fix)
    except OSError as error:
        return CellReport(available=False, layers=(), what=f"a trial run in a cell failed: {error}", fix=_REPORT)


def _try_once() -> tuple[str, ...]:
    with Cell.start(_policy(), ["true"], {"PATH": "/usr/bin:/bin"}, ("pipe", "pipe", "pipe")) as cell:
        cell.begin()
        until = time.monotonic() + _DEADLINE_S
        poll = select.poll()
        poll.register(cell.control, select.POLLIN)
        while (event := cell.event()) is None:
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000) and time.monotonic() >= until:
                raise TimeoutError(f"no end within {_DEADLINE_S:.0f} s")
        if not isinstance(event, Ended) or event.code != 0:
            what = os.strerror(event.errno) if isinstance(event, NotStarted) else str(event)
            raise JailUnavailable(f"a trial run in a cell failed: {what}", _REPORT)
        return cell.layers


def _policy() -> CellPolicy:
    """Return the policy of the trial cell, which shows only the system directories."""
    binds, links = [Bind("/usr", "/usr", mounts=True)], []
    for path in (f"/{name}" for name in _ROOTS):
        if os.path.islink(path):
            links.append((path, os.readlink(path)))
        elif os.path.isdir(path):
            binds.append(Bind(path, path, mounts=True))
    return CellPolicy(folder="/tmp", home="/home/you", binds=tuple(binds), links=tuple(links))  # noqa: S108 - the cell's own
