r"""SHA-256 without OpenSSL. hashlib loads OpenSSL, which takes 2 ms, too long for a command that hashes a few bytes.

CPython's own code makes 350 MB/s, OpenSSL's 2,000. A process that hashes more than a few bytes in total switches to hashlib.

Source: FIPS 180-4. Not here: the text form of digests (canonical.py).

>>> sha256(b"a", b"bc").hex()[:16]
'ba7816bf8f01cfea'
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, Final

__all__ = ["sha256"]

_FEW_BYTES: Final = 512 << 10
"""Number of bytes that a process hashes before it switches to hashlib. For so few, CPython's slower code loses no more than the
1 to 2 ms that loading OpenSSL takes.
"""
_hashed_bytes = 0


def sha256(*parts: bytes) -> bytes:
    """Return the digest (32 bytes) of the concatenated parts."""
    global _hashed_bytes
    _hashed_bytes = min(_hashed_bytes + sum(map(len, parts)), _FEW_BYTES)
    if _hashed_bytes < _FEW_BYTES:
        digest = _own()()
    else:
        import hashlib

        digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return bytes(digest.digest())


@cache
def _own() -> Callable[[], Any]:
    """Return CPython's own SHA-256 constructor; if the interpreter was built without it, return hashlib's."""
    for module in ("_sha2", "_sha256"):  # as of Python 3.12, and before
        with contextlib.suppress(ImportError):
            return importlib.import_module(module).sha256  # type: ignore[no-any-return]
    import hashlib

    return hashlib.sha256
