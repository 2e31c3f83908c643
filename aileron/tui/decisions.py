"""A yes and a no on the screen: the first step, the second, and what is sent for exactly what was shown.

Rules
- The second step counts for the digest of the first, compared again with what is on the screen then.
- Several are denied at once, each by itself, and never approved at once.

Not here: when a key counts (guard.py), what is signed and sent (deciding.py), the second step itself (screens.py).
"""

from __future__ import annotations

import math
import time
from typing import Any

from rich.text import Text

from aileron.model.timestamp import local_time
from aileron.model.visible import visible
from aileron.review.question import is_run, title_of
from aileron.tui import rendering
from aileron.tui.console_base import in_thread
from aileron.tui.daemon_client import GoneError
from aileron.tui.deciding import Decision, Notice, send, signed
from aileron.tui.news import FollowingConsole
from aileron.tui.screens import Confirm, LineInput
from aileron.tui.view import MOST_TOP

__all__ = ["DecidingConsole"]


class DecidingConsole(FollowingConsole):
    """The console, as far as it decides."""

    def action_approve(self) -> None:
        """The first step of a yes."""
        refusal = self._decision_refusal("approve")
        if refusal is None and self._has_preview() and self._preview is None and self._is_signed:
            refusal = "what is there now was not read yet: p reads it"
        if refusal is None and self._queue.marked_open:
            refusal = "several are marked: they can be denied together, and approved one by one (v takes a mark away)"
        if refusal is not None or self._sheet is None:
            self._warn(refusal or "nothing is selected")
            return
        shown = (self._selected, self._guard.digest)
        facts = rendering.joined(self._view.rows(self._sheet, min(int(self.size.width * 0.9), 100) - 5, MOST_TOP))

        def said(is_yes: bool | None) -> None:
            if is_yes:
                self._second_step(shown, "approve", None)

        self.push_screen(Confirm(facts, self._sheet.word), said)

    def action_deny(self) -> None:
        """A no, with a reason; of all that are marked."""
        self._begin_no(ends_session=False)

    def action_deny_and_stop(self) -> None:
        """A no, and the end of the session that asked."""
        self._begin_no(ends_session=True)

    def _begin_no(self, *, ends_session: bool) -> None:
        refusal = self._decision_refusal("deny")
        if refusal is not None or self._sheet is None or self._selected is None:
            self._warn(refusal or "nothing is selected")
            return
        shown = (self._selected, self._guard.digest)
        marked = self._queue.marked_open
        what = f"{len(marked)} questions" if len(marked) > 1 else self._waiting[(marked or [self._selected])[0]].title

        def said(reason: str | None) -> None:
            if reason is None:
                return
            if marked not in ([], [shown[0]]):
                self._begin("decide", self._deny_all, marked, reason or None, ends_session=ends_session)
            else:
                self._second_step(shown, "deny", reason or None, ends_session=ends_session)

        title = Text(f"deny {what}{', and end the session that asked' if ends_session else ''}", style="bold")
        hint = "Reason (the agent reads it; Enter for none) · Esc back"
        self.push_screen(LineInput(title, hint=hint, may_be_empty=True), said)

    def _decision_refusal(self, decision: Decision) -> str | None:
        """Why no decision can be made now. Of a question, an edit, what is taken back, the vault need not be open."""
        vault = self._status.get("vault") or {}
        refusal = self._refusal(decision)
        if refusal is None and self._is_signed and vault.get("exists") and vault.get("locked"):
            return "the vault is locked, and who decides for this home is in it: V opens it"
        return refusal

    def _refusal(self, decision: Decision) -> str | None:
        if self._pane != "queue":
            return "decisions are made on the first screen: 1"
        if self.default_screen.has_class("narrow") and not self.default_screen.has_class("open"):
            return "it is not on the screen: Enter shows it"
        now = time.monotonic() if self._pressed_at is None else self._pressed_at
        return self._guard.refusal(now=now, is_approval=decision == "approve")

    def _second_step(
        self,
        shown: tuple[str | None, str | None],
        decision: Decision,
        reason: str | None,
        *,
        ends_session: bool = False,
    ) -> None:
        """It counts for exactly what was on the screen in the first, if that still is, and can still be decided."""
        # The second step has a wait of its own: what has moved on the screen below it does not count.
        refusal = self._guard.refusal(now=math.inf, is_approval=decision == "approve") or self._why_closed()
        if shown != (self._guard.shown, self._guard.digest) or self._question is None:
            self._tell("it is another one now: nothing is decided, look at it again", is_bad=True)
        elif refusal is not None:
            self._tell(f"{refusal}: nothing is decided", is_bad=True)
        else:
            digest = str(shown[1])
            self._begin("decide", self._decide, self._question, digest, decision, reason, ends_session=ends_session)

    async def _decide(
        self, question: dict[str, Any], digest: str, decision: Decision, reason: str | None, *, ends_session: bool
    ) -> None:
        if question is not self._question or digest != self._guard.digest:
            self._tell("it is another one now: nothing is decided, look at it again", is_bad=True)
            return
        if not await self._sent(question, digest, decision, reason):
            return
        await self._end_session_of(question, wanted=ends_session)
        await self._refresh_now()

    async def _deny_all(self, names: list[str], reason: str | None, *, ends_session: bool) -> None:
        for name in names:
            found = await self._tried(self._daemon.question, name)
            if found is not None and await self._sent(found.value, str(found.value.get("digest")), "deny", reason):
                self._queue.marked.discard(name)
                await self._end_session_of(found.value, wanted=ends_session)
        await self._refresh_now()

    async def _end_session_of(self, question: dict[str, Any], *, wanted: bool) -> None:
        session = question.get("session")
        if wanted and session not in (None, "local"):
            await self._tried(self._daemon.end_session, str(session))

    async def _sent(self, question: dict[str, Any], digest: str, decision: Decision, reason: str | None) -> bool:
        name = str(question["approval_id"])
        if self._is_signed and not self._is_as_shown(question, digest):
            self._tell("what is shown is not what would be decided: nothing is signed, look at it again", is_bad=True)
            return False
        made = self._signed(question, digest, decision, reason)
        if not isinstance(made, Notice):
            try:
                body, called = made, visible(title_of(question))
                made = await in_thread(lambda: send(self._daemon, name, body, is_a_run=is_run(question), called=called))
            except GoneError as error:
                made = Notice(f"nobody answered: look whether it was decided ({error})", is_done=False)
        self._tell(made.words, is_bad=not made.is_done)
        return made.is_done

    def _signed(
        self, question: dict[str, Any], digest: str, decision: Decision, reason: str | None
    ) -> dict[str, Any] | Notice:
        from aileron.review.sheet import sheet_of
        from aileron.review.signed_view import signed_view

        is_seen = self._preview is not None and digest == self._preview.digest
        shown = signed_view(question) if self._is_signed else question
        sheet = sheet_of(shown, self._preview if is_seen else None, local_time)
        with self._asking_about(sheet):
            return signed(
                self._key_session,
                str(question["approval_id"]),
                digest,
                decision,
                reason,
                question.get("head"),
                is_signed=self._is_signed,
                called=sheet.title,
            )

    def _is_as_shown(self, question: dict[str, Any], digest: str) -> bool:
        """Whether this digest is computed from what the question says, or from that and the preview on the screen."""
        from aileron.model.decision import MismatchError
        from aileron.review.signed_view import signed_view

        try:
            computed = signed_view(question)["digest"]
        except MismatchError:
            return False
        return digest in (computed, None if self._preview is None else self._preview.digest)
