"""What a probe reports, as the tests of the jail see it."""

from __future__ import annotations

import dataclasses
from typing import Any

from aileron_sandbox.ending import Ending

__all__ = ["Seen"]


@dataclasses.dataclass(frozen=True)
class Seen:
    """What became of a probe: its own report, how it ended, what it printed."""

    report: Any
    ending: Ending | None
    log: str
