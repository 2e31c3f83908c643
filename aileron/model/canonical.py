"""Canonical JSON (RFC 8785) and the digests made of it.

A digest must not depend on key order, spacing or number spelling, or the same plan would have two. RFC 8785 numbers are
IEEE doubles, so an integer beyond 2**53 has no canonical form: it is refused rather than rounded.

>>> canonical_json({"b": 1, "a": "x"})
b'{"a":"x","b":1}'
"""

from __future__ import annotations

import hashlib
from typing import Any

import rfc8785

__all__ = ["canonical_json", "sha256_digest"]


def canonical_json(value: Any) -> bytes:
    """The one spelling of a JSON value. ValueError for what JSON or RFC 8785 cannot say (NaN, 2**53 and up)."""
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise ValueError(f"no canonical JSON form: {error}") from error


def sha256_digest(data: bytes) -> str:
    """`sha256:` and 64 lower-case hex digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()
