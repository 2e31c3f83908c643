"""Every command except `run`: parses the words of a command line, runs the command, and reports failures.

Runs in commands. parsing.py reads plain words and help_page.py prints help, both from each command's declarations; typer reads
everything else, with commands made from the same declarations (typer_app.py).

Not here: which commands there are (table.py), what a command does (commands/, run.py).
"""

from __future__ import annotations

from aileron.cli import output
from aileron.cli.parsing import Call, call_of
from aileron.cli.problem import INTERRUPTED, OK, USAGE, Problem, report
from aileron.cli.table import COMMANDS, HELP_FLAGS, Group, check_in_cell

__all__ = ["main"]


def main(words: list[str]) -> int:
    """Run `aileron WORDS…` and return its exit code."""
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    words = _words_of_now(words)
    try:
        if words and words[0] in COMMANDS:
            check_in_cell(words)
        if _may_ask_for_a_page(words) and (code := _show_page(words)) is not None:
            return code
        call = call_of(words) or _typers(words, as_json)
        return call.perform() if isinstance(call, Call) else call
    except Problem as problem:
        return report(problem, as_json=as_json)
    except EOFError:
        output.note("\ninterrupted")
        return INTERRUPTED


def _words_of_now(words: list[str]) -> list[str]:
    """Return the words of a command line, with `connector new --from`, the form before 0.2, replaced by `connector import`.

    This replacement will be removed in 0.3.
    """
    rest = [part for word in words for part in (word.split("=", 1) if word.startswith("--from=") else [word])]
    if words[:2] != ["connector", "new"] or "--from" not in rest[:-1]:
        return words
    output.note(
        "note: --from of `aileron connector new` is now `aileron connector import SOURCE NAME`; it ends with 0.3"
    )
    at = rest.index("--from")
    others = ("--also" if word == "--from" else word for word in rest[2:at] + rest[at + 2 :])
    return ["connector", "import", rest[at + 1], *others]


def _may_ask_for_a_page(words: list[str]) -> bool:
    is_noun = len(words) == 1 and isinstance(COMMANDS.get(words[0]), Group)
    return not words or is_noun or words[-1] in HELP_FLAGS


def _show_page(words: list[str]) -> int | None:
    from aileron.cli.help_page import page_of

    page = page_of(words)
    if page is None:
        return None
    if page.is_asked:
        output.write(page.text)
        return OK
    output.note(page.text)
    return USAGE


def _typers(words: list[str], as_json: bool) -> Call | int:
    from aileron.cli import typer_app

    return typer_app.call_of(words, as_json=as_json)
