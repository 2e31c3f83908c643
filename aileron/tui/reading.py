"""The question under the cursor: loads the question, checks it against its digest, and shows it with its preview.

If a question cannot be shown, the reason is shown in its place, and the question cannot be decided.

Not here: the layout of a question (view.py, cards/card.py), keys that decide (decisions.py).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from rich.text import Text
from textual.widgets import OptionList

from aileron.model.timestamp import local_time
from aileron.model.visible import visible
from aileron.tui import rendering
from aileron.tui.activity import Activity
from aileron.tui.console_base import ConsoleBase, in_thread
from aileron.tui.daemon_client import GoneError, RequestRefused
from aileron.tui.screens import Pages
from aileron.tui.sending import in_a_prompt, offered, unforeseen
from aileron.tui.view import View
from aileron.tui.waiting import seconds_left

if TYPE_CHECKING:
    from aileron.api.approvals import Question
    from aileron.cards.card import Card
    from aileron.cards.decision_flow import Review
    from aileron.cards.record import Record
    from aileron.model.preview import Preview

__all__ = ["ReadingConsole"]

_EDITING: Final = "your edit is being sent"
_REST_S: Final = 0.5
"""Seconds that a question must stay under the cursor before its preview is read."""


class ReadingConsole(ConsoleBase):
    """The part of the console that shows the question under the cursor."""

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the question that is now under the cursor."""
        if event.option_list.id == "list" and event.option.id != self.selected:
            self.clear_notifications()  # they are about the previous question
            self._select(event.option.id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open a row for reading, after Enter or a click. No question is decided by this."""
        match event.option_list.id:
            case "list":
                self.default_screen.add_class("open")
                self._view.read()
                self.call_after_refresh(self._view.paint)
            case "stories" | "ledger" as name:
                run = self.query_one("#activity", Activity).run_of(name, event.option.id)
                if run is not None:
                    self._begin("run", self._show_run, run)

    async def _show_run(self, run: str) -> None:
        from aileron.cards.record import record_of

        found = await self._tried(self._daemon.record, run)
        if found is not None:
            width = int(self.size.width * 0.96) - 5
            self.push_screen(Pages(rendering.joined(rendering.record_rows(record_of(found.value), width))))

    def _select(self, name: str | None) -> None:
        self.selected = name
        self._review = self.card = self._record = self._edit = None
        self._view.turn(is_whole=False)
        self._view.scroll_to_begin()
        self.guard.show(name, None, now=self.now())
        if name is not None:
            self._view.say(Text("loading …", style="dim"))
            self._reload()

    def _take_away(self, name: str) -> None:
        """Remove a question from the screen while its edit is sent.

        Until the edit was sent, the question cannot be decided, whatever the daemon reports about it.
        """
        self._editing.add(name)
        self._review = self.card = None
        self.guard.cannot_show(name, _EDITING, now=self.now())
        self._view.say(Text(f"{_EDITING} …", style="dim"))
        self._show_frame()

    def _reload(self) -> None:
        if self.selected is not None and self.selected not in self._editing:
            self._begin("question", self._load, self.selected)

    async def _load(self, name: str) -> None:
        """Read a question, check that its digest covers it, and put it on the screen."""
        from aileron.cards.decision_flow import review_of
        from aileron.model.decision import MismatchError

        try:
            question = await in_thread(self._daemon.question, name)
            review = review_of(question, is_signed=self._is_signed, edit=self._edit)
            record = await in_thread(self._became, name, question.audit_id) if _has_run(question) else None
        except MismatchError as error:
            self._refuse(name, f"{error.failure.message}; {error.why}")
            return
        except RequestRefused as error:
            self._refuse(name, error.message)
            return
        except GoneError:
            return  # news.py reports that
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is not such that it could be decided
            self._refuse(name, unforeseen(error))
            return
        if name == self.selected and name not in self._editing:
            self._take_review(name, review, record)
        if self._wants_preview():
            await asyncio.sleep(_REST_S)
        if self._wants_preview():  # check again: if the key is locked by now, a prompt would appear unasked
            await self._read_preview()

    def _became(self, name: str, run: str) -> Record:
        """Return the record of the run with the id `run`, with its result. `name` is the id of the question about it."""
        from aileron.cards.record import record_of

        return record_of(self._daemon.record(run), self._daemon.outcome(name))

    def _take_review(self, name: str, review: Review, record: Record | None) -> None:
        """Put a review (a loaded question) on the screen, with the preview if it was read earlier for the same plan. If
        the question cannot be shown, show why.
        """
        before = self._review
        if before is not None and before.plan_digest == review.plan_digest:
            review = review.with_preview(before.preview)
        self._review, self._record = review, record
        try:
            self._put_up(review)
        except Exception as error:  # noqa: BLE001 - as above: its parts are not what they are called
            self._refuse(name, unforeseen(error))

    def _put_up(self, review: Review) -> None:
        before, self.card = self.card, review.card(local_time)
        has_ended = self._record is not None and not self._has_record_shown
        self._has_record_shown = self._record is not None
        if review.digest != self.guard.digest or has_ended:
            self._view.scroll_to_begin()
        self.guard.show(self.selected, review.digest, now=self.now(), closed=self._why_closed())
        if has_ended or self.card != before:
            self.guard.disturb(now=self.now())
            self.guard.read_anew()
        self._view.put(
            self.card,
            review.digest,
            closed=self._why_closed(),
            left_s=seconds_left(review.question.expires_at),
            record=self._record,
        )
        self._show_frame()  # updates the key hints: a new card has not been read

    def _refuse(self, name: str, why: str) -> None:
        """Show why a question cannot be shown and therefore cannot be decided."""
        if name == self.selected and name not in self._editing:
            self._review = self.card = None
            self.guard.cannot_show(name, why, now=self.now())
            self._view.say(Text(f"! {visible(why)}", style="bold red"))

    def on_view_all_seen(self, event: View.AllSeen) -> None:
        """Record that all of a question has been on the screen, unless another question has replaced it."""
        if event.digest == self.guard.digest and event.card == self.card:
            self.guard.read_to_end()
            self._show_frame()

    def _wants_preview(self) -> bool:
        review = self._review
        return review is not None and review.is_unread and review.closed is None and self.key_session.may_read

    def _forget_preview(self) -> None:
        self._drop_preview()
        if self._review is not None:
            self._put_up(self._review)

    async def _read_preview(self) -> None:
        review, name, card = self._review, self.selected, self.card
        if review is None or name is None or card is None:
            return
        preview = await self._preview_for(review, card)
        if preview is not None and self.selected == name and self._review is review:
            self._review = review.with_preview(preview)
            self._put_up(self._review)

    async def _preview_for(self, review: Review, card: Card) -> Preview | None:
        """Read the preview of the question in `review` with the approver's key, and return it. If that fails, notify
        the person and return None.
        """
        from aileron.approver_key.signing import PREVIEW_S, PreviewAsked
        from aileron.model.failure import AileronError

        purpose = f"to load the current state for {in_a_prompt(card.called)}"
        passkeys = await in_thread(offered, self._daemon, self.key_session, "approve", review.question.kind)
        try:
            with self._asking_about(card), self.key_session.reader(purpose, review.id, passkeys) as by:
                asked = PreviewAsked(by, review.id, review.plan_digest)
            return asked.opened(await in_thread(self._daemon.preview, review.id, asked.body, PREVIEW_S))
        except (AileronError, RequestRefused, GoneError, KeyboardInterrupt) as error:
            self._tell(str(error) or "not loaded", is_bad=True)
        except ValueError:
            self._tell("the daemon sent a preview that cannot be read", is_bad=True)
        return None


def _has_run(question: Question) -> bool:
    """Return whether a record of the question's run exists."""
    return bool(question.audit_id) and question.status not in ("pending_approval", "approved")
