"""What is published, fetched by a job and shown before it is installed.

Source: docs/reference/http-api.md#fetches.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.actions import AddedAction
from aileron.api.body import Body
from aileron.api.connectors import InstalledConnector
from aileron.api.failures import ErrorBody
from aileron.model.consent import Subject

__all__ = [
    "ConsentSubject",
    "Download",
    "Fetch",
    "FetchFound",
    "FetchProblem",
    "FetchRequest",
    "FetchStatus",
    "InstallFetched",
    "InstalledTogether",
    "ReadSuite",
    "ResolveFetched",
    "SuiteRead",
]

FetchStatus = Literal["running", "ready", "failed", "cancelled", "installed", "asked"]


class FetchRequest(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/fetches`: something published is to be fetched and shown, so that it can be installed.

    `name` is NAME@VERSION, of an update the installed action's own name. `hash` is for a connector: the pin that it has to have.
    `version` and `prerelease` are for updates: another than the newest, and whether that may be a pre-release; `theirs`: without
    the user's own edits.
    """

    what: Literal["connector", "action", "update", "sync"]
    name: str = ""
    hash: str | None = None
    on_conflict: Literal["refuse", "replace", "keep_both"] = "refuse"
    replace: bool = False
    version: str | None = None
    prerelease: bool = False
    theirs: bool = False


class ResolveFetched(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/fetches/{id}/resolve`: the text of an update, its conflicts resolved."""

    text: str


class InstallFetched(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/fetches/{id}/install`: nothing needs to be said."""


class ReadSuite(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/suites`: where it is published, or its text and a name for messages."""

    source: str | None = None
    text: str | None = None
    file: str = "the suite"


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """How far it is. `total`: null where it was not said."""

    name: str
    bytes: int
    total: int | None


class ConsentSubject(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is to be shown before it is installed: docs/reference/consents.md."""

    kind: str
    subject: Subject


class FetchProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What a sync could not have."""

    name: str
    problem: str


class FetchFound(msgspec.Struct, frozen=True, kw_only=True):
    """What a job says beside what was fetched: all but the last two of an update, those of a sync."""

    action: str | UnsetType = UNSET
    from_: str | UnsetType = msgspec.field(name="from", default=UNSET)
    to: str | UnsetType = UNSET
    versions: list[str] | UnsetType = UNSET
    difference: str | UnsetType = UNSET
    """A unified diff of the file as it is here and as it would be."""
    edited: bool | UnsetType = UNSET
    conflicts: int | UnsetType = UNSET
    text: str | UnsetType = UNSET
    unmerged: str | UnsetType = UNSET
    """Why the person's edits could not be kept."""
    needed: int | UnsetType = UNSET
    problems: list[FetchProblem] | UnsetType = UNSET


class Fetch(FetchFound, frozen=True, kw_only=True):
    """One job."""

    fetch: str
    what: str
    name: str
    status: FetchStatus
    progress: list[Download]
    consents: list[ConsentSubject]
    error: ErrorBody | UnsetType = UNSET


class InstalledTogether(msgspec.Struct, frozen=True, kw_only=True):
    """200: what was put in its place."""

    connectors: list[InstalledConnector]
    action: AddedAction | None


class SuiteRead(msgspec.Struct, frozen=True, kw_only=True):
    """What it would have installed: NAME@VERSION of each action, and what it was read at."""

    name: str
    description: str | None
    ref: str | None
    actions: list[str]
