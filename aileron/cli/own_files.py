"""Files that a person wrote and names to a command, and files that a command writes for them, whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from aileron.cli.problem import Problem

__all__ = ["text_of", "write_tree", "write_whole"]

_MAX_BYTES = 1 << 20
"""1 MiB, four times the maximum size of an action file, so that the parser can report a file that is too large."""


def text_of(file: Path, *, fix: str | None = None) -> str:
    """Read a file that a person wrote.

    Raises Problem, without quoting the file, if it cannot be read, is too large or is not UTF-8. `fix` is the fix to suggest if
    the file does not exist.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise Problem.usage(f"{file} is larger than {_MAX_BYTES} bytes")
        return data.decode()
    except FileNotFoundError:
        raise Problem.missing(f"no such file: {file}", fix=fix) from None
    except OSError as error:
        raise Problem.usage(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise Problem.usage(f"{file} is not valid UTF-8 (byte {error.start})") from None


def write_whole(file: Path, data: bytes) -> None:
    """Write the file atomically: until all is written, an existing file stays. Raises Problem(usage) if that fails."""
    with _unfinished(file) as unfinished:
        try:
            with unfinished.open("xb") as opened:
                opened.write(data)
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)


def write_tree(directory: Path, files: dict[str, bytes]) -> None:
    """Write a new directory with these files, which are given by path. Raises Problem(usage) if that fails; nothing is
    written then.
    """
    import shutil

    with _unfinished(directory) as unfinished:
        try:
            for path, data in files.items():
                (unfinished / path).parent.mkdir(parents=True, exist_ok=True)
                (unfinished / path).write_bytes(data)
            unfinished.rename(directory)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


@contextlib.contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, for content that is moved to `path` when it is complete. Raises Problem if
    that fails.
    """
    try:
        yield path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    except OSError as error:
        raise Problem.usage(f"cannot write {path}: {error.strerror or error}") from None
