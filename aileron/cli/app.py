"""Every command but the hot one, through typer: which there are, in what order, and how their failures are told.

Runs in commands. `run` is registered as well, with the options of run.py, for `--help` and the completion of words.

Rules
- Wrong usage is told in the same three lines as any other failure, with exit code 2.
- Only this module and commands/ know typer; what is dear to import is imported where it is used.

Not here: what a command does (commands/, run.py).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
import typer.core
import typer.main

from aileron import __version__
from aileron.cli import output
from aileron.cli.commands import (
    action,
    action_author,
    approval,
    approver,
    audit,
    binding,
    config,
    connector,
    connector_author,
    daemon,
    grant,
    hub,
    keyring,
    launch,
    mcp,
    page,
    secret,
    sessions,
    state,
    vault,
)
from aileron.cli.commands.completion import action_names, completion, input_words
from aileron.cli.commands.console import console
from aileron.cli.commands.demo_server import demo_server
from aileron.cli.commands.options import AsJson
from aileron.cli.commands.sync import sync
from aileron.cli.problem import INTERRUPTED, Problem, report
from aileron.cli.run import OPTIONS, RunCommand, build, perform

__all__ = ["app", "main"]

_SECTIONS = {
    "See": ("demo", "demo-server"),
    "Let agents act": ("launch", "sessions", "mcp"),
    "Act": ("run", "console", "approve", "deny", "approval", "open", "grant"),
    "Set up": ("action", "connector", "sync", "hub", "keyring", "binding", "secret", "vault", "approver", "config"),
    "Look": ("audit", "status", "doctor", "daemon", "completion"),
}
_EXITS = (
    "Exit codes: 0 done, 1 failed, 2 wrong call, 3 not found, 4 vault or credential, 5 a person said no, 6 refused, "
    "7 the service failed, 8 outcome unknown, 9 bytes are not as pinned, 69 no daemon, 75 not finished yet, 130 interrupted."
)
_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# UsageError and its parent are click's or, by version, typer's own copy of click; BadParameter is public in both.
_UsageError: Any = typer.BadParameter.__bases__[0]
_ShownError: Any = _UsageError.__bases__[0]


class _Sections(typer.core.TyperGroup):
    """The top-level help: commands by what a person wants to do."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in _SECTIONS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str(70)) for name, command in commands if command])


app = typer.Typer(
    name="aileron",
    cls=_Sections,
    help="Let agents act without holding a key: actions, the connectors they use, and what happened.",
    epilog=_EXITS,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_HELP,
)


def _group(name: str, text: str, *commands: Any) -> None:
    group = typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None, context_settings=_HELP)
    for command in commands:
        group.command(command.__name__.rstrip("_").replace("_", "-"))(command)
    app.add_typer(group, name=name)


@app.callback()
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        output.write(f"aileron {__version__}")
        raise typer.Exit


_SPELLED = {option.flag: option for option in OPTIONS}


def _option(flag: str) -> Any:
    return typer.Option(flag, metavar=_SPELLED[flag].metavar, help=_SPELLED[flag].help, show_default=False)


@app.command("run", epilog=_EXITS)
def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The action.", autocompletion=action_names)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Its arguments, by the declared types.", autocompletion=input_words),
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

    Text is printed as it is, everything else as JSON. Where a person has to decide first, nothing runs yet: exit code 75.
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


@app.command("demo")
def demo(
    as_json: AsJson = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the demo's home behind, to look around in.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask: the answer is yes.")] = False,
) -> None:
    """Show the main job on a real server, and a hostile connector stopped.

    At a terminal it asks you once, whether an event may be created.
    """
    from aileron.cli.demo import demo as show

    raise typer.Exit(show(as_json=as_json, keep=keep, yes=yes))


app.command("demo-server")(demo_server)
app.command("approve", epilog=_EXITS)(approval.approve)
app.command("deny", epilog=_EXITS)(approval.deny)
_group(
    "approval",
    "What waits for a person.",
    *(approval.list_, approval.show, approval.edit, approval.ask, approval.cancel),
)
app.command("console")(console)
app.command("launch")(launch.launch)
_group(
    "sessions", "Agents at work, and what their tokens open.", sessions.list_, sessions.show, sessions.new, sessions.end
)
_group("mcp", "The server that agents see the actions through.", mcp.config)
_group("open", "What waits, in your browser.", page.approval, page.approvals)
_group("grant", "What runs without asking, within signed limits.", grant.add, grant.list_, grant.revoke)
_group(
    "approver",
    "Whose signature a decision needs.",
    *(approver.init, approver.status, approver.passkeys, approver.revoke_passkey),
)
_group(
    "action",
    "Actions: the Markdown files that agents may run.",
    *(action_author.new, action_author.schema, action.validate),
    *(action.add, action.add_suite, action.list_, action.show, action.update, action.diff),
    *(action.enable, action.disable, action.remove),
)
_group(
    "connector",
    "Connectors: the programs that know one service each.",
    *(connector_author.new, connector_author.test, connector.build, connector_author.sign),
    *(connector_author.release, connector_author.check_manifest),
    *(connector.install, connector.list_, connector.show, connector.check, connector.verify, connector.remove),
)
app.command("sync")(sync)
_group("hub", "What is published on the Hub, and a Hub made.", hub.search, hub.show, hub.build)
_group("keyring", "Whose signatures count.", keyring.trust, keyring.list_, keyring.revoke)
_group(
    "binding",
    "Which credential serves which connector.",
    *(binding.setup, binding.list_, binding.inspect, binding.rebind, binding.reauthorize, binding.revoke),
)
_group("secret", "Passwords and tokens in the vault.", secret.set_, secret.list_, secret.remove)
_group(
    "vault",
    "The encrypted file that secrets are in.",
    vault.init,
    vault.unlock,
    vault.lock,
    vault.status,
    vault.rotate,
    vault.backup,
    vault.restore,
)
_group("config", "The settings.", config.get, config.set_, config.edit)
_group(
    "audit",
    "What happened, in a chain that shows changes.",
    *(audit.list_, audit.show, audit.tail, audit.verify, audit.export),
)
app.command("status")(state.status)
app.command("doctor")(state.doctor)
_group(
    "daemon",
    "The supervisor, which starts by itself.",
    *(daemon.start, daemon.stop, daemon.status, daemon.logs, daemon.install, daemon.uninstall),
)
app.command("completion")(completion)


def main(words: list[str]) -> int:
    """The exit code of `aileron WORDS…`."""
    command = _command()
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    try:
        code = command.main(args=words, prog_name="aileron", standalone_mode=False)
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


def _command() -> Any:
    command = typer.main.get_command(app)
    for parameter in command.params:
        if "completion" in str(
            parameter.name
        ):  # typer's own two, which turn completing on; `aileron completion` is shown
            parameter.hidden = True  # type: ignore[attr-defined]
    return command


def _misused(error: Any, as_json: bool) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help
        output.note(error.format_message())
        return int(error.exit_code)
    path = error.ctx.command_path if error.ctx is not None else "aileron"
    what, did, near = str(error.format_message()).strip().partition("Did you mean")
    what = what.rstrip(" .")
    why = f"did you mean{near}" if did else None
    return report(Problem.usage(what[:1].lower() + what[1:], why=why, fix=f"{path} --help"), as_json=as_json)
