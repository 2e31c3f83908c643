"""Text about a consent for a person who decides about it, the most important facts first.

Pure. The whole content is untrusted: it comes from authors of actions and connectors, from services, and from the process that
responded as the daemon. The digest of a decision covers the complete subject.

Rules
- Widening is marked by a word, not by a colour.

Source: docs/reference/consents.md. Not here: runs (plan.py), the question that contains the consent (question.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, assert_never

from msgspec import UNSET

from aileron.cards.changes import change_lines
from aileron.cards.headline import Origin, Span, action_in, quoted
from aileron.cards.lookalike import looks_like
from aileron.cards.plan import FactRow, cut, host_line, host_name, missing_lines, text_lines
from aileron.cards.weight import only_reads
from aileron.model.consent import (
    ActionFileConsent,
    BindingConsent,
    Change,
    ConnectorConsent,
    ConnectorUpdateConsent,
    Constraint,
    GrantConsent,
    HostConsent,
    InstallationConsent,
    PasskeyConsent,
    SecretConsent,
    SettingsConsent,
    Subject,
    ToolChangeConsent,
    TrustedKeyConsent,
)
from aileron.model.credential import login_facts, login_words, wire_facts
from aileron.model.json_value import JSONObject
from aileron.model.login import named
from aileron.model.timestamp import spoken_time
from aileron.model.visible import as_text

__all__ = [
    "SYNCED",
    "binding_lines",
    "conditions",
    "consent_headline",
    "names_in",
    "subject_changes",
    "subject_facts",
]

SYNCED: Final = {
    "no": "no, stays on one device",
    "possible": "possible, through the account it is kept in",
    "yes": "yes, through the account it is kept in",
}
"""Words that say whether a passkey is also on other devices."""

_GATED: Final = "needs approval"
_ONLY_READS: Final = "runs without approval: only reads (action file)"
_SHORT_WHEN: Final = {_GATED: "need approval", _ONLY_READS: "only read"}
"""Names of the facts that list an installation's actions, by what each action's own question would say."""
_MAX_FILE_LINES = 6
"""Maximum number of lines of an action's file, which is shown between its facts and the question; a screen has 24 lines."""


def conditions(constraints: Sequence[Constraint]) -> list[str]:
    """Return the conditions of a grant in words, such as `to is "mira@example.com"`.

    The last condition names the arguments that must not be given: `without bcc, cc`.
    """
    absent = [constraint.argument for constraint in constraints if _is_absent(constraint)]
    words = [_condition(constraint) for constraint in constraints if not _is_absent(constraint)]
    return words + ([f"without {', '.join(absent)}"] if absent else [])


def _is_absent(constraint: Constraint) -> bool:
    return constraint.operator == "absent" and constraint.value is None


def _condition(constraint: Constraint) -> str:
    name, value = constraint.argument, constraint.value
    match constraint.operator:
        case "equals":
            return f"{name} is {_json(value)}"
        case "one_of" if isinstance(value, list):
            return f"{name} is one of {', '.join(_json(choice) for choice in value)}"
        case "prefix":
            return f"{name} starts with {_json(value)}"
        case "at_most":
            return f"{name} is at most {_json(value)}"
        case other:
            return f"{name} {other} {_json(value)}"


def consent_headline(subject: Subject) -> tuple[Span, ...]:
    """Return a sentence that says what the consent would allow. Names are untrusted, so they are quoted."""
    return tuple(
        Span(part) if isinstance(part, str) else Span(quoted(part[0]), Origin.SAID, "name") for part in _said(subject)
    )


def names_in(subject: Subject) -> list[str]:
    """Return the untrusted names in the sentence of a consent, and in those of its parts, unchanged."""
    said = [part[0] for part in _said(subject) if isinstance(part, tuple)]
    return [*said, *(name for part in _parts_of(subject) for name in names_in(part))]


def _parts_of(subject: Subject) -> tuple[Subject, ...]:
    """Return the consents that an installation consists of; nothing for other kinds of consent."""
    if not isinstance(subject, InstallationConsent):
        return ()
    return (*subject.connectors, *subject.actions, *subject.bindings)


def _said(subject: Subject) -> Iterator[str | tuple[str]]:
    """Yield the parts of a consent's sentence: words as strings, and each name as a tuple with one string."""
    match subject:
        case ActionFileConsent():
            yield from ("Add the action " if subject.before is None else "Change the action ", (subject.name,))
        case ConnectorUpdateConsent():
            yield from (
                "Update the connector ",
                (subject.name,),
                f" from {as_text(subject.before)} to {as_text(subject.version)}",
            )
        case ConnectorConsent():
            yield from ("Install the connector ", (subject.name,), ", version ", (subject.version,))
        case BindingConsent() if subject.commitment is not None:
            yield from ("Let ", (subject.connector,), " use the account ", (subject.account or "of an unknown owner",))
        case BindingConsent() if (places := login_words(subject.wire)) and subject.username:
            yield from (
                "Let ",
                (subject.connector,),
                " log in as ",
                (subject.username,),
                " at ",
                (" and ".join(places),),
            )
        case BindingConsent():
            yield from ("Let ", (subject.connector,), " use the secret ", (subject.secret,))
            if subject.account or subject.username:
                yield from (" as ", (subject.account or str(subject.username),))
        case InstallationConsent():
            yield from ("Install ", (subject.name,), f": {_counted(subject)}")
        case SecretConsent() if subject.token is not UNSET and subject.token_to is not UNSET:
            yield from ("Send the secret ", (subject.token,), " to ", (subject.token_to,))
            yield from (", to fetch ", (subject.name,), " with it")
        case SecretConsent():
            yield from ("Replace the value of the secret ", (subject.name,))
        case TrustedKeyConsent():
            yield from ("Trust another signing key of ", (subject.authority,))
        case GrantConsent():
            times = "once" if subject.uses == 1 else f"up to {subject.uses} times"
            yield from ("Let ", (subject.action,), f" run {times} without asking")
        case SettingsConsent():
            yield "Change the settings "
            yield (", ".join(_changed_settings(subject)),)
        case PasskeyConsent():
            yield from ("Let the passkey ", (subject.name,), " decide for you")
        case ToolChangeConsent():
            yield from ("Keep using ", (subject.op,), " of ", (subject.connector,), ", whose server changed it")
        case HostConsent():
            yield from ("Let ", (subject.agent,), " connect to ", (subject.destination,))
        case impossible:
            assert_never(impossible)


def _counted(subject: InstallationConsent) -> str:
    """Return in words how many connectors and actions are installed, and how many credentials are bound to them."""
    parts = ((subject.connectors, "connector"), (subject.actions, "action"), (subject.bindings, "credential"))
    return ", ".join(f"{len(part)} {word}{'' if len(part) == 1 else 's'}" for part, word in parts if part)


def _changed_settings(subject: SettingsConsent) -> list[str]:
    before, after = subject.before, subject.after
    return [
        key
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key) or (key in before) != (key in after)
    ]


def subject_changes(subject: Subject) -> tuple[Change, ...]:
    """Return the changes since the previous consent; none for kinds of subject that are not compared."""
    match subject:
        case ActionFileConsent() | ConnectorUpdateConsent() | ToolChangeConsent():
            return subject.changes
        case InstallationConsent():
            earlier = (action for action in subject.actions if action.before is not None)
            known: tuple[Subject, ...] = (*subject.connectors, *earlier)
            return tuple(change for part in known for change in subject_changes(part))
        case (
            ConnectorConsent()
            | BindingConsent()
            | SecretConsent()
            | GrantConsent()
            | TrustedKeyConsent()
            | SettingsConsent()
            | PasskeyConsent()
            | HostConsent()
        ):
            return ()
        case impossible:
            assert_never(impossible)


def subject_facts(subject: Subject, more: str | None, when: Callable[[str | None], str]) -> list[FactRow]:
    """Return the facts about a consent, each with its name and value; the value is a list for several lines, or None if there is
    nothing to say.
    """
    match subject:
        case ActionFileConsent():
            return list(_of_action_file(subject, more))
        case ConnectorConsent():
            return list(_of_connector(subject, more))
        case BindingConsent():
            return list(_of_binding(subject))
        case InstallationConsent():
            return list(_of_installation(subject, more))
        case SecretConsent():
            return list(_of_secret(subject))
        case TrustedKeyConsent():
            return list(_of_trusted_key(subject))
        case GrantConsent():
            return list(_of_grant(subject, more, when))
        case SettingsConsent():
            return [("settings", _settings_lines(subject, more))]
        case PasskeyConsent():
            return list(_of_passkey(subject))
        case ToolChangeConsent():
            return list(_of_tool_change(subject, more))
        case HostConsent():
            return list(_of_host(subject))
        case impossible:
            assert_never(impossible)


def _of_binding(subject: BindingConsent) -> Iterator[FactRow]:
    """Yield the facts about a binding: the owner of its credential, and all uses of the credential. A sign-in has no secret name
    yet.
    """
    connector, is_sign_in = subject.connector, subject.commitment is not None
    yield "binding", f"{subject.name}{', replacing the existing one' if subject.replaces else ''}"
    if is_sign_in:
        yield "allows", f"{connector} to use the sign-in made just now"
        yield "account", subject.account or "unknown: the provider did not name it"
    else:
        yield "allows", f"{connector} to use the secret {subject.secret}"
        yield "user name", subject.username
        yield "account", subject.account
        yield "kept at", subject.reference or None
    yield "goes to", _hosts(subject)
    yield "scopes", list(subject.scopes) or (None if subject.client is None else "none: the provider decides")
    yield from wire_facts(subject.wire)
    yield from login_facts(subject.details or None)
    yield "application", subject.client
    if is_sign_in:
        yield "value", "not shown; approve only if you signed in just now"
        yield "commitment", subject.commitment


def binding_lines(subject: BindingConsent) -> list[str]:
    """Return the lines for one binding in a list of many: connector, secret and account; then a line for hosts and form.

    >>> binding_lines(BindingConsent(name="basic/mail/me", connector="github://acme/mail", secret="pw", username="ada",
    ...                              reaches=("mail.example:443",), wire="basic"))
    ['basic/mail/me: github://acme/mail can use the secret pw as ada', '  goes to mail.example:443; sent as Authorization: Basic']
    """
    whose = subject.username or subject.account
    secret = "the sign-in of" if subject.client is not None else f"the secret {subject.secret} as"
    used = f"{secret} {named(whose)}" if whose else secret.removesuffix(" as").removesuffix(" of")
    facts: list[FactRow] = [
        ("signed in as", subject.account if subject.username and subject.account != subject.username else None),
        ("kept at", subject.reference or None),
        ("goes to", _hosts(subject)),
        ("scopes", list(subject.scopes) or None),
        *(fact for fact in wire_facts(subject.wire) if fact[0] != "logs in at"),
        ("logs in at", login_words(subject.wire) or None),
        *login_facts(subject.details or None),
        ("application", subject.client),
    ]
    said = [f"{name} {_among_others(value)}" for name, value in facts if value]
    return [f"{subject.name}: {subject.connector} can use {used}", f"  {'; '.join(said)}"]


def _among_others(value: str | Sequence[str]) -> str:
    """Return the text of a fact that is shown among several facts on a line: quoted if it contains the separator of facts."""
    values = (value,) if isinstance(value, str) else value
    return ", ".join(json.dumps(text, ensure_ascii=False) if "; " in text else text for text in values)


def _of_secret(subject: SecretConsent) -> Iterator[FactRow]:
    is_here = subject.reference is UNSET
    said = "you set it just now" if is_here else "you know why it changed there"
    if subject.token_to is UNSET:
        yield "secret", f"{subject.name} gets a new value"
    else:
        yield "secret", f"{subject.name} gets the value that is there when you approve"
        yield (
            "token goes to",
            f"{subject.token_to}, which has not had {subject.token} yet; approve only if it was issued for that",
        )
    yield "kept at", subject.reference or None
    yield "used by", list(subject.bindings) or "nothing yet"
    if subject.token_to is UNSET:
        yield "value", f"not shown; approve only if {said}"
    yield "commitment", subject.commitment


def _of_action_file(subject: ActionFileConsent, more: str | None) -> Iterator[FactRow]:
    is_new = subject.before is None
    is_wider = any(change.widens for change in subject.changes)
    how = "new" if is_new else "allows more than you agreed to" if is_wider else "changed, allows nothing new"
    yield "signature", subject.signature
    yield "action", f"{subject.name} ({how})"
    yield "from", subject.fetched
    yield "allows", "installing and running it" if subject.install else "running the file as it is now"
    if subject.replace:
        yield "replaces", "the installed action of that name"
    intent, when = _what_it_is(subject.text, is_wider=is_wider and not is_new)
    yield "intent", intent
    yield "each run", when
    yield "goes to", _hosts(subject)
    yield "credential", list(subject.credentials) or "none"
    if not is_new:
        yield "changes", change_lines(subject.changes, more, marks=True) or "none"
    text = subject.text.rstrip("\n")
    if is_new or more is None or subject.fetched is None:
        yield "text", text_lines(text, more, lines=_MAX_FILE_LINES)
    else:  # the changes say what is new, and fit on one screen with the question
        yield "text", missing_lines(len(text), "characters", more)


def _what_it_is(text: str, *, is_wider: bool) -> tuple[str | None, str | None]:
    """Return an action's intent, and in words its need for approval, from exactly the signed text; None for both if it
    cannot be parsed.

    A run without approval is not an alarm if the author declares that every step only reads, unless the file allows more than its
    previous version.
    """
    action = action_in(text)
    if action is None:
        return None, None
    if action.approval.required:
        return action.intent, _GATED
    if not is_wider and only_reads(action):
        return action.intent, _ONLY_READS
    return action.intent, "RUNS WITHOUT APPROVAL"


def _of_connector(subject: ConnectorConsent, more: str | None) -> Iterator[FactRow]:
    """Yield the facts about a connector: the claimed publisher and its proof, then what the connector would be allowed to do."""
    yield "signature", subject.signature
    yield "connector", f"{subject.name}@{subject.version}"
    yield "publisher", subject.publisher
    yield "from", subject.source if subject.source != f"{subject.name}@{subject.version}" else None
    yield "hash", subject.hash
    if isinstance(subject, ConnectorUpdateConsent):
        yield "beware", _look_alikes(subject) or None
        changes = change_lines(subject.changes, more, marks=True)
        yield "differs", [f"from {subject.before}{':' if changes else ': allows nothing new'}", *changes]
    yield "goes to", _hosts(subject)
    yield "credential", subject.credential or "none"
    if subject.wire is not UNSET:
        yield from wire_facts(subject.wire)
    yield "uses", ", ".join(subject.imports) or "nothing"
    yield "limits", ", ".join(f"{name} {as_text(value)}" for name, value in subject.limits.items())
    match subject.on_conflict:
        case "replace":
            yield "replaces", "any other build of this version; actions pinned to that stop running"
        case "keep_both":
            yield "beside", "any other build of this version"


def _of_installation(subject: InstallationConsent, more: str | None) -> Iterator[FactRow]:
    """Yield the facts about each connector, the actions and the credential. A host is named once, wherever it is needed."""
    yield "goes to", [host_line(host) for host in _reached(subject)] or "nothing"
    for connector in subject.connectors:
        yield from _apart_from_hosts(_of_connector(connector, more))
    for binding in subject.bindings:
        yield from _apart_from_hosts(_of_binding(binding))
    if len(subject.actions) == 1:
        yield from _apart_from_hosts(_of_action_file(subject.actions[0], more))
    else:
        yield from _of_actions(subject.actions, more)


def _reached(subject: InstallationConsent) -> list[str]:
    hosts = {host for connector in subject.connectors for host in connector.reaches}
    hosts |= {host for action in subject.actions for host in action.reaches}
    return sorted(hosts | {host for binding in subject.bindings for host in binding.reaches})


def _apart_from_hosts(facts: Iterable[FactRow]) -> Iterator[FactRow]:
    return (fact for fact in facts if fact[0] != "goes to")


def _of_actions(actions: Sequence[ActionFileConsent], more: str | None) -> Iterator[FactRow]:
    """Yield the facts about several actions: which of them run without approval, which ask each time, and what changes."""
    when = {
        action.name: _what_it_is(action.text, is_wider=_is_wider(action))[1] or "cannot be read" for action in actions
    }
    for words in sorted(set(when.values()), key=str.lower, reverse=True):
        yield (
            _SHORT_WHEN.get(words, "actions"),
            _named_as(words, [name for name, said in when.items() if said == words]),
        )
    yield "replaces", ", ".join(action.name for action in actions if action.replace) or None
    for action in actions:
        if action.before is not None:
            yield f"changes {action.name}", change_lines(action.changes, more, marks=True) or "none"
    texts = "\n\n".join(action.text.rstrip("\n") for action in actions)
    # The first lines of the first file would say nothing about the others.
    yield "texts", text_lines(texts) if more is None else [f"{len(actions)} files, {len(texts):,} characters:", more]


def _named_as(words: str, names: Sequence[str]) -> list[str]:
    """Return the names in one line; one line each, with the alarm, for actions that run without approval and do not only read."""
    if words in _SHORT_WHEN:
        return [", ".join(names)]
    return [f"{words}: {name}" for name in names]


def _is_wider(subject: ActionFileConsent) -> bool:
    return subject.before is not None and any(change.widens for change in subject.changes)


def _of_trusted_key(subject: TrustedKeyConsent) -> Iterator[FactRow]:
    """Yield the facts about a publisher's key: its claimed owner, and what the key would be trusted for."""
    authority = subject.authority
    whole = " and all its repositories" if authority.count("/") == 2 else ""  # scheme://owner
    yield "publisher", authority
    yield "key", subject.new
    yield "from", subject.source
    yield "allows", f"signatures of this key count as {authority}{whole}"
    yield "trusted now", list(subject.before) or "no other keys"
    yield "compare", "this key with what the publisher states elsewhere: whoever holds it can sign for them"


def _of_grant(subject: GrantConsent, more: str | None, when: Callable[[str | None], str]) -> Iterator[FactRow]:
    words = [line for condition in conditions(subject.constraints) for line in cut("", condition, more)]
    yield "grant", f"runs of {subject.action} need no approval"
    yield "where", words or "NO LIMIT: any arguments, whoever gets it"
    yield "at most", f"{subject.uses} times"
    yield "until", spoken_time(subject.until) or when(subject.until)
    yield "account", list(subject.credentials) or "none"
    yield "action file", subject.action_digest


def _of_passkey(subject: PasskeyConsent) -> Iterator[FactRow]:
    """Yield the claimed facts about a passkey, and what the person must compare, because nothing proves where the passkey is."""
    yield "passkey", subject.name
    yield "key", subject.key_id
    yield "compare", "this key with the one on your page; approve only if you created it just now"
    yield "allows", "deciding in your place, except for other passkeys and settings"
    yield "page", subject.origin
    yield "synced", SYNCED[subject.synced]
    yield "device", ", ".join(subject.transports) or "not said"
    yield "model", subject.aaguid
    yield "algorithm", subject.algorithm


def _of_tool_change(subject: ToolChangeConsent, more: str | None) -> Iterator[FactRow]:
    """Yield the facts about a changed tool, the changes before the complete definition. Both are only the connector's claim,
    which repeats the server's.
    """
    yield "tool", f"{subject.op} of {subject.connector}@{subject.version}"
    yield "found by", f"a run of {subject.action}; no action has used the tool since"
    yield (
        "allows",
        "every action that uses the tool to go on, as its server describes it now; what is sent stays as the files say",
    )
    yield "changes", change_lines(subject.changes, more)
    yield "definition", text_lines(_indented(subject.definition), more, lines=_MAX_FILE_LINES)
    yield "accepted", subject.digest
    yield "compared with", subject.before


def _of_host(subject: HostConsent) -> Iterator[FactRow]:
    """Yield the facts about a host: the destination, and a note that only the agent and the host see the exchanged data."""
    yield "goes to", host_line(subject.destination)
    yield "agent", f"{subject.agent} in {subject.folder}"
    yield (
        "allows",
        "sending anything there that is in its cell, and getting anything from there; it is encrypted, and not checked",
    )
    yield "until", f"the session ends ({subject.session})"


def _indented(definition: str) -> str:
    """Return the tool's definition as indented JSON with every value; unchanged if it is not JSON."""
    try:
        return json.dumps(json.loads(definition), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return definition


def _settings_lines(subject: SettingsConsent, more: str | None) -> list[str]:
    before, after = subject.before, subject.after
    changes: Iterable[Change] = [
        Change(where=key, before=_maybe_json(before, key), after=_maybe_json(after, key))
        for key in _changed_settings(subject)
    ]
    return change_lines(changes, more) or ["no change"]


def _look_alikes(subject: ConnectorUpdateConsent) -> list[str]:
    """Return warnings for new hosts that could be taken for hosts that the connector already reached."""
    new = [change.after for change in subject.changes if change.where == "reaches" and change.after is not None]
    known = [host_name(host) for host in subject.reaches if host not in new]
    names = dict.fromkeys(map(host_name, new))
    return [f"LOOKS LIKE {as_text(like)}: {as_text(name)}" for name in names if (like := looks_like(name, known))]


def _hosts(subject: ActionFileConsent | ConnectorConsent | BindingConsent) -> list[str] | str:
    return [host_line(host) for host in subject.reaches] or "nothing"


def _maybe_json(values: JSONObject, key: str) -> str | None:
    return _json(values[key]) if key in values else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
