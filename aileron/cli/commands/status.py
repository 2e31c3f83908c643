"""`aileron status`: what is running, and what waits for approval.

The command starts no daemon, because it must not change anything.
"""

from __future__ import annotations

from aileron.api.daemon import Status
from aileron.api.secrets import VaultState
from aileron.cli import output
from aileron.cli.commands.daemon import facts_of, not_running
from aileron.cli.commands.options import AsJson
from aileron.cli.supervisor import Supervisor
from aileron.client import is_in_cell

__all__ = ["kept_back", "signed_by", "state_of", "status"]

_MOST_WAITING = 3
"""Maximum number of requests that `status` lists; `approval list` lists all."""


def status(as_json: AsJson = False) -> None:
    """Show what is running, and what waits for approval."""
    supervisor = Supervisor()
    running = supervisor.maybe_fetch(Status, "/v1/status")
    if running is None:
        raise not_running()
    if as_json:
        output.print_json(running)
        return
    output.print_facts(
        [
            *facts_of(running),
            ("vault", state_of(running.vault)),
            ("actions", running.actions),
            ("connectors", running.connectors),
            ("waiting", _waiting(supervisor, running)),
            ("decisions", signed_by(running)),
            ("settings", kept_back(running)),
        ]
    )


def state_of(status: VaultState) -> str:
    """Return the state of the vault in words."""
    if not status.exists:
        return "none"
    if status.problem:
        return f"cannot be read: {status.problem}"
    return "locked" if status.locked else "unlocked"


def signed_by(running: Status) -> str:
    """Return, as far as the daemon knows, whether decisions are signed and by whom."""
    found = running.approver
    match found.status:
        case "none":
            return "not signed: any process of this user can make them"
        case "ready":
            count = found.passkeys or 0
            beside = f" or by {count} enrolled passkey{'' if count == 1 else 's'}" if count else ""
            return f"signed by {found.key_id}{beside}"
        case "locked":
            return "signed; unlock the vault to see by whom"
        case other:
            return found.problem or other


def kept_back(running: Status) -> str | None:
    """Return which keys of config.toml are not in force, and why; None if all keys are."""
    if running.settings_problem:
        return f"config.toml is not in effect: {running.settings_problem}"
    found = [
        f"config.toml is not in effect for {', '.join(keys)}: {why}"
        for keys, why in (
            (running.settings_waiting, "needs your approval (aileron approval list)"),
            (running.settings_at_start, "needs a restart of the daemon (aileron daemon restart)"),
        )
        if keys
    ]
    return "; ".join(found) or None


def _waiting(supervisor: Supervisor, running: Status) -> list[str]:
    """Return a line with the number of requests that wait for approval, and a line for each of the first of them."""
    if not running.pending or is_in_cell():
        return [f"{running.pending} for approval"]
    from aileron.api.approvals import ApprovalList
    from aileron.cards.question import waits
    from aileron.cards.row import rows_for

    listed = supervisor.maybe_fetch(ApprovalList, "/v1/action-approvals")
    if listed is None:
        return [f"{running.pending} for approval"]
    waiting = [entry for entry in listed.approvals if waits(entry)]
    rows = [f"{row.asker}: {row.text}" for row in list(rows_for(waiting).values())[:_MOST_WAITING]]
    return [f"{running.pending} for approval: aileron approval list", *rows]
