"""Approvals and denials on the screen, each in two steps. The decision that is sent is about exactly what was shown.

Rules
- The second step is about the digest of the first step, which is compared again with the question on the screen.
- Several requests can be denied at once, with a separate denial for each. They can be approved together only if they
  are alike (together.py).

Not here: when a key press may decide (guard.py), signing and sending (sending.py), the screen of the second step
(screens.py).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal

from rich.text import Text

from aileron.cards.question import session_of
from aileron.model.timestamp import local_time
from aileron.model.visible import visible
from aileron.tui import rendering
from aileron.tui.console_base import in_thread
from aileron.tui.daemon_client import GoneError
from aileron.tui.news import NewsConsole
from aileron.tui.screens import Confirm, LineInput
from aileron.tui.sending import Notice, is_withdrawal, offered, send, signed, withdraw
from aileron.tui.view import MOST_TOP

if TYPE_CHECKING:
    from aileron.cards.decision_flow import Review
    from aileron.model.passkey import PasskeyKey

__all__ = ["NOT_AS_SHOWN", "DecidingConsole"]

NOT_AS_SHOWN: Final = "what is shown is not what would be decided: nothing is signed, look at it again"


class DecidingConsole(NewsConsole):
    """The part of the console with the keys that approve and deny questions."""

    def action_approve(self) -> None:
        """Ask the person to confirm the approval of the question on the screen, or show why it cannot be approved."""
        refusal = self._decision_refusal("approve")
        if refusal is None and self._review is not None and self._review.is_unread:
            refusal = "current state not loaded: press p"
        if refusal is None and self._review is not None and self._review.why_no_yes is not None:
            refusal = visible(self._review.why_no_yes)
        if refusal is None and self.queue.marked_open not in ([], [self.selected]):
            refusal = "you selected another request: press v on it to unselect it, or d to deny it"
        if refusal is not None or self.card is None:
            self._warn(refusal or "nothing is selected")
            return
        shown = (self.selected, self.guard.digest)
        card = self.card

        def said(is_yes: bool | None) -> None:
            if is_yes:
                self._second_step(shown, "approve", None)

        def facts(width: int) -> Text:
            return rendering.joined(self._view.rows(card, width, MOST_TOP))

        self.push_screen(Confirm(facts, card.word, now=self.now), said)

    def action_deny(self) -> None:
        """Deny the question, or all marked questions, with a reason."""
        self._begin_no(ends_session=False)

    def action_deny_and_stop(self) -> None:
        """Deny the question, and end the session that asked it."""
        self._begin_no(ends_session=True)

    def _begin_no(self, *, ends_session: bool) -> None:
        refusal = self._decision_refusal("deny")
        if refusal is not None or self.card is None or self.selected is None:
            self._warn(refusal or "nothing is selected")
            return
        shown = (self.selected, self.guard.digest)
        marked = self.queue.marked_open
        subject = f"{len(marked)} requests" if len(marked) > 1 else self.waiting[(marked or [self.selected])[0]].row

        def said(reason: str | None) -> None:
            if reason is None:
                return
            if marked not in ([], [shown[0]]):
                self._begin("decide", self._deny_all, marked, reason or None, ends_session=ends_session)
            else:
                self._second_step(shown, "deny", reason or None, ends_session=ends_session)

        title = Text(f"deny {subject}{', and end the session that asked' if ends_session else ''}", style="bold")
        without = ", or Enter to withdraw without one" if self._is_withdrawal(None) else " (optional)"
        hint = f"Reason for the agent{without} · Esc back"
        self.push_screen(LineInput(title, hint=hint, may_be_empty=True), said)

    def _is_withdrawal(self, reason: str | None) -> bool:
        """Return whether a denial is sent as an unsigned withdrawal.

        True if the denial has no reason, this home signs decisions, and the approver's key, or the vault that names the
        key, is locked.
        """
        return is_withdrawal(
            reason, is_signed=self._is_signed, has_key=self.key_session.is_open and not self._is_vault_locked
        )

    @property
    def _is_vault_locked(self) -> bool:
        vault = None if self._status is None else self._status.vault
        return vault is not None and vault.exists and vault.locked

    def _decision_refusal(self, decision: Literal["approve", "deny"], *, is_read: bool = False) -> str | None:
        """Return why the person cannot make this decision now; None if they can. Only an approval needs an unlocked vault.

        `is_read`: the person reads the request on another screen, so the card under the cursor need not be read.
        """
        refusal = self._refusal("deny" if is_read else decision)
        if refusal is None and decision == "approve" and self._is_signed and self._is_vault_locked:
            return "the vault is locked, and holds who may decide: V unlocks it"
        return refusal

    def _refusal(self, decision: Literal["approve", "deny"]) -> str | None:
        if self._pane != "queue":
            return "decide on the queue screen: press 1"
        if self.default_screen.has_class("narrow") and not self.default_screen.has_class("open"):
            return "not on screen: press Enter to show it"
        now = self.now() if self._pressed_at is None else self._pressed_at
        return self.guard.refusal(now=now, is_approval=decision == "approve")

    def _second_step(
        self,
        shown: tuple[str | None, str | None],
        decision: Literal["approve", "deny"],
        reason: str | None,
        *,
        ends_session: bool = False,
    ) -> None:
        """Send the decision that the person has confirmed, unless the question on the screen has changed or is closed.

        `shown` is the id and digest of the question when the person chose the decision.
        """
        # The screen of the second step has its own waiting time, so movement on the screen below is ignored.
        refusal = self.guard.refusal(now=math.inf, is_approval=decision == "approve") or self._why_closed()
        if shown != (self.guard.shown, self.guard.digest) or self._review is None:
            self._tell("the request changed: not decided, look again", is_bad=True)
        elif refusal is not None:
            self._tell(f"{refusal}: not decided", is_bad=True)
        else:
            self._begin("decide", self._decide, self._review, decision, reason, ends_session=ends_session)

    async def _decide(
        self, review: Review, decision: Literal["approve", "deny"], reason: str | None, *, ends_session: bool
    ) -> None:
        passkeys = await self._passkeys(decision, review.question.kind)
        if review is not self._review or review.digest != self.guard.digest:
            self._tell("the request changed: not decided, look again", is_bad=True)
            return
        if not await self._sent(review, decision, reason, passkeys):
            return
        await self._end_session_of(review, wanted=ends_session)
        await self._refresh_now()

    async def _deny_all(self, names: list[str], reason: str | None, *, ends_session: bool) -> None:
        from aileron.cards.decision_flow import review_of
        from aileron.model.decision import MismatchError

        for name in names:
            found = await self._tried(self._daemon.question, name)
            if found is None:
                continue
            try:
                review = review_of(found.value, is_signed=self._is_signed)
            except MismatchError:
                self._tell(NOT_AS_SHOWN, is_bad=True)
                continue
            if await self._sent(review, "deny", reason):
                self.queue.marked.discard(name)
                await self._end_session_of(review, wanted=ends_session)
        await self._refresh_now()

    async def _end_session_of(self, review: Review, *, wanted: bool) -> None:
        session = session_of(review.question)
        if wanted and session is not None:
            await self._tried(self._daemon.end_session, session)

    async def _sent(
        self,
        review: Review,
        decision: Literal["approve", "deny"],
        reason: str | None,
        passkeys: tuple[PasskeyKey, ...] = (),
    ) -> bool:
        if self._is_signed and not review.is_signed:
            self._tell(NOT_AS_SHOWN, is_bad=True)  # the request was shown before this home had an approver
            return False
        made = await self._answer_to(review, decision, reason, passkeys)
        self._tell(made.words, is_bad=not made.is_done)
        return made.is_done

    async def _passkeys(self, decision: Literal["approve", "deny"], kind: str) -> tuple[PasskeyKey, ...]:
        """Return the passkeys with which a security key may sign this decision. Call this before the last check of the screen."""
        return await in_thread(offered, self._daemon, self.key_session, decision, kind)

    async def _answer_to(
        self,
        review: Review,
        decision: Literal["approve", "deny"],
        reason: str | None,
        passkeys: tuple[PasskeyKey, ...],
    ) -> Notice:
        """Sign the decision if needed, send it, and return a message about the result."""
        called = visible(review.title)
        try:
            if decision == "deny" and self._is_withdrawal(reason):
                return await in_thread(lambda: withdraw(self._daemon, review.id, called=called))
            card, decided = review.card(local_time), review.decided(decision, reason)
            with self._asking_about(card):
                made = signed(
                    self.key_session, decided, is_signed=self._is_signed, called=card.called, passkeys=passkeys
                )
            if isinstance(made, Notice):
                return made
            body = made
            return await in_thread(lambda: send(self._daemon, review.id, body, is_a_run=review.is_run, called=called))
        except GoneError as error:
            return Notice(f"no answer: check whether it was decided ({error})", is_done=False)
