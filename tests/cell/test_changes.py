"""Tests of the list of an agent's changes: every way to change a file is listed, no file outside is, hostile names are harmless.

The agent here is the test itself, between `begin` and `finish`: the comparison is of files, and the test makes real ones.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aileron.cell.changes import Watch, earlier_roots, look, starts_of, summary
from aileron.cell.kept import MAX_AGE_S, MAX_CELLS, Kept, kept_cells, prune
from aileron.cell.listing import Change, Changes
from aileron.cell.start import Moment, Root, Start, is_since
from aileron.cell.tree import under
from aileron.model.failure import AileronError

pytestmark = pytest.mark.jail
CLOCK_REALTIME_COARSE = 5  # linux/time.h
SESSION = "ses-20260101-abcdef"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a small project with a repository."""
    root = tmp_path / "project"
    for folder in ("src/deep", "docs", ".git/hooks", ".git/objects/ab", ".git/refs/heads", "empty"):
        (root / folder).mkdir(parents=True)
    for file in (
        "src/main.py",
        "src/deep/x.py",
        "docs/a.md",
        "docs/b.md",
        "README",
        ".git/HEAD",
        ".git/config",
        ".git/index",
    ):
        (root / file).write_text(f"{file}\n")
    return root


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    """Return the folder of all cells in a home."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home / "cells"


def changed_by(agent: Callable[[Path], object], project: Path, cells: Path, *more: Root) -> Changes:
    """Return the changes listed after `agent` has worked."""
    _wait_for_the_clock()
    watch = Watch.begin(starts_of([Root(str(project)), *more], cells), cells / SESSION)
    agent(project)
    return watch.finish()


def _wait_for_the_clock() -> None:
    """Wait some ms until the clock that stamps files is past now, so that earlier files are older than a later start."""
    now = time.clock_gettime_ns(time.CLOCK_REALTIME)
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) <= now:
        pass


def listed(changes: Changes) -> dict[str, str]:
    """Return what happened to each path."""
    return {change.path: change.what for change in changes.entries}


def one(changes: Changes, path: str) -> Change:
    """Return the change of this path."""
    return next(change for change in changes.entries if change.path == path)


def reasons(changes: Changes) -> dict[str, list[str]]:
    """Return why each path is of interest."""
    return {change.path: [found.kind for found in change.executes] for change in changes.entries if change.executes}


# What counts as a change


def test_no_change_is_listed_if_no_file_changed(project: Path, cells: Path) -> None:
    """Reading a file is no change, and neither is a file made just before the start."""
    changes = changed_by(lambda root: (root / "README").read_text(), project, cells)

    assert changes.entries == ()
    assert summary(changes) == ["no files changed in the cell"]


def test_made_changed_and_removed_files_are_listed(project: Path, cells: Path) -> None:
    """Each path is listed and counted; the folder around it is not a change."""

    def agent(root: Path) -> None:
        (root / "src/main.py").write_text("other\n")
        (root / "src/new.py").write_text("new\n")
        (root / "README").unlink()

    changes = changed_by(agent, project, cells)

    assert listed(changes) == {"src/main.py": "changed", "src/new.py": "made", "README": "removed"}
    assert changes.counts == {"made": 1, "changed": 1, "removed": 1}


def _set_back(root: Path) -> None:
    (root / "README").write_text("x")
    os.utime(root / "README", (1, 1))


@pytest.mark.abuse_case("CL1")
@pytest.mark.parametrize(
    ("name", "agent"),
    [
        ("times set back", _set_back),
        ("renamed over", lambda root: os.rename(root / "docs/a.md", root / "README")),
        ("permissions", lambda root: (root / "README").chmod(0o755)),
        ("another name for it", lambda root: os.link(root / "README", root / "docs/a-link")),
        ("truncated and written alike", lambda root: (root / "README").write_bytes((root / "README").read_bytes())),
    ],
)
def test_no_trick_hides_a_changed_file(project: Path, cells: Path, name: str, agent: Callable[[Path], object]) -> None:
    """Programs can set every time of a file except its change time (ctime), which is the one compared."""
    changes = changed_by(agent, project, cells)

    assert listed(changes)["README"] == "changed", name


@pytest.mark.abuse_case("CL1")
def test_swapping_two_folders_lists_all_files_in_them(project: Path, cells: Path) -> None:
    """The files keep their names and times when two folders change places: only the folders differ."""
    for name in ("one", "two"):
        (project / name).mkdir()
        (project / name / "run.sh").write_text(name)

    def agent(root: Path) -> None:
        (root / "one").rename(root / "aside")
        (root / "two").rename(root / "one")
        (root / "aside").rename(root / "two")

    changes = changed_by(agent, project, cells)

    assert listed(changes)["one/run.sh"] == listed(changes)["two/run.sh"] == "changed"
    assert one(changes, "one").notes == ("another folder took its place",)


def test_a_file_replaced_by_another_kind_is_listed_with_its_former_kind(project: Path, cells: Path) -> None:
    """The files of a folder that became a link are listed as removed."""

    def agent(root: Path) -> None:
        for path in (root / "docs/a.md", root / "docs/b.md"):
            path.unlink()
        (root / "docs").rmdir()
        (root / "docs").symlink_to("src")

    changes = changed_by(agent, project, cells)

    assert (one(changes, "docs").kind, one(changes, "docs").was) == ("link", "directory")
    assert listed(changes)["docs/a.md"] == listed(changes)["docs/b.md"] == "removed"


@pytest.mark.abuse_case("CL3")
def test_a_folder_made_unreadable_is_listed(project: Path, cells: Path) -> None:
    """An ordinary user gets the folder listed as unreadable; root can read it, and gets its files."""

    def agent(root: Path) -> None:
        (root / "hidden").mkdir()
        (root / "hidden/tool").write_text("x")
        (root / "hidden").chmod(0)

    changes = changed_by(agent, project, cells)
    (project / "hidden").chmod(0o700)

    assert listed(changes)["hidden"] == "made"
    if os.geteuid() == 0:
        assert listed(changes)["hidden/tool"] == "made"
    else:
        assert one(changes, "hidden").notes == ("cannot be read: Permission denied",)


def test_git_data_is_counted_and_files_that_git_obeys_are_listed(project: Path, cells: Path) -> None:
    """Objects and index are only counted; HEAD, branches, hooks and settings that run commands are listed by name."""

    def agent(root: Path) -> None:
        git = root / ".git"
        (git / "objects/ab/cdef").write_text("x")
        (git / "objects/12").mkdir()
        (git / "objects/12/34").write_text("x")
        (git / "index").write_text("x")
        (git / "HEAD").write_text("ref: refs/heads/other\n")
        (git / "refs/heads/other").write_text("0\n")
        (git / "hooks/post-checkout").write_text("#!/bin/sh\n")
        (git / "config").write_text("[core]\n\tfsmonitor = ./x\n[alias]\n\tst = !sh -c true\n")

    changes = changed_by(agent, project, cells)

    assert listed(changes) == {
        ".git/HEAD": "changed",
        ".git/refs/heads/other": "made",
        ".git/hooks/post-checkout": "made",
        ".git/config": "changed",
    }
    assert changes.git_data == 3
    assert [found.detail for found in one(changes, ".git/config").executes] == ["core.fsmonitor, alias.st"]


@pytest.mark.abuse_case("CL2")
def test_an_executable_among_git_objects_is_listed(project: Path, cells: Path) -> None:
    """A program could hide there. The file that names other object folders is listed too."""

    def agent(root: Path) -> None:
        (root / ".git/objects/ab/tool").write_text("#!/bin/sh\n")
        (root / ".git/objects/ab/tool").chmod(0o755)
        (root / ".git/objects/info").mkdir()
        (root / ".git/objects/info/alternates").write_text("/elsewhere\n")

    found = reasons(changed_by(agent, project, cells))

    assert found == {".git/objects/ab/tool": ["executable"], ".git/objects/info/alternates": ["git elsewhere"]}


@pytest.mark.abuse_case("CL2")
def test_a_bare_repository_in_any_folder_is_recognized(project: Path, cells: Path) -> None:
    """Git obeys its configuration and hooks whatever the folder's name is."""

    def agent(root: Path) -> None:
        for folder in ("data/objects", "data/refs", "data/hooks"):
            (root / folder).mkdir(parents=True)
        (root / "data/HEAD").write_text("ref: refs/heads/main\n")
        (root / "data/config").write_text("[core]\n\tsshCommand = sh\n")
        (root / "data/hooks/pre-push").write_text("x")
        (root / "src/config").write_text("[core]\n\tsshCommand = sh\n")

    found = reasons(changed_by(agent, project, cells))

    assert found == {"data/config": ["git configuration"], "data/hooks/pre-push": ["git hook"]}


def test_a_git_repository_spread_over_two_folders_is_recognized(project: Path, cells: Path) -> None:
    """HEAD in one folder leads to another with configuration and hooks: neither part is complete."""

    def agent(root: Path) -> None:
        for folder in ("one", "two/objects", "two/refs", "two/hooks", "two/remotes", "no/hooks", "no/remotes"):
            (root / folder).mkdir(parents=True)
        (root / "one/HEAD").write_text("ref: refs/heads/main\n")
        for file in (
            "one/commondir",
            "two/hooks/pre-push",
            "two/remotes/o",
            "no/commondir",
            "no/hooks/x",
            "no/remotes/o",
        ):
            (root / file).write_text("../two\n")
        (root / "two/config").write_text("[core]\n\tsshCommand = sh\n")
        (root / "no/config").write_text("[core]\n\tsshCommand = sh\n")

    assert reasons(changed_by(agent, project, cells)) == {
        "one/commondir": ["git elsewhere"],
        "two/config": ["git configuration"],
        "two/hooks/pre-push": ["git hook"],
        "two/remotes/o": ["git elsewhere"],
    }


def test_a_repository_inside_another_hides_no_hook(project: Path, cells: Path) -> None:
    """A HEAD among the outer repository's hooks makes that folder look like a repository of its own."""

    def agent(root: Path) -> None:
        for folder in ("data/hooks", "data/info", "data/rebase-merge"):
            (root / folder).mkdir(parents=True)
        for file in ("HEAD", "hooks/HEAD", "hooks/pre-push", "rebase-merge/git-rebase-todo"):
            (root / "data" / file).write_text("x")
        (root / "data/info/attributes").write_text("* filter=x\n")
        (root / ".git/hooks/post-commit").symlink_to("../../src/main.py")

    assert reasons(changed_by(agent, project, cells)) == {
        "data/hooks/HEAD": ["git hook"],
        "data/hooks/pre-push": ["git hook"],
        "data/info/attributes": ["git attributes"],
        "data/rebase-merge/git-rebase-todo": ["git in progress"],
        ".git/hooks/post-commit": ["git hook"],
    }


def test_a_link_in_place_of_the_hooks_folder_is_listed_as_a_git_hook(project: Path, cells: Path) -> None:
    """Git runs the files in its target, which may be a folder of the project."""

    def agent(root: Path) -> None:
        (root / ".git/hooks").rename(root / ".git/before")
        (root / ".git/hooks").symlink_to("../src")

    assert reasons(changed_by(agent, project, cells))[".git/hooks"] == ["git hook"]


def test_a_project_whose_parent_folder_became_a_link_is_not_read(tmp_path: Path, cells: Path) -> None:
    """A link replaced a parent folder: names of another folder must not be read, so the rest is reported as unknown."""
    above, moved = tmp_path / "above", tmp_path / "moved"
    project = above / "project"
    project.mkdir(parents=True)

    def agent(_: Path) -> None:
        above.rename(moved)
        above.symlink_to(moved)

    changes = changed_by(agent, project, cells)

    assert changes.notes == (f"cannot read {project}: a symbolic link has been put on the way to it",)
    with pytest.raises(AileronError, match="a symbolic link has been put on the way to it"):
        starts_of([Root(str(project))], cells)


STATE: dict[str, Any] = {
    "numStartups": 1,
    "mcpServers": {"a": {"command": "a"}},
    "projects": {"/p": {"allowedTools": [], "hasTrustDialogAccepted": True, "lastCost": 1, "lastSessionId": "one"}},
}
"""Claude Code's state file, in short."""


def written(path: Path, document: object, mode: int = 0o600) -> None:
    """Write a state file in place, as an agent in a cell does."""
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    path.chmod(mode)


@pytest.mark.parametrize("is_in_folder", [False, True])
@pytest.mark.parametrize(
    ("change", "is_listed"),
    [
        ({"numStartups": 2, "tipsHistory": {"x": 2}}, False),
        (
            {"projects": {"/p": {**STATE["projects"]["/p"], "lastCost": 2, "lastSessionId": "two", "lastDuration": 1}}},
            False,
        ),
        ({"mcpServers": {"a": {"command": "b"}}}, True),
        ({"apiKeyHelper": "x"}, True),
        ({"a key of a later version": 1}, True),
        ({"projects": {"/p": {**STATE["projects"]["/p"], "allowedTools": ["Bash"]}}}, True),
        ({"projects": {"/p": {**STATE["projects"]["/p"], "hooks": {}}}}, True),
        ({"projects": {**STATE["projects"], "/other": {"lastCost": 1}}}, True),
        ({"projects": []}, True),
    ],
)
def test_an_agents_state_file_is_listed_only_if_its_settings_changed(
    project: Path, cells: Path, tmp_path: Path, change: dict[str, object], is_listed: bool, is_in_folder: bool
) -> None:
    """Agents write notes there in every session; each key that is not known as such a note counts as a setting."""
    folder = tmp_path / "own"
    folder.mkdir()
    state = folder / ".claude.json"
    written(state, STATE)
    root = (
        Root(str(folder), ("settings*.json", ".claude.json")) if is_in_folder else Root(str(state), (".claude.json",))
    )
    changes = changed_by(lambda _: written(state, {**STATE, **change}), project, cells, root)

    assert [entry.what for entry in changes.entries] == (["changed"] if is_listed else [])
    assert changes.executing == int(is_listed)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("{", 0o600),
        ("[]", 0o600),
        (json.dumps(STATE)[:-1] + ', "lastPlanModeUse": NaN}', 0o600),
        ("\ufeff" + json.dumps(STATE), 0o600),
        ('{"projects": ' + "[" * 100_000, 0o600),
        (json.dumps(STATE)[:-1] + ', "mcpServers": {"a": {"command": "evil"}}}', 0o600),
        (json.dumps({**STATE, "tipsHistory": "x" * (9 << 20)}), 0o600),
        (json.dumps(STATE), 0o644),
    ],
    ids=["cut", "array", "NaN", "BOM", "deep", "twice", "long", "mode"],
)
def test_an_unreadable_state_file_is_listed(project: Path, cells: Path, tmp_path: Path, text: str, mode: int) -> None:
    """A file that others can read now counts too. Control: the test above does not list the same file with other notes."""
    state = tmp_path / ".claude.json"
    written(state, STATE)
    changes = changed_by(lambda _: written(state, text, mode), project, cells, Root(str(state), (".claude.json",)))

    assert [found.kind for found in changes.entries[0].executes] == ["agents"]


def test_an_agents_state_file_replaced_by_another_kind_of_file_is_listed(
    project: Path, cells: Path, tmp_path: Path
) -> None:
    """A link replaced the file. A file of that name in the project is no state file, so it is listed as usual."""
    folder = tmp_path / "own"
    folder.mkdir()
    state, beside = folder / ".claude.json", folder / "beside"
    for path in (state, beside, project / ".claude.json"):
        written(path, STATE)
    root = Root(str(folder), (".claude.json",))

    def link(_: Path) -> None:
        state.unlink()
        state.symlink_to(beside)
        written(project / ".claude.json", STATE)

    assert [(entry.path, entry.kind) for entry in changed_by(link, project, cells, root).entries] == [
        (".claude.json", "link"),
        (".claude.json", "file"),
    ]


def test_the_real_git_obeys_the_configuration_keys_that_the_list_reports(project: Path, cells: Path) -> None:
    """The test runs the real git on keys after a byte order mark or a comment, and on a quoted transport."""
    text = '\ufeff# \\\n[core]\n\thooksPath = x\n[remote "o"]\n\turl = "e"xt::sh\n'
    changes = changed_by(lambda root: (root / ".git/config").write_text(text), project, cells)
    command = ["git", "config", "--file", str(project / ".git/config"), "--list"]
    entries = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    assert entries == ["core.hookspath=x", "remote.o.url=ext::sh"]
    assert [found.detail for found in one(changes, ".git/config").executes] == ["core.hooksPath, remote.o.url"]


def test_executable_files_and_links_out_of_the_project_are_listed(project: Path, cells: Path) -> None:
    """The cases are permission bits, links, other names of one file, and special files."""
    (project.parent / "outside").write_text("x")

    def agent(root: Path) -> None:
        (root / "tool").write_text("x")
        try:
            (root / "tool").chmod(0o4755)
        except PermissionError:
            pytest.skip("no file can be set-user-ID here, as in a cell")
        (root / "inside-link").symlink_to("src/main.py")
        (root / "out-link").symlink_to("../outside")
        (root / "src/absolute").symlink_to("/etc")
        (root / "by-way-of").symlink_to("src/absolute/passwd")
        os.link(root.parent / "outside", root / "same")
        os.mkfifo(root / "pipe")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(root / "sock"))

    found = reasons(changed_by(agent, project, cells))

    assert found == {
        "tool": ["executable", "set-user-ID"],
        "out-link": ["link out of the project"],
        "src/absolute": ["link out of the project"],
        "by-way-of": ["link out of the project"],
        "same": ["hard link"],
        "pipe": ["special file"],
        "sock": ["special file"],
    }


def test_a_link_is_never_followed(project: Path, cells: Path) -> None:
    """A link's target outside the project changes without being listed; a folder that became a link is not entered."""
    outside = project.parent / "ssh"
    outside.mkdir()
    (outside / "id").write_text("secret")
    (project / "was-link").symlink_to(outside)

    def agent(root: Path) -> None:
        (outside / "id").write_text("other")
        (root / "empty").rmdir()
        (root / "empty").symlink_to(outside)

    changes = changed_by(agent, project, cells)

    assert listed(changes) == {"empty": "changed"}
    assert one(changes, "empty").executes[0].detail == str(outside)


def test_files_outside_a_project_are_listed_by_their_full_path(project: Path, cells: Path, tmp_path: Path) -> None:
    """~/.bashrc is reported as a shell's file; files that no program reads by name are only listed."""
    files = [tmp_path / name for name in (".bashrc", ".futurerc", "letter", "fish/conf.d/x.fish", "fish/notes")]
    for file in files:
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text("")
    roots = [*files[:3], tmp_path / "fish/conf.d", tmp_path / "fish/notes"]

    changes = changed_by(
        lambda _: [file.write_text("x") for file in files], project, cells, *map(Root, map(str, roots))
    )

    kinds: tuple[list[str], ...] = (["shell startup"], ["settings"], [], ["shell startup"], [])
    seen = {under(change.root, change.path): [found.kind for found in change.executes] for change in changes.entries}
    assert seen == {str(file): kind for file, kind in zip(files, kinds, strict=True)}


def test_in_folders_beside_the_project_only_risky_files_are_listed(project: Path, cells: Path, tmp_path: Path) -> None:
    """The caller names the files of an agent's own state; a single file as root is listed if it was written."""
    state = tmp_path / "state"
    (state / "hooks").mkdir(parents=True)
    single = tmp_path / "single.json"
    single.write_text("{}")

    def agent(_: Path) -> None:
        (state / "settings.json").write_text("{}")
        (state / "history.jsonl").write_text("{}")
        (state / "hooks/start").write_text("x")
        single.write_text('{"a": 1}')

    more = (Root(str(state), only=("settings.json", "hooks/**")), Root(str(single)))
    changes = changed_by(agent, project, cells, *more)

    assert {(change.root, change.path) for change in changes.entries} == {
        (str(state), "settings.json"),
        (str(state), "hooks/start"),
        (str(single), ""),
    }
    assert [found.kind for found in next(c for c in changes.entries if c.path == "settings.json").executes] == [
        "agents"
    ]


def test_programs_and_links_beside_the_project_are_listed_whatever_their_name(
    project: Path, cells: Path, tmp_path: Path
) -> None:
    """Settings can name any file as a program; plain data without a known name is not listed."""
    state = tmp_path / "state"
    (state / "deep").mkdir(parents=True)
    for folder in ("repository/objects", "repository/refs"):
        (state / folder).mkdir(parents=True)

    def agent(_: Path) -> None:
        (state / "deep/tool").write_text("#!/bin/sh\n")
        (state / "deep/tool").chmod(0o755)
        (state / "deep/data").write_text("x")
        (state / "deep/out").symlink_to("/etc/passwd")
        (state / "deep/inside").symlink_to("data")
        (state / "repository/config").write_text("[core]\n\tfsmonitor = ./x\n")

    changes = changed_by(agent, project, cells, Root(str(state), only=("settings.json",)))

    assert reasons(changes) == {
        "deep/tool": ["executable"],
        "deep/out": ["link out of the project"],
        "repository/config": ["git configuration"],
    }
    assert set(listed(changes)) == set(reasons(changes))


def test_creating_or_removing_a_whole_watched_path_is_listed(project: Path, cells: Path, tmp_path: Path) -> None:
    """The agent made a settings file, and removed a folder."""
    made, gone = tmp_path / "made.json", tmp_path / "gone"
    gone.mkdir()

    def agent(_: Path) -> None:
        made.write_text("{}")
        gone.rmdir()

    changes = changed_by(agent, project, cells, Root(str(made)), Root(str(gone)))

    assert {(change.root, change.what) for change in changes.entries} >= {(str(made), "made"), (str(gone), "removed")}


def test_files_of_ailerons_own_home_in_the_project_are_not_listed(tmp_path: Path) -> None:
    """A project that is the person's home directory contains Aileron's home, which the daemon keeps writing to."""
    (tmp_path / ".aileron").mkdir(mode=0o700)
    _wait_for_the_clock()
    watch = Watch.begin(
        starts_of([Root(str(tmp_path))], tmp_path / ".aileron" / "cells"), tmp_path / ".aileron" / "cells" / SESSION
    )
    (tmp_path / ".aileron" / "ledger.db").write_text("x")
    (tmp_path / "mine").write_text("x")
    changes = watch.finish()

    assert listed(changes) == {"mine": "made"}
    assert changes.notes == ()


# The clock


def test_the_recorded_start_is_never_later_than_the_first_write(tmp_path: Path) -> None:
    """File times come from a coarse clock, so a file written right after the start could seem older."""
    for number in range(200):
        moment = Moment.of(str(tmp_path))
        file = tmp_path / str(number)
        file.write_text("x")
        assert is_since(file.stat().st_ctime_ns, moment.earliest())


@pytest.mark.parametrize(
    ("ctime", "start", "is_new"),
    [
        (10_000_000_000, 10_700_000_000, True),  # stamps in seconds: written at 10.9
        (10_000_000_000, 11_900_000_000, True),  # stamps in steps of two seconds
        (10_000_000_000, 12_100_000_000, False),
        (10_500_000_000, 10_590_000_000, True),  # stamps in tenths
        (10_500_000_000, 10_610_000_000, False),
        (10_123_456_789, 10_123_456_790, False),
        (10_123_456_789, 10_123_456_789, True),
    ],
)
def test_a_file_time_truncated_by_its_file_system_is_treated_as_the_latest_possible_time(
    ctime: int, start: int, is_new: bool
) -> None:
    """A file system with coarse timestamps rounds down: trailing zeros may hide almost one step."""
    assert is_since(ctime, start) is is_new


@pytest.mark.abuse_case("CL1")
def test_a_system_clock_that_was_set_back_hides_no_change(tmp_path: Path) -> None:
    """The start moves back by the difference between the two clocks; a clock that was set forward moves nothing."""
    now = Moment.of(str(tmp_path))
    hour = 3600 * 10**9
    back = Moment(now.stamp_ns + hour, now.realtime_ns + hour, now.boottime_ns)
    forward = Moment(now.stamp_ns - hour, now.realtime_ns - hour, now.boottime_ns)

    assert abs(back.earliest() - now.stamp_ns) < 10**9
    assert forward.earliest() == forward.stamp_ns


def test_checking_the_file_systems_clock_leaves_no_file_and_restores_the_folders_times(project: Path) -> None:
    """The probe creates a file to read its timestamp, then removes it and restores the folder's times."""
    before = project.stat()
    Moment.of(str(project))

    assert (project.stat().st_mtime_ns, project.stat().st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)


# Bounds


def test_files_beyond_the_limit_of_names_recorded_at_the_start_are_listed_as_changed(
    project: Path, cells: Path
) -> None:
    """The start has only a bounded number of names, so later files there are listed as changed, with a note."""
    from aileron.cell.compare import compare
    from aileron.cell.listing import Listing

    _wait_for_the_clock()
    start = Start.of(Root(str(project)), most=3)
    _wait_for_the_clock()
    (project / "src/deep/new.py").write_text("x")
    (project / "src/deep/x.py").write_text("x")
    listing = Listing()
    compare(start, listing)

    found = {change.path: change.what for change in listing.sorted()}
    assert found == {"src/deep/new.py": "changed", "src/deep/x.py": "changed"}
    assert any("not every name" in note for note in listing.notes)


@pytest.mark.abuse_case("CL3")
def test_a_tree_that_is_too_deep_is_noted(project: Path, cells: Path) -> None:
    """The depth exceeds the limits on descriptors and paths: a note says so instead of an error."""

    def agent(root: Path) -> None:
        folder = os.open(root, os.O_RDONLY)
        for _ in range(400):
            os.mkdir("down", dir_fd=folder)
            inner = os.open("down", os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = inner
        os.close(folder)

    changes = changed_by(agent, project, cells)

    assert any("folders deep" in note for note in changes.notes)
    assert any("folders deep" in line for line in summary(changes))


@pytest.mark.slow
def test_a_hundred_thousand_files_are_all_read() -> None:
    """Each folder is read once, with all its names. The files are in memory if possible: on a disk they take seconds to make."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as top:
        for number in range(1000):
            folder = f"{top}/d{number // 50}/e{number}"
            os.makedirs(folder)
            for file in range(100):
                os.mknod(f"{folder}/file-{file}.txt")
        start = Start.of(Root(os.path.realpath(top)))

    assert len(start.names) == 1_021
    assert sum(len(folder.names) for folder in start.names.values()) == 101_020


# What is reported and kept


@pytest.mark.abuse_case("CL4")
def test_hostile_file_names_are_recorded_exactly_and_shown_escaped(project: Path, cells: Path) -> None:
    """The names have line ends, escapes, marks that reverse text, and bytes that are not UTF-8."""
    names = [b"a\nerror: fine", b"\x1b[2Jclear", "\u202egpj.exe".encode(), b"\xff\xfe", b"x" * 255]

    def agent(root: Path) -> None:
        for name in names:
            path = os.fsencode(root) + b"/" + name
            with open(path, "w") as file:
                file.write("x")
            os.chmod(path, 0o755)

    changes = changed_by(agent, project, cells)
    said = "\n".join(summary(changes))

    assert {os.fsencode(change.path) for change in changes.entries} == set(names)
    assert look(Kept(cells / SESSION)) == changes
    assert "\nerror: fine" not in said
    assert said.isascii()
    assert "\x1b" not in said


@pytest.mark.abuse_case("CL3")
def test_a_summary_fits_on_a_screen_and_shows_every_kind(project: Path, cells: Path) -> None:
    """The agent made a thousand executables and one hook, which must not be lost among them."""

    def agent(root: Path) -> None:
        for number in range(1000):
            (root / f"bin-{number}").write_text("x")
            (root / f"bin-{number}").chmod(0o755)
        (root / ".git/hooks/pre-commit").write_text("x")

    changes = changed_by(agent, project, cells)
    said = summary(changes)

    assert len(said) < 30
    assert ".git/hooks/pre-commit: made; git hook" in said[2]
    assert any("and 995 more" in line for line in said)
    assert changes.executing == 1001


def test_the_list_of_changes_can_be_read_while_the_agent_works(project: Path, cells: Path) -> None:
    """Another command compares with the recorded start; after the end it shows the recorded list."""
    watch = Watch.begin(starts_of([Root(str(project))], cells), cells / SESSION)
    (project / "one").write_text("x")
    during = look(Kept(cells / SESSION))
    (project / "two").write_text("x")
    watch.finish()
    (project / "three").write_text("x")
    after = look(Kept(cells / SESSION))

    assert (during.is_final, after.is_final) == (False, True)
    assert {"one"} <= listed(during).keys()
    assert "two" not in listed(during)
    assert "two" in listed(after)
    assert "three" not in listed(after)


def test_after_a_killed_session_the_project_is_compared_with_its_recorded_start(project: Path, cells: Path) -> None:
    """The session could not record a list at its end, so the current differences are listed, with a note."""
    watch = Watch.begin(starts_of([Root(str(project))], cells), cells / SESSION)
    (project / "one").write_text("x")
    watch.abandon()
    changes = look(Kept(cells / SESSION))

    assert listed(changes)["one"] == "made"
    assert any("without a list" in note for note in changes.notes)


def test_the_recorded_list_is_readable_only_by_its_owner(project: Path, cells: Path) -> None:
    """Even names of files can be confidential."""
    changed_by(lambda root: None, project, cells)

    assert stat.S_IMODE((cells / SESSION).stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (cells / SESSION).iterdir()} == {0o600}


def test_records_of_old_cells_are_removed_unless_in_use_or_with_changes(tmp_path: Path, project: Path) -> None:
    """The limits are on their number and their age."""
    cells = tmp_path / "cells"
    now = time.time()
    for number in range(MAX_CELLS + 3):
        kept = Kept(cells / f"ses-{number:03}")
        kept.make()
        kept.write("start.json", {})
        os.utime(kept.path / "start.json", (now - number, now - number))
    (cells / f"ses-{MAX_CELLS:03}" / "upper").mkdir()
    with Kept(cells / f"ses-{MAX_CELLS + 1:03}").held():
        prune(cells)
    left = {kept.session for kept in kept_cells(cells)}

    assert left == {f"ses-{number:03}" for number in range(MAX_CELLS + 2)}
    prune(cells, now=now + MAX_AGE_S + 60)
    assert {kept.session for kept in kept_cells(cells)} == {f"ses-{MAX_CELLS:03}"}


def test_the_folders_that_earlier_cells_could_write_are_recorded(tmp_path: Path, project: Path) -> None:
    """Each place of every cell is listed once; a record that cannot be parsed is an error."""
    cells, other = tmp_path / "cells", tmp_path / "other"
    other.mkdir()
    for name, roots in (("ses-1", [Root(str(project))]), ("ses-2", [Root(str(project)), Root(str(other))])):
        Watch.begin(starts_of(roots, cells), cells / name).abandon()
    assert set(earlier_roots(cells)) == {str(project), str(other)}
    assert earlier_roots(tmp_path / "none") == ()

    Kept(cells / "ses-1").write("start.json", {"session": "ses-1"})
    with pytest.raises(AileronError, match="is damaged: remove it"):
        earlier_roots(cells)


@pytest.mark.parametrize("name", ["..", ".hidden", "a b", "a\n", "ses-\u00e9", "x" * 101])
def test_a_session_name_cannot_be_a_path(name: str) -> None:
    """A name that a person types cannot lead out of the folder of cells."""
    with pytest.raises(ValueError, match="not the name of a session"):
        Kept(Path("/home/you/.aileron/cells") / name)


def test_a_damaged_record_is_refused(project: Path, cells: Path) -> None:
    """A truncated file must not be taken for an empty list."""
    changed_by(lambda root: None, project, cells)
    (cells / SESSION / "changes.json").write_text('{"session": 1')

    with pytest.raises(AileronError, match="damaged"):
        look(Kept(cells / SESSION))


# Files of package managers


def environment(folder: Path, number: int = 60) -> None:
    """Write a virtual environment with many files that run code."""
    packages = folder / "lib" / "python3.11" / "site-packages"
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    packages.mkdir(parents=True, exist_ok=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (folder / "bin" / "python3").symlink_to("/usr/bin/python3")
    for place in number * [packages]:
        name = f"x{len(list(place.iterdir()))}"
        (place / f"{name}.pth").write_text("import os\n")
    (folder / "bin" / "tool").write_text("#!/bin/sh\n")
    (folder / "bin" / "tool").chmod(0o755)


def test_hooks_and_similar_files_are_listed_beside_the_one_line_for_a_python_environment(
    project: Path, cells: Path
) -> None:
    """Files in the environment that take effect without its use are listed as well."""
    where = Path(".venv/lib/python3.11/site-packages")

    def agent(root: Path) -> None:
        environment(root / ".venv")
        (root / where / "CLAUDE.md").write_text("x")
        (root / where / "r/hooks").mkdir(parents=True)
        (root / where / "r/HEAD").write_text("ref: x")
        (root / where / "r/hooks/post-commit").write_text("x")
        (root / where / "letter").symlink_to("/etc/passwd")
        (root / ".venv" / "Makefile").write_text("x")
        (root / ".git/hooks/pre-commit").write_text("x")

    changes = changed_by(agent, project, cells)
    lines = summary(changes)

    assert [(tree.path, tree.entries) for tree in changes.installed] == [(".venv", 70)]
    assert changes.executing == 6
    assert sum(".venv: 70 files and folders of packages" in line for line in lines) == 1
    assert {line.strip().partition(":")[0] for line in lines if line.startswith("  ")} == {
        ".git/hooks/pre-commit",
        f"{where}/r/hooks/post-commit",
        f"{where}/CLAUDE.md",
        f"{where}/letter",
        ".venv/Makefile",
        ".venv",
    }
    assert Changes.from_json(json.loads(json.dumps(changes.to_json()))) == changes


@pytest.mark.parametrize(
    ("folder", "mark"),
    [
        ("web/node_modules", ".package-lock.json"),
        ("node_modules", ".modules.yaml"),
        ("target", ".rustc_info.json"),
        (".next", "BUILD_ID"),
    ],
)
def test_a_folder_of_packages_is_listed_as_one_line(project: Path, cells: Path, folder: str, mark: str) -> None:
    """The folder's marker file makes it one line; without the marker, each file is listed."""

    def agent(root: Path) -> None:
        for name in ("a", "b"):
            (root / folder / name).mkdir(parents=True)
            (root / folder / name / "Makefile").write_text("x")
        (root / "packages.txt").write_text("x")

    assert changed_by(agent, project, cells).installed == ()
    for name in ("a", "b"):
        (project / folder / name / "Makefile").unlink()
        (project / folder / name).rmdir()
    (project / folder / mark).write_text("{}")
    changes = changed_by(agent, project, cells)
    assert [(tree.path, tree.entries) for tree in changes.installed] == [(folder, 4)]
    assert changes.executing == 1


def test_compiled_python_modules_of_all_folders_are_listed_as_one_line(project: Path, cells: Path) -> None:
    """Other files among them are listed by themselves."""

    def agent(root: Path) -> None:
        for folder in ("src/__pycache__", "src/deep/__pycache__"):
            (root / folder).mkdir()
            (root / folder / "x.cpython-311.pyc").write_text("x")
        (root / "src/__pycache__/run").write_text("x")
        (root / "src/__pycache__/run").chmod(0o755)

    changes = changed_by(agent, project, cells)

    assert [(tree.path, tree.entries) for tree in changes.installed] == [("**/__pycache__", 2)]
    assert [found.kind for found in one(changes, "src/__pycache__/run").executes] == ["executable"]
    assert changes.executing == 2


@pytest.mark.abuse_case("CL8")
@pytest.mark.parametrize("how", ["mark", "ignore"])
def test_an_agent_cannot_hide_files_by_adding_a_marker_file(project: Path, cells: Path, how: str) -> None:
    """A folder is summarized only if its marker existed before the session. Being ignored by git hides no file."""

    def agent(root: Path) -> None:
        if how == "mark":
            environment(root / "src", 1)
            environment(root, 1)
        (root / ".gitignore").write_text("*\n")
        (root / "src/lib").mkdir(exist_ok=True)
        (root / "src/lib/Makefile").write_text("x")

    changes = changed_by(agent, project, cells)

    assert changes.installed == ()
    assert [found.kind for found in one(changes, "src/lib/Makefile").executes] == ["make"]


@pytest.mark.abuse_case("CL8")
def test_many_changed_files_of_one_kind_hide_no_file_of_another_kind(project: Path, cells: Path) -> None:
    """Each kind has its own limit in the list."""

    def agent(root: Path) -> None:
        for number in range(1100):
            (root / "src" / f"{number}.mk").write_text("x")
        (root / "z.mk").write_text("x")
        (root / "zz").mkdir()
        (root / "zz/.envrc").write_text("x")

    changes = changed_by(agent, project, cells)
    kinds = [change.executes[0].kind for change in changes.entries if change.executes]

    assert (kinds.count("make"), kinds.count("shell environment"), changes.executing) == (1000, 1, 1102)
