"""docs/development/abuse-cases.md against the tests: what it names exists, and no attack is missing from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "development" / "abuse-cases.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))
ROWS = re.findall(r"^\| ([A-Z]+)(\d+) \|(.*)\|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("file", "test"), NAMED, ids=lambda part: part.rpartition("/")[2] or "whole")
def test_what_the_page_names_is_there(file: str, test: str) -> None:
    """Each file, and each test in it."""
    text = (ROOT / file).read_text(encoding="utf-8")
    assert not test or re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), f"{file} has no {test}"


def test_every_file_of_attacks_is_named() -> None:
    """A new one has a row."""
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "attacks").glob("test_*.py")}
    assert written - {file for file, _ in NAMED} == set()


def test_every_case_has_a_number_of_its_own_and_something_that_shows_it() -> None:
    """In each table from 1 on, without a gap; `the same` is what the row above names."""
    numbers: dict[str, list[int]] = {}
    for letter, number, cells in ROWS:
        numbers.setdefault(letter, []).append(int(number))
        assert "`tests/" in cells or "the same" in cells, f"{letter}{number} names no test"
    assert len(ROWS) > 40
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values()), numbers
