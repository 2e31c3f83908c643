"""A limit on the number of values in JSON from strangers, checked before it is parsed.

A bound on bytes does not bound memory: `{},` has three bytes and becomes 72. So JSON from a place that anybody can write has a
bound on its values, too, which is checked before any of them is built. Pure; a few milliseconds for megabytes.

Source: RFC 8259. Not here: whether it is JSON, and of what shape (its parser).

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

    A value is the whole text, the first of its array or object, or stands after a comma. Commas and brackets in strings
    count, too, so the bound of a format has room for its prose: telling strings apart takes a hundred times as long, in one
    go.
    """
    if 1 + sum(map(data.count, (b",", b"[", b"{"))) > most:
        raise ValueError(f"more than {most} values")
