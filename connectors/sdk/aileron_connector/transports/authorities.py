"""Replacements for files of certificate authorities, which libraries look for but do not need here: the host speaks TLS.

A connector's archive holds only Python files, so certifi's file and those that some libraries include are not in it. That must
not prevent the import of a library or the creation of a client. This adds no trust: if a library does speak TLS by itself, in a
test outside the jail, an authority that was not loaded accepts no certificate.

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
"""Path of a file that exists, but has no certificates."""


def change_certifi(module: ModuleType) -> None:
    """Change certifi.where() to answer even if the file was not packed; requests calls it when it is imported."""
    where = module.__dict__["where"]

    def where_or_nowhere() -> str:
        try:
            found: str = where()
        except OSError:
            return _NOWHERE
        return found

    module.__dict__["where"] = where_or_nowhere


def change_requests(module: ModuleType) -> None:
    """Change requests.adapters to look for no file before each connection within an invocation."""
    original = module.HTTPAdapter.cert_verify

    def cert_verify(self: Any, *args: Any) -> None:
        if loop.maybe_current() is None:
            original(self, *args)

    module.HTTPAdapter.cert_verify = cert_verify


def change_ssl(module: ModuleType) -> None:
    """Change ssl to ignore a file of authorities inside the archive, which cannot be read."""
    original = module.SSLContext.load_verify_locations

    def load_verify_locations(self: Any, *args: Any, **options: Any) -> None:
        try:
            original(self, *args, **options)
        except NotADirectoryError:
            if maybe_archive(args[0] if args else options.get("cafile")) is None:
                raise

    module.SSLContext.load_verify_locations = load_verify_locations


def maybe_archive(path: Any) -> str | None:
    """Return the archive of modules on sys.path that this path lies in; None if it is a path of the file system."""
    return next((entry for entry in sys.path if os.path.isfile(entry) and str(path).startswith(f"{entry}/")), None)
