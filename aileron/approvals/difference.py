"""Differences between a call and the most similar approved call of the same action.

Pure; runs in the daemon. A person who approves the tenth call of an action has read the same text nine times, so differences
are shown on top: another recipient, a larger amount, a new host. If mails go alternately to two people, each mail would differ
much from the newest approved mail, which went to the other person. Compared with the most similar mail, only new values
differ.

>>> [(change.where, change.before, change.after) for change in _arguments({"amount": 10}, {"amount": 1000})]
[('args.amount (larger)', '10', '1000')]

Source: docs/reference/consents.md. Not here: which calls were approved (audit/), and changes of the file (actions/widening.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import UNSET

from aileron.model.consent import Change
from aileron.model.json_value import JSONObject
from aileron.model.plan import CredentialUse, Plan, Step

__all__ = ["differences", "most_similar"]


def differences(before: Plan, now: Plan) -> tuple[Change, ...]:
    """Return the differences between two plans of one action in this order: arguments, new hosts, another credential, another
    connector.

    `where` names the argument and its kind of change: `args.to (new)`, `args.amount (larger)` or `(smaller)`, `args.cc (added)`
    or `(left out)`, and `(changed)` for a boolean. Every difference is marked as widening, except a smaller number and an
    argument that is left out.
    """
    return (
        *_arguments(before.args, now.args),
        *_hosts(_steps(before), _steps(now)),
        *_credentials(_steps(before), _steps(now)),
        *_connectors(_steps(before), _steps(now)),
    )


def most_similar(approved: Iterable[Plan], now: Plan) -> int:
    """Return the index of the approved call that differs least from `now`; of several equally similar calls, the
    newest.

    `approved` has at least one call, the newest first.
    """
    counts = [len(differences(before, now)) for before in approved]
    return counts.index(min(counts))


def _steps(plan: Plan) -> tuple[Step, ...]:
    return plan.steps if plan.preview is None else (*plan.steps, plan.preview.step)


def _arguments(before: JSONObject, now: JSONObject) -> Iterator[Change]:
    for name in [*now, *(name for name in before if name not in now)]:
        if name not in before:
            yield Change.of(f"args.{name} (added)", None, _spelled(now[name]))
        elif name not in now:
            yield Change.of(f"args.{name} (left out)", _spelled(before[name]), None, widens=False)
        elif _json(before[name]) != _json(now[name]):  # 1, true and "1" are three things
            how = _how(before[name], now[name])
            where = f"args.{name} ({how})"
            yield Change.of(where, _spelled(before[name]), _spelled(now[name]), widens=how != "smaller")


def _how(before: Any, now: Any) -> str:
    if _is_number(before) and _is_number(now) and before != now:
        return "larger" if now > before else "smaller"
    return "changed" if isinstance(now, bool) else "new"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _hosts(before: tuple[Step, ...], now: tuple[Step, ...]) -> Iterator[Change]:
    known = {host for step in before for host in step.grant.hosts}
    for host in sorted({host for step in now for host in step.grant.hosts} - known):
        yield Change.of("host (new)", None, str(host))


def _credentials(before: tuple[Step, ...], now: tuple[Step, ...]) -> Iterator[Change]:
    known = _uses(before)
    for (connector, role), uses in _uses(now).items():
        earlier = known.get((connector, role), [])
        for use in uses:
            if all(_is_another(was, use) for was in earlier):
                replaced = next((was for was in earlier if all(_is_another(was, kept) for kept in uses)), None)
                yield Change.of(f"credential of {connector}", None if replaced is None else replaced.whose, use.whose)


def _connectors(before: tuple[Step, ...], now: tuple[Step, ...]) -> Iterator[Change]:
    yield from _by_connector("connector", _pins(before), _pins(now))


def _uses(steps: tuple[Step, ...]) -> dict[tuple[str, bool], list[CredentialUse]]:
    """Return the credentials that the steps use, by connector name and by whether they log in as a read-only role. An
    action may read its preview with one binding and write with another.
    """
    uses: dict[tuple[str, bool], list[CredentialUse]] = {}
    for step in steps:
        use = step.grant.credential
        if use is not None:
            uses.setdefault((step.connector.name, use.login == "read_only"), []).append(use)
    return uses


def _is_another(use: CredentialUse, other: CredentialUse) -> bool:
    """Return whether two credentials of one connector differ in their binding, or in an account or login that is known
    for both. A binding's name alone is not enough, because it can be reused.
    """
    is_named = use.account is not None and other.account is not None
    is_known = use.bound is not UNSET and other.bound is not UNSET
    return (
        use.binding != other.binding
        or (is_named and use.account != other.account)
        or (is_known and use.bound != other.bound)
    )


def _pins(steps: tuple[Step, ...]) -> dict[str, str]:
    return {step.connector.name: f"{step.connector.version} {step.connector.hash}" for step in steps}


def _by_connector(kind: str, before: dict[str, str], now: dict[str, str]) -> Iterator[Change]:
    for name, value in now.items():
        if before.get(name) != value:
            yield Change.of(f"{kind} {name}", before.get(name), value)


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
