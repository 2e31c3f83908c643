"""The archive `aileron.tar.gz` of a connector or an action: packed deterministically, unpacked as untrusted.

The archive is flat and has exactly the members named below, once each, as regular files. It is not read by `tarfile`, because
an attacker could use the features that only a general reader needs (paths, links, devices, sparse maps, extensions that rename
a member). This reader refuses everything else. Unpacking writes no file. Pure.

Source: POSIX.1-2017 pax(1), "ustar Interchange Format"; tar(5); RFC 1952.
docs/reference/connector-manifest.md. Not here: what the members mean.

>>> unpack(pack({"connector": b"PK", "manifest.toml": b""}))["connector"]
b'PK'
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from aileron.model.document import MAX_DOCUMENT_BYTES
from aileron.model.failure import AileronError, Boundary, FailureClass

__all__ = [
    "ACTION",
    "CONNECTOR",
    "MANIFEST",
    "MAX_ARCHIVE_BYTES",
    "MAX_BYTES",
    "SIGNATURE",
    "Kind",
    "kind_of",
    "pack",
    "unpack",
]

Kind = Literal["connector", "action"]
"""Kind of an archive's content."""
CONNECTOR: Final = "connector"
MANIFEST: Final = "manifest.toml"
ACTION: Final = "action.md"
SIGNATURE: Final = "signature.sig"

MAX_BYTES: Final[dict[str, int]] = {
    CONNECTOR: 64 << 20,  # 64 MiB: a static binary with its own TLS and certificates is 10 to 30
    MANIFEST: MAX_DOCUMENT_BYTES,
    ACTION: MAX_DOCUMENT_BYTES,
    SIGNATURE: 64 << 10,  # 64 KiB: a raw signature has 64 bytes, a bundle with its certificates about 10 KiB
}
_NEEDED: Final[dict[Kind, tuple[str, ...]]] = {"connector": (CONNECTOR, MANIFEST), "action": (ACTION,)}
"""Members that each kind must have; a signature is optional."""
_CALLED: Final[dict[Kind, tuple[str, Boundary]]] = {
    "connector": ("a connector", Boundary.CONNECTOR_MANIFEST),
    "action": ("an action", Boundary.ACTION),
}
_GROWTH: Final = 200
"""Maximum growth factor of an archive when unpacked: programs grow by a factor of three to six, and zeros by a thousand."""
_FREE_BYTES: Final = 1 << 20
"""1 MiB: unpacked content up to this size may have any growth factor."""
_BLOCK: Final = 512
_PAX_BYTES: Final = 16 << 10
"""Maximum size in bytes of a member's pax header; the usual records, a time and an owner, take some 60 bytes."""
MAX_ARCHIVE_BYTES: Final = MAX_BYTES[CONNECTOR] + MAX_BYTES[MANIFEST] + MAX_BYTES[SIGNATURE] + (1 << 20)
"""Maximum size in bytes of an unpacked archive, headers and padding included.

1 MiB is room for GNU tar's 10 KiB records and for extended headers.
"""
_RECORD: Final = re.compile(rb"([1-9][0-9]{0,4}) ([^=\n]+)=")
# Attributes that do not change a member's name or content. `path`, `size`, `linkpath`,
# `GNU.sparse.*` do.
_HARMLESS_PAX: Final = frozenset({"atime", "ctime", "mtime", "uid", "gid", "uname", "gname", "comment"})


def pack(members: Mapping[str, bytes]) -> bytes:
    """Pack `members`, sorted by name. The same members give the same bytes, whatever the clock or umask."""
    import tarfile  # only where one is written

    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(members.items()):
            info = tarfile.TarInfo(name)  # time, owner and group are 0 and empty
            info.size, info.mode = len(data), 0o644
            archive.addfile(info, io.BytesIO(data))
    packed = io.BytesIO()
    # No file name and no time in the gzip header. The pin does not cover the compression, only the members.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as compressed:
        compressed.write(plain.getvalue())
    return packed.getvalue()


def unpack(archive: bytes, kind: Kind = "connector") -> dict[str, bytes]:
    """Return the members by name: `connector` and `manifest.toml`, or `action.md`; and `signature.sig` if present.

    Raises AileronError(invalid_request) for anything that is not exactly such an archive.
    """
    try:
        members = dict(_members(_decompressed(archive), (*_NEEDED[kind], SIGNATURE)))
        for name in _NEEDED[kind]:
            if name not in members:
                raise ValueError(f"{name!r} is missing")
    except ValueError as error:
        called, boundary = _CALLED[kind]
        raise AileronError(FailureClass.INVALID_REQUEST, f"not {called} archive: {error}", boundary=boundary) from None
    return members


def kind_of(archive: bytes) -> Kind:
    """Return the kind that an untrusted archive seems to have, judging only by its members' names; `unpack` checks the
    archive.

    Raises AileronError(invalid_request) if the kind cannot be determined.
    """
    try:
        names = {name for name, _ in _members(_decompressed(archive), tuple(MAX_BYTES))}
    except ValueError as error:
        problem = f"not an archive of a connector or an action: {error}"
        raise AileronError(FailureClass.INVALID_REQUEST, problem, boundary=Boundary.USER) from None
    return "action" if ACTION in names and CONNECTOR not in names else "connector"


def _decompressed(archive: bytes) -> bytes:
    stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)  # gzip only
    try:
        plain = stream.decompress(archive, MAX_ARCHIVE_BYTES + 1)
    except zlib.error as error:
        raise ValueError(f"not gzip: {error}") from None
    if len(plain) > MAX_ARCHIVE_BYTES:
        raise ValueError(f"it unpacks to more than {MAX_ARCHIVE_BYTES} bytes")
    if len(plain) > _FREE_BYTES and len(plain) > _GROWTH * len(archive):
        raise ValueError(f"it grows more than {_GROWTH} times when unpacked")
    if not stream.eof:
        raise ValueError("it is truncated")
    if stream.unused_data:
        raise ValueError("extra data follows its end")
    return plain


class _Header(NamedTuple):
    name: str
    size: int
    kind: bytes


def _members(plain: bytes, allowed: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each member of an uncompressed tar archive.

    Raises ValueError for a member that is not in `allowed` or appears twice, and for any other irregularity.
    """
    position, described, seen = 0, False, set[str]()
    while (block := plain[position : position + _BLOCK]) != bytes(_BLOCK):
        header = _header(block, allowed)
        if described and header.kind == b"x":  # without number, they would take minutes to read
            raise ValueError("it has extended attributes of no member")
        described = header.kind == b"x"
        position += _BLOCK
        data = plain[position : position + header.size]
        if len(data) != header.size:
            raise ValueError("it is truncated")
        position += -(-header.size // _BLOCK) * _BLOCK
        if header.kind == b"x":
            _check_pax(data)
        elif header.name in seen:
            raise ValueError(f"{header.name!r} appears twice")
        else:
            seen.add(header.name)
            yield header.name, data
    if any(plain[position:]) or len(plain) - position < 2 * _BLOCK:
        raise ValueError("it does not end with two empty blocks and nothing else")


def _header(block: bytes, allowed: tuple[str, ...]) -> _Header:
    if len(block) != _BLOCK or block[257:262] != b"ustar" or _octal(block[148:156]) != _checksum(block):
        raise ValueError("not a ustar archive")
    name = block[:100].rstrip(b"\0").decode("latin-1")
    kind, size = block[156:157], _octal(block[124:136])
    if kind == b"x":  # attributes of the next member; its own name means nothing
        if size > _PAX_BYTES:
            raise ValueError(f"extended attributes of {size} bytes; at most {_PAX_BYTES}")
        return _Header(name, size, kind)
    if kind not in (b"0", b"\0"):
        raise ValueError(f"{name!a} is of type {kind.decode('latin-1')!a}; only regular files are allowed")
    # GNU tar keeps times in the last part of what ustar calls the prefix, which is a path only after ustar's
    # own magic.
    if name not in allowed or (block[257:265] == b"ustar\x0000" and any(block[345:500])):
        raise ValueError(f"it holds {name!a}; expected {', '.join(allowed)}, without a directory")
    if size > MAX_BYTES[name]:
        raise ValueError(f"{name!r} has {size} bytes; at most {MAX_BYTES[name]}")
    return _Header(name, size, kind)


def _checksum(block: bytes) -> int:
    return sum(block[:148]) + 8 * ord(" ") + sum(block[156:])


def _octal(field: bytes) -> int:
    """Parse octal digits that end with a space or NUL. Raises ValueError for the binary form, which is for large files."""
    digits = re.fullmatch(rb" *([0-7]{1,12})[ \0]*", field)
    if not digits:
        raise ValueError("a header field is not an octal number")
    return int(digits[1], 8)


def _check_pax(data: bytes) -> None:
    """Check a pax header, made of records `LENGTH KEY=VALUE` and a newline.

    Raises ValueError for a malformed record, and for any key that could change the name or content of the member.
    """
    start = 0
    while start < len(data):
        match = _RECORD.match(data, start)
        end = start + int(match[1]) if match else 0
        if not match or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
            raise ValueError("a malformed extended attribute")
        key = match[2].decode("latin-1")
        if key not in _HARMLESS_PAX:
            raise ValueError(f"the extended attribute {key!a}; pack it with `aileron connector build`")
        start = end
