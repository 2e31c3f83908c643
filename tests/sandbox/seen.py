"""The report of a probe, for the tests of the jail."""

from __future__ import annotations

import dataclasses
from typing import Any

from aileron_sandbox.ending import Ending

__all__ = ["Seen"]


@dataclasses.dataclass(frozen=True)
class Seen:
    """Observed end of a probe: its own report, its ending, its printed text."""

    report: Any
    ending: Ending | None
    log: str
