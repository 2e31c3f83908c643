"""Action files: listed, shown, added, switched on and off.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import Body

__all__ = [
    "ActionDetail",
    "ActionEntry",
    "ActionInput",
    "ActionList",
    "ActionSwitched",
    "AddAction",
    "AddedAction",
    "SwitchAction",
]


class AddAction(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/actions`. `file` is a name for messages."""

    text: str
    file: str
    replace: bool = False


class SwitchAction(Body, frozen=True, kw_only=True):
    """Body of `PATCH /v1/actions/{name}`."""

    enabled: bool


class ActionSwitched(msgspec.Struct, frozen=True, kw_only=True):
    """200: as it is now."""

    name: str
    enabled: bool


class ActionInput(msgspec.Struct, frozen=True, kw_only=True):
    """One argument."""

    name: str
    type: str
    required: bool
    description: str


class ActionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file. One with a mistake has its name, whether it is switched on, and its problem."""

    name: str
    enabled: bool
    problem: str | None
    version: str | UnsetType = UNSET
    source: str | UnsetType | None = UNSET
    """Where its file says it was published, as NAME@VERSION."""
    intent: str | UnsetType = UNSET
    gated: bool | UnsetType = UNSET
    inputs: list[ActionInput] | UnsetType = UNSET
    connectors: list[str] | UnsetType = UNSET
    """NAME@VERSION of each."""


class ActionList(msgspec.Struct, frozen=True, kw_only=True):
    """Sorted by name."""

    actions: list[ActionEntry]


class ActionDetail(ActionEntry, frozen=True, kw_only=True):
    """One, whole."""

    text: str
    body: str
    digest: str
    input_schema: dict[str, Any]
    """A JSON Schema of an object."""
    steps: list[dict[str, Any]]
    """As the file says them: docs/reference/action-file.md."""
    hosts: list[str]
    """`host:port`, sorted: what its connectors declare."""


class AddedAction(msgspec.Struct, frozen=True, kw_only=True):
    """200: it is in its place."""

    name: str
    replaced: bool
    bound: dict[str, str] | UnsetType = UNSET
    """The pin that was put in for the placeholder of each connector, NAME@VERSION."""
    needs: list[str] | UnsetType = UNSET
    """What a person still has to do before it can run, with the command."""
