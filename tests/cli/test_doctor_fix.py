"""`aileron doctor --fix`: what it repairs in a home that is really broken, and what it leaves alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Command

pytestmark = pytest.mark.jail

ASKED = "[y/N]: "
OPEN = {"": 0o755, "run": 0o777, "logs": 0o750, "ledger.db": 0o644, "actions": 0o775}
"""Modes that a copy, or a umask of 022 or 002, leaves."""
MENDED = {"": 0o700, "run": 0o700, "logs": 0o700, "ledger.db": 0o600, "actions": 0o755}


@pytest.fixture
def broken(home: Path) -> Path:
    """A home that others can access, with all of its directories and a file."""
    home.mkdir()
    for name, mode in OPEN.items():
        path = home / name
        if name.endswith((".db", ".json")):
            path.touch()
        else:
            path.mkdir(exist_ok=True)
        path.chmod(mode)
    return home


def modes(home: Path) -> dict[str, int]:
    """Return the modes of the existing paths, by name."""
    return {name: stat.S_IMODE((home / name).stat().st_mode) for name in OPEN if (home / name).exists()}


def test_doctor_fix_repairs_file_modes_that_give_others_access(aileron: Command, broken: Path) -> None:
    """The daemon refuses to start before the repair; afterwards doctor finds nothing, and the daemon starts."""
    refused = aileron("daemon", "start")
    found = aileron("doctor", "--json")
    mended = aileron("doctor", "--fix", "--yes", "--json")
    started = aileron("daemon", "start")
    aileron("daemon", "stop")

    assert (refused.code, "chmod 700" in refused.err) == (69, True), refused
    fixable = [check for check in found.json["checks"] if check["fixable"]]
    assert {check["fix"] for check in fixable} == {f"chmod {MENDED[name]:o} {broken / name}" for name in OPEN}
    assert found.code == 1
    assert [(repair["done"], repair["problem"]) for repair in mended.json["fixed"]] == [(True, None)] * len(fixable)
    assert (mended.code, mended.json["ok"]) == (0, True), mended
    assert modes(broken) == MENDED
    assert started.code == 0, started


def test_a_fix_suggested_by_doctor_quotes_paths_for_the_shell(aileron: Command, home: Path) -> None:
    """A home with a space in its name is one path, not two."""
    spaced = home.with_name("a home")
    spaced.mkdir(mode=0o755)
    spaced.chmod(0o755)
    found = aileron("doctor", "--json", AILERON_HOME=str(spaced))
    refused = aileron("daemon", "start", AILERON_HOME=str(spaced))

    fixes = [check["fix"] for check in found.json["checks"] if check["fixable"]]
    assert fixes == [f"chmod 700 '{spaced}'"]
    assert f"chmod 700 '{spaced}'" in refused.err


def test_doctor_fix_applies_only_confirmed_fixes(aileron: Command, broken: Path) -> None:
    """Skipped fixes are shown at the end, and the exit code is 1."""
    answers = [(ASKED, answer) for answer in ("y", "n", "", "N", "yes")]
    said = aileron.at_terminal("doctor", "--fix", answers=answers, NO_COLOR="1").exits(1)
    assert modes(broken) == {**OPEN, "": 0o700, "actions": 0o755}
    before, _, after = said.out.rpartition(ASKED)
    assert f"chmod 700 {broken}/run [y/N]" in before
    assert f"fix: chmod 700 {broken}/run" in after
    assert f"fix: chmod 700 {broken}/logs" in after
    assert f"fix: chmod 755 {broken}/actions" not in after


def test_doctor_fix_without_confirmation_says_what_to_type(aileron: Command, broken: Path) -> None:
    """This holds in a pipe, and with --json at a terminal; nothing changes. --fix with an agent's name is refused too."""
    before = modes(broken)
    said = [aileron("doctor", "--fix"), aileron("doctor", "--fix", "--json"), aileron("doctor", "--yes")]
    shown = aileron.at_terminal("doctor", "--fix", "--json")
    agent = aileron("doctor", "claude", "--fix", "--yes")

    for refusal in said:
        assert (refusal.code, refusal.err.endswith("  fix: aileron doctor --fix --yes\n")) == (2, True), refusal
    assert (shown.code, '"fix": "aileron doctor --fix --yes"' in shown.out) == (2, True), shown
    assert (agent.code, "cannot be used with an agent" in agent.err) == (2, True)
    assert modes(broken) == before


def test_doctor_fix_only_reports_problems_that_it_cannot_fix_safely(aileron: Command, home: Path) -> None:
    """Unreadable settings and a missing vault are shown, with the reason at a terminal; nothing is written."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[egress]\nprivat = ["a:1"]\n')
    said = aileron("doctor", "--fix", "--yes")
    shown = aileron.at_terminal("doctor", "--fix", NO_COLOR="1")

    assert said.code == 1
    assert f"edit {home / 'config.toml'}" in said.out
    assert "nothing to fix automatically" in said.err
    assert "left to you: only you can decide what is right" in shown.out
    assert sorted(path.name for path in home.iterdir()) == ["config.toml"]


def linked(path: Path, target: Path) -> None:
    """Replace an empty directory by a link."""
    path.rmdir()
    path.symlink_to(target)


@pytest.mark.abuse_case("D42")
@pytest.mark.parametrize("when", ["before", "while it is asked"])
def test_doctor_fix_follows_no_link_in_place_of_a_directory(
    aileron: Command, broken: Path, tmp_path: Path, when: str
) -> None:
    """The link's target keeps its mode, whenever the link was created; the other paths are repaired."""
    target = tmp_path / "target"
    target.mkdir()
    target.chmod(0o777)

    def swap() -> str:
        linked(broken / "run", target)
        return "y"

    if when == "before":
        swap()
        said = aileron.at_terminal("doctor", "--fix", answers=[(ASKED, "y")] * 4, NO_COLOR="1")
    else:
        said = aileron.at_terminal("doctor", "--fix", answers=[(ASKED, "y"), (ASKED, swap), *[(ASKED, "y")] * 3])

    assert stat.S_IMODE(target.stat().st_mode) == 0o777
    assert (said.code, "symbolic link" in said.out) == (1, True), said
    assert stat.S_IMODE((broken / "logs").stat().st_mode) == 0o700


@pytest.mark.abuse_case("D42")
def test_doctor_fix_follows_no_link_in_a_parent_directory(aileron: Command, home: Path, tmp_path: Path) -> None:
    """The parent leads elsewhere. Positive control: the same command repairs a directory in its proper place."""
    home.mkdir(mode=0o700)
    target = tmp_path / "target"
    for place in (home / "store" / "fetched", target / "fetched"):
        place.mkdir(parents=True, mode=0o700)
        place.chmod(0o777)
    kept = aileron("doctor", "--fix", "--yes")
    (home / "store").rename(home / "aside")
    (home / "store").symlink_to(target)
    (home / "aside" / "fetched").chmod(0o777)
    link = aileron("doctor", "--fix", "--yes")

    assert f"done: chmod 755 {home}/store/fetched\n" in kept.err
    assert stat.S_IMODE((target / "fetched").stat().st_mode) == 0o777
    assert (link.code, "symbolic link" in link.out) == (1, True), link


@pytest.mark.abuse_case("D42")
@pytest.mark.parametrize(
    ("put", "why"),
    [
        (lambda path, other: os.link(other, path), "other hard links"),
        (lambda path, other: path.symlink_to(other), "symbolic link"),
        (lambda path, other: os.mkfifo(path, 0o644), "not a regular file"),
        (lambda path, other: path.mkdir(), "not a regular file"),
    ],
    ids=["hard link", "symbolic link", "fifo", "directory"],
)
def test_doctor_fix_changes_no_mode_of_a_linked_or_special_file(
    aileron: Command, home: Path, tmp_path: Path, put: Callable[[Path, Path], None], why: str
) -> None:
    """The path `approver.json` is a hard link to another file, a symbolic link, a fifo or a directory."""
    home.mkdir(mode=0o700)
    other = home.parent / "other"
    other.touch()
    other.chmod(0o644)
    put(home / "approver.json", other)
    before = [stat.S_IMODE(path.stat().st_mode) for path in (other, home / "approver.json")]
    said = aileron("doctor", "--fix", "--yes")

    assert (said.code, why in said.out) == (1, True), said
    assert [stat.S_IMODE(path.stat().st_mode) for path in (other, home / "approver.json")] == before


def test_doctor_fix_reports_a_home_that_is_a_link(aileron: Command, home: Path) -> None:
    """The daemon refuses it too; neither the link nor its target is changed."""
    real = home.parent / "real"
    real.mkdir()
    real.chmod(0o755)
    home.symlink_to(real)
    refused, said = aileron("daemon", "start"), aileron("doctor", "--fix", "--yes")

    assert (refused.code, "symbolic link" in refused.err) == (69, True), refused
    assert (said.code, "symbolic link" in said.out) == (1, True)
    assert stat.S_IMODE(real.stat().st_mode) == 0o755
