"""The daemon itself: alive, what runs, stopped; and what the removal of anything answers.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

import msgspec

from aileron.api.approver import ApproverFacts
from aileron.api.secrets import VaultState

__all__ = ["GatewayUpstream", "Health", "Jail", "Removed", "Status", "Stopping"]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """It answers."""

    status: str = "ok"


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """200: what has this name is gone, or counts no more."""

    removed: str


class Stopping(msgspec.Struct, frozen=True, kw_only=True):
    """200: it ends after this answer."""

    stopping: bool = True


class Jail(msgspec.Struct, frozen=True, kw_only=True):
    """The isolation in force."""

    layers: list[str]


class GatewayUpstream(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model's API is, and whether the daemon adds the key."""

    url: str
    has_key: bool


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What runs, since when, and which layers are in force."""

    version: str
    pid: int
    home: str
    started_at: str
    vault: VaultState
    web: str
    """Where the pages are."""
    listen: str | None
    gateway: dict[str, GatewayUpstream]
    """By the name of the API."""
    jail: Jail
    actions: int
    connectors: int
    pending: int
    approver: ApproverFacts
    settings_waiting: list[str]
    """Settings of config.toml that nobody agreed to yet."""
    settings_at_start: list[str]
    """Those that are in force at the next start."""
    settings_problem: str | None
