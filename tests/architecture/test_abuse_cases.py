"""docs/development/abuse-cases.md against the tests: what it names exists, and no attack is missing from it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "development" / "abuse-cases.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))
ROWS = re.findall(r"^\| ([A-Z]+)(\d+) \|(.*)\|$", PAGE, re.MULTILINE)


def test_what_the_page_names_is_there() -> None:
    """Each file, and each test in it."""
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file, _ in NAMED}
    missing = [
        f"{file}::{test}"
        for file, test in NAMED
        if test and not re.search(rf"^(async )?def {test}\(", texts[file], re.MULTILINE)
    ]

    assert len(NAMED) > 400
    assert missing == []


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
