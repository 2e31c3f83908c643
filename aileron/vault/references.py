"""Secrets of the vault whose value is elsewhere: where it is, which value was approved, and what was fetched.

An entry of the vault has either a value or a reference. With a reference, what it has sealed is a *pin*: a random key, and the
HMAC-SHA256 of the approved value under that key. So a value that was changed elsewhere is found without keeping one here.

Rules
- What was fetched is in memory alone, sealed under the vault's key: it can be used while the vault is open, and by nothing else.
  It is given up when the key is, and when its entry is another.
- Only the approved value is ever kept: another one is refused before it could be lent, or searched for.
- Nothing of what is said of a reference is secret. It is in the file as it is, under the file's seal.

Source: docs/reference/vault-format.md; RFC 2104. Runs in the daemon. Not here: how a value is fetched (aileron/elsewhere), when
(daemon/secrets/elsewhere.py).
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Container
from typing import TYPE_CHECKING, Final

import msgspec

from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere

if TYPE_CHECKING:
    from aileron.vault.contents import SecretEntry

__all__ = ["PIN_BYTES", "FetchedValues", "check_elsewhere", "is_pinned", "pin_of"]

_KEY_BYTES: Final = 32
PIN_BYTES: Final = 2 * _KEY_BYTES
"""The key, and what HMAC-SHA256 makes of the value with it."""
_PROGRAM: Final = re.compile(r"(/[A-Za-z0-9_.+-]{1,64}){1,16}")
_TOKEN: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def check_elsewhere(elsewhere: Elsewhere) -> None:
    """ValueError says which part is not what it should be."""
    kind = elsewhere.parsed.kind
    if (elsewhere.program is None) != (kind == "vault"):
        raise ValueError(f"{elsewhere.reference} is read by a program if, and only if, it does not name a server")
    if elsewhere.program is not None and not _PROGRAM.fullmatch(elsewhere.program):
        raise ValueError(f"{elsewhere.program!a} is not the absolute path of a program")
    if kind == "vault" and elsewhere.token is None:
        raise ValueError(
            f"{elsewhere.reference} needs a token: store it with `aileron secret set TOKEN`, and add --from-token TOKEN"
        )
    if kind == "pass" and elsewhere.token is not None:
        raise ValueError("pass uses no token; leave --from-token out")
    if elsewhere.token is not None and not _TOKEN.fullmatch(elsewhere.token):
        raise ValueError(f"{elsewhere.token!a} is not a secret's name")


def pin_of(value: Secret) -> bytes:
    """What is kept of an approved value, `PIN_BYTES` long: it says whether another one is the same, and nothing of it."""
    key = os.urandom(_KEY_BYTES)
    return key + hmac.digest(key, value.reveal(), "sha256")


def is_pinned(pin: bytes, value: Secret) -> bool:
    """Whether this is the value that was approved."""
    key, digest = pin[:_KEY_BYTES], pin[_KEY_BYTES:]
    return hmac.compare_digest(digest, hmac.digest(key, value.reveal(), "sha256"))


class _Fetched(msgspec.Struct, frozen=True):
    entry: SecretEntry
    at_s: float


class FetchedValues:
    """What was fetched with one key of a vault. Shared by all generations under that key, and emptied with it."""

    def __init__(self) -> None:
        self._known: dict[str, _Fetched] = {}

    def put(self, entry: SecretEntry, at_s: float, stored: Container[str]) -> None:
        """Keep the entry with the value in place of the pin, fetched at `at_s` (s, of the clock that counts sleep). `stored` are
        the names that the vault has: what was fetched for others goes.
        """
        self._known = {name: known for name, known in self._known.items() if name in stored}
        self._known[entry.name] = _Fetched(entry, at_s)

    def of(self, entry: SecretEntry) -> SecretEntry | None:
        """The value of this very entry, sealed like any other; None: nothing was fetched yet."""
        found = self._known.get(entry.name)
        return found.entry if found is not None and _is_of(found.entry, entry) else None

    def fetched_at(self, entry: SecretEntry) -> float | None:
        """When that was (s, of the clock that counts sleep)."""
        found = self._known.get(entry.name)
        return found.at_s if found is not None and _is_of(found.entry, entry) else None

    def clear(self) -> None:
        """The key is gone, and so is this."""
        self._known.clear()


def _is_of(value: SecretEntry, entry: SecretEntry) -> bool:
    return (value.id, value.version, value.updated_ms) == (entry.id, entry.version, entry.updated_ms)
