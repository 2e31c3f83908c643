"""The release of a publisher's sources: archives to upload to a forge, each signed, checked as an install checks it, and stored
in a folder named after its git tag.

    read → bind version, application, hosts → build → pin → bind the pin into each action → sign → check → write

Runs in `aileron connector release` and `sign`, on an author's machine or in their CI; it runs nothing of the sources and edits
none of them. The same sources, version and key give the same pins and signatures (Ed25519 is deterministic); only the
compression of the archive can differ between machines.

Rules
- Placeholders are replaced in a copy, and none is left. A version that is neither the placeholder nor the one to release is an
  error.
- An action is released together with the connector of the directory: its `source` is in the same repository, and only the pin
  of that connector can be a placeholder.
- An action that does not fit its connector's operations is not released: no call of it could work.
- Every archive passes the checks of an install, with a keyring that has only this key, before anything is written.
- All files appear at once, by one rename.

Source: docs/reference/signatures.md, docs/reference/forges.md (tags). Not here: uploading, for which the forge has a tool.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from aileron import files
from aileron.model.document import refusal
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.login import LoginTarget
from aileron.model.manifest import ActionFile
from aileron.model.names import UNBOUND_HASH, Fqn, HostPort, check_semver
from aileron.registry.artifact import ArtifactRequest, CheckAction, ParseAction, Trust, action_of, connector_of
from aileron.registry.connector_build import Application, Built, build
from aileron.registry.forges.forge import ARCHIVE, KEY_PATH, tag_of
from aileron.registry.keyring import Authority, Keyring
from aileron.registry.manifest import parse_connector_manifest
from aileron.registry.placeholders import UNRELEASED, PlaceholderSite, bind, check_none_left, line_of
from aileron.registry.signatures import MAX_KEY_FILE_BYTES, PublicKey, SigningKey
from aileron.registry.tarball import ACTION, CONNECTOR, MANIFEST, MAX_BYTES, SIGNATURE, Kind, pack, unpack

__all__ = ["Release", "Released", "check_key_is_published", "release", "sign", "write_release"]

ACTIONS: Final = "actions"
_MAX_ACTIONS: Final = 256
"""Maximum number of actions in a release; the largest known connector has seven."""
_FENCE: Final = b"+++"


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """A signed or unsigned archive, and the git tag of the release to upload it to. `hash` is a pin or an action's digest."""

    kind: Kind
    name: str
    version: str
    tag: str
    hash: str
    archive: bytes

    @property
    def path(self) -> str:
        """Path of the archive below the output directory."""
        return f"{self.tag}/{ARCHIVE}"


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """All artifacts of a release: the connector first, then its actions by name. `signed_by` is the key's fingerprint or None.

    `built` is the build of the connector, which lists its data files and omitted files.
    """

    artifacts: tuple[Released, ...]
    signed_by: str | None
    built: Built


def release(
    directory: Path,
    version: str,
    *,
    parse: ParseAction,
    fits: CheckAction,
    key: SigningKey | None = None,
    hosts: Sequence[HostPort] = (),
    application: Application | None = None,
    logins: Sequence[LoginTarget] = (),
    region: str | None = None,
) -> Release:
    """Return the release of the sources in `directory` as `version`: all artifacts built, signed and checked, in
    memory. Writes no file.

    Raises AileronError(invalid_request), with file and line, if the sources cannot be released; their author has to fix them.
    """
    _check_version(version)
    built = build(directory, hosts, application, version, logins, region)
    check_none_left(built.manifest, str(directory / MANIFEST), Boundary.CONNECTOR_MANIFEST)
    manifest = parse_connector_manifest(built.manifest, file=str(directory / MANIFEST))
    trust = _trust_in(manifest.name, key)
    archive = _signed({CONNECTOR: built.connector, MANIFEST: built.manifest}, key)
    checked = connector_of(archive, trust, wanted=ArtifactRequest(manifest.name, version), file=str(directory))
    connector = Released(
        kind="connector",
        name=str(manifest.name),
        version=version,
        tag=tag_of(manifest.name, version),
        hash=checked.pin.hash,
        archive=archive,
    )
    known = {checked.pin: checked.manifest}

    def fit(action: ActionFile, file: str) -> None:
        fits(action, known.get, file=file)

    actions = [
        _released_action(path, connector, manifest.name, parse, fit, key, trust) for path in _action_files(directory)
    ]
    _check_distinct([connector, *actions], directory)
    signed_by = None if key is None else key.public.fingerprint
    return Release(artifacts=(connector, *actions), signed_by=signed_by, built=built)


def sign(archive: bytes, key: SigningKey, *, parse: ParseAction, file: str) -> Released:
    """Sign the archive of a connector or an action with `key`, replacing any signature in it; other members stay the same.

    Raises AileronError(invalid_request) if an install would refuse the archive, for example because of a placeholder.
    """
    members, kind = _members(archive)
    if kind == "connector":
        name = parse_connector_manifest(members[MANIFEST], file=f"{file}:{MANIFEST}").name
        signed = _signed(members, key)
        found = connector_of(signed, _trust_in(name, key), file=file)
        version, digest = found.pin.version, found.pin.hash
    else:
        wanted = _wanted_of(
            parse(_text(members[ACTION], f"{file}:{ACTION}"), file=f"{file}:{ACTION}"), f"{file}:{ACTION}"
        )
        signed = _signed(members, key)
        trust = _trust_in(wanted.name, key)
        digest = action_of(signed, trust, wanted=wanted, parse=parse).digest
        name, version = wanted.name, wanted.version
    return Released(kind=kind, name=str(name), version=version, tag=tag_of(name, version), hash=digest, archive=signed)


def check_key_is_published(directory: Path, released: Release, key: SigningKey) -> bool:
    """Check that the repository's `keys/publisher.pub` is the public half of `key`. Return False if the repository has
    no such file.

    Raises AileronError(invalid_request) if that file has another key: nobody could install the release, since an install
    accepts only the published key.

    `directory` has the connector's sources: the repository's root, or as many folders below it as the connector's name says.
    """
    depth = len(Fqn.parse(released.artifacts[0].name).path) - 2
    for place in (directory, *directory.absolute().parents[:depth]):
        if os.path.lexists(place / KEY_PATH):
            _check_published(place / KEY_PATH, key)
            return True
    return False


def _check_published(path: Path, key: SigningKey) -> None:
    try:
        published = PublicKey.parse(_read(path, MAX_KEY_FILE_BYTES).decode())
    except ValueError as error:
        raise _refused(path, f"not a public key: {error}") from None
    if published != key.public:
        said = f"the key to sign with is {key.public.fingerprint}, and this file publishes {published.fingerprint}"
        raise _refused(path, f"{said}; sign with that key, or publish this one")


def write_release(released: Release, directory: Path) -> None:
    """Write each archive to its path below `directory`, which must not exist yet. Either all archives are written or none.

    Raises AileronError: invalid_request if `directory` exists or its parent is missing, otherwise the class of the file
    system's error.
    """
    if os.path.lexists(directory):
        raise _refused(directory, "already exists; remove it, or choose another directory with -o DIR")
    staged = directory.with_name(f".{directory.name}.{secrets.token_hex(8)}.tmp")
    with files.translated(directory, "cannot be written"):
        try:
            for artifact in released.artifacts:
                path = staged / artifact.path
                path.parent.mkdir(parents=True)
                path.write_bytes(artifact.archive)
            staged.rename(directory)
        except FileNotFoundError:
            raise _refused(directory, "its parent directory does not exist") from None
        finally:
            shutil.rmtree(staged, ignore_errors=True)


# One action


def _released_action(
    path: Path,
    connector: Released,
    repository: Fqn,
    parse: ParseAction,
    fit: Callable[[ActionFile, str], None],
    key: SigningKey | None,
    trust: Trust,
) -> Released:
    file = str(path)
    data = _read(path, MAX_BYTES[ACTION])
    unbound = parse(_text(data, file), file=file, allow_placeholder=True)
    _check_source(unbound, data, file, connector, repository)
    _check_requires(unbound, data, file, connector)
    bound = _bound_action(unbound, data, file, connector)
    wanted = _wanted_of(parse(_text(bound, file), file=file), file)
    archive = _signed({ACTION: bound}, key)
    checked = action_of(archive, trust, wanted=wanted, parse=parse)
    fit(checked.action, file)
    return Released(
        kind="action",
        name=str(wanted.name),
        version=wanted.version,
        tag=tag_of(wanted.name, wanted.version),
        hash=checked.digest,
        archive=archive,
    )


def _check_source(action: ActionFile, data: bytes, file: str, connector: Released, repository: Fqn) -> None:
    """Check that `source` names the place where this file is published: its connector's repository, in the version of
    the release.
    """
    place = f"{repository.scheme}://{'/'.join(repository.path[:2])}"
    example = f'source = "{place}/{ACTIONS}/{action.name}@{action.version}"'
    if action.source is None:
        raise _refused_action(file, 1, f"no source, which says where it is published; write {example}")
    name, _, version = action.source.rpartition("@")
    line = _line_with(data, action.source)
    if Authority.of_repository(Fqn.parse(name)) != Authority.of_repository(repository):
        problem = (
            f"source {action.source!r} is in another repository than its connector, {repository}; expected {example}"
        )
        raise _refused_action(file, line, problem)
    if Fqn.parse(name).path[-1] != action.name:
        raise _refused_action(
            file, line, f"source {action.source!r} does not end in the name {action.name!r}; expected {example}"
        )
    for said, where in ((version, "source"), (action.version, "version")):
        if said not in (UNRELEASED, connector.version):
            problem = f'{where} says "{said}", which is neither "{UNRELEASED}" nor the version to release, {connector.version}'
            raise _refused_action(file, line if where == "source" else _line_with(data, said), problem)


def _check_requires(action: ActionFile, data: bytes, file: str, connector: Released) -> None:
    for needed in action.connectors:
        if str(needed.name) == connector.name:
            if needed.version not in (UNRELEASED, connector.version):
                problem = f'requires {needed.name} in version "{needed.version}"; expected "{UNRELEASED}": it is released with it'
                raise _refused_action(file, _line_with(data, needed.version), problem)
            if needed.hash not in (UNBOUND_HASH, connector.hash):
                problem = f'the hash of {needed.name} is not that of this release; write hash = "{UNBOUND_HASH}"'
                raise _refused_action(file, _line_with(data, needed.hash), problem)
        elif needed.hash == UNBOUND_HASH or needed.version == UNRELEASED:
            problem = f"{needed.name} is not released here: write the version and hash it is published with"
            raise _refused_action(file, _line_with(data, str(needed.name)), problem)


def _bound_action(action: ActionFile, data: bytes, file: str, connector: Released) -> bytes:
    """Return the action file `data` with its version, source and connector's pin in place of placeholders. The prose is
    not changed.
    """
    end = data.index(b"\n" + _FENCE, len(_FENCE)) + 1
    head, body = data[:end], data[end:]
    ours = [needed for needed in action.connectors if str(needed.name) == connector.name]
    versions = [action.version, *(needed.version for needed in ours)].count(UNRELEASED)
    places = (
        [(PlaceholderSite("version", UNRELEASED, times=versions, fix="--version"), connector.version)]
        if versions
        else []
    )
    source, _, version = str(action.source).rpartition("@")
    if version == UNRELEASED:
        places.append((PlaceholderSite("source", UNRELEASED, before=f"{source}@", fix="--version"), connector.version))
    if any(needed.hash == UNBOUND_HASH for needed in ours):
        places.append((PlaceholderSite("hash", UNBOUND_HASH, fix="the release"), connector.hash))
    for place, value in places:
        head = bind(head, file, place, value, Boundary.ACTION)
    check_none_left(head, file, Boundary.ACTION)
    return head + body


def _action_files(directory: Path) -> list[Path]:
    """Return the paths of `actions/*/action.md`, by name.

    A folder without that file, or a link, is an error, because its action would be missing from the release.
    """
    folder = directory / ACTIONS
    if not os.path.lexists(folder):
        return []
    with files.translated(folder, "cannot be listed"):
        found = sorted(path for path in folder.iterdir() if path.name[0] != ".")
    if len(found) > _MAX_ACTIONS:
        raise _refused(folder, f"{len(found)} actions; at most {_MAX_ACTIONS}")
    for path in found:
        if not stat.S_ISDIR(path.lstat().st_mode):
            raise _refused(path, f"not a directory; an action is {ACTIONS}/NAME/{ACTION}")
        if not os.path.lexists(path / ACTION):
            raise _refused(path, f"no {ACTION}")
    return [path / ACTION for path in found]


# Archives


def _signed(members: dict[str, bytes], key: SigningKey | None) -> bytes:
    """Pack `members` with a signature by `key` over connector ‖ manifest.toml, or over action.md; without `key`, unsigned."""
    kept = {name: data for name, data in members.items() if name != SIGNATURE}
    if key is None:
        return pack(kept)
    message = kept[CONNECTOR] + kept[MANIFEST] if CONNECTOR in kept else kept[ACTION]
    return pack({**kept, SIGNATURE: key.sign(message)})


def _members(archive: bytes) -> tuple[dict[str, bytes], Kind]:
    try:
        return unpack(archive), "connector"
    except AileronError as no_connector:
        try:
            return unpack(archive, "action"), "action"
        except AileronError as no_action:
            # A broken archive of an action is reported as one; everything else as a connector's.
            raise (no_action if f"{ACTION!r}" in no_connector.failure.message else no_connector) from None


def _trust_in(name: Fqn, key: SigningKey | None) -> Trust:
    """Return a `Trust` that contains only `key`, and only for the repository of `name`, to check an archive as an
    install would.
    """
    if key is None:
        return Trust()
    keyring = Keyring().trusting(Authority.of_repository(name), key.public)
    return Trust(keyring=keyring, require_signature=True)


def _wanted_of(action: ActionFile, file: str) -> ArtifactRequest:
    if action.source is None:
        raise _refused_action(file, 1, "no source, which says where it is published; whoever fetches it is refused")
    return ArtifactRequest.parse(action.source)


# Files and refusals


def _check_version(version: str) -> None:
    try:
        check_semver(version)
    except ValueError as error:
        raise AileronError(FailureClass.INVALID_REQUEST, f"--version: {error}", boundary=Boundary.USER) from None
    if version == UNRELEASED:
        problem = f"--version: {UNRELEASED} is the placeholder of unreleased sources; give a version, such as 0.1.0"
        raise AileronError(FailureClass.INVALID_REQUEST, problem, boundary=Boundary.USER)


def _check_distinct(artifacts: Sequence[Released], directory: Path) -> None:
    seen: dict[str, str] = {}
    for artifact in artifacts:
        if artifact.tag in seen:
            problem = f"{seen[artifact.tag]} and {artifact.name} would both be released with the tag {artifact.tag}"
            raise _refused(directory, problem)
        seen[artifact.tag] = artifact.name


def _read(path: Path, limit_bytes: int) -> bytes:
    """Read a regular file; neither the file nor its folder can be a link. Raises FileNotFoundError if it is missing."""
    with files.translated(path.parent, "cannot be opened"):
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return files.read(descriptor, path, limit_bytes)
    finally:
        os.close(descriptor)


def _text(data: bytes, file: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _refused_action(file, line_of(data, error.start), f"not valid UTF-8 (byte {error.start})") from None


def _line_with(data: bytes, text: str) -> int | None:
    """Return the number of the first line that contains the quoted `text`; None if no line does."""
    places = [at for mark in ('"', "'") if (at := data.find(f"{mark}{text}{mark}".encode())) >= 0]
    return line_of(data, min(places)) if places else None


def _refused_action(file: str, line: int | None, problem: str) -> AileronError:
    return refusal(file, line, problem, Boundary.ACTION)


def _refused(path: Path, problem: str) -> AileronError:
    return refusal(str(path), None, problem, Boundary.CONNECTOR_MANIFEST)
