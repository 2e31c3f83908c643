"""A home whose daemon runs as another user than the tests, or as the same: a real process in either case, and the tests' child.

    with their_home(UID, python) as home:      # of tests/support/other_user.py
        home.ask("GET", "/healthz")

Only root can use it. Files that the tests give to the daemon by a path lie in `home.given`, which its user can read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aileron.client import Client, StartedDaemon
from tests.support.canary import scan
from tests.support.home import PASSPHRASE, DaemonHome
from tests.support.other_user import environment_of

__all__ = ["TheirHome", "their_home"]


class _Starting(Client):
    """A client that starts the daemon as its user."""

    def __init__(self, home: Path, user: int, python: Path, *, operator: bool = True) -> None:
        super().__init__(home, operator=operator)
        self._path, self._user, self._python = home, user, python

    def execute(self, told: int, environment: dict[str, str]) -> StartedDaemon:
        """Start the daemon as `Client.execute` does, but by another Python and as another user."""
        return subprocess.Popen(
            [str(self._python), "-m", "aileron.daemon", str(self._path), str(told)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=told,
            env=environment_of(self._path.parent),
            pass_fds=[told],
            start_new_session=True,
            cwd="/",
            user=self._user,
            group=self._user,
            extra_groups=[],
        )


class TheirHome(DaemonHome):
    """A home of `user`."""

    def __init__(self, folder: Path, user: int, python: Path) -> None:
        super().__init__(folder / "h")
        self.user: Final = user
        self.given: Final = folder / "given"
        self.operator = _Starting(self.path, user, python)
        self.agent = _Starting(self.path, user, python, operator=False)
        for path in (self.given, folder / "tmp"):
            path.mkdir()
        for path in (folder, folder / "tmp"):
            os.chown(path, user, user)

    def configure(self, text: str) -> None:
        """Write config.toml, and give it to the user."""
        super().configure(text)
        for path in (self.path, self.path / "config.toml"):
            os.chown(path, self.user, self.user)

    def give(self, file: Path) -> Path:
        """Copy a file into `given` and return the copy's path."""
        copied = Path(shutil.copy(file, self.given))
        copied.chmod(0o644)
        return copied

    def _install(self, built: bytes) -> dict[str, Any]:
        archive = self.given / "built.tar.gz"
        archive.write_bytes(built)
        archive.chmod(0o644)
        installed: dict[str, Any] = self.must("POST", "/v1/connectors", {"path": str(archive)})
        return installed


@contextlib.contextmanager
def their_home(user: int, python: Path) -> Iterator[TheirHome]:
    """Yield a home, and remove it at the end with its daemon. Fail if a file in it then holds the passphrase."""
    folder = Path(tempfile.mkdtemp(prefix="ail-"))
    folder.chmod(0o755)
    home = TheirHome(folder, user, python)
    try:
        yield home
        assert scan([folder], PASSPHRASE.encode()) == {}
    finally:
        home.stop()
        shutil.rmtree(folder, ignore_errors=True)
