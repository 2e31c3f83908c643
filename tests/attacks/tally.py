"""Counts of the attack suite: attempts, denials by reason, and positive controls; measured while it runs, never typed.

A test of this folder takes the `attack` fixture and reports what it saw. `denied` and `control` assert, and count what held.
A test that passes without an attempt, or without a control, fails at its end: a broken harness would deny everything.

    attack.denied("a socket of every family", {"EACCES"}, seen)
    attack.control("the same as an ordinary process", "ok", there)

`answered` is `denied` for outcomes that people should read too: each attempt and its outcome is printed on a line at the end.

Not here: the attempts (the tests), the user who makes them (other_user.py).
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Final, Self

__all__ = ["TALLY", "Attack", "Tally"]

TALLY: Final = "AILERON_ATTACKS_TALLY"
"""Environment variable: the file to which a suite that is started for another user writes its tally."""


@dataclasses.dataclass(frozen=True)
class Tally:
    """The counts of some tests."""

    attempts: int = 0
    denied: int = 0
    controls: int = 0
    told: tuple[str, ...] = ()
    """Attempts with their outcomes, in the order in which they were made."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.attempts + other.attempts,
            self.denied + other.denied,
            self.controls + other.controls,
            self.told + other.told,
        )

    def __str__(self) -> str:
        return f"{self.attempts} attempts, {self.denied} denied, {self.controls} controls"

    def write(self, path: Path) -> None:
        """Write the tally for the process that reads it with `read`."""
        path.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote. ValueError or OSError if there is none."""
        read = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**read, "told": tuple(read["told"])})


class Attack:
    """The attempts, denials and controls of one test."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._waived = False

    def denied(self, attempt: str, reason: Any, observed: Any) -> None:
        """Count an attempt, and check that it ended for this reason; a set or frozenset stands for any of its members."""
        self.tally += Tally(attempts=1)
        reasons = reason if isinstance(reason, (set, frozenset)) else None
        assert observed in reasons if reasons is not None else observed == reason, (
            f"{attempt}: {observed!r}, expected {reason!r}"
        )
        self.tally += Tally(denied=1)

    def answered(self, attempt: str, reason: Any, observed: Any, shown: str | None = None) -> None:
        """Do what `denied` does, and print the attempt and its outcome, in the words of `shown` if they are given."""
        self.denied(attempt, reason, observed)
        self.tally += Tally(told=(f"{attempt}: {_worded(observed) if shown is None else shown}",))

    def all_answered(self, attempt: str, reason: Any, observed: dict[Any, Any]) -> None:
        """Do what `all_denied` does, and print a line for each distinct outcome."""
        self.all_denied(attempt, reason, observed)
        for answer in dict.fromkeys(map(_worded, observed.values())):
            which = ", ".join(str(name) for name, got in observed.items() if _worded(got) == answer)
            self.tally += Tally(told=(f"{attempt} ({which}): {answer}",))

    def all_denied(self, attempt: str, reason: Any, observed: dict[Any, Any]) -> None:
        """Count an attempt for each entry, and check that each was denied for this reason."""
        assert observed, f"{attempt}: nothing was tried"
        for which, got in observed.items():
            self.denied(f"{attempt}, {which}", reason, got)

    def control(self, what: str, expected: Any, observed: Any) -> None:
        """Check that the same attempt, or one beside it, works where it should, and count a control."""
        assert observed == expected, f"control, {what}: {observed!r}, expected {expected!r}"
        self.tally += Tally(controls=1)

    def worked(self, what: str, expected: Any, observed: Any) -> None:
        """Do what `control` does, and print it beside the attempts."""
        self.control(what, expected, observed)
        self.tally += Tally(told=(f"  but {what}: {_worded(observed)}",))

    def waive(self) -> None:
        """Declare that this test makes no attempt of its own, because others count for it."""
        self._waived = True

    def check_complete(self) -> None:
        """Raise AssertionError if the test tried nothing or showed nothing to work."""
        if self._waived:
            return
        assert self.tally.attempts, "an attack without an attempt: tell the `attack` fixture what was denied"
        assert self.tally.controls, "an attack without a positive control: a broken harness would pass it"


def _worded(observed: Any) -> str:
    if isinstance(observed, (tuple, list)):
        return ", ".join(map(_worded, observed)) or "nothing"
    if isinstance(observed, (set, frozenset)):
        return _worded(sorted(observed, key=str))
    return str(observed)
