"""`aileron run`, declared like all other commands, for its help, its completion, and words that run.py leaves to typer."""

from __future__ import annotations

from typing import Annotated

from aileron.cli.commands.completion import action_names, input_words
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.run import OPTIONS, RunCommand, build, perform

__all__ = ["run"]

_SPELLED = {option.flag: option for option in OPTIONS}


def _option(flag: str) -> Option:
    return Option(flag, metavar=_SPELLED[flag].metavar, help=_SPELLED[flag].help, show_default=False)


def run(
    name: Annotated[str, Argument(metavar="NAME", help="Name of the action.", autocompletion=action_names)],
    arguments: Annotated[
        list[str] | None,
        Argument(
            metavar="KEY=VALUE",
            help="Arguments of the action, with values of the declared types.",
            autocompletion=input_words,
        ),
    ] = None,
    args: Annotated[str | None, _option("--args")] = None,
    as_json: Annotated[bool, _option("--json")] = False,
    wait: Annotated[str | None, _option("--wait")] = None,
    dry_run: Annotated[bool, _option("--dry-run")] = False,
    idempotency_key: Annotated[str | None, _option("--idempotency-key")] = None,
    again: Annotated[str | None, _option("--again")] = None,
    binding: Annotated[str | None, _option("--as")] = None,
    passphrase_file: Annotated[str | None, _option("--passphrase-file")] = None,
) -> None:
    """Run an action and print its result.

    Text is printed unchanged, everything else as JSON. If the action needs your approval first, nothing runs yet: exit code 75.
    """
    values = {
        "--args": args,
        "--json": "" if as_json else None,
        "--wait": wait,
        "--dry-run": "" if dry_run else None,
        "--idempotency-key": idempotency_key,
        "--again": again,
        "--as": binding,
        "--passphrase-file": passphrase_file,
    }
    asked: RunCommand = build(
        name, arguments or [], {flag: value for flag, value in values.items() if value is not None}
    )
    raise Exit(perform(asked))
