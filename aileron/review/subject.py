"""What a consent is about, as a person reads it before they agree: what matters most first.

Pure. All of it was written by somebody else: authors of actions and connectors, services, and whatever answered for the daemon;
the digest of a decision covers the subject whole.

Rules
- Widening is a word, not a colour.

Source: docs/reference/consents.md. Not here: runs (plan.py), the question around it (question.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, assert_never

from aileron.model.consent import (
    ActionFileConsent,
    BindingConsent,
    Change,
    ConnectorConsent,
    ConnectorUpdateConsent,
    Constraint,
    GrantConsent,
    PasskeyConsent,
    SecretConsent,
    SettingsConsent,
    Subject,
    TrustedKeyConsent,
)
from aileron.model.credential import wire_words
from aileron.model.visible import as_text
from aileron.review.changes import change_lines
from aileron.review.plan import FactRow, cut, host_line, missing_lines, text_lines

__all__ = ["SYNCED", "constraint_words", "subject_changes", "subject_facts"]

SYNCED: Final = {
    "no": "no, it stays in one device",
    "possible": "it can be, by whoever keeps its account",
    "yes": "yes, by whoever keeps its account",
}
"""Whether a passkey is on other devices too."""

_MAX_FILE_LINES = 6
"""Of an action's file: what it comes to stands above it, and the question below; a screen has 24."""


def constraint_words(constraint: Constraint) -> str:
    """One condition of a grant: `to is "mira@example.com"`."""
    name, value = constraint.argument, constraint.value
    match constraint.operator:
        case "equals":
            return f"{name} is {_json(value)}"
        case "one_of" if isinstance(value, list):
            return f"{name} is one of {', '.join(_json(one) for one in value)}"
        case "prefix":
            return f"{name} begins with {_json(value)}"
        case "at_most":
            return f"{name} is at most {_json(value)}"
        case other:
            return f"{name} {other} {_json(value)}"


def subject_changes(subject: Subject) -> tuple[Change, ...]:
    """What is other than what was agreed to before, where that can be told."""
    return subject.changes if isinstance(subject, ActionFileConsent | ConnectorUpdateConsent) else ()


def subject_facts(subject: Subject, more: str | None, when: Callable[[str | None], str]) -> list[FactRow]:
    """Name and value of each fact, a list for several lines; None where there is nothing to say."""
    match subject:
        case ActionFileConsent():
            return list(_of_action_file(subject, more))
        case ConnectorConsent():
            return list(_of_connector(subject, more))
        case BindingConsent():
            return list(_of_binding(subject))
        case SecretConsent():
            return [
                ("secret", f"{subject.name} gets another value"),
                ("used by", list(subject.bindings)),
                ("value", "not shown; agree only if it was you who set it just now"),
                ("commitment", subject.commitment),
            ]
        case TrustedKeyConsent():
            return list(_of_trusted_key(subject))
        case GrantConsent():
            return list(_of_grant(subject, more, when))
        case SettingsConsent():
            return [("settings", _settings_lines(subject, more))]
        case PasskeyConsent():
            return list(_of_passkey(subject))
        case impossible:
            assert_never(impossible)


def _of_binding(subject: BindingConsent) -> Iterator[FactRow]:
    """Whose credential it is, and all that it may be used for. A sign-in has no secret yet that anybody could name."""
    connector, is_sign_in = subject.connector, subject.commitment is not None
    yield "binding", f"{subject.name}{', in place of the one there is' if subject.replaces else ''}"
    if is_sign_in:
        yield "so that", f"{connector} may use the sign-in that was just made"
        yield "account", subject.account or "the provider did not say whose it is"
    else:
        yield "so that", f"{connector} may use the secret {subject.secret}"
        yield "user name", subject.username
        yield "account", subject.account
    yield "reaches", _hosts(subject)
    yield "scopes", list(subject.scopes) or None
    yield "sent as", wire_words(subject.wire) or None
    yield "application", subject.client
    if is_sign_in:
        yield "value", "not shown; agree only if it was you who signed in just now"
        yield "commitment", subject.commitment


def _of_action_file(subject: ActionFileConsent, more: str | None) -> Iterator[FactRow]:
    is_new = subject.before is None
    is_wider = any(change.widens for change in subject.changes)
    how = "new" if is_new else "wider than what you agreed to" if is_wider else "changed since you agreed to it"
    yield "signature", subject.signature
    yield "action", f"{subject.name}, its file: {how}"
    yield "from", subject.fetched
    if subject.installs:
        count = len(subject.installs)
        yield (
            "with",
            "1 new connector, asked about by itself" if count == 1 else f"{count} new connectors, each asked about",
        )
    yield "so that", "it is installed, and may run" if subject.install else "it may run as it lies there now"
    if subject.replace:
        yield "replaces", "the action of that name"
    intent, when = _what_it_is(subject.text)
    yield "intent", intent
    yield "each run", when
    yield "reaches", _hosts(subject)
    yield "credential", list(subject.credentials) or "none"
    if not is_new:
        yield "changes", change_lines(subject.changes, more, marks=True) or "none"
    text = subject.text.rstrip("\n")
    if is_new or more is None or subject.fetched is None:
        yield "text", text_lines(text, more, lines=_MAX_FILE_LINES)
    else:  # the changes say what is new, and stand on one screen with the question
        yield "text", missing_lines(len(text), "characters", more)


def _what_it_is(text: str) -> tuple[str | None, str | None]:
    """What it is for, and whether a run is asked about, out of the very text that is signed; None where that cannot be read."""
    from aileron.actions.manifest import parse_action
    from aileron.model.failure import AileronError

    try:
        action = parse_action(text, file="the action", allow_placeholder=True)
    except AileronError:
        return None, None
    return action.intent, "is asked about" if action.approval.required else "goes through: NOBODY IS ASKED"


def _of_connector(subject: ConnectorConsent, more: str | None) -> Iterator[FactRow]:
    """Whose it is said to be, and by what that is known, before what it would be allowed."""
    yield "signature", subject.signature
    yield "connector", f"{subject.name}@{subject.version}"
    yield "publisher", subject.publisher
    yield "from", subject.source if subject.source != f"{subject.name}@{subject.version}" else None
    yield "hash", subject.hash
    yield "for", subject.for_action
    if isinstance(subject, ConnectorUpdateConsent):
        changes = change_lines(subject.changes, more, marks=True)
        yield "differs", [f"from {subject.before}{':' if changes else ' in nothing it may do'}", *changes]
    yield "reaches", _hosts(subject)
    yield "credential", subject.credential or "none"
    yield "uses", ", ".join(subject.imports) or "nothing"
    yield "limits", ", ".join(f"{name} {as_text(value)}" for name, value in subject.limits.items())
    match subject.on_conflict:
        case "replace":
            yield "replaces", "other bytes of that version, if there are any: actions pinned to them no longer run"
        case "keep_both":
            yield "beside", "other bytes of that version, if there are any"


def _of_trusted_key(subject: TrustedKeyConsent) -> Iterator[FactRow]:
    """Whose key it is said to be, and what it would be worth."""
    authority = subject.authority
    whole = " and all their repositories" if authority.count("/") == 2 else ""  # scheme://owner
    yield "publisher", authority
    yield "key", subject.new
    yield "from", subject.source
    yield "so that", f"what it signs counts as signed by {authority}{whole}"
    yield "beside", list(subject.before) or "no other key"
    yield "compare", "it with what its publisher says elsewhere: whoever has that key can sign for them"


def _of_grant(subject: GrantConsent, more: str | None, when: Callable[[str | None], str]) -> Iterator[FactRow]:
    words = [line for one in subject.constraints for line in cut("", constraint_words(one), more)]
    yield "grant", f"runs of {subject.action} are not asked about"
    yield "where", words or "ALWAYS: whatever its arguments are"
    yield "at most", f"{subject.uses} times"
    yield "until", when(subject.until)
    yield "account", list(subject.credentials) or "none"
    yield "action file", subject.action_digest


def _of_passkey(subject: PasskeyConsent) -> Iterator[FactRow]:
    """Whose it is said to be, and what to compare: nothing proves where it is."""
    yield "passkey", subject.name
    yield "key", subject.key_id
    yield "compare", "it with what your page shows; agree only if it was you who made it just now"
    yield "so that", "it decides as your key does, but for other passkeys and settings"
    yield "page", subject.origin
    yield "copied", SYNCED[subject.synced]
    yield "device", ", ".join(subject.transports) or "it does not say"
    yield "model", subject.aaguid
    yield "algorithm", subject.algorithm


def _settings_lines(subject: SettingsConsent, more: str | None) -> list[str]:
    before, after = subject.before, subject.after
    changes: Iterable[Change] = [
        Change(where=key, before=_maybe_json(before, key), after=_maybe_json(after, key))
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key) or (key in before) != (key in after)
    ]
    return change_lines(changes, more) or ["no change"]


def _hosts(subject: ActionFileConsent | ConnectorConsent | BindingConsent) -> list[str] | str:
    return [host_line(host) for host in subject.reaches] or "nothing"


def _maybe_json(values: dict[str, Any], key: str) -> str | None:
    return _json(values[key]) if key in values else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
