"""Searches the contents of the Hub, and shows one artifact in full. This is only information for a person, and installs nothing.

Runs in the daemon. The Hub is not trusted: its index is parsed strictly, and either read completely or refused
(registry/hub_index.py), and its claims are only shown as claims. The address of every requested file is computed from a checked
name.

Rules
- The index is fetched again for each request: it is a file on a web server, and a person can wait for it. It is not stored.
- The hosts of a version are read from its own manifest, by the same reader as at installation.
- The Hub never decides whether a key is trusted here.

Source: docs/reference/hub.md. Not here: fetching (registry/forges/hub.py), installing (installed/), trusting keys (keyring.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final, Literal, TypedDict, get_args

import anyio.to_thread
import msgspec

from aileron.actions.manifest import parse_action
from aileron.api.publishers import HubCredential, HubDetail, HubEntry, HubFound, HubSignature, HubVersion
from aileron.daemon.packages.keyring import Forges
from aileron.model.canonical import sha256_digest
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import Fqn, check_semver
from aileron.registry.forges.hub import Hub
from aileron.registry.hub_index import About, Entry, Index, Match, Published, about_action, about_connector, search
from aileron.registry.keyring import Authority, Keyring
from aileron.registry.manifest import parse_connector_manifest
from aileron.registry.signatures import PublicKey
from aileron.registry.tarball import Kind

__all__ = ["HubSearch"]

MAX_FOUND: Final = 50
"""Maximum number of results of one search, about two screens. A person who needs another result adds a word."""
_MAX_ASKED: Final = 200
"""Maximum number of characters of a search text: the longest intent is a phrase."""
_KINDS: Final[tuple[str, ...]] = get_args(Kind)
_INSTALL: Final[dict[Kind, str]] = {"connector": "aileron connector install", "action": "aileron action add"}

Trusted = Literal["yes", "no", "unknown"]
"""Answer to whether a key is trusted here. It is `unknown` while the vault, which has the person's consents, is locked."""


class HubSearch:
    """Service that searches the Hub and describes its artifacts. One instance per daemon. `keyring` returns the trusted keys, or
    raises AileronError (vault_locked) if they are unknown.
    """

    def __init__(self, *, forges: Forges, keyring: Callable[[], Keyring]) -> None:
        self._hub: Final[Hub] = forges.hub()
        self._keyring = keyring

    async def search(self, text: str, kind: str | None) -> HubFound:
        """Return the first MAX_FOUND matches, best first, and the number of all matches. Raises AileronError as Hub.index does,
        or (invalid_request).
        """
        if len(text) > _MAX_ASKED:
            raise _wrong(f"text has {len(text)} characters; at most {_MAX_ASKED}")
        if kind is not None and kind not in _KINDS:
            raise _wrong(f"kind is {kind[:20]!r}, expected {' or '.join(_KINDS)}")
        found = await self._hub.index()
        wanted = None if kind is None else msgspec.convert(kind, Kind)
        hits = await anyio.to_thread.run_sync(lambda: list(search(found.content, text, wanted)))
        rows = [_row(match, entry) for match, entry in itertools.islice(hits, MAX_FOUND)]
        return HubFound(hub=self._hub.address, as_of=found.as_of, total=len(hits), entries=rows)

    async def entry(self, asked: str) -> HubDetail:
        """Return all facts about `NAME@VERSION`, or about the newest version of `NAME`.

        Raises AileronError (invalid_request) if the name is not a Hub's or the Hub contradicts itself, AileronError
        (not_found), and the errors of Hub.index.
        """
        name, version = _asked(asked)
        found = await self._hub.index()
        entry, published = _published(found.content, name, version, self._hub.address)
        about = await self._about(name, entry.kind, published)
        key = await self._maybe_key(Authority.of_repository(name))
        return HubDetail(
            name=entry.name,
            kind=entry.kind,
            version=published.version,
            newest=entry.version,
            versions=[
                HubVersion(version=release.version, hash=release.hash, signed_by=release.signed_by)
                for release in entry.versions
            ],
            hash=published.hash,
            signature=await self._signature(name, published),
            publisher_key=None if key is None else key.fingerprint,
            install=f"{_INSTALL[entry.kind]} {entry.name}@{published.version}",
            hub=self._hub.address,
            as_of=found.as_of,
            **_about(about),
        )

    async def _about(self, name: Fqn, kind: Kind, published: Published) -> About:
        """Return the description from the manifest or action file of this version, after checking that the Hub returned the
        file of exactly this version.
        """
        file, data = await self._hub.document(name, published.version, kind)
        try:
            return await anyio.to_thread.run_sync(_read, file, data, name, kind, published)
        except ValueError as error:
            raise AileronError(FailureClass.INVALID_REQUEST, f"{file}: {error}", boundary=Boundary.EXTERNAL) from None

    async def _maybe_key(self, repository: Authority) -> PublicKey | None:
        try:
            return await self._hub.publisher_key(repository)
        except AileronError as error:
            if error.failure.failure_class is FailureClass.NOT_FOUND:
                return None
            raise

    async def _signature(self, name: Fqn, published: Published) -> HubSignature:
        """Return the signing key that the Hub names, and whether that key is trusted here."""
        if published.signed_by is None:
            return HubSignature(status="unsigned", key=None, trusted=None)
        trusted = await anyio.to_thread.run_sync(self._is_trusted, name, published.signed_by)
        return HubSignature(status="signed", key=published.signed_by, trusted=trusted)

    def _is_trusted(self, name: Fqn, fingerprint: str) -> Trusted:
        try:
            keyring = self._keyring()
        except AileronError as error:
            if error.failure.failure_class is FailureClass.VAULT_LOCKED:
                return "unknown"
            raise
        return "yes" if any(key.fingerprint == fingerprint for _, key in keyring.speaking_for(name)) else "no"


def _asked(text: str) -> tuple[Fqn, str | None]:
    """Return the requested name, and the version if it has one."""
    name, separator, version = text.partition("@")
    if len(text) > 2 * _MAX_ASKED:
        raise _wrong(f"name has {len(text)} characters; at most {2 * _MAX_ASKED}")
    try:
        found = Fqn.parse(name)
        if found.scheme != "hub":
            raise ValueError(
                f"{name} is not on a Hub: `aileron connector install {name}@VERSION` asks where it is published"
            )
        return found, check_semver(version) if separator else None
    except ValueError as error:
        raise _wrong(str(error)) from None


def _published(index: Index, name: Fqn, version: str | None, hub: str) -> tuple[Entry, Published]:
    for entry in index.entries:
        if entry.name == str(name):
            wanted = version or entry.version
            for published in entry.versions:
                if published.version == wanted:
                    return entry, published
            listed = ", ".join(release.version for release in reversed(entry.versions[-8:]))
            raise _absent(f"{name} has no version {wanted} on {hub}; the newest are {listed}")
    raise _absent(f"{hub} has no {name}: `aileron hub search {name.path[-1]}` finds what it has")


def _read(file: str, data: bytes, name: Fqn, kind: Kind, published: Published) -> About:
    """Return the description of an artifact that its manifest or action file contains. Raises ValueError if the file
    does not belong to this version, and AileronError as its parser does.
    """
    if kind == "connector":
        manifest = parse_connector_manifest(data, file=file)
        if (manifest.name, manifest.version) != (name, published.version):
            raise ValueError(
                f"it describes itself as {manifest.name}@{manifest.version}, not {name}@{published.version}"
            )
        return about_connector(manifest)
    if sha256_digest(data) != published.hash:
        raise ValueError(f"it is not the file that the index names ({published.hash}): the Hub contradicts itself")
    return about_action(parse_action(data.decode(), file=file))


def _row(match: Match, entry: Entry) -> HubEntry:
    signed_by = entry.published.signed_by
    return HubEntry(
        name=entry.name,
        kind=entry.kind,
        version=entry.version,
        match=match,
        signature=HubSignature(status="unsigned" if signed_by is None else "signed", key=signed_by),
        **_about(entry.about),
    )


class _About(TypedDict):
    publisher: str | None
    description: str | None
    intents: list[str]
    hosts: list[str]
    credential: HubCredential | None
    requires: list[str]


def _about(about: About) -> _About:
    """Return the description as a dictionary with every key; a missing fact has the value None or an empty list."""
    need = about.credential
    return {
        "publisher": about.publisher,
        "description": about.description,
        "intents": list(about.intents),
        "hosts": list(about.hosts),
        "credential": None if need is None else HubCredential(kind=need.kind, scope=need.scope),
        "requires": list(about.requires),
    }


def _wrong(problem: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, problem, boundary=Boundary.USER)


def _absent(problem: str) -> AileronError:
    return AileronError(FailureClass.NOT_FOUND, problem, boundary=Boundary.EXTERNAL)
