"""Every command but the hot one, through typer: which there are, in what order, and how their failures are told.

Runs in commands. `run` is registered as well, with the options of run.py, for `--help` and the completion of words. The
modules of the others are imported when one of theirs is asked for: all of them together take three times as long as typer.

Rules
- Wrong usage is told in the same three lines as any other failure, with exit code 2.
- Only this module and commands/ know typer; what is dear to import is imported where it is used.

Not here: what a command does (commands/, run.py).
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple

import typer
import typer.core
import typer.main

from aileron import __version__
from aileron.cli import output
from aileron.cli.commands.completion import action_names, input_words
from aileron.cli.commands.options import AsJson
from aileron.cli.completing import COMPLETING
from aileron.cli.problem import INTERRUPTED, Problem, report
from aileron.cli.run import OPTIONS, RunCommand, build, perform
from aileron.client import is_in_cell

__all__ = ["app", "main"]

_SECTIONS = {
    "Try it": ("demo", "demo-server"),
    "Connect agents": ("launch", "sessions", "mcp"),
    "Run and decide": ("run", "console", "approve", "deny", "approval", "open", "grant"),
    "Set up": ("action", "connector", "sync", "hub", "keyring", "binding", "secret", "vault", "approver", "config"),
    "Inspect": ("audit", "status", "doctor", "daemon", "completion"),
}
_EXITS = (
    "Exit codes: 0 success, 1 failure, 2 usage error, 3 not found, 4 vault or credential, 5 denied by "
    "a person, 6 refused, 7 service or network error, 8 outcome unknown, 9 integrity check failed, 69 "
    "no daemon, 75 waiting or not finished, 130 interrupted."
)
_IN_A_CELL: Final = frozenset(
    {
        "run", "status", "completion", "action new", "action schema", "action validate", "action list", "action show",
        "connector new", "connector check-manifest",
    }
)  # fmt: skip
"""What an agent in a cell can ask of the daemon, or what needs neither it nor the home nor a jail."""
_SUGGESTED: Final = re.compile(r"(?s)\s*(?:Did you mean .*|\(Possible options: .*\))")
"""Suggestion that typer or click appends, also for a word that shares only the first letter."""
_UNKNOWN: Final = re.compile(r"No such (?P<kind>command|option):? '?(?P<word>[^\s']+)'?")
_INSTEAD: Final = {"version": "--version", "help": "--help"}
"""Commands of other programs that are options here."""
_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# UsageError and its parent are click's or, by version, typer's own copy of click; BadParameter is public in both.
_UsageError: Any = typer.BadParameter.__bases__[0]
_ShownError: Any = _UsageError.__bases__[0]


class _Sections(typer.core.TyperGroup):
    """The top-level help: commands by what a person wants to do, each imported when it is asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, _COMMANDS[name].summary) for name in names])


class _Commands(Mapping[str, Any]):
    """Typer's commands, made of what _COMMANDS says when they are asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            around = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
            _COMMANDS[name].add_to(around, name)
            self._made[name] = typer.main.get_group(around).commands[name]
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _Command(NamedTuple):
    """A command: the first line of its help, for the list of all, and its function, or MODULE.NAME of the one to be imported."""

    summary: str
    function: Callable[..., None] | str
    epilog: str | None = None

    def add_to(self, around: typer.Typer, name: str) -> None:
        function = _imported(self.function) if isinstance(self.function, str) else self.function
        around.command(name, epilog=self.epilog)(function)


class _Group(NamedTuple):
    """A noun: its help, and MODULE.NAME of each of its verbs."""

    summary: str
    functions: str

    def add_to(self, around: typer.Typer, name: str) -> None:
        group = typer.Typer(help=self.summary, no_args_is_help=True, rich_markup_mode=None, context_settings=_HELP)
        for command in map(_imported, self.functions.split()):
            group.command(command.__name__.rstrip("_").replace("_", "-"))(command)
        around.add_typer(group, name=name)


def _imported(function: str) -> Any:
    module, _, name = function.partition(".")
    return getattr(importlib.import_module(f"aileron.cli.commands.{module}"), name)


app = typer.Typer(
    name="aileron",
    cls=_Sections,
    help="Let coding agents act for you without giving them your keys.",
    epilog=_EXITS,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_HELP,
)


@app.callback()
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        output.write(f"aileron {__version__}")
        raise typer.Exit


_SPELLED = {option.flag: option for option in OPTIONS}


def _option(flag: str) -> Any:
    return typer.Option(flag, metavar=_SPELLED[flag].metavar, help=_SPELLED[flag].help, show_default=False)


def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the action.", autocompletion=action_names)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
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
    raise typer.Exit(perform(asked))


def demo(
    as_json: AsJson = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the demo's home directory so that you can look around in it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the question and answer yes.")] = False,
) -> None:
    """Show a real run, an approval, and a hostile connector stopped.

    At a terminal, the demo asks you once whether to create a calendar event.
    """
    from aileron.cli.demo import demo as show

    raise typer.Exit(show(as_json=as_json, keep=keep, yes=yes))


_COMMANDS: dict[str, _Command | _Group] = {
    "run": _Command("Run an action and print its result.", run, _EXITS),
    "demo": _Command("Show a real run, an approval, and a hostile connector stopped.", demo),
    "demo-server": _Command("Start a small notes service to try your first action on.", "demo_server.demo_server"),
    "approve": _Command("Approve a request after reading it, and carry it out.", "approval.approve", _EXITS),
    "deny": _Command("Deny a request, so that it never runs.", "approval.deny", _EXITS),
    "approval": _Group(
        "See and decide what waits for approval.",
        "approval.list_ approval.show approval.edit approval.ask approval.cancel",
    ),
    "console": _Command("Open the console: see what waits, and decide.", "console.console"),
    "launch": _Command("Start a coding agent that has your actions as its tools.", "launch.launch"),
    "sessions": _Group(
        "Manage agent sessions, their tokens, and what they changed.",
        "sessions.list_ sessions.show sessions.new sessions.end "
        "session_changes.changes session_changes.apply session_changes.discard",
    ),
    "mcp": _Group("Connect agents over the Model Context Protocol (MCP).", "mcp.config"),
    "open": _Group("Open waiting approvals in your browser.", "page.approval page.approvals"),
    "grant": _Group("Manage grants: runs that need no approval, within limits.", "grant.add grant.list_ grant.revoke"),
    "approver": _Group(
        "Manage the key and the passkeys that sign decisions.",
        "approver.init approver.status approver.passkeys approver.revoke_passkey",
    ),
    "action": _Group(
        "Manage actions, the Markdown files that say what agents may do.",
        "action_author.new action_author.schema action.validate action.add action.add_suite action.list_ action.show "
        "action.update action.diff action.enable action.disable action.resume action.remove",
    ),
    "connector": _Group(
        "Manage connectors, the jailed programs that talk to services.",
        "connector_new.new connector_author.test connector.build connector_author.sign connector_author.release "
        "connector_author.check_manifest connector.install connector.list_ connector.show connector.check connector.verify "
        "connector.remove",
    ),
    "sync": _Command("Install the connectors that your actions are pinned to.", "sync.sync"),
    "hub": _Group("Search the Hub, or build one.", "hub.search hub.show hub.build"),
    "keyring": _Group("Manage the publisher keys that you trust.", "keyring.trust keyring.list_ keyring.revoke"),
    "binding": _Group(
        "Manage bindings, which let a connector use a credential.",
        "binding.setup binding.list_ binding.inspect binding.rebind binding.reauthorize binding.revoke",
    ),
    "secret": _Group("Manage passwords and tokens in the vault.", "secret.set_ secret.list_ secret.remove"),
    "vault": _Group(
        "Manage the vault, the encrypted file that holds your secrets.",
        "vault.init vault.unlock vault.lock vault.status vault.rotate vault.backup vault.restore",
    ),
    "config": _Group("Read and change settings.", "config.get config.set_ config.add config.remove config.edit"),
    "audit": _Group(
        "Inspect, export and verify the audit trail.", "audit.list_ audit.show audit.tail audit.verify audit.export"
    ),
    "status": _Command("Show what is running, and what waits for approval.", "state.status"),
    "doctor": _Command("Check this machine, or an agent's connection to your actions.", "state.doctor"),
    "daemon": _Group(
        "Manage the background service, which starts on demand.",
        "daemon.start daemon.stop daemon.restart daemon.status daemon.logs daemon.install daemon.uninstall",
    ),
    "completion": _Command("Print the completion script for a shell.", "completion.completion"),
}


def main(words: list[str]) -> int:
    """The exit code of `aileron WORDS…`."""
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    try:
        code = _run(words)
    except Problem as problem:
        return report(problem, as_json=as_json)
    except _UsageError as error:
        return _misused(error, as_json)
    except typer.Abort:
        output.note("\ninterrupted")
        return INTERRUPTED
    if code == INTERRUPTED:  # typer has made a code of it, and says nothing
        output.note("\ninterrupted")
    return code if isinstance(code, int) else 0


def _run(words: list[str]) -> Any:
    """What typer answers. A command that is named first is called past the group of all, whose own `--help`, though nobody gave
    it, typer reads with pydantic: a third of the time that help takes.
    """
    name = words[0] if words else ""
    if name in _COMMANDS and COMPLETING not in os.environ:
        _check_in_cell(words)
        command = _Commands()[name]
        return command.main(args=words[1:], prog_name=f"aileron {name}", standalone_mode=False, **_HELP)
    return _all().main(args=words, prog_name="aileron", standalone_mode=False)


def _check_in_cell(words: list[str]) -> None:
    """Return if this works where it is typed. Problem in a cell, before anything is asked or read there."""
    is_group = isinstance(_COMMANDS[words[0]], _Group)
    if is_group and (len(words) == 1 or words[1].startswith("-")):
        return  # its help
    command = " ".join(words[:2] if is_group else words[:1])
    if not is_in_cell() or command in _IN_A_CELL or not {"-h", "--help"}.isdisjoint(words):
        return
    raise Problem(
        f"`aileron {command}` does not work in a cell, as it is for the person who started the agent",
        exit_code=6,
        name="unauthorized",
        why="an agent in a cell has the tools of its session (MCP), `aileron run`, `aileron action list` and `aileron status`",
        fix=f"run `aileron {command}` in a terminal outside the cell",
    )


def _all() -> Any:
    command = typer.main.get_command(app)
    # Typer's own two, which turn completing on: `aileron completion` does, and pydantic is imported to read them.
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
    """The nearest word to one that does not exist, and the command with it; of the same kind, and only if it is near."""
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
