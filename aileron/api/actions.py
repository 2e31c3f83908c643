"""Action files: list, show, add, enable and disable.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import Body
from aileron.model.json_value import JSONObject

__all__ = [
    "ActionDetail",
    "ActionEntry",
    "ActionInput",
    "ActionList",
    "ActionResumed",
    "ActionSwitched",
    "AddAction",
    "AddedAction",
    "ResumeAction",
    "SwitchAction",
]


class AddAction(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/actions`. `text` is the content of the action file, and `file` is the name that error
    messages use for it. With `replace`, the file can replace an installed action of the same name.
    """

    text: str
    file: str
    replace: bool = False


class SwitchAction(Body, frozen=True, kw_only=True):
    """Request body of `PATCH /v1/actions/{name}`: whether the action is enabled."""

    enabled: bool


class ActionSwitched(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): whether the action is now enabled."""

    name: str
    enabled: bool


class ResumeAction(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/actions/{name}/resume`, which lifts the suspension of an action. With `unchanged`, no
    changed tool is accepted: the next run compares the tool again with the one that was imported, or that a person
    accepted last.
    """

    unchanged: bool = False


class ActionResumed(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the operations that were suspended and can run again. Empty if none was suspended."""

    name: str
    operations: list[str]


class ActionInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input of an action."""

    name: str
    type: str
    required: bool
    description: str


class ActionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An action file. A file with an error has only `name`, `enabled` and `problem`. Otherwise, `problem` is null.
    `source` and `connectors` name published artifacts as `NAME@VERSION`; `source` is null if the file is the person's
    own. `gated` says whether a person decides before each run. `suspended` lists the operations that are suspended
    because a server changed their tool; it is absent if there are none.
    """

    name: str
    enabled: bool
    problem: str | None
    version: str | UnsetType = UNSET
    source: str | UnsetType | None = UNSET
    intent: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    gated: bool | UnsetType = UNSET
    inputs: list[ActionInput] | UnsetType = UNSET
    connectors: list[str] | UnsetType = UNSET
    suspended: list[str] | UnsetType = UNSET


class ActionList(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): all action files, sorted by name."""

    actions: list[ActionEntry]


class ActionDetail(ActionEntry, frozen=True, kw_only=True):
    """Response body (200): one action with all its details. `text` is the whole file, and `digest` its sha256 digest.
    `input_schema` is the JSON Schema of the arguments, which are an object. `steps` are as written in the file
    (docs/reference/action-file.md). `hosts` are what its installed connectors declare, as `host:port`, sorted.
    """

    text: str
    body: str
    digest: str
    input_schema: JSONObject
    steps: list[JSONObject]
    hosts: list[str]


class AddedAction(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the installed action. Only the direct response of `POST /v1/actions` has `bound` and
    `needs`. `bound` maps `NAME@VERSION` of a connector to the pin that replaced its placeholder. `needs` lists what a
    person must still do before the action can run, each with its command.
    """

    name: str
    replaced: bool
    bound: dict[str, str] | UnsetType = UNSET
    needs: list[str] | UnsetType = UNSET
