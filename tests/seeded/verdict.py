"""A pytest plugin that writes a line of JSON for each test that did not pass, with how it failed.

    python -m pytest -p tests.seeded.verdict --verdicts FILE tests/…

A test proves a fault only if it fails by an assertion: an error of import, a fixture that fails or a deadline can have any cause.
Not here: the caller (`__main__.py`).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the file that gets the lines."""
    parser.addoption("--verdicts", type=Path, required=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write a line for a test that did not pass, and whether an assertion of the test itself failed."""
    report = yield
    if report.outcome != "passed":
        error = None if call.excinfo is None else call.excinfo.value
        is_assertion = report.outcome == "failed" and call.when == "call" and any(map(_asserts, _leaves(error)))
        line = {
            "test": item.nodeid,
            "asserts": is_assertion,
            "how": f"{report.outcome} in {call.when}: {type(error).__name__}",
        }
        with open(item.config.getoption("--verdicts"), "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return report


def _asserts(error: BaseException | None) -> bool:
    """Return whether this is a failed `assert`, or `pytest.raises` without its error; a deadline fails by `pytest.fail` too."""
    return isinstance(error, AssertionError | pytest.fail.Exception) and not str(error).startswith("Timeout")


def _leaves(error: BaseException | None) -> Iterator[BaseException | None]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
