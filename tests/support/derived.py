"""A cache of keys derived from passphrases, for one run of the tests: Argon2id at its full cost once, then remembered.

A derivation takes a quarter of a second of a processor, and the suite requested the same few a thousand times. Here each
passphrase, salt and cost is derived for real the first time, and all keys that are sealed in a run share one random salt, so
that what two tests seal under the same passphrase is one derivation. Everything around it is the product's: the bounds of the
cost, the sealing, what each key is bound to.

`remember` is for processes of tests: those that run them side by side, and the server of forked ones (forks.py), from which they
inherit it. Interpreters that are started and not forked derive each time, as do all attacks and the tests of derivation, of its
memory and its time (`real_derivation` in tests/conftest.py). The remembered keys lie in a folder of this user, 0700, by the
SHA-256 of what they are derived from: wrapping keys of passphrases that are in the tests.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import secrets
import shutil
import tempfile
from pathlib import Path

import aileron.passphrase
from aileron.model.secret import Secret
from aileron.passphrase import KEY_BYTES, SALT_BYTES, Cost

__all__ = ["NEW_SALT", "STRETCH", "folder", "is_first", "remember"]

STRETCH = aileron.passphrase.stretch
NEW_SALT = aileron.passphrase.new_salt
_SALT = "salt"


@functools.cache
def folder() -> Path:
    """Return the folder of this run, with its salt: made for the first process that asks and its forks, removed at its end."""
    path = Path(tempfile.mkdtemp(prefix="ail-derived-"))
    (path / _SALT).write_bytes(os.urandom(SALT_BYTES))
    atexit.register(_remove, os.getpid(), path)
    return path


def is_first(*what: str) -> bool:
    """Return whether this is the first call with `what` in this run: for work that is done for real once."""
    noted = folder() / hashlib.sha256("\0".join(what).encode()).hexdigest()
    try:
        noted.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def remember(path: Path) -> None:
    """Use the keys remembered in `path` from now on, in this process and its forks."""
    salt = (path / _SALT).read_bytes()

    def stretch(passphrase: Secret, salt: bytes, cost: Cost, wrapping: bytearray) -> None:
        made_of = [str(cost).encode(), salt, passphrase.reveal()]
        kept = path / hashlib.sha256(b"".join(len(part).to_bytes(8) + part for part in made_of)).hexdigest()
        with contextlib.suppress(FileNotFoundError):
            wrapping[:] = kept.read_bytes()
            return
        STRETCH(passphrase, salt, cost, wrapping)
        _keep(kept, bytes(wrapping))

    aileron.passphrase.stretch = stretch
    aileron.passphrase.new_salt = lambda: salt


def _keep(path: Path, key: bytes) -> None:
    """Store a key atomically, as another process may read it now. Ignore OSError: a test may have filled the disk."""
    assert len(key) == KEY_BYTES
    beside = path.with_name(f"{secrets.token_hex(8)}.new")
    try:
        beside.write_bytes(key)
        beside.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()


def _remove(made_by: int, path: Path) -> None:
    if os.getpid() == made_by:  # a fork inherits what is to be done at the end
        shutil.rmtree(path, ignore_errors=True)
