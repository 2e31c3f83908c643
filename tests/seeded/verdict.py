"""A plugin of pytest: a line of JSON for each test that did not pass, with how it failed.

    python -m pytest -p tests.seeded.verdict --verdicts FILE tests/…

A test is as good a proof as the way in which it fails: an assertion says what is wrong, while an error of import, a fixture that
fails or a deadline may come of anything. Not here: who asks (`__main__.py`).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the file in which the lines are to be."""
    parser.addoption("--verdicts", type=Path, required=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write down what did not pass, and if it was an assertion of the test itself."""
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
    """Return whether this is `assert`, or `pytest.raises` without what it waited for; a deadline fails by `pytest.fail` too."""
    return isinstance(error, AssertionError | pytest.fail.Exception) and not str(error).startswith("Timeout")


def _leaves(error: BaseException | None) -> Iterator[BaseException | None]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
