"""Command lines read without typer, compared with typer, which is made from the same declarations."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from typing import Any, Final, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aileron.cli import parsing, typer_app
from aileron.cli.declared import REQUIRED, Argument, Option, Parameter, parameters_of
from aileron.cli.parsing import Call
from aileron.cli.table import COMMANDS, Single, imported


def commands() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the words of each command, and its MODULE.NAME."""
    for name, found in COMMANDS.items():
        if isinstance(found, Single):
            yield (name,), found.function
        else:
            yield from (((name, verb), function) for verb, function in found.verbs.items())


EVERY: Final = dict(commands())
TEXTS: Final = st.sampled_from(["x", "", "-", "a=b", "é", " 7", "7", "0", "-1", "99999", "--json", "."]) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8
)
"""Values, some of which look like options, numbers and existing paths."""


def fitting(parameter: Parameter) -> st.SearchStrategy[str]:
    """Return values that fit a parameter, and others."""
    kind = parameter.kind
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind)) | TEXTS
    if inspect.isclass(kind) and issubclass(kind, enum.Enum):
        return st.sampled_from([member.value for member in kind]) | TEXTS
    return st.integers(-2, 70_000).map(str) | TEXTS if kind is int else TEXTS


def typed(parameter: Parameter) -> st.SearchStrategy[list[str]]:
    """Return ways to type a parameter, valid and invalid."""
    value = fitting(parameter)
    if isinstance(parameter.declared, Argument):
        return value.map(lambda text: [text])
    flags = st.sampled_from([*parameter.declared.flags, *parameter.declared.negations])
    alone = flags.map(lambda flag: [flag])
    ways = [st.tuples(flags, value).map(list), st.builds("{}={}".format, flags, value).map(lambda word: [word]), alone]
    return st.one_of(alone if parameter.kind is bool else ways[0], *ways)


def lines(words: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    """Return command lines of one command: mostly declared parameters, in any order and number."""
    parameters = parameters_of(imported(EVERY[words]))
    needed = [typed(parameter) for parameter in parameters if parameter.default is REQUIRED]
    every = st.one_of(*map(typed, parameters)) if parameters else st.nothing()
    other = st.sampled_from([["--"], ["-x"], ["--no-such"], ["--help"], ["-h"], ["word"]])
    parts = st.tuples(st.tuples(*needed), st.lists(every | other, max_size=4)).flatmap(
        lambda found: st.permutations([*found[0], *found[1]])
    )
    return parts.map(lambda found: [*words, *(word for part in found for word in part)])


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_the_fast_parser_agrees_with_typer(words: tuple[str, ...], data: st.DataObject) -> None:
    """Function, values and types are equal for every line that the parser does not leave to typer."""
    line = data.draw(lines(words))
    call = parsing.call_of(line)

    if call is not None:
        assert shown(call) == shown(typer_app.call_of(line, as_json=False))


def shown(call: Call | int) -> Any:
    """Return a call with the types of its values."""
    if isinstance(call, int):
        return call
    return call.command, {name: (type(value), value) for name, value in call.values.items()}


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_the_fast_parser_parses_every_plain_command_line_without_typer(words: tuple[str, ...]) -> None:
    """Positive control of the test above, which would pass if every line were left to typer."""
    parameters = parameters_of(imported(EVERY[words]))
    line = [*words]
    for parameter in parameters:
        line += parameter.declared.flags[:1] if isinstance(parameter.declared, Option) else []
        line += [] if parameter.kind is bool else [plain(parameter)]
    call = parsing.call_of(line)

    assert call is not None
    assert set(call.values) == {parameter.name for parameter in parameters}


def plain(parameter: Parameter) -> str:
    """Return a value that fits the parameter."""
    if get_origin(parameter.kind) is Literal:
        return str(get_args(parameter.kind)[0])
    if inspect.isclass(parameter.kind) and issubclass(parameter.kind, enum.Enum):
        return str(next(iter(parameter.kind)).value)
    return "7"
