"""A caller's request: one action, its arguments, and the caller.

Every invocation begins as this value, from which a plan is made.
"""

from __future__ import annotations

import enum

import msgspec

from aileron.model.json_value import JSONObject
from aileron.model.selecting import Selection

__all__ = ["Invocation", "Scope"]


class Scope(enum.StrEnum):
    """The permissions of a caller. They depend on the socket that a request arrived on, never on what the client claims."""

    AGENT = "agent"
    OPERATOR = "operator"


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """A request to run an action.

    `args` are JSON values not yet checked against the action's inputs. `binding` names the credential to use if several could
    serve (`KIND/SERVICE/IDENTITY` or its IDENTITY alone). `session` is the caller's session, `local` without a token. If the
    caller knowingly repeats an earlier run whose outcome is unknown, `again` is that run. `party` is set if the request counts
    against the share of a party other than the session (shares.py). `selection` has the actions that the caller can use; other
    actions do not exist for this caller.
    """

    action: str
    args: JSONObject
    scope: Scope
    session: str = "local"
    binding: str | None = None
    idempotency_key: str | None = None
    again: str | None = None
    party: str | None = None
    selection: Selection = Selection()
