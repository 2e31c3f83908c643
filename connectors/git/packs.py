"""An in-memory store of git objects from packs. Sizes are checked before objects are unpacked, and reads are bounded.

A pack of a few kilobytes can unpack to gigabytes: through zlib, through deltas on deltas, and through trees that contain
copies of each other. So each entry's stated size is compared with the bytes that zlib returns, before dulwich resolves the
deltas. Each read of an object counts against MAX_LOOKS.

Source: gitformat-pack(5). Not here: fetching packs (remote.py), paths (trees.py).
"""

from __future__ import annotations

import zlib
from io import BytesIO
from typing import Any, Final

from dulwich.object_format import DEFAULT_OBJECT_FORMAT
from dulwich.objects import Blob, Commit, ObjectID, ShaFile, Tag, Tree
from dulwich.pack import PackData, UnpackedObjectIterator
from remote import TooLarge

from aileron_connector import ExternalApiError

__all__ = ["MAX_OBJECTS", "MAX_UNPACKED_BYTES", "Objects", "check_pack"]

MAX_OBJECTS: Final = 50_000
"""Maximum number of objects in one pack. Each object costs about 500 bytes in addition to its content."""
MAX_UNPACKED_BYTES: Final = 64 << 20
"""Maximum total size in bytes of the objects of one pack, with deltas resolved."""
MAX_LOOKS: Final = 100_000
"""Maximum number of objects that one operation reads. A walk through trees that contain copies of each other would
never end otherwise.
"""
_PIECE_BYTES: Final = 4096
_OFS_DELTA, _REF_DELTA = 6, 7
_TAG_DEPTH: Final = 8
"""Maximum length of a chain of tags that point to tags."""
_CURE: Final = "ask for less history, or read single files"


class Objects:
    """Objects by id. Each id is computed when the object is added, never taken from the server."""

    def __init__(self) -> None:
        self._kept: Final[dict[bytes, tuple[int, bytes]]] = {}
        self._looks = 0

    def add_pack(self, pack: bytes) -> list[bytes]:
        """Add all objects of a pack, and return their ids. Raises TooLarge if the pack exceeds a limit,
        ExternalApiError if the data is not a pack.

        Deltas may refer to objects that are already in the store, as in bundles.
        """
        if not pack:
            return []
        try:
            check_pack(pack)
            return self._unpack(pack)
        except (TooLarge, ExternalApiError):
            raise
        except Exception as error:  # dulwich has no common base class of errors for malformed data
            raise ExternalApiError(f"this is not a pack of git's ({type(error).__name__})") from error

    def add(self, found: ShaFile) -> None:
        """Add an object that this connector made."""
        self._kept[bytes(found.id)] = (found.type_num, found.as_raw_string())

    def commit(self, sha: bytes) -> Commit:
        """Return a commit. Raises ExternalApiError if the object is missing or is not a commit."""
        found = self[sha]
        if not isinstance(found, Commit):
            raise ExternalApiError(f"{sha.decode()} is a {_kind(found)}, not a commit")
        return found

    def tree(self, sha: bytes) -> Tree:
        """Return a tree. Raises ExternalApiError if the object is missing or is not a tree."""
        found = self[sha]
        if not isinstance(found, Tree):
            raise ExternalApiError(f"{sha.decode()} is a {_kind(found)}, not a tree")
        return found

    def blob(self, sha: bytes) -> bytes:
        """Return the content of a blob. Raises ExternalApiError if the object is missing or is not a blob."""
        found = self[sha]
        if not isinstance(found, Blob):
            raise ExternalApiError(f"{sha.decode()} is a {_kind(found)}, not a file")
        return bytes(found.data)

    def peeled(self, sha: bytes) -> bytes:
        """Return the id of the object that an annotated tag points to, through further tags. The id of any other object
        is returned unchanged.
        """
        for _ in range(_TAG_DEPTH):
            if sha not in self:
                return sha
            found = self[sha]
            if not isinstance(found, Tag):
                return sha
            sha = bytes(found.object[1])
        raise ExternalApiError(f"more than {_TAG_DEPTH} tags of tags")

    def size(self, sha: bytes) -> int | None:
        """Return the size of an object in bytes, or None if the object is missing."""
        return len(self._kept[sha][1]) if sha in self._kept else None

    def __contains__(self, sha: bytes) -> bool:
        return sha in self._kept

    def __getitem__(self, sha: bytes) -> Any:
        """Return the parsed object. Raises ExternalApiError if the object is malformed or missing, TooLarge after MAX_LOOKS
        objects.
        """
        self._looks += 1
        if self._looks > MAX_LOOKS:
            raise TooLarge("the history or the folders do not end", f"{MAX_LOOKS} objects", _CURE)
        if sha not in self._kept:
            raise ExternalApiError(f"the server did not send {sha.decode()}")
        number, raw = self._kept[sha]
        try:
            git_object = ShaFile.from_raw_string(number, raw, sha=ObjectID(sha))
            _read(git_object)
        except Exception as error:
            raise ExternalApiError(f"{sha.decode()} is malformed ({type(error).__name__})") from error
        return git_object

    def _unpack(self, pack: bytes) -> list[bytes]:
        added: list[bytes] = []
        data = PackData.from_file(BytesIO(pack), object_format=DEFAULT_OBJECT_FORMAT)
        try:
            data.check()
            for entry in UnpackedObjectIterator.for_pack_data(data, self._base):
                sha = entry.sha().hex().encode()
                assert entry.obj_type_num is not None
                assert entry.obj_chunks is not None
                self._kept[sha] = (entry.obj_type_num, b"".join(entry.obj_chunks))
                added.append(sha)
        finally:
            data.close()
        return added

    def _base(self, sha: bytes) -> tuple[int, list[bytes]]:
        number, raw = self._kept[sha.hex().encode()]
        return number, [raw]


def check_pack(pack: bytes) -> frozenset[bytes]:
    """Check the sizes to which a pack unpacks, and return the ids that deltas refer to. Raises TooLarge, or
    ExternalApiError if the data is no pack.
    """
    view = memoryview(pack)
    if len(view) < 32 or pack[:4] != b"PACK" or int.from_bytes(view[4:8], "big") not in (2, 3):
        raise ExternalApiError("this is not a pack of git's")
    count, at, total = int.from_bytes(view[8:12], "big"), 12, 0
    bases: set[bytes] = set()
    if count > MAX_OBJECTS:
        raise TooLarge(f"{count} objects", str(MAX_OBJECTS), _CURE)
    for _ in range(count):
        at, unpacked = _entry(view, at, MAX_UNPACKED_BYTES - total, bases)
        total += unpacked
    if at != len(view) - 20:
        raise ExternalApiError("this is not a pack of git's: something follows its last object")
    return frozenset(bases)


def _entry(view: memoryview, at: int, left: int, bases: set[bytes]) -> tuple[int, int]:
    """Check the entry of a pack that begins at `at`, and return the position of the next entry, and the number of bytes
    to which this entry unpacks. For a delta, this number includes the object made from the delta. Raises TooLarge if
    the number is above `left`.
    """
    kind, size, at = _entry_head(view, at)
    if kind == _REF_DELTA:
        bases.add(bytes(view[at - 20 : at]).hex().encode())
    if size > left:
        raise TooLarge("the objects unpack to more", f"{MAX_UNPACKED_BYTES >> 20} MiB", _CURE)
    at, start = _inflated(view, at, size)
    if kind not in (_OFS_DELTA, _REF_DELTA):
        return at, size
    _, after = _number(start, 0)
    result, _ = _number(start, after)
    if size + result > left:
        raise TooLarge("the objects unpack to more", f"{MAX_UNPACKED_BYTES >> 20} MiB", _CURE)
    return at, size + result


def _entry_head(view: memoryview, at: int) -> tuple[int, int, int]:
    first = _byte(view, at)
    kind, size, shift = (first >> 4) & 7, first & 15, 4
    at += 1
    while first & 0x80:
        first = _byte(view, at)
        size |= (first & 0x7F) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise ExternalApiError("this is not a pack of git's: a size without an end")
    if kind == _REF_DELTA:
        at += 20
    elif kind == _OFS_DELTA:
        while _byte(view, at) & 0x80:
            at += 1
        at += 1
    elif kind not in (1, 2, 3, 4):
        raise ExternalApiError("this is not a pack of git's: an object of no kind")
    return kind, size, at


def _inflated(view: memoryview, at: int, size: int) -> tuple[int, bytes]:
    """Return the position after the zlib stream that begins at `at`, and its first unpacked bytes, which contain the
    sizes of a delta. The stream must unpack to `size` bytes.
    """
    stream, got, start = zlib.decompressobj(), 0, b""
    while not stream.eof:
        piece = view[at : at + _PIECE_BYTES]
        if not piece:
            raise ExternalApiError("this is not a pack of git's: it ends in the middle of an object")
        try:
            data = stream.decompress(piece, size - got + 1)
        except zlib.error as error:
            raise ExternalApiError("this is not a pack of git's: an object does not unpack") from error
        got += len(data)
        start = (start + data)[:20] if len(start) < 20 else start
        if got > size or stream.unconsumed_tail:
            raise ExternalApiError("this is not a pack of git's: an object is larger than it says")
        at += len(piece) - len(stream.unused_data)
    if got != size:
        raise ExternalApiError("this is not a pack of git's: an object is smaller than it says")
    return at, start


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the number in a delta's header (seven bits in each byte) that begins at `at`, and the position after it."""
    value = shift = 0
    while True:
        byte = _byte(data, at)
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _byte(data: bytes | memoryview, at: int) -> int:
    if at >= len(data):
        raise ExternalApiError("this is not a pack of git's: it ends too early")
    return data[at]


def _read(git_object: ShaFile) -> None:
    """Make dulwich parse the object now; otherwise dulwich parses an object only when one of its fields is used."""
    if isinstance(git_object, Commit):
        _ = (
            git_object.tree,
            git_object.parents,
            git_object.author,
            git_object.author_time,
            git_object.author_timezone,
            git_object.message,
            git_object.committer,
        )
    elif isinstance(git_object, Tag):
        _ = git_object.object
    elif isinstance(git_object, Tree):
        _ = git_object.items()


def _kind(git_object: ShaFile) -> str:
    return str(git_object.type_name.decode())
