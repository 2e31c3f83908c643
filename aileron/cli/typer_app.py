"""Commands in typer, which reads the words that parsing.py does not read, reports errors in them, and completes words.

Typer's parameters are made from the declarations of each command's function. The function that typer calls only returns a
`Call`, so that a command is executed in one place, whichever parser read its words.

Rules
- Wrong usage is reported in the same three lines as any other failure, with exit code 2.
- Only this module knows typer. It takes 20 ms to import, so it is imported last.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final

import typer
import typer.core
import typer.main

from aileron import __version__
from aileron.cli import output
from aileron.cli.completing import COMPLETING
from aileron.cli.declared import REQUIRED, Argument, Command, Parameter, parameters_of
from aileron.cli.parsing import Call
from aileron.cli.problem import Problem, report
from aileron.cli.table import (
    COMMANDS,
    EXITS,
    HELP_FLAGS,
    MAX_WIDTH,
    SECTIONS,
    SUMMARY,
    VERSION_HELP,
    Group,
    Single,
    imported,
)

__all__ = ["app", "call_of"]

_SUGGESTED: Final = re.compile(r"(?s)\s*(?:Did you mean .*|\(Possible options: .*\))")
"""Pattern of the suggestion that typer or click appends to an error, even for a word that shares only the first letter."""
_UNKNOWN: Final = re.compile(r"No such (?P<kind>command|option):? '?(?P<word>[^\s']+)'?")
_INSTEAD: Final = {"version": "--version", "help": "--help"}
"""Words that are commands in other programs, with the option that has the same function here."""
_HELP: Final[dict[str, Any]] = {"help_option_names": list(HELP_FLAGS), "max_content_width": MAX_WIDTH}
# UsageError and its parent are click's or, by version, typer's own copy of click; BadParameter is public in both.
_UsageError: Any = typer.BadParameter.__bases__[0]
_ShownError: Any = _UsageError.__bases__[0]


class _Sections(typer.core.TyperGroup):
    """The top-level group of commands, sorted in its help by what a person wants to do.

    Each command is imported when it is needed.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name].summary) for name in names])


class _WithExamples(typer.core.TyperCommand):
    """A command whose help page ends with its two examples, each on one line of its own."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        from aileron.cli.examples import EXAMPLES

        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for example in EXAMPLES[ctx.command_path.removeprefix("aileron ")]:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


class _Commands(Mapping[str, Any]):
    """Typer's commands, made from COMMANDS when they are needed."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            around = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
            _add(around, name, COMMANDS[name])
            self._made[name] = typer.main.get_group(around).commands[name]
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _add(around: typer.Typer, name: str, found: Single | Group) -> None:
    if isinstance(found, Single):
        around.command(name, cls=_WithExamples, epilog=found.epilog)(_returning(imported(found.function)))
        return
    group = typer.Typer(help=found.summary, no_args_is_help=True, rich_markup_mode=None, context_settings=_HELP)
    for verb, function in found.verbs.items():
        group.command(verb, cls=_WithExamples)(_returning(imported(function)))
    around.add_typer(group, name=name)


def _returning(command: Command) -> Callable[..., Call]:
    """Return a function that has typer's parameters and a command's help, and that returns the call of the command."""

    def returned(**values: Any) -> Call:
        return Call(command, values)

    returned.__doc__ = command.__doc__
    signature = inspect.Signature([_typers(parameter) for parameter in parameters_of(command)])
    returned.__signature__ = signature  # type: ignore[attr-defined]
    return returned


def _typers(parameter: Parameter) -> inspect.Parameter:
    declared = parameter.declared
    if isinstance(declared, Argument):
        info: Any = typer.Argument(metavar=declared.metavar, help=declared.help, autocompletion=declared.autocompletion)
    else:
        info = typer.Option(
            *declared.spelled,
            metavar=declared.metavar,
            help=declared.help,
            min=declared.min,
            max=declared.max,
            show_default=declared.show_default,
            autocompletion=declared.autocompletion,
        )
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if parameter.default is REQUIRED else parameter.default,
        annotation=Annotated[parameter.annotation, info],
    )


app = typer.Typer(
    name="aileron",
    cls=_Sections,
    help=SUMMARY,
    epilog=EXITS,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_HELP,
)


@app.callback()
def _top(
    version: Annotated[bool, typer.Option("--version", help=VERSION_HELP, is_eager=True)] = False,
) -> None:
    if version:
        output.write(f"aileron {__version__}")
        raise typer.Exit


def call_of(words: list[str], *, as_json: bool) -> Call | int:
    """Return the call that the words request, or the exit code if help, the version or an error was printed instead.

    If the first word is a command, typer's group of all commands is bypassed. Because the group has a `--help` option, typer
    would use pydantic even if that option is not given, which takes a third of the time of a help page.
    """
    try:
        if words and words[0] in COMMANDS and not os.environ.get(COMPLETING):
            command, rest, settings = _Commands()[words[0]], words[1:], _HELP
            path = f"aileron {words[0]}"
        else:
            command, rest, settings, path = _all(), words, {}, "aileron"
        found = command.main(args=rest, prog_name=path, standalone_mode=False, **settings)
    except _UsageError as error:
        return _misused(error, as_json)
    return found if isinstance(found, Call | int) else 0


def _all() -> Any:
    command = typer.main.get_command(app)
    # Remove typer's own two options for completion: `aileron completion` has that, and typer imports pydantic to read them.
    command.params = [parameter for parameter in command.params if "completion" not in str(parameter.name)]
    return command


def _misused(error: Any, as_json: bool) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help
        output.note(error.format_message())
        return int(error.exit_code)
    path = error.ctx.command_path if error.ctx is not None else "aileron"
    what = _SUGGESTED.sub("", str(error.format_message()).strip()).rstrip(" .")
    why, fix = _meant(error, what) or (None, None)
    return report(Problem.usage(what[:1].lower() + what[1:], why=why, fix=fix or f"{path} --help"), as_json=as_json)


def _meant(error: Any, what: str) -> tuple[str, str | None] | None:
    """Return a question that suggests the nearest word of the same kind, and the command with that word; None if no word is
    similar.
    """
    from aileron.cli.near import did_you_mean, retyped

    unknown = _UNKNOWN.fullmatch(what)
    if unknown is None or error.ctx is None:
        return None
    word, command = unknown["word"], error.ctx.command
    if unknown["kind"] == "command" and (option := _INSTEAD.get(word)):
        return f"did you mean {option!r}?", retyped(word, option)
    if unknown["kind"] == "command":
        return did_you_mean(word, command.list_commands(error.ctx))
    return did_you_mean(word, [flag for option in command.get_params(error.ctx) for flag in option.opts])
