"""Questions at a real terminal: what is shown of an answer, and what is none because it was there before the question."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.command import Command

SECRET = "nine of swords"
PROGRAM = "import sys; from aileron.cli import prompts; print('answer:', repr(eval(sys.argv[1])))"
QUESTIONS = {
    "text": ("prompts.ask('Say', 'default')", "work", "'work'"),
    "line": ("prompts.ask_now('Say: ')", "work", "'work'"),
    "choice": ("prompts.is_yes('Say [y/N] ')", "Yes", "True"),
    "unseen": ("prompts.ask_unseen('Say')", SECRET, f"'{SECRET}'"),
}


@pytest.fixture
def asking(tmp_path: Path) -> Command:
    """A program that asks one question of the module that asks all of them, and prints what it took for the answer."""
    return Command(tmp_path, program=[sys.executable, "-c", PROGRAM])


@pytest.mark.parametrize("kind", QUESTIONS)
def test_only_one_line_typed_after_the_question_is_its_answer(asking: Command, kind: str):
    """Lines from before it, and several lines at once, were pasted for something else; one that follows is taken."""
    question, typed, answer = QUESTIONS[kind]
    said = asking.at_terminal(question, ahead="y\nahead\n", answers=[("Say", "y\nsecond\nthird"), ("Say", typed)])

    assert said.out.rstrip().endswith(f"answer: {answer}")
    assert said.out.count("several lines were pasted") == 1


@pytest.mark.parametrize("kind", ["choice", "unseen"])
def test_what_may_be_a_secret_is_not_shown(asking: Command, kind: str):
    """Whoever takes a choice for the question about their passphrase; the word that they then choose is."""
    question, typed, _ = QUESTIONS[kind]
    said = asking.at_terminal(question, answers=[("Say", SECRET), *([("Say", typed)] if kind == "choice" else [])])
    shown = said.out.partition("answer: ")[0]

    assert SECRET not in shown
    assert ("answer with one of: y, yes, n, no" in shown and "yes\n" in shown) is (kind == "choice")


def test_a_third_line_that_is_no_answer_is_a_no(asking: Command):
    """The question takes all that is typed until then, so that no shell gets it."""
    said = asking.at_terminal(QUESTIONS["choice"][0], answers=[("Say", SECRET)] * 3)

    assert said.out.rstrip().endswith("answer: False")
    assert SECRET not in said.out
