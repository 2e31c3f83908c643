"""The copy of the settings that a person approved last, in a file of the home.

Runs in the daemon, which reads it before the vault is open: any process of the same user could have written it. Code that is
about to run something compares the digest of the settings in force with the digest in the vault (consent_checks.py).

Source: docs/reference/consents.md. Not here: which settings a person decides about (aileron/config.py).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import msgspec

from aileron import files
from aileron.actions.approved_texts import MAX_TEXT_BYTES
from aileron.config import Settings
from aileron.model.failure import AileronError

__all__ = ["ApprovedSettings"]

_log = logging.getLogger(__name__)


class ApprovedSettings:
    """The file with a copy of the settings that were approved last. The copy is unverified until the vault is open."""

    def __init__(self, directory: Path) -> None:
        self._path: Final = directory / "settings.json"

    def maybe_read(self) -> Settings | None:
        """Return the approved settings according to the file; None if the file is missing or damaged."""
        try:
            with files.open_directory(self._path.parent, files.OTHERS_MAY_WRITE) as directory:
                data = files.read(directory, self._path, 2 * MAX_TEXT_BYTES)
            stored = msgspec.json.decode(data, type=dict[str, Any])
            return Settings().with_consented(stored)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, AileronError, ValueError) as error:
            _log.error("%s is not as it was written (%s): what it says is not used", self._path, error)
            return None

    def write(self, values: dict[str, Any]) -> None:
        """Write the settings to the file durably."""
        files.make_directory(self._path.parent)
        with files.open_directory(self._path.parent, files.OTHERS_MAY_WRITE) as directory:
            files.replace(directory, self._path, msgspec.json.encode(values, order="sorted"))
