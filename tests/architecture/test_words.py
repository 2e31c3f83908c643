"""The words that people read: help has one form, and no sentence uses a phrase that the glossary retires.

The rules, with examples: docs/development/writing.md. Not here: names in the code (test_public_names.py), and whether
what a command needs is documented (test_docs.py).
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
UNCHECKED_DOCS = {"adr"}
"""Decisions are kept as they were made."""
AT_THE_TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages beside docs. The changelog is kept as it was written."""
MAX_SUMMARY = 64
"""Characters of a command's first line: `aileron COMMAND --help` lists it behind its name on 80 columns."""
MAX_OPTION = 100
"""Characters of an option's help: two lines of 80 columns beside the option."""
VERBS = frozenset(
    """Add Approve Ask Back Build Change Check Connect Create Deny Disable Edit Enable End Export Inspect, Install Let List Lock
    Manage Move Open Print Read Remove Replace Resume Revoke Run Search See Set Show Sign Start Stop Store Trust Unlock Update
    Verify Withdraw Write""".split()
)
"""What a command's help begins with. A new command adds its verb."""


# Help


class Helped(NamedTuple):
    """One command or group, with the words it is typed with."""

    words: str
    command: Any

    @property
    def summary(self) -> str:
        """The first paragraph of its help, on one line."""
        return " ".join((self.command.help or "").strip().partition("\n\n")[0].split())


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[Helped]:
    """Every command and group that is shown, itself first."""
    yield Helped(" ".join(path) or "aileron", command)
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from commands(inner, (*path, name))


@functools.cache
def every_command() -> list[Helped]:
    """All of `aileron`."""
    from typer.main import get_command

    from aileron.cli.typer_app import app

    return list(commands(get_command(app)))


def wrong_summary(text: str) -> str | None:
    """What is wrong with a command's first line; None where nothing is."""
    first = text.split()[0] if text else ""
    if first not in VERBS:
        return f"{first!r} is not an imperative that is known"
    if not text.endswith("."):
        return "no full stop"
    return f"more than {MAX_SUMMARY} characters" if len(text) > MAX_SUMMARY else None


def wrong_option(text: str) -> str | None:
    """The same, of the help of an option or an argument; typer's and our `[default: …]` may follow the full stop."""
    said = re.sub(r" \[default: [^]]+\]$", "", text)
    if not said[:1].isupper():
        return "no capital letter at the beginning"
    if not said.endswith("."):
        return "no full stop"
    return f"more than {MAX_OPTION} characters" if len(text) > MAX_OPTION else None


def test_a_command_says_what_it_does_in_one_short_imperative_sentence() -> None:
    """`Show a run: its result and all its events.`, and not `What is on record.`"""
    assert wrong_summary("What waits for a person.") is not None
    assert wrong_summary("List bindings") == "no full stop"
    found = {one.words: why for one in every_command() if (why := wrong_summary(one.summary)) is not None}

    assert len(every_command()) > 80
    assert found == {}


def test_the_help_of_an_option_is_a_short_sentence() -> None:
    """`Show full values without truncation.`: a capital letter, a full stop, two lines at most."""
    assert wrong_option("so many of the newest.") == "no capital letter at the beginning"
    assert wrong_option("Number of events to show") == "no full stop"
    every = [
        (f"{one.words} {parameter.opts[-1]}", str(getattr(parameter, "help", None) or ""))
        for one in every_command()
        for parameter in one.command.params
        if not getattr(parameter, "hidden", False) and "--help" not in parameter.opts
    ]

    assert len(every) > 200
    assert {name: why for name, text in every if (why := wrong_option(text)) is not None} == {}


@pytest.mark.parametrize("one", every_command(), ids=lambda one: one.words)
def test_help_cuts_nothing_off_on_80_columns(one: Helped) -> None:
    """A list of commands that ends in `...` leaves the reader to guess."""
    context = one.command.make_context(one.words, [], resilient_parsing=True, terminal_width=80)
    shown = one.command.get_help(context)

    assert [line for line in shown.splitlines() if line.endswith("...") and not line.startswith("Usage:")] == []


# Phrases


class Text(NamedTuple):
    """A sentence that people meet, and where."""

    where: str
    text: str


@functools.cache
def retired() -> dict[str, str]:
    """Each phrase of the glossary that went from what people read, with what is said now."""
    section = GLOSSARY.read_text(encoding="utf-8").partition("### In sentences")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)[1:]  # its first is the head of the table
    return {phrase.strip(): now for phrases, now in rows for phrase in phrases.split(",")}


@functools.cache
def pattern() -> re.Pattern[str]:
    """Any of them, as words of their own, in any case."""
    phrases = sorted(retired(), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, phrases))})(?![\w-])", re.IGNORECASE)


def literals(path: Path) -> Iterator[Text]:
    """The texts of a module that are no docstrings and no single words; `…` is what is filled in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # of attributes, too
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | docstrings:
            if " " in node.value:
                yield Text(f"{path.relative_to(ROOT)}:{node.lineno}", node.value)
        elif isinstance(node, ast.JoinedStr):
            said = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            yield Text(f"{path.relative_to(ROOT)}:{node.lineno}", said)


def messages() -> Iterator[Text]:
    """What the product says: the texts of its modules, and every help."""
    for room in ("aileron", "sandbox/aileron_sandbox"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if "templates" not in path.parts:
                yield from literals(path)
    for one in every_command():
        yield Text(f"aileron {one.words} --help", one.command.help or "")


def pages() -> Iterator[Text]:
    """The lines of the documentation, without links' targets and without the table that retires these words."""
    for path in (*(ROOT / name for name in AT_THE_TOP), *sorted((ROOT / "docs").rglob("*.md"))):
        if UNCHECKED_DOCS & {*path.relative_to(ROOT).parts}:
            continue
        text = path.read_text(encoding="utf-8")
        if path == GLOSSARY:
            text = text.partition("### In sentences")[0]
        elif path.name == "writing.md":
            text = re.sub(r"^\|.*\n", "\n", text, flags=re.MULTILINE)
        for number, line in enumerate(text.splitlines(), start=1):
            yield Text(f"{path.relative_to(ROOT)}:{number}", re.sub(r"\]\([^)]+\)", "]", line))


def old_words(texts: Iterator[Text]) -> list[str]:
    """Each place with a retired phrase, and what to write instead."""
    return [
        f"{one.where}: {found[0]!r}; write {retired()[found[0].lower()]!r}"
        for one in texts
        for found in pattern().finditer(" ".join(one.text.split()))
    ]


def test_no_message_or_help_uses_a_phrase_that_went() -> None:
    """Of the product's own sentences; the check finds one that is there."""
    assert len(retired()) > 20
    assert old_words(iter([Text("x", "Exit code 5: a Person  said no.")])) != []
    assert old_words(iter([Text("x", "Denied by a person.")])) == []
    every = list(messages())

    assert len(every) > 3000
    assert old_words(iter(every)) == []


def test_no_page_uses_a_phrase_that_went() -> None:
    """Line by line."""
    every = list(pages())

    assert len(every) > 2000
    assert old_words(iter(every)) == []
