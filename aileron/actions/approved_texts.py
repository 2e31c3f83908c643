"""Store of the texts that a person consented to, by digest. Changed files are compared with these texts.

Runs in the daemon. Trusts no file of its directory: a stored text counts only if its sha256 digest is its file's name. The
vault, not this store, says which texts were consented to. Adding a file here therefore gains nothing; removing one makes the
next change of that action look like a new action.

Source: docs/reference/consents.md. Not here: which digest has consent (model/consent.py), which changes widen a consent
(widening.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aileron import files
from aileron.model.canonical import sha256_digest
from aileron.model.document import MAX_DOCUMENT_BYTES

__all__ = ["MAX_TEXT_BYTES", "ApprovedTexts"]

MAX_TEXT_BYTES: Final = max(MAX_DOCUMENT_BYTES, 1 << 20)
"""1 MiB: maximum size of a stored text in bytes, as for config.toml.

Texts are action files, or a configuration's certificates and settings.
"""


class ApprovedTexts:
    """Store of texts that a person approved, in `directory`, by digest. The directory is created with the first text."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory

    def put(self, text: str) -> str:
        """Store a text durably and return its digest (`sha256:…`)."""
        data = text.encode()
        digest = sha256_digest(data)
        files.make_directory(self._directory)
        with files.open_directory(self._directory, files.OTHERS_MAY_WRITE) as directory:
            files.replace(directory, self._path(digest), data)
        return digest

    def maybe_get(self, digest: str) -> str | None:
        """Return the stored text with this digest; None if there is none, or if its file has other content."""
        try:
            with files.open_directory(self._directory, files.OTHERS_MAY_WRITE) as directory:
                data = files.read(directory, self._path(digest), MAX_TEXT_BYTES)
        except FileNotFoundError:
            return None
        return data.decode() if sha256_digest(data) == digest else None

    def _path(self, digest: str) -> Path:
        return self._directory / digest.removeprefix("sha256:")
