r"""SHA-256 without OpenSSL, which hashlib loads for the same digest: 2 ms in front of a command that makes one of a few bytes.

Pure. CPython's own code makes 200 MB/s, OpenSSL's 700: what is long is hashlib's.

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

_LONG_BYTES: Final = 256 << 10
"""256 KiB take as much longer in CPython's code as OpenSSL takes to be loaded, once: 1 ms."""


def sha256(data: bytes) -> bytes:
    """Return the digest, 32 bytes."""
    if len(data) < _LONG_BYTES:
        return bytes(_own()(data).digest())
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
