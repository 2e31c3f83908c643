"""What a caller asks: one action, its arguments, and who asks. The first type on the road of an invocation."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from aileron.model.selecting import Selection

__all__ = ["Invocation", "Scope"]


class Scope(enum.StrEnum):
    """What a caller may do. It is a property of the socket a request came in on, never the client's word."""

    AGENT = "agent"
    OPERATOR = "operator"


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """One request to run an action.

    `args` are JSON values not yet checked against the action's inputs. `binding` names the credential to use when several
    could serve (`KIND/SERVICE/IDENTITY` or its IDENTITY alone). `session` is the caller's session, `local` without a token.
    `again` is a run of the same whose outcome is unknown, and which the caller repeats knowing that. `party` is whose share it
    counts against, where that is not the session's own (shares.py). `selection` is what the caller can use: another action does
    not exist for it.
    """

    action: str
    args: dict[str, Any]
    scope: Scope
    session: str = "local"
    binding: str | None = None
    idempotency_key: str | None = None
    again: str | None = None
    party: str | None = None
    selection: Selection = Selection()
