"""What kind of program a connector's bytes are, told by their first and last bytes.

A zip must also end exactly where its directory says. Then no manifest byte can be counted to the program or
the other way round: the pin covers the two joined, and a TOML text cannot hold the zip's closing record.

Pure. Source: elf(5); PKWARE APPNOTE 6.3 section 4.3.16 (end of central directory record).

>>> program_kind(b"#!/bin/sh")
Traceback (most recent call last):
    ...
ValueError: the connector is neither a zip nor a 64-bit ELF program
"""

from __future__ import annotations

import io
import zipfile
from typing import Final, Literal

__all__ = ["ProgramKind", "check_program", "program_kind"]

ProgramKind = Literal["python", "elf"]

_ELF64: Final = b"\x7fELF\x02"
_ZIP: Final = b"PK\x03\x04"
_ZIP_END: Final = b"PK\x05\x06"
_ZIP_END_BYTES: Final = 22


def program_kind(connector: bytes) -> ProgramKind:
    """`python` for a zip, `elf` for a program. ValueError for anything else."""
    if connector.startswith(_ELF64):
        return "elf"
    end = connector[-_ZIP_END_BYTES:]
    if connector.startswith(_ZIP) and end.startswith(_ZIP_END) and end.endswith(b"\0\0"):
        return "python"
    if connector.startswith(_ZIP):
        raise ValueError("the connector's zip does not end with its directory: it is cut short or has something behind")
    raise ValueError("the connector is neither a zip nor a 64-bit ELF program")


def check_program(connector: bytes) -> ProgramKind:
    """The same, and for a zip that it can be read and has a `__main__.py`. ValueError otherwise. Runs
    nothing.
    """
    kind = program_kind(connector)
    if kind == "python":
        try:
            with zipfile.ZipFile(io.BytesIO(connector)) as archive:
                names = archive.namelist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError) as error:
            raise ValueError(f"the connector's zip cannot be read: {error}") from None
        if "__main__.py" not in names:
            raise ValueError("the connector's zip has no __main__.py")
    return kind
