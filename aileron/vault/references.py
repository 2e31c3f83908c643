"""Secrets of the vault whose value is stored outside the vault: their place, a pin of the approved value, and the fetched
values.

An entry of the vault has either a value or a reference. With a reference, its sealed part is a *pin*: a random key, and the
HMAC-SHA256 of the approved value under that key. So a change of the value outside the vault is detected without storing the
value in the vault.

Rules
- A fetched value is in memory only, sealed under the vault's key, so it can be used only while the vault is open. The value is
  dropped together with the key, and when its entry changes.
- Only the approved value is stored in memory: any other value is refused before it could be lent, or searched for.
- A reference is not secret. The file contains the reference in plain text, protected by the file's seal.

Source: docs/reference/vault-format.md; RFC 2104. Runs in the daemon. Not here: fetching a value (aileron/secret_stores), and
the decision when to fetch it (daemon/secrets/kept_in_stores.py).
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
"""Size of a pin in bytes: the random key, and the HMAC-SHA256 of the value under that key."""
_PROGRAM: Final = re.compile(r"(/[A-Za-z0-9_.+-]{1,64}){1,16}")
_TOKEN: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def check_elsewhere(elsewhere: Elsewhere) -> None:
    """Raise ValueError if a part of a reference (the place of a secret's value outside the vault) is invalid; the
    message names the part.
    """
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
    """Return the pin of an approved value, `PIN_BYTES` long. `is_pinned` compares another value with it.

    The pin reveals nothing about the value.
    """
    key = os.urandom(_KEY_BYTES)
    return key + hmac.digest(key, value.reveal(), "sha256")


def is_pinned(pin: bytes, value: Secret) -> bool:
    """Return whether `value` is the approved value from which this pin was made."""
    key, digest = pin[:_KEY_BYTES], pin[_KEY_BYTES:]
    return hmac.compare_digest(digest, hmac.digest(key, value.reveal(), "sha256"))


class _Fetched(msgspec.Struct, frozen=True):
    entry: SecretEntry
    at_s: float


class FetchedValues:
    """The fetched values of a vault's secrets that are stored outside it, encrypted with the vault's data key. All
    generations of the vault with that key share these values, which are dropped together with the key.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Fetched] = {}

    def put(self, entry: SecretEntry, at_s: float, stored: Container[str]) -> None:
        """Store the entry of a fetched secret, with the sealed value in place of the pin.

        `at_s` is the time of the fetch (s, of a clock that counts suspend time). `stored` has the names of the secrets in the
        vault; fetched values for other names are dropped.
        """
        self._known = {name: known for name, known in self._known.items() if name in stored}
        self._known[entry.name] = _Fetched(entry, at_s)

    def of(self, entry: SecretEntry) -> SecretEntry | None:
        """Return the entry of a secret with the fetched value, encrypted like a stored one, in place of the pin; None
        if the value was not fetched yet.
        """
        found = self._known.get(entry.name)
        return found.entry if found is not None and _is_of(found.entry, entry) else None

    def fetched_at(self, entry: SecretEntry) -> float | None:
        """Return the time at which the value for this entry was fetched (s, of a clock that counts suspend time), or
        None if it was not fetched yet.
        """
        found = self._known.get(entry.name)
        return found.at_s if found is not None and _is_of(found.entry, entry) else None

    def clear(self) -> None:
        """Drop all fetched values, because the key that encrypts them is no longer used."""
        self._known.clear()


def _is_of(value: SecretEntry, entry: SecretEntry) -> bool:
    return (value.id, value.version, value.updated_ms) == (entry.id, entry.version, entry.updated_ms)
