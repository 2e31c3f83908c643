"""The page docs/development/abuse-cases.md against the tests: what it names exists, and no attack is missing from it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "development" / "abuse-cases.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))
ROWS = re.findall(r"^\| ([A-Z]+)(\d+) \|(.*)\|$", PAGE, re.MULTILINE)


def test_every_test_that_the_page_names_exists() -> None:
    """Each named file exists, and each named test is defined in it."""
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file, _ in NAMED}
    missing = [
        f"{file}::{test}"
        for file, test in NAMED
        if test and not re.search(rf"^(async )?def {test}\(", texts[file], re.MULTILINE)
    ]

    assert len(NAMED) > 400
    assert missing == []


def test_the_page_names_every_file_of_attacks() -> None:
    """A new file of attacks needs a row."""
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "attacks").glob("test_*.py")}
    assert written - {file for file, _ in NAMED} == set()


def test_every_case_has_its_own_number_and_names_a_test() -> None:
    """The numbers of each table start at 1 and have no gap. The text `the same` refers to the test of the row above."""
    numbers: dict[str, list[int]] = {}
    for letter, number, cells in ROWS:
        numbers.setdefault(letter, []).append(int(number))
        assert "`tests/" in cells or "the same" in cells, f"{letter}{number} names no test"
    assert len(ROWS) > 40
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values()), numbers
