"""Fields of the questions in a list: for each its sentence, its verdict, its worst alarm, and which other questions are alike.

Pure; runs in the daemon, so that every surface, and every program, gets the same. A row is made only from the
question itself, without its preview and without a comparison with earlier calls. So a card can have alarms that its row lacks.

Rules
- A question that cannot be parsed for a list counts as the worst, and its row is marked.
- A row shows one alarm, the worst, in a few words, and the number of further alarms.
- Questions can count as alike only if they have no alarm and no conversation, and pay nothing (together.py).

Source: docs/reference/http-api.md (A list), docs/reference/console.md (The list). Not here: what a row looks like (row.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET

from aileron.api.approvals import ApprovalEntry, Question
from aileron.cards.alarms import alarms
from aileron.cards.card import consent_alarms
from aileron.cards.compared import Compared
from aileron.cards.granted import granted_action
from aileron.cards.headline import cut_to_row, rows_of, spelled_out
from aileron.cards.question import is_run, waits
from aileron.cards.subject import consent_headline
from aileron.cards.together import Likeness, alike_among, likeness_of
from aileron.cards.weight import UNREADABLE, Verdict, consent_verdict_of, verdict_of
from aileron.model.consent import GrantConsent, Subject
from aileron.model.plan import Plan

__all__ = ["UNREAD", "listed"]

UNREAD: Final = "open it to read it"
"""Alarm for a question that is too long for a list, or comes from another version of Aileron."""
_NOTHING_COMPARED: Final = Compared({}, (), (), (), is_known=False, edited=frozenset())
_WORST: Final = (
    *("look-alike letters", "look-alike host", "hidden characters", "runs without approval", "no limit", "far end"),
    *("blind copy", "unknown value", "unsigned", "allows more"),
)
"""Alarms in order, worst first: deception, then missing limits, then more permissions than before."""
_OF_CONSENTS: Final = (
    ("look-alike letters", "look-alike letters"),
    ("(! not in plain letters", "look-alike letters"),
    ("hidden characters", "hidden characters"),
    ("LOOKS LIKE ", "look-alike host"),
    ("RUNS WITHOUT", "runs without approval"),
    ("ALLOWS MORE: approval.required: true → ", "runs without approval"),
    ("NO LIMIT: ", "no limit"),
    ("! no limit on ", "no limit"),
    ("! until ", "far end"),
    ("UNSIGNED", "unsigned"),
    ("ALLOWS MORE: ", "allows more"),
)
"""Parts of the alarm texts on a consent's card, each with a short form for a row of a list."""
_MOST_KEPT: Final = 1024
"""Maximum number of questions whose facts are cached, as many as can wait; each takes about 2 KiB.

They are cached because a list is made again after every change.
"""


class _Told(NamedTuple):
    """Facts about one question that do not depend on the other questions in the list. `headline` is set only for a consent."""

    verdict: Verdict
    briefs: tuple[str, ...]
    headline: str | None = None
    likeness: Likeness | None = None


_UNREADABLE: Final = _Told(UNREADABLE, (UNREAD,))
_kept: dict[bytes, _Told] = {}
"""Cached facts about questions, by a digest of the stored bytes.

The cache is emptied when full, because the facts of waiting questions are quickly computed again.
"""


def listed(
    rows: Sequence[tuple[ApprovalEntry, bytes | None, bool]], granted_text: Callable[[str], str | None] = lambda _: None
) -> list[ApprovalEntry]:
    """Return the entries of `rows` with the fields for a list (headline, verdict, alarm, alike requests) filled in.

    Each row has an entry, its stored plan or subject (None if that is too long), and a flag that is True if a person edited
    it. `granted_text` returns the file of an action by name; the file shows which arguments a grant does not limit.
    """
    told = [_told(entry, stored, granted_text) for entry, stored, _ in rows]
    runs = [(entry.approval_id, str(entry.action), stored) for entry, stored, _ in rows if is_run(entry)]
    headlines = rows_of(runs)
    entries = [
        msgspec.structs.replace(
            entry,
            headline=headlines.get(entry.approval_id, UNSET) if facts.headline is None else facts.headline,
            verdict=facts.verdict.brief,
            weight=facts.verdict.weight.value,
            alarm=_worst(facts.briefs) if facts.briefs else UNSET,
        )
        for (entry, _, _), facts in zip(rows, told, strict=True)
    ]
    return _with_alike(
        entries, [facts._replace(likeness=None) if row[2] else facts for row, facts in zip(rows, told, strict=True)]
    )


def _with_alike(entries: list[ApprovalEntry], told: Sequence[_Told]) -> list[ApprovalEntry]:
    plain = {
        entry.approval_id: facts.likeness
        for entry, facts in zip(entries, told, strict=True)
        if facts.likeness is not None and not facts.briefs and waits(entry) and not entry.asked_back
    }
    of = {name: group for group in alike_among(plain) for name in group.names}
    return [
        msgspec.structs.replace(entry, alike=group.names[0], differs=list(group.differs))
        if (group := of.get(entry.approval_id)) is not None
        else entry
        for entry in entries
    ]


def _worst(briefs: Sequence[str]) -> str:
    known = dict.fromkeys(briefs)
    worst = min(known, key=lambda brief: _WORST.index(brief) if brief in _WORST else -1)
    return worst if len(known) == 1 else f"{worst} +{len(known) - 1}"


def _told(entry: ApprovalEntry, stored: bytes | None, granted_text: Callable[[str], str | None]) -> _Told:
    if stored is None:
        return _UNREADABLE
    text = granted_text(str(entry.name)) if entry.kind == "grant" else None
    beside = "\0".join((entry.kind, entry.created_at, text or "")).encode("utf-8", "surrogatepass")
    key = hashlib.sha256(beside + b"\0" + stored).digest()
    if (known := _kept.get(key)) is not None:
        return known
    try:
        found = _of_run(stored) if is_run(entry) else _of_consent(entry, stored, text)
    except (TypeError, ValueError):  # msgspec.ValidationError is a ValueError: the question is of another version
        found = _UNREADABLE
    if len(_kept) >= _MOST_KEPT:
        _kept.clear()
    _kept[key] = found
    return found


def _of_run(stored: bytes) -> _Told:
    plan = Plan.from_json(msgspec.json.decode(stored))
    briefs = tuple(alarm.brief for alarm in alarms(plan, None, _NOTHING_COMPARED) if alarm.brief)
    return _Told(verdict_of(plan), briefs, likeness=likeness_of(plan))


def _of_consent(entry: ApprovalEntry, stored: bytes, text: str | None) -> _Told:
    subject: Subject = msgspec.json.decode(stored, type=Subject)
    question = Question(**msgspec.structs.asdict(entry), head="", granted_text=UNSET if text is None else text)
    granted = granted_action(subject, text) if isinstance(subject, GrantConsent) else None
    return _Told(
        consent_verdict_of(subject, granted),
        tuple(_briefly(consent_alarms(question, subject))),
        cut_to_row(spelled_out(consent_headline(subject))),
    )


def _briefly(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        yield next((brief for part, brief in _OF_CONSENTS if part in text), UNREAD)
