"""Files in the home are never read or replaced through a link, never open to others, and never left half written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aileron import files
from aileron.model.failure import AileronError, FailureClass


@pytest.fixture
def home(tmp_path: Path) -> Iterator[int]:
    """Open a directory of the user's own, at `tmp_path/home`."""
    files.make_directory(tmp_path / "home")
    with files.open_directory(tmp_path / "home", files.OTHERS_MAY_USE) as directory:
        yield directory


def message(attempt: Callable[[], object]) -> str:
    """Return the message of the attempt's failure."""
    with pytest.raises(AileronError) as caught:
        attempt()
    return caught.value.failure.message


def opened(path: Path, forbidden: int = files.OTHERS_MAY_WRITE) -> None:
    """Open and close a directory."""
    with files.open_directory(path, forbidden):
        pass


def test_a_replaced_file_is_private_and_leaves_no_temporary_file(home: int, tmp_path: Path) -> None:
    """Two replacements under an open umask leave the last content, mode 0600, and no other file."""
    path = tmp_path / "home" / "a"
    before = os.umask(0)
    try:
        files.replace(home, path, b"one")
        files.replace(home, path, b"two" * 100_000)
    finally:
        os.umask(before)

    assert files.read(home, path, 300_000, files.OTHERS_MAY_USE) == b"two" * 100_000
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path / "home") == ["a"]


def test_new_directories_are_private_and_existing_ones_are_left_alone(tmp_path: Path) -> None:
    """Every missing level is 0700 under any umask."""
    (tmp_path / "a").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        files.make_directory(tmp_path / "a" / "b" / "c")
        files.make_directory(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)

    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "a" / "b", tmp_path / "a" / "b" / "c")] == [0o700] * 2
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755


def test_a_missing_file_raises_file_not_found(home: int, tmp_path: Path) -> None:
    """Only the caller can explain what is missing. A missing directory raises the same error."""
    with pytest.raises(FileNotFoundError):
        files.read(home, tmp_path / "home" / "gone", 10)
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "gone")


@pytest.mark.parametrize("size", [10, 11, 1000])
def test_a_file_larger_than_its_limit_is_refused(home: int, tmp_path: Path, size: int) -> None:
    """Ten bytes fit into a bound of ten; eleven do not."""
    path = tmp_path / "home" / "a"
    path.write_bytes(b"x" * size)

    if size == 10:
        assert files.read(home, path, 10) == b"x" * 10
    else:
        assert "is larger than 10 bytes" in message(lambda: files.read(home, path, 10))


def test_links_and_files_that_are_not_regular_are_refused(home: int, tmp_path: Path) -> None:
    """The cases are a link to a device that never ends, a fifo and a directory."""
    (tmp_path / "home" / "link").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "home" / "fifo")
    (tmp_path / "home" / "dir").mkdir()

    assert "symbolic link" in message(lambda: files.read(home, tmp_path / "home" / "link", 10))
    for name in ("fifo", "dir"):
        assert "is not a regular file" in message(lambda: files.read(home, tmp_path / "home" / name, 10))  # noqa: B023


@pytest.mark.parametrize(
    ("mode", "forbidden", "problem"),
    [
        (0o750, files.OTHERS_MAY_USE, "is open for others to use: chmod 700"),
        (0o701, files.OTHERS_MAY_USE, "is open for others to use: chmod 700"),
        (0o775, files.OTHERS_MAY_WRITE, "is open for others to write: chmod 755"),
        (0o702, files.OTHERS_MAY_WRITE, "is open for others to write: chmod 700"),
        (0o755, files.OTHERS_MAY_WRITE, None),
        (0o700, files.OTHERS_MAY_USE, None),
    ],
)
def test_unsafe_permissions_are_refused_with_the_fix(
    tmp_path: Path, mode: int, forbidden: int, problem: str | None
) -> None:
    """Each forbidden bit is tried, and the message has the command that removes it; allowed modes pass."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(mode)

    if problem is None:
        opened(tmp_path / "d", forbidden)
    else:
        assert problem in message(lambda: opened(tmp_path / "d", forbidden))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_or_directory_of_another_owner_is_refused(home: int, tmp_path: Path) -> None:
    """The owner of a directory always matters, the owner of a file only if it must be private."""
    (tmp_path / "d").mkdir(mode=0o700)
    os.chown(tmp_path / "d", 12345, -1)
    path = tmp_path / "home" / "a"
    path.write_bytes(b"x")
    path.chmod(0o600)
    os.chown(path, 12345, -1)

    assert "belongs to user 12345, not to 0: chown 0" in message(lambda: opened(tmp_path / "d"))
    assert "belongs to user 12345" in message(lambda: files.read(home, path, 10, files.OTHERS_MAY_USE))
    assert files.read(home, path, 10) == b"x"


def test_a_linked_directory_is_refused(tmp_path: Path) -> None:
    """The target of a link may change between two calls."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")

    assert "symbolic link" in message(lambda: opened(tmp_path / "link"))


def test_replacing_a_symbolic_link_leaves_its_target_unchanged(home: int, tmp_path: Path) -> None:
    """The link is replaced, and its target stays."""
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "home" / "a").symlink_to(tmp_path / "target")
    files.replace(home, tmp_path / "home" / "a", b"new")

    assert (tmp_path / "target").read_bytes() == b"old"
    assert (tmp_path / "home" / "a").read_bytes() == b"new"


def test_a_file_lock_keeps_another_process_out_until_it_is_released(home: int, tmp_path: Path) -> None:
    """Another process fails with `busy` after its timeout."""
    path = tmp_path / "home" / "a"
    with files.locked(home, path, 1):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with files.locked(home, path, 0.05):
                    code = 2
            except AileronError as error:
                code = 0 if error.failure.failure_class is FailureClass.BUSY else 3
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with files.locked(home, path, 0):
        pass


def test_only_ailerons_own_leftover_temporary_files_are_removed(home: int, tmp_path: Path) -> None:
    """Only temporary files with exactly Aileron's form of name are removed."""
    for name in ("a", "a.12.tmp", "a.lock", "b.12.tmp", "ab.12.tmp"):
        (tmp_path / "home" / name).write_bytes(b"")
    files.remove_leftovers(home, tmp_path / "home" / "a")

    assert sorted(os.listdir(tmp_path / "home")) == ["a", "a.lock", "ab.12.tmp", "b.12.tmp"]


@pytest.mark.parametrize("call", ["write", "fsync", "rename", "fchmod"])
def test_a_failing_system_call_keeps_the_old_file_and_is_reported(
    home: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whichever call fails, the old content stays and no temporary file is left."""
    path = tmp_path / "home" / "a"
    files.replace(home, path, b"old")

    def failing(*args: object, **kwargs: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, call, failing)
    told = message(lambda: files.replace(home, path, b"new"))
    monkeypatch.undo()

    assert told == f"{path} cannot be written: Input/output error"
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path / "home") == ["a"]


def test_an_unreadable_path_is_reported_with_the_systems_reason(tmp_path: Path) -> None:
    """The test uses an overlong path, an error that only the kernel can detect."""
    told = message(lambda: opened(tmp_path / ("x" * 300)))

    assert told.endswith("cannot be opened: File name too long")
