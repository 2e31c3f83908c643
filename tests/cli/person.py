"""Who decides, at a terminal: their passphrases, what they answer, and what they see."""

from __future__ import annotations

from typing import Any

from tests.cli.command import Command, Said
from tests.support.home import PASSPHRASE

__all__ = ["APPROVER", "INIT", "SIGN", "at_terminal", "flat"]

APPROVER = "not the vault's passphrase"
SIGN = ("Approver passphrase: ", APPROVER)
INIT = [
    ("Create the approver's key? [y/N] ", "y"),
    ("Vault passphrase: ", PASSPHRASE),
    ("New approver passphrase: ", APPROVER),
    ("New approver passphrase, again: ", APPROVER),
]
"""To `aileron approver init`, in a home of tests/support/home.py whose vault is open."""


def at_terminal(aileron: Command, *words: str, answers: Any = (), **more: str) -> Said:
    """Without colours, and nothing that was typed unseen is to be seen."""
    said = aileron.at_terminal(*words, answers=answers, NO_COLOR="1", **more)
    assert APPROVER not in said.out
    return said


def flat(said: Said) -> str:
    """What was shown, however a terminal's width has broken its lines."""
    return " ".join(said.out.split())
