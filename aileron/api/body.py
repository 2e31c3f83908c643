"""What the bodies of all requests have in common."""

from __future__ import annotations

import msgspec

__all__ = ["Body", "SecretBody"]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of a request: a JSON object whose unknown keys are refused. What is as it would be unsaid is not sent."""


class SecretBody(Body, frozen=True, kw_only=True):
    """One with a secret in it, which no message quotes."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<secret>)"
