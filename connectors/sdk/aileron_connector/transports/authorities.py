"""Files of certificate authorities, which libraries look for and nobody here needs: TLS is the host's.

A connector's archive holds Python files only, so certifi's file and those that some libraries bring along are not in it. That
must not keep a library from being imported or a client from being made. Nothing is trusted by it that was not: where a library
does speak TLS by itself, in a test outside the jail, an authority that was not loaded accepts nothing.

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
"""A file that exists."""


def change_certifi(module: ModuleType) -> None:
    """certifi.where() answers also if the file was not packed; requests asks when it is imported."""
    where = module.__dict__["where"]

    def where_or_nowhere() -> str:
        try:
            found: str = where()
        except OSError:
            return _NOWHERE
        return found

    module.__dict__["where"] = where_or_nowhere


def change_requests(module: ModuleType) -> None:
    """requests.adapters: no look for a file before each connection."""
    original = module.HTTPAdapter.cert_verify

    def cert_verify(self: Any, *args: Any) -> None:
        if loop.maybe_current() is None:
            original(self, *args)

    module.HTTPAdapter.cert_verify = cert_verify


def change_ssl(module: ModuleType) -> None:
    """ssl: a file of authorities inside the archive is passed over, as it could be read by nobody."""
    original = module.SSLContext.load_verify_locations

    def load_verify_locations(self: Any, *args: Any, **options: Any) -> None:
        try:
            original(self, *args, **options)
        except NotADirectoryError:
            if maybe_archive(args[0] if args else options.get("cafile")) is None:
                raise

    module.SSLContext.load_verify_locations = load_verify_locations


def maybe_archive(path: Any) -> str | None:
    """The file from which modules are imported that has this path inside; None if it is a path of the file system."""
    return next((entry for entry in sys.path if os.path.isfile(entry) and str(path).startswith(f"{entry}/")), None)
