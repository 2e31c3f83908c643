"""What `aileron doctor` found of one thing, and what to do about it.

Source: docs/reference/cli.md. Not here: looking (doctor.py, agent_check.py).
"""

from __future__ import annotations

import enum
from typing import Any, Literal, NamedTuple

from aileron.cli.narrowing import Narrow

__all__ = ["ByHand", "Check"]


class ByHand(enum.Enum):
    """Why a cure is the person's, and none that `doctor --fix` carries out."""

    ADMINISTRATOR = "it needs an administrator of this machine"
    WIDENS = "it would allow more than now"
    VAULT = "it needs a secret of yours"
    INTERRUPTS = "it interrupts runs and locks the vault"
    YOURS = "only you can decide what is right"


class Check(NamedTuple):
    """One thing that was looked at. `note` is neither good nor bad.

    `fix` is for a person to type. `cure` says whether `doctor --fix` carries it out: what it is not told to be safe, it leaves.
    """

    name: str
    state: Literal["ok", "note", "bad"]
    found: str
    fix: str | None = None
    cure: Narrow | ByHand = ByHand.YOURS

    def to_json(self) -> dict[str, Any]:
        """For programs; `fixable` is whether `--fix` carries the fix out."""
        told = {"name": self.name, "state": self.state, "found": self.found, "fix": self.fix}
        return {**told, "fixable": isinstance(self.cure, Narrow)}
