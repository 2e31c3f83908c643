"""One question laid out for a screen: what will happen, where, as whom, whether it can be undone, what differs from last time.

Pure; the console and the page show the same sheet in the same order, and only lay it out. Every text in it has been made harmless
(model/visible.py): a surface may print it, and must not interpret it.

    title · essentials (a few short lines that are never scrolled away) · alarms · sections, the effect first

Rules
- What the runtime knows stands first; what somebody says stands last, in a section of its own, as not verified.
- What a preview found and what the agent gave under the same label are compared, and a contradiction is an alarm.
- Nothing is cut: a surface that shows less says how much less.
- A mark is a word or a sign as well as a tone: no tone is the only sign of anything.

Source: docs/reference/console.md. Not here: whether the digest is of what is shown (signed_view.py), colours, keys.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aileron.model.plan import Plan
from aileron.model.visible import BAR, GAP, as_text, visible, visible_lines, without_gaps
from aileron.review.changes import is_on_one_line
from aileron.review.plan import (
    LabelledArgument,
    accounts_of,
    given_of,
    hosts_of,
    operations_of,
    preview_elsewhere,
    preview_facts,
    settled_of,
    step_facts,
    undo_of,
    unknown_of,
)
from aileron.review.preview_mismatch import alarms, compared, spelled
from aileron.review.question import asker_of, title_of, unread_text
from aileron.review.subject import subject_changes, subject_facts

if TYPE_CHECKING:
    from aileron.api.approvals import Question
    from aileron.model.consent import Change, Subject
    from aileron.model.preview import Preview, PreviewField

__all__ = ["Fact", "Line", "Section", "Sheet", "Tone", "sheet_of"]

_ARGUMENT: Final = re.compile(r"args\.(.+) \(([a-z ]+)\)", re.DOTALL)
"""How a difference names an argument (approvals/difference.py)."""
_AS_OURS: Final = tuple("!≠│┌└↳…！┃|")
"""What lines of ours begin with, and what looks like it."""
_SHORT: Final = {"credential": "account"}
_TAKEN_BACK: Final = {
    "action_file": "the action can be removed again; what it did by then cannot be undone",
    "connector": "it can be removed again",
    "connector_update": "the version of before stays installed",
    "trusted_key": "it can be revoked; what was installed by then stays",
    "binding": "it can be revoked; what was done with it by then cannot be undone",
    "secret": "the value there is now is gone then",
    "grant": "it can be revoked; runs that it let through cannot be undone",
    "settings": "they can be changed back",
    "passkey": "it can be revoked; what was decided with it by then stays decided",
}


class Tone(enum.StrEnum):
    """How a line is meant."""

    PLAIN = "plain"
    ALARM = "alarm"
    """Begins with `! `: look here."""
    CHANGED = "changed"
    """Begins with `≠ `: other than last time."""
    QUOTED = "quoted"
    """One line of somebody else's text: a surface puts a bar before each row of it."""
    SOFT = "soft"


@dataclasses.dataclass(frozen=True)
class Line:
    """One line, harmless, without its bar."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclasses.dataclass(frozen=True)
class Fact:
    """A name and what is to be said of it; no line: nothing."""

    name: str
    lines: tuple[Line, ...]


@dataclasses.dataclass(frozen=True)
class Section:
    """Facts under a title. `is_said`: somebody's words, boxed and not verified; `is_fine_print`: how it is done, and what is
    signed, which nobody needs to have read before they decide.
    """

    title: str
    facts: tuple[Fact, ...]
    is_said: bool = False
    is_fine_print: bool = False


@dataclasses.dataclass(frozen=True)
class Sheet:
    """One question. `word` is what a person types in the second step where a yes cannot be undone; None: a key is enough."""

    title: str
    verdict: Line
    word: str | None
    essentials: tuple[Fact, ...]
    alarms: tuple[Line, ...]
    sections: tuple[Section, ...]


def sheet_of(
    question: Question,
    content: Plan | Subject | None,
    preview: Preview | None,
    edited: Sequence[Change],
    when: Callable[[str | None], str],
) -> Sheet:
    """The sheet of a question about `content`, which was made of it (signed_view.py); `when` spells a moment.

    `preview` is what the person may see of it; None where it was not read. `edited` is what they changed of what was asked.
    """
    if content is None:
        return _of_unreadable(question)
    if isinstance(content, Plan):
        return _of_run(question, content, preview, edited, when)
    return _of_consent(question, content, when)


def _of_run(
    question: Question,
    plan: Plan,
    preview: Preview | None,
    edited: Sequence[Change],
    when: Callable[[str | None], str],
) -> Sheet:
    given = given_of(plan)
    changes = _argument_changes(question)
    is_final = plan.approval.irreversible
    return Sheet(
        title=visible(f"{plan.action} {plan.action_version}"),
        verdict=Line("! CANNOT BE UNDONE", Tone.ALARM) if is_final else Line("can be undone, says the action"),
        word=visible(plan.action) if is_final else None,
        essentials=(
            _fact("does", operations_of(plan.steps) or "nothing"),
            _fact("undo", undo_of(plan)),
            _fact("reaches", hosts_of(plan.steps) or "nothing"),
            _fact("account", accounts_of(plan.steps) or "none"),
            *((_fact("reads", elsewhere),) if (elsewhere := preview_elsewhere(plan)) else ()),
            Fact("asked by", (_theirs(asker_of(question)),)),
            Fact("differs", tuple(_difference(question, given, changes, when))),
        ),
        alarms=tuple(_line(f"! {text}", Tone.ALARM) for text in (*alarms(plan, preview), *unknown_of(plan))),
        sections=tuple(_run_sections(question, plan, preview, edited, given, changes, when)),
    )


def _of_consent(question: Question, subject: Subject, when: Callable[[str | None], str]) -> Sheet:
    named = ((_SHORT.get(name, name), value) for name, value in subject_facts(subject, None, when))
    facts = [_fact(name, value) for name, value in named if value is not None]
    pinned = {"reaches", "account"}
    changes = subject_changes(subject)
    wider = sum(1 for change in changes if change.widens)
    differs = [_line(f"≠ {wider} of {len(changes)} changes allow more", Tone.CHANGED)] if wider else []
    return Sheet(
        title=visible(title_of(question)),
        verdict=Line("! A LASTING PERMISSION", Tone.ALARM),
        word=visible(question.kind.replace("_", " ")),
        essentials=(
            *(fact for fact in facts if fact.name in pinned),
            _fact("undo", _TAKEN_BACK[question.kind]),
            Fact("asked by", (_theirs(asker_of(question)),)),
            *((Fact("differs", tuple(differs)),) if differs else ()),
        ),
        alarms=(),
        sections=(
            Section("what you would agree to", tuple(fact for fact in facts if fact.name not in pinned)),
            *_said(question),
            Section("bound to", (_fact("digest", question.digest),), is_fine_print=True),
        ),
    )


def _of_unreadable(question: Question) -> Sheet:
    """What another version asked, and was decided: as it came, since nobody knows here what it means."""
    return Sheet(
        title=visible(title_of(question)),
        verdict=Line("! OF ANOTHER VERSION: shown as it came", Tone.ALARM),
        word=visible(question.kind.replace("_", " ")),
        essentials=(Fact("asked by", (_theirs(asker_of(question)),)),),
        alarms=(),
        sections=(
            Section("as it came", (_fact("kind", question.kind), Fact("it says", _text_lines(unread_text(question))))),
            *_said(question),
            Section("bound to", (_fact("digest", question.digest),), is_fine_print=True),
        ),
    )


def _run_sections(
    question: Question,
    plan: Plan,
    preview: Preview | None,
    edited: Sequence[Change],
    given: list[LabelledArgument],
    changes: dict[str, tuple[str, str | None]],
    when: Callable[[str | None], str],
) -> Iterator[Section]:
    arguments = tuple(_argument(one, changes.get(one.name)) for one in given)
    left_out = [name for name, (how, _) in changes.items() if how == "left out"]
    gone = tuple(Fact(visible(name), (_was("left out, was ", changes[name][1]),)) for name in left_out)
    if preview is not None and preview.fields is not None:
        yield Section(f"what is there now, read {when(preview.taken_at)}", tuple(_previewed(preview.fields)))
        yield Section("arguments, from the agent", (*arguments, *gone))
    else:
        yield Section("what will be done, with these arguments", (*arguments, *gone) or (_fact("arguments", "none"),))
    if settled := tuple(_settled(plan)):
        yield Section("and with this, set by the action's file", settled)
    if edited:
        yield Section("you edited", tuple(_change(change) for change in edited))
    yield from _said(question)
    yield Section("how", tuple(_steps(plan)), is_fine_print=True)
    yield Section(
        "why you are asked, and what you sign",
        (
            _fact("rule", f"{plan.action} {plan.action_version} asks for a person each time, says its file"),
            _fact("file", plan.action_digest),
            _fact("digest", question.digest),
            _fact("session", question.session or "none"),
            _fact("record", question.audit_id or "none"),
        ),
        is_fine_print=True,
    )


def _previewed(fields: list[PreviewField]) -> Iterator[Fact]:
    for field in fields:
        yield Fact(visible(field.label), (_SOFT_NOTHING,) if field.value is None else _found_lines(field.value))


def _argument(one: LabelledArgument, change: tuple[str, str | None] | None) -> Fact:
    name = one.name if not one.label or compared(one.label) == compared(one.name) else f"{one.label} ({one.name})"
    lines = _value_lines(one.value)
    if change is not None:
        how, before = change
        lines = (*lines, _was(f"{how}, was " if before is not None else how, before))
    return Fact(visible(name), lines)


def _was(how: str, before: str | None) -> Line:
    return _line(f"≠ {how}" + ("" if before is None else without_gaps(spelled(before))), Tone.CHANGED)


def _difference(
    question: Question,
    given: list[LabelledArgument],
    changes: dict[str, tuple[str, str | None]],
    when: Callable[[str | None], str],
) -> Iterator[Line]:
    found = question.difference
    if not found:
        yield Line("≠ no call of this action was approved before", Tone.CHANGED)
        return
    at = when(found.decided_at)
    if found.problem:
        yield _line(f"! it cannot be compared with the call approved last ({at}): {found.problem}", Tone.ALARM)
        return
    if not found.changes:
        yield _line(f"nothing, from the call approved last ({at})", Tone.PLAIN)
        return
    names = [one.label or one.name for one in given if one.name in changes]
    names += [f"{name} (left out)" for name, (how, _) in changes.items() if how == "left out"]
    if names:
        yield _line(f"≠ from the call approved last ({at}): {', '.join(names)}", Tone.CHANGED)
    for change in found.changes:
        if _ARGUMENT.fullmatch(change.where) is None:
            yield from _change(change).lines


def _argument_changes(question: Question) -> dict[str, tuple[str, str | None]]:
    """By argument: how it differs from the call approved last, and what it was."""
    listed = question.difference.changes if question.difference else []
    matches = ((_ARGUMENT.fullmatch(change.where), change) for change in listed)
    return {match[1]: (match[2], change.before) for match, change in matches if match is not None}


def _change(change: Change) -> Fact:
    where, before, after = change.where, change.before, change.after
    was, now = without_gaps(spelled(before)), "gone" if after is None else without_gaps(spelled(after))
    if before is None:
        texts = [now]
    elif is_on_one_line(f"{was}{now}"):
        texts = [f"{was} → {now}"]
    else:
        texts = [f"was {was}", f"is {now}"]
    return Fact(visible(where), tuple(_line(f"≠ {where}: {text}", Tone.CHANGED) for text in texts))


def _said(question: Question) -> Iterator[Section]:
    facts: list[Fact] = []
    for turn in question.conversation or ():
        answer = turn.answer
        said = _text_lines(answer) if answer is not msgspec.UNSET else (Line("has not answered yet", Tone.SOFT),)
        facts += [Fact("you asked", _text_lines(turn.question)), Fact("the agent", said)]
    if facts:
        yield Section("agent says (not verified)", tuple(facts), is_said=True)


def _settled(plan: Plan) -> Iterator[Fact]:
    """What no argument says, and every run of this action has."""
    for name, value in settled_of(plan):
        yield Fact(visible(name), _value_lines(value))


def _steps(plan: Plan) -> Iterator[Fact]:
    for name, value in preview_facts(plan):
        yield _fact(name, value)
    for number, step in enumerate(plan.steps, start=1):
        for name, value in step_facts(number, step, None, is_whole=len(plan.steps) > 1):
            if value is not None and not (name == "given" and step.args == plan.args):
                yield _fact(name, value)


def _value_lines(value: Any) -> tuple[Line, ...]:
    if isinstance(value, str) and "\n" in value:
        return _text_lines(value)
    return (_theirs(spelled(value)),)


def _theirs(text: str) -> Line:
    """One line of somebody else's; quoted where it begins like one of ours, or a gap in it could have another begin so."""
    shown = visible(text)
    return Line(shown, Tone.QUOTED if shown.startswith(_AS_OURS) or GAP.search(shown) else Tone.PLAIN)


def _found_lines(text: str) -> tuple[Line, ...]:
    """What a preview found: a text whatever it was, so that quotes tell nothing apart; but blanks at its ends."""
    return _value_lines(text) if "\n" in text or text != text.strip() or not text else (_theirs(text),)


def _text_lines(text: str) -> tuple[Line, ...]:
    return tuple(Line(line, Tone.QUOTED) for line in visible_lines(text))


def _fact(name: str, value: str | Sequence[str] | None) -> Fact:
    """A fact as the command line has it: a text, or several with a bar before what somebody else wrote."""
    values = [value] if isinstance(value, str) or value is None else value
    return Fact(visible(name), tuple(_line(as_text(one), Tone.PLAIN) for one in values))


def _line(text: str, tone: Tone) -> Line:
    """On one line, with its tone found in its mark where it has one."""
    shown = visible(text)
    if shown.startswith(BAR):
        return Line(shown.removeprefix(BAR), Tone.QUOTED)
    if "(! not in plain letters" in shown or shown.startswith(("WIDER ", "FAILED", "goes through: NOBODY", "ALWAYS: ")):
        return Line(f"! {shown}", Tone.ALARM)
    return Line(shown, tone)


_SOFT_NOTHING: Final = Line("n/a", Tone.SOFT)
