"""Questions at a real terminal: what is shown of an answer, and that text typed before the question is no answer."""

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
    """A program that asks one question with the prompts module, and prints the answer."""
    return Command(tmp_path, program=[sys.executable, "-c", PROGRAM])


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_prompt_accepts_only_a_single_line_that_was_typed_after_the_prompt_appeared(
    asking: Command, kind: str
) -> None:
    """Earlier lines, and several lines at once, were typed or pasted for another purpose."""
    question, typed, answer = QUESTIONS[kind]
    said = asking.at_terminal(question, ahead="y\nahead\n", answers=[("Say", "y\nsecond\nthird"), ("Say", typed)])

    assert said.out.rstrip().endswith(f"answer: {answer}")
    assert said.out.count("several lines were pasted") == 1


@pytest.mark.parametrize("kind", ["choice", "unseen"])
def test_a_prompt_with_choices_echoes_only_valid_choices(asking: Command, kind: str) -> None:
    """A person may type a passphrase there by mistake."""
    question, typed, _ = QUESTIONS[kind]
    said = asking.at_terminal(question, answers=[("Say", SECRET), *([("Say", typed)] if kind == "choice" else [])])
    shown = said.out.partition("answer: ")[0]

    assert SECRET not in shown
    assert ("answer with one of: y, yes, n, no" in shown and "yes\n" in shown) is (kind == "choice")


def test_a_third_invalid_answer_at_a_prompt_means_no(asking: Command) -> None:
    """The prompt reads all three lines, so that none of them becomes input of the shell."""
    said = asking.at_terminal(QUESTIONS["choice"][0], answers=[("Say", SECRET)] * 3)

    assert said.out.rstrip().endswith("answer: False")
    assert SECRET not in said.out
