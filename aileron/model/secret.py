"""Secret bytes, wrapped so that they are never shown by accident.

A `Secret` prints as `<secret>` and refuses to be formatted, pickled, used as a dict key or put in JSON, so that a stray
f-string, log call or traceback does not show it. Only `reveal()` returns the bytes, and one grep finds every caller.

Used in the daemon and in the commands that read a secret from standard input. Not here: storing secrets
(vault/), lending a secret for a request (vault/lend.py). Python cannot promise that a copy is gone from memory: see
docs/explanation/threat-model.md.

>>> Secret(b"hunter2-hunter2")
<secret>
"""

from __future__ import annotations

from typing import Final, NoReturn, final

__all__ = ["Secret"]


@final
class Secret:
    """A wrapper for secret `bytes`. Compare with `==` (constant time); read with `reveal()`."""

    __slots__ = ("_value",)
    __hash__ = None  # type: ignore[assignment]  # a secret is never a key of anything

    def __init__(self, value: bytes) -> None:
        if not isinstance(value, bytes):
            raise TypeError("a Secret wraps bytes")  # the value itself must not reach the message
        self._value: Final = value

    def reveal(self) -> bytes:
        """Return the secret bytes. Callers store them only in a local variable, and no longer than the request needs them."""
        return self._value

    def __len__(self) -> int:
        return len(self._value)

    def __eq__(self, other: object) -> bool:
        import hmac  # hashlib comes with it: 2 ms, and few compare secrets

        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    def __repr__(self) -> str:
        return "<secret>"

    __str__ = __repr__

    def __format__(self, spec: str) -> NoReturn:
        raise TypeError("a Secret is not formatted: call reveal() where the bytes are needed")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Secret is not pickled or copied")

    def __bytes__(self) -> NoReturn:
        raise TypeError("a Secret is not bytes: call reveal() where the bytes are needed")
