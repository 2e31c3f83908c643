"""Bindings, which say which credential serves which connector; and sign-ins, which create bindings.

Source: docs/reference/bindings.md, docs/reference/sign-in.md.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import Body
from aileron.api.failures import ErrorBody
from aileron.model.client_certificate import CertificateFacts
from aileron.model.credential import Flow, OAuthGrant, Reach
from aileron.model.login import LoginDetails
from aileron.model.secret_reference import Elsewhere

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

BindingState = Literal["ok", "suspended", "expired", "failed", "unknown"]


class AddBinding(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/bindings`. `name` is `KIND/SERVICE/IDENTITY`, and `secret` is the name of a stored
    secret. `details` are what a login needs in addition to the user name.
    """

    connector: str
    name: str
    secret: str
    username: str | None = None
    details: LoginDetails | None = None


class ChangeBinding(Body, frozen=True, kw_only=True):
    """Request body of `PATCH /v1/bindings/{name}`: new values. A field that is absent or null keeps its current
    value.
    """

    secret: str | None = None
    username: str | None = None
    details: LoginDetails | None = None


class BeginSignIn(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/sign-ins`. `name` is `KIND/SERVICE/IDENTITY`. Set `replace` if a binding of this name
    already exists. `username` is for a connector that logs in with the sign-in: the account's name at the service, if
    it is not the name that the provider uses.
    """

    connector: str
    name: str
    flow: Flow
    replace: bool = False
    username: str | None = None


class BindingEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A binding. `secret` is the name of its secret, never a value. `account` is for display only. For a sign-in,
    `expires_at` and `refreshed_at` are times of its access token. For a client certificate, `expires_at` is the
    certificate's, known only while the vault is unlocked. A time that does not apply or is not known is null. Times are
    in UTC. `details` are those of a login, or absent. `elsewhere` is the place of a secret that is stored outside the
    vault; it is absent if the vault has the value.
    """

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
    details: LoginDetails | UnsetType = UNSET
    elsewhere: Elsewhere | UnsetType = UNSET


class BindingList(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): all bindings, sorted by name."""

    bindings: list[BindingEntry]


class BindingUser(msgspec.Struct, frozen=True, kw_only=True):
    """An installed version of the binding's connector. `suspended` lists what this version requests beyond the
    binding's reach, and `actions` the actions that are pinned to this version.
    """

    connector: str
    version: str
    suspended: list[str]
    actions: list[str]


class BindingDetail(BindingEntry, frozen=True, kw_only=True):
    """Response body (200): one binding, the reach it was approved for, and the connector versions and actions that use it.
    `reach` is null if the binding was created before reaches were recorded. `grant` is null unless the binding is a sign-in.
    `certificate` has the public facts about a client certificate, and is absent for other kinds and while the vault is locked.
    `suspended` lists what the installed versions of its connector request beyond `reach`. `last_used_at` (UTC) is null if no
    recent request of the connector used the binding.
    """

    reach: Reach | None
    grant: OAuthGrant | None
    suspended: list[str]
    last_used_at: str | None
    used_by: list[BindingUser]
    certificate: CertificateFacts | UnsetType = UNSET


class RevokedBinding(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the binding is revoked and no longer serves a connector. For a sign-in, `at_provider` is
    `revoked`, `not offered` or `failed: …`; for a stored secret, it is null.
    """

    revoked: bool
    removed: str
    at_provider: str | None


class SignInState(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the state of one sign-in. The last five fields say where the person must sign in, and until
    when (UTC); only the response of `POST /v1/sign-ins` has them. `error` is present if `status` is `failed`. `result`
    is present if it is `done`: a BindingEntry, or a ConsentAnswer if a person must approve the binding first. No field
    says which of the two it is.
    """

    id: str
    status: Literal["waiting", "done", "failed", "cancelled"]
    connector: str
    name: str
    flow: Flow
    error: ErrorBody | UnsetType = UNSET
    result: Any = UNSET
    authorize_url: str | UnsetType = UNSET
    user_code: str | UnsetType = UNSET
    verification_uri: str | UnsetType = UNSET
    verification_uri_complete: str | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET
