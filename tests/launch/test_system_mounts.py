"""Tests of what a cell shows of the machine: files that every user can read, and none that only this user could."""

from __future__ import annotations

import os
from pathlib import Path

from aileron.launch.system_mounts import LOOKED_AT, made_files, system_mounts
from aileron_sandbox.cell.closed import closed_below


def test_system_files_that_other_users_cannot_read_are_masked_in_roots_cell(tmp_path: Path) -> None:
    """Root could otherwise read them in its cell. They are found at any depth, and the files beside them stay."""
    deep = tmp_path / "app" / "conf"
    deep.mkdir(parents=True)
    secret, shown = deep / "key", deep / "settings"
    private = tmp_path / "private"
    private.mkdir()
    for file in (secret, shown, private / "x"):
        file.write_text("x")
    shown.chmod(0o644)
    secret.chmod(0o640)
    private.chmod(0o750)
    (deep / "link").symlink_to(secret)
    found = system_mounts(closed_below((str(tmp_path),)), (str(tmp_path),))

    assert set(found.masked) == {str(secret), str(private)}
    assert found.directories == ((str(tmp_path), str(tmp_path)),)


def test_an_ordinary_users_cell_masks_no_file_that_the_user_cannot_read(tmp_path: Path) -> None:
    """The cell of an ordinary user has no more rights than the user: /etc/shadow is already closed."""
    closed = tmp_path / "closed"
    closed.write_text("x")
    closed.chmod(0o000)
    found = system_mounts(closed_below((str(tmp_path),)), (str(tmp_path),))

    assert found.masked == ((str(closed),) if os.geteuid() == 0 else ())


def test_a_directory_with_many_private_files_is_masked_whole(tmp_path: Path) -> None:
    """Each masked file needs a mount of its own."""
    many = tmp_path / "keys"
    many.mkdir()
    many.chmod(0o755)
    for number in range(70):
        (many / str(number)).touch(mode=0o600)

    assert system_mounts(closed_below((str(tmp_path),)), (str(tmp_path),)).masked == (str(many),)


def test_a_directory_that_could_not_be_searched_in_time_is_masked_and_noted(tmp_path: Path) -> None:
    """The search has a time limit; a note names the option that shows the rest."""
    first, big = tmp_path / "a", tmp_path / "b"
    for directory, count in ((first, 5), (big, 300)):
        directory.mkdir()
        directory.chmod(0o755)
        for number in range(count):
            os.close(os.open(directory / str(number), os.O_CREAT, 0o644))
    found = system_mounts(closed_below((str(tmp_path),), most=200), (str(tmp_path),))

    assert str(big) in found.masked
    assert str(first) not in found.masked or os.listdir(tmp_path)[0] == "b"
    assert any(f"--allow-read {big}" in note for note in found.notes)


def test_private_files_are_searched_for_unless_the_result_of_a_search_is_given() -> None:
    """Only a launch has a process that has searched already; `--explain` searches itself, with the same result."""
    closed, unseen = closed_below(LOOKED_AT)

    assert system_mounts().masked == (*closed, *unseen)
    assert system_mounts((("/etc/one",), ("/opt/many",))).masked == ("/etc/one", "/opt/many")


def test_links_files_and_missing_paths_are_not_searched_for_private_files(tmp_path: Path) -> None:
    """A file, a link to a directory and a missing path are skipped beside a real one."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "key").touch(mode=0o600)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").touch()
    tops = [str(tmp_path / name) for name in ("link", "file", "absent", "real")]

    assert closed_below(tops) == ((str(tmp_path / "real" / "key"),), ())


def test_a_symbolic_link_in_the_root_directory_stays_a_link_in_the_cell(tmp_path: Path) -> None:
    """/bin is a link on a merged-usr system; a missing directory is skipped."""
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    found = system_mounts(((), ()), (str(tmp_path / "usr"), str(tmp_path / "bin"), str(tmp_path / "lib32")))

    assert found.links == ((str(tmp_path / "bin"), "usr/bin"),)
    assert found.directories == ((str(tmp_path / "usr"), str(tmp_path / "usr")),)


def test_a_note_names_the_directory_that_was_not_searched_for_private_files() -> None:
    """The note names the option that shows it, except for /etc, where keys lie."""
    found = system_mounts(((), ("/etc/x", "/opt/x")))

    assert found.notes == (
        "/etc/x has too many files to look at, and is masked",
        "/opt/x has too many files to look at, and is masked: --allow-read /opt/x",
    )


def test_system_files_generated_for_a_cell_name_neither_the_machine_nor_its_name_servers() -> None:
    """They name no name server, no private host, and not the machine itself."""
    made = dict(made_files())

    assert b"nameserver" not in b"".join(made.values())
    assert made["/etc/hosts"].split() == [
        b"127.0.0.1", b"localhost", b"cell", b"::1", b"localhost", b"ip6-localhost", b"ip6-loopback",
    ]  # fmt: skip
    assert made["/etc/machine-id"] == b""
