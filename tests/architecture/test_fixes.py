"""Tests that each command named in a message can be typed: it exists, with these options, and has the arguments it needs."""

from __future__ import annotations

import ast
import functools
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

from aileron.cli.problem import message_and_fix

ROOT = Path(__file__).resolve().parents[2]
_IN_PARTS = frozenset(
    {"aileron binding setup x x", "aileron vault x --passphrase-file FILE", "aileron status, on the daemon host"}
)
"""Commands that the code puts together from several words, or with a note where to type them; other tests check each."""
_STANDS_FOR = "x"
"""Text in place of each value of an f-string."""


class Named(NamedTuple):
    """A command that is printed behind `fix:`, and the line of code that it comes from."""

    where: str
    command: str


def said(node: ast.AST) -> str | None:
    """Return a text as a reader would see it, with `x` for each filled-in value, or None if the node is not a text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else _STANDS_FOR for part in node.values)
    return None


def fixes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each text that a module passes as `fix=`, and each fix that `aileron` extracts from an AileronError's message."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "fix" and (text := said(node.value)) is not None:
            yield node.value.lineno, text
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "AileronError" and len(node.args) > 1:
            text = said(node.args[1])
            command = None if text is None else message_and_fix(text)[1]
            if command is not None:
                yield node.lineno, command


def named() -> list[Named]:
    """Return all commands, except those whose own name is filled in."""
    found = set()
    for path in sorted((ROOT / "aileron").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "aileron " not in text:
            continue
        for line, command in fixes(ast.parse(text)):
            if command.startswith("aileron ") and not command.startswith(f"aileron {_STANDS_FOR}"):
                found.add(Named(f"{path.relative_to(ROOT)}:{line}", command))
    return sorted(found)


@functools.cache
def command_line() -> Any:
    """Return the application."""
    from typer.main import get_command

    from aileron.cli.typer_app import app

    return get_command(app)


def problem(command: str) -> str | None:
    """Return why the command line would refuse a command, or None if it accepts it."""
    words = shlex.split(command.removesuffix(" < FILE"))[1:]
    found, context = command_line(), None
    while hasattr(found, "get_command"):
        context = found.make_context("aileron", [], resilient_parsing=True) if context is None else context
        if not words:
            return "it names no command"
        name = words.pop(0)
        found = found.get_command(context, name)
        if found is None:
            return f"there is no {name!r}"
    if "--help" in words:
        return None
    try:
        found.make_context(command, words)
    except typer.Exit:
        return None
    except Exception as error:
        said = getattr(error, "format_message", None)
        if said is None:
            raise
        return str(said())
    return None


def test_each_command_named_in_an_error_message_can_be_parsed() -> None:
    """The command is parsed as it stands, with a word for each placeholder. The control: invalid commands are found."""
    for good in ("aileron connector install github://a/b@1.0.0 --replace", "aileron run send to=x --as work"):
        assert problem(good) is None
    for bad in ("aileron connector install", "aileron conector list", "aileron connector list --nope"):
        assert problem(bad) is not None
    found = named()
    assert len(found) > 60

    assert {mention.command for mention in found} >= _IN_PARTS
    found = [mention for mention in found if mention.command not in _IN_PARTS]
    wrong = [
        f"{mention.where}: `{mention.command}`: {why}"
        for mention in found
        if (why := problem(mention.command)) is not None
    ]

    assert wrong == []


def test_an_error_whose_reason_suggests_a_remedy_has_that_remedy_as_its_fix() -> None:
    """A person follows the line `fix:` even if the line `why:` suggests something else. A list does not count."""
    wrong, seen = [], 0
    for path in sorted((ROOT / "aileron").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            given = {keyword.arg: said(keyword.value) for keyword in node.keywords}
            if (why := given.get("why")) is None or "fix" not in given:
                continue
            seen += 1
            remedy = message_and_fix(why)[1]
            if remedy is not None and given["fix"] is not None and given["fix"] != remedy:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {remedy}, not {given['fix']}")

    assert message_and_fix("others can open it: chmod 600 /x")[1] == "chmod 600 /x"
    assert seen > 10
    assert wrong == []
