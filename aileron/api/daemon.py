"""The daemon itself: health, status and stop; and the response to any removal.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

import msgspec

from aileron.api.approver import ApproverFacts
from aileron.api.secrets import VaultState

__all__ = [
    "GatewayUpstream",
    "Health",
    "Jail",
    "LaunchInForce",
    "LaunchedCell",
    "Removed",
    "Status",
    "Stopping",
]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the daemon answers requests."""

    status: str = "ok"


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the name, id or hash of what was removed or revoked."""

    removed: str


class Stopping(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the daemon stops after this response."""

    stopping: bool = True


class Jail(msgspec.Struct, frozen=True, kw_only=True):
    """The layers of confinement that are in force in the daemon's jails."""

    layers: list[str]


class GatewayUpstream(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a model's API, and whether the daemon adds the key to requests."""

    url: str
    has_key: bool


class LaunchedCell(msgspec.Struct, frozen=True, kw_only=True):
    """The settings under `launch.cell` that are in force (docs/reference/configuration.md). Sizes are in MiB."""

    allow_read: list[str]
    allow_write: list[str]
    allow_hosts: list[str]
    allow_env: list[str]
    ask_hosts: bool
    memory_mb: int
    processes: int
    open_files: int
    file_mb: int
    scratch_mb: int


class LaunchInForce(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with which `aileron launch` starts agents. `jail` says whether agents start in a cell, or is null if nobody
    has chosen yet. It is true as soon as config.toml says so, because a cell needs no approval. `problem` says why the
    approved settings cannot be determined, or is null; if it is not null, `cell` grants nothing, and `jail` is what an
    unverified file says.
    """

    jail: bool | None
    cell: LaunchedCell
    problem: str | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the state of the daemon, its start time (`started_at`, UTC), and the layers of its jails.
    `web` is the address of the pages. `listen` is the address of `daemon.listen`, or null if it is not set. `gateway`
    is keyed by the name of the API. `actions`, `connectors` and `pending` (open questions) are numbers.
    `settings_waiting` names the settings of config.toml that wait for approval, and `settings_at_start` those that take
    effect at the next start. `settings_problem` says why config.toml is not in force: it cannot be read, or the change
    cannot be recorded; it is null otherwise. `launch` has the settings of
    `aileron launch` that are in force.
    """

    version: str
    pid: int
    home: str
    started_at: str
    vault: VaultState
    web: str
    listen: str | None
    gateway: dict[str, GatewayUpstream]
    jail: Jail
    actions: int
    connectors: int
    pending: int
    approver: ApproverFacts
    settings_waiting: list[str]
    settings_at_start: list[str]
    settings_problem: str | None
    launch: LaunchInForce
