"""The base types of all request bodies."""

from __future__ import annotations

import msgspec

__all__ = ["Body", "SecretBody"]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request body: a JSON object. Unknown keys are refused. A field that has its default value is not sent."""


class SecretBody(Body, frozen=True, kw_only=True):
    """A request body that contains a secret. No message quotes it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<secret>)"
