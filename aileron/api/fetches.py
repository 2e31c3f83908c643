"""Fetches: a job fetches what is published, and a person sees it before it is installed.

Source: docs/reference/http-api.md#fetches.
"""

from __future__ import annotations

from typing import Literal, Self

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.actions import AddedAction
from aileron.api.bindings import BindingEntry
from aileron.api.body import Body
from aileron.api.connectors import InstalledConnector
from aileron.api.failures import ErrorBody
from aileron.model.consent import Subject, subject_kind

__all__ = [
    "ConsentSubject",
    "Download",
    "Fetch",
    "FetchFound",
    "FetchProblem",
    "FetchRequest",
    "FetchStatus",
    "InstallFetched",
    "Installed",
    "ReadSuite",
    "ResolveFetched",
    "SuiteRead",
]

FetchStatus = Literal["running", "ready", "failed", "cancelled", "installed", "asked"]


class FetchRequest(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/fetches`: what to fetch, so that it can be reviewed and then installed. `name` is
    `NAME@VERSION`; for an update, it is the name of the installed action; for a sync, it is empty. `hash` is the pin
    that a connector must have. `on_conflict` is for a connector, as in `POST /v1/connectors`. `replace` lets an action
    replace an installed action of the same name. The last three fields are for an update: `version` names another
    version than the newest, `prerelease` allows the newest to be a pre-release, and `theirs` drops the user's own
    edits.
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
    """Request body of `POST /v1/fetches/{id}/resolve`: the text of the update, with its conflicts resolved."""

    text: str


class InstallFetched(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/fetches/{id}/install`: an empty object."""


class ReadSuite(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/suites`. Give either `source`, where the suite is published
    (`SCHEME://OWNER/REPOSITORY/FILE@REF`), or `text`, its content. `file` is a name for error messages about `text`.
    """

    source: str | None = None
    text: str | None = None
    file: str = "the suite"


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of one download, in bytes. `total` is null if the size is not known."""

    name: str
    bytes: int
    total: int | None


class ConsentSubject(msgspec.Struct, frozen=True, kw_only=True):
    """The question that a person sees before an installation. `subject` is described in docs/reference/consents.md."""

    kind: str
    subject: Subject

    @classmethod
    def of(cls, subject: Subject) -> Self:
        """Return the question about this subject."""
        return cls(kind=subject_kind(subject), subject=subject)


class FetchProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A connector that a sync could not fetch, or an action file that it could not read."""

    name: str
    problem: str


class FetchFound(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about an update or a sync. A sync has `needed` and `problems`; all other fields are for an update."""

    action: str | UnsetType = UNSET
    from_: str | UnsetType = msgspec.field(name="from", default=UNSET)
    to: str | UnsetType = UNSET
    versions: list[str] | UnsetType = UNSET
    difference: str | UnsetType = UNSET
    """A unified diff from the installed file to the updated one."""
    edited: bool | UnsetType = UNSET
    conflicts: int | UnsetType = UNSET
    text: str | UnsetType = UNSET
    unmerged: str | UnsetType = UNSET
    """Reason why the person's edits could not be kept."""
    needed: int | UnsetType = UNSET
    problems: list[FetchProblem] | UnsetType = UNSET


class Fetch(FetchFound, frozen=True, kw_only=True):
    """Response body (200): one job, with the id `fetch`. `error` is present if `status` is `failed`. `consent` is what to
    show to a person before anything is installed; null if there is nothing to install. A sync also has `needed`, the number
    of pins of all actions, and `problems`. An update also has `action`; `from` and `to`, its versions; `versions`, all that
    are published; and `difference`, a unified diff from the installed file to the updated one. If another version was
    fetched, it also has `edited`, whether the person changed the file; `conflicts`, the number of places that both sides
    changed; `text`, the updated file; and, if the person's edits could not be kept, `unmerged`, which says why.
    """

    fetch: str
    what: str
    name: str
    status: FetchStatus
    progress: list[Download]
    consent: ConsentSubject | None
    error: ErrorBody | UnsetType = UNSET


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the connectors and actions that were installed together, and the credentials that were bound to
    them.
    """

    connectors: list[InstalledConnector]
    actions: list[AddedAction]
    bindings: list[BindingEntry]


class SuiteRead(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): what the suite would install: `NAME@VERSION` of each action. `ref` is the ref that the suite
    was read from; null if its text was given.
    """

    name: str
    description: str | None
    ref: str | None
    actions: list[str]
