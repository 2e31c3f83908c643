"""`aileron binding`: which credential serves which connector, and for what.

`setup` asks a person for missing details; without a terminal it lists the missing options.

Not here: asking (cli/bind.py), signing in (cli/signin.py).
"""

from __future__ import annotations

from typing import Annotated

from aileron.api.bindings import BindingDetail, BindingEntry, BindingList
from aileron.api.secrets import VaultState
from aileron.cards.plan import host_line
from aileron.cli import output
from aileron.cli.commands.completion import binding_names
from aileron.cli.commands.options import AsJson
from aileron.cli.declared import Argument
from aileron.cli.plan import COLUMN
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.client_certificate import CertificateFacts
from aileron.model.credential import Reach, login_facts, wire_facts
from aileron.model.fixes import Stored, fix_for
from aileron.model.login import LoginDetails
from aileron.model.names import BindingName
from aileron.model.visible import visible

__all__ = ["Name", "inspect", "list_", "needs_provider"]

Name = Annotated[
    str, Argument(metavar="KIND/SERVICE/IDENTITY", help="Name of the binding.", autocompletion=binding_names)
]
_FIXES = {"suspended": "inspect", "expired": "reauthorize", "failed": "reauthorize"}
"""Subcommand that fixes a binding, for each state except `ok` and `unknown`."""
_STATES = {
    "suspended": "its connector asks for more than you approved",
    "expired": "its sign-in has expired and cannot be renewed",
    "failed": "the provider refused to renew it",
    "unknown": "its client certificate cannot be seen until the vault is unlocked and the secret was fetched",
}


def list_(as_json: AsJson = False) -> None:
    """List bindings."""
    supervisor = Supervisor()
    found = supervisor.fetch(BindingList, "GET", "/v1/bindings")
    if as_json:
        output.print_json(found)
        return
    output.print_table(
        ("NAME", "ACCOUNT", "STATE", "CONNECTOR"),
        [(entry.name, _account(entry), entry.state, entry.connector) for entry in found.bindings],
        empty="no bindings\n  fix: aileron binding setup CONNECTOR",
    )
    if output.is_terminal():
        for entry in found.bindings:
            _note_state(supervisor, entry)


def inspect(name: Name, as_json: AsJson = False) -> None:
    """Show a binding: its access, account, state and uses."""
    supervisor = Supervisor()
    shown = supervisor.fetch(BindingDetail, "GET", path_of("v1", "bindings", name))
    if as_json:
        output.print_json(shown)
        return
    reach = shown.reach or Reach()
    output.print_facts(
        [
            ("name", shown.name),
            ("connector", shown.connector),
            ("state", _state(shown)),
            ("new", shown.suspended or None),
            ("account", shown.account),
            ("user name", shown.username if shown.username != shown.account else None),
            *login_facts(shown.details or None),
            ("reaches", [host_line(host) for host in reach.hosts] or "nothing"),
            ("asked for", reach.scopes or None),
            ("granted", shown.grant.scopes if shown.grant else None),
            *wire_facts(reach.wire),
            ("application", reach.client),
            ("secret", shown.secret),
            ("kept at", shown.elsewhere.words if shown.elsewhere else None),
            ("bound", output.local_time(shown.created_at)),
            ("last used", output.local_time(shown.last_used_at) if shown.last_used_at else "never"),
            ("renewed", output.local_time(shown.refreshed_at) if shown.refreshed_at else None),
            *_certificate(shown),
            ("ends", _end(shown)),
            ("used by", _users(shown)),
        ],
        column=COLUMN,
    )
    _note_state(supervisor, shown)


def _account(entry: BindingEntry) -> str | None:
    """Return the account of a binding, as text for a person; None if the binding has none.

    For a login, add the database, whether the role is read-only, and a weaker password form.
    """
    details = entry.details or LoginDetails()
    more = [f"database {details.database}"] if details.database is not None else []
    more += ["only reads"] if details.read_only else []
    more += [f"{details.weak_password} password"] if details.weak_password else []
    return f"{entry.account or ''} ({', '.join(more)})" if more else entry.account


def _state(shown: BindingDetail) -> str:
    return f"{shown.state}: {_why(shown)}" if shown.state in _STATES else shown.state


def _why(entry: BindingEntry) -> str:
    is_certificate = entry.state == "expired" and entry.kind == "mtls"
    return "its client certificate has expired" if is_certificate else _STATES[entry.state]


def _certificate(shown: BindingDetail) -> list[tuple[str, str | None]]:
    found = shown.certificate
    if not isinstance(found, CertificateFacts):
        return []
    return [("certificate", found.subject or "without a name"), ("issued by", found.issuer or "without a name")]


def _note_state(supervisor: Supervisor, entry: BindingEntry) -> None:
    if entry.state not in _STATES:
        return
    name = visible(entry.name)
    if entry.state == "unknown":
        is_locked = supervisor.fetch(VaultState, "GET", "/v1/vault/status").locked
        how = "\n  fix: aileron vault unlock" if is_locked else ": that is, with the next run that uses it"
        output.note(f"{name} may be expired: {_STATES[entry.state]}{how}")
        return
    verb = _FIXES[entry.state]
    if entry.state == "expired" and entry.kind == "mtls":
        output.note(f"{name} is expired: {_why(entry)}\n  fix: {_new_certificate(entry)}")
        return
    if isinstance(entry, BindingDetail) and entry.state == "suspended":
        verb = "reauthorize" if needs_provider(entry) else "rebind"
    output.note(f"{name} is {entry.state}: {_STATES[entry.state]}\n  fix: aileron binding {verb} {name}")


def _new_certificate(entry: BindingEntry) -> str:
    reference = entry.elsewhere.reference if entry.elsewhere else None
    return visible(fix_for(BindingName.parse(entry.name), Stored(entry.secret, reference)))


def needs_provider(shown: BindingDetail) -> bool:
    """Return whether the connector newly asks for scopes or an application that only the provider can grant."""
    return shown.kind == "oauth2" and any(words.startswith(("scope ", "application ")) for words in shown.suspended)


def _end(shown: BindingDetail) -> str | None:
    if not shown.expires_at:
        return None
    left = output.time_left(shown.expires_at)
    if shown.kind == "mtls":
        return left if shown.state == "expired" else f"{left}; before that, {_new_certificate(shown)}"
    is_renewed = shown.grant is not None and shown.grant.refreshable
    return f"{left}; renewed automatically" if is_renewed else f"{left}; sign in again after that"


def _users(shown: BindingDetail) -> list[str]:
    return [
        f"{user.connector}@{user.version}: {', '.join(user.actions) or 'no action'}"
        f"{'  (asks for more)' if user.suspended else ''}"
        for user in shown.used_by
    ] or ["nothing installed"]
