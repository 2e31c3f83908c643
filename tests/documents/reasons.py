"""The reasons why an operation is not imported, in the words of the page: these documents give no others.

A reason that is in no row fails the tests: a change of the importer has to add it here, with words that say whose fault it is.

Not here: where reasons are made (aileron/importing).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

__all__ = ["REASONS", "grouped"]

REASONS: Final = (
    (re.compile(r"it needs several credentials in one request"), "needs several credentials in one request"),
    (re.compile(r"(?:.*: )?required, and not described"), "requires a property that it does not describe"),
    (re.compile(r"(?:.*: )?none of its properties can be given"), "requires an object whose properties are all read-only"),
    (re.compile(r"(?:.*: )?it can (?:only be null|have no value)"), "requires a value that can only be `null`, or none"),
    (re.compile(r"(?:.*: )?(?:pattern is not valid RE2|a pattern that)"), "requires a pattern that an action cannot have"),
    (re.compile(r"(?:.*: )?the keyword 'not' is not supported"), "requires a value with `not` in its schema"),
    (re.compile(r"its path has parameters behind its \?"), "has a path with parameters in its query"),
    (re.compile(r".*: a header that a connector cannot send"), "requires a header that only the runtime sends"),
)  # fmt: skip
"""Patterns, matched from the beginning of a reason, and the words of the page for them."""


def grouped(refused: Counter[str]) -> Counter[str]:
    """Count the reasons in the words of the page; ValueError for one that is new."""
    found: Counter[str] = Counter()
    for reason, number in refused.items():
        words = next((words for pattern, words in REASONS if pattern.match(reason)), None)
        if words is None:
            raise ValueError(f"a reason that is in no row of {__name__}: {reason}")
        found[words] += number
    return found
