"""The result of one check of `aileron doctor`, and the fix for a failure.

Source: docs/reference/cli.md. Not here: the checks themselves (doctor.py, agent_check.py).
"""

from __future__ import annotations

import enum
from typing import Literal, NamedTuple

from aileron.cli.narrowing import Narrow

__all__ = ["ByHand", "Check"]


class ByHand(enum.Enum):
    """Reasons why a fix is left to the person and not applied by `doctor --fix`."""

    ADMINISTRATOR = "it needs an administrator of this machine"
    WIDENS = "it would allow more than now"
    VAULT = "it needs a secret of yours"
    INTERRUPTS = "it interrupts runs and locks the vault"
    YOURS = "only you can decide what is right"


class Check(NamedTuple):
    """The result of one check of `aileron doctor`. The state `note` is neither good nor bad.

    `fix` is for a person to type. `repair` is the change that `doctor --fix` applies, or the reason why it applies none, because
    it makes only changes that are known to be safe.
    """

    name: str
    state: Literal["ok", "note", "bad"]
    found: str
    fix: str | None = None
    repair: Narrow | ByHand = ByHand.YOURS

    def to_json(self) -> dict[str, object]:
        """Return the check as an object for JSON output; `fixable` is true if `--fix` applies the fix."""
        told = {"name": self.name, "state": self.state, "found": self.found, "fix": self.fix}
        return {**told, "fixable": isinstance(self.repair, Narrow)}
