"""`aileron.tar.gz`: a connector as one file, packed deterministically and unpacked with suspicion.

The archive is flat and has exactly the members named below, once each, as regular files. It is read here, not
by `tarfile`, because everything that makes a general reader general (paths, links, devices, sparse maps,
extensions that rename a member) is what an attacker would use; what this reader does not know, it refuses.
Nothing is ever written while unpacking. Pure.

Source: POSIX.1-2017 pax(1), "ustar Interchange Format"; tar(5); RFC 1952.
docs/reference/connector-manifest.md. Not here: what the members mean.

>>> unpack(pack({"connector": b"PK", "manifest.toml": b""}))["connector"]
b'PK'
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from aileron.model.document import MAX_DOCUMENT_BYTES
from aileron.model.failure import AileronError, Boundary, FailureClass

__all__ = ["CONNECTOR", "MANIFEST", "MAX_ARCHIVE_BYTES", "MAX_BYTES", "SIGNATURE", "pack", "unpack"]

CONNECTOR: Final = "connector"
MANIFEST: Final = "manifest.toml"
SIGNATURE: Final = "signature.sig"

MAX_BYTES: Final[dict[str, int]] = {
    CONNECTOR: 64 << 20,  # 64 MiB: a static binary with its own TLS and certificates is 10 to 30
    MANIFEST: MAX_DOCUMENT_BYTES,
    SIGNATURE: 64 << 10,  # 64 KiB: a raw signature has 64 bytes, a bundle with its certificates about 10 KiB
}
_BLOCK: Final = 512
_PAX_BYTES: Final = 16 << 10
"""Extended attributes of one member; a time and an owner take some 60 bytes."""
MAX_ARCHIVE_BYTES: Final = sum(MAX_BYTES.values()) + (1 << 20)
"""Unpacked, headers and padding included; 1 MiB is room for GNU tar's 10 KiB records and for extended
headers.
"""
# Attributes that change nothing about what a member is called or holds. `path`, `size`, `linkpath`,
# `GNU.sparse.*` do.
_HARMLESS_PAX: Final = frozenset({"atime", "ctime", "mtime", "uid", "gid", "uname", "gname", "comment"})


def pack(members: Mapping[str, bytes]) -> bytes:
    """The archive of `members`, sorted by name. The same members give the same bytes, whatever the clock or
    umask.
    """
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


def unpack(archive: bytes) -> dict[str, bytes]:
    """The members by name: `connector` and `manifest.toml` always, `signature.sig` perhaps.

    AileronError(invalid_request) for anything that is not exactly such an archive.
    """
    members: dict[str, bytes] = {}
    for name, data in _members(_decompressed(archive)):
        if name in members:
            raise _refused(f"{name!r} is in it twice")
        members[name] = data
    for name in (CONNECTOR, MANIFEST):
        if name not in members:
            raise _refused(f"{name!r} is missing")
    return members


def _decompressed(archive: bytes) -> bytes:
    stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)  # gzip only
    try:
        plain = stream.decompress(archive, MAX_ARCHIVE_BYTES + 1)
    except zlib.error as error:
        raise _refused(f"not gzip: {error}") from None
    if len(plain) > MAX_ARCHIVE_BYTES:
        raise _refused(f"it unpacks to more than {MAX_ARCHIVE_BYTES} bytes")
    if not stream.eof:
        raise _refused("it is cut short")
    if stream.unused_data:
        raise _refused("it has something behind its end")
    return plain


class _Header(NamedTuple):
    name: str
    size: int
    kind: bytes


def _members(plain: bytes) -> Iterator[tuple[str, bytes]]:
    position = 0
    while (block := plain[position : position + _BLOCK]) != bytes(_BLOCK):
        header = _header(block)
        position += _BLOCK
        data = plain[position : position + header.size]
        if len(data) != header.size:
            raise _refused("it is cut short")
        position += -(-header.size // _BLOCK) * _BLOCK
        if header.kind == b"x":
            _check_pax(data)
        else:
            yield header.name, data
    if any(plain[position:]) or len(plain) - position < 2 * _BLOCK:
        raise _refused("it does not end with two empty blocks and nothing else")


def _header(block: bytes) -> _Header:
    if len(block) != _BLOCK or block[257:262] != b"ustar" or _octal(block[148:156]) != _checksum(block):
        raise _refused("not a ustar archive")
    name = block[:100].rstrip(b"\0").decode("latin-1")
    kind, size = block[156:157], _octal(block[124:136])
    if kind == b"x":  # attributes of the next member; its own name means nothing
        if size > _PAX_BYTES:
            raise _refused(f"extended attributes of {size} bytes; at most {_PAX_BYTES}")
        return _Header(name, size, kind)
    if kind not in (b"0", b"\0"):
        raise _refused(f"{name!a} is of type {kind.decode('latin-1')!a}; only regular files are allowed")
    # GNU tar keeps times in the last part of what ustar calls the prefix, which is a path only after ustar's
    # own magic.
    if name not in MAX_BYTES or (block[257:265] == b"ustar\x0000" and any(block[345:500])):
        raise _refused(f"it holds {name!a}; expected {', '.join(MAX_BYTES)}, without a directory")
    if size > MAX_BYTES[name]:
        raise _refused(f"{name!r} has {size} bytes; at most {MAX_BYTES[name]}")
    return _Header(name, size, kind)


def _checksum(block: bytes) -> int:
    return sum(block[:148]) + 8 * ord(" ") + sum(block[156:])


def _octal(field: bytes) -> int:
    """Octal digits ended by a space or NUL. The binary form, for large files, is refused."""
    digits = re.fullmatch(rb" *([0-7]{1,12})[ \0]*", field)
    if not digits:
        raise _refused("a header field is not an octal number")
    return int(digits[1], 8)


def _check_pax(data: bytes) -> None:
    """Records of `LENGTH KEY=VALUE` and a line end; only keys that leave name and content alone."""
    while data:
        match = re.match(rb"([1-9][0-9]{0,4}) ([^=\n]+)=", data)
        length = int(match[1]) if match else 0
        if not match or not match.end() < length <= len(data) or data[length - 1 : length] != b"\n":
            raise _refused("a malformed extended attribute")
        key = match[2].decode("latin-1")
        if key not in _HARMLESS_PAX:
            raise _refused(f"the extended attribute {key!a}; pack it with `aileron connector build`")
        data = data[length:]


def _refused(problem: str) -> AileronError:
    return AileronError(
        FailureClass.INVALID_REQUEST,
        f"not a connector archive: {problem}",
        boundary=Boundary.CONNECTOR_MANIFEST,
    )
