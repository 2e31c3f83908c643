"""A limit on the number of values in untrusted JSON, checked before the JSON is parsed.

A bound on bytes does not bound memory: `{},` has three bytes and becomes 72 in memory. So JSON from a place that anybody can
write also has a bound on its number of values, checked before any value is built. Pure; takes a few milliseconds for megabytes.

Source: RFC 8259. Not here: whether the data is JSON, and of what shape (its parser).

>>> check_values(b'[1, {"a": "b"}]', most=4)
>>> check_values(b"[{},{},{},{}]", most=8)
Traceback (most recent call last):
    ...
ValueError: more than 8 values
"""

from __future__ import annotations

__all__ = ["check_values"]


def check_values(data: bytes, most: int) -> None:
    """Raise ValueError if `data`, read as JSON, could have more than `most` values.

    Each of these counts as a value: the complete text, the first member of each array or object, and the text after each
    comma. Commas and brackets in strings count too, because telling strings apart takes a hundred times as long. So choose
    `most` with room for the prose in the data.
    """
    if 1 + sum(map(data.count, (b",", b"[", b"{"))) > most:
        raise ValueError(f"more than {most} values")
