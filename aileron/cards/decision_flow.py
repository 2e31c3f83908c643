"""The steps of one decision, from a received question to the text for its result. They are the same on every surface.

Pure: no terminal, no socket, no key. Each step makes a value for the next step; a surface only shows, asks, signs and sends.

    review_of ─► Review ─► with_preview ─► card ─► UnsignedDecision ─(signed, sent)─► settled_words

Rules
- A decision is about the digest of a `Review`'s content together with its preview.
- Nobody can decide a question that cannot be shown in full, whether decisions are signed here or not.
- An approval covers the preview: if decisions are signed, a question with a preview cannot be approved before the preview
  was read.
- A run that changes only what a preview showed cannot be approved without such a preview (`why_no_yes`); the daemon would refuse.
- A denial needs no key. If it has no reason, and a signature would take a passphrase, it is sent as a withdrawal, which is
  unsigned and can only refuse. A reason is sent to the agent in the person's name, so a denial with a reason is signed.

Source: docs/reference/signed-decisions.md, docs/reference/console.md. Not here: how a question looks (card.py), when a key press
counts (tui/guard.py), signatures (approver_key/signing.py), their verification (daemon/consent_service/service.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from aileron.api.approvals import Decision, Question, Settled
from aileron.cards.question import asker_of, closed_words, is_run, state_words, title_of, waits
from aileron.cards.signed_view import content_of, edited_view, signed_view
from aileron.model.decision import MismatchError
from aileron.model.plan import Plan
from aileron.model.visible import visible_json

if TYPE_CHECKING:
    from aileron.cards.card import Card
    from aileron.model.consent import Change, Subject
    from aileron.model.preview import Preview

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
"""Message shown instead of a question for a standing grant if an action changes only what a preview showed."""


class UnsignedDecision(msgspec.Struct, frozen=True):
    """A person's decision about what they were shown, which `digest` covers. `head` is the newest row of the ledger."""

    approval_id: str
    digest: str
    decision: Literal["approve", "deny"]
    reason: str | None
    head: str

    @property
    def as_sent(self) -> Decision:
        """The decision in the form in which it is sent to the daemon if decisions are not signed."""
        return Decision(decision=self.decision, digest=self.digest, reason=self.reason)


class Review(msgspec.Struct, frozen=True, eq=False):
    """A question as a person sees it on a surface, with its preview if that was read. It is immutable: each step makes a new
    review.

    `content` is the plan of a run, or the subject of a consent; None if the content cannot be parsed here. `edited` has the
    person's changes to the request.
    """

    question: Question
    content: Plan | Subject | None
    is_signed: bool
    edited: tuple[Change, ...] = ()
    preview: Preview | None = None
    _cards: dict[Callable[[str | None], str], Card] = msgspec.field(default_factory=dict)
    """Cards already made, by `when`; hostile text can take a second to format, and a surface uses a card more than once."""

    @property
    def plan(self) -> Plan | None:
        """The plan of a run; None if the question is about a consent."""
        return self.content if isinstance(self.content, Plan) else None

    @property
    def id(self) -> str:
        """The id of the question."""
        return self.question.approval_id

    @property
    def is_run(self) -> bool:
        """True if the question is about a gated run, False if it is about a consent."""
        return is_run(self.question)

    @property
    def waits(self) -> bool:
        """True if the question can still be decided. (Its expiry is not checked.)"""
        return waits(self.question)

    @property
    def title(self) -> str:
        """Kind and name of the question's subject; untrusted text."""
        return title_of(self.question)

    @property
    def asker(self) -> str:
        """Agent or command that asks; untrusted text."""
        return asker_of(self.question)

    @property
    def has_preview(self) -> bool:
        """True if a preview is read for the person before they decide.

        Only the plan determines this, not the question's other fields.
        """
        return self.plan is not None and self.plan.preview is not None

    @property
    def is_unread(self) -> bool:
        """True if a preview must be read before the person can approve, and has not been read."""
        return self.has_preview and self.is_signed and self.preview is None

    @property
    def why_no_yes(self) -> str | None:
        """Reason why approving this review now would have no effect; None if none is known. Untrusted text.

        A denial is always possible.
        """
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
        """True if the run uses a credential, so that the vault must be unlocked before it starts."""
        return self.plan is not None and any(step.grant.credential for step in self.plan.steps)

    @property
    def plan_digest(self) -> str:
        """Digest of the shown plan or subject; the preview is requested with this digest."""
        return self.question.digest

    @property
    def digest(self) -> str:
        """Digest that a decision is about.

        If a preview was read, the digest covers the plan and the preview; otherwise it covers the plan or subject.
        """
        seen = None if self.preview is None else self.preview.digest
        return self.question.digest if seen is None else seen

    @property
    def closed(self) -> str | None:
        """Reason in words why the question can no longer be decided; None if it still can."""
        return closed_words(self.question)

    @property
    def edits(self) -> list[tuple[str, tuple[Change, ...]]]:
        """The person's edits that nobody has decided about yet: the digest of each edit, with its changes."""
        versions = (
            (edit.digest, msgspec.structs.replace(self.question, plan=edit.plan)) for edit in self.question.edits or ()
        )
        return [(digest, _changes(self.content, _content_if_any(version))) for digest, version in versions]

    @property
    def as_json(self) -> str:
        """The complete question as escaped JSON, for people who want to see the original."""
        return visible_json(msgspec.json.format(msgspec.json.encode(self.question), indent=2).decode())

    def card(self, when: Callable[[str | None], str]) -> Card:
        """Return the card that a person reads; `when` formats a time.

        The card's `word` is what the person must type to approve; None if a key press is enough.
        """
        if when not in self._cards:
            from aileron.cards.card import card_of  # 4 ms, and a decision without a look at the card needs none

            self._cards[when] = card_of(self.question, self.content, self.preview, self.edited, when)
        return self._cards[when]

    def with_preview(self, preview: Preview | None) -> Review:
        """Return a copy of this review with `preview`, which was read for the person."""
        return Review(self.question, self.content, self.is_signed, self.edited, preview)

    def decided(self, decision: Literal["approve", "deny"], reason: str | None) -> UnsignedDecision:
        """Return the person's decision about exactly the content of this review. `reason` is what they wrote for the agent."""
        return UnsignedDecision(self.id, self.digest, decision, reason, self.question.head)


def review_of(question: Question, *, is_signed: bool, edit: str | None = None) -> Review:
    """Return the review of a question. If `edit` is the digest of a version that the person edited, the review has that
    version instead of the original.

    If `is_signed`, the review has only content that its digest covers. The digest is computed here; raises MismatchError if the
    question has another digest. A question that was already decided has the signed digest and the preview of that time; it
    cannot be decided again, and is shown as far as possible.
    """
    if not waits(question):
        return as_told(question)
    shown = question if edit is None else edited_view(question, edit)
    shown, content = signed_view(shown) if is_signed else (shown, content_of(shown))
    edited = () if edit is None else _changes(_content_if_any(question), content)
    return Review(shown, content, is_signed, edited)


def as_told(question: Question) -> Review:
    """Return the review of a question for viewing only. The question is not checked, and cannot be decided."""
    return Review(question, _content_if_any(question), is_signed=False)


def is_withdrawal(reason: str | None, *, is_signed: bool, has_key: bool) -> bool:
    """Return whether a denial is sent as a withdrawal instead: decisions are signed, the key is locked, and no reason is given.

    `has_key` means that the key is unlocked, so that signing needs no passphrase.
    """
    return is_signed and not has_key and not reason


def already_words(status: str | None) -> str:
    """Return the message for a person who decided too late, because the question was already decided elsewhere."""
    return f"already decided elsewhere: {state_words(str(status))}"


def settled_words(settled: Settled, called: str, when: Callable[[str | None], str]) -> str:
    """Return the text for the result of a decision about the request that is named `called`."""
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
    """Return the differences between the requested plan and the person's edited version; none if one of the two cannot be
    parsed.
    """
    if not (isinstance(asked, Plan) and isinstance(edited, Plan)):
        return ()
    from aileron.approvals.difference import differences

    return differences(asked, edited)
