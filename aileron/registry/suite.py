"""Suites: TOML files that name actions to install together, and the addresses of such files.

Pure. The file is untrusted and not signed: each action that it lists is fetched, checked and consented to like any other. An
unknown key is an error with file and line.

Rules
- A suite has exactly the keys `name`, `description` and `actions`.
- An entry is a path in the suite's own repository, in the version at which the suite was read; or a full NAME@VERSION.
- Only a tag states a version. In a suite from a commit, a branch or a local file, every entry must be a full NAME@VERSION.
- Two entries that would become the same installed action are an error, because only one of them could be installed.

Source: docs/reference/suite.md, checked against `SCHEMA`. Not here: fetching (forges/), the tag of `latest` (the forge
determines it), installing.

>>> SuiteSource.parse("github://acme/tools/suites/work.toml@v1.2.0").path
'suites/work.toml'
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Self

import msgspec

from aileron.model.document import Field, Kind, Table, read_document, refusal
from aileron.model.failure import Boundary
from aileron.model.names import ACTION_NAME, Fqn, check_semver, tool_name
from aileron.registry.artifact import ArtifactRequest
from aileron.registry.forges.forge import check_ref
from aileron.registry.keyring import Authority

__all__ = [
    "LATEST",
    "MAX_ENTRIES",
    "SCHEMA",
    "InRepository",
    "Suite",
    "SuiteEntry",
    "SuiteSource",
    "parse_suite",
    "wanted",
]

LATEST: Final = "latest"
"""Ref, in place of a tag, for the newest release."""
MAX_ENTRIES: Final = 100
"""Maximum number of actions per suite: a person decides on them one by one; the largest known suite has twelve."""
_MAX_NAME: Final = 100
"""Maximum number of characters in a suite's name: it must fit on one line of a terminal."""
_MAX_DESCRIPTION: Final = 500
"""Maximum number of characters in a suite's description: a few lines, read before a person consents to anything."""
_MAX_ENTRY: Final = 512
"""Maximum number of characters in an entry: a scheme, four path segments of 100 characters, and a version."""
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SUFFIX: Final = ".toml"

SCHEMA: Final = {
    "name": Field(
        Kind.STRING, required=True, says="for people, one line", bounds=range(1, _MAX_NAME + 1), example="Work tools"
    ),
    "description": Field(
        Kind.STRING,
        required=True,
        says="what it is for, one line",
        bounds=range(1, _MAX_DESCRIPTION + 1),
        example="Mail and tickets for a small team.",
    ),
    "actions": Field(
        Kind.STRINGS,
        required=True,
        says="[entries](#entries), in the order in which they are installed",
        bounds=range(1, MAX_ENTRIES + 1),
        example=["actions/send-email"],
    ),
}


class SuiteSource(msgspec.Struct, frozen=True, order=True):
    """A suite's file in a repository, at a tag, a commit, or `latest`."""

    repository: Authority
    path: str
    ref: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `SCHEME://OWNER/REPOSITORY/FILE.toml@REF`. Raises ValueError if the text is not valid."""
        place, separator, ref = text.partition("@")
        if not separator:
            raise ValueError(f"{text!r} has no ref; expected FILE@TAG, FILE@COMMIT or FILE@{LATEST}")
        name = Fqn.parse(place)
        if len(name.path) < 3 or not name.path[-1].endswith(_SUFFIX):
            raise ValueError(f"{text!r} names no file; expected {name.scheme}://OWNER/REPOSITORY/suite{_SUFFIX}@REF")
        return cls(Authority.of_repository(name), "/".join(name.path[2:]), check_ref(ref))

    @property
    def is_latest(self) -> bool:
        """True if the forge must be asked for the tag of the newest release."""
        return self.ref == LATEST

    def at(self, ref: str) -> SuiteSource:
        """Return the same file at the ref `ref`. Raises ValueError if the forge's response is not a valid ref."""
        return msgspec.structs.replace(self, ref=check_ref(ref))

    def __str__(self) -> str:
        return f"{self.repository}/{self.path}@{self.ref}"


class InRepository(msgspec.Struct, frozen=True, order=True):
    """A suite's reference to an action in its own repository, by path from the repository's root."""

    path: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `actions/NAME`, or another path; a leading `/` is dropped. Raises ValueError otherwise."""
        path = text.removeprefix("/")
        if "@" in path:
            raise ValueError(f"{text!r} is a path and gets the version of its suite: leave out the @ and what follows")
        try:
            return cls(Fqn.parse(f"hub://owner/repository/{path}").path[2:])  # for the grammar of names
        except ValueError:
            raise ValueError(f"{text!r} is neither a path such as actions/NAME nor NAME@VERSION") from None

    def __str__(self) -> str:
        return "/".join(self.path)


class SuiteEntry(msgspec.Struct, frozen=True):
    """An entry of a suite: the requested action, and the entry's line in the file."""

    what: InRepository | ArtifactRequest
    line: int

    @property
    def action(self) -> str:
        """Name of the action: the last part of its path or full name."""
        return _action_of(self.what)


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """A checked suite. `file` is the suite's name in messages."""

    name: str
    description: str
    entries: tuple[SuiteEntry, ...]
    file: str


def parse_suite(text: str, *, file: str) -> Suite:
    """Read a suite; `file` is its name in errors. Raises AileronError(invalid_request) with line and fix if it is not valid."""
    table = read_document(text, SCHEMA, file=file, boundary=Boundary.ACTION)
    suite = Suite(
        name=_words(table, "name", _MAX_NAME),
        description=_words(table, "description", _MAX_DESCRIPTION),
        entries=tuple(_entries(table)),
        file=file,
    )
    _check_each_once(table, suite.entries)
    return suite


def wanted(suite: Suite, source: SuiteSource | None) -> tuple[ArtifactRequest, ...]:
    """Return the artifacts to install, in order. Raises AileronError(invalid_request) for the first path without a version.

    `source` is the repository from which the suite was read, with the resolved ref; None for a local file.
    """
    return tuple(_wanted(entry, suite, source) for entry in suite.entries)


def _wanted(entry: SuiteEntry, suite: Suite, source: SuiteSource | None) -> ArtifactRequest:
    if isinstance(entry.what, ArtifactRequest):
        return entry.what
    try:
        if source is None:
            raise ValueError("a file on this machine has no version")
        name = Fqn(source.repository.scheme, (*source.repository.path, *entry.what.path))
        return ArtifactRequest(name, _version_of(source))
    except ValueError as error:
        problem = (
            f"actions: {str(entry.what)!r} is a path and gets the version of its suite, but {error}: write it in full"
        )
        raise refusal(suite.file, entry.line, f"{problem}, NAME@VERSION", Boundary.ACTION) from None


def _version_of(source: SuiteSource) -> str:
    """Return the version in a tag such as `v1.2.0` or `slack/v1.2.0`. Raises ValueError if the tag has none."""
    if _COMMIT.fullmatch(source.ref):
        raise ValueError(f"{source.ref} is a commit")
    version = source.ref.rpartition("/")[2]
    if source.is_latest or not version.startswith("v"):
        raise ValueError(f"{source.ref!r} is not a tag such as v1.2.0")
    try:
        return check_semver(version[1:])
    except ValueError:
        raise ValueError(f"the tag {source.ref!r} does not end in v and a SemVer version") from None


def _words(table: Table, key: str, characters: int) -> str:
    text = table.string(key)
    if not text.strip() or len(text) > characters:
        raise table.refuse(key, f"{key} is empty or longer than {characters} characters")
    return text


def _entries(table: Table) -> Iterator[SuiteEntry]:
    texts = table.strings("actions")
    for index, (text, line) in enumerate(zip(texts, table.element_lines("actions"), strict=True)):
        try:
            yield SuiteEntry(_entry(text), line)
        except ValueError as error:
            raise table.refuse("actions", f"actions: {error}", index) from None


def _entry(text: str) -> InRepository | ArtifactRequest:
    if not text or len(text) > _MAX_ENTRY:
        raise ValueError(f"an entry is empty or longer than {_MAX_ENTRY} characters")
    entry = ArtifactRequest.parse(text) if "://" in text else InRepository.parse(text)
    action = _action_of(entry)
    if not ACTION_NAME.fullmatch(action):
        raise ValueError(
            f"{text!r} ends in {action!r}, which is not a valid action name (lower-case letters, digits, '.', '_', '-')"
        )
    if action == "action.md":
        raise ValueError(f"{text!r} is a file; name the folder that contains it")
    return entry


def _action_of(entry: InRepository | ArtifactRequest) -> str:
    return entry.path[-1] if isinstance(entry, InRepository) else entry.name.path[-1]


def _check_each_once(table: Table, entries: tuple[SuiteEntry, ...]) -> None:
    """Check that no two entries are the same action or the same tool."""
    first: dict[str, SuiteEntry] = {}
    for index, entry in enumerate(entries):
        other = first.setdefault(tool_name(entry.action), entry)
        if other is not entry:
            problem = (
                f"actions: {str(entry.what)!r} would be the same action or tool as {str(other.what)!r} in line "
                f"{other.line}"
            )
            raise table.refuse("actions", f"{problem}: remove one", index)
