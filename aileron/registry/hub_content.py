"""The check of the archives and keys that a Hub will publish: first each file by itself, then all together.

Runs on the machine of the Hub's operator, for `aileron hub build`. Publishers are not trusted, and published files are checked
as if they were new. Runs no code of an archive and writes nothing.

Rules
- A problem is noted with its file and does not stop the check, so that the operator sees all problems at once.
- An archive is published only under the name and version that it states. A signature must be by its repository's key; for
  an archive that is already published, a former key of the repository is accepted too.
- A published archive stays: another one for its name and version is refused. A key is replaced only if the replaced key is
  published as a former key.
- No path is both a file and a folder, and no two paths differ only in the case of their letters.

Source: docs/reference/hub.md. Not here: writing (hub.py), the index (hub_index.py).
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from aileron import files
from aileron.model.canonical import sha256_digest
from aileron.model.failure import AileronError
from aileron.model.names import RESERVED_TOOLS, Fqn, check_semver, tool_name
from aileron.registry.artifact import ArtifactRequest, ParseAction, Trust, action_of, connector_of
from aileron.registry.forges.forge import ARCHIVE, KEY_PATH
from aileron.registry.hub_index import (
    INDEX,
    About,
    Published,
    about_action,
    about_connector,
    check_name,
    check_version,
    encoded,
    entry_of,
)
from aileron.registry.keyring import Authority, Keyring
from aileron.registry.manifest import parse_connector_manifest
from aileron.registry.placeholders import UNRELEASED
from aileron.registry.signatures import MAX_KEY_FILE_BYTES, PublicKey
from aileron.registry.tarball import ACTION, CONNECTOR, MANIFEST, MAX_ARCHIVE_BYTES, SIGNATURE, Kind, kind_of, unpack

__all__ = [
    "FORMER",
    "KEY_FILE",
    "KEY_FOLDER",
    "VERSIONS",
    "FoundArchive",
    "HubKeys",
    "HubReading",
    "Wrong",
    "bytes_of",
]

VERSIONS: Final = "versions.json"
FORMER: Final = "former"
KEY_FOLDER, KEY_FILE = KEY_PATH.split("/")
_TAKEN: Final = frozenset({INDEX, VERSIONS, ARCHIVE, MANIFEST, ACTION})
"""Names of a Hub's own files. No part of an artifact's name can be one of these."""
_MAX_FILES: Final = 100_000
"""Maximum number of archives and keys of one Hub: five times the index's limit, so that the index reports the excess first."""


class Wrong(msgspec.Struct, frozen=True, order=True):
    """A problem that prevents the build of a Hub."""

    file: str
    reason: str


class FoundArchive(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that passed the checks of a single archive. Its bytes are not kept, but read again for writing."""

    file: Path
    sha256: str
    wanted: ArtifactRequest
    kind: Kind
    document: bytes
    published: Published
    about: About
    requires: dict[str, str]
    """Pin of each connector that an action requires, by `NAME@VERSION`; empty for a connector."""
    is_new: bool


class HubKeys(NamedTuple):
    """Keys of one repository: the current key, and its former keys."""

    current: PublicKey
    former: frozenset[PublicKey]


class HubReading:
    """The archives and keys found in a directory and in a Hub, with all problems. Call `read` once per instance."""

    def __init__(self, directory: Path, site: Path, parse: ParseAction) -> None:
        self._directory, self._site = directory, site
        self._parse = parse
        self.found: dict[ArtifactRequest, FoundArchive] = {}
        self.keys: dict[Authority, HubKeys] = {}
        self.wrong: list[Wrong] = []
        self._published: set[str] = set()

    def read(self) -> None:
        """Read all archives and keys into `found`, `keys` and `wrong`: keys before archives, and published files before
        new ones.
        """
        there, new = self._files_of(self._site), self._files_of(self._directory, but=self._site)
        if len(there) + len(new) > _MAX_FILES:
            self._note(self._directory, f"more than {_MAX_FILES} archives and keys: split them into two Hubs")
            return
        self._read_keys(there, self._site)
        self._read_keys(new, self._directory)
        for files_of, root in ((there, self._site), (new, self._directory)):
            for file in files_of:
                if file.name == ARCHIVE:
                    self._read_archive(file, root)
        self._check_together()

    def index(self) -> bytes:
        """Return the index of all archives as bytes; record what is wrong with the index in `wrong`."""
        by_name: dict[Fqn, list[FoundArchive]] = defaultdict(list)
        for found in self.found.values():
            by_name[found.wanted.name].append(found)
        entries = []
        for name, versions in by_name.items():
            about = {found.wanted.version: found.about for found in versions}
            try:
                entries.append(
                    entry_of(name, versions[0].kind, [archive.published for archive in versions], about.__getitem__)
                )
            except ValueError as error:
                self._note(versions[0].file, f"{name}: {error}")
        try:
            return encoded(entries)
        except ValueError as error:
            self._note(self._site / INDEX, str(error))
            return b""

    def _files_of(self, root: Path, but: Path | None = None) -> list[Path]:
        """Return the archives and keys below `root`, except those below `but`, sorted.

        Names that start with a dot are ignored.
        """
        found: list[Path] = []
        if not root.is_dir():
            return found
        for top, folders, names in os.walk(root, onerror=self._note_unreadable):
            folders[:] = sorted(name for name in folders if name[0] != "." and not _is_same(Path(top, name), but))
            for name in folders:
                if Path(top, name).is_symlink():
                    self._note(Path(top, name), "symbolic links are not followed: use the directory itself")
            if not _is_same(Path(top), but):
                found += [file for name in sorted(names) if _is_ours(file := Path(top, name))]
        return found

    def _note_unreadable(self, error: OSError) -> None:
        self._note(Path(error.filename), f"cannot be read: {error.strerror}")

    def _note(self, file: Path, reason: str) -> None:
        self.wrong.append(Wrong(str(file), reason))

    # Keys

    def _read_keys(self, all_files: Sequence[Path], root: Path) -> None:
        current: dict[Authority, tuple[Path, PublicKey]] = {}
        former: dict[Authority, set[PublicKey]] = defaultdict(set)
        for file in all_files:
            if file.name == ARCHIVE or (read := self._maybe_key(file, root)) is None:
                continue
            whose, key = read
            if file.parent.name == FORMER:
                former[whose].add(key)
            else:
                current[whose] = (file, key)
        for whose, (file, key) in current.items():
            self._take_key(whose, file, key, former.pop(whose, set()))
        for whose in former:
            self._note(root.joinpath(*whose.path, KEY_FOLDER), f"former keys of {whose}, but no {KEY_PATH}")

    def _maybe_key(self, file: Path, root: Path) -> tuple[Authority, PublicKey] | None:
        owner_and_repository = file.relative_to(root).parts[: -2 if file.name == KEY_FILE else -3]
        try:
            if len(owner_and_repository) != 2:
                raise ValueError(f"keys belong in OWNER/REPOSITORY/{KEY_PATH} or OWNER/REPOSITORY/keys/{FORMER}/")
            name = Fqn.parse(f"hub://{'/'.join(owner_and_repository)}")
            check_name(name)
            return Authority.of_repository(name), PublicKey.parse(_text_in(file))
        except (ValueError, AileronError) as error:
            self._note(file, str(error).removeprefix(f"{file} "))
            return None

    def _take_key(self, whose: Authority, file: Path, key: PublicKey, former: set[PublicKey]) -> None:
        before = self.keys.get(whose)
        if before is not None:
            if key != before.current and before.current not in former:
                self._note(
                    file,
                    f"{whose} publishes another key already ({before.current.fingerprint}); to replace it with "
                    f"{key.fingerprint}, put the old one in {'/'.join(whose.path)}/{KEY_FOLDER}/{FORMER}/old.pub beside it",
                )
            former |= before.former
        self.keys[whose] = HubKeys(key, frozenset(former - {key}))

    # Archives

    def _read_archive(self, file: Path, root: Path) -> None:
        is_site = root is self._site
        try:
            archive = bytes_of(file)
            if not is_site and _sha256(archive) in self._published:
                return  # already checked as a published file, perhaps with a former key
            found = self._found_in(file, archive, is_new=not is_site)
            self._check_place(found, file.parent.relative_to(root).parts, is_site=is_site)
        except (ValueError, AileronError) as error:
            reason = str(error).removeprefix(f"{file}:").removeprefix(f"{file} ").strip()
            self._note(file, reason)
            return
        if is_site:
            self._published.add(found.sha256)
        before = self.found.setdefault(found.wanted, found)
        if before.sha256 != found.sha256:
            is_published = not before.is_new
            self._note(
                file,
                f"{found.wanted} is {'already published' if is_published else 'also'} in {before.file}, with different bytes"
                + (": a published version cannot change; use a new version" if is_published else ""),
            )

    def _found_in(self, file: Path, archive: bytes, *, is_new: bool) -> FoundArchive:
        """Check an archive by itself: its name and version, its content, and its signature by its repository's key.

        Raises ValueError or AileronError if a check fails.
        """
        kind = kind_of(archive)
        members = unpack(archive, kind)
        wanted = self._wanted_of(members, kind, file)
        check_name(wanted.name)
        check_version(wanted.version)
        _check_parts(wanted.name)
        if wanted.version == UNRELEASED:
            raise ValueError(f"its version is {UNRELEASED}, the placeholder of unreleased sources")
        trust = self._trust_in(wanted, members, is_new=is_new)
        if kind == "action":
            return self._action(file, archive, members, wanted, trust, is_new=is_new)
        artifact = connector_of(archive, trust, wanted=wanted, file=str(file))
        _check_provenance(artifact.manifest.provenance_hash, members[CONNECTOR])
        return FoundArchive(
            file=file,
            sha256=_sha256(archive),
            wanted=wanted,
            kind=kind,
            document=members[MANIFEST],
            published=Published(version=wanted.version, hash=artifact.pin.hash, signed_by=artifact.signed.by),
            about=about_connector(artifact.manifest),
            requires={},
            is_new=is_new,
        )

    def _action(
        self,
        file: Path,
        archive: bytes,
        members: dict[str, bytes],
        wanted: ArtifactRequest,
        trust: Trust,
        *,
        is_new: bool,
    ) -> FoundArchive:
        artifact = action_of(archive, trust, wanted=wanted, parse=self._parse)
        action = artifact.action
        if tool_name(action.name) in RESERVED_TOOLS:
            raise ValueError(f"{action.name!r} is the name of an Aileron tool: choose another name")
        return FoundArchive(
            file=file,
            sha256=_sha256(archive),
            wanted=wanted,
            kind="action",
            document=members[ACTION],
            published=Published(version=wanted.version, hash=artifact.digest, signed_by=artifact.signed.by),
            about=about_action(action),
            requires={f"{connector.name}@{connector.version}": connector.hash for connector in action.connectors},
            is_new=is_new,
        )

    def _wanted_of(self, members: dict[str, bytes], kind: Kind, file: Path) -> ArtifactRequest:
        """Return the name and version that an archive's own manifest or action file states."""
        if kind == "connector":
            manifest = parse_connector_manifest(members[MANIFEST], file=f"{file}:{MANIFEST}")
            return ArtifactRequest(manifest.name, manifest.version)
        try:
            text = members[ACTION].decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{ACTION} is not valid UTF-8 (byte {error.start})") from None
        source = self._parse(text, file=f"{file}:{ACTION}").source
        if source is None:
            raise ValueError(f'{ACTION} does not say where it is published: source = "hub://…/NAME@VERSION"')
        return ArtifactRequest.parse(source)

    def _trust_in(self, wanted: ArtifactRequest, members: dict[str, bytes], *, is_new: bool) -> Trust:
        """Return a `Trust` that contains only the key with which the archive is signed, for the artifact's repository.
        It is empty for an unsigned archive.

        Raises ValueError if the repository is not allowed to sign with that key.
        """
        signature, whose = members.get(SIGNATURE), Authority.of_repository(wanted.name)
        if signature is None:
            return Trust()
        keys = self.keys.get(whose)
        if keys is None:
            raise ValueError(
                f"it is signed, but {whose} publishes no key: put the key in {'/'.join(whose.path)}/{KEY_PATH}"
            )
        signed = b"".join(members[name] for name in (CONNECTOR, MANIFEST, ACTION) if name in members)
        # What was published under a former key stays; a new archive needs the key that people are shown.
        for key in (keys.current, *(() if is_new else keys.former)):
            if key.is_signature(signature, signed):
                return Trust(keyring=Keyring().trusting(whose, key))
        raise ValueError(f"it is not signed with the key of {whose}, {keys.current.fingerprint}")

    @staticmethod
    def _check_place(found: FoundArchive, folders: tuple[str, ...], *, is_site: bool) -> None:
        """Raise ValueError if an archive's folder names another artifact or version than the archive states."""
        wanted = found.wanted
        is_right = folders == (*wanted.name.path, wanted.version)
        is_tagged = bool(folders) and folders[-1][:1] == "v" and _is_version(folders[-1][1:])
        claims_place = len(folders) > 2 and _is_version(folders[-1])
        if is_tagged and folders[-1][1:] != wanted.version:
            raise ValueError(f"it is in {folders[-1]}/, but describes itself as {wanted}")
        if not is_right and (is_site or claims_place):
            right = "/".join((*wanted.name.path, wanted.version))
            raise ValueError(
                f"it is in {'/'.join(folders) or '.'}/, but describes itself as {wanted}, which belongs in {right}/"
            )

    # Checks of everything together

    def _check_together(self) -> None:
        names: dict[Fqn, FoundArchive] = {}
        for found in self.found.values():
            first = names.setdefault(found.wanted.name, found)
            if first.kind != found.kind:
                self._note(found.file, f"{found.wanted.name} is the name of a {first.kind} in {first.file}")
            self._check_requirements(found)
        self._check_tools(names.values())
        self._check_spelling()

    def _check_requirements(self, found: FoundArchive) -> None:
        """Record a problem for each `hub://` connector that an action requires, if this Hub does not have the
        connector, or has it with another pin.
        """
        for needed, pin in found.requires.items():
            if not needed.startswith("hub://"):
                continue
            there = self.found.get(ArtifactRequest.parse(needed))
            if there is None or there.kind != "connector":
                self._note(found.file, f"{found.wanted} needs the connector {needed}, which is missing")
            elif there.published.hash != pin:
                problem = f"{found.wanted} needs {needed} as {pin}, but the one here is {there.published.hash}"
                self._note(found.file, problem)

    def _check_tools(self, names: Iterable[FoundArchive]) -> None:
        """Record a problem for actions of one repository that cannot be installed together, because they have the same
        tool name.
        """
        tools: dict[tuple[Authority, str], FoundArchive] = {}
        for found in names:
            if found.kind == "action":
                path = found.wanted.name.path
                key = (Authority.of_repository(found.wanted.name), tool_name(path[-1]))
                first = tools.setdefault(key, found)
                if first is not found:
                    problem = (
                        f"{found.wanted.name} and {first.wanted.name} have the same tool name, {key[1]!r}: rename one"
                    )
                    self._note(found.file, problem)

    def _check_spelling(self) -> None:
        """Record a problem for parts of paths that differ only by the case of their letters: some file systems, and
        most readers, see them as the same.
        """
        seen: dict[tuple[str, ...], tuple[str, ...]] = {}
        places = [((*wanted.name.path, wanted.version), found.file) for wanted, found in self.found.items()]
        places += [(whose.path, self._site.joinpath(*whose.path, KEY_PATH)) for whose in self.keys]
        for place, file in places:
            for end in range(1, len(place) + 1):
                part = place[:end]
                first = seen.setdefault(tuple(name.casefold() for name in part), part)
                if first != part:
                    self._note(file, f"{'/'.join(part)} and {'/'.join(first)} differ only in upper and lower case")
                    break


def _check_parts(name: Fqn) -> None:
    """Raise ValueError if a segment of an artifact's name is reserved for a file or folder that the Hub has at this place."""
    for part in name.path:
        if part.casefold() in _TAKEN:
            raise ValueError(f"{name}: {part!r} is reserved for a file that every Hub has")
    for part in name.path[2:]:
        if _is_version(part):
            raise ValueError(f"{name}: {part!r} is where a version of {_name_before(name, part)} would be stored")
    if len(name.path) > 2 and name.path[2].casefold() == KEY_FOLDER:
        raise ValueError(f"{name}: {KEY_FOLDER}/ is reserved for the keys of a repository")


def _name_before(name: Fqn, part: str) -> Fqn:
    """Return `name` without the path segment `part` and the segments after it."""
    return Fqn(name.scheme, name.path[: name.path.index(part, 2)])


def _check_provenance(said: str | None, connector: bytes) -> None:
    if said is not None and said != sha256_digest(connector):
        raise ValueError(
            f"{MANIFEST} contradicts itself: provenance_hash is {said}, but the program has {sha256_digest(connector)}"
        )


def _is_version(text: str) -> bool:
    try:
        return bool(check_semver(text))
    except ValueError:
        return False


def _is_same(path: Path, other: Path | None) -> bool:
    return other is not None and other.exists() and path.samefile(other)


def _is_ours(file: Path) -> bool:
    if file.parent.name == KEY_FOLDER:
        return file.name in (KEY_FILE, ARCHIVE)
    is_former = file.parent.name == FORMER and file.parent.parent.name == KEY_FOLDER and file.suffix == ".pub"
    return is_former or file.name == ARCHIVE


def bytes_of(file: Path, limit_bytes: int = MAX_ARCHIVE_BYTES) -> bytes:
    """Return all bytes of a regular file. Raises AileronError if that fails, ValueError if the file is gone."""
    try:
        with files.translated(file, "cannot be read"):
            folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return files.read(folder, file, limit_bytes)
            finally:
                os.close(folder)
    except FileNotFoundError:
        raise ValueError("it no longer exists") from None


def _text_in(file: Path) -> str:
    try:
        return bytes_of(file, MAX_KEY_FILE_BYTES).decode()
    except UnicodeDecodeError:
        raise ValueError("not a key: not valid UTF-8") from None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
