"""Changes between two versions of an action file, and which of them widen the action, so that a person must consent.

Pure; runs in the daemon. Trusts neither file: the old one has the person's last consent, the new one may be from anybody
with an editor, or from an archive. The list of widening changes is closed and in one place; other changes are only shown.

Changes that widen
- a new file
- the gate removed; the preview removed, added or changed in any way, because the person's decision is based on it; for the same
  reason any change to the summary or to the effect of a step
- `irreversible` true to false; a longer time until the question expires; a shorter undo window
- in `[[requires.connectors]]` and `[[execute]]`: everything except a removed entry; and `idempotent` false to true
- an input that is new, of another type, or no longer required; that accepts more than before, or has another default; a change
  of its label, which is shown with its value when a person decides

Values are compared as JSON text: comments and layout do not count, and `1`, `1.0` and `true` are all different.

Source: docs/reference/consents.md. Not here: which files have consent (model/consent.py, approved_texts.py), and
asking (daemon/).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from aileron.actions.inputs import is_narrower
from aileron.model.consent import ActionFileConsent, Change
from aileron.model.manifest import ActionFile, ApprovalRule, ConnectorManifest, InputSpec, PreviewRule
from aileron.model.plan import ConnectorPin

__all__ = ["changes", "consent_of"]

_Facts = Mapping[str, str]
"""The values of one entry in an action file, such as a step, as text by key."""


def changes(before: ActionFile | None, after: ActionFile) -> tuple[Change, ...]:
    """Return every difference between two versions of an action file that a person would want to see, most important first.
    `before` is None for a new file.
    """
    if before is None:
        return (Change.of("file", None, f"{after.name} {after.version}"),)
    return tuple(_differences(before, after))


def consent_of(
    before: ActionFile | None,
    after: ActionFile,
    *,
    manifests: Callable[[ConnectorPin], ConnectorManifest],
    install: bool,
    replace: bool,
) -> ActionFileConsent:
    """Return the question about `after`, an action file, that a person must answer, with the hosts and credentials of
    the connectors that it pins.

    `manifests` returns the verified manifest of a pin. Its AileronError (not_found, hash_mismatch) is not caught, because nobody
    can consent to what cannot be shown.
    """
    pinned = [
        manifests(ConnectorPin(str(connector.name), connector.version, connector.hash))
        for connector in after.connectors
    ]
    needs = [manifest.credential for manifest in pinned if manifest.credential is not None]
    return ActionFileConsent(
        name=after.name,
        text=after.text,
        before=None if before is None else before.digest,
        changes=changes(before, after),
        reaches=tuple(sorted({str(host) for manifest in pinned for host in manifest.hosts})),
        credentials=tuple(sorted({f"{need.kind}: {need.scope}" for need in needs})),
        install=install,
        replace=replace,
    )


def _differences(before: ActionFile, after: ActionFile) -> Iterator[Change]:
    yield from _changed("name", before.name, after.name, widens=True)
    yield from _changed("summary", before.summary, after.summary, widens=True)
    yield from _approval(before.approval, after.approval)
    yield from _preview(before.preview, after.preview)
    yield from _entries("requires.connectors", _connectors(before), _connectors(after))
    yield from _entries("execute", _steps(before), _steps(after))
    yield from _idempotent(before, after)
    yield from _inputs({spec.name: spec for spec in before.inputs}, {spec.name: spec for spec in after.inputs})
    yield from _changed("tags", _maybe_json(before.tags), _maybe_json(after.tags), widens=False)
    for key in ("version", "source", "intent", "body"):
        yield from _changed(key, getattr(before, key), getattr(after, key), widens=False)


def _approval(before: ApprovalRule, after: ApprovalRule) -> Iterator[Change]:
    def told(key: str, was: bool | int, would_be: bool | int, widens: bool) -> Iterator[Change]:
        return _changed(f"approval.{key}", _json(was), _json(would_be), widens=widens)

    yield from told("required", before.required, after.required, not after.required)
    yield from told("irreversible", before.irreversible, after.irreversible, not after.irreversible)
    is_longer = after.expires_in_s > before.expires_in_s
    yield from told("expires_in (seconds)", before.expires_in_s, after.expires_in_s, is_longer)
    is_shorter = after.undo_window_s < before.undo_window_s
    yield from told("undo_window_s", before.undo_window_s, after.undo_window_s, is_shorter)


def _preview(before: PreviewRule | None, after: PreviewRule | None) -> Iterator[Change]:
    was, would_be = _preview_facts(before), _preview_facts(after)
    if before is None or after is None:
        yield from _changed(
            "approval.preview", _together(was) if before else None, _together(would_be) if after else None, widens=True
        )
        return
    for key, value in was.items():
        yield from _changed(f"approval.preview.{key}", value, would_be[key], widens=True)


def _preview_facts(rule: PreviewRule | None) -> _Facts:
    if rule is None:
        return {}
    return {
        "connector": str(rule.connector),
        "op": rule.op,
        "inputs": _json(rule.inputs),
        "render": _json(rule.render),
        "multiline": _json(sorted(rule.multiline)),
    }


def _connectors(action: ActionFile) -> dict[str, _Facts]:
    return {
        str(connector.name): {
            "version": connector.version,
            "hash": connector.hash,
            "capabilities": _json(connector.capabilities),
            "identity": connector.identity or "the caller chooses",
        }
        for connector in action.connectors
    }


def _steps(action: ActionFile) -> dict[str, _Facts]:
    return {
        step.id: {
            "connector": str(step.connector),
            "op": step.op,
            "effect": step.effect or "not declared",
            "inputs": _json(step.inputs),
        }
        for step in action.steps
    }


def _entries(table: str, before: dict[str, _Facts], after: dict[str, _Facts]) -> Iterator[Change]:
    """Yield the changes to the entries of a table, by name. A removed entry does not widen; an added or changed entry,
    or another order, does.
    """
    for name, facts in before.items():
        if name not in after:
            yield Change.of(f"{table} {name}", _together(facts), None, widens=False)
    for name, facts in after.items():
        if name not in before:
            yield Change.of(f"{table} {name}", None, _together(facts))
            continue
        for key, value in before[name].items():
            yield from _changed(f"{table} {name}: {key}", value, facts[key], widens=True)
    stay_before = ", ".join(name for name in before if name in after)
    stay_after = ", ".join(name for name in after if name in before)
    yield from _changed(f"{table}: order", stay_before, stay_after, widens=True)


def _idempotent(before: ActionFile, after: ActionFile) -> Iterator[Change]:
    were = {step.id: step.idempotent for step in before.steps}
    for step in after.steps:
        # A new step widens by itself; that it may be repeated is worth a line of its own.
        was = were.get(step.id, False)
        yield from _changed(
            f"execute {step.id}: idempotent", _json(was), _json(step.idempotent), widens=step.idempotent
        )


def _inputs(before: dict[str, InputSpec], after: dict[str, InputSpec]) -> Iterator[Change]:
    for name, spec in before.items():
        if name not in after:
            yield Change.of(f"inputs {name}", _together(_input_facts(spec)), None, widens=False)
    for name, spec in after.items():
        if name not in before:
            yield Change.of(f"inputs {name}", None, _together(_input_facts(spec)))
            continue
        was = before[name]
        yield from _changed(f"inputs {name}: type", was.type, spec.type, widens=True)
        yield from _changed(
            f"inputs {name}: required", _json(was.required), _json(spec.required), widens=not spec.required
        )
        is_wider = not is_narrower(was.rule, spec.rule)
        yield from _changed(f"inputs {name}: rule", _json(was.rule), _json(spec.rule), widens=is_wider)
        yield from _changed(f"inputs {name}: default", _default(was), _default(spec), widens=True)
        yield from _changed(f"inputs {name}: label", was.label, spec.label, widens=True)
        yield from _changed(f"inputs {name}: description", was.description, spec.description, widens=False)
        yield from _changed(f"inputs {name}: multiline", _json(was.multiline), _json(spec.multiline), widens=False)


def _input_facts(spec: InputSpec) -> _Facts:
    facts = {"type": spec.type, "required": _json(spec.required), "description": spec.description}
    if spec.rule:
        facts["rule"] = _json(spec.rule)
    return facts if (default := _default(spec)) is None else {**facts, "default": default}


def _default(spec: InputSpec) -> str | None:
    return None if spec.default is msgspec.UNSET else _json(spec.default)


def _changed(where: str, before: str | None, after: str | None, *, widens: bool) -> Iterator[Change]:
    if before != after:
        yield Change.of(where, before, after, widens=widens)


def _maybe_json(tags: tuple[str, ...]) -> str | None:
    return _json(tags) if tags else None


def _together(facts: _Facts) -> str:
    return "\n".join(f"{key} = {value}" for key, value in facts.items())


def _json(value: Any) -> str:
    """Return a value as JSON text. Values that TOML distinguishes have different texts, and so have tables whose keys
    are in another order.
    """
    return json.dumps(value, ensure_ascii=False)
