"""Reports of finished changes, printed by the command that asked for the change or by the command that approved it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never

import msgspec
from msgspec import UNSET

from aileron.api.actions import AddedAction
from aileron.api.approvals import AllowedHost, ApprovedFile, GrantMade, PasskeyEnrolled, SettingsApproved, ToolAccepted
from aileron.api.bindings import BindingEntry
from aileron.api.connectors import ConnectorEntry, CredentialWanted, InstalledConnector
from aileron.api.fetches import Installed
from aileron.api.publishers import TrustedKeys
from aileron.api.secrets import SecretStored
from aileron.cli import output
from aileron.cli.supervisor import read
from aileron.model.consent import ConsentKind
from aileron.model.login import LoginTarget
from aileron.model.visible import visible

if TYPE_CHECKING:  # other commands need not wait for this import
    from aileron.registry.connector_build import Built

__all__ = ["print_connector", "result_of", "tell_done", "tell_packed"]

_MAX_NAMED = 8
"""Maximum number of omitted files that are listed for one reason: two lines of a terminal."""


def result_of(kind: str, result: Any) -> Any:
    """Return an approval's result as the response type of the route that asked for the consent; plain JSON if this
    version does not know the kind.
    """
    fields = result if isinstance(result, dict) else {}
    try:
        wanted = _result_type(ConsentKind(kind), fields)
    except ValueError:
        return result
    return result if wanted is None else read(wanted, result)


def _result_type(kind: ConsentKind, fields: dict[str, object]) -> type[msgspec.Struct] | None:
    """Return the type of the result of an approval of this kind, whose JSON has these fields; None for a run."""
    match kind:
        case ConsentKind.ACTION:
            return None
        case ConsentKind.ACTION_FILE:
            return AddedAction if "replaced" in fields else ApprovedFile
        case ConsentKind.CONNECTOR | ConsentKind.CONNECTOR_UPDATE:
            return InstalledConnector
        case ConsentKind.INSTALLATION:
            return Installed
        case ConsentKind.TRUSTED_KEY:
            return TrustedKeys
        case ConsentKind.BINDING:
            return BindingEntry
        case ConsentKind.SECRET:
            return SecretStored
        case ConsentKind.GRANT:
            return GrantMade
        case ConsentKind.PASSKEY:
            return PasskeyEnrolled
        case ConsentKind.SETTINGS:
            return SettingsApproved
        case ConsentKind.TOOL_CHANGE:
            return ToolAccepted
        case ConsentKind.HOST:
            return AllowedHost
        case impossible:
            assert_never(impossible)


def tell_done(result: Any) -> None:
    """Report a change: print the name in `result`, the route's response, on standard output, and notes about it on
    standard error.
    """
    match result:
        case Installed():
            _tell_installed(result)
        case AddedAction():
            _tell_action(result)
        case ApprovedFile():
            output.write(visible(result.name))
            output.note("the action may run with its current file")
        case InstalledConnector():
            _tell_connector(result)
        case TrustedKeys():
            output.write(visible(result.key))
            state = "already trusted" if result.new is False else "trusted"
            output.note(f"{state} for {visible(result.authority)}")
        case BindingEntry():
            output.write(visible(result.name))
            output.note(f"{visible(result.connector)} {_what_it_uses(result)}")
        case SecretStored():
            output.note(f"stored {visible(result.name)}")
        case GrantMade():
            output.write(visible(result.id))
            until = output.local_time(result.until, "stderr")
            output.note(
                f"{visible(result.action)} runs without approval within these limits, at most {result.uses} times, "
                f"until {until}"
            )
        case PasskeyEnrolled():
            output.write(visible(result.id))
            output.note(f"{visible(result.name)} can sign decisions on {visible(result.origin)}")
        case SettingsApproved():
            later = "takes effect when the daemon restarts\n  fix: aileron daemon restart"
            output.note(later if result.restart else "in effect")
        case AllowedHost():
            output.write(visible(result.host))
            output.note(f"the session {visible(result.session)} can connect there until it ends")
        case ToolAccepted():
            output.write(visible(result.action))
            output.note(f"{visible(result.op)} of {visible(result.connector)} runs again, as its server has it now")
        case _:
            output.print_result(result)


def print_connector(entry: ConnectorEntry) -> None:
    """Print a connector: the hosts that it can reach, the functions that it can use, and its limits."""
    limits = {} if entry.limits is UNSET else msgspec.to_builtins(entry.limits)
    output.print_facts(
        [
            ("name", entry.name or None),
            ("version", entry.version or None),
            ("hash", entry.hash),
            ("problem", entry.problem or None),
            ("reaches", entry.hosts or "nothing"),
            ("credential", f"{entry.credential.kind} ({entry.credential.scope})" if entry.credential else "none"),
            *(_way(entry.credential) if entry.credential else ()),
            ("uses", ", ".join(entry.imports or []) or "nothing"),
            ("limits", ", ".join(f"{name} {output.as_text(value)}" for name, value in limits.items()) or None),
        ]
    )


def _way(wanted: CredentialWanted) -> tuple[tuple[str, Any], ...]:
    """Return facts about how the credential is sent, or where the connector logs in and what it can execute there.

    The daemon has checked these facts.
    """
    return (
        ("sent as", wanted.sent_as or None),
        ("logs in at", [LoginTarget.parse(login).words for login in wanted.logins or ()] or None),
        ("executes", wanted.commands or None),
    )


def _what_it_uses(binding: BindingEntry) -> str:
    """Return the account of a sign-in, or the secret of any other binding."""
    if binding.kind == "oauth2" and (binding.account or binding.expires_at):
        return f"acts as {visible(binding.account or 'whoever signed in')}"
    return f"uses the secret {visible(binding.secret)}"


def _tell_action(added: AddedAction) -> None:
    output.write(visible(added.name))
    for connector, pin in (added.bound or {}).items():
        output.note(f"bound {visible(connector)} to {visible(pin)}")
    output.note("replaced the installed action of that name" if added.replaced else "added")
    for need in added.needs or []:
        output.note(f"needed before it can run: {visible(need)}")


def _tell_installed(done: Installed) -> None:
    """Report what was installed together. A connector that was installed alone is reported in full; others get a line each."""
    if not done.actions and len(done.connectors) == 1:
        _tell_connector(done.connectors[0])
        return
    for connector in done.connectors:
        output.note(f"installed {visible(str(connector.name))}@{visible(str(connector.version))}")
    for action in done.actions:
        _tell_action(action)
    for binding in done.bindings:
        output.note(f"{visible(binding.name)} {_what_it_uses(binding)}")


def _tell_connector(installed: InstalledConnector) -> None:
    print_connector(installed)
    for gone in installed.replaced:
        output.note(
            f"replaced {visible(gone)}: actions pinned to it stop working, until you add them again with --force"
        )
    signature = visible(installed.signature)
    output.note(f"installed, {signature}" if installed.new else "already installed with this content")


def tell_packed(built: Built) -> None:
    """Print on standard error the packed files that are not Python files, because they are published too, and the omitted
    files by reason.
    """
    if built.data:
        output.note(f"data files included: {_named(built.data)}")
    reasons = sorted({omission.reason for omission in built.left_out})
    for reason in reasons:
        output.note(
            f"left out ({reason}): {_named([omission.path for omission in built.left_out if omission.reason == reason])}"
        )
    if built.unnamed:
        output.note(f"left out: {built.unnamed} more files")


def _named(paths: Sequence[str]) -> str:
    more = f", and {len(paths) - _MAX_NAMED} more (see `connector build --json`)" if len(paths) > _MAX_NAMED else ""
    return ", ".join(visible(path) for path in paths[:_MAX_NAMED]) + more
