"""A publisher's options on the command line: the key to sign with, their application at a provider, hosts and logins to bind.

Runs in the author's commands. A private key or client secret is never part of a message.

Rules
- A key file that others can read is refused, as ssh does: any reader could sign as this publisher.
- AILERON_SIGNING_KEY holds the key itself, for CI. If it is set but empty, that is an error and not an unsigned release,
  because a workflow whose secret is missing sets it to an empty value. The variable is removed from the environment as soon as
  it has been read.
- A new key file is for its owner only, and never replaces another file.

Source: docs/how-to/publish-a-connector.md; sshd(8), FILES, for the modes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aileron.cli.problem import Problem, parsed
from aileron.cli.prompts import text_in

if TYPE_CHECKING:
    from aileron.model.login import LoginTarget
    from aileron.model.names import HostPort
    from aileron.registry.connector_build import Application
    from aileron.registry.signatures import SigningKey

__all__ = ["KEY_VARIABLE", "application", "hosts", "logins", "maybe_signing_key", "write_new_key"]

KEY_VARIABLE = "AILERON_SIGNING_KEY"


def hosts(given: Sequence[str] | None, command: str) -> list[HostPort]:
    """Parse the values of `--host`.

    Raises Problem for an invalid value; `command` is the command whose help the message suggests.
    """
    from aileron.model.names import HostPort

    return [parsed("--host", HostPort.parse, name, fix=f"{command} --help") for name in given or []]


def logins(given: Sequence[str] | None, command: str) -> list[LoginTarget]:
    """Parse the values of `--login`.

    Raises Problem for an invalid value; `command` is the command whose help the message suggests.
    """
    from aileron.model.login import LoginTarget

    return [parsed("--login", LoginTarget.parse, text, fix=f"{command} --help") for text in given or []]


def application(client_id: str | None, client_secret_file: str | None, command: str) -> Application | None:
    """Return the application that `--client-id` and `--client-secret-file` describe; None if neither is given."""
    from aileron.model.secret import Secret
    from aileron.registry.connector_build import Application

    if client_id is None:
        if client_secret_file is not None:
            raise Problem.usage("--client-secret-file requires --client-id", fix=f"{command} --help")
        return None
    secret = None if client_secret_file is None else text_in("--client-secret-file", client_secret_file)
    return Application(client_id=client_id, client_secret=Secret(secret.encode()) if secret else None)


def maybe_signing_key(file: Path | None) -> SigningKey | None:
    """Return the key from `--key`, or else from AILERON_SIGNING_KEY; None if neither is given.

    Raises Problem for an invalid or unprotected key.
    """
    from aileron.model.secret import Secret
    from aileron.registry.signatures import SigningKey  # whose errors quote nothing of the key

    words = os.environ.pop(KEY_VARIABLE, None)
    if file is not None:
        return parsed(f"--key {file}:", SigningKey.parse, Secret(_read_key(file)))
    if words is None:
        return None
    if not words.strip():
        raise Problem.usage(
            f"{KEY_VARIABLE} is set but empty",
            why="the secret does not exist, or this job cannot use it",
            fix=f"gh secret set {KEY_VARIABLE} < FILE",
        )
    return parsed(f"{KEY_VARIABLE}:", SigningKey.parse, Secret(words.encode()))


def write_new_key(file: Path, key: SigningKey) -> None:
    """Write a key file that only its owner can read.

    Raises Problem if the file exists, because it may be the only copy of another key.
    """
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as opened:
            os.fchmod(opened.fileno(), 0o600)
            opened.write(key.to_pem().reveal())
            opened.flush()
            os.fsync(opened.fileno())
    except FileExistsError:
        raise Problem.usage(
            f"{file} already exists; keys are never overwritten", fix=f"--key {file} uses it; --key FILE makes another"
        ) from None
    except OSError as error:
        raise Problem.usage(f"cannot write {file}: {error.strerror or error}") from None


def _read_key(file: Path) -> bytes:
    from aileron.registry.signatures import MAX_KEY_FILE_BYTES

    try:
        # O_NONBLOCK: a FIFO in its place must not hold us; it is refused below.
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            _check_kept(file, os.fstat(opened.fileno()))
            data = opened.read(MAX_KEY_FILE_BYTES + 1)
    except FileNotFoundError:
        raise Problem.missing(f"--key {file}: no such file") from None
    except OSError as error:
        raise Problem.usage(f"--key {file}: {error.strerror or error}") from None
    if len(data) > MAX_KEY_FILE_BYTES:
        raise Problem.usage(f"--key {file} is larger than {MAX_KEY_FILE_BYTES} bytes, so it is not a key")
    return data


def _check_kept(file: Path, status: os.stat_result) -> None:
    """Check that the key is in a regular file that only its owner can use. Raises Problem otherwise."""
    if not stat.S_ISREG(status.st_mode):
        raise Problem.usage(f"--key {file} is not a regular file")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        why = "anyone who can read it can sign as you; if it may have been read, create a new key"
        raise Problem.usage(f"--key {file} is readable by others (mode {mode:04o})", why=why, fix=f"chmod 600 {file}")
