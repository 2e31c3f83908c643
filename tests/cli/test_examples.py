"""Every command's help ends with two examples, and the command line accepts each."""

from __future__ import annotations

import re
import shlex

import pytest

from aileron.cli.examples import EXAMPLES
from aileron.cli.help_page import page_of
from aileron.cli.parsing import Call
from aileron.cli.table import COMMANDS, Group, imported
from aileron.cli.typer_app import call_of

FUNCTIONS = {
    " ".join([name, *verb]): function
    for name, found in COMMANDS.items()
    for verb, function in (
        [([verb], function) for verb, function in found.verbs.items()]
        if isinstance(found, Group)
        else [([], found.function)]
    )
}
"""MODULE.NAME of each command's function, by the words that a person types."""
MAX_WIDTH = 76
"""Maximum number of columns, so that an indented line fits on a terminal of 80."""


def test_each_command_has_two_different_examples() -> None:
    """The examples are in the order of the commands, and each fits on one line."""
    assert list(EXAMPLES) == list(FUNCTIONS)
    lines = [line for pair in EXAMPLES.values() for line in pair]

    assert len(lines) == len(set(lines)) == 2 * len(FUNCTIONS)
    assert [line for line in lines if len(line) > MAX_WIDTH or not line.isascii()] == []


@pytest.mark.parametrize("command", EXAMPLES)
def test_an_example_is_a_valid_command_line(command: str) -> None:
    """Each example calls the command of its own help page; what follows a pipe, redirect or `&&` is not parsed."""
    for example in EXAMPLES[command]:
        first, *words = shlex.split(re.split(r" (?:\||>|<|&&) ", example)[0])
        called = call_of(words, as_json=False)

        assert first == "aileron"
        assert isinstance(called, Call), example
        assert called.command is imported(FUNCTIONS[command]), example


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_ends_with_the_examples(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples are not wrapped on a narrow terminal, so that they can be copied."""
    monkeypatch.setenv("COLUMNS", "52")
    page = page_of([*command.split(), "--help"])

    assert page is not None
    assert page.text.splitlines()[-3:] == ["Examples:", *(f"  {example}" for example in EXAMPLES[command])]
