"""One question as a person reads it before they decide: a run or a consent, whole, what matters most first.

Runs in commands. All of it was written by somebody else: agents, authors of actions and connectors, services, and whatever
answered for the daemon. A digest covers a plan, a subject and a preview; what is said beside them (who asks, what was approved
before, what the agent says) is the daemon's or the agent's word and is not part of what is signed.

Rules
- What a preview says stands first. One that failed stands there as failed, with its reason.
- What the agent says is in a box of its own, and never stands as a fact.
- Widening is a word, not a colour.

Source: docs/reference/cli.md, docs/reference/consents.md. Not here: asking and signing (deciding.py, signing.py).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from aileron.cli import output
from aileron.cli.plan import COLUMN, cut, host_line, missing_lines, plan_facts, print_steps, text_lines

if TYPE_CHECKING:
    from aileron.cli.signing import Preview

__all__ = [
    "KINDS",
    "asker_of",
    "change_lines",
    "constraint_words",
    "kind_of",
    "name_of",
    "show_question",
    "show_subject",
    "title_of",
]

KINDS: Final = {
    "action": "run",
    "action_file": "action file",
    "connector": "connector",
    "connector_update": "connector update",
    "trusted_key": "trusted key",
    "binding": "binding",
    "secret": "secret",
    "grant": "grant",
    "settings": "settings",
}
"""What each kind of row is called."""
_MAX_CHANGES = 30
"""Lines of one comparison; a screen has 24."""
_MAX_SIDE = 160
"""Characters of each side of a change: two lines."""
_MAX_FILE_LINES = 6
"""Of an action's file: what it comes to stands above it, and the question below; a screen has 24."""
_MAX_WORDS = 6
"""Turns of a conversation that are shown, the newest; all of them with --full."""


def kind_of(question: Mapping[str, Any]) -> str:
    """`action` for a run, else the kind of a consent."""
    return str(question.get("kind") or "action")


def name_of(question: Mapping[str, Any]) -> str:
    """What it is about: the action of a run, the name of what a consent changes."""
    return str(question.get("action") or question.get("name") or kind_of(question))


def title_of(question: Mapping[str, Any]) -> str:
    """Kind and name, as lists and confirmations say it: `send-mail`, `binding basic/mail/home`."""
    kind, name = kind_of(question), name_of(question)
    return name if kind == "action" or name == kind else f"{KINDS.get(kind, kind)} {name}"


def asker_of(question: Mapping[str, Any]) -> str | None:
    """Who asks, for a person: `claude in /home/you/work`, or the session where no more is known."""
    session, agent, folder = (question.get(name) for name in ("session", "agent", "folder"))
    return f"{agent} in {folder}" if agent and folder else None if session is None else str(session)


def show_question(
    question: dict[str, Any], stream: str = "stderr", *, more: str | None = None, preview: Preview | None = None
) -> None:
    """All of one question; `more` is the command that shows what is too long for a terminal, None shows everything.

    Says nothing of its state: whoever asks knows that it waits.
    """
    if kind_of(question) == "action":
        _show_run(question, stream, more, preview)
    else:
        output.print_facts([*_subject_facts(question, more), *_asked_facts(question, stream)], stream, column=COLUMN)
    _print_conversation(question, stream, more)


def show_subject(kind: str, subject: Mapping[str, Any], stream: str = "stderr", *, more: str | None = None) -> None:
    """What would be agreed to, before there is a question about it."""
    question = {"kind": kind, "subject": dict(subject)}
    output.print_facts([*_subject_facts(question, more)], stream, column=COLUMN)


def change_lines(changes: Iterable[Mapping[str, Any]], more: str | None = None, *, marks: bool = False) -> list[str]:
    """`where: before → after`, one change after the other; with `marks`, those that widen say so."""
    lines: list[str] = []
    listed = list(changes)
    for number, change in enumerate(listed):
        if more is not None and len(lines) >= _MAX_CHANGES:
            lines += missing_lines(len(listed) - number, "changes", more)
            break
        mark = "WIDER  " if marks and change.get("widens") else ""
        where = str(change.get("where"))
        if (
            more is not None and marks and where.endswith(": hash")
        ):  # the version stands beside it, and the whole is an f away
            lines.append(f"{mark}{where}: {_digits(change.get('before'))} → {_digits(change.get('after'))}")
            continue
        if more is not None and marks and where == "body" and not change.get("widens"):
            lines.append("body: its prose is another")
            continue
        if change.get("before") is not None:  # the arrow says that the value is another
            where = where.removesuffix(" (new)")
        lines += _change(f"{mark}{where}: ", change.get("before"), change.get("after"), more)
    return lines


def constraint_words(constraint: Mapping[str, Any]) -> str:
    """One condition of a grant: `to is "mira@example.com"`."""
    name, value = constraint.get("argument"), constraint.get("value")
    match constraint.get("operator"):
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


def _show_run(question: dict[str, Any], stream: str, more: str | None, preview: Preview | None) -> None:
    plan = question.get("plan") or {}
    facts = [
        ("action", f"{plan.get('action', question.get('action'))} {plan.get('action_version', '')}".strip()),
        ("preview", _preview_lines(plan, preview, more)),
        ("you edited", change_lines(question.get("changes") or [], more) or None),
        *plan_facts(plan, more),
        *_asked_facts(question, stream),
        ("differs", _difference_lines(question, more)),
        ("edits", _edit_lines(question, more)),
    ]
    output.print_facts(facts, stream, column=COLUMN)
    print_steps(plan, stream, more=more)


def _asked_facts(question: dict[str, Any], stream: str) -> list[tuple[str, Any]]:
    return [
        ("asked by", asker_of(question) if output.is_terminal(stream) else question.get("session")),
        ("session", question.get("session") if question.get("agent") and output.is_terminal(stream) else None),
        ("expires", output.time_left(question.get("expires_at"), stream)),
    ]


def _preview_lines(plan: dict[str, Any], preview: Preview | None, more: str | None) -> list[str] | str | None:
    if plan.get("preview") is None:
        return None
    if preview is None:
        return "there is one, for whoever signs the decision"
    if preview.fields is None:
        return [f"FAILED, nothing is shown: {preview.problem}"]
    lines: list[str] = []
    for label, value, field in _together(preview.fields):
        if isinstance(value, str) and (field.get("multiline") or "\n" in value):
            lines += [f"{label}:", *text_lines(value, more)]
        else:
            lines += cut(f"{label}: ", _value(value), more)
    return lines or "it says nothing"


def _together(fields: Iterable[dict[str, Any]]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Label, value and field; neighbours that found nothing as one, so that the rest stays on the screen."""
    for is_nothing, some in itertools.groupby(fields, lambda field: field.get("value") is None):
        group = list(some)
        if is_nothing:
            yield ", ".join(str(field.get("label")) for field in group), None, group[0]
        else:
            yield from ((str(field.get("label")), field.get("value"), field) for field in group)


def _value(value: Any) -> str:
    """What a preview found at its place, or that it found nothing there."""
    return "n/a" if value is None else value if isinstance(value, str) else _json(value)


def _difference_lines(question: dict[str, Any], more: str | None) -> list[str] | str | None:
    if "difference" not in question:
        return None
    found = question["difference"]
    if not isinstance(found, dict):
        return "there is no approved call of this action to compare it with"
    when = output.local_time(found.get("decided_at"), "stderr")
    if "changes" in question:
        when += "; your edit not counted"
    changes = change_lines(found.get("changes") or [], more)
    if not changes:
        return f"in nothing from the call approved last ({when})"
    return [f"from the call approved last ({when}):", *changes]


def _edit_lines(question: dict[str, Any], more: str | None) -> list[str] | None:
    lines: list[str] = []
    for number, edit in enumerate(question.get("edits") or [], start=1):
        changes = change_lines(edit.get("changes") or [], more)
        lines += [f"{number}, not decided: {edit.get('digest')}", *(f"  {line}" for line in changes)]
    return lines or None


def _print_conversation(question: dict[str, Any], stream: str, more: str | None) -> None:
    turns = question.get("conversation") or []
    if not turns:
        return
    output.write("", stream)
    shown = turns if more is None else turns[-_MAX_WORDS:]
    if len(shown) < len(turns):
        output.write("\n".join(missing_lines(len(turns) - len(shown), "questions, earlier", str(more))), stream)
    for turn in shown:
        _print_box("you asked", str(turn.get("question")), stream, more)
        answer = turn.get("answer")
        if answer is None:
            output.write("the agent has not answered yet", stream)
        else:
            _print_box("the agent says (not verified)", str(answer), stream, more)


def _print_box(title: str, text: str, stream: str, more: str | None) -> None:
    output.write(output.styled(title, "dim", stream), stream)
    for line in text_lines(text, more):
        for part in output.folded(line.removeprefix("│ "), len(output.GUTTER)):
            output.write(output.GUTTER + part, stream)


def _subject_facts(question: dict[str, Any], more: str | None) -> list[tuple[str, Any]]:
    subject = question.get("subject") or {}
    match kind_of(question):
        case "action_file":
            return list(_of_action_file(subject, more))
        case "connector" | "connector_update":
            return list(_of_connector(subject, more))
        case "binding":
            return list(_of_binding(subject))
        case "secret":
            return [
                ("secret", f"{subject.get('name')} gets another value"),
                ("used by", list(subject.get("bindings") or [])),
                ("value", "not shown; agree only if it was you who set it just now"),
                ("commitment", subject.get("commitment")),
            ]
        case "trusted_key":
            return list(_of_trusted_key(subject))
        case "grant":
            return list(_of_grant(subject, more))
        case "settings":
            return [("settings", _settings_lines(subject, more))]
        case kind:
            return [("kind", kind), ("subject", cut("", _json(subject), more))]


def _of_binding(subject: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Whose credential it is, and all that it may be used for. A sign-in has no secret yet that anybody could name."""
    connector, is_sign_in = subject.get("connector"), subject.get("commitment") is not None
    yield "binding", f"{subject.get('name')}{', in place of the one there is' if subject.get('replaces') else ''}"
    if is_sign_in:
        yield "so that", f"{connector} may use the sign-in that was just made"
        yield "account", subject.get("account") or "the provider did not say whose it is"
    else:
        yield "so that", f"{connector} may use the secret {subject.get('secret')}"
        yield "user name", subject.get("username")
        yield "account", subject.get("account")
    yield "reaches", _hosts(subject)
    yield "scopes", list(subject.get("scopes") or []) or None
    yield "sent as", subject.get("wire") or None
    yield "application", subject.get("client")
    if is_sign_in:
        yield "value", "not shown; agree only if it was you who signed in just now"
        yield "commitment", subject.get("commitment")


def _of_action_file(subject: dict[str, Any], more: str | None) -> Iterator[tuple[str, Any]]:
    is_new = subject.get("before") is None
    changes = subject.get("changes") or []
    is_wider = any(change.get("widens") for change in changes)
    how = "new" if is_new else "wider than what you agreed to" if is_wider else "changed since you agreed to it"
    yield "signature", subject.get("signature")
    yield "action", f"{subject.get('name')}, its file: {how}"
    yield "from", subject.get("fetched")
    if subject.get("installs"):
        count = len(subject["installs"])
        yield (
            "with",
            "1 new connector, asked about by itself" if count == 1 else f"{count} new connectors, each asked about",
        )
    yield "so that", "it is installed, and may run" if subject.get("install") else "it may run as it lies there now"
    if subject.get("replace"):
        yield "replaces", "the action of that name"
    intent, when = _what_it_is(str(subject.get("text")))
    yield "intent", intent
    yield "each run", when
    yield "reaches", _hosts(subject)
    yield "credential", list(subject.get("credentials") or []) or "none"
    if not is_new:
        yield "changes", change_lines(changes, more, marks=True) or "none"
    text = str(subject.get("text")).rstrip("\n")
    if is_new or more is None or subject.get("fetched") is None:
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


def _of_connector(subject: dict[str, Any], more: str | None) -> Iterator[tuple[str, Any]]:
    """Whose it is said to be, and by what that is known, before what it would be allowed."""
    yield "signature", subject.get("signature")
    yield "connector", f"{subject.get('name')}@{subject.get('version')}"
    yield "publisher", subject.get("publisher")
    yield (
        "from",
        subject.get("source") if subject.get("source") != f"{subject.get('name')}@{subject.get('version')}" else None,
    )
    yield "hash", subject.get("hash")
    yield "for", subject.get("for_action")
    if "before" in subject:
        changes = change_lines(subject.get("changes") or [], more, marks=True)
        yield "differs", [f"from {subject.get('before')}{':' if changes else ' in nothing it may do'}", *changes]
    yield "reaches", _hosts(subject)
    yield "credential", subject.get("credential") or "none"
    yield "uses", ", ".join(subject.get("imports") or []) or "nothing"
    yield (
        "limits",
        ", ".join(f"{name} {output.as_text(value)}" for name, value in (subject.get("limits") or {}).items()),
    )
    match subject.get("on_conflict"):
        case "replace":
            yield "replaces", "other bytes of that version, if there are any: actions pinned to them no longer run"
        case "keep_both":
            yield "beside", "other bytes of that version, if there are any"


def _of_trusted_key(subject: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Whose key it is said to be, and what it would be worth."""
    authority = str(subject.get("authority"))
    whole = " and all their repositories" if authority.count("/") == 2 else ""  # scheme://owner
    yield "publisher", authority
    yield "key", subject.get("new")
    yield "from", subject.get("source")
    yield "so that", f"what it signs counts as signed by {authority}{whole}"
    yield "beside", list(subject.get("before") or []) or "no other key"
    yield "compare", "it with what its publisher says elsewhere: whoever has that key can sign for them"


def _of_grant(subject: dict[str, Any], more: str | None) -> Iterator[tuple[str, Any]]:
    words = [line for one in subject.get("constraints") or [] for line in cut("", constraint_words(one), more)]
    yield "grant", f"runs of {subject.get('action')} are not asked about"
    yield "where", words or "ALWAYS: whatever its arguments are"
    yield "at most", f"{subject.get('uses')} times"
    yield "until", output.local_time(subject.get("until"), "stderr")
    yield "account", list(subject.get("credentials") or []) or "none"
    yield "action file", subject.get("action_digest")


def _settings_lines(subject: dict[str, Any], more: str | None) -> list[str]:
    before, after = subject.get("before") or {}, subject.get("after") or {}
    changes = [
        {"where": key, "before": _maybe_json(before, key), "after": _maybe_json(after, key)}
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key) or (key in before) != (key in after)
    ]
    return change_lines(changes, more) or ["no change"]


def _digits(pin: Any) -> str:
    """The first of a hash, to be told from another."""
    return f"{output.short_hash(pin)}…"


def _change(where: str, before: Any, after: Any, more: str | None) -> list[str]:
    """On one line if that is short; else one side below the other."""
    if before is None or after is None:
        side, word = (after, "new, ") if before is None else (before, "gone, was ")
        return _side(f"{where}{word}", str(side), more)
    if len(where) + len(str(before)) + len(str(after)) <= _MAX_SIDE // 2 and "\n" not in f"{before}{after}":
        return [f"{where}{before} → {after}"]
    return [*_side(f"{where}was ", str(before), more), *_side(f"{where}is ", str(after), more)]


def _side(before: str, value: str, more: str | None) -> list[str]:
    missing = len(value) - _MAX_SIDE
    if more is None or missing <= 0:
        return [f"{before}{value}"]
    return [f"{before}{value[:_MAX_SIDE]}…", *missing_lines(missing, "characters", more)]


def _hosts(subject: dict[str, Any]) -> list[str] | str:
    return [host_line(str(host)) for host in subject.get("reaches") or []] or "nothing"


def _maybe_json(values: dict[str, Any], key: str) -> str | None:
    return _json(values[key]) if key in values else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
