"""The table of all commands: their order, their modules, and which of them work in a cell.

Runs in commands, before the module of any command is imported, because importing all modules takes three times as long as
importing typer. Not here: what a command does (commands/), how its words are read (parsing.py, typer_app.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aileron.cli.declared import Command
from aileron.cli.problem import Problem
from aileron.client import is_in_cell

__all__ = [
    "COMMANDS",
    "EXITS",
    "HELP_FLAGS",
    "MAX_WIDTH",
    "PACKAGE",
    "SECTIONS",
    "SUMMARY",
    "VERSION_HELP",
    "Group",
    "Single",
    "check_in_cell",
    "import_msgspec",
    "imported",
]

SUMMARY: Final = "Let coding agents act for you without giving them your keys."
VERSION_HELP: Final = "Print the version and exit."
MAX_WIDTH: Final = 100
"""Maximum number of columns of a help page, because longer lines are hard to read."""
PACKAGE: Final = "aileron.cli.commands"
HELP_FLAGS: Final = ("-h", "--help")
SECTIONS: Final = {
    "Start here": ("setup", "demo", "demo-server"),
    "Connect agents": ("launch", "sessions", "mcp"),
    "Run and decide": ("run", "console", "approve", "deny", "approval", "open", "grant"),
    "Set up": (
        "add",
        "services",
        "update",
        "remove",
        "action",
        "connector",
        "sync",
        "hub",
        "keyring",
        "binding",
        "secret",
        "vault",
        "approver",
        "config",
    ),
    "Inspect": ("audit", "status", "doctor", "daemon", "completion"),
}
"""Sections of the top-level help: commands by what a person wants to do."""
EXITS: Final = (
    "Exit codes: 0 success, 1 failure, 2 usage error, 3 not found, 4 vault or credential, 5 denied by "
    "a person, 6 refused, 7 service or network error, 8 outcome unknown, 9 integrity check failed, 69 "
    "no daemon, 75 waiting or not finished, 130 interrupted."
)
_IN_A_CELL: Final = frozenset(
    {
        "run", "status", "completion", "action new", "action schema", "action validate", "action list", "action show",
        "connector new", "connector import", "connector check-manifest",
    }
)  # fmt: skip
"""Commands that work in a cell: the daemon answers them for an agent, or they need no daemon, no home and no jail."""


class Single(NamedTuple):
    """A command without a verb: its summary in the list of commands, and MODULE.NAME of its function."""

    summary: str
    function: str
    epilog: str | None = None


class Group(NamedTuple):
    """A group of commands for one noun, such as `action`: its help, and MODULE.NAME of each of its verbs."""

    summary: str
    functions: str

    @property
    def verbs(self) -> dict[str, str]:
        """MODULE.NAME of each verb, by the word that a person types."""
        return {name.partition(".")[2].rstrip("_").replace("_", "-"): name for name in self.functions.split()}


COMMANDS: Final[dict[str, Single | Group]] = {
    "run": Single("Run an action and print its result.", "run.run", EXITS),
    "setup": Single("Set up Aileron: vault, approver, services and an agent.", "setup.setup"),
    "demo": Single("Show a real run, an approval, and a hostile connector stopped.", "demo.demo"),
    "demo-server": Single("Start a small notes service to try your first action on.", "demo_server.demo_server"),
    "approve": Single("Approve a request after reading it, and carry it out.", "approval_decide.approve", EXITS),
    "deny": Single("Deny a request, so that it never runs.", "approval_decide.deny", EXITS),
    "approval": Group(
        "See and decide what waits for approval.",
        "approval.list_ approval.show approval_decide.edit approval_decide.ask approval.cancel",
    ),
    "console": Single("Open the console: see what waits, and decide.", "console.console"),
    "launch": Single("Start a coding agent that has your actions as its tools.", "launch.launch"),
    "sessions": Group(
        "Manage agent sessions, their tokens, and what they changed.",
        "sessions.list_ sessions.show sessions.new sessions.end "
        "session_changes.changes session_changes.apply session_changes.discard",
    ),
    "mcp": Group("Connect agents over the Model Context Protocol (MCP).", "mcp.config"),
    "open": Group("Open waiting approvals in your browser.", "page.approval page.approvals"),
    "grant": Group("Manage grants: runs that need no approval, within limits.", "grant.add grant.list_ grant.revoke"),
    "add": Single("Add a service: its connector, actions and your credential.", "add.add"),
    "services": Single("List the services that are connected.", "add.services"),
    "update": Single("Update services to what came with this version of Aileron.", "add.update"),
    "remove": Single("Remove a service with all that came with it.", "add.remove"),
    "approver": Group(
        "Manage the key and the passkeys that sign decisions.",
        "approver.init approver.status approver.passkeys approver.revoke_passkey",
    ),
    "action": Group(
        "Manage actions, the Markdown files that say what agents may do.",
        "action_author.new action_author.schema action.validate action_install.add action_install.add_suite action.list_ "
        "action.show action_install.update action_install.diff action.enable action.disable action_install.resume action.remove",
    ),
    "connector": Group(
        "Manage connectors, the jailed programs that talk to services.",
        "connector_new.new connector_import.import_ connector_author.test connector_install.build connector_author.sign "
        "connector_author.release connector_author.check_manifest connector_install.install connector.list_ connector.show "
        "connector_install.check connector_install.verify connector.remove",
    ),
    "sync": Single("Install the connectors that your actions are pinned to.", "sync.sync"),
    "hub": Group("Search the Hub, or build one.", "hub.search hub.show hub.build"),
    "keyring": Group("Manage the publisher keys that you trust.", "keyring.trust keyring.list_ keyring.revoke"),
    "binding": Group(
        "Manage bindings, which let a connector use a credential.",
        "binding_change.setup binding.list_ binding.inspect binding_change.rebind binding_change.reauthorize "
        "binding_change.revoke",
    ),
    "secret": Group("Manage passwords and tokens in the vault.", "secret.set_ secret.list_ secret.remove"),
    "vault": Group(
        "Manage the vault, the encrypted file that holds your secrets.",
        "vault.init vault.unlock vault.lock vault.status vault.rotate vault.backup vault.restore",
    ),
    "config": Group("Read and change settings.", "config.get config.set_ config.add config.remove config.edit"),
    "audit": Group(
        "Inspect, export and verify the audit trail.",
        "audit.list_ audit.show audit.tail audit_verify.verify audit.export",
    ),
    "status": Single("Show what is running, and what waits for approval.", "status.status"),
    "doctor": Single("Check this machine, or an agent's connection to your actions.", "doctor.doctor"),
    "daemon": Group(
        "Manage the background service, which starts on demand.",
        "daemon.start daemon.stop daemon.restart daemon.status daemon.logs daemon.install daemon.uninstall",
    ),
    "completion": Single("Print the completion script for a shell.", "completion.completion"),
}


_LOOK_FIRST: Final = frozenset({"daemon"})
"""Modules whose commands first check whether a daemon runs and need msgspec only then; they call `import_msgspec` themselves."""


def imported(function: str) -> Command:
    """Import MODULE and return its function NAME, for `function` in the form MODULE.NAME."""
    import importlib

    module, _, name = function.partition(".")
    if module not in _LOOK_FIRST:
        import_msgspec()
    found: Command = getattr(importlib.import_module(f"{PACKAGE}.{module}"), name)
    return found


def import_msgspec() -> None:
    """Import msgspec, but keep it from importing typing_extensions, and thus inspect, to save 6 ms.

    Since Python 3.11, `typing` has everything that msgspec needs.
    """
    import sys

    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def check_in_cell(words: list[str]) -> None:
    """Check that a command works where this process runs: in a cell, only some commands do.

    Raises Problem for a command that does not work in a cell, before the command asks or reads anything.
    """
    is_group = isinstance(COMMANDS.get(words[0]), Group)
    if is_group and (len(words) == 1 or words[1].startswith("-")):
        return  # its help
    command = " ".join(words[:2] if is_group else words[:1])
    if not is_in_cell() or command in _IN_A_CELL or not set(HELP_FLAGS).isdisjoint(words):
        return
    raise Problem(
        f"`aileron {command}` does not work in a cell, as it is for the person who started the agent",
        exit_code=6,
        name="unauthorized",
        why="an agent in a cell has the tools of its session (MCP), `aileron run`, `aileron action list` and `aileron status`",
        fix=f"run `aileron {command}` in a terminal outside the cell",
    )
