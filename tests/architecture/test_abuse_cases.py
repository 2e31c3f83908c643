"""The page docs/development/abuse-cases.md against the marks of the tests (tests/support/abuse_cases.py)."""

from __future__ import annotations

from pathlib import Path

from tests.support.abuse_cases import PAGE, ROOT, ROW, marked, with_tests

TEXT = PAGE.read_text(encoding="utf-8")
CASES = [(letters, int(number)) for letters, number, _, _ in ROW.findall(TEXT)]


def test_the_page_of_abuse_cases_names_the_tests_that_are_marked() -> None:
    """`python -m tests.support.abuse_cases` writes the column anew."""
    assert with_tests(TEXT, marked()) == TEXT


def test_every_abuse_case_has_a_test_and_every_mark_names_an_abuse_case() -> None:
    """A new case begins with its row, and its test has the mark."""
    on_the_page = {f"{letters}{number}" for letters, number in CASES}

    assert len(on_the_page) > 300
    assert on_the_page ^ set(marked()) == set()


def test_the_numbers_of_each_table_of_abuse_cases_have_no_gap() -> None:
    """Numbers stay what they are: a new case is added at the end of its table."""
    numbers: dict[str, list[int]] = {}
    for letters, number in CASES:
        numbers.setdefault(letters, []).append(number)

    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values()), numbers


def test_the_page_of_abuse_cases_names_every_file_of_attack_tests() -> None:
    """A new file of attacks needs a case."""
    written = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "attacks").glob("test_*.py")]

    assert [file for file in written if file not in TEXT] == []


def test_an_abuse_case_mark_is_read_from_a_test_function_and_from_a_file(tmp_path: Path) -> None:
    """A mark on a function names it; one in `pytestmark` names the file."""
    file = tmp_path / "tests" / "test_two.py"
    file.parent.mkdir()
    file.write_text(
        "pytestmark = [pytest.mark.slow, pytest.mark.abuse_case('A1')]\n\n"
        "@pytest.mark.abuse_case('A1', 'A2')\nasync def test_one() -> None: ...\n",
        encoding="utf-8",
    )

    assert marked(tmp_path) == {
        "A1": ["tests/test_two.py", "tests/test_two.py::test_one"],
        "A2": ["tests/test_two.py::test_one"],
    }
    assert with_tests("| A2 | a \\| b | old |", marked(tmp_path)) == "| A2 | a \\| b | `tests/test_two.py::test_one` |"
