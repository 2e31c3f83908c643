"""The vault's key in the desktop's keyring: stores it, fetches it, and removes it.

Runs only in commands, when the user asks for it (`--keyring`, or Enter where it is offered); the daemon never talks to a keyring.
The `keyring` package is an extra and is imported here, when it is used. Which keyring it finds (Secret Service, KWallet, the one
that PYTHON_KEYRING_BACKEND names) is the user's choice, and they are told its name.

Rules
- A missing keyring is an ordinary case, and the error says what to use instead.
- A keyring may ask the person for its own password: it gets a minute, and then an alarm ends the wait.
- No message contains a key.

Source: docs/adr/0022-vault-slots.md; the `keyring` package's own documentation. Not here: what the key opens (vault/slots.py).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from aileron.cli.problem import USAGE, Problem
from aileron.extras import install_command

__all__ = ["KeyringEntry", "check", "fetch", "forget", "keep_new"]

_SERVICE = "aileron vault"
_KEY_BYTES = 32
_DEADLINE_S = 60
"""Seconds for the person to answer the keyring's own prompt."""
_T = TypeVar("_T")
_WITHOUT = "without it, use the passphrase or recovery codes"


class KeyringEntry(NamedTuple):
    """A key in a keyring: the key's name there, the key in base64, and the keyring's own name."""

    id: str
    key_base64: str
    keyring: str

    def __repr__(self) -> str:
        return f"<key {self.id} in {self.keyring}>"


def check() -> None:
    """Check that a usable keyring exists. Raises Problem otherwise, so that no person types a passphrase first."""

    def backend(keyring: Any) -> None:
        if isinstance(keyring.get_keyring(), keyring.backends.fail.Keyring):
            raise keyring.errors.NoKeyringError

    _with_keyring(backend)


def keep_new() -> KeyringEntry:
    """Make a new key for the vault, and store it in the desktop's keyring.

    Raises Problem if there is no keyring, or if the keyring does not return the stored key.
    """
    made = KeyringEntry(secrets.token_hex(16), base64.b64encode(os.urandom(_KEY_BYTES)).decode(), _name())

    def put(keyring: Any) -> str | None:
        keyring.set_password(_SERVICE, made.id, made.key_base64)
        found: str | None = keyring.get_password(_SERVICE, made.id)
        return found

    if _with_keyring(put) != made.key_base64:
        raise _no_use("it did not return the stored key")
    return made


def fetch(key_id: str) -> str:
    """Return the key with this name, in base64. Raises Problem if the keyring has no such key."""
    found = _with_keyring(lambda keyring: keyring.get_password(_SERVICE, key_id))
    if found is None:
        raise _no_use("it has no key for this vault")
    with contextlib.suppress(binascii.Error, ValueError, TypeError):
        if len(base64.b64decode(found, validate=True)) == _KEY_BYTES:
            return str(found)
    raise _no_use("its entry for this vault is not a valid key")


def forget(key_id: str) -> bool:
    """Remove a key from the keyring. Return whether that succeeded. A key that no longer exists is no error."""
    try:
        _with_keyring(lambda keyring: keyring.delete_password(_SERVICE, key_id))
    except Problem:
        return False
    return True


def _name() -> str:
    def name(keyring: Any) -> str:
        return str(keyring.get_keyring().name)

    return _with_keyring(name)


def _with_keyring(use: Callable[[Any], _T]) -> _T:
    try:
        import keyring.backends.fail
        from keyring.errors import KeyringError, NoKeyringError
    except ImportError:
        raise Problem(
            "the package `keyring` is not installed",
            exit_code=USAGE,
            name="invalid_request",
            why=f"the keyring needs an optional package; {_WITHOUT}",
            fix=install_command("keyring"),
        ) from None
    foreign: tuple[type[Exception], ...] = (KeyringError, OSError, RuntimeError, *_foreign())
    try:
        with _deadline():
            return use(keyring)
    except NoKeyringError:
        raise Problem(
            "no keyring found",
            exit_code=USAGE,
            name="invalid_request",
            why=f"there is no desktop session, or it has no keyring; {_WITHOUT}",
            fix="leave out --keyring",
        ) from None
    except TimeoutError:
        raise _no_use(f"no answer within {_DEADLINE_S} s") from None
    except foreign as error:
        raise _no_use(str(error) or type(error).__name__) from None


def _foreign() -> tuple[type[Exception], ...]:
    """Return the exception types of the Secret Service's library that `keyring` lets through; empty without that library."""
    try:
        from secretstorage.exceptions import SecretStorageException
    except ImportError:
        return ()
    return (SecretStorageException,)


@contextlib.contextmanager
def _deadline() -> Iterator[None]:
    """Raise TimeoutError in this block after _DEADLINE_S, whatever the keyring waits for."""

    def over(_signal: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(_DEADLINE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _no_use(why: str) -> Problem:
    return Problem(
        f"cannot use the keyring: {why}",
        exit_code=USAGE,
        name="invalid_request",
        why=_WITHOUT,
        fix="leave out --keyring",
    )
