"""Starts the process of a cell before the command that launches an agent in the cell is imported, because that import takes 60
ms.

    begin(["claude", "--jail"])      # aileron/__main__.py
    stub = taken()                   # where the cell is made; None if none was started
    end()                            # where there will be no cell

Options or settings decide whether a cell is used; this module only guesses. A wrong guess costs 50 ms of another processor, and
an unused process ends before an agent starts. Failures to start are reported later, where the process is needed.

Not here: what the process does until it is used (aileron_sandbox/cell/stub.py), whether a cell is used (commands/launch.py).
"""

from __future__ import annotations

import atexit
import contextlib
from typing import TYPE_CHECKING, Final

from aileron.cli.prompts import passphrase_from
from aileron.client import home_directory, is_in_cell

if TYPE_CHECKING:
    from aileron_sandbox.cell.stub import Stub

__all__ = ["begin", "end", "start", "taken"]

_WITHOUT: Final = {"--no-jail", "--explain", "--dry-run", "--help", "-h"}
_SET: Final = b"jail = true"
"""Text that is searched for in config.toml, unparsed: if it is there, the agent probably starts in a cell. `aileron
config set` and the question at a terminal write it in this form.
"""
_MAX_SETTINGS: Final = 1 << 16
"""Maximum number of bytes of config.toml that are searched, 64 KiB."""

_begun: list[Stub] = []


def begin(words: list[str]) -> None:
    """Start a cell's process early if the words after `launch` and the settings suggest that the agent will run in a cell."""
    options = words[: words.index("--")] if "--" in words else words
    if is_in_cell() or not _WITHOUT.isdisjoint(options) or not ("--jail" in options or _is_set()):
        return
    # Then this process starts again without the passphrase (commands/launch.py)
    if passphrase_from(None)() is not None:
        return
    from aileron_sandbox.unavailable import JailUnavailable

    with contextlib.suppress(JailUnavailable, OSError):
        _begun.append(start())
        atexit.register(end)


def start() -> Stub:
    """Start the process of a cell now.

    The caller must close it. Raises JailUnavailable if this machine cannot make a cell, OSError if the process cannot be
    started.
    """
    from aileron.launch.system_mounts import LOOKED_AT
    from aileron_sandbox.cell.stub import Stub

    return Stub.start(LOOKED_AT)


def taken() -> Stub | None:
    """Return the process that was started early, or None. The caller must close it from then on."""
    return _begun.pop() if _begun else None


def end() -> None:
    """Close the cell's process if it was started early and `taken` has not returned it. Idempotent."""
    while (stub := taken()) is not None:
        stub.close()


def _is_set() -> bool:
    with contextlib.suppress(OSError), (home_directory() / "config.toml").open("rb") as file:
        return _SET in file.read(_MAX_SETTINGS)
    return False
