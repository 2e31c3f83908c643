"""Values of secrets and tokens of sign-ins that wait in memory until a person has decided about them.

Runs in the daemon. A value is stored nowhere else before it is approved, and is lost when the daemon ends. It is released only
to the question that was asked about it, which contains a commitment to the value: its hash with a nonce.

Source: docs/reference/consents.md. Not here: storing an approved value (handlers/).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from aileron.model.credential import OAuthGrant
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere

__all__ = ["MAX_HELD", "HeldValue", "HeldValues"]

MAX_HELD: Final = 16
"""Maximum number of values of secrets and sign-ins that are held in memory until a decision. Each has at most 64 KiB, and a
person sets them one by one.
"""


class HeldValue(msgspec.Struct):
    """A secret value that is held in memory while its question waits. `digest` is the digest of the question; None until
    the question is asked.
    """

    nonce: bytes
    value: Secret
    grant: OAuthGrant | None
    elsewhere: Elsewhere | None
    fetch: Callable[[], Awaitable[Secret]] | None
    digest: str | None = None

    @property
    def commitment(self) -> str:
        """The commitment to the value, which its question contains."""
        return hashlib.sha256(self.nonce + self.value.reveal()).hexdigest()

    def __repr__(self) -> str:
        return "<held value>"


class HeldValues:
    """The secret values that wait in memory for a decision. One instance per daemon."""

    def __init__(self) -> None:
        self._held: dict[str, HeldValue] = {}
        """Held values by the commitment to each."""

    def hold(
        self,
        value: Secret,
        grant: OAuthGrant | None = None,
        elsewhere: Elsewhere | None = None,
        fetch: Callable[[], Awaitable[Secret]] | None = None,
    ) -> str:
        """Hold a secret's value in memory until its question is decided. A sign-in's value is held with the sign-in's
        `grant`, and the value of a secret outside the vault with its place `elsewhere`. Return the commitment to the value,
        which the question contains. If too many values are held, the oldest is dropped; its question then fails and says how to
        ask again.

        With `fetch`, the secret is fetched only after the question is approved. In that case the commitment is computed from
        `value`.
        """
        if len(self._held) >= MAX_HELD:
            self._held.pop(next(iter(self._held)))
        held = HeldValue(secrets.token_bytes(32), value, grant, elsewhere, fetch)
        commitment = held.commitment
        self._held[commitment] = held
        return commitment

    def bind(self, commitment: str | None, digest: str) -> None:
        """Bind the value with this commitment to the question with this digest, which was just asked. Do nothing if no such
        value is held.
        """
        if commitment in self._held:
            self._held[commitment].digest = digest

    def forget(self, digest: str) -> None:
        """Forget the value that is held for the question with this digest, because the question was denied or withdrawn."""
        self._held = {commitment: held for commitment, held in self._held.items() if held.digest != digest}

    def release(self, commitment: str, digest: str, name: str, again: str) -> HeldValue:
        """Remove and return the value that is held for the question with this digest. `name` is the value's name in errors,
        and `again` the command with which a person asks again.

        Raises AileronError (invalid_request) if the value is no longer held. A value that is held for another question stays.
        """
        held = self._held.get(commitment)
        if held is None or held.digest != digest:
            raise AileronError(
                FailureClass.INVALID_REQUEST, f"{name} is no longer kept: {again}", boundary=Boundary.USER
            )
        del self._held[commitment]
        if held.commitment != commitment:
            raise AileronError(FailureClass.INTERNAL_ERROR, f"{name} is not what was kept: {again}")
        return held
