"""Tests of what git gets in a cell: the person's harmless settings, as git itself reads them; no planted program is asked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.launch.git_settings import cleaned_settings, person_settings

SETTINGS = """\
[user]
\tname = "Mira \\"M\\" Stern"
\temail = mira@example.com
[include]
\tpath = more
[credential]
\thelper = store
[alias]
\tx = !touch executed
[core]
\texcludesFile = ~/ignored
"""


def test_the_git_settings_copied_into_a_cell_are_those_that_git_itself_reads(tmp_path: Path) -> None:
    """Included files count; settings that execute or log in are dropped, and none of their commands runs."""
    (tmp_path / ".gitconfig").write_text(SETTINGS)
    (tmp_path / "more").write_text("[init]\n\tdefaultBranch = trunk\n[core]\n\tsshCommand = x\n")
    found, files = person_settings({"HOME": str(tmp_path)})
    cleaned = cleaned_settings(found).decode()

    assert found["credential.helper"] == "store"
    assert files["core.excludesfile"] == str(tmp_path / ".gitconfig")
    assert files["init.defaultbranch"] == str(tmp_path / "more")
    assert cleaned == (
        '[user]\n\tname = "Mira \\"M\\" Stern"\n[user]\n\temail = "mira@example.com"\n[init]\n\tdefaultbranch = "trunk"\n'
    )


@pytest.mark.parametrize(
    ("condition", "is_included"),
    [
        ("gitdir:~/work/", True),
        ("gitdir/i:~/WORK/", True),
        ("gitdir:work/", True),
        ("gitdir:./work/**", True),
        ("gitdir:~/work/app/.git", True),
        ("gitdir:~/w*/app/.git", True),
        ("gitdir:~/WORK/", False),
        ("gitdir:~/other/", False),
        ("gitdir:~/work", False),
        ("onbranch:main", False),
    ],
)
def test_conditional_git_settings_apply_by_folder_and_not_by_branch(
    tmp_path: Path, condition: str, is_included: bool
) -> None:
    """Conditions on the folder count as in git; one on the branch does not, because an agent chooses the branch."""
    project = tmp_path / "work" / "app"
    project.mkdir(parents=True)
    (tmp_path / ".gitconfig").write_text(f'[user]\n\temail = me\n[includeIf "{condition}"]\n\tpath = for-work\n')
    (tmp_path / "for-work").write_text("[user]\n\temail = work\n[core]\n\texcludesFile = ~/ignored\n")
    subprocess.run(["git", "init", "-q", "-b", "other", "."], cwd=project, check=True, timeout=60)
    said = subprocess.run(
        ["git", "config", "user.email"],
        cwd=project,
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = person_settings({"HOME": str(tmp_path)}, str(project))

    assert found.values["user.email"] == said.stdout.strip() == ("work" if is_included else "me")
    assert ("core.excludesfile" in found.values) is is_included


def test_a_git_that_an_agent_left_in_path_does_not_run(tmp_path: Path) -> None:
    """The launcher calls git outside of any cell, so a planted program would run with all of the person's rights."""
    planted = tmp_path / "git"
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\n")
    planted.chmod(0o755)
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Mira\n")
    found = person_settings({"HOME": str(tmp_path), "PATH": str(tmp_path)}).values

    assert found == {"user.name": "Mira"}
    assert not (tmp_path / "executed").exists()


@given(name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=60))
def test_a_git_user_name_cannot_add_another_git_setting(name: str) -> None:
    """Line breaks and quotes in the name stay inside its value."""
    cleaned = cleaned_settings({"user.name": name}).decode()

    assert cleaned.count("\n") == 2
    assert cleaned.startswith('[user]\n\tname = "')
