"""A real daemon that ends unused processes after a moment, forked as other daemons of tests are (forks.py).

Arguments: HOME READY_FD. The same processes end elsewhere after minutes.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aileron.daemon import __main__ as daemon
from aileron.executor import jails
from aileron.executor.jails import Jails
from aileron.executor.programs import ConnectorStore
from aileron.executor.spares import Bounds, SpareJournal, Spares
from tests.support import forks

__all__ = ["impatient_daemon"]

_TOLD: Final = 3
_SOON_S: Final = 0.2


def impatient_daemon(home: Path) -> forks.Child:
    """Start an impatient daemon for `home`."""
    ready, told = os.pipe()
    process = forks.start(
        __name__,
        [str(home), str(_TOLD)],
        descriptors={0: 0, 1: 1, 2: 2, _TOLD: told},
        environment=os.environ,
    )
    os.close(told)
    with open(ready, "rb") as pipe:
        assert pipe.read() == b"ready"
    return process


def main(arguments: list[str]) -> int:
    """Run the daemon with the arguments HOME READY_FD."""
    jails.IDLE_S = _SOON_S  # type: ignore[misc]
    _shorten_spares()
    _answer_about_garbage(Path(arguments[0]))
    return daemon.main(arguments)


def _shorten_spares() -> None:
    """Shorten the lifetime of spares, because a template does not end under a connector that waits in it."""
    original = Spares.__init__

    def shorter(
        self: Spares, jails: Jails, store: ConnectorStore, journal: SpareJournal, fence: Callable[[], object]
    ) -> None:
        original(self, jails, store, journal, fence, Bounds(lifetime_s=_SOON_S, look_s=_SOON_S))

    Spares.__init__ = shorter  # type: ignore[method-assign,assignment]


def _answer_about_garbage(home: Path) -> None:
    """Write to the file `garbage`, on SIGUSR1, whether the collector is on, and the number of frozen objects that it skips."""

    def answer(_number: int, _frame: object) -> None:
        (home / "garbage").write_text(f"{gc.isenabled()} {gc.get_freeze_count()}\n", encoding="utf-8")

    gc.unfreeze()  # what the server of forks did (forks.py)
    signal.signal(signal.SIGUSR1, answer)
