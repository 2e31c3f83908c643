"""Approval of several requests that are alike: they are loaded, shown on one card, and approved one after the other.

Rules
- Exactly the requests on the card are approved, each with its own digest and signature. Nothing is fetched once the
  card is shown.
- The approval is accepted only after the end of the card was on the screen.
- If an approval fails, the remaining requests are not approved. The person is told how many requests were approved
  before the failure; these stay approved.

Source: docs/reference/console.md (Approving several). Not here: which requests are alike, and their card
(cards/together.py), a single request (decisions.py), the list (queue.py).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from rich.text import Text

from aileron.model.timestamp import local_time
from aileron.tui import rendering
from aileron.tui.decisions import NOT_AS_SHOWN, DecidingConsole
from aileron.tui.screens import ReadConfirm

if TYPE_CHECKING:
    from aileron.cards.card import Card
    from aileron.cards.decision_flow import Review

__all__ = ["TogetherConsole"]


class TogetherConsole(DecidingConsole):
    """The part of the console that approves several marked requests at once."""

    def action_select_alike(self) -> None:
        """Mark all open questions that are like the question under the cursor; unmark them if all were marked."""
        if self.selected is not None and self._pane == "queue":
            if not self.queue.mark_alike(self.selected):
                self._tell("no other request is alike (select several with v)")
            self._show_list()

    def action_approve(self) -> None:
        """Ask the person to confirm the approval of the question on the screen, or of all marked questions.

        Several questions are shown on one card, which must be read to its end.
        """
        selected = self.queue.marked_open
        if len(selected) < 2:
            super().action_approve()
        elif (refusal := self._decision_refusal("approve", is_read=True)) is not None:
            self._warn(refusal)
        else:
            self._begin("decide", self._ask_about_several, selected)

    async def _ask_about_several(self, names: list[str]) -> None:
        from aileron.cards.apart import why_apart_unread
        from aileron.cards.together import Apart, card_of_several

        asked = [review for name in names if (review := await self._reviewed(name)) is not None]
        if len(asked) < len(names):
            return  # `_reviewed` told the person why
        if (why := why_apart_unread(asked, local_time)) is not None:
            self._warn(why)
            return
        reviews = [review for original in asked if (review := await self._with_state(original)) is not None]
        if len(reviews) < len(names):
            return
        card = card_of_several(reviews, local_time)
        if isinstance(card, Apart):
            self._warn(card.why)
            return

        def said(is_yes: bool | None) -> None:
            if is_yes:
                self._begin("decide", self._approve_several, reviews)

        self.push_screen(
            ReadConfirm(functools.partial(_whole, card), card.word, verb=f"approve all {len(reviews)}", now=self.now),
            said,
        )

    async def _reviewed(self, name: str) -> Review | None:
        """Read a question and return it as it would be shown. If that fails, notify the person and return None."""
        from aileron.cards.decision_flow import review_of
        from aileron.model.decision import MismatchError

        found = await self._tried(self._daemon.question, name)
        if found is None:
            return None
        try:
            return review_of(found.value, is_signed=self._is_signed)
        except MismatchError:
            self._tell(NOT_AS_SHOWN, is_bad=True)
            return None

    async def _with_state(self, review: Review) -> Review | None:
        """Return the review with its preview; the preview is read now if an approval needs it and it was not read before.

        If that fails, notify the person and return None.
        """
        if not review.is_unread:
            return review
        preview = await self._preview_for(review, review.card(local_time))
        return None if preview is None else review.with_preview(preview)

    async def _approve_several(self, reviews: list[Review]) -> None:
        done, passkeys = 0, await self._passkeys("approve", reviews[0].question.kind)
        for review in reviews:
            if not await self._sent(review, "approve", None, passkeys):
                break
            self.queue.marked.discard(review.id)
            done += 1
        self._tell(f"{done} of {len(reviews)} approved", is_bad=done < len(reviews))
        await self._refresh_now()


def _whole(card: Card, width: int) -> Text:
    """Return all parts of a card that must be read, in rows of `width` cells."""
    body = rendering.body_rows(card.sections, width, is_whole=True)[0]
    return rendering.joined([*rendering.essential_rows(card, width), Text(), *body])
