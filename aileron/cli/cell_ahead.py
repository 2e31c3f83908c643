"""The process of a cell, begun before the command that launches an agent in it is imported, which takes 60 ms.

    begin(["claude", "--jail"])      # aileron/__main__.py
    stub = taken()                   # where the cell is made; None where none was begun
    end()                            # where there will be none

Whether there will be a cell the options say, or the settings, and here it is a guess: a wrong one costs 50 ms of another
processor, and what nobody has taken ends before an agent begins. What stands in the way is said where the process is needed.

Not here: what it does until then (aileron_sandbox/cell/stub.py), whether there is a cell (commands/launch.py).
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
"""In the settings, as `aileron config set` and the question at a terminal write it."""
_MAX_SETTINGS: Final = 1 << 16
"""64 KiB of them are read for a guess."""

_begun: list[Stub] = []


def begin(words: list[str]) -> None:
    """For the words after `launch`."""
    options = words[: words.index("--")] if "--" in words else words
    if is_in_cell() or not _WITHOUT.isdisjoint(options) or not ("--jail" in options or _is_set()):
        return
    if passphrase_from(None)() is not None:  # then this process begins again, without it (commands/launch.py)
        return
    from aileron_sandbox.unavailable import JailUnavailable

    with contextlib.suppress(JailUnavailable, OSError):
        _begun.append(start())
        atexit.register(end)


def start() -> Stub:
    """One that begins now, and is the caller's to close. JailUnavailable, OSError."""
    from aileron.launch.system_sights import LOOKED_AT
    from aileron_sandbox.cell.stub import Stub

    return Stub.start(LOOKED_AT)


def taken() -> Stub | None:
    """What was begun, which is the caller's to close from then on."""
    return _begun.pop() if _begun else None


def end() -> None:
    """Of what nobody has taken. Idempotent."""
    while (stub := taken()) is not None:
        stub.close()


def _is_set() -> bool:
    with contextlib.suppress(OSError), (home_directory() / "config.toml").open("rb") as file:
        return _SET in file.read(_MAX_SETTINGS)
    return False
