"""The reference page matches the code: every reason and every encoding has its row, and no row is made up."""

from __future__ import annotations

import re
from pathlib import Path

from aileron.egress import Reason
from aileron.egress.scrub import ENCODINGS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "egress.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[str]:
    """Return the first cells of the first table after a heading."""
    section = PAGE.split(f"# {heading}\n", 1)[1].split("\n#", 1)[0]
    cells = re.findall(r"^\| *(.*?) *\|", section, re.MULTILINE)
    return [cell.strip("`") for cell in cells[2:]]


def test_every_reason_of_a_denial_is_documented() -> None:
    """The table has the order of the code, which is that of the checks."""
    assert rows("Denials") == [reason.value for reason in Reason]


def test_every_encoding_that_is_scrubbed_is_documented() -> None:
    """The page is the published list."""
    assert rows("Scrubbing") == [name for name, _forms in ENCODINGS]
