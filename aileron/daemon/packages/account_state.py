"""The state of an account: whether its credential works, who it belongs to, when it was last used, and what mends it.

Runs in the daemon, in a read of the ledger.

Rules
- What happened before a secret was last changed says nothing about the present one.
- The name that a service gave an account is hostile text, returned unchanged.

Source: docs/reference/http-api.md#services. Not here: what belongs to an account (account.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from aileron.api.bindings import BindingEntry
from aileron.api.services import ServiceEntry, ServiceState
from aileron.audit.uses import Use, newest_result, newest_uses
from aileron.catalogue.preparing import label
from aileron.daemon.packages.account import ConnectedAccount
from aileron.ledger import Snapshot
from aileron.model.timestamp import utc

__all__ = ["AccountUse", "entry_of", "use_of"]

_STATES: Final[dict[str, ServiceState]] = {
    "ok": "ready",
    "suspended": "suspended",
    "expired": "expired",
    "failed": "failed",
    "unknown": "locked",
}
"""States of an account by that of its worst binding."""
_WORST_FIRST: Final = ("failed", "expired", "suspended", "unknown", "ok")
_MAX_NAME: Final = 100
"""Maximum number of characters of an account's name that are returned: names of accounts are shorter, mail addresses too."""


class AccountUse(NamedTuple):
    """Facts from the record about an account's present credentials: when one was last used, a binding whose last use failed for
    its credential, with that use, and the name that the service gave the account.
    """

    last_used_at: str | None
    failed: tuple[BindingEntry, Use] | None
    name: str | None


def use_of(snapshot: Snapshot, account: ConnectedAccount, changed: Mapping[str, str]) -> AccountUse:
    """Return what the record says about an account. `changed` has the time of each secret's last change, by the secret's name."""
    uses = newest_uses(snapshot, account.connector)
    own = [(binding, uses[binding.name]) for binding in account.bindings if binding.name in uses]
    failed = [
        (binding, use) for binding, use in own if use.problem and _at(use.at_us) > changed.get(binding.secret, "")
    ]
    name = next((binding.account for binding in account.bindings if binding.account), None)
    if name is None and not failed:
        since = max((changed.get(binding.secret, "") for binding in account.bindings), default="")
        name = _name_at_service(snapshot, account, since)
    return AccountUse(
        last_used_at=_at(max(use.at_us for _, use in own)) if own else None,
        failed=failed[0] if failed else None,
        name=name,
    )


def _name_at_service(snapshot: Snapshot, account: ConnectedAccount, since: str) -> str | None:
    """Return the name that the service gave the account when it was last checked, after the time `since`."""
    check = None if account.service is None else account.service.check
    if check is None or check.account is None:
        return None
    found = newest_result(snapshot, label(check.action, account.identity))
    if found is None or _at(found.at_us) <= since or not isinstance(found.result, dict):
        return None
    name = found.result.get(check.account)
    return name[:_MAX_NAME] if isinstance(name, str) and name else None


def _at(at_us: int) -> str:
    return utc(at_us / 1_000_000)


def entry_of(account: ConnectedAccount, use: AccountUse) -> ServiceEntry:
    """Return an account as a person is told of it."""
    newest = account.versions[-1] if account.versions else None
    needs = any(entry.credential for entry in account.versions)
    state, problem, fix = _state(account, use, needs_credential=needs)
    return ServiceEntry(
        name=account.name,
        service=None if account.service is None else account.service.name,
        identity=account.identity,
        connector=account.connector if newest is None else f"{account.connector}@{newest.version}",
        hosts=sorted({host for entry in account.versions for host in entry.hosts or []}),
        bindings=[binding.name for binding in account.bindings],
        account=use.name,
        actions=[action.name for action in account.actions],
        last_used_at=use.last_used_at,
        state=state,
        problem=problem,
        fix=fix,
        newer=_is_newer(account),
    )


def _state(
    account: ConnectedAccount, use: AccountUse, *, needs_credential: bool
) -> tuple[ServiceState, str | None, str | None]:
    """Return an account's state, the problem in words, and the command that mends it."""
    if not account.versions:
        return "failed", "its connector is not installed", f"aileron remove {account.name}"
    if not account.bindings:
        if not needs_credential:
            return "ready", None, None
        setup = f"aileron binding setup {account.connector}"
        return "no_credential", "it needs a credential and has none", setup
    worst = min(account.bindings, key=lambda binding: _WORST_FIRST.index(binding.state))
    state = _STATES[worst.state]
    match worst.state:
        case "suspended":
            return state, "its connector asks for more than you approved", f"aileron binding rebind {worst.name}"
        case "expired" | "failed":
            return state, "the service refuses its credential, or it has expired", _fix_of(worst)
        case "ok" if use.failed is not None:
            return "failed", *_problem_of(*use.failed)
        case _:
            return state, None, None


def _problem_of(binding: BindingEntry, use: Use) -> tuple[str, str]:
    if use.problem == "refused":
        return "the service refused its credential when it was last used", _fix_of(binding)
    return "its credential failed when it was last used; the run says why", f"aileron audit show {use.run}"


def _fix_of(binding: BindingEntry) -> str:
    if binding.kind == "oauth2":
        return f"aileron binding reauthorize {binding.name}"
    return f"aileron secret set {binding.secret}"


def _is_newer(account: ConnectedAccount) -> bool:
    """Return whether Aileron came with another version of the connector than the account's actions use."""
    if account.service is None:
        return False
    used = {
        needed.version
        for action in account.actions
        for needed in action.connectors
        if str(needed.name) == account.connector
    }
    return not used <= {account.service.version}
