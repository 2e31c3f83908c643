"""Reader and writer of bundles: refs and a pack in one file, as `git bundle create` writes and `git fetch` reads it.

Source: gitformat-bundle(5), versions 2 and 3 with SHA-1. Not here: the pack's contents (packs.py).

>>> read_bundle(write_bundle({b"refs/heads/main": b"a" * 40}, (), b"PACK")).refs
{b'refs/heads/main': b'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from aileron_connector import BadInput

__all__ = ["Bundle", "read_bundle", "write_bundle"]

MAX_LINES: Final = 64
"""Maximum number of lines in a bundle's head, that is, refs and prerequisites."""
_LINE: Final = re.compile(rb"(-?)([0-9a-f]{40})(?: (.*))?", re.DOTALL)


class Bundle(NamedTuple):
    """The contents of a bundle: `refs` by name, the commits that a reader of the bundle must already have, and the pack."""

    refs: dict[bytes, bytes]
    prerequisites: tuple[bytes, ...]
    pack: bytes


def write_bundle(refs: Mapping[bytes, bytes], prerequisites: Iterable[bytes], pack: bytes) -> bytes:
    """Return a bundle in format version 2."""
    lines = [b"# v2 git bundle", *(b"-" + sha for sha in prerequisites)]
    lines += [sha + b" " + name for name, sha in refs.items()]
    return b"\n".join(lines) + b"\n\n" + pack


def read_bundle(data: bytes) -> Bundle:
    """Parse a bundle. Raises BadInput if `data` is not a bundle, or is a bundle of a form that this connector does not
    read.
    """
    head, separator, pack = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    if first not in (b"# v2 git bundle", b"# v3 git bundle") or not separator or len(lines) > MAX_LINES:
        raise BadInput("bundle is not a git bundle; make one with `git bundle create`", argument="bundle")
    refs: dict[bytes, bytes] = {}
    prerequisites: list[bytes] = []
    for line in lines:
        if line == b"@object-format=sha1":
            continue
        found = _LINE.fullmatch(line)
        if found is None or not (found[1] or found[3]):
            raise BadInput("bundle has a head that cannot be read, or objects that are not SHA-1", argument="bundle")
        if found[1]:
            prerequisites.append(found[2])
        else:
            refs[found[3]] = found[2]
    return Bundle(refs, tuple(prerequisites), pack)
