"""Tests of changes that an overlay keeps aside: what the kernel writes is understood, and applied exactly as the agent saw it.

Each overlay here is mounted for real.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aileron.cell.apply import apply, discard, has_aside, pending
from aileron.cell.changes import look, starts_of, summary
from aileron.cell.kept import Kept, prune
from aileron.cell.overlay import differences, prepare_overlay
from aileron.cell.tree import MAX_DEPTH, remove_tree
from aileron.model.failure import AileronError, FailureClass
from tests.cell.overlays import SESSION, Aside, asked, snapshot
from tests.support.refusals import refusal_of

pytestmark = pytest.mark.jail


@pytest.fixture
def aside(tmp_path: Path) -> Aside:
    """Make a project with some files, and a session that begins."""
    found = Aside(tmp_path)
    for folder in ("src/deep", "docs", "old/inner"):
        (found.project / folder).mkdir(parents=True)
    for file in ("a", "b", "src/main.py", "src/deep/x", "docs/one", "docs/two", "old/file", "old/inner/file"):
        (found.project / file).write_text(f"{file}\n")
    (found.project / "link").symlink_to("a")
    found.begin()
    return found


def listed(aside: Aside) -> dict[str, str]:
    """Return what each pending change does, by path."""
    return {difference.path: difference.what for difference in pending(aside.kept)}


# What the kernel writes


def test_every_kind_of_change_is_read_from_the_upper_folder(aside: Aside) -> None:
    """Files were written, made, removed, replaced by another kind, moved or chmodded; the project is unchanged."""
    before = snapshot(aside.project)
    changes = aside.session(
        [
            ["write", "a", "other", 0o644],
            ["write", "new", "new", 0o755],
            ["remove", "b"],
            ["remove", "docs"],
            ["write", "docs", "a file now", 0o644],
            ["mode", "src/main.py", 0o755],
            ["move", "old", "src/moved"],
            ["link", "link", "b"],
        ]
    )

    assert {change.path: change.what for change in changes.entries} == {
        "a": "changed",
        "new": "made",
        "b": "removed",
        "docs": "changed",
        "docs/one": "removed",
        "docs/two": "removed",
        "src/main.py": "changed",
        "src/moved": "made",
        "src/moved/file": "made",
        "src/moved/inner": "made",
        "src/moved/inner/file": "made",
        "old": "removed",
        "old/file": "removed",
        "old/inner": "removed",
        "old/inner/file": "removed",
        "link": "changed",
    }
    assert snapshot(aside.project) == before
    assert f"to apply them: aileron sessions apply {SESSION}" in summary(changes)


def test_a_replaced_folder_hides_its_earlier_files(aside: Aside) -> None:
    """The kernel marks it as opaque, and does not list the removed files."""
    aside.agent([["remove", "docs"], ["folder", "docs"], ["write", "docs/two", "new", 0o644]])

    assert os.getxattr(aside.kept.upper / "docs", "user.overlay.opaque") == b"y"
    assert listed(aside) == {"docs/one": "removed", "docs/two": "changed"}


def test_a_file_that_was_touched_but_not_changed_is_not_listed(aside: Aside) -> None:
    """The overlay copied the file to its upper folder, but the copy is equal."""
    aside.agent([["times", "a", 1], ["write", "b", "b\n", 0o644], ["mode", "src/main.py", 0o644]])

    assert (aside.kept.upper / "a").exists()
    assert listed(aside) == {}


def test_the_kernel_refuses_to_rename_a_folder_on_an_overlay(aside: Aside) -> None:
    """A redirect would be an attribute that Aileron does not follow: the kernel refuses the rename, and programs copy."""
    aside.agent([["rename", "old", "renamed"]])

    assert aside.failed == {0: errno.EXDEV}


@pytest.mark.abuse_case("CL6")
def test_an_agent_cannot_forge_the_kernels_overlay_marks(aside: Aside) -> None:
    """An agent cannot create the device that marks a removed file, and attributes that it sets have no effect."""
    aside.agent(
        [
            ["device", "docs/whiteout"],
            ["attribute", "docs", "user.overlay.opaque", "y"],
            ["attribute", "src", "user.overlay.redirect", "/etc"],
            ["attribute", "a", "user.overlay.metacopy", ""],
            ["write", "docs/real", "x", 0o644],
        ]
    )

    assert aside.failed[0] == errno.EPERM
    assert listed(aside) == {"docs/real": "made"}


@pytest.mark.abuse_case("CL6")
def test_an_unknown_overlay_attribute_is_refused(aside: Aside) -> None:
    """Another kernel's attribute may mean that a file's contents or a folder are elsewhere."""
    aside.agent([["write", "a", "x", 0o644], ["write", "src/main.py", "x", 0o644]])
    os.setxattr(aside.kept.upper / "a", "user.overlay.metacopy", b"")
    os.setxattr(aside.kept.upper / "src", "user.overlay.redirect", b"/docs")
    aside.finish()
    done = apply(aside.kept)

    assert done.applied == ()
    assert dict(done.refused) == {
        "a": "has the unknown attribute user.overlay.metacopy",
        "src": "has the unknown attribute user.overlay.redirect",
    }


def test_files_that_can_execute_are_named_before_changes_are_applied(aside: Aside) -> None:
    """The list of pending changes has the same findings as for a project changed in place."""
    changes = aside.session(
        [["folder", ".git"], ["folder", ".git/hooks"], ["write", ".git/hooks/pre-commit", "#!/bin/sh\n", 0o755]]
    )

    assert [found.kind for found in changes.entries[0].executes] == ["git hook", "executable"]


def test_a_bare_repository_in_an_overlay_is_recognized(tmp_path: Path) -> None:
    """Names are those of the merged folder: the project's, with the upper ones over them, and without removed ones."""
    aside = Aside(tmp_path)
    for name in ("there", "replaced"):
        subprocess.run(["git", "init", "-q", "--bare", str(aside.project / name)], check=True, timeout=60)
    (aside.project / "removed").mkdir()
    (aside.project / "removed/HEAD").write_text("ref: refs/heads/main\n")
    aside.begin()
    obeyed = "[core]\n\tsshCommand = sh\n"
    aside.agent(
        [
            ["write", "there/hooks/pre-push", "x", 0o644],
            ["write", "there/hooks/more.sample", "x", 0o644],
            ["write", "there/config", obeyed, 0o644],
            ["folder", "made"],
            ["folder", "made/refs"],
            ["folder", "made/objects"],
            ["folder", "made/objects/info"],
            ["write", "made/objects/info/alternates", "/elsewhere\n", 0o644],
            ["link", "made/hooks", "../tools"],
            ["remove", "removed/HEAD"],
            ["write", "removed/config", obeyed, 0o644],
            ["remove", "replaced"],
            ["folder", "replaced"],
            ["write", "replaced/config", obeyed, 0o644],
        ]
    )

    assert {
        entry.path: [found.kind for found in entry.executes] for entry in aside.finish().entries if entry.executes
    } == {
        "there/hooks/pre-push": ["git hook"],
        "there/config": ["git configuration"],
        "made/objects/info/alternates": ["git elsewhere"],
        "made/hooks": ["git hook"],
    }


# Applying


def test_the_project_with_all_changes_applied_equals_what_the_agent_saw(aside: Aside) -> None:
    """Contents, permissions and times match; afterwards no change is kept aside."""
    seen = aside.agent(
        [
            ["write", "a", "other", 0o600],
            ["times", "a", 1_000_000_000],
            ["write", "new", "new", 0o755],
            ["folder", "made"],
            ["write", "made/inner", "x", 0o444],
            ["remove", "b"],
            ["remove", "docs"],
            ["write", "docs", "a file now", 0o644],
            ["remove", "link"],
            ["folder", "link"],
            ["write", "link/inside", "x", 0o644],
            ["move", "old", "src/moved"],
            ["mode", "src", 0o700],
        ]
    )
    aside.finish()
    done = apply(aside.kept)

    assert done.refused == ()
    assert snapshot(aside.project) == seen
    assert (done.left, has_aside(aside.kept)) == (0, False)
    assert apply_again(aside.kept) == 0


def apply_again(kept: Kept) -> int:
    """Apply again and return the number of applied changes."""
    return len(apply(kept).applied)


def test_the_program_that_the_tests_run_as_agent_writes_only_in_its_overlay(aside: Aside, tmp_path: Path) -> None:
    """The tests write through links that lead anywhere, so the test program must be confined to the overlay."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    aside.agent([["link", "d", str(outside)], ["write", "d/x", "x", 0o644], ["mode", "d", 0o700]])

    assert sorted(aside.failed) == [1, 2]
    assert (os.listdir(outside), outside.stat().st_mode & 0o777) == ([], 0o755)


NAMES = st.sampled_from(["a", "b", "d", "e", "d/a", "d/e", "d/e/a", "e/b", "d/e/d", "n\nl", "d/\x1b[2J"])
TEXTS = st.sampled_from(["", "one", "two", "x" * 5000])
FILE_MODES = st.sampled_from([0o644, 0o600, 0o755])
TREE = st.lists(st.tuples(NAMES, st.one_of(st.none(), TEXTS)), max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, TEXTS, FILE_MODES),
        st.tuples(st.just("folder"), NAMES),
        st.tuples(st.just("link"), NAMES, st.sampled_from(["a", "/etc", "../.."])),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("move"), NAMES, NAMES),
        st.tuples(st.just("mode"), NAMES, st.sampled_from([0o700, 0o755])),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREE, steps=STEPS, cut=st.integers(0, 30))
def test_any_changes_to_any_tree_are_applied_as_they_were_seen(
    tree: list[tuple[str, str | None]], steps: list[tuple[Any, ...]], cut: int
) -> None:
    """Hypothesis picks changes, which are applied in two parts: the project becomes what the overlay showed."""
    with tempfile.TemporaryDirectory() as folder:
        aside = Aside(Path(folder))
        for name, text in tree:
            place = aside.project / name
            if os.path.lexists(place) or not place.parent.is_dir():
                continue
            if text is None:
                place.mkdir()
            else:
                place.write_text(text)
        aside.begin()
        seen = aside.agent([list(step) for step in steps])
        listing = aside.finish()
        waiting = pending(aside.kept)
        assert sum(listing.counts.values()) == len(waiting)
        if waiting:
            apply(aside.kept, [waiting[cut % len(waiting)].path])
        done = apply(aside.kept)

        assert done.refused == ()
        assert without_times_of_untouched(snapshot(aside.project)) == without_times_of_untouched(seen)
        assert not has_aside(aside.kept)


def without_times_of_untouched(found: dict[str, Any]) -> dict[str, Any]:
    """Return the snapshot without files' times: a file that was only touched is no change, so times can differ."""
    return {path: value[:3] for path, value in found.items()}


def test_some_changes_can_be_applied_and_the_others_discarded(aside: Aside) -> None:
    """Parent folders of an applied file are created; a discarded change does not come back."""
    aside.session(
        [["folder", "made"], ["write", "made/x", "x", 0o644], ["write", "made/y", "y", 0o644], ["remove", "b"]]
    )
    first = apply(aside.kept, ["made/x"])
    second = discard(aside.kept, ["b"])
    left = listed(aside)
    third = discard(aside.kept)

    assert (first.applied, second.discarded, third.discarded) == (("made", "made/x"), ("b",), ("made/y",))
    assert left == {"made/y": "made"}
    assert sorted(os.listdir(aside.project / "made")) == ["x"]
    assert (aside.project / "b").exists()
    assert not has_aside(aside.kept)


def test_applying_a_path_without_a_change_is_an_error(aside: Aside) -> None:
    """The request's other changes are not applied either."""
    aside.session([["write", "a", "x", 0o644]])
    with pytest.raises(AileronError, match="no change is kept aside at 'b'"):
        apply(aside.kept, ["b", "a"])

    assert listed(aside) == {"a": "changed"}


def test_a_change_to_a_file_that_the_person_also_changed_is_refused(aside: Aside) -> None:
    """Each refusal has its reason (written, made, removed, other kind); the others are applied. Force applies all."""
    seen = aside.agent(
        [
            ["write", "a", "agent", 0o644],
            ["write", "new", "agent", 0o644],
            ["write", "b", "agent", 0o644],
            ["write", "docs/one", "agent", 0o644],
            ["remove", "docs/two"],
            ["write", "free", "agent", 0o644],
        ]
    )
    aside.finish()
    (aside.project / "a").write_text("person")
    (aside.project / "new").write_text("person")
    (aside.project / "b").unlink()
    (aside.project / "docs/one").unlink()
    (aside.project / "docs/one").symlink_to("two")
    (aside.project / "docs/two").write_text("person")
    done = apply(aside.kept)
    kept = {name: (aside.project / name).read_text() for name in ("a", "new", "docs/two")}

    assert done.applied == ("free",)
    assert {path: why.partition(" it ")[0] for path, why in done.refused} == {
        "a": "you changed",
        "new": "you made",
        "b": "you removed",
        "docs/one": "you changed",
        "docs/two": "you changed",
    }
    assert set(kept.values()) == {"person"}
    assert done.left == 5

    forced = apply(aside.kept, force=True)
    assert forced.refused == ()
    assert without_times_of_untouched(snapshot(aside.project)) == without_times_of_untouched(seen)


def test_a_persons_edit_of_an_applied_change_is_not_overwritten(aside: Aside) -> None:
    """Applying the remaining changes does not touch that file again."""
    aside.session([["write", "a", "agent", 0o644], ["remove", "b"]])
    apply(aside.kept, ["a"])
    (aside.project / "a").write_text("person")
    done = apply(aside.kept)

    assert (done.applied, done.refused) == (("b",), ())
    assert (aside.project / "a").read_text() == "person"


def test_an_identical_change_by_agent_and_person_needs_no_decision(aside: Aside) -> None:
    """The file in the project already equals the agent's."""
    aside.session([["write", "a", "same", 0o644], ["remove", "b"]])
    (aside.project / "a").write_text("same")
    (aside.project / "b").unlink()

    assert pending(aside.kept) == []


def test_a_folder_that_contains_a_new_file_of_the_person_is_not_removed(aside: Aside) -> None:
    """The agent removed the folder without knowing that file; the files that it knew are removed."""
    aside.session([["remove", "docs"]])
    (aside.project / "docs/mine").write_text("person")
    done = apply(aside.kept)

    assert (aside.project / "docs/mine").read_text() == "person"
    assert "docs" in dict(done.refused)


def test_no_change_is_applied_while_the_cell_runs(aside: Aside) -> None:
    """A mounted overlay must not be changed from below."""
    aside.agent([["write", "a", "x", 0o644]])
    for action in (apply, discard):
        assert refusal_of(action, aside.kept).failure_class is FailureClass.BUSY
    aside.finish()

    assert apply(aside.kept).applied == ("a",)


def test_changes_neither_applied_nor_discarded_are_never_removed(aside: Aside) -> None:
    """Even old ones stay until the person applies or discards them."""
    aside.session([["write", "a", "x", 0o644]])
    prune(aside.kept.path.parent, now=4e9)
    still = listed(aside)
    discard(aside.kept)
    prune(aside.kept.path.parent, now=4e9)

    assert still == {"a": "changed"}
    assert not aside.kept.path.exists()


KILLED = """
import json, os, signal, sys
from pathlib import Path
from aileron.cell import apply
from aileron.cell.kept import Kept

def counted(function):
    def call(*arguments, **named):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return call

for line in sys.stdin:
    path, left = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for name in ("rename", "link", "unlink", "mkdir", "rmdir", "fchmod", "symlink"):
            setattr(os, name, counted(getattr(os, name)))
        os._exit(1 if apply.apply(Kept(Path(path))).refused else 0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.mark.slow
def test_applying_changes_can_continue_after_a_kill_at_any_point(tmp_path: Path) -> None:
    """The process dies before one of its writing calls: applied files are whole, and the next run finishes the work."""
    for point in range(200):
        folder = tmp_path / str(point)
        folder.mkdir()
        aside = Aside(folder)
        for name in ("file", "gone/x", "gone/y/z", "becomes-file/x", "becomes-folder", "kept"):
            (aside.project / name).parent.mkdir(parents=True, exist_ok=True)
            (aside.project / name).write_text(name)
        aside.begin()
        seen = aside.agent(
            [
                ["write", "file", "other", 0o755],
                ["remove", "gone"],
                ["folder", "gone"],
                ["write", "gone/x", "new", 0o644],
                ["remove", "becomes-file"],
                ["write", "becomes-file", "x", 0o644],
                ["remove", "becomes-folder"],
                ["folder", "becomes-folder"],
                ["write", "becomes-folder/x", "x", 0o644],
                ["link", "link", "/etc"],
            ]
        )
        aside.finish()
        code = asked(KILLED, [str(aside.kept.path), point])
        if code == 0:
            break
        assert code == -signal.SIGKILL
        again = apply(aside.kept)
        assert again.refused == (), point
        found = snapshot(aside.project)
        assert without_times_of_untouched(found) == without_times_of_untouched(seen), point
        assert not has_aside(aside.kept)
        remove_tree(str(folder))
    assert 20 < point < 199


# Attacks


@pytest.mark.abuse_case("CL5")
def test_no_change_is_written_through_a_link_in_the_project(aside: Aside, tmp_path: Path) -> None:
    """A folder in the path became a link to the person's keys, which stay unchanged even with --force."""
    keys = tmp_path / "ssh"
    keys.mkdir()
    (keys / "x").write_text("key")
    aside.session(
        [["write", "src/deep/x", "agent", 0o644], ["write", "src/deep/new", "agent", 0o644], ["remove", "docs"]]
    )
    remove_tree(str(aside.project / "src/deep"))
    (aside.project / "src/deep").symlink_to(keys)
    remove_tree(str(aside.project / "docs"))
    (aside.project / "docs").symlink_to(keys)
    done = apply(aside.kept)
    forced = apply(aside.kept, force=True)

    assert (keys / "x").read_text() == "key"
    assert os.listdir(keys) == ["x"]
    assert "src/deep" in dict(done.refused)
    assert stat.S_ISDIR((aside.project / "src/deep").lstat().st_mode)
    assert forced.refused == ()


@pytest.mark.abuse_case("CL5")
def test_a_folder_replaced_by_a_link_between_check_and_write_is_not_followed(
    aside: Aside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap happens between check and write, but the write uses the descriptor of the checked folder."""
    keys = tmp_path / "ssh"
    keys.mkdir()
    aside.session([["write", "src/deep/new", "agent", 0o644]])
    make = os.link

    def swapping(*arguments: Any, **named: Any) -> None:
        os.rename(aside.project / "src/deep", aside.project / "src/aside")
        (aside.project / "src/deep").symlink_to(keys)
        make(*arguments, **named)

    monkeypatch.setattr(os, "link", swapping)
    apply(aside.kept)

    assert os.listdir(keys) == []
    assert (aside.project / "src/aside/new").read_text() == "agent"


def test_no_change_is_applied_to_a_project_whose_parent_folder_became_a_link(tmp_path: Path) -> None:
    """Another cell that could write the parent folder could otherwise choose where the changes go."""
    (tmp_path / "above").mkdir()
    aside = Aside(tmp_path / "above")
    aside.begin()
    aside.session([["write", "a", "x", 0o644]])
    elsewhere = tmp_path / "elsewhere" / "project"
    elsewhere.mkdir(parents=True)
    (tmp_path / "above").rename(tmp_path / "moved")
    (tmp_path / "above").symlink_to(elsewhere.parent)
    kept = Kept(tmp_path / "moved" / "home" / "cells" / SESSION)

    with pytest.raises(AileronError, match="a symbolic link has been put on the way"):
        apply(kept)
    assert list(elsewhere.iterdir()) == []

    (tmp_path / "above").unlink()
    (tmp_path / "moved").rename(tmp_path / "above")
    assert apply(aside.kept).applied == ("a",)


@pytest.mark.parametrize("when", ["made", "changed"])
def test_a_file_that_the_person_saves_between_check_and_write_is_not_overwritten(
    aside: Aside, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The person saves it between the check and the write."""
    name = "new" if when == "made" else "a"
    aside.session([["write", name, "agent", 0o644]])
    set_times = os.utime

    def saving(*arguments: Any, **named: Any) -> None:
        set_times(*arguments, **named)
        (aside.project / name).write_text("person, at this moment")

    monkeypatch.setattr(os, "utime", saving)
    done = apply(aside.kept)

    assert (aside.project / name).read_text() == "person, at this moment"
    assert "at this moment: try again" in dict(done.refused)[name]
    assert not [file for file in os.listdir(aside.project) if file.endswith(".tmp")]


@pytest.mark.abuse_case("CL5")
def test_links_in_the_upper_folder_are_applied_as_links(aside: Aside, tmp_path: Path) -> None:
    """They are recreated and not followed, and those that lead out of the project are reported."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    changes = aside.session(
        [["link", "leak", str(secret)], ["remove", "docs"], ["link", "docs", str(tmp_path / "home")]]
    )
    apply(aside.kept)

    assert {change.path for change in changes.entries if change.executes} == {"leak", "docs"}
    assert os.readlink(aside.project / "leak") == str(secret)
    assert os.readlink(aside.project / "docs") == str(tmp_path / "home")


@pytest.mark.abuse_case("CL5")
def test_a_hard_link_to_a_file_outside_is_not_written_through(aside: Aside, tmp_path: Path) -> None:
    """The person has the same file elsewhere: the new file takes the name in the project, and the other keeps its contents."""
    (tmp_path / "outside").write_text("outside")
    (aside.project / "a").unlink()
    os.link(tmp_path / "outside", aside.project / "a")
    aside.session([["write", "a", "agent", 0o644]])
    apply(aside.kept, force=True)

    assert (aside.project / "a").read_text() == "agent"
    assert (tmp_path / "outside").read_text() == "outside"


@pytest.mark.abuse_case("CL7")
def test_special_bits_and_special_files_are_not_applied(aside: Aside) -> None:
    """A program is applied without its set-user-ID bit; pipes and sockets are refused with a reason, and stay aside."""
    changes = aside.session(
        [["write", "tool", "x", 0o6755], ["mode", "tool", 0o7755], ["pipe", "pipe"], ["socket", "sock"]]
    )
    done = apply(aside.kept)

    assert stat.S_IMODE((aside.project / "tool").stat().st_mode) == 0o755
    assert dict(done.refused) == {"pipe": "a pipe is never applied", "sock": "a socket is never applied"}
    assert "set-user-ID" in {found.kind for change in changes.entries for found in change.executes}
    assert discard(aside.kept).left == 0


@pytest.mark.abuse_case("CL4")
def test_hostile_names_are_applied_exactly_and_shown_without_escape_characters(aside: Aside) -> None:
    """Line ends and escapes are names like others."""
    names = ["a\nerror: fine", "\x1b[2J", "-rf", "..."]
    seen = aside.agent([["write", name, "x", 0o644] for name in names])
    changes = aside.finish()
    apply(aside.kept)

    assert snapshot(aside.project).keys() == seen.keys()
    assert "\x1b" not in "\n".join(summary(changes))


def test_a_tree_that_is_too_deep_is_refused_but_can_be_discarded(aside: Aside) -> None:
    """Applying would need more descriptors than there are; discarding must still work."""
    changes = aside.session([["folder", "pit"], ["deep", "pit", 600]])
    done = apply(aside.kept)
    discard(aside.kept)

    assert any("folders deep" in note for change in changes.entries for note in change.notes)
    assert any("folders deep" in why for _, why in done.refused)
    assert not has_aside(aside.kept)


def test_a_deep_removed_folder_is_read_up_to_the_maximum_depth(tmp_path: Path) -> None:
    """An agent makes one in a project and removes it behind an overlay: reading it needs a descriptor for each folder."""
    upper, project = tmp_path / "upper", tmp_path / "project"
    upper.mkdir()
    (project / "pit").joinpath(*["x"] * (MAX_DEPTH + 20)).mkdir(parents=True)
    os.mknod(upper / "pit", stat.S_IFCHR, os.makedev(0, 0))

    found = [difference.path for difference in differences(upper, str(project))]

    assert max(path.count("/") for path in found) == MAX_DEPTH
    assert found[-1] == "pit"


def test_a_folder_with_too_many_names_is_reported_and_can_be_discarded(aside: Aside) -> None:
    """A command must not hold all names in memory; paths beside that folder are read as usual."""
    aside.session(
        [["folder", "many"], *(["write", f"many/{number}", "", 0o644] for number in range(500)), ["remove", "a"]]
    )
    few = list(differences(aside.kept.upper, str(aside.project), most=100))
    every = list(differences(aside.kept.upper, str(aside.project)))
    discard(aside.kept)

    assert [(difference.path, difference.problem) for difference in few if difference.problem is not None] == [
        ("many", "cannot be read: more than 100 entries in one folder")
    ]
    assert [difference.path for difference in few] == ["a", "many", "many"]
    assert len(every) == 502
    assert not has_aside(aside.kept)


def test_an_unreadable_change_is_reported_and_can_be_discarded(aside: Aside) -> None:
    """An ordinary user cannot read it; root can."""
    aside.session([["folder", "dark"], ["write", "dark/x", "x", 0o644], ["mode", "dark", 0], ["write", "shut", "x", 0]])
    if os.geteuid() != 0:
        assert {
            difference.path for difference in pending(aside.kept) if "cannot be read" in (difference.problem or "")
        } == {"dark", "shut"}
    discard(aside.kept)

    assert not has_aside(aside.kept)
    assert not (aside.kept.path / "over").exists()


def test_an_overlay_without_changes_leaves_nothing_to_apply(tmp_path: Path) -> None:
    """Files were only touched, or no agent was started."""
    for name, steps in (("touched", [["times", "a", 1]]), ("not started", None)):
        (tmp_path / name.replace(" ", "-")).mkdir()
        aside = Aside(tmp_path / name.replace(" ", "-"))
        (aside.project / "a").write_text("x")
        aside.begin()
        if steps is None:
            aside.abandon()
        else:
            aside.agent(steps)
            assert summary(aside.finish()) == ["no files changed in the cell"]
        assert not has_aside(aside.kept), name


# Places to keep the changes


def test_an_aileron_home_inside_the_project_is_refused(tmp_path: Path) -> None:
    """The pending changes would be part of the overlay's own lower folder."""
    with pytest.raises(AileronError, match="inside of"):
        prepare_overlay(tmp_path / ".aileron" / "cells" / SESSION, str(tmp_path))


def test_an_aileron_home_on_an_overlay_is_refused_with_a_fix(tmp_path: Path) -> None:
    """Most containers have such a home. The test tries one in an overlay; beside it, on the same disk, it works."""
    for name in ("lower", "upper", "work", "mounted", "project"):
        (tmp_path / name).mkdir()
    program = (
        "import sys; from pathlib import Path; from aileron.cell.overlay import prepare_overlay\n"
        "from aileron.model.failure import AileronError\n"
        "for home in sys.argv[2:]:\n"
        "    try: prepare_overlay(Path(home) / 'cells' / 'ses-x', sys.argv[1]); print('made')\n"
        "    except AileronError as error: print(error)\n"
    )
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work,userxattr"
    script = f'mount -t overlay overlay -o {options} {tmp_path}/mounted && exec "$@"'
    words = [sys.executable, "-c", program, str(tmp_path / "project"), f"{tmp_path}/mounted", str(tmp_path)]
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script, "sh", *words], capture_output=True, text=True, timeout=60, check=False
    )
    refused, made = done.stdout.splitlines()

    assert "on overlay" in refused
    assert "set AILERON_HOME to a folder" in refused
    assert made == "made"
    assert not (tmp_path / "mounted" / "cells" / "ses-x" / "upper").exists()


def test_applying_changes_of_a_session_without_an_overlay_is_an_error(tmp_path: Path) -> None:
    """The error says why."""
    from aileron.cell.changes import Watch
    from aileron.cell.start import Root

    Watch.begin(starts_of([Root(str(tmp_path))], tmp_path / "cells"), tmp_path / "cells" / SESSION).finish()
    with pytest.raises(AileronError, match="had no overlay"):
        apply(Kept(tmp_path / "cells" / SESSION))


def test_the_pending_changes_of_a_running_session_can_be_listed(aside: Aside) -> None:
    """The list comes from the upper folder, to which the overlay still writes."""
    aside.agent([["write", "a", "x", 0o644]])
    during = look(aside.kept)
    aside.finish()

    assert (during.is_aside, during.is_final) == (True, False)
    assert [change.path for change in during.entries] == ["a"]


@pytest.mark.abuse_case("CP5")
def test_holes_in_sparse_files_stay_holes_when_they_are_applied(aside: Aside) -> None:
    """Gigabytes of holes use no disk space, wherever they are in the file, and the data between them stays in place."""
    gib = 1 << 30
    data = {"all": (3 * gib, []), "some": (gib + 9, [0, 1 << 20, gib]), "end": (2 * gib, [gib]), "none": (4, [0])}
    for name, (size, places) in data.items():
        with (aside.kept.upper / name).open("wb") as file:
            for at in places:
                file.seek(at)
                file.write(b"data")
            file.truncate(size)
    aside.finish()

    assert set(apply(aside.kept).applied) == set(data)
    for name, (size, places) in data.items():
        with (aside.project / name).open("rb") as file:
            status = os.fstat(file.fileno())
            assert (status.st_size, status.st_blocks * 512 <= 1 << 20) == (size, True)
            assert [os.pread(file.fileno(), 5, at).rstrip(b"\0") for at in places] == [b"data"] * len(places)
            assert all(os.pread(file.fileno(), 8, at) == bytes(8) for at in (4096, gib - 8) if at < size - 8)
