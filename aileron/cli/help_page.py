"""Help pages of a command, a group or all commands, laid out as typer does.

Made from the same declarations as typer's commands, so that nobody has to wait for the import of typer to read a page. typer
(typer_app.py) handles a command line that has more than the help option. tests/cli/test_help.py compares the pages in several
widths.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from aileron.cli.declared import REQUIRED, Argument, Command, Option, Parameter, choices_of, parameters_of
from aileron.cli.examples import EXAMPLES
from aileron.cli.outline import outlined
from aileron.cli.output import columns
from aileron.cli.table import COMMANDS, EXITS, HELP_FLAGS, MAX_WIDTH, SECTIONS, SUMMARY, VERSION_HELP, Group

__all__ = ["Page", "page_of"]

_LEAST_WIDTH: Final = 50
_MARGIN: Final = 2
_INDENT: Final = 2
_LONGEST_TERM: Final = 30
"""Maximum number of columns for the left side of a list. The text of a longer entry stands below that entry."""
_BETWEEN: Final = 2
_LEAST_TEXT: Final = 10
_ROOM_OF_USAGE: Final = 20
"""Minimum number of columns for the arguments beside the command; if fewer are left, the arguments stand below the command."""
_KINDS: Final = {"str": "text", "int": "int", "Path": "path"}
"""typer's words for values that are not chosen from a list, by the name of the value's type."""
_HELP: Final = (", ".join(HELP_FLAGS), "Show this message and exit.")

Rows = Sequence[tuple[str, str]]
"""Rows of a help section: each pairs an option, argument or command with its description."""


class Page(NamedTuple):
    """A help page. `is_asked` is False if the page is shown only because the command line names no command."""

    text: str
    is_asked: bool


def page_of(words: Sequence[str]) -> Page | None:
    """Return the help page that a command line asks for.

    None if the line asks for anything else, or if typer must read the line.
    """
    is_asked = bool(words) and words[-1] in HELP_FLAGS
    path = list(words[:-1] if is_asked else words)
    lines = _lines(path, is_asked, max(min(columns(), MAX_WIDTH) - _MARGIN, _LEAST_WIDTH))
    return None if lines is None else Page("\n".join(lines), is_asked)


def _lines(path: list[str], is_asked: bool, width: int) -> list[str] | None:
    if not path:
        return [*_top(width)]
    found = COMMANDS.get(path[0])
    if isinstance(found, Group):
        if len(path) == 1:
            return [*_group(path, found, width)]
        function, epilog = found.verbs.get(path[1]), None
    else:
        function, epilog = (None, None) if found is None else (found.function, found.epilog)
    is_whole = len(path) == (2 if isinstance(found, Group) else 1)
    return [*_command(path, outlined(function), epilog, width)] if function and is_asked and is_whole else None


def _top(width: int) -> Iterator[str]:
    yield from _usage("aileron", "[OPTIONS] COMMAND [ARGS]...", width)
    yield from _text(SUMMARY, width)
    yield from _section("Options", [("--version", VERSION_HELP), _HELP], width)
    for title, names in SECTIONS.items():
        yield from _section(title, [(name, COMMANDS[name].summary) for name in names], width)
    yield from _text(EXITS, width)


def _group(path: Sequence[str], group: Group, width: int) -> Iterator[str]:
    yield from _usage(" ".join(["aileron", *path]), "[OPTIONS] COMMAND [ARGS]...", width)
    yield from _text(group.summary, width)
    yield from _section("Options", [_HELP], width)
    verbs = group.verbs
    room = width - 3 * _INDENT - max(map(len, verbs))
    rows = [(verb, _summary(_documented(outlined(function, is_read=False)), room)) for verb, function in verbs.items()]
    yield from _section("Commands", rows, width)


def _command(path: Sequence[str], command: Command, epilog: str | None, width: int) -> Iterator[str]:
    parameters = parameters_of(command)
    arguments = [parameter for parameter in parameters if isinstance(parameter.declared, Argument)]
    options = [parameter for parameter in parameters if isinstance(parameter.declared, Option)]
    yield from _usage(" ".join(["aileron", *path]), " ".join(["[OPTIONS]", *map(_in_usage, arguments)]), width)
    yield from _text(_documented(command), width)
    if arguments:
        yield from _section("Arguments", [(_metavar(argument), _help(argument)) for argument in arguments], width)
    yield from _section("Options", [*((_flags(option), _help(option)) for option in options), _HELP], width)
    if epilog is not None:
        yield from _text(epilog, width)
    yield from ("", "Examples:")
    yield from (" " * _INDENT + example for example in EXAMPLES[" ".join(path)])


def _in_usage(argument: Parameter) -> str:
    name = _metavar(argument)
    if name.startswith("["):
        return name
    return f"{{{name}}}" if argument.default is REQUIRED else f"[{name}]"


def _metavar(parameter: Parameter) -> str:
    declared = parameter.declared
    if declared.metavar is not None:
        return declared.metavar
    kind = _KINDS.get(getattr(parameter.kind, "__name__", ""))
    if kind is None:
        return f"<{'|'.join(choices_of(parameter.kind))}>"
    has_range = isinstance(declared, Option) and (declared.min, declared.max) != (None, None)
    return f"<{kind} range>" if has_range else f"<{kind}>"


def _flags(option: Parameter) -> str:
    assert isinstance(option.declared, Option)
    sides = [sorted(side, key=_dashes) for side in (option.declared.flags, option.declared.negations) if side]
    value = "" if option.kind is bool else f" {_metavar(option)}"
    return " / ".join(", ".join(side) + value for side in sides)


def _dashes(flag: str) -> int:
    return len(flag) - len(flag.lstrip("-"))


def _help(parameter: Parameter) -> str:
    """Return a parameter's help, with its default and the limits of its value in brackets."""
    more = [*_more(parameter)]
    return f"{parameter.declared.help}  [{'; '.join(more)}]" if more else parameter.declared.help


def _more(parameter: Parameter) -> Iterator[str]:
    declared, default = parameter.declared, parameter.default
    is_shown = isinstance(declared, Argument) or declared.show_default
    text = "" if default in (REQUIRED, None, False) else str(getattr(default, "value", default))
    if is_shown and text:
        yield f"default: {text}"
    if isinstance(declared, Option):
        yield from _range(declared.min, declared.max)
    if default is REQUIRED:
        yield "required"


def _range(least: int | None, most: int | None) -> Iterator[str]:
    if least is not None and most is not None:
        yield f"{least}<=x<={most}"
    elif least is not None:
        yield f"x>={least}"
    elif most is not None:
        yield f"x<={most}"


def _documented(command: Command) -> str:
    """Return a command's docstring without the indent of the source."""
    first, *rest = (command.__doc__ or "").split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    return "\n".join([first.strip(), *(line[margin:] for line in rest)]).strip()


def _summary(text: str, room: int) -> str:
    """Return the first sentence of a text, or as many of its words as fit into `room`."""
    words = text.partition("\n\n")[0].split()
    end = next((number for number, word in enumerate(words, start=1) if word.endswith(".")), len(words))
    sentence = " ".join(words[:end])
    if len(sentence) <= room:
        return sentence
    while words and len(" ".join(words)) + len("...") > room:
        words.pop()
    return " ".join(words) + "..."


class _Wrapper(textwrap.TextWrapper):
    """A text wrapper that cuts as typer's own does: a word that is too long is cut at the line's end, even after other words."""

    def _handle_long_word(self, reversed_chunks: list[str], cur_line: list[str], cur_len: int, width: int) -> None:
        left = max(width - cur_len, 1)
        word = reversed_chunks[-1]
        cur_line.append(word[:left])
        reversed_chunks[-1] = word[left:]


def _wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    wrapper = _Wrapper(width, initial_indent=first, subsequent_indent=rest, replace_whitespace=False)
    return wrapper.wrap(text.expandtabs())


def _usage(path: str, arguments: str, width: int) -> list[str]:
    before = f"Usage: {path} "
    if width >= len(before) + _ROOM_OF_USAGE:
        return _wrapped(arguments, width, before, " " * len(before))
    indent = " " * (len("Usage: ") + 4)
    return [before, *_wrapped(arguments, width, indent, indent)]


def _text(text: str, width: int) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield ""
        yield from _wrapped(" ".join(paragraph.split("\n")), width, " " * _INDENT, " " * _INDENT)


def _section(title: str, rows: Rows, width: int) -> Iterator[str]:
    yield ""
    yield f"{title}:"
    column = min(max(len(term) for term, _ in rows), _LONGEST_TERM) + _BETWEEN
    for term, text in rows:
        lines: Iterable[str] = _wrapped(text, max(width - column - 2, _LEAST_TEXT))
        if len(term) <= column - _BETWEEN:
            first, *lines = lines
            yield " " * _INDENT + term.ljust(column) + first
        else:
            yield " " * _INDENT + term
        yield from (" " * (_INDENT + column) + line for line in lines)
