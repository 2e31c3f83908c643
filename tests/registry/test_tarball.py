"""Archives are packed the same way every time, and unpacked only if they are exactly what they should be."""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.failure import AileronError, FailureClass
from aileron.registry.tarball import kind_of, pack, unpack

pytestmark = pytest.mark.abuse_case("F9")

GOOD = {"connector": b"PK" * 400, "manifest.toml": b"[connector]\n"}


def packed(*members: tarfile.TarInfo | tuple[str, bytes], format: int = tarfile.USTAR_FORMAT) -> bytes:
    """Return an archive as `tarfile` writes it, from names with bytes or from whole headers."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=format) as archive:
        for member in members:
            info, data = (
                (member, b"") if isinstance(member, tarfile.TarInfo) else (tarfile.TarInfo(member[0]), member[1])
            )
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(plain.getvalue())


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    """Return a member that is not a regular file."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def refusal(archive: bytes) -> str:
    """Return the message with which the archive is refused."""
    with pytest.raises(AileronError, match=r"^not a connector archive: ") as caught:
        unpack(archive)
    assert caught.value.failure.failure_class is FailureClass.INVALID_REQUEST
    return caught.value.failure.message


@given(
    connector=st.binary(max_size=2000), manifest=st.binary(max_size=600), signature=st.none() | st.binary(max_size=64)
)
def test_a_packed_archive_is_unpacked_to_the_same_members(
    connector: bytes, manifest: bytes, signature: bytes | None
) -> None:
    """Both orders of the members, with and without a signature, give the same archive."""
    members = {"connector": connector, "manifest.toml": manifest}
    if signature is not None:
        members["signature.sig"] = signature

    assert unpack(pack(members)) == members
    assert pack(dict(reversed(members.items()))) == pack(members)


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_other_tar_formats_are_read(format: int) -> None:
    """The archive may be any plain tar of the right members, in any order."""
    assert unpack(packed(("manifest.toml", b"m"), ("connector", b"c"), format=format)) == {
        "connector": b"c",
        "manifest.toml": b"m",
    }


def test_a_directory_in_the_ustar_prefix_is_refused() -> None:
    """The prefix stands before the name. The same archive is read without one, or with what GNU tar keeps in that field."""
    plain = bytearray(gzip.decompress(pack(GOOD)))

    def with_prefix(prefix: bytes, magic: bytes) -> bytes:
        block = bytearray(plain[:512])
        block[257:265], block[345 : 345 + len(prefix)], block[148:156] = magic, prefix, b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
        return gzip.compress(bytes(block + plain[512:]))

    assert unpack(with_prefix(b"", b"ustar\x0000")) == GOOD
    assert unpack(with_prefix(b"14000000000", b"ustar  \0")) == GOOD
    assert "without a directory" in refusal(with_prefix(b"../etc", b"ustar\x0000"))


def test_archives_with_fractional_times_are_read() -> None:
    """Python's own `tarfile` writes an extended attribute for the time, which changes nothing."""
    info = tarfile.TarInfo("connector")
    info.mtime = 1.5  # what gettarinfo() puts there

    assert unpack(packed(info, ("manifest.toml", b"m"), format=tarfile.PAX_FORMAT))["manifest.toml"] == b"m"


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar program")
def test_the_tar_program_and_aileron_read_each_others_archives(tmp_path: Path) -> None:
    """A publisher's release script can pack with tar(1)."""
    for name, data in GOOD.items():
        (tmp_path / name).write_bytes(data)
    subprocess.run(["tar", "czf", "a.tar.gz", *GOOD], cwd=tmp_path, check=True)
    (tmp_path / "ours.tar.gz").write_bytes(pack(GOOD))
    listed = subprocess.run(["tar", "tzf", "ours.tar.gz"], cwd=tmp_path, check=True, capture_output=True, text=True)

    assert unpack((tmp_path / "a.tar.gz").read_bytes()) == GOOD
    assert listed.stdout.split() == ["connector", "manifest.toml"]


@pytest.mark.abuse_case("B4")
@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (packed(("../connector", b"")), "it holds '../connector'; expected connector, manifest.toml"),
        (packed(("/etc/passwd", b"")), "it holds '/etc/passwd'"),
        (packed(("./connector", b"")), "it holds './connector'; expected"),
        (packed(("mail/connector", b"")), "without a directory"),
        (packed(("Connector", b"")), "it holds 'Connector'"),
        (packed(("connector\x1b[2J", b"")), r"it holds 'connector\x1b[2J'"),
        (packed(("connector", b"a"), ("connector", b"b"), ("manifest.toml", b"")), "'connector' appears twice"),
        (packed(("connector", b"a")), "'manifest.toml' is missing"),
        (packed(("manifest.toml", b"a")), "'connector' is missing"),
        (packed(), "'connector' is missing"),
        (
            packed(special("connector", tarfile.SYMTYPE, "/etc/passwd")),
            "'connector' is of type '2'; only regular files",
        ),
        (packed(special("connector", tarfile.LNKTYPE, "manifest.toml")), "is of type '1'"),
        (packed(special("connector", tarfile.CHRTYPE)), "is of type '3'"),
        (packed(special("connector", tarfile.FIFOTYPE)), "is of type '6'"),
        (packed(special("connector", tarfile.DIRTYPE)), "is of type '5'"),
        (packed(special("connector", tarfile.CONTTYPE)), "is of type '7'"),
        (packed(special("connector", b"S")), "is of type 'S'"),
        (packed(special("x" * 150, tarfile.REGTYPE), format=tarfile.GNU_FORMAT), "is of type 'L'"),
        (packed(("x" * 150, b""), format=tarfile.PAX_FORMAT), "the extended attribute 'path'"),
        (packed(("manifest.toml", b"x" * 300_000)), "'manifest.toml' has 300000 bytes; at most 262144"),
        (b"", "it is truncated"),
        (b"PK\x03\x04", "not gzip"),
        (gzip.compress(b"hello"), "not a ustar archive"),
        (gzip.compress(b""), "not a ustar archive"),
        (pack(GOOD)[:-9], "it is truncated"),
        (pack(GOOD) + b"\0", "extra data follows its end"),
        (pack(GOOD) + pack(GOOD), "extra data follows its end"),
        (gzip.compress(gzip.decompress(pack(GOOD)) + b"x"), "it does not end with two empty blocks"),
        (gzip.compress(gzip.decompress(pack(GOOD))[: 512 + 1024 + 512 + 512 + 512]), "it does not end with two empty"),
        (gzip.compress(gzip.decompress(pack(GOOD))[:700]), "it is truncated"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_a_hostile_archive_is_refused(archive: bytes, message: str) -> None:
    """The cases are paths, links, devices, duplicates, renaming extensions, padding, and whatever else is not two plain files."""
    assert message in refusal(archive)


def test_an_extension_that_renames_or_resizes_a_member_is_refused() -> None:
    """A reader that ignores the extended attributes would see another archive."""
    for key, value in (("path", "connector"), ("size", "1"), ("linkpath", "/"), ("GNU.sparse.name", "connector")):
        info = tarfile.TarInfo("connector")
        info.pax_headers = {key: value}
        plain = io.BytesIO()
        plain.write(info.create_pax_header(info.get_info(), "utf-8") if key == "path" else _with_pax(key, value))
        assert "extended attribute" in refusal(gzip.compress(plain.getvalue() + bytes(1024)))


@pytest.mark.abuse_case("B26")
def test_a_flood_of_members_is_refused_at_the_first_duplicate_name() -> None:
    """A small archive can hold 100,000 empty members. Asking only for its kind stops as early."""
    header = tarfile.TarInfo("connector").tobuf(tarfile.USTAR_FORMAT)
    archive = gzip.compress(header * 100_000 + bytes(1024), compresslevel=1)
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        for read in (unpack, kind_of):
            with pytest.raises(AileronError, match="'connector' appears twice"):
                read(archive)
    finally:
        sys.setprofile(None)
    assert calls < 2000


@pytest.mark.abuse_case("B23")
def test_attributes_that_belong_to_no_member_are_refused() -> None:
    """An archive could hold endless headers one after the other, which take half a minute to read."""
    archive = gzip.compress(_with_pax("comment", "x") * 2 + gzip.decompress(pack(GOOD)))

    assert "extended attributes of no member" in refusal(archive)


def _with_pax(key: str, value: str) -> bytes:
    """Return one extended header with one record, made by hand because `tarfile` corrects such lies."""
    record = f" {key}={value}\n".encode()
    length = len(record) + 2
    data = (f"{length}".encode() + record).ljust(512, b"\0")
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, length
    return header.tobuf(tarfile.USTAR_FORMAT) + data


@pytest.mark.abuse_case("B4")
def test_a_decompression_bomb_is_refused_without_unpacking_it() -> None:
    """A hundred MiB of zeros in less than one MiB is refused at the bound."""
    bomb = gzip.compress(bytes(100 << 20), compresslevel=1)

    assert len(bomb) < 1 << 20
    assert "unpacks to more than" in refusal(bomb)


@pytest.mark.abuse_case("B4")
def test_an_archive_with_an_extreme_compression_ratio_is_refused() -> None:
    """The archive is below the size limit but grows 200 times when unpacked. A small file of zeros is accepted."""
    blown = {"connector": bytes(30 << 20), "manifest.toml": b"m"}
    small = {"connector": bytes(1 << 19), "manifest.toml": b"m"}

    assert "grows more than 200 times" in refusal(pack(blown))
    assert unpack(pack(small)) == small


@pytest.mark.abuse_case("B4")
def test_action_archives_and_connector_archives_are_not_accepted_in_place_of_each_other() -> None:
    """An action archive has one file, signed or not, and neither kind is accepted as the other."""
    action, signed = pack({"action.md": b"+++"}), pack({"action.md": b"+++", "signature.sig": b"s"})

    assert unpack(action, "action") == {"action.md": b"+++"}
    assert unpack(signed, "action")["signature.sig"] == b"s"
    assert "it holds 'action.md'; expected connector, manifest.toml, signature.sig" in refusal(action)
    with pytest.raises(AileronError, match="not an action archive: it holds 'connector'"):
        unpack(pack(GOOD), "action")
    with pytest.raises(AileronError, match="is missing"):
        unpack(pack({"signature.sig": b"s"}), "action")


def test_a_header_with_a_binary_size_or_a_wrong_checksum_is_refused() -> None:
    """Only some readers understand binary sizes."""
    plain = bytearray(gzip.decompress(pack(GOOD)))
    plain[0] ^= 1
    assert "not a ustar archive" in refusal(gzip.compress(plain))

    binary = tarfile.TarInfo("connector")
    binary.size = 8**12
    assert "not an octal number" in refusal(gzip.compress(binary.tobuf(tarfile.GNU_FORMAT)))


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    """AileronError is the only exception, for the bytes as gzip and, compressed, as tar."""
    for archive in (data, gzip.compress(data)):
        refusal(archive)


_plain = gzip.decompress(pack(GOOD))


@given(st.integers(0, len(_plain) - 1), st.integers(1, 255))
def test_an_archive_with_a_changed_byte_is_refused_or_keeps_its_member_names_and_sizes(
    position: int, flip: int
) -> None:
    """The changed archive is refused, or has the same names with the same sizes."""
    plain = bytearray(_plain)
    plain[position] ^= flip
    try:
        members = unpack(gzip.compress(bytes(plain), compresslevel=0))
    except AileronError:
        return
    assert {name: len(data) for name, data in members.items()} == {name: len(data) for name, data in GOOD.items()}
