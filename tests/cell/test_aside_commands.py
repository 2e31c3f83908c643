"""Tests of `aileron sessions apply` and `discard`: they ask, need --yes without a terminal, and report refusals."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cell.overlays import SESSION, Aside
from tests.cli.command import Command

pytestmark = pytest.mark.jail


@pytest.fixture
def aside(tmp_path: Path) -> Aside:
    """Make an ended session with three changes that are kept aside."""
    found = Aside(tmp_path)
    (found.project / "sub").mkdir()
    (found.project / "a").write_text("before")
    found.begin()
    found.agent(
        [["write", "a", "after", 0o644], ["write", "sub/Makefile", "x", 0o644], ["write", "\x1b[2J", "x", 0o644]]
    )
    found.finish()
    return found


def test_apply_at_a_terminal_asks_and_lists_executable_changes_first(aside: Aside) -> None:
    """Enter means no; y applies the changes. No escape in a name reaches the terminal."""
    aileron = Command(aside.home, folder=str(aside.project))
    no = aileron.at_terminal("sessions", "apply", SESSION, answers=[("[y/N]", "")])
    before = (aside.project / "a").read_text()
    yes = aileron.at_terminal("sessions", "apply", SESSION, answers=[("[y/N]", "y")])

    assert "Apply 3 changes? [y/N]" in no.out
    assert no.out.index("sub/Makefile") < no.out.index("changed a")
    assert "nothing changed" in no.out
    assert "\x1b[2J" not in no.out + yes.out
    assert (before, (aside.project / "a").read_text()) == ("before", "after")
    assert "applied 3 changes" in yes.out


def test_a_folder_of_packages_is_one_line_in_the_list_before_the_question(tmp_path: Path) -> None:
    """A virtual environment has thousands of files, which must not hide a git hook: the hook has a line of its own."""
    aside = Aside(tmp_path)
    for folder in ("venv-old/bin", "venv-old/lib", ".git/hooks"):
        (aside.project / folder).mkdir(parents=True)
    (aside.project / "venv-old/pyvenv.cfg").write_text("x")
    aside.begin()
    files = [
        ["write", f"{folder}/lib/{name}.pth", "x", 0o644] for folder in ("venv-new", "venv-old") for name in range(40)
    ]
    folders = [["folder", name] for name in ("venv-new", "venv-new/bin", "venv-new/lib")]
    aside.session(
        [*folders, ["write", "venv-new/pyvenv.cfg", "x", 0o644], *files, ["write", ".git/hooks/pre-commit", "x", 0o755]]
    )
    aileron = Command(aside.home, folder=str(aside.project))
    asked = aileron.at_terminal("sessions", "apply", SESSION, answers=[("[y/N]", "")]).out
    shown = aileron.at_terminal("sessions", "changes", SESSION).out

    for said in (asked, shown):
        assert said.index("pre-commit") < said.index("venv-new") < said.index("venv-old")
        assert ".pth" not in said
    assert "venv-new: 43 files and folders of packages" in asked
    assert "venv-old: 40 files and folders of packages" in asked
    assert "43 files and folders" in shown


def test_apply_without_a_terminal_needs_the_option_yes(aside: Aside) -> None:
    """The error names the option, and no change is applied."""
    aileron = Command(aside.home, folder=str(aside.project))
    refused = aileron("sessions", "apply", SESSION)
    before = (aside.project / "a").read_text()
    done = aileron("sessions", "apply", SESSION, "--yes", "--json")

    assert (refused.code, before) == (2, "before")
    assert "--yes" in refused.err
    assert done.code == 0
    assert (json.loads(done.out)["left"], len(json.loads(done.out)["applied"])) == (0, 3)


def test_paths_given_to_apply_are_relative_to_the_current_folder(aside: Aside) -> None:
    """A path outside the project is refused, and one without a change is not found."""
    inside = Command(aside.home, folder=str(aside.project / "sub"))
    done = inside("sessions", "apply", SESSION, "Makefile", "--yes")
    outside = inside("sessions", "apply", SESSION, "../../home", "--yes")
    none = inside("sessions", "discard", SESSION, "none", "--yes")

    assert done.code == 0, done
    assert (aside.project / "sub/Makefile").exists()
    assert (aside.project / "a").read_text() == "before"
    assert (outside.code, none.code) == (2, 3)
    assert "is not in" in outside.err


def test_a_change_that_cannot_be_applied_is_reported_and_apply_exits_with_1(aside: Aside) -> None:
    """The person edited the same file meanwhile; --force overwrites that edit."""
    (aside.project / "a").write_text("person")
    aileron = Command(aside.home, folder=str(aside.project))
    done = aileron("sessions", "apply", SESSION, "--yes")
    kept = (aside.project / "a").read_text()
    forced = aileron("sessions", "apply", SESSION, "--yes", "--force")

    assert (done.code, kept) == (1, "person")
    assert "refused a: you changed it since the session began" in done.err
    assert "1 change still kept aside" in done.err
    assert forced.code == 0
    assert (aside.project / "a").read_text() == "after"


def test_discarding_removes_all_pending_changes(aside: Aside) -> None:
    """The project keeps its state from before the session."""
    aileron = Command(aside.home, folder=str(aside.project))
    done = aileron("sessions", "discard", SESSION, "--yes")
    again = aileron("sessions", "apply", SESSION, "--yes")

    assert "discarded 3 changes" in done.err
    assert (again.code, "no changes are kept aside" in again.err) == (0, True)
    assert sorted(os.listdir(aside.project)) == ["a", "sub"]
    assert not aside.kept.upper.exists()


@pytest.mark.abuse_case("CP5")
def test_large_changes_are_applied_only_with_the_large_option(tmp_path: Path) -> None:
    """A sparse file of 3 GiB could fill the disk: --yes alone does not write it, --large does."""
    aside = Aside(tmp_path)
    aside.begin()
    with (aside.kept.upper / "huge").open("wb") as file:
        file.truncate(3 << 30)
    (aside.kept.upper / "a").write_text("after")
    aside.finish()
    aileron = Command(aside.home, folder=str(aside.project))
    listed = aileron("sessions", "changes", SESSION)
    unseen = aileron("sessions", "apply", SESSION, "--yes")
    small = aileron("sessions", "apply", SESSION, "a", "--yes")
    asked = aileron.at_terminal("sessions", "apply", SESSION, "--yes", answers=[("[y/N]", "")])
    before = (aside.project / "huge").exists()
    done = aileron("sessions", "apply", SESSION, "--yes", "--large")

    assert "3.0 GiB, 0 B on disk" in listed.out
    assert (unseen.code, small.code, before, done.code) == (2, 0, False, 0)
    assert "these changes have 3.0 GiB, 4 KiB on disk in all, more than 1 GiB" in unseen.err
    assert "--large" in unseen.err
    assert "made huge; 3.0 GiB, 0 B on disk" in asked.out
    assert "size in all: 3.0 GiB" in asked.out
    status = (aside.project / "huge").stat()
    assert (status.st_size, status.st_blocks) == (3 << 30, 0)
