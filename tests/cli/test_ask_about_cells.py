"""A person at a terminal is asked once whether agents start in a cell, and the answer is stored as an ordinary setting."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.person import at_terminal, flat
from tests.support.approver import Approver
from tests.support.fake_daemon import FakeDaemon
from tests.support.home import daemon_home

QUESTION = "Start agents in a cell? [Y/n] "


@pytest.fixture
def asking(home: Path) -> Command:
    """A command that asks only the question that `aileron launch` asks."""
    return Command(home, program=[sys.executable, "-m", "tests.cli.ask_about_cells"])


@pytest.mark.parametrize(("typed", "saved"), [("", True), ("Yes", True), ("n", False), ("what", True)])
def test_the_answer_about_cells_is_saved_in_config_toml(
    fake: FakeDaemon, asking: Command, aileron: Command, typed: str, saved: bool
) -> None:
    """The rest of the file stays; an answer that is neither yes nor no is asked for again."""
    (fake.home / "config.toml").write_text("# mine\n[notify]\ndesktop = false\n")
    answers = [(QUESTION, typed), (QUESTION, "y")] if typed == "what" else [(QUESTION, typed)]
    said = at_terminal(asking, answers=answers)

    assert f"in a cell: {saved}" in said.out
    assert (fake.home / "config.toml").read_text() == (
        f"# mine\n[notify]\ndesktop = false\n\n[launch]\njail = {str(saved).lower()}\n"
    )
    assert aileron("config", "get", "launch.jail", "--json").json["value"] is saved
    assert aileron("config", "set", "launch.jail", "--default").code == 0


@pytest.mark.parametrize(
    ("how", "jail", "words", "found"),
    [
        ("chosen", True, (), True),
        ("chosen", False, (), False),
        ("not possible here", None, ("no",), None),
        ("waits", None, (), None),
        ("cannot be read", None, (), None),
    ],
)
def test_the_question_about_cells_is_not_asked_if_there_is_no_choice(
    fake: FakeDaemon, asking: Command, how: str, jail: bool | None, words: tuple[str, ...], found: bool | None
) -> None:
    """The setting exists or waits for a signature, the machine cannot make cells, or the file has an error."""
    fake.jail = jail
    fake.settings_waiting = ["launch.jail"] if how == "waits" else []
    fake.settings_problem = "config.toml: cannot be read" if how == "cannot be read" else None
    said = at_terminal(asking, *words)

    assert QUESTION not in said.out
    assert f"in a cell: {found}" in said.out
    assert ("needs your approval" in said.out) is (how == "waits")
    assert not (fake.home / "config.toml").exists()


def test_the_question_about_cells_is_not_asked_without_a_terminal(fake: FakeDaemon, asking: Command) -> None:
    """A script starts its agent without a cell; at a terminal, the question appears for the same home."""
    assert asking(given="y\n").out == "in a cell: None\n"
    assert QUESTION in at_terminal(asking, answers=[(QUESTION, "n")]).out


@pytest.mark.parametrize("typed", ["\x04", "a\nb\nc"])
def test_an_unclear_answer_about_cells_saves_nothing(fake: FakeDaemon, asking: Command, typed: str) -> None:
    """The input ends, or has three lines that are neither yes nor no."""
    said = at_terminal(asking, answers=[(QUESTION, line) for line in typed.split("\n")])

    assert "in a cell: None" in said.out
    assert "not saved" in said.out
    assert not (fake.home / "config.toml").exists()


def test_an_answer_about_cells_that_cannot_be_saved_applies_to_this_launch(fake: FakeDaemon, asking: Command) -> None:
    """The file has an error by now: the message names the command that saves the answer later."""
    (fake.home / "config.toml").write_text("[notify]\ndesktop = 1\n")
    said = at_terminal(asking, answers=[(QUESTION, "y")])

    assert "in a cell: True" in said.out
    assert "'desktop' is an integer; expected a boolean" in flat(said)
    assert "was not saved: aileron config set launch.jail true" in flat(said)


@pytest.mark.jail
def test_turning_cells_off_waits_for_the_approver_and_turning_them_on_does_not() -> None:
    """A real daemon reports the setting after a yes; after a no it is undecided, and the question is not repeated."""
    with daemon_home() as home:
        home.unlock()
        Approver().appoint(home)
        asking = Command(home.path, program=[sys.executable, "-m", "tests.cli.ask_about_cells"])
        no = at_terminal(asking, answers=[(QUESTION, "n")])
        after_no = at_terminal(asking)
        home_config = home.path / "config.toml"
        home_config.write_text(home_config.read_text().replace("jail = false\n", ""))
        yes = at_terminal(asking, answers=[(QUESTION, "y")])
        after_yes = at_terminal(asking)

    assert ("in a cell: False" in no.out, "needs your approval" in no.out) == (True, True)
    assert ("in a cell: None" in after_no.out, QUESTION in after_no.out) == (True, False)
    assert "in a cell: True" in yes.out
    assert ("in a cell: True" in after_yes.out, QUESTION in after_yes.out) == (True, False)
