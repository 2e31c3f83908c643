"""The examples in docstrings run, and give what they say (doctest)."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"aileron": ROOT, "aileron_sandbox": ROOT / "sandbox", "aileron_connector": ROOT / "connectors" / "sdk"}
"""Importable packages, and the folder of each."""
_EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)


def modules_with_examples() -> list[str]:
    """Return the importable names of all modules with examples. Templates become other people's files."""
    return [
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        for package, folder in PACKAGES.items()
        for path in sorted((folder / package).rglob("*.py"))
        if "templates" not in path.parts and _EXAMPLE.search(path.read_text(encoding="utf-8"))
    ]


def failures_of(examples: list[doctest.DocTest]) -> str:
    """Run the examples, and return doctest's report of those that fail."""
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for example in examples:
        runner.run(example, out=report.append)
    return "".join(report)


@pytest.mark.parametrize("name", modules_with_examples())
def test_every_docstring_example_gives_the_output_it_shows(name: str) -> None:
    """Newcomers read a module's examples first."""
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name), name)

    assert found != []
    assert failures_of(found) == ""


def test_the_check_of_docstring_examples_finds_a_wrong_example() -> None:
    """This is the control: the check can fail, and it finds modules with examples."""
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)

    assert "Expected:\n    3\nGot:\n    2\n" in failures_of([wrong])
    assert len(modules_with_examples()) > 100
