"""A plugin that runs properties again and again within a budget: `python -m pytest -p tests.fuzz FOLDER…`, or `make fuzz`.

It runs only tests that Hypothesis drives. Each gets an equal share of AILERON_FUZZ_S (600 s), and starts anew with other examples
until its share is used up: a cheap property is tried millions of times, an expensive one thousands. A failure ends that test at
once, as ever, with the example that shows it. Earlier findings are tried first: Hypothesis keeps them in .hypothesis, and people
in tests/attacks/corpus and in `@example`.

Not here: the properties themselves, how many examples a round has (the profile `fuzz` in tests/conftest.py).
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

import pytest

_BUDGET_S: Final = float(os.environ.get("AILERON_FUZZ_S", "600"))
_shares: Final[dict[str, tuple[int, float]]] = {}
"""Rounds, and the seconds they took, by test."""


def _is_fuzzed(item: pytest.Item) -> bool:
    function = getattr(item, "obj", None)
    return bool(getattr(function, "is_hypothesis_test", False) or getattr(function, "is_fuzzed", False))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests without examples to vary."""
    left_out = [item for item in items if not _is_fuzzed(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if _is_fuzzed(item)]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run rounds of one test until its share is over; at least one."""
    if not _is_fuzzed(pyfuncitem):
        return None
    share_s = _BUDGET_S / max(1, len(pyfuncitem.session.items))
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    began, rounds = time.monotonic(), 0
    while not rounds or time.monotonic() - began < share_s:
        pyfuncitem.obj(**arguments)
        rounds += 1
    _shares[pyfuncitem.nodeid] = rounds, time.monotonic() - began
    return True


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show how many rounds each test had: a test with a single round is expensive, and needs a look."""
    for name, (rounds, seconds) in _shares.items():
        terminalreporter.write_line(f"{rounds:6} rounds {seconds:7.1f} s  {name}")
