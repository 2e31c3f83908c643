"""docs/reference/jail.md says what the filter is compiled from."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from aileron_sandbox import filters

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "jail.md").read_text(encoding="utf-8")


def test_the_published_lists_are_the_compiled_ones() -> None:
    """Allowed, killed, and refused with an errno of their own: each call, and no other."""
    allowed, killed = (block.split() for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL))
    answered = dict(re.findall(r"\| `(\w+)` \| (E\w+) \|", PAGE))

    assert allowed == list(filters.ALLOWED)
    assert killed == list(filters.KILLED)
    assert answered == {name: errno.errorcode[number] for name, number in filters.ANSWERED.items()}


def test_no_call_is_in_two_lists() -> None:
    """Allowed and killed contradict each other; the filter could not be compiled."""
    everything = [*filters.ALLOWED, *filters.ANSWERED, *filters.KILLED]

    assert len(everything) == len(set(everything))
