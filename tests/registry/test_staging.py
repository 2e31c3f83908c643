"""Archives that wait for a person: kept by their digest, within bounds, while other processes do the same."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from aileron.model.failure import AileronError
from aileron.registry import staging as staging_module
from aileron.registry.staging import KEPT_S, Staging


def digest_of(archive: bytes) -> str:
    """Return the digest that an archive is kept by."""
    return f"sha256:{hashlib.sha256(archive).hexdigest()}"


def test_a_staged_archive_can_be_read_until_it_is_dropped(tmp_path: Path) -> None:
    """Afterwards the error says to fetch the archive again."""
    staging = Staging(tmp_path / "fetched")
    staging.put(digest_of(b"one"), b"one")

    assert staging.take(digest_of(b"one"), "one") == b"one"
    staging.drop(digest_of(b"one"))
    staging.drop(digest_of(b"one"))
    with pytest.raises(AileronError, match="fetch it again"):
        staging.take(digest_of(b"one"), "one")


def test_an_unused_staged_archive_is_removed_after_a_day(tmp_path: Path) -> None:
    """Staging the next archive removes old ones; younger ones stay."""
    staging = Staging(tmp_path / "fetched")
    for archive in (b"old", b"young"):
        staging.put(digest_of(archive), archive)
    [old] = [path for path in (tmp_path / "fetched").iterdir() if path.read_bytes() == b"old"]
    os.utime(old, (old.stat().st_atime, old.stat().st_mtime - KEPT_S - 60))

    staging.put(digest_of(b"new"), b"new")

    assert sorted(path.read_bytes() for path in (tmp_path / "fetched").iterdir()) == [b"new", b"young"]


def test_the_total_size_of_staged_archives_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that exceeds the total is refused with what to do, and the others stay."""
    monkeypatch.setattr(staging_module, "MAX_STAGED_BYTES", 8)
    staging = Staging(tmp_path / "fetched")
    staging.put(digest_of(b"12345"), b"12345")

    with pytest.raises(AileronError, match="decide what waits"):
        staging.put(digest_of(b"6789"), b"6789")
    assert staging.take(digest_of(b"12345"), "the first") == b"12345"


def test_a_foreign_folder_among_the_staged_archives_is_kept_and_does_not_prevent_staging(tmp_path: Path) -> None:
    """Only Aileron's own files are cleaned up, so the old folder stays; archives are staged all the same."""
    (tmp_path / "fetched").mkdir(mode=0o700)
    (tmp_path / "fetched" / "folder").mkdir()
    os.utime(tmp_path / "fetched" / "folder", (0, 0))
    staging = Staging(tmp_path / "fetched")

    staging.put(digest_of(b"one"), b"one")

    assert staging.take(digest_of(b"one"), "one") == b"one"
    assert (tmp_path / "fetched" / "folder").is_dir()


def test_dropping_an_archive_while_another_is_staged_causes_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file vanishes after the folder was listed and before its size is read; it then counts as nothing."""
    staging = Staging(tmp_path / "fetched")
    staging.put(digest_of(b"one"), b"one")
    listdir = os.listdir

    def listed_then_dropped(directory: int) -> list[str]:
        found = listdir(directory)
        staging.drop(digest_of(b"one"))
        return found

    monkeypatch.setattr(os, "listdir", listed_then_dropped)
    staging.put(digest_of(b"two"), b"two")

    assert staging.take(digest_of(b"two"), "two") == b"two"
