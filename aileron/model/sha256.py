r"""SHA-256 without OpenSSL, which hashlib loads for the same digest: 2 ms in front of a command that makes one of a few bytes.

CPython's own code makes 350 MB/s, OpenSSL's 2,000. A process that hashes more than a few bytes in all goes over to hashlib.

Source: FIPS 180-4. Not here: digests as they are written (canonical.py).

>>> sha256(b"abc").hex()[:16]
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
"""In all: CPython's code takes as much longer for them as OpenSSL takes to be loaded, 1 to 2 ms."""
_hashed_bytes = 0


def sha256(data: bytes) -> bytes:
    """Return the digest, 32 bytes."""
    global _hashed_bytes
    if _hashed_bytes + len(data) < _FEW_BYTES:
        _hashed_bytes += len(data)
        return bytes(_own()(data).digest())
    _hashed_bytes = _FEW_BYTES
    import hashlib

    return hashlib.sha256(data).digest()


@cache
def _own() -> Callable[[bytes], Any]:
    """Return CPython's own maker of a hash; hashlib's in an interpreter that was built without."""
    for module in ("_sha2", "_sha256"):  # as of Python 3.12, and before
        with contextlib.suppress(ImportError):
            return importlib.import_module(module).sha256  # type: ignore[no-any-return]
    import hashlib

    return hashlib.sha256
