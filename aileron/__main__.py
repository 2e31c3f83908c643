"""`aileron` and `python -m aileron`: which command, before anything dear is imported.

`run` and `console` are dispatched here by their first word, and for `launch` the process of a cell is begun, if it will have one;
what a daemon knows is completed without typer (cli/completing.py); everything else is app.py's.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import Final

from aileron import UNSUPPORTED
from aileron.cli import output
from aileron.cli.problem import FAILED, INTERRUPTED, Problem
from aileron.cli.prompts import take_passphrase
from aileron.client import is_in_cell

__all__ = ["main"]

_COMPLETING = "_AILERON_COMPLETE"
"""Set by the shell's completion script while words are completed; cli/completing.py has it too, and is imported only then."""
_COLLECT_AFTER: Final = 20_000
"""New objects before a search for cycles, 2 MB of them: at Python's 700 each command made dozens while it imported, 2 ms."""


def main() -> int:
    """The exit code of the command in sys.argv."""
    # What the interpreter's last search for cycles frees, the kernel frees anyway, and it took a quarter of a short command.
    atexit.register(gc.freeze)
    gc.set_threshold(_COLLECT_AFTER)
    words = sys.argv[1:]
    if os.environ.get(_COMPLETING):
        return _complete(words)
    output.prepare()
    if UNSUPPORTED is not None:
        output.note(f"error: {UNSUPPORTED}")
        return FAILED
    take_passphrase()
    try:
        return _dispatch(words)
    except KeyboardInterrupt:
        output.note("\ninterrupted")
        return INTERRUPTED
    except output.UnwritableError as error:
        output.note(f"error: {error}")
        return FAILED
    except Exception:  # noqa: BLE001 - the end of the process: a bug of ours is told as one, its text made harmless
        return _bug()


def _dispatch(words: list[str]) -> int:
    for number, word in enumerate(words, start=1):
        try:
            word.encode()
        except UnicodeEncodeError:
            return _report(Problem.usage(f"argument {number} is not UTF-8"), as_json="--json" in words)
    if words[:1] == ["run"] and not _asks_for_help(words[1:]):
        from aileron.cli.run import main as run

        return run(words[1:])
    if words[:1] == ["console"] and not is_in_cell() and (code := _console(words[1:])) is not None:
        return code
    if words == ["--version"]:
        from aileron import __version__

        output.write(f"aileron {__version__}")
        return 0
    if words[:1] == ["launch"]:
        from aileron.cli import cell_ahead

        cell_ahead.begin(words[1:])
    from aileron.cli.app import main as every_other

    return every_other(words)


def _complete(words: list[str]) -> int:
    """Words for a shell, and never a line beside what somebody is typing: standard error goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 2)
    try:
        output.prepare()
        from aileron.cli.completing import answer

        if (found := answer()) is not None:
            output.write(found[0])
            return found[1]
        from aileron.cli.typer_app import call_of

        call_of(words, as_json=False)  # which ends the process
        return FAILED
    except (Exception, KeyboardInterrupt):  # noqa: BLE001 - whatever went wrong: no words are offered
        return FAILED


def _console(words: list[str]) -> int | None:
    from aileron.cli.console import options_of
    from aileron.cli.console import run as console

    options = options_of(words)
    if options is None:
        return None
    try:
        return console(options[0], plain=options[1])
    except Problem as problem:
        return _report(problem, as_json=False)


def _report(problem: Problem, *, as_json: bool) -> int:
    from aileron.cli.problem import report

    return report(problem, as_json=as_json)


def _asks_for_help(words: list[str]) -> bool:
    options = words[: words.index("--")] if "--" in words else words
    return not {"-h", "--help"}.isdisjoint(options)


def _bug() -> int:
    import traceback

    from aileron.model.visible import visible_lines

    for line in visible_lines(traceback.format_exc().rstrip()):
        output.note(line)
    output.note("error: this is a bug in aileron; please report it with the lines above")
    return FAILED


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        # `python -m` ends as killed by SIGINT if KeyboardInterrupt ever left a string that was executed, although it was caught
        # then, and an import that makes a named tuple executes one. The next such string resets it (CPython, pythonrun.c).
        exec("")  # noqa: S102 - our own text, and there is nothing in it
