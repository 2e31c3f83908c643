"""One decision, from a question that came to the words for what became of it, as every surface makes it.

Pure: no terminal, no socket, no key. Each step makes a value, which the next one takes; a surface only shows, asks, signs, sends.

    review_of ─► Review ─► with_preview ─► card ─► UnsignedDecision ─(signed, sent)─► settled_words

Rules
- What is decided is the digest of what a `Review` has, with the preview that it has.
- What cannot be shown in full can be decided by nobody, whether decisions are signed here or not.
- A yes takes what was read: where somebody signs and there is a preview, none is decided without it.
- What changes only what a preview showed is not offered a yes without one that did (`why_no_yes`); the daemon would refuse it.
- A no needs no key: without a reason, and where a signature would take a passphrase, it is a withdrawal, which is unsigned and
  can only refuse. A reason is sent to the agent in the person's name, so it is signed.

Source: docs/reference/signed-decisions.md, docs/reference/console.md. Not here: how a question looks (card.py), when a key
counts (tui/guard.py), signatures (approver/signing.py), whether they count (daemon/decisions/service.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from aileron.api.approvals import Decision, Question, Settled
from aileron.model.decision import MismatchError
from aileron.model.plan import Plan
from aileron.model.visible import visible_json
from aileron.review.question import asker_of, closed_words, is_run, state_words, title_of, waits
from aileron.review.signed_view import content_of, edited_view, signed_view

if TYPE_CHECKING:
    from aileron.model.consent import Change, Subject
    from aileron.model.preview import Preview
    from aileron.review.card import Card

__all__ = [
    "ONLY_WITH_PREVIEW",
    "Review",
    "UnsignedDecision",
    "already_words",
    "as_told",
    "is_withdrawal",
    "review_of",
    "settled_words",
]


ONLY_WITH_PREVIEW: Final = (
    "not available: only what a preview showed is changed, so each run is approved with its preview"
)
"""Said in place of asking for a standing grant."""


class UnsignedDecision(msgspec.Struct, frozen=True):
    """A person's word about what they were shown, which `digest` covers. `head`: the newest row of the record."""

    approval_id: str
    digest: str
    decision: Literal["approve", "deny"]
    reason: str | None
    head: str

    @property
    def as_sent(self) -> Decision:
        """As it is sent where nobody signs."""
        return Decision(decision=self.decision, digest=self.digest, reason=self.reason)


class Review(msgspec.Struct, frozen=True, eq=False):
    """One question as a surface has it, and what was read for it. Nothing of it changes: each step makes another.

    `content` is the plan of a run, or the subject of a consent; None where it cannot be read here. `edited` is what the person
    changed of what was asked.
    """

    question: Question
    content: Plan | Subject | None
    is_signed: bool
    edited: tuple[Change, ...] = ()
    preview: Preview | None = None
    _cards: dict[Callable[[str | None], str], Card] = msgspec.field(default_factory=dict)
    """Its card, once it was made: hostile text can take a second, and a surface looks at a card in more than one place."""

    @property
    def plan(self) -> Plan | None:
        """What a run would do; None for a consent."""
        return self.content if isinstance(self.content, Plan) else None

    @property
    def id(self) -> str:
        """Of the question."""
        return self.question.approval_id

    @property
    def is_run(self) -> bool:
        """It is about a gated run, and no consent."""
        return is_run(self.question)

    @property
    def waits(self) -> bool:
        """Whether it can still be decided, but for its time."""
        return waits(self.question)

    @property
    def title(self) -> str:
        """Kind and name; hostile text."""
        return title_of(self.question)

    @property
    def asker(self) -> str:
        """Who asks; hostile text."""
        return asker_of(self.question)

    @property
    def has_preview(self) -> bool:
        """Whether something is read for the person before they decide: the plan says so, and no flag beside it."""
        return self.plan is not None and self.plan.preview is not None

    @property
    def is_unread(self) -> bool:
        """Whether something is to be read before a yes, and was not."""
        return self.has_preview and self.is_signed and self.preview is None

    @property
    def why_no_yes(self) -> str | None:
        """Why a yes to this as it stands here would change nothing; None: that is not known. Hostile text; a no is possible."""
        if self.plan is None or not self.plan.changes_only_seen:
            return None
        if not self.is_signed:
            return "only what a preview showed is changed, and previews need an approver: aileron approver init"
        if self.preview is None:
            return "only what a preview showed is changed, and it is not loaded: load the current state first"
        if self.preview.fields is None:
            said = f"only what a preview showed is changed, and this one failed: {self.preview.problem}"
            return f"{said}; load it again, or deny it with a reason, which tells the agent"
        return None

    @property
    def lends(self) -> bool:
        """Whether a credential is used, for which the vault has to be open."""
        return self.plan is not None and any(step.grant.credential for step in self.plan.steps)

    @property
    def plan_digest(self) -> str:
        """Of the plan, or subject, that is shown: what a preview is asked for with."""
        return self.question.digest

    @property
    def digest(self) -> str:
        """What a decision is about, of what is shown: itself, with the preview where one was read."""
        seen = None if self.preview is None else self.preview.digest
        return self.question.digest if seen is None else seen

    @property
    def closed(self) -> str | None:
        """Why it cannot be decided any more, in words; None: it can."""
        return closed_words(self.question)

    @property
    def edits(self) -> list[tuple[str, tuple[Change, ...]]]:
        """What the person made of it and did not decide about: by digest, what each would change."""
        versions = (
            (edit.digest, msgspec.structs.replace(self.question, plan=edit.plan)) for edit in self.question.edits or ()
        )
        return [(digest, _changes(self.content, _content_if_any(version))) for digest, version in versions]

    @property
    def as_json(self) -> str:
        """All of the question, harmless, for who wants to see it as it is."""
        return visible_json(msgspec.json.format(msgspec.json.encode(self.question), indent=2).decode())

    def card(self, when: Callable[[str | None], str]) -> Card:
        """As a person reads it; `when` spells a moment. Its `word` is what they type for a yes, None: a key is enough."""
        if when not in self._cards:
            from aileron.review.card import card_of  # 4 ms, and who decides without looking has none

            self._cards[when] = card_of(self.question, self.content, self.preview, self.edited, when)
        return self._cards[when]

    def with_preview(self, preview: Preview | None) -> Review:
        """The same with what was read for it."""
        return Review(self.question, self.content, self.is_signed, self.edited, preview)

    def decided(self, decision: Literal["approve", "deny"], reason: str | None) -> UnsignedDecision:
        """The decision about exactly this."""
        return UnsignedDecision(self.id, self.digest, decision, reason, self.question.head)


def review_of(question: Question, *, is_signed: bool, edit: str | None = None) -> Review:
    """A question as it is shown; with `edit`, the person's own version of that digest in place of the original.

    To be signed, it holds nothing that its digest does not cover, which was computed here: MismatchError where that is another.
    Of what is decided the digest is what was signed, with the preview there was: nobody decides about that any more, and it is
    shown as far as it can be.
    """
    if not waits(question):
        return as_told(question)
    shown = question if edit is None else edited_view(question, edit)
    shown, content = signed_view(shown) if is_signed else (shown, content_of(shown))
    edited = () if edit is None else _changes(_content_if_any(question), content)
    return Review(shown, content, is_signed, edited)


def as_told(question: Question) -> Review:
    """A question for who only looks: nothing of it was checked, and nobody decides about it."""
    return Review(question, _content_if_any(question), is_signed=False)


def is_withdrawal(reason: str | None, *, is_signed: bool, has_key: bool) -> bool:
    """Whether a no is sent as a withdrawal; `has_key`: the key is open, and a signature takes nothing from the person."""
    return is_signed and not has_key and not reason


def already_words(status: str | None) -> str:
    """What is said to who comes second."""
    return f"already decided elsewhere: {state_words(str(status))}"


def settled_words(settled: Settled, called: str, when: Callable[[str | None], str]) -> str:
    """What came of a decision about what is `called` so."""
    if settled.error:
        return f"approved, but it failed: {settled.error.message}"
    held = f", held until {when(settled.held_until)} (can be withdrawn until then)" if settled.held_until else ""
    return f"{state_words(settled.status)}: {called}{held}"


def _content_if_any(question: Question) -> Plan | Subject | None:
    try:
        return content_of(question)
    except MismatchError:
        return None


def _changes(asked: Plan | Subject | None, edited: Plan | Subject | None) -> tuple[Change, ...]:
    """What a person's version of a plan has other than what was asked; nothing where one of them cannot be read."""
    if not (isinstance(asked, Plan) and isinstance(edited, Plan)):
        return ()
    from aileron.approvals.difference import differences

    return differences(asked, edited)
