"""Numbers as a person reads them: `10,000,000`, never `10000000.0`.

Pure. JSON has only one kind of number, and the value of an input of type `number` is a float. The number's spelling in a plan,
which is signed, does not change. An integer is grouped only if its name says that it is an amount, because years, ports and ids
are integers too.

>>> spoken_number(10000000.0), spoken_number(1249.5), spoken_number(2026, "year"), spoken_number(10_000_000, "Amount")
('10,000,000', '1,249.5', None, '10,000,000')

Not here: numbers in full values and in JSON (the console's keys `f` and `r`), and numbers given as text.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from aileron.actions.summary import as_compared

__all__ = ["spoken_number", "without_points"]

_AMOUNTS: Final = frozenset(
    {
        *(
            "amount",
            "amounts",
            "price",
            "total",
            "subtotal",
            "sum",
            "cost",
            "costs",
            "fee",
            "fees",
            "balance",
            "budget",
        ),
        *("salary", "payment", "deposit", "refund", "credit", "debit", "discount", "tax", "value", "limit"),
    }
)
"""Words in the name of an argument that mark its value as an amount."""
_MOST_DIGITS: Final = 21
"""Maximum number of digits before the point; a larger number keeps its exponent form, which is shorter."""


def spoken_number(value: Any, name: str = "") -> str | None:
    """Return a float, or an integer whose `name` marks it as an amount, as text with grouped thousands; None for other values."""
    if isinstance(value, float):
        exact = Decimal(repr(value))
        if not exact.is_finite() or exact.adjusted() >= _MOST_DIGITS or exact.adjusted() < -_MOST_DIGITS:
            return None
        text = f"{exact:,f}"
        return text.removesuffix(".0") if "." in text else text
    if isinstance(value, int) and not isinstance(value, bool) and not _AMOUNTS.isdisjoint(as_compared(name).split()):
        return f"{value:,}" if abs(value) < 10**_MOST_DIGITS else None
    return None


def without_points(value: Any) -> Any:
    """Return a value in which whole numbers are integers: `{"amount": 3.0}` becomes `{"amount": 3}`."""
    if isinstance(value, dict):
        return {name: without_points(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [without_points(inner) for inner in value]
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 10**_MOST_DIGITS
    return int(value) if is_whole else value
