"""Bindings: which credential serves which connector; and the sign-ins that make some.

Source: docs/reference/bindings.md, docs/reference/sign-in.md.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import Body
from aileron.api.failures import ErrorBody
from aileron.model.credential import Flow, OAuthGrant, Reach

__all__ = [
    "AddBinding",
    "BeginSignIn",
    "BindingDetail",
    "BindingEntry",
    "BindingList",
    "BindingState",
    "BindingUser",
    "ChangeBinding",
    "RevokedBinding",
    "SignInState",
]

BindingState = Literal["ok", "suspended", "expired", "failed"]


class AddBinding(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/bindings`. `secret` is the name of a stored one."""

    connector: str
    name: str
    secret: str
    username: str | None = None


class ChangeBinding(Body, frozen=True, kw_only=True):
    """Body of `PATCH /v1/bindings/{name}`: others than before."""

    secret: str | None = None
    username: str | None = None


class BeginSignIn(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/sign-ins`. `replace`: for a name that is bound already."""

    connector: str
    name: str
    flow: Flow
    replace: bool = False


class BindingEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One; the name of its secret, never a value."""

    name: str
    connector: str
    kind: str
    username: str | None
    account: str | None
    secret: str
    created_at: str
    expires_at: str | None
    refreshed_at: str | None
    state: BindingState


class BindingList(msgspec.Struct, frozen=True, kw_only=True):
    """Sorted by name."""

    bindings: list[BindingEntry]


class BindingUser(msgspec.Struct, frozen=True, kw_only=True):
    """An installed version of its connector. `suspended`: what that asks for beyond the binding."""

    connector: str
    version: str
    suspended: list[str]
    actions: list[str]


class BindingDetail(BindingEntry, frozen=True, kw_only=True):
    """One: what it is for, and what uses it."""

    reach: Reach | None
    grant: OAuthGrant | None
    suspended: list[str]
    last_used_at: str | None
    used_by: list[BindingUser]


class RevokedBinding(msgspec.Struct, frozen=True, kw_only=True):
    """200: it serves nothing any more. `at_provider`, of a sign-in: `revoked`, `not offered` or `failed: …`."""

    revoked: bool
    removed: str
    at_provider: str | None


class SignInState(msgspec.Struct, frozen=True, kw_only=True):
    """How one is. Where the person has to go, which are the last five, is said once."""

    id: str
    status: Literal["waiting", "done", "failed", "cancelled"]
    connector: str
    name: str
    flow: Flow
    error: ErrorBody | UnsetType = UNSET
    result: Any = UNSET
    """A BindingEntry; or a ConsentAnswer, the question whether there may be one: nothing in either says which."""
    authorize_url: str | UnsetType = UNSET
    user_code: str | UnsetType = UNSET
    verification_uri: str | UnsetType = UNSET
    verification_uri_complete: str | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET
