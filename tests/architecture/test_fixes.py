"""Every command that a message of ours names can be typed: it exists, with these options, and has the arguments it needs."""

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
"""Put together out of several words, or with a word about where to type them; each is looked at where it is made."""
_STANDS_FOR = "x"
"""In place of what an f-string puts in."""


class Named(NamedTuple):
    """A command that is printed behind `fix:`, and where it comes from."""

    where: str
    command: str


def said(node: ast.AST) -> str | None:
    """A text as it would be read, with `x` for what is put into it; None for what is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else _STANDS_FOR for part in node.values)
    return None


def fixes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What a module gives as `fix=`, and what `aileron` takes for one out of a message of an AileronError."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "fix" and (text := said(node.value)) is not None:
            yield node.value.lineno, text
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "AileronError" and len(node.args) > 1:
            text = said(node.args[1])
            command = None if text is None else message_and_fix(text)[1]
            if command is not None:
                yield node.lineno, command


def named() -> list[Named]:
    """All of them, but where the command itself is filled in."""
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
    """The application."""
    from typer.main import get_command

    from aileron.cli.typer_app import app

    return get_command(app)


def problem(command: str) -> str | None:
    """Why a shell could not carry it out; None where it could."""
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


def test_each_command_that_a_message_names_can_be_typed() -> None:
    """As it stands, with any word in place of what is filled in; the check fails for what cannot."""
    for good in ("aileron connector install github://a/b@1.0.0 --replace", "aileron run send to=x --as work"):
        assert problem(good) is None
    for bad in ("aileron connector install", "aileron conector list", "aileron connector list --nope"):
        assert problem(bad) is not None
    found = named()
    assert len(found) > 60

    assert {one.command for one in found} >= _IN_PARTS
    found = [one for one in found if one.command not in _IN_PARTS]
    wrong = [f"{one.where}: `{one.command}`: {why}" for one in found if (why := problem(one.command)) is not None]

    assert wrong == []


def test_a_reason_that_names_a_remedy_has_it_as_its_fix() -> None:
    """Whoever reads `why: … set x` and `fix: something else` does the second; a reason with a list of commands names none."""
    wrong, seen = [], 0
    for path in sorted((ROOT / "aileron").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            given = {keyword.arg: said(keyword.value) for keyword in getattr(node, "keywords", ())}
            if (why := given.get("why")) is None or "fix" not in given:
                continue
            seen += 1
            remedy = message_and_fix(why)[1]
            if remedy is not None and given["fix"] is not None and given["fix"] != remedy:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {remedy}, not {given['fix']}")

    assert message_and_fix("others can open it: chmod 600 /x")[1] == "chmod 600 /x"
    assert seen > 10
    assert wrong == []
