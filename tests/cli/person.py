"""The person who decides at a terminal: passphrases, answers, and the text that they see."""

from __future__ import annotations

from typing import Any

from tests.cli.command import Answers, Command, Said
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
"""Answers for `aileron approver init`, in a home of tests/support/home.py whose vault is open."""


def at_terminal(aileron: Command, *words: str, answers: Any = (), whenever: Answers = (), **more: str) -> Said:
    """Run the command at a terminal without colours. Check that the approver's passphrase is not shown."""
    said = aileron.at_terminal(*words, answers=answers, whenever=whenever, variables={"NO_COLOR": "1", **more})
    assert APPROVER not in said.out
    return said


def flat(said: Said) -> str:
    """Return the output as one line, so that the terminal's line breaks do not matter."""
    return " ".join(said.out.split())
