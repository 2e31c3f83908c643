"""A real password store: Debian's `pass` and gpg(1), with a key made for it and a gpg-agent(1) of its own.

It lies in a directory of the test's own. The agent listens in the key's directory and is ended by its own protocol, so that no
other agent is touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, Self

import pytest

__all__ = ["PasswordStore", "needs_pass"]

_DONE_S: Final = 30.0
needs_pass = pytest.mark.skipif(
    (shutil.which("pass") is None or shutil.which("gpg") is None) and "CI" not in os.environ,
    reason="pass is not installed: apt-get install pass gnupg",
)
"""A decorator that skips a test if pass is missing. In CI it must be installed, or the test fails."""


class PasswordStore:
    """A store with one key. With a `passphrase`, the key is locked until it is typed, which never happens."""

    def __init__(self, passphrase: str = "") -> None:
        # Short: an agent's socket lies in it, whose path may have 107 bytes.
        self.path: Final = Path(tempfile.mkdtemp(prefix="pass-"))
        self._passphrase: Final = passphrase
        (self.path / "gnupg").mkdir(mode=0o700)
        self.environment: Final = {
            "HOME": str(self.path),
            "GNUPGHOME": str(self.path / "gnupg"),
            "PASSWORD_STORE_DIR": str(self.path / "store"),
        }
        """Environment that leads to the store."""

    def __enter__(self) -> Self:
        self._run(
            "gpg",
            "--batch",
            "--passphrase",
            self._passphrase,
            "--quick-gen-key",
            "store@example.test",
            "ed25519",
            "cert",
        )
        listed = self._run("gpg", "--batch", "--with-colons", "--list-keys")
        fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))
        self._run(
            *("gpg", "--batch", "--pinentry-mode", "loopback", "--passphrase", self._passphrase),
            *("--quick-add-key", fingerprint, "cv25519", "encr"),
        )
        self._run("pass", "init", fingerprint)
        self.forget()
        return self

    def __exit__(self, *_: object) -> None:
        self._run("gpgconf", "--kill", "all")
        shutil.rmtree(self.path, ignore_errors=True)

    def insert(self, entry: str, text: str) -> None:
        """Insert an entry with all its lines."""
        self._run("pass", "insert", "--multiline", "--force", entry, text=text)

    def remove(self, entry: str) -> None:
        """Remove an entry."""
        self._run("pass", "rm", "--force", entry)

    def forget(self) -> None:
        """Have the agent forget its passphrases."""
        self._run("gpg-connect-agent", "reloadagent", "/bye")

    def _run(self, *command: str, text: str = "") -> str:
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **self.environment}
        done = subprocess.run(
            command, input=text, env=environment, capture_output=True, text=True, timeout=_DONE_S, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout
