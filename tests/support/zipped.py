"""Zip applications, for tests: programs of Python as jails get them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

__all__ = ["zipped"]


def zipped(main: str, files: Mapping[str, str] | None = None) -> bytes:
    """Return a zip application that runs `main`, with these other files in it by name."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in {"__main__.py": main, **(files or {})}.items():
            archive.writestr(name, text)
    return data.getvalue()
