"""C programs of tests/support/elf, compiled once for a test run: static, or dynamic against this machine's C library."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, Literal

import pytest

__all__ = ["LINKS", "Link", "compiled"]

Link = Literal["static", "dynamic"]
LINKS: Final = ("static", "dynamic")
_SOURCES: Final = Path(__file__).parent / "elf"
_HEADERS: Final = Path(__file__).resolve().parents[2] / "aileron" / "cli" / "templates" / "c"
"""Folder of the frames for C, which `aileron connector new --lang c` gives an author."""
_DEADLINE_S: Final = 60
_FIX: Final = "apt-get install gcc libc6-dev"


@functools.cache
def compiled(name: str, link: Link = "static", *options: str) -> bytes:
    """Return the program compiled from `name`.c. Without a compiler, fail in CI and skip elsewhere."""
    if shutil.which("gcc") is None:
        if os.environ.get("AILERON_MUST_JAIL"):
            pytest.fail(f"gcc is needed here: {_FIX}")
        pytest.skip(f"no gcc: {_FIX}")
    with tempfile.TemporaryDirectory(prefix="ail-elf-") as directory:
        program = Path(directory, name)
        command: list[str | Path] = [
            "gcc",
            "-std=c17",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            str(_SOURCES / f"{name}.c"),
            f"-I{_HEADERS}",
            "-o",
            program,
        ]
        done = subprocess.run(
            [*command, *(["-static"] if link == "static" else []), *options],
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr}\nfix: {_FIX}"
        return program.read_bytes()
