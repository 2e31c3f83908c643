"""The column "shown by" of docs/development/abuse-cases.md, from the marks of the tests.

`@pytest.mark.abuse_case("E5")` on a test, or in `pytestmark` for all tests of a file, says which cases it shows. The rest of
the page is written by hand.

$ python -m tests.support.abuse_cases      # writes the column anew

Marks are read from the source, because collecting every test takes half a minute. So they are literals.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["PAGE", "ROW", "marked", "with_tests"]

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "development" / "abuse-cases.md"
ROW: Final = re.compile(r"^\| ([A-Z]+)(\d+) \| (.*) \| (.*) \|$", re.MULTILINE)
"""A case: the letters of its table, its number there, its description, and the tests that show it."""
_MARK: Final = "pytest.mark.abuse_case"


def marked(root: Path = ROOT) -> dict[str, list[str]]:
    """Return the tests of each case as `file::test`, or `file` for all tests of a file, in the order of the files."""
    tests: dict[str, list[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if _MARK in source:
            for test, case in _marks(ast.parse(source)):
                tests.setdefault(case, []).append(path.relative_to(root).as_posix() + test)
    return tests


def with_tests(page: str, tests: dict[str, list[str]]) -> str:
    """Return the page with the tests of each case in its last column."""

    def row(found: re.Match[str]) -> str:
        letters, number, text, _ = found.groups()
        shown = ", ".join(f"`{test}`" for test in tests.get(letters + number, ()))
        return f"| {letters}{number} | {text} | {shown} |"

    return ROW.sub(row, page)


def _marks(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each test (`::name`, or nothing for the whole file) with each of its cases."""
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                marks, test = value.elts if isinstance(value, ast.List) else [value], ""
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                marks, test = statement.decorator_list, f"::{statement.name}"
            case _:
                continue
        for mark in marks:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == _MARK:
                yield from ((test, ast.literal_eval(case)) for case in mark.args)


if __name__ == "__main__":
    PAGE.write_text(with_tests(PAGE.read_text(encoding="utf-8"), marked()), encoding="utf-8")
