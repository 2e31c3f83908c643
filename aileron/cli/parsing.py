"""Converts the words of a command line to a call of the command's function, if the words are plain.

    call_of(["action", "show", "mail", "--json"])   →   Call(action.show, {"name": "mail", "as_json": True})

This parser uses the same declarations as typer's commands (typer_app.py), so the two never differ. For everything that is not
plain, including wrong words and help, the result is None; typer then reads the words and says what is wrong with them. So this
module has no messages. tests/cli/test_parsing.py compares the two.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aileron.cli.declared import REQUIRED, Argument, Command, Exit, Option, Parameter, choices_of, parameters_of
from aileron.cli.table import COMMANDS, Group, imported

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Call", "call_of"]


class Call(NamedTuple):
    """A call of a command: its function, and the arguments parsed from the command line."""

    command: Command
    values: dict[str, Any]

    def perform(self) -> int:
        """Call the function and return the exit code."""
        try:
            self.command(**self.values)
        except Exit as over:
            return over.code
        return 0


class _UnusualError(Exception):
    """Exception for a command line that only typer can parse."""


def call_of(words: Sequence[str]) -> Call | None:
    """Parse a command line and return the call that it requests; None if typer has to parse it."""
    function, rest = _function_of(words)
    if function is None:
        return None
    command = imported(function)
    parameters = parameters_of(command)
    try:
        given, plain = _split(rest, parameters)
        _assign(plain, parameters, given)
        return Call(command, {parameter.name: _value(parameter, given.get(parameter.name)) for parameter in parameters})
    except _UnusualError:
        return None


def _function_of(words: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """Return MODULE.NAME of the command's function, and the words after the command's name."""
    found = COMMANDS.get(words[0]) if words else None
    if isinstance(found, Group):
        return (found.verbs.get(words[1]), words[2:]) if len(words) > 1 else (None, ())
    return (None, ()) if found is None else (found.function, words[1:])


def _split(words: Sequence[str], parameters: Sequence[Parameter]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the values for each option, and the words that belong to no option."""
    options = {flag: parameter for parameter in parameters for flag in _flags(parameter)}
    given: dict[str, list[str]] = {}
    plain: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            plain += rest
        elif word == "-" or not word.startswith("-"):
            plain.append(word)
        else:
            flag, has_value, value = word.partition("=")
            option = options.get(flag)
            if option is None or (has_value and (option.kind is bool or not flag.startswith("--"))):
                raise _UnusualError
            if not has_value:
                value = flag if option.kind is bool else _next(rest)
            given.setdefault(option.name, []).append(value)
    return given, plain


def _flags(parameter: Parameter) -> tuple[str, ...]:
    return parameter.declared.flags + _negations(parameter) if isinstance(parameter.declared, Option) else ()


def _negations(parameter: Parameter) -> tuple[str, ...]:
    return parameter.declared.negations if isinstance(parameter.declared, Option) else ()


def _next(words: Any) -> str:
    for word in words:
        return str(word)
    raise _UnusualError


def _assign(words: list[str], parameters: Sequence[Parameter], given: dict[str, list[str]]) -> None:
    """Add the words to `given` as values of the positional arguments, in the order in which the command declares the
    arguments.
    """
    left = list(words)
    for parameter in parameters:
        if isinstance(parameter.declared, Argument) and left:
            count = len(left) if parameter.is_list else 1
            given[parameter.name], left = left[:count], left[count:]
    if left:
        raise _UnusualError


def _value(parameter: Parameter, texts: Sequence[str] | None) -> Any:
    if texts is None and parameter.default is REQUIRED:
        raise _UnusualError
    if parameter.kind is bool:
        return parameter.default if texts is None else texts[-1] not in _negations(parameter)
    convert = _converter(parameter)
    if texts is None:
        # A default is checked like a given value, as typer does.
        return parameter.default if parameter.default is None else convert(_typed(parameter.default))
    return [convert(text) for text in texts] if parameter.is_list else convert(texts[-1])


def _typed(default: Any) -> str:
    return str(getattr(default, "value", default))


def _converter(parameter: Parameter) -> Callable[[str], Any]:
    kind = parameter.kind
    if kind is str:
        return str
    if kind is int:
        return lambda text: _number(text, parameter.declared)
    if getattr(kind, "__name__", "") == "Path":
        return _path
    return lambda text: _chosen(text, choices_of(kind))


def _number(text: str, declared: Option | Argument) -> int:
    try:
        number = int(text)
    except ValueError:
        raise _UnusualError from None
    least, most = (declared.min, declared.max) if isinstance(declared, Option) else (None, None)
    if (least is not None and number < least) or (most is not None and number > most):
        raise _UnusualError
    return number


def _path(text: str) -> Path:
    from pathlib import Path  # 2 ms

    if os.path.exists(text) and not os.access(text, os.R_OK):
        raise _UnusualError
    return Path(text)


def _chosen(text: str, choices: dict[str, Any]) -> Any:
    if text not in choices:
        raise _UnusualError
    return choices[text]
