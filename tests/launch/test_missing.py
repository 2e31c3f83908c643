"""Tests that an agent's missing files are made before its cell: readable for the user only, and through no link on the way."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

import pytest

from aileron.launch.cell_spec import Missing
from aileron.launch.in_cell import make_missing


def test_missing_settings_folders_and_files_are_created_private(tmp_path: Path) -> None:
    """Their parents are created too; a second call changes nothing."""
    folder, file = tmp_path / "a" / "b", tmp_path / "c" / "state.json"
    missing = (Missing(str(folder), is_directory=True), Missing(str(file), is_directory=False))

    assert make_missing(missing)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent, file.parent)] == [0o700] * 3
    assert (file.read_text(encoding="ascii"), stat.S_IMODE(file.stat().st_mode)) == ("{}\n", 0o600)

    file.write_text('{"a": 1}', encoding="ascii")
    assert not make_missing(missing)
    assert file.read_text(encoding="ascii") == '{"a": 1}'


@pytest.mark.parametrize("is_directory", [True, False])
def test_a_link_in_a_parent_folder_is_not_followed(tmp_path: Path, is_directory: bool) -> None:
    """A running cell could have placed it so that the launcher creates a file elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "config").symlink_to("elsewhere")

    with pytest.raises(OSError, match=r"link|directory") as refused:
        make_missing((Missing(str(tmp_path / "config" / "agent" / "state"), is_directory=is_directory),))

    assert refused.value.errno in (errno.ELOOP, errno.ENOTDIR)
    assert list((tmp_path / "elsewhere").iterdir()) == []
