"""Entry point of `aileron` and `python -m aileron`: finds the command before anything expensive is imported.

This module dispatches `run` and `console` by their first word. For `launch` it starts a cell's process early if the
agent will probably run in a cell. If the shell asks for completions, cli/completing.py completes the words that the
daemon knows, without typer. cli/app.py handles all other commands.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import Final

from aileron import UNSUPPORTED
from aileron.cli import output
from aileron.cli.problem import FAILED, INTERRUPTED, Problem, local_work
from aileron.cli.prompts import can_ask, take_passphrase
from aileron.client import home_path, is_in_cell

__all__ = ["main"]

_COMPLETING = "_AILERON_COMPLETE"
"""Environment variable that the shell's completion script sets when it asks for completions. Repeated from cli/completing.py,
which is imported only for a completion."""
_OFFER_SETUP: Final = frozenset({"add", "services", "run", "console", "launch", "status", "approval", "open"})
"""Commands that do little in a new home, so that they first offer `aileron setup` there."""
_COLLECT_AFTER: Final = 20_000
"""Number of new objects (about 2 MB) after which Python's garbage collector searches for reference cycles. With
Python's default of 700, each command searched dozens of times during its imports, which took 2 ms.
"""


def main() -> int:
    """Run the command in sys.argv and return its exit code."""
    # The kernel frees all memory, so the interpreter's last search for cycles is skipped: it took a quarter of a short
    # command.
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
    except Exception:  # noqa: BLE001 - the last handler: report our bug, with its text made harmless
        return _bug()


def _dispatch(words: list[str]) -> int:
    for number, word in enumerate(words, start=1):
        try:
            word.encode()
        except UnicodeEncodeError:
            return _report(Problem.usage(f"argument {number} is not UTF-8"), as_json="--json" in words)
    if _is_first(words) and (code := _offered()) is not None:
        return code
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


def _offered() -> int | None:
    """Offer the setup. Return an exit code if it was interrupted or cannot begin, or None: the command that was typed goes on."""
    from pathlib import Path

    from aileron.cli.guided_setup import offer

    try:
        with local_work():
            return offer(Path(home_path()))
    except Problem as problem:
        return _report(problem, as_json=False)


def _is_first(words: list[str]) -> bool:
    """Return whether a person at a terminal uses this home for the first time, by a command that needs what a setup makes."""
    is_offered = bool(words) and words[0] in _OFFER_SETUP and "--json" not in words and not _asks_for_help(words)
    return is_offered and can_ask() and output.is_terminal() and not os.path.lexists(home_path())


def _complete(words: list[str]) -> int:
    """Print completions for the shell; return the exit code. Nothing is written to standard error, which would disturb
    the command line.
    """
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
    except (Exception, KeyboardInterrupt):  # noqa: BLE001 - on any failure no words are offered
        return FAILED


def _console(words: list[str]) -> int | None:
    from aileron.cli.console import options_of
    from aileron.cli.console import run as console

    options = options_of(words)
    if options is None:
        return None
    try:
        return console(options)
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
        # `python -m` ends as if killed by SIGINT if KeyboardInterrupt was ever raised from an executed string, even if caught;
        # and importing a named tuple executes one. Executing another string resets that (CPython, pythonrun.c).
        exec("")  # noqa: S102 - our own text, and there is nothing in it
