"""The words that people read: help, messages, pages and docstrings follow the rules of docs/development/writing.md.

Help has one form, no sentence uses a phrase that the glossary retires, and docstrings open with sentences.
Not here: names in the code (test_public_names.py), and whether a command's needs are documented (test_docs.py).
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
"""First words of a command's help. A new command adds its verb."""


# Help


class Helped(NamedTuple):
    """A command or group, with the words to type."""

    words: str
    command: Any

    @property
    def summary(self) -> str:
        """The first paragraph of its help, on one line."""
        return " ".join((self.command.help or "").strip().partition("\n\n")[0].split())


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[Helped]:
    """Yield every command and group that is shown, the outermost first."""
    yield Helped(" ".join(path) or "aileron", command)
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from commands(inner, (*path, name))


@functools.cache
def every_command() -> list[Helped]:
    """Return every command of `aileron`."""
    from typer.main import get_command

    from aileron.cli.typer_app import app

    return list(commands(get_command(app)))


def wrong_summary(text: str) -> str | None:
    """Return what is wrong with the first line of a command's help, or None."""
    first = text.split()[0] if text else ""
    if first not in VERBS:
        return f"{first!r} is not an imperative that is known"
    if not text.endswith("."):
        return "no full stop"
    return f"more than {MAX_SUMMARY} characters" if len(text) > MAX_SUMMARY else None


def wrong_option(text: str) -> str | None:
    """Return what is wrong with the help of an option or argument, or None. `[default: …]` may follow its full stop."""
    said = re.sub(r" \[default: [^]]+\]$", "", text)
    if not said[:1].isupper():
        return "no capital letter at the beginning"
    if not said.endswith("."):
        return "no full stop"
    return f"more than {MAX_OPTION} characters" if len(text) > MAX_OPTION else None


def test_the_help_of_each_command_is_a_short_imperative_sentence() -> None:
    """`Show a run: its result and all its events.`, and not `What is on record.`"""
    assert wrong_summary("What waits for a person.") is not None
    assert wrong_summary("List bindings") == "no full stop"
    found = {helped.words: why for helped in every_command() if (why := wrong_summary(helped.summary)) is not None}

    assert len(every_command()) > 80
    assert found == {}


def test_the_help_of_an_option_is_a_short_sentence() -> None:
    """`Show full values without truncation.`: a capital letter, a full stop, two lines at most."""
    assert wrong_option("so many of the newest.") == "no capital letter at the beginning"
    assert wrong_option("Number of events to show") == "no full stop"
    every = [
        (f"{helped.words} {parameter.opts[-1]}", str(getattr(parameter, "help", None) or ""))
        for helped in every_command()
        for parameter in helped.command.params
        if not getattr(parameter, "hidden", False) and "--help" not in parameter.opts
    ]

    assert len(every) > 200
    assert {name: why for name, text in every if (why := wrong_option(text)) is not None} == {}


@pytest.mark.parametrize("helped", every_command(), ids=lambda helped: helped.words)
def test_no_help_text_is_truncated_at_80_columns(helped: Helped) -> None:
    """A shortened line in a list of commands ends in `...`, and the reader would have to guess the rest."""
    context = helped.command.make_context(helped.words, [], resilient_parsing=True, terminal_width=80)
    shown = helped.command.get_help(context)

    assert [line for line in shown.splitlines() if line.endswith("...") and not line.startswith("Usage:")] == []


# Phrases


class Text(NamedTuple):
    """A sentence of the product or its documentation, and where it stands."""

    where: str
    text: str


@functools.cache
def retired() -> dict[str, str]:
    """Return the phrases that the glossary retires, each with its replacement."""
    section = GLOSSARY.read_text(encoding="utf-8").partition("### In sentences")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)[1:]  # its first is the head of the table
    return {phrase.strip(): now for phrases, now in rows for phrase in phrases.split(",")}


@functools.cache
def pattern() -> re.Pattern[str]:
    """Return a pattern that finds a retired phrase as whole words, in any case."""
    phrases = sorted(retired(), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, phrases))})(?![\w-])", re.IGNORECASE)


def literals(path: Path) -> Iterator[Text]:
    """Yield a module's texts other than docstrings and single words; `…` stands for a value that is filled in."""
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
    """Yield the texts of the product's modules, and every help."""
    for room in ("aileron", "sandbox/aileron_sandbox"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if "templates" not in path.parts:
                yield from literals(path)
    for helped in every_command():
        yield Text(f"aileron {helped.words} --help", helped.command.help or "")


def pages() -> Iterator[Text]:
    """Yield the lines of the documentation, without targets of links and the table of retired phrases."""
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
    """Return each place with a retired phrase, and what to write instead."""
    return [
        f"{sentence.where}: {found[0]!r}; write {retired()[found[0].lower()]!r}"
        for sentence in texts
        for found in pattern().finditer(" ".join(sentence.text.split()))
    ]


def test_no_message_or_help_uses_a_retired_phrase() -> None:
    """The control: the check finds such a phrase in an example."""
    assert len(retired()) > 20
    assert old_words(iter([Text("x", "Exit code 5: a Person  said no.")])) != []
    assert old_words(iter([Text("x", "Denied by a person.")])) == []
    every = list(messages())

    assert len(every) > 3000
    assert old_words(iter(every)) == []


def test_no_page_uses_a_retired_phrase() -> None:
    """Phrases are searched in each line of a page."""
    every = list(pages())

    assert len(every) > 2000
    assert old_words(iter(every)) == []


# Docstrings

FRAGMENTS = frozenset(
    """After All,of Also And As At Because Before Between But By Everything For From How If In It Its No Nobody None Not Nothing
    Of On Once One Or Since So Something That The,same There These Those To Too Until What Whatever When Where Whether Which
    While Who Whoever Whom Whose Why With Without""".split()
)
"""First words of docstrings that answer an unspoken question; a comma stands for the space between two words."""


def opens_as_fragment(docstring: str) -> bool:
    """Return whether the docstring begins with one of FRAGMENTS, as a word of its own."""
    first, second = [*docstring.split(), "", ""][:2]
    word = first.rstrip(".,:;!?")
    return word in FRAGMENTS or f"{word},{second.rstrip('.,:;')}" in FRAGMENTS


def docstrings(path: Path) -> Iterator[Text]:
    """Yield the docstrings of a module, its classes and functions, and the strings below its fields and constants."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)  # of a lambda or a conditional expression, it is no list
        for statement in body if isinstance(body, list) else []:
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield Text(f"{path.relative_to(ROOT)}:{statement.lineno}", value.value.strip())


def sources(*folders: str) -> Iterator[Path]:
    """Yield the Python files below `folders`, without templates, which become other people's files."""
    for folder in folders:
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if "templates" not in path.parts)


def fragments(*folders: str) -> list[str]:
    """Return the docstrings below `folders` that open as fragments, with their places."""
    return [
        f"{docstring.where}: {docstring.text.splitlines()[0]}"
        for path in sources(*folders)
        for docstring in docstrings(path)
        if opens_as_fragment(docstring.text)
    ]


def test_every_docstring_begins_with_a_sentence() -> None:
    """`Return whether the cell can see path.`, and not `Whether it is shown, by this path.`"""
    wrong = ("Whether it is shown.", "What: it is.", "The same, for a page.", "All of it.", "It.", "None.")
    right = ("Return whether the cell can see path.", "All actions of a home.", "The same-origin policy.", "No-op.", "")
    assert [opens_as_fragment(text) for text in (*wrong, *right)] == [True] * len(wrong) + [False] * len(right)
    assert len(list(docstrings(Path(__file__)))) > 20

    assert fragments("aileron", "sandbox", "connectors", "tests", "benchmarks") == []


# Names


EMPTY_NAMES = frozenset({"each_one", "one", "that_one", "this_one"})
"""Names of variables and parameters that do not say what the thing is."""


def empty_names(source: str) -> list[int]:
    """Return the lines in which a variable or parameter is bound to one of EMPTY_NAMES."""
    nodes = list(ast.walk(ast.parse(source)))
    variables = [
        (node.id, node.lineno) for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    parameters = [(node.arg, node.lineno) for node in nodes if isinstance(node, ast.arg)]
    return [line for name, line in (*variables, *parameters) if name in EMPTY_NAMES]


def test_no_source_file_uses_a_variable_name_that_the_style_guide_forbids() -> None:
    """`for approval in pending`, and not `for one in pending`."""
    wrong = ("for one in pending: pass", "[one for one in pending]", "sorted(pending, key=lambda one: one.id)")
    assert [empty_names(source) for source in (*wrong, "for approval in pending: approval.one")] == [[1], [1], [1], []]

    assert [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sources("aileron", "sandbox", "connectors", "tests", "benchmarks")
        for line in empty_names(path.read_text(encoding="utf-8"))
    ] == []
