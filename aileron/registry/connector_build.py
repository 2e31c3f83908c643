"""The build of a connector's source directory into `aileron.tar.gz`.

A Python connector becomes a zip with a `__main__.py`; a compiled one brings its own file `connector`. The
same sources give the same bytes on any machine: no clock, umask, owner, file order or compression library
affects the hashed bytes. Reads the directory and runs nothing of it. Used by `aileron connector build` and by
an install from a directory.

sources.py selects the files that go in. `connector.py` becomes the `__main__.py` of a directory that has none.

Source: docs/reference/connector-manifest.md; PKWARE APPNOTE 6.3 for the zip. Not here: signing.
"""

from __future__ import annotations

import io
import re
import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.login import LoginTarget
from aileron.model.manifest import ConnectorManifest
from aileron.model.names import HostPort
from aileron.model.secret import Secret
from aileron.registry.manifest import UNBOUND_HOSTS, parse_connector_manifest
from aileron.registry.op_logins import check_logins, said_logins
from aileron.registry.operations import as_toml, recorded
from aileron.registry.placeholders import UNBOUND_BUILD, UNBOUND_CLIENT, UNRELEASED, PlaceholderSite, bind
from aileron.registry.program import check_program
from aileron.registry.sources import LeftOut, collected
from aileron.registry.tarball import CONNECTOR, MANIFEST, pack

__all__ = ["Application", "Built", "build", "made_up_logins", "made_up_region", "unbound_protocols"]

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest timestamp that a zip can hold; every entry gets this timestamp."""
_UNIX: Final = 3
"""Code for Unix in the zip's "made by" field; a constant, so that all systems build the same bytes."""
_CLIENT: Final = re.compile(rb"[\x20-\x7e]{1,512}")
"""Pattern of a client id or secret: RFC 6749 appendix A.1 and A.2 (VSCHAR); known values have less than a hundred characters."""
_UNBOUND_HOSTS: Final = re.compile(rb"""["']bound-at-build["']""")
_UNBOUND_LOGIN: Final = re.compile(rb"""["']([a-z0-9]+)://bound-at-build["']""")
_MAIN: Final = "__main__.py"
_CONNECTOR_PY: Final = "connector.py"


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """A built artifact and its parts: the pin covers `connector` followed by `manifest`.

    Also lists data files and the source files that were omitted.
    """

    connector: bytes
    manifest: bytes
    archive: bytes
    data: tuple[str, ...] = ()
    """Names of the connector's files that are not Python."""
    left_out: tuple[LeftOut, ...] = ()
    unnamed: int = 0
    """Number of omitted files beyond those that `left_out` names."""


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """The publisher's own application at the provider, with the client id and secret that the provider issued."""

    client_id: str
    client_secret: Secret | None = None
    """Secret of an installed application: everybody with the archive can read the secret, but Aileron prints it nowhere."""


def build(
    directory: Path,
    hosts: Sequence[HostPort] = (),
    application: Application | None = None,
    version: str | None = None,
    logins: Sequence[LoginTarget] = (),
    region: str | None = None,
    account: str | None = None,
    packed: Path | None = None,
) -> Built:
    """Build the sources in `directory`; `hosts` replace `hosts = ["bound-at-build"]` in the built manifest.

    Each of `logins` replaces the `PROTOCOL://bound-at-build` of its protocol, and its host must be one of `hosts`. `logins`
    can be empty if the source has one login placeholder and there is one host: the login then gets that host.

    `region` replaces `region = "bound-at-build"`: requests are signed for this region.

    `application` replaces `client_id = "bound-at-release"`, and its secret, if any, `client_secret`; `version`, which is
    SemVer, replaces `version = "0.0.0-dev"`; a manifest without that placeholder must already state this version. `account`
    is added to the connector's name as its last part, so that builds for different hosts have different names. `packed` is a
    folder of packages that are packed beside the sources, as if they lay there.

    Raises AileronError(invalid_request) for an invalid manifest, a remaining or missing placeholder, a missing program, links, or
    too much data.
    """
    sources = collected(directory)
    found = sources.found if packed is None else collected(packed).found | sources.found
    if MANIFEST not in found:
        raise _refused(directory, f"no {MANIFEST}")
    unbound, path = found.pop(MANIFEST), directory / MANIFEST
    if version is not None:
        unbound = _with_version(unbound, path, version)
    if account is not None:
        unbound = _with_account(unbound, path, account)
    manifest = _with_operations(
        _bound(_with_region(unbound, path, region), path, hosts, logins, application), path, found
    )
    program = _program(found, directory)
    return Built(
        connector=program,
        manifest=manifest,
        archive=pack({CONNECTOR: program, MANIFEST: manifest}),
        data=() if CONNECTOR in found else tuple(sorted(name for name in found if not name.endswith(".py"))),
        left_out=sources.left_out,
        unnamed=sources.unnamed,
    )


def _program(found: dict[str, bytes], directory: Path) -> bytes:
    entries = [name for name in (CONNECTOR, _MAIN, _CONNECTOR_PY) if name in found]
    if not entries:
        raise _refused(directory, f"no {_MAIN}, {_CONNECTOR_PY} or compiled {CONNECTOR}")
    if CONNECTOR in entries and len(entries) > 1:
        raise _refused(directory, f"{' and '.join(entries)} could each be the program: remove one")
    if _MAIN not in entries and _CONNECTOR_PY in entries:
        found[_MAIN] = found.pop(_CONNECTOR_PY)
    program = found[CONNECTOR] if CONNECTOR in entries else _zipped(found)
    try:
        check_program(program)
    except ValueError as error:
        raise _refused(directory, str(error)) from None
    return program


def _zipped(sources: dict[str, bytes]) -> bytes:
    """Pack sources into a zip without compression: imports are faster, and the bytes depend on no compression library."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(sources.items()):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = _UNIX
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data)
    return packed.getvalue()


def _bound(
    data: bytes,
    path: Path,
    hosts: Sequence[HostPort],
    logins: Sequence[LoginTarget],
    application: Application | None,
) -> bytes:
    """Return the manifest with the placeholders of hosts, logins and application replaced, checked as an install checks it."""
    logins = logins or _maybe_only_login(data, hosts)
    hosts = list(dict.fromkeys((*hosts, *(login.destination for login in logins))))
    if logins:
        data = _with_logins(data, path, logins)
    if hosts:
        data = _with_hosts(data, path, hosts)
    if application is not None:
        data = _with_application(data, path, application)
    manifest = parse_connector_manifest(data, file=str(path))
    if hosts and manifest.hosts != tuple(hosts):
        raise _refused(path, f'"{UNBOUND_HOSTS}" is not the value of [capabilities.network] hosts')
    if logins and (manifest.credential is None or set(manifest.credential.logins) != set(logins)):
        raise _refused(path, "the placeholders are not in [capabilities.credential] logins")
    if application is not None:
        provider, secret = manifest.oauth2, application.client_secret
        is_there = provider is not None and provider.client_id == application.client_id
        if provider is None or not is_there or (secret and provider.client_secret != secret.reveal().decode()):
            raise _refused(path, "the placeholders are not in [capabilities.credential.oauth2]")
    return data


def _with_hosts(data: bytes, path: Path, hosts: Sequence[HostPort]) -> bytes:
    pieces = _UNBOUND_HOSTS.split(data)
    if len(pieces) != 2:
        problem = f'{len(pieces) - 1} lines contain "{UNBOUND_HOSTS}"; --host replaces exactly one'
        raise _refused(path, problem)
    return b", ".join(f'"{host}"'.encode() for host in hosts).join(pieces)


def _with_region(data: bytes, path: Path, region: str | None) -> bytes:
    """Return the manifest `data` with `region` in place of the region's placeholder. Call this before hosts are bound,
    because their placeholder looks the same.
    """
    if region is not None:
        place = PlaceholderSite("region", UNBOUND_BUILD, fix="--region")
        return bind(data, str(path), place, region, Boundary.CONNECTOR_MANIFEST)
    if _is_region_unbound(data, path):
        raise _refused(path, f'region = "{UNBOUND_BUILD}" is left; add --region REGION, such as us-east-1')
    return data


def _is_region_unbound(data: bytes, path: Path) -> bool:
    """Return whether the manifest's key `region` still has the placeholder. Comments may contain the placeholder's text
    too.
    """
    if UNBOUND_BUILD.encode() not in data:
        return False
    return made_up_region(parse_connector_manifest(data, file=str(path), allow_unbound=True)) is not None


def made_up_region(manifest: ConnectorManifest) -> str | None:
    """Return a region for builds whose signatures no service checks, such as tests, if the manifest has the region's
    placeholder; otherwise None.
    """
    need = manifest.credential
    return "us-east-1" if need is not None and need.aws and need.aws.region == UNBOUND_BUILD else None


def _maybe_only_login(data: bytes, hosts: Sequence[HostPort]) -> tuple[LoginTarget, ...]:
    """Return the only login placeholder bound to the only host; empty unless the manifest has one login and there is one host."""
    unbound = _UNBOUND_LOGIN.findall(data)
    if len(unbound) != 1 or len(hosts) != 1:
        return ()
    return (LoginTarget.parse(f"{unbound[0].decode()}://{hosts[0]}"),)


def made_up_logins(manifest: bytes) -> tuple[LoginTarget, ...]:
    """Return a login under `.invalid` for each login placeholder of a source, for uses without a real server."""
    return tuple(LoginTarget.parse(f"{protocol}://{protocol}.invalid:1") for protocol in unbound_protocols(manifest))


def unbound_protocols(manifest: bytes) -> tuple[str, ...]:
    """Return the protocols of the login placeholders of a source, such as `imap`, in order."""
    return tuple(dict.fromkeys(found.decode() for found in _UNBOUND_LOGIN.findall(manifest)))


def _with_logins(data: bytes, path: Path, logins: Sequence[LoginTarget]) -> bytes:
    """Return the manifest `data` with each login placeholder replaced by those of `logins` that have the placeholder's
    protocol.
    """
    protocols = dict.fromkeys(login.protocol for login in logins)
    unbound = [found.decode() for found in _UNBOUND_LOGIN.findall(data)]
    if not unbound:
        problem = f'no login with the host "{UNBOUND_HOSTS}" in [capabilities.credential]; leave --login out'
        raise _refused(path, problem)
    for protocol in sorted({*unbound, *protocols}):
        if unbound.count(protocol) == 1 and protocol in protocols:
            continue
        if protocol in protocols:
            problem = (
                f'{unbound.count(protocol)} lines contain "{protocol}://{UNBOUND_HOSTS}"; --login replaces exactly one'
            )
        else:
            problem = f'"{protocol}://{UNBOUND_HOSTS}" is left; add --login {protocol}://NAME:PORT'
        raise _refused(path, problem)

    def bound(found: re.Match[bytes]) -> bytes:
        return b", ".join(f'"{login}"'.encode() for login in logins if login.protocol == found[1].decode())

    return _UNBOUND_LOGIN.sub(bound, data)


def _with_operations(data: bytes, path: Path, sources: dict[str, bytes]) -> bytes:
    """Return the manifest, completed with the operations that the source code declares.

    The manifest is returned unchanged if it lists operations itself, or if the operations of the source code cannot be
    determined. Even then, any login that the source code states for an operation must also be in the manifest.
    """
    if CONNECTOR in sources:
        return data
    written = parse_connector_manifest(data, file=str(path)).operations
    operations = recorded(sources) if written is None else None
    try:
        said = said_logins(sources)
        check_logins(said, operations if written is None else written)
    except ValueError as error:
        raise _refused(path, str(error)) from None
    if operations is None:
        return data
    whole = data.rstrip(b"\n") + b"\n\n" + as_toml(operations).encode()
    try:
        parse_connector_manifest(whole, file=str(path))
    except AileronError:
        if said:
            raise
        # Too large, or not valid in a manifest: the record is only a help, and no reason to refuse a connector.
        return data
    return whole


def _with_version(data: bytes, path: Path, version: str) -> bytes:
    """Return the manifest with `version` in place of the version's placeholder.

    A manifest without the placeholder must state this version.
    """
    said = parse_connector_manifest(data, file=str(path), allow_unbound=True).version
    if said == UNRELEASED:
        place = PlaceholderSite("version", UNRELEASED, fix="--version")
        return bind(data, str(path), place, version, Boundary.CONNECTOR_MANIFEST)
    if said != version:
        raise _refused(path, f'version = "{said}" is neither "{UNRELEASED}" nor the version to release, {version}')
    return data


def _with_account(data: bytes, path: Path, account: str) -> bytes:
    """Return the manifest with `account` as the last part of the connector's name."""
    name = str(parse_connector_manifest(data, file=str(path), allow_unbound=True).name)
    pieces = re.split(rb"""["']%s["']""" % re.escape(name.encode()), data)
    if len(pieces) != 2:
        raise _refused(path, f'"{name}" is written {len(pieces) - 1} times; an account can be added to exactly one')
    return f'"{name}/{account}"'.encode().join(pieces)


def _with_application(data: bytes, path: Path, application: Application) -> bytes:
    data = _with_value(data, path, "client_id", application.client_id.encode())
    if application.client_secret is None:
        return data
    return _with_value(data, path, "client_secret", application.client_secret.reveal())


def _with_value(data: bytes, path: Path, key: str, value: bytes) -> bytes:
    """Return the manifest with the string `value` in place of the placeholder of `key`. Key and placeholder are on one
    line.
    """
    if _CLIENT.fullmatch(value) is None:
        raise _refused(path, f"the {key} to bind is empty, longer than 512 characters or not printable ASCII")
    option = f"--{key.replace('_', '-')}{'-file' if key == 'client_secret' else ''}"
    place = PlaceholderSite(key, UNBOUND_CLIENT, fix=option)
    return bind(data, str(path), place, value.decode("ascii"), Boundary.CONNECTOR_MANIFEST)


def _refused(path: Path, problem: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, f"{path}: {problem}", boundary=Boundary.CONNECTOR_MANIFEST)
