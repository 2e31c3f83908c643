"""Replacements for CA certificate files, which libraries look for, but do not need, because the host does TLS.

A connector's archive has only Python files, so certifi's file and those of other libraries are missing. That must not
prevent the import of a library or the creation of a client. No trust is added: if a library does TLS itself, in a test
outside the jail, it accepts no certificate without these files.

Runs inside the jail. Not here: connections (http_client.py, httpx.py).
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any, Final

from aileron_connector import loop

__all__ = ["change_certifi", "change_requests", "change_ssl", "maybe_archive"]

_NOWHERE: Final = "/dev/null"
"""Path of an existing file that has no certificates."""


def change_certifi(module: ModuleType) -> None:
    """Change certifi.where() to return a path even if certifi's file was not packed. requests calls it during its import."""
    where = module.__dict__["where"]

    def where_or_nowhere() -> str:
        try:
            found: str = where()
        except OSError:
            return _NOWHERE
        return found

    module.__dict__["where"] = where_or_nowhere


def change_requests(module: ModuleType) -> None:
    """Change requests.adapters so that, within an invocation, it does not require a CA file before it connects."""
    original = module.HTTPAdapter.cert_verify

    def cert_verify(self: Any, *args: Any) -> None:
        if loop.maybe_current() is None:
            original(self, *args)

    module.HTTPAdapter.cert_verify = cert_verify


def change_ssl(module: ModuleType) -> None:
    """Change ssl to ignore a CA file whose path is inside an archive, where OpenSSL cannot read it."""
    original = module.SSLContext.load_verify_locations

    def load_verify_locations(self: Any, *args: Any, **options: Any) -> None:
        try:
            original(self, *args, **options)
        except NotADirectoryError:
            if maybe_archive(args[0] if args else options.get("cafile")) is None:
                raise

    module.SSLContext.load_verify_locations = load_verify_locations


def maybe_archive(path: Any) -> str | None:
    """Return the archive on sys.path that contains this path; None if the path is not in an archive."""
    return next((entry for entry in sys.path if os.path.isfile(entry) and str(path).startswith(f"{entry}/")), None)
