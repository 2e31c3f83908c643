"""Compile a connector: the program that does it, in a jail of its own. Not imported by the daemon, which only sends its text in.

Runs in a jail, as `__main__.py` of an archive that has the connector's archive beside it; needs nothing but the standard library.
Reads that and writes it back, with bytecode beside every source, to descriptor 4. Runs no line of the connector.

What is in the archive is asked of zipimport and nobody else, because it is zipimport that will read the outcome: to two readers
one archive can be two programs. A module that cannot be compiled stays source, and fails where it is imported, as it would have.

Source: PEP 552 for the header; zipimport, which takes `.pyc` before `.py` and source where the magic number is another's.
Not here: what is done with the outcome (bytecode.py).
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import os
import sys
import warnings
import zipfile
import zipimport
from typing import Final

__all__ = ["CONNECTOR", "MAIN", "main"]

MAIN: Final = "__main__.py"
CONNECTOR: Final = "connector"
_OUT: Final = 4
_COPY: Final = "/tmp/connector"  # noqa: S108 - the jail's own
_UNCHECKED_HASH: Final = (0b01).to_bytes(4, "little")


def main() -> None:
    """Read the connector beside this program, write it with bytecode."""
    warnings.simplefilter("ignore")
    here = sys.argv[0]
    with zipfile.ZipFile(here) as archive, open(_COPY, "wb") as copy:
        copy.write(archive.read(CONNECTOR))
    out = memoryview(_with_bytecode(zipimport.zipimporter(_COPY), here))
    while out:
        out = out[os.write(_OUT, out) :]


def _with_bytecode(connector: zipimport.zipimporter, runs_at: str) -> bytes:
    names = sorted(vars(connector)["_files"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            data = b"" if name.endswith("/") else connector.get_data(name)
            archive.writestr(zipfile.ZipInfo(name), data)
            if name.endswith(".py") and f"{name}c" not in names and (code := _compiled(data, f"{runs_at}/{name}")):
                archive.writestr(zipfile.ZipInfo(f"{name}c"), code)
    return packed.getvalue()


def _compiled(source: bytes, path: str) -> bytes | None:
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + importlib.util.source_hash(source) + marshal.dumps(code)


if __name__ == "__main__":
    main()
