"""Archives that wait for a person: kept by what they hold, within bounds, whoever else is at it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from aileron.model.failure import AileronError
from aileron.registry import staging as staging_module
from aileron.registry.staging import KEPT_S, Staging


def digest_of(archive: bytes) -> str:
    """What it is kept by."""
    return f"sha256:{hashlib.sha256(archive).hexdigest()}"


def test_what_is_kept_is_taken_until_it_is_dropped(tmp_path: Path) -> None:
    """The bytes, by their digest; dropped, it says to fetch it again."""
    staging = Staging(tmp_path / "fetched")
    staging.put(digest_of(b"one"), b"one")

    assert staging.take(digest_of(b"one"), "one") == b"one"
    staging.drop(digest_of(b"one"))
    staging.drop(digest_of(b"one"))
    with pytest.raises(AileronError, match="fetch it again"):
        staging.take(digest_of(b"one"), "one")


def test_what_nobody_came_for_is_gone_after_a_day(tmp_path: Path) -> None:
    """Swept with the next one that is kept; what is younger stays."""
    staging = Staging(tmp_path / "fetched")
    for archive in (b"old", b"young"):
        staging.put(digest_of(archive), archive)
    [old] = [path for path in (tmp_path / "fetched").iterdir() if path.read_bytes() == b"old"]
    os.utime(old, (old.stat().st_atime, old.stat().st_mtime - KEPT_S - 60))

    staging.put(digest_of(b"new"), b"new")

    assert sorted(path.read_bytes() for path in (tmp_path / "fetched").iterdir()) == [b"new", b"young"]


def test_there_is_a_bound_and_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be too much is refused, and what was there stays."""
    monkeypatch.setattr(staging_module, "MAX_STAGED_BYTES", 8)
    staging = Staging(tmp_path / "fetched")
    staging.put(digest_of(b"12345"), b"12345")

    with pytest.raises(AileronError, match="decide what waits"):
        staging.put(digest_of(b"6789"), b"6789")
    assert staging.take(digest_of(b"12345"), "the first") == b"12345"


def test_a_folder_in_the_way_stops_nothing(tmp_path: Path) -> None:
    """Something of somebody else's, older than a day: it stays, and what is fetched is kept all the same."""
    (tmp_path / "fetched").mkdir(mode=0o700)
    (tmp_path / "fetched" / "folder").mkdir()
    os.utime(tmp_path / "fetched" / "folder", (0, 0))
    staging = Staging(tmp_path / "fetched")

    staging.put(digest_of(b"one"), b"one")

    assert staging.take(digest_of(b"one"), "one") == b"one"
    assert (tmp_path / "fetched" / "folder").is_dir()


def test_one_that_is_dropped_while_another_is_kept_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing and the look at each: what is gone takes no room."""
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
