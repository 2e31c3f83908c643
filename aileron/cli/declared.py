"""Declarations of what commands take: `Option` and `Argument` in the annotations of a function, and the code that reads them.

    def show(name: Annotated[str, Argument(metavar="NAME", help="Name of the action.")], as_json: AsJson = False) -> None: ...

The annotations are the only declaration. The parser (parsing.py), the help pages (help_page.py) and typer's commands
(typer_app.py) are made from them; typer handles the command lines that the other two do not. This module is imported before
every command, so it imports little: no typer, no inspect, no dataclasses.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

__all__ = ["REQUIRED", "Argument", "Command", "Exit", "Option", "Parameter", "choices_of", "parameters_of"]

Command = Callable[..., None]
"""A command function in aileron/cli/commands."""
REQUIRED: Final = object()
"""Default value that marks a parameter as required."""


class Exit(Exception):
    """Exception that ends the command with this exit code."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


class Option:
    """An option, declared by its flags.

    An option of type bool takes no value, and `--x/--no-x` set it to True and False. An option of type list is repeatable.
    """

    __slots__ = ("autocompletion", "flags", "help", "max", "metavar", "min", "negations", "show_default", "spelled")

    def __init__(
        self,
        flag: str,
        *more: str,
        help: str,
        metavar: str | None = None,
        min: int | None = None,
        max: int | None = None,
        show_default: bool = True,
        autocompletion: Callable[..., list[str]] | None = None,
    ) -> None:
        self.spelled = (flag, *more)
        self.flags = tuple(spelled.partition("/")[0] for spelled in self.spelled)
        self.negations = tuple(spelled.partition("/")[2] for spelled in self.spelled if "/" in spelled)
        self.help = help
        self.metavar = metavar
        self.min = min
        self.max = max
        self.show_default = show_default
        self.autocompletion = autocompletion


class Argument:
    """A positional argument. An argument of type list takes all remaining words."""

    __slots__ = ("autocompletion", "help", "metavar")

    def __init__(
        self, *, help: str, metavar: str | None = None, autocompletion: Callable[..., list[str]] | None = None
    ) -> None:
        self.help = help
        self.metavar = metavar
        self.autocompletion = autocompletion


class Parameter:
    """A parameter of a command: its name, the type of one value, its default, and the Option or Argument that declares it."""

    __slots__ = ("annotation", "declared", "default", "is_list", "kind", "name")

    def __init__(self, name: str, annotation: Any, declared: Option | Argument, default: Any) -> None:
        self.name = name
        self.annotation = annotation
        self.declared = declared
        self.default = default
        kind = annotation
        if get_origin(kind) in (types.UnionType, Union):
            (kind,) = (member for member in get_args(kind) if member is not types.NoneType)
        self.is_list = get_origin(kind) is list
        self.kind: Any = get_args(kind)[0] if self.is_list else kind


def choices_of(kind: Any) -> dict[str, Any]:
    """Return the values of an enum or a Literal, by the words that a person types for them."""
    if get_origin(kind) is Literal:
        return {word: word for word in get_args(kind)}
    return {str(member.value): member for member in kind}


def parameters_of(command: Command) -> list[Parameter]:
    """Return the parameters that a command declares, in order."""
    return list(_declared(command))


def _declared(command: Command) -> Iterator[Parameter]:
    hints = get_type_hints(command, include_extras=True)
    code = command.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = command.__defaults__ or ()
    padded = (*(REQUIRED for _ in names[len(defaults) :]), *defaults)
    for name, default in zip(names, padded, strict=True):
        annotation, declared = get_args(hints[name])
        yield Parameter(name, annotation, declared, default)
