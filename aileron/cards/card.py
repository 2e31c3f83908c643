"""The card: a question laid out for a screen, with a sentence that says what would happen, then the facts to decide by.

Pure; every surface shows the same card in the same order, and only lays it out. Every text in it has been escaped
(model/visible.py): a surface may print the text, and must not interpret it.

    headline · verdict · alarms · essentials (a few short lines that are never scrolled away) · sections · proof

Rules
- Facts that the runtime knows come first; the agent's own words come last, in a separate section, marked as not verified.
- Nothing is cut: a surface that shows less says how much is missing. Empty facts are left out.
- The proof (how the run works, what is signed) is folded: one key shows it, and nobody needs to read it before deciding.
- Every mark is a word or a sign in addition to a tone (colour), so that a tone is never the only sign.

Source: docs/reference/console.md, docs/adr/0045-one-card.md. Not here: the sentence (headline.py), its prominence (weight.py),
whether the digest covers what is shown (signed_view.py), colours, keys.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec
from msgspec import UNSET

from aileron.actions.summary import is_same_name
from aileron.cards.alarms import alarms, letter_alarms, spelled
from aileron.cards.amounts import spoken_number
from aileron.cards.changes import is_on_one_line
from aileron.cards.compared import Compared, argument_in, compared
from aileron.cards.granted import far_end, granted_action, left_open
from aileron.cards.headline import Span, headline_of, source_of, spelled_out
from aileron.cards.letters import with_codes
from aileron.cards.plan import (
    LabelledArgument,
    accounts_of,
    given_of,
    hosts_of,
    preview_elsewhere,
    preview_facts,
    settled_of,
    step_facts,
)
from aileron.cards.question import asker_of, title_of, unread_text, waits
from aileron.cards.subject import consent_headline, names_in, subject_changes, subject_facts
from aileron.cards.touched import touched_of
from aileron.cards.weight import UNREADABLE, Verdict, Weight, consent_verdict_of, verdict_of
from aileron.model.consent import (
    ActionFileConsent,
    BindingConsent,
    ConnectorConsent,
    ConnectorUpdateConsent,
    GrantConsent,
    HostConsent,
    InstallationConsent,
    PasskeyConsent,
    SecretConsent,
    SettingsConsent,
    ToolChangeConsent,
    TrustedKeyConsent,
)
from aileron.model.plan import Plan
from aileron.model.timestamp import spoken_time
from aileron.model.visible import BAR, GAP, as_text, visible, visible_lines, without_gaps

if TYPE_CHECKING:
    from aileron.api.approvals import Question
    from aileron.model.consent import Change, Subject
    from aileron.model.manifest import ActionFile
    from aileron.model.preview import Preview, PreviewField

__all__ = [
    "Card",
    "Fact",
    "Line",
    "Section",
    "Tone",
    "Weight",
    "argument_fact",
    "card_of",
    "consent_alarms",
    "found_facts",
    "text_lines",
    "value_lines",
]

_CREDENTIAL: Final = re.compile(r"\Acredential of ")
"""Beginning of `where` in a change to another account, which the daemon calls a credential (approvals/difference.py)."""
_OF_NUMBERS: Final = ("larger", "smaller")
"""Kinds of difference that only numbers have (approvals/difference.py).

For these, the earlier value is a number, not a text of digits.
"""
_AS_OURS: Final = tuple("!≠│┌└↳…！┃|▸")
"""Characters with which Aileron's own lines begin, and similar characters."""
_ALARMS: Final = ("ALLOWS MORE: ", "RUNS WITHOUT", "NO LIMIT: ", "LOOKS LIKE ", "UNSIGNED")
"""Beginnings of those facts about a consent that are alarms (subject.py, registry/consent.py)."""
_MOST_ALARMS: Final = 3
"""Maximum number of a consent's alarms shown above the scrolling part, which also contains all alarms."""
_SHORT: Final = {"credential": "account"}
_OF_CONSENT: Final = frozenset({"account", "goes to", "token goes to"})
"""Names of a consent's facts that stay visible while the other facts scroll."""
_PROOF: Final = frozenset(
    {"hash", "commitment", "limits", "algorithm", "model", "action file", "accepted", "compared with"}
)
"""Names of the facts that identify a consent: they are signed, and shown only when a person presses a key."""


class Tone(enum.StrEnum):
    """The meaning of a line of a card, which a surface shows by style."""

    PLAIN = "plain"
    MARKED = "marked"
    """A verdict that should be noticed; the line begins with `~ ` or `» `."""
    ALARM = "alarm"
    """A warning that a person should read; the line begins with `! `."""
    CHANGED = "changed"
    """A difference from the approved call; the line begins with `≠ `."""
    QUOTED = "quoted"
    """Text from another source; a surface puts a bar before each row of it."""
    SOFT = "soft"


_TONES: Final = {Weight.LIGHT: Tone.PLAIN, Weight.MARKED: Tone.MARKED, Weight.HEAVY: Tone.ALARM}


class Line(msgspec.Struct, frozen=True):
    """A line of a card that is safe to print. It does not contain the bar that a surface puts before quoted text."""

    text: str
    tone: Tone = Tone.PLAIN


class Fact(msgspec.Struct, frozen=True):
    """A named fact on a card, with its lines. A fact that has no line is left out."""

    name: str
    lines: tuple[Line, ...]


class Section(msgspec.Struct, frozen=True):
    """A titled group of facts on a card. `is_said` marks the words of other parties, which are boxed and not verified."""

    title: str
    facts: tuple[Fact, ...]
    is_said: bool = False


class Card(msgspec.Struct, frozen=True):
    """The card: what a person sees of one question, laid out for any screen.

    `headline` is a sentence about the request, and `source` says where its values come from. `verdict` says in a word what the
    request does. `word` is what a person must type to approve the most serious requests; None if pressing a key is enough.
    `called` is a short name of the question. `proof` is folded at first.
    """

    headline: tuple[Span, ...]
    source: Line | None
    verdict: Line
    weight: Weight
    word: str | None
    called: str
    alarms: tuple[Line, ...]
    essentials: tuple[Fact, ...]
    sections: tuple[Section, ...]
    proof: tuple[Section, ...]

    @property
    def sentence(self) -> str:
        """The headline as a text."""
        return spelled_out(self.headline)


def card_of(
    question: Question,
    content: Plan | Subject | None,
    preview: Preview | None,
    edited: Sequence[Change],
    when: Callable[[str | None], str],
) -> Card:
    """Return the card of a question. `content` is the plan or subject that the question contains (signed_view.py).

    `preview` is what the person can see of the current state; None if the preview was not read. `edited` has the person's
    changes to the request. `when` formats a time.
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
) -> Card:
    given = given_of(plan)
    than = compared(question, edited)
    verdict = verdict_of(plan)
    headline = headline_of(plan, preview)
    source = source_of(headline, is_edited=bool(edited))
    return Card(
        headline=headline,
        source=_line(source, Tone.SOFT) if source else None,
        verdict=_verdict_line(verdict),
        weight=verdict.weight,
        word=verdict.word,
        called=visible(plan.action),
        alarms=tuple(_line(f"! {alarm.text}", Tone.ALARM) for alarm in alarms(plan, preview, than)),
        essentials=tuple(
            fact for fact in _run_essentials(question, plan, preview, edited, given, than, when) if fact.lines
        ),
        sections=tuple(_run_sections(question, plan, preview, given, than, when)),
        proof=tuple(_run_proof(question, plan, preview, when)),
    )


def _run_essentials(
    question: Question,
    plan: Plan,
    preview: Preview | None,
    edited: Sequence[Change],
    given: list[LabelledArgument],
    than: Compared,
    when: Callable[[str | None], str],
) -> Iterator[Fact]:
    """Yield the facts of a run's card that stay visible, in addition to the sentence and the alarms."""
    if edited:
        yield Fact("edited", tuple(line for change in edited for line in _change(change).lines))
    yield _fact("goes to", hosts_of(plan.steps) or "nowhere: no network")
    yield _fact("account", accounts_of(plan.steps) or "none")
    yield _fact("loads from", preview_elsewhere(plan))
    yield _fact("touches", touched_of(plan, preview))
    if window_s := plan.approval.undo_window_s:
        yield _fact("undo", f"held for {window_s} s after approval, and can be withdrawn until then")
    yield Fact("asked by", tuple(_asked_by(question)))
    yield Fact("compared", tuple(_difference(question, given, than, when)))
    yield _fact("action", f"{plan.action} {plan.action_version}")


def _asked_by(question: Question) -> Iterator[Line]:
    yield _theirs(asker_of(question))
    if question.asked_today and question.asked_today > 1:
        yield Line(f"request {question.asked_today:,} of this agent session today", Tone.SOFT)


def _withdrawn(subject: Subject) -> str:
    """Return in words how a person can undo an approval of this subject later."""
    match subject:
        case ActionFileConsent():
            return "you can remove the action; what it has already done cannot be undone"
        case ConnectorUpdateConsent():
            return "you can go back: the earlier version stays installed"
        case ConnectorConsent():
            return "you can remove it"
        case InstallationConsent():
            return "you can remove the actions and connectors; what they have already done cannot be undone"
        case TrustedKeyConsent():
            return "you can revoke it; what has already been installed stays installed"
        case BindingConsent():
            return "you can revoke it; what has already been done with it cannot be undone"
        case SecretConsent() if subject.token_to is not UNSET:
            return "no: who has got the token keeps it until it is revoked there"
        case SecretConsent():
            return "no: the current value is overwritten"
        case GrantConsent():
            return "you can revoke it; what has already run cannot be undone"
        case SettingsConsent():
            return "you can change them back"
        case PasskeyConsent():
            return "you can revoke it; what it has already decided stays decided"
        case ToolChangeConsent():
            return "you can disable the actions that use it; what they have already done cannot be undone"
        case HostConsent():
            return "it ends with the session (aileron sessions end); what has already been sent cannot be undone"
        case impossible:
            assert_never(impossible)


def _of_consent(question: Question, subject: Subject, when: Callable[[str | None], str]) -> Card:
    named = ((_SHORT.get(name, name), value) for name, value in subject_facts(subject, None, when))
    granted = granted_action(subject, question.granted_text or None) if isinstance(subject, GrantConsent) else None
    facts = [_fact(name, value) for name, value in named if value is not None]
    facts += _left_open(question, subject, granted)
    changes, verdict = subject_changes(subject), consent_verdict_of(subject, granted)
    wider = sum(1 for change in changes if change.widens)
    compared = (_line(f"≠ {_wider(wider, len(changes))}", Tone.CHANGED),) if wider else ()
    alarms = [*_alarms_in(facts), *_letters_of_names(subject)]
    more = len(alarms) - _MOST_ALARMS
    essentials = (
        *(fact for fact in facts if fact.name in _OF_CONSENT),
        _fact("undo", _withdrawn(subject)),
        Fact("asked by", (_theirs(asker_of(question)),)),
        Fact("compared", compared),
    )
    proof = tuple(fact for fact in facts if fact.name in _PROOF)
    return Card(
        headline=consent_headline(subject),
        source=None,
        verdict=_verdict_line(verdict),
        weight=verdict.weight,
        word=verdict.word,
        called=visible(title_of(question)),
        alarms=(*alarms[:_MOST_ALARMS], *([_line(f"! {more} more of these below", Tone.ALARM)] if more > 0 else [])),
        essentials=tuple(fact for fact in essentials if fact.lines),
        sections=(
            Section("what you would allow", tuple(fact for fact in facts if fact.name not in _OF_CONSENT | _PROOF)),
            *_said(question),
        ),
        proof=(Section("what you sign", (*proof, _fact("digest", question.digest))),),
    )


def _wider(wider: int, changes: int) -> str:
    if changes == 1:
        return "the change allows more"
    return f"all {changes} changes allow more" if wider == changes else f"{wider} of {changes} changes allow more"


def consent_alarms(question: Question, subject: Subject) -> list[str]:
    """Return all alarms of a consent, as on its card. The alarms of a grant need `granted_text` in the question."""
    granted = granted_action(subject, question.granted_text or None) if isinstance(subject, GrantConsent) else None
    facts = [_fact(name, value) for name, value in subject_facts(subject, None, str) if value is not None]
    found = [*_alarms_in([*facts, *_left_open(question, subject, granted)]), *_letters_of_names(subject)]
    return [line.text for line in found]


def _alarms_in(facts: Iterable[Fact]) -> Iterator[Line]:
    return (line for fact in facts for line in fact.lines if line.tone is Tone.ALARM)


def _letters_of_names(subject: Subject) -> Iterator[Line]:
    for name in names_in(subject):
        yield from (_line(f"! {alarm.text}", Tone.ALARM) for alarm in letter_alarms("name", name))


def _left_open(question: Question, subject: Subject, granted: ActionFile | None) -> Iterator[Fact]:
    """Yield a fact about the arguments that a standing grant does not limit. `granted` is the grant's action.

    If the file is unknown and the grant was already decided, yield nothing, because the file may have changed since and nobody
    is asked about the grant again.
    """
    if not isinstance(subject, GrantConsent) or (granted is None and not waits(question)):
        return
    alarm, rest = left_open(subject, granted)
    alarms = [text for text in (alarm, far_end(subject, question.created_at)) if text is not None]
    lines = [_line(f"! {text}", Tone.ALARM) for text in alarms] + ([] if rest is None else [_line(rest, Tone.PLAIN)])
    if lines:
        yield Fact("left open", tuple(lines))


def _of_unreadable(question: Question) -> Card:
    """Return the card of a question that cannot be parsed because another version of Aileron wrote it.

    The card shows the question as received, because its meaning is unknown.
    """
    return Card(
        headline=(Span(visible(title_of(question))),),
        source=None,
        verdict=_verdict_line(UNREADABLE),
        weight=UNREADABLE.weight,
        word=UNREADABLE.word,
        called=visible(title_of(question)),
        alarms=(),
        essentials=(Fact("asked by", (_theirs(asker_of(question)),)),),
        sections=(
            Section("as received", (_fact("kind", question.kind), Fact("content", text_lines(unread_text(question))))),
            *_said(question),
        ),
        proof=(Section("what you sign", (_fact("digest", question.digest),)),),
    )


def _verdict_line(verdict: Verdict) -> Line:
    return Line(verdict.text, _TONES[verdict.weight])


def _run_sections(
    question: Question,
    plan: Plan,
    preview: Preview | None,
    given: list[LabelledArgument],
    than: Compared,
    when: Callable[[str | None], str],
) -> Iterator[Section]:
    if preview is not None and preview.fields is not None:
        found = tuple(found_facts(preview.fields)) or (_fact("found", "nothing"),)
        title = "what it would do, tried and rolled back" if plan.changes_only_seen else "current state, loaded"
        yield Section(f"{title} {when(preview.taken_at)}", found)
    arguments = tuple(argument_fact(argument, than.arguments.get(argument.name)) for argument in given)
    gone = tuple(
        Fact(visible(name), (_was("left out", before),))
        for name, (how, before) in than.arguments.items()
        if how == "left out"
    )
    whose = "arguments, with your edit" if than.edited else "arguments from the agent"
    yield Section(whose, (*arguments, *gone) or (_fact("arguments", "none"),))
    if settled := tuple(_settled(plan)):
        yield Section("set by the action file", settled)
    yield from _said(question)


def _run_proof(
    question: Question, plan: Plan, preview: Preview | None, when: Callable[[str | None], str]
) -> Iterator[Section]:
    yield Section("how it runs", tuple(_steps(plan)))
    empty = [] if preview is None else [visible(field.label) for field in preview.fields or () if field.value is None]
    yield Section(
        "what you sign",
        tuple(
            fact
            for fact in (
                _fact("rule", "approval always required (action file)"),
                _fact("file", plan.action_digest),
                _fact("digest", question.digest),
                _fact("empty", ", ".join(empty) or []),
                _fact("asked", when(question.created_at)),
                _fact("session", question.session or []),
                _fact("record", question.audit_id or []),
            )
            if fact.lines
        ),
    )


def found_facts(fields: Iterable[PreviewField]) -> Iterator[Fact]:
    """Yield a fact for each field that a preview found, under the author's label. Empty fields are omitted."""
    for field in fields:
        if field.value is not None:
            yield Fact(visible(field.label), _found_lines(field.value))


def argument_fact(argument: LabelledArgument, change: tuple[str, str | None] | None = None) -> Fact:
    """Return an argument, uncut, as a fact.

    `change` has the kind of difference from the approved call, and the earlier value.
    """
    name = argument.label or argument.name
    if not is_same_name(name, argument.name):
        name = f"{name} ({argument.name})"
    lines = value_lines(argument.value, argument.name)
    if change is not None:
        lines = (*lines, _was(*change, argument.name))
    return Fact(visible(name), lines)


def _was(how: str, before: str | None, name: str = "") -> Line:
    """Return a line that says how an argument differs from that of the approved call.

    For a plain change, the line has only the earlier value, which implies that the argument changed.
    """
    if before is None:
        return _line(f"≠ {how}", Tone.CHANGED)
    said = "" if how in ("new", "changed") else f"{how}, "
    was = _number(before, name) if how in _OF_NUMBERS else spelled(before)
    return _line(f"≠ {said}in the approved call: {without_gaps(was)}", Tone.CHANGED)


def _number(text: str, name: str) -> str:
    """Return a number, given as JSON in a difference, in the format in which the argument `name` is shown; other text
    unchanged.
    """
    try:
        return spoken_number(json.loads(text), name) or text
    except ValueError:
        return text


def _difference(
    question: Question,
    given: list[LabelledArgument],
    than: Compared,
    when: Callable[[str | None], str],
) -> Iterator[Line]:
    """Yield the lines that compare a call with the most similar approved call. A different account or host is already an alarm,
    so only its name is shown here.
    """
    found = question.difference
    if not found:
        yield Line("first time for this action", Tone.PLAIN)
        return
    at = when(found.decided_at)
    if found.problem:
        yield _line(f"! not comparable with the call approved {at}: {found.problem}", Tone.ALARM)
        return
    if not found.changes:
        yield _line(f"same as the call approved {at}", Tone.PLAIN)
        return
    names = [argument.label or argument.name for argument in given if argument.name in than.arguments]
    names += [f"{name} (left out)" for name, (how, _) in than.arguments.items() if how == "left out"]
    names += [*(["account"] if than.accounts else []), *(["destination"] if than.hosts else [])]
    if names:
        yield _line(f"≠ {', '.join(names)}: differs from the most similar call, approved {at}", Tone.CHANGED)
    for change in than.others:
        yield from _change(change).lines


def _change(change: Change) -> Fact:
    argument = argument_in(change)
    where, before, after = argument[0] if argument else change.where, change.before, change.after
    where = _CREDENTIAL.sub("account of ", where)
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
        said = text_lines(answer) if answer is not msgspec.UNSET else (Line("has not answered yet", Tone.SOFT),)
        facts += [Fact("you asked", text_lines(turn.question)), Fact("the agent", said)]
    if facts:
        yield Section("agent says (not verified)", tuple(facts), is_said=True)


def _settled(plan: Plan) -> Iterator[Fact]:
    """Yield a fact for each value in a step's arguments that the action file sets. Arguments of the call that are
    passed on unchanged are left out.
    """
    for name, value in settled_of(plan):
        yield Fact(visible(name), value_lines(value))


def _steps(plan: Plan) -> Iterator[Fact]:
    for name, value in preview_facts(plan):
        yield _fact(name, value)
    for number, step in enumerate(plan.steps, start=1):
        for name, value in step_facts(number, step, None, is_whole=len(plan.steps) > 1):
            if value is not None and not (name == "given" and step.args == plan.args):
                yield _fact(name, value)


def value_lines(value: Any, name: str = "") -> tuple[Line, ...]:
    """Return the lines of an untrusted value, uncut.

    A time is also shown in the person's time zone. `name` is the value's name.
    """
    if (number := spoken_number(value, name)) is not None:
        return (Line(number),)
    if isinstance(value, str) and "\n" in value:
        return text_lines(value)
    if (moment := spoken_time(value)) is not None:
        return (Line(f"{moment} ({value})"),)
    return (_theirs(spelled(value)),)


def _theirs(text: str) -> Line:
    """Return a line of untrusted text.

    It is marked as quoted if its beginning, or text after a gap in it, could be taken for one of Aileron's own lines.
    """
    shown = visible(with_codes(text))
    return Line(shown, Tone.QUOTED if shown.startswith(_AS_OURS) or GAP.search(shown) else Tone.PLAIN)


def _found_lines(text: str) -> tuple[Line, ...]:
    """Return the lines of a value that a preview found.

    The value is always text, so quotes only mean that it is empty or has blanks at its ends.
    """
    if spoken_time(text) is not None:
        return value_lines(text)
    return value_lines(text) if "\n" in text or text != text.strip() or not text else (_theirs(text),)


def text_lines(text: str) -> tuple[Line, ...]:
    """Return the lines of a text, each marked as quoted."""
    return tuple(Line(line, Tone.QUOTED) for line in visible_lines(with_codes(text)))


def _fact(name: str, value: str | Sequence[str] | None) -> Fact:
    """Return a fact from its name and its text or texts, as commands print them: untrusted text begins with a bar."""
    values = [value] if isinstance(value, str) or value is None else value
    return Fact(visible(name), tuple(_line(as_text(text), Tone.PLAIN) for text in values))


def _line(text: str, tone: Tone) -> Line:
    """Return a text as one line of a card: quoted if it begins with a bar, an alarm if it has the words of an alarm,
    otherwise with `tone`.

    Gaps are shortened, so that no blanks can push a part of the text out of sight.
    """
    shown = visible(text)
    if shown.startswith(BAR):
        return Line(shown.removeprefix(BAR), Tone.QUOTED)
    shown = without_gaps(shown)
    if "(! not in plain letters" in shown or shown.startswith(_ALARMS):
        return Line(f"! {shown}", Tone.ALARM)
    return Line(shown, tone)
