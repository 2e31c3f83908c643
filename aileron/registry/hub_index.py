"""The `index.json` of a Hub: one file that lists every artifact on the Hub, for searches.

    {"version": 1, "entries": [{"name": "hub://acme/mail", "kind": "connector", "version": "1.1.0", "versions": […],
                                "about": {…}}]}

Written by `aileron hub build` (hub.py), read by the daemon, which trusts nothing in it: the index only helps a person to
search. An install fetches an artifact by its name and checks signature, name and pin, whatever the index says. Pure.

Rules
- Strict: an unknown key, an unknown version of the format, a name outside `hub://`, or a list out of order makes the whole
  index invalid. `hub build` writes no such index.
- No addresses: a file's address follows from its name.
- Every text and list has a maximum length, and no text has a hidden character. This is checked when writing, too.

Source: docs/reference/hub.md. Not here: fetching the index (forges/hub.py), building a Hub (hub.py).

>>> list(search(parse_index(b'{"version": 1, "entries": []}'), "mail"))
[]
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from aileron.model.counted import check_values
from aileron.model.manifest import ActionFile, ConnectorManifest, CredentialKind
from aileron.model.names import Fqn, HostPort, check_pin, check_semver, precedence
from aileron.model.text import hidden_at
from aileron.model.visible import visible
from aileron.registry.forges.forge import MAX_VERSIONS, newest
from aileron.registry.signatures import FINGERPRINT
from aileron.registry.tarball import Kind

__all__ = [
    "FORMAT",
    "INDEX",
    "MAX_INDEX_BYTES",
    "MAX_INDEX_VALUES",
    "About",
    "CredentialWanted",
    "Entry",
    "Index",
    "Match",
    "Published",
    "about_action",
    "about_connector",
    "check_name",
    "check_version",
    "encoded",
    "entry_of",
    "ordered",
    "parse_index",
    "search",
]

INDEX: Final = "index.json"
FORMAT: Final = 1
MAX_INDEX_BYTES: Final = 8 << 20
"""8 MiB: ten thousand artifacts of a dozen versions each. Each search reads all of it; a larger Hub should be split in two."""
MAX_INDEX_VALUES: Final = 500_000
"""Maximum number of JSON values in an index, checked before parsing. Commas in strings count too (`check_values`).

An index of 8 MiB that `hub build` wrote has some 300,000.
"""
MAX_ENTRIES: Final = 20_000
MAX_NAME: Final = 200
"""Maximum number of characters in a name, and so in a path; file systems and web servers accept slightly longer ones."""
MAX_VERSION: Final = 100
MAX_TEXT: Final = 300
"""Maximum number of characters in a text for people: two and a half lines."""
MAX_INTENTS: Final = 64
MAX_LISTED: Final = 32
"""Maximum number of hosts per connector, the same as in its manifest; also the maximum number of connectors per action."""
_PARTS: Final = re.compile(r"[\s_./:-]+")

Match = Literal["intent", "name", "words", "all"]
"""Reasons why an entry matches, the best first.

`intent`: the query equals one of the entry's intents; `name`: all words are in its name; `words`: all words are in its texts;
`all`: the query is empty.
"""
_ORDER: Final[tuple[Match, ...]] = ("intent", "name", "words", "all")


class _Closed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base class of the objects in the index: a JSON object with an unknown key is refused."""


class CredentialWanted(_Closed, frozen=True):
    """The credential that a connector asks for: a kind, and a text for people."""

    kind: CredentialKind
    scope: str


class About(_Closed, frozen=True):
    """The description of a version, from its manifest or action file. `requires`: an action's connectors as `NAME@VERSION`."""

    publisher: str | None = None
    description: str | None = None
    intents: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    credential: CredentialWanted | None = None
    requires: tuple[str, ...] = ()


class Published(_Closed, frozen=True):
    """A published version: the pin of a connector or the digest of an action, and the fingerprint of the signing key, if any."""

    version: str
    hash: str
    signed_by: str | None = None


class Entry(_Closed, frozen=True):
    """An artifact in the index.

    `version` is the newest version that is not a pre-release, or else the newest; `about` describes that version.
    """

    name: str
    kind: Kind
    version: str
    versions: tuple[Published, ...]
    about: About

    @property
    def published(self) -> Published:
        """The published version that `version` names."""
        return next(release for release in self.versions if release.version == self.version)


class Index(_Closed, frozen=True, omit_defaults=False):
    """The whole index, sorted by name."""

    version: int
    entries: tuple[Entry, ...]


class _Format(msgspec.Struct, frozen=True):
    """The format version of an index file. It is parsed and checked before the rest of the file."""

    version: int


# Writing


def about_connector(manifest: ConnectorManifest) -> About:
    """Return the index's description of a connector, from its manifest. Raises ValueError if it exceeds the index's limits."""
    need = manifest.credential
    about = About(
        publisher=manifest.publisher,
        intents=manifest.intents,
        hosts=tuple(map(str, manifest.hosts)),
        credential=None if need is None else CredentialWanted(kind=need.kind, scope=need.scope),
    )
    _check_about(about)
    return about


def about_action(action: ActionFile) -> About:
    """Return the index's description of an action, from its file. Raises ValueError if it exceeds the index's limits."""
    requires = tuple(f"{connector.name}@{connector.version}" for connector in action.connectors)
    about = About(description=_first_paragraph(action.body), intents=(action.intent,), requires=requires)
    _check_about(about)
    return about


def entry_of(name: Fqn, kind: Kind, published: Sequence[Published], about: Callable[[str], About]) -> Entry:
    """Return the index entry of a name with at least one published version; `about` returns the description of a version.

    Raises ValueError for too many versions.
    """
    if len(published) > MAX_VERSIONS:
        raise ValueError(f"{len(published)} versions; at most {MAX_VERSIONS} of one name")
    versions = tuple(sorted(published, key=lambda release: precedence(release.version)))
    latest = _newest([release.version for release in versions])
    return Entry(name=str(name), kind=kind, version=latest, versions=versions, about=about(latest))


def encoded(entries: Iterable[Entry]) -> bytes:
    """Return the bytes of the index file. The same entries give the same bytes; each entry is on its own line, so that
    files can be compared.

    Raises ValueError if the entries exceed the index's limits.
    """
    lines = [msgspec.json.encode(entry) for entry in ordered(entries)]
    data = b'{"version":%d,"entries":[\n%s\n]}\n' % (FORMAT, b",\n".join(lines))
    if len(lines) > MAX_ENTRIES or len(data) > MAX_INDEX_BYTES:
        raise ValueError(
            f"{len(lines)} artifacts in {len(data)} bytes; at most {MAX_ENTRIES} in {MAX_INDEX_BYTES}: split "
            "them into two Hubs"
        )
    check_values(data, MAX_INDEX_VALUES)
    return data


def ordered(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries sorted by name, as in an index."""
    return sorted(entries, key=lambda entry: entry.name)


def _first_paragraph(body: str) -> str | None:
    """Return the first paragraph of Markdown, skipping headings, on one line and cut to the index's limit."""
    for paragraph in re.split(r"\n[ \t]*\n", body.replace("\r\n", "\n")):
        lines = [line.strip() for line in paragraph.split("\n") if not line.lstrip().startswith("#")]
        if text := visible(" ".join(filter(None, lines))):
            return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
    return None


# Reading


def parse_index(data: bytes) -> Index:
    """Parse an untrusted index. Raises ValueError, whose message has no invisible characters."""
    if len(data) > MAX_INDEX_BYTES:
        raise ValueError(f"{len(data)} bytes; at most {MAX_INDEX_BYTES}")
    check_values(data, MAX_INDEX_VALUES)
    try:
        found = msgspec.json.decode(data, type=_Format)
        if found.version != FORMAT:
            raise ValueError(f"version {found.version} of the format; this aileron reads {FORMAT}")
        index = msgspec.json.decode(data, type=Index)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(visible(str(error)[:MAX_TEXT])) from None
    _check_index(index)
    return index


def _check_index(index: Index) -> None:
    if len(index.entries) > MAX_ENTRIES:
        raise ValueError(f"{len(index.entries)} entries; at most {MAX_ENTRIES}")
    before = ""
    for number, entry in enumerate(index.entries):
        try:
            _check_entry(entry)
            if entry.name <= before:
                raise ValueError("duplicate, or out of order")
        except ValueError as error:
            raise ValueError(f"entry {number}: {visible(str(error)[:MAX_TEXT])}") from None
        before = entry.name


def _check_entry(entry: Entry) -> None:
    check_name(Fqn.parse(_short(entry.name, MAX_NAME)))
    if not 1 <= len(entry.versions) <= MAX_VERSIONS:
        raise ValueError(f"{len(entry.versions)} versions; expected 1 to {MAX_VERSIONS}")
    for release in entry.versions:
        check_version(release.version)
        check_pin(release.hash)
        if release.signed_by is not None and not FINGERPRINT.fullmatch(release.signed_by):
            raise ValueError(f"{_short(release.signed_by, 100)!r} is not a key's fingerprint")
    versions = [release.version for release in entry.versions]
    ranks = [precedence(version) for version in versions]
    if any(later <= earlier for earlier, later in itertools.pairwise(ranks)):
        raise ValueError("its versions are out of order")
    if entry.version != _newest(versions):
        raise ValueError(f"its newest version is {_newest(versions)}, and not {_short(entry.version, MAX_VERSION)!r}")
    _check_about(entry.about)


def check_name(name: Fqn) -> None:
    """Raise ValueError if an artifact with this name cannot be published on a Hub."""
    if name.scheme != "hub":
        raise ValueError(f"{name} is not a name of a Hub; expected hub://OWNER/REPOSITORY")
    _short(str(name), MAX_NAME)


def check_version(version: str) -> None:
    """Raise ValueError if an artifact in this version cannot be published on a Hub."""
    check_semver(_short(version, MAX_VERSION))


def _check_about(about: About) -> None:
    scope = None if about.credential is None else about.credential.scope
    for text in (about.publisher, about.description, scope, *about.intents):
        if text is not None:
            _check_text(text)
    if len(about.intents) > MAX_INTENTS:
        raise ValueError(f"{len(about.intents)} intents; at most {MAX_INTENTS}")
    if max(len(about.hosts), len(about.requires)) > MAX_LISTED:
        raise ValueError(f"more than {MAX_LISTED} hosts or connectors")
    for host in about.hosts:
        HostPort.parse(_short(host, MAX_TEXT))
    for wanted in about.requires:
        name, _, version = _short(wanted, 2 * MAX_NAME).rpartition("@")
        Fqn.parse(name)
        check_version(version)


def _check_text(text: str) -> None:
    _short(text, MAX_TEXT)
    if hidden_at(text) is not None:
        raise ValueError(f"a text with an invisible character: {visible(text)!r}")


def _short(text: str, limit: int) -> str:
    if len(text) > limit:
        raise ValueError(f"{len(text)} characters beginning {text[:40]!r}; at most {limit}")
    return text


def _newest(versions: Sequence[str]) -> str:
    """Return the last version that is not a pre-release, else the last version. `versions` is sorted and not empty."""
    return newest(versions) or versions[-1]


# Searching


def search(index: Index, text: str, kind: Kind | None = None) -> Iterator[tuple[Match, Entry]]:
    """Yield the entries that match every word of `text`, sorted by the reason for the match (best first), then by name.

    An empty text matches all entries.
    """
    wanted = _plain(text)
    found = [
        (_ORDER.index(match), match, entry)
        for entry in index.entries
        if kind in (None, entry.kind) and (match := _match(entry, wanted)) is not None
    ]
    for _, match, entry in sorted(found, key=lambda hit: (hit[0], hit[2].name)):
        yield match, entry


def _match(entry: Entry, wanted: str) -> Match | None:
    words, name, intents = wanted.split(), _plain(entry.name.removeprefix("hub://")), map(_plain, entry.about.intents)
    known = list(intents)
    if not words:
        return "all"
    if wanted in known:
        return "intent"
    if all(word in name for word in words):
        return "name"
    about = entry.about
    said = " ".join([name, *known, *map(_plain, (about.publisher or "", about.description or "", *about.hosts))])
    return "words" if all(word in said for word in words) else None


def _plain(text: str) -> str:
    """Return `text` normalized for comparison: `send_email`, `Send email` and `send-email` give the same string."""
    return _PARTS.sub(" ", text.casefold()).strip()
