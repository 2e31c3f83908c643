"""Canonical JSON (RFC 8785) and digests of such JSON.

A digest must not depend on key order, spacing or number spelling, or one plan would have two digests. RFC 8785 numbers are
IEEE doubles, so an integer beyond 2**53 has no canonical form and is refused rather than rounded.

Two encoders produce the same spelling. msgspec with sorted keys writes the same bytes as RFC 8785, an order of magnitude faster
(2 µs against 28 µs for the record of a run), for values made of nothing but strings, integers within ±(2**53 - 1), booleans,
null, lists, tuples, and objects whose keys are ASCII. The encoders differ in floats (`1.0` is `1`, `1e16` is written out), and
in keys beyond ASCII, which RFC 8785 sorts as UTF-16 and msgspec as UTF-8. Values with floats or such keys go to the rfc8785
library. A test with arbitrary values checks that both agree on all other values.

>>> canonical_json({"b": 1, "a": "x"})
b'{"a":"x","b":1}'
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from aileron.model.sha256 import sha256

__all__ = ["canonical_json", "sha256_digest"]

_LARGEST_INT: Final = 2**53 - 1  # RFC 8785, section 3.2.2.3, by way of I-JSON (RFC 7493, section 2.2)


def canonical_json(value: Any) -> bytes:
    """Return the one canonical spelling of a JSON value.
    Raises ValueError for values that RFC 8785 cannot represent (NaN, integers from 2**53, lone surrogates).

    A float at or beyond 2**53 has a canonical spelling, but reads back as an integer that has none. So store such values
    unchanged and canonicalise them only to make a digest.
    """
    try:
        if _is_plain(value):
            return msgspec.json.encode(value, order="sorted")
        import rfc8785  # rarely needed, and a command would wait for it

        return rfc8785.dumps(value)
    except ValueError as error:  # raised by rfc8785, too, and for text that is not Unicode
        raise ValueError(f"cannot be written as canonical JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("cannot be written as canonical JSON: nested too deeply") from error


def sha256_digest(data: bytes) -> str:
    """Return the SHA-256 of `data` as `sha256:` and 64 lower-case hex digits."""
    return "sha256:" + sha256(data).hex()


def _is_plain(value: Any) -> bool:
    """Return whether the fast encoder (msgspec) is known to agree with RFC 8785 on the value.

    Only exact types count, because a subclass may be encoded differently.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is int:
        return bool(-_LARGEST_INT <= value <= _LARGEST_INT)
    if kind is dict:
        for key, inner in value.items():  # loops, not all(): half the time, on every record of every run
            if type(key) is not str or not key.isascii() or not (type(inner) is str or _is_plain(inner)):
                return False
        return True
    if kind is list or kind is tuple:  # both encoders spell these as an array
        return all(map(_is_plain, value))
    return False
