"""Detects that Aileron was installed again while the daemon runs, so that no process has modules of two versions.

Runs in the daemon, which imports most of itself after it is ready (supervise.py). From then on, each import is checked first:
if a package that is in use has been replaced since, the import is refused, and the error tells the caller to restart the
daemon. Modules that were imported before keep working.

Rules
- A package is identified by the file of its `__init__.py`, because an installation replaces all files of a package. The inode's
  change time is not compared, because installing the same files elsewhere by hard links changes it.
- Each package, ours or another's, is checked for its own modules only.
- This is no defense against an attacker: only the user can write there.

Source: importlib.abc.MetaPathFinder of Python's documentation; docs/adr/0072-rooms-imported-when-first-used.md.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from aileron.model.failure import AileronError, FailureClass

__all__ = ["keep_to_one_installation"]

_log = logging.getLogger(__name__)


def keep_to_one_installation() -> None:
    """Refuse all later imports from an installation other than the running one. They raise AileronError (internal_error)."""
    sys.meta_path.insert(0, _OneInstallation())


class _OneInstallation:
    """An import finder (`sys.meta_path`) that only checks each import, and leaves finding the module to later finders. It does
    not use the base class, which takes 15 ms to import.
    """

    def __init__(self) -> None:
        roots = {name for name in sys.modules if "." not in name} - sys.stdlib_module_names
        self._known = {root: _stamp(root) for root in roots}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None. Raise AileronError (internal_error) if the module would be imported from another installation."""
        root = fullname.partition(".")[0]
        if root in sys.modules and root not in sys.stdlib_module_names:
            self._check(root)
        return None

    def _check(self, root: str) -> None:
        found = _stamp(root)
        if self._known.setdefault(root, found) == found:
            return
        message = (
            f"{root} was installed again while the daemon runs, which can only go on with what it had begun to use: "
            "`aileron daemon restart`"
        )
        _log.error("%s", message)
        raise AileronError(FailureClass.INTERNAL_ERROR, message)


def _stamp(root: str) -> tuple[int, int, int, int] | None:
    """Return a stamp that changes when the package is replaced; None if the package has no file, or its file is gone."""
    path = getattr(sys.modules[root], "__file__", None)
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
