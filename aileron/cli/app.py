"""Every command but the hot one: its words are read, it is carried out, and its failures are told.

Runs in commands. What is plain is read by parsing.py, from the declarations of each command; everything else by typer, made from
the same (typer_app.py).

Not here: which commands there are (table.py), what a command does (commands/, run.py).
"""

from __future__ import annotations

from aileron.cli import output
from aileron.cli.parsing import Call, call_of
from aileron.cli.problem import INTERRUPTED, Problem, report
from aileron.cli.table import COMMANDS, check_in_cell

__all__ = ["main"]


def main(words: list[str]) -> int:
    """The exit code of `aileron WORDS…`."""
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    try:
        if words and words[0] in COMMANDS:
            check_in_cell(words)
        call = call_of(words) or _typers(words, as_json)
        return call.perform() if isinstance(call, Call) else call
    except Problem as problem:
        return report(problem, as_json=as_json)
    except EOFError:
        output.note("\ninterrupted")
        return INTERRUPTED


def _typers(words: list[str], as_json: bool) -> Call | int:
    from aileron.cli import typer_app

    return typer_app.call_of(words, as_json=as_json)
