"""Services: add one that comes with Aileron, list the accounts that are connected, remove one with all that came with it.

Source: docs/reference/http-api.md#services.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from aileron.api.body import Body
from aileron.model.credential import Flow
from aileron.model.login import LoginDetails

__all__ = [
    "AddService",
    "RemovedService",
    "ServiceCredential",
    "ServiceEntry",
    "ServiceList",
    "ServiceState",
    "SignInToService",
    "UpdateService",
]

ServiceState = Literal["ready", "no_credential", "suspended", "expired", "failed", "locked"]


class ServiceCredential(Body, frozen=True, kw_only=True):
    """A stored secret that a service is to use, with the user name and the details of a login, as in `POST /v1/bindings`."""

    secret: str
    username: str | None = None
    details: LoginDetails | None = None


class AddService(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/services`. `service` is a service that comes with Aileron, and `identity` the name of the
    account, `me` for the first one. `actions` are names of the service's actions. `hosts`, `logins`, `region`, `client_id` and
    `client_secret` are for services whose servers or applications are the person's. `credentials` may be empty for a
    service that is signed in to. `directory` is the absolute path of a connector with its actions that was made on this
    machine, for instance from an OpenAPI document; `service` is then the name with which these actions begin.
    """

    service: str
    directory: str | None = None
    identity: str = "me"
    actions: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    region: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    credentials: tuple[ServiceCredential, ...] = ()


class SignInToService(AddService, frozen=True, kw_only=True):
    """Request body of `POST /v1/services/sign-ins`: a service that is added when the person has signed in. `credentials` are
    empty.
    """

    flow: Flow


class UpdateService(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/services/{name}/update`, without fields."""


class ServiceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An account that is connected. `name` is the name with which its actions begin. `service` is the service that comes with
    Aileron, or null for another connector. `account` is who it is connected as, if that is known. `problem` says why runs
    fail, and `fix` is the command that mends it; both are null if nothing is known to be wrong. `newer` is true if this version
    of Aileron has a newer connector of the service. Times are in UTC.
    """

    name: str
    service: str | None
    identity: str
    connector: str
    hosts: list[str]
    bindings: list[str]
    account: str | None
    actions: list[str]
    last_used_at: str | None
    state: ServiceState
    problem: str | None
    fix: str | None
    newer: bool


class ServiceList(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the accounts that are connected, sorted by name."""

    services: list[ServiceEntry]


class RemovedService(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): what was removed with an account. `at_provider` lists, for each sign-in, what its provider said when
    its tokens were revoked.
    """

    removed: str
    actions: list[str]
    bindings: list[str]
    secrets: list[str]
    connectors: list[str]
    at_provider: list[str]
