"""Test of a real cell's changes: its agent writes to the project, in place or on an overlay, and cannot reach the records."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import pytest

from aileron.cell.apply import apply, pending
from aileron.cell.changes import Watch, starts_of
from aileron.cell.kept import Kept
from aileron.cell.overlay import prepare_overlay
from aileron.cell.start import Root
from aileron_sandbox.cell.door import Cell, Ended
from aileron_sandbox.cell.policy import Bind, CellPolicy, Overlay

pytestmark = pytest.mark.jail

DEADLINE_S = 30.0
SESSION = "ses-20260101-cell"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
SCRIPT = """
printf other > a
mkdir -p .git/hooks
printf '#!/bin/sh' > .git/hooks/post-merge
chmod 755 .git/hooks/post-merge
rm -r docs && mkdir docs && printf new > docs/new
touch -d @1 a
test -e "$HOME/cells" && printf seen > seen
exit 0
"""


def policy_of(project: Path, home: Path, overlay: Overlay | None) -> CellPolicy:
    """Return the policy of a cell with the system's programs and one project, on an overlay or in place."""
    binds = [Bind(path, path) for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    links = tuple((path, os.readlink(path)) for path in SYSTEM if os.path.islink(path))
    if overlay is None:
        binds.append(Bind(str(project), str(project), writable=True))
    return CellPolicy(folder=str(project), home=str(home), binds=tuple(binds), overlay=overlay, links=links)


def run_in(policy: CellPolicy, script: str) -> Ended:
    """Run a shell's script in a cell to its end."""
    until = time.monotonic() + DEADLINE_S
    environment = {"PATH": "/usr/bin:/bin", "HOME": policy.home}
    with Cell.start(policy, ["/bin/sh", "-c", script], environment, ("pipe", "pipe", "pipe")) as cell:
        cell.begin()
        while time.monotonic() < until:
            select.select([cell.control], [], [], 1.0)
            event = cell.event()
            if isinstance(event, Ended):
                return event
    raise AssertionError("the cell did not end")


@pytest.mark.parametrize("is_aside", [False, True])
def test_a_cells_changes_are_listed_and_its_overlay_can_be_applied(tmp_path: Path, is_aside: bool) -> None:
    """Both ways give the same list; with an overlay the project has no change until it is applied."""
    project, home = tmp_path / "project", tmp_path / "home"
    (project / "docs").mkdir(parents=True)
    home.mkdir(mode=0o700)
    for file in ("a", "docs/old", "untouched"):
        (project / file).write_text("before")
    now = time.time()
    while time.clock_gettime(5) <= now:
        pass
    kept = Kept(home / "cells" / SESSION)
    overlay = prepare_overlay(kept.path, str(project)) if is_aside else None
    watch = Watch.begin(starts_of([Root(str(project))], kept.path.parent), kept.path)
    ended = run_in(policy_of(project, home, overlay), SCRIPT)
    changes = watch.finish()
    before = (project / "a").read_text()
    if is_aside:
        assert apply(kept).refused == ()
        assert pending(kept) == []

    assert (ended.code, ended.signal) == (0, None)
    found = {change.path: change.what for change in changes.entries if change.kind != "directory"}
    assert found == {
        "a": "changed",
        ".git/hooks/post-merge": "made",
        "docs/new": "made",
        "docs/old": "removed",
    }
    assert changes.entries[0].path == ".git/hooks/post-merge"
    assert before == ("before" if is_aside else "other")
    assert (project / "a").read_text() == "other"
    assert int((project / "a").stat().st_mtime) == 1
    assert sorted(os.listdir(project)) == [".git", "a", "docs", "untouched"]
    assert os.listdir(project / "docs") == ["new"]
