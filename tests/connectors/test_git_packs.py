"""The git connector's reading of untrusted bytes: packs, bundles, folders without an end. Limits, and failures in words.

Not here: the connector as a whole (test_git.py).
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dulwich.objects import Blob, Tree
from hypothesis import given
from hypothesis import strategies as st

from aileron_connector import BadInput, ConnectorError, ExternalApiError
from tests.support.git_host import git
from tests.support.plain_host import ROOT

NAMES = ("remote", "packs", "trees", "changes", "bundles")
MIB = 1 << 20


def _loaded() -> dict[str, ModuleType]:
    """Load the connector's own modules, which no package has; they have their names only while they are loaded."""
    before = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    sys.path.insert(0, str(ROOT / "connectors" / "git"))
    try:
        return {name: __import__(name) for name in NAMES}
    finally:
        sys.path.pop(0)
        for name in NAMES:
            sys.modules.pop(name, None)
        sys.modules.update(before)


GIT = _loaded()
check_pack: Any = GIT["packs"].check_pack
Objects: Any = GIT["packs"].Objects


def entry(kind: int, data: bytes, *, says: int | None = None, base: bytes = b"") -> bytes:
    """Return one object of a pack: of this kind, with a size that may be a lie."""
    size = len(data) if says is None else says
    head = bytearray([kind << 4 | size & 15])
    size >>= 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head) + base + zlib.compress(data, 9)


def pack(*entries: bytes, count: int | None = None) -> bytes:
    """Return a pack with a correct checksum."""
    data = b"PACK" + (2).to_bytes(4, "big") + (len(entries) if count is None else count).to_bytes(4, "big")
    data += b"".join(entries)
    return data + hashlib.sha1(data, usedforsecurity=False).digest()


def size_of(value: int) -> bytes:
    """Return a size as a delta has it."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def failure_of(data: bytes) -> ConnectorError:
    """Return the failure with which a pack is refused."""
    with pytest.raises(ConnectorError) as raised:
        Objects().add_pack(data)
    return raised.value


def said_of(call: Callable[[], object], *errors: type[ConnectorError]) -> str:
    """Return the message of one of these failures if the call ends with one; "" if it succeeds."""
    try:
        call()
    except errors as error:
        return error.message
    return ""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a pack of git's, with deltas."""
    work = tmp_path_factory.mktemp("work")
    git("init", "-q", at=work)
    for number in range(6):
        (work / "file").write_text("".join(f"line {line} of {number // 5}\n" for line in range(200)) + str(number))
        git("add", "-A", at=work)
        git("commit", "-q", "-m", f"{number}", at=work)
    git("gc", "-q", at=work)
    (found,) = (work / ".git" / "objects" / "pack").glob("*.pack")
    return found.read_bytes()


def test_a_pack_written_by_git_is_read_completely(real: bytes) -> None:
    """Every object has its id: commits, trees and files, deltas included."""
    objects = Objects()
    ids = objects.add_pack(real)

    assert len(ids) == 18
    assert sorted({type(objects[object_id]).__name__ for object_id in ids}) == ["Blob", "Commit", "Tree"]


@pytest.mark.abuse_case("LG7")
@given(st.data())
def test_any_bytes_are_read_as_a_git_pack_or_are_an_error(real: bytes, data: st.DataObject) -> None:
    """The bytes are arbitrary, or a real pack with some of it changed or cut and its checksum corrected."""
    if data.draw(st.booleans()):
        raw = data.draw(st.binary(max_size=200).map(lambda tail: b"PACK\0\0\0\2" + tail))
    else:
        changed = bytearray(real[:-20])
        for _ in range(data.draw(st.integers(1, 4))):
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        del changed[data.draw(st.integers(12, len(changed))) :]
        raw = bytes(changed) + hashlib.sha1(changed, usedforsecurity=False).digest()
    said = said_of(lambda: Objects().add_pack(raw), ExternalApiError, GIT["remote"].TooLarge)

    assert said.isprintable()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pack(entry(3, b"", says=1 << 32)), "too large: the objects unpack to more"),
        (pack(entry(3, bytes(MIB), says=10)), "an object is larger than it says"),
        (pack(entry(3, b"a", says=10)), "an object is smaller than it says"),
        (pack(count=50_001), "too large: 50001 objects"),
        (pack(entry(3, b"a"), b"\0more"), "an object of no kind"),
        (pack(entry(3, b"a"), b"more"), "an object does not unpack"),
        (pack(entry(3, b"a"), b"more", count=1), "something follows its last object"),
        (pack(entry(3, b"a"), count=2), "not a pack of git's"),
        (pack(entry(3, b"a"))[:-1] + b"\0", "not a pack of git's"),
        (pack(b"\xf0" + b"\xff" * 40), "a size without an end"),
        (b"PACK", "not a pack of git's"),
    ],
)
def test_an_invalid_pack_or_one_with_false_sizes_is_refused(data: bytes, words: str) -> None:
    """The refusal comes before the claimed content is unpacked."""
    assert words in failure_of(data).message


@pytest.mark.abuse_case("LG6")
def test_a_bomb_of_zlib_or_of_deltas_is_refused() -> None:
    """64 files of 1 MiB each fit; one more does not. Nor does a small delta that makes 1 GiB, or thousands that make 1
    MiB each.
    """
    blobs = [entry(3, bytes([at]) * MIB) for at in range(65)]
    copies = size_of(10) + size_of(1 << 30) + b"\x80"
    delta = entry(7, copies, base=bytes(20))
    many = [entry(7, size_of(10) + size_of(MIB) + b"\x80", base=bytes(20)) for _ in range(2000)]

    check_pack(pack(*blobs[:64]))
    assert "unpack to more, and at most 64 MiB fit" in failure_of(pack(*blobs)).message
    assert "unpack to more" in failure_of(pack(delta)).message
    assert "unpack to more" in failure_of(pack(*many)).message


def test_a_delta_without_its_base_is_refused() -> None:
    """The check names the base, so that it can be fetched."""
    data = pack(entry(7, size_of(1) + size_of(1) + b"\1x", base=b"\x11" * 20))

    assert check_pack(data) == {b"11" * 20}
    assert failure_of(data).message == "this is not a pack of git's (UnresolvedDeltas)"


@pytest.mark.abuse_case("LG6")
def test_nested_folders_are_read_up_to_a_limit() -> None:
    """Each folder has ten copies of another, thirty deep: a comparison stops at its limit of visits, and a listing at its own."""
    objects = Objects()
    tree = Tree()
    tree.add(b"file", 0o100644, Blob.from_string(b"").id)
    objects.add(tree)
    for _ in range(30):
        outer = Tree()
        for name in b"abcdefghij":
            outer.add(bytes([name]), 0o40000, tree.id)
        objects.add(outer)
        tree = outer

    with pytest.raises(ConnectorError, match="too large"):
        GIT["changes"].differences(objects, None, tree.id)
    listing = GIT["trees"].listed(objects, tree.id, (), recursive=True)
    assert len([next(listing) for _ in range(1000)]) == 1000


@pytest.mark.abuse_case("LG6")
def test_nested_empty_folders_are_read_up_to_a_limit() -> None:
    """The folders never lead to a file, so only the visits can be counted."""
    objects = Objects()
    tree = Tree()
    objects.add(tree)
    for _ in range(30):
        outer = Tree()
        outer.add(b"a", 0o40000, tree.id)
        outer.add(b"b", 0o40000, tree.id)
        objects.add(outer)
        tree = outer

    with pytest.raises(ConnectorError, match="the history or the folders do not end"):
        GIT["changes"].differences(objects, None, tree.id)


@pytest.mark.abuse_case("LG7")
def test_malformed_git_objects_in_a_pack_are_reported() -> None:
    """The pack can be read, but a tree, a commit or a tag in it cannot."""
    for kind, data in ((1, b"tree x"), (2, b"100644"), (4, b"object x")):
        objects = Objects()
        (sha,) = objects.add_pack(pack(entry(kind, data)))
        with pytest.raises(ExternalApiError, match="is malformed"):
            objects[sha]


IDS = st.binary(min_size=20, max_size=20).map(lambda raw: raw.hex().encode())
REFS = st.dictionaries(st.from_regex(rb"refs/heads/[a-z/]{1,20}", fullmatch=True), IDS, min_size=1, max_size=5)


@given(REFS, st.lists(IDS, max_size=5), st.binary(max_size=60))
def test_a_written_bundle_is_read_back(refs: dict[bytes, bytes], known: list[bytes], data: bytes) -> None:
    """The bundle has its refs, its prerequisites, and the pack to its last byte."""
    read = GIT["bundles"].read_bundle(GIT["bundles"].write_bundle(refs, known, data))

    assert (read.refs, read.prerequisites, read.pack) == (refs, tuple(known), data)


@given(st.binary(max_size=100) | st.binary(max_size=100).map(lambda tail: b"# v2 git bundle\n" + tail))
def test_any_bytes_are_a_bundle_or_bad_input(data: bytes) -> None:
    """The reader raises no other exception."""
    assert said_of(lambda: GIT["bundles"].read_bundle(data), BadInput).isprintable()


def test_a_diff_of_a_long_file_compares_only_what_differs() -> None:
    """A new line in the middle of 100,000 is cheap. More than 4,000 lines that differ are not compared, and a note says so."""
    objects = Objects()
    lines = [b"%d\n" % at for at in range(100_000)]
    texts = [lines, [*lines[:50_000], b"new\n", *lines[50_000:]], lines[::-1]]
    roots = []
    for text in texts:
        blob, tree = Blob.from_string(b"".join(text)), Tree()
        tree.add(b"file", 0o100644, blob.id)
        objects.add(blob)
        objects.add(tree)
        roots.append(tree.id)
    compared = GIT["changes"].compared
    differences = GIT["changes"].differences
    small = compared(objects, differences(objects, roots[0], roots[1]), 10_000)
    large = compared(objects, differences(objects, roots[0], roots[2]), 10_000)

    assert small["diff"].splitlines()[4:] == ["@@ -49998,6 +49998,7 @@"] + [
        f" {at}" for at in (49997, 49998, 49999)
    ] + ["+new"] + [f" {at}" for at in (50000, 50001, 50002)]
    assert large["files"][0]["note"].startswith("too large to compare")


def test_a_diff_that_ends_at_the_limit_is_cut_only_if_another_file_follows() -> None:
    """A person who reads a complete diff must not miss a file that did not fit."""
    objects = Objects()
    blob, empty, two = Blob.from_string(b"text\n"), Tree(), Tree()
    for name in (b"a", b"b"):
        two.add(name, 0o100644, blob.id)
    for found in (blob, empty, two):
        objects.add(found)
    compared = GIT["changes"].compared
    changes = GIT["changes"].differences(objects, empty.id, two.id)
    first, both = (len(compared(objects, changes[:count], 10_000)["diff"]) for count in (1, 2))

    cut = compared(objects, changes, first)
    assert cut["diff_is_cut"]
    assert cut["diff"].endswith("[cut here]\n")
    whole = compared(objects, changes, both)
    assert not whole["diff_is_cut"]
    assert "cut here" not in whole["diff"]


def test_the_git_connector_loads_its_own_modules_and_not_installed_namesakes() -> None:
    """An installed package with a module of the same name is not loaded instead."""
    assert {Path(str(module.__file__)).parent for module in GIT.values()} == {ROOT / "connectors" / "git"}
