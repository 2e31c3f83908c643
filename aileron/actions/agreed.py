"""The texts a person agreed to, kept by their digest: what a changed file is compared with.

Runs in the daemon. Trusts no file of its directory: a text is what its name says, by sha256, or it is not there. That one was
agreed to is not said here but in the vault; whoever adds a file here gains nothing, and whoever removes one makes the next change
of that action look like a new action.

Source: docs/reference/consents.md. Not here: which digest was agreed to (model/consent.py), what widens (widening.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aileron import files
from aileron.model.canonical import sha256_digest
from aileron.model.document import MAX_DOCUMENT_BYTES

__all__ = ["MAX_TEXT_BYTES", "AgreedTexts"]

MAX_TEXT_BYTES: Final = max(MAX_DOCUMENT_BYTES, 1 << 20)
"""An action file, or the certificates and settings of a configuration: 1 MiB, as for config.toml."""


class AgreedTexts:
    """The texts below `directory`, which is made when the first is put there."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory

    def put(self, text: str) -> str:
        """Keep a text, durably; its digest (`sha256:…`)."""
        data = text.encode()
        digest = sha256_digest(data)
        files.make_directory(self._directory)
        with files.open_directory(self._directory, files.OTHERS_MAY_WRITE) as directory:
            files.replace(directory, self._path(digest), data)
        return digest

    def maybe_get(self, digest: str) -> str | None:
        """The text of this digest; None where there is none, or another lies under its name."""
        try:
            with files.open_directory(self._directory, files.OTHERS_MAY_WRITE) as directory:
                data = files.read(directory, self._path(digest), MAX_TEXT_BYTES)
        except FileNotFoundError:
            return None
        return data.decode() if sha256_digest(data) == digest else None

    def _path(self, digest: str) -> Path:
        return self._directory / digest.removeprefix("sha256:")
