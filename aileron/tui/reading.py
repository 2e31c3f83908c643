"""One question: read, seen to be what its digest covers, put on the screen, with its preview.

What cannot be shown is said in its place, and cannot be decided.

Not here: how it is laid out (view.py, review/sheet.py), keys that decide (decisions.py).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from rich.text import Text
from textual.widgets import OptionList

from aileron.model.timestamp import local_time
from aileron.model.visible import visible
from aileron.review.question import digest_of, has_preview
from aileron.tui import rendering
from aileron.tui.console_base import ConsoleBase, in_thread
from aileron.tui.daemon_client import GoneError, RequestRefused
from aileron.tui.deciding import in_a_prompt, unforeseen, why_closed
from aileron.tui.screens import Pages
from aileron.tui.view import View
from aileron.tui.waiting import seconds_left

__all__ = ["ReadingConsole"]

_EDITING: Final = "your edit of it is on its way"
_REST_S: Final = 0.5
"""A question that rests under the cursor for so long is worth reading its preview."""


class ReadingConsole(ConsoleBase):
    """The console, as far as it shows the question under the cursor."""

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Another question is under the cursor."""
        if event.option_list.id == "list" and event.option.id != self._selected:
            self.clear_notifications()  # they are about the one before
            self._select(event.option.id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter, or a click: read it. It decides nothing."""
        match event.option_list.id:
            case "list":
                self.default_screen.add_class("open")
                self._view.read()
                self.call_after_refresh(self._view.paint)
            case "activity":
                run = next((one.get("run") for one in self._events if f"e{one.get('seq')}" == event.option.id), None)
                if run is not None:
                    self._begin("run", self._show_run, str(run))

    async def _show_run(self, run: str) -> None:
        from aileron.review.record import record_of

        found = await self._tried(self._daemon.record, run)
        if found is not None:
            width = int(self.size.width * 0.96) - 5
            self.push_screen(Pages(rendering.joined(rendering.record_rows(record_of(found.value), width))))

    def _select(self, name: str | None) -> None:
        self._selected = name
        self._question = self._preview = self._sheet = self._record = self._edit = None
        self._view.turn(is_whole=False)
        self._view.scroll_to_begin()
        self._guard.show(name, None, now=time.monotonic())
        if name is not None:
            self._view.say(Text("reading it …", style="dim"))
            self._reload()

    def _take_away(self, name: str) -> None:
        """An edit of it is on its way: what it is about to replace can be decided no more, whatever the daemon tells of it."""
        self._editing.add(name)
        self._question = self._preview = self._sheet = None
        self._guard.cannot_show(name, _EDITING, now=time.monotonic())
        self._view.say(Text(f"{_EDITING} …", style="dim"))
        self._show_frame()

    def _reload(self) -> None:
        if self._selected is not None and self._selected not in self._editing:
            self._begin("question", self._load, self._selected)

    async def _load(self, name: str) -> None:
        """Read a question, see that it is what its digest covers, and put it on the screen."""
        from aileron.model.decision import MismatchError

        try:
            question = await in_thread(self._daemon.question, name)
            question = self._genuine(question)
            record = await in_thread(self._became, name, str(question["audit_id"])) if _has_run(question) else None
        except MismatchError as error:
            self._refuse(name, f"{error.failure.message}; {error.why}")
            return
        except RequestRefused as error:
            self._refuse(name, error.message)
            return
        except GoneError:
            return  # the news say so too
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is not such that it could be decided
            self._refuse(name, unforeseen(error))
            return
        if name == self._selected and name not in self._editing:
            self._take_question(name, question, record)
        if self._wants_preview():
            await asyncio.sleep(_REST_S)
        if self._wants_preview():  # still: its key may be locked by now, and nobody is asked for it unasked
            await self._read_preview()

    def _became(self, name: str, run: str) -> dict[str, Any]:
        """What is on record of a run, with what came back of it."""
        return {**self._daemon.record(run), "outcome": self._daemon.outcome(name)}

    def _take_question(self, name: str, question: dict[str, Any], record: dict[str, Any] | None) -> None:
        """Put it on the screen, or why it cannot be shown."""
        if self._question is None or self._question.get("digest") != question.get("digest"):
            self._preview = None
        self._question, self._record = question, record
        try:
            self._put_up()
        except Exception as error:  # noqa: BLE001 - as above: its parts are not what they are called
            self._refuse(name, unforeseen(error))

    def _genuine(self, question: dict[str, Any]) -> dict[str, Any]:
        """What it is about, or the person's own edit of it, as its digest covers it. MismatchError.

        Of what is decided the digest is what was signed, with the preview there was: nobody decides about that any more.
        """
        from aileron.review.signed_view import signed_view, signed_view_of_edit

        if why_closed(question) is not None:
            return question
        if self._edit is not None:
            question = signed_view_of_edit(question, self._edit)
        return signed_view(question) if self._is_signed else question

    def _put_up(self) -> None:
        from aileron.review.sheet import sheet_of

        question = self._question or {}
        before, self._sheet = self._sheet, sheet_of(question, self._preview, local_time)
        digest = digest_of(question, self._preview)
        has_ended = self._record is not None and not self._has_record_shown
        self._has_record_shown = self._record is not None
        if digest != self._guard.digest or has_ended:
            self._view.scroll_to_begin()
        self._guard.show(self._selected, digest, now=time.monotonic(), closed=self._why_closed())
        if has_ended or self._sheet != before:
            self._guard.disturb(now=time.monotonic())
            self._guard.read_anew()
        self._view.put(
            self._sheet,
            digest,
            closed=self._why_closed(),
            left_s=seconds_left(str(question.get("expires_at"))),
            record=self._record,
        )

    def _refuse(self, name: str, why: str) -> None:
        """It is not such that it could be decided."""
        if name == self._selected and name not in self._editing:
            self._question = self._sheet = None
            self._guard.cannot_show(name, why, now=time.monotonic())
            self._view.say(Text(f"! {visible(why)}", style="bold red"))

    def on_view_all_seen(self, event: View.AllSeen) -> None:
        """All of a question has been on the screen: of the one that is there now, or of what it has replaced."""
        if event.digest == self._guard.digest and event.sheet == self._sheet:
            self._guard.read_to_end()
            self._show_frame()

    def _has_preview(self) -> bool:
        return has_preview(self._question or {})

    def _wants_preview(self) -> bool:
        is_open = why_closed(self._question or {}) is None
        return self._has_preview() and self._preview is None and self._key_session.is_open and is_open

    def _forget_preview(self) -> None:
        self._preview = None
        if self._question is not None:
            self._put_up()

    async def _read_preview(self) -> None:
        from aileron.approver.signing import PREVIEW_S, PreviewAsked
        from aileron.model.failure import AileronError

        question, name, sheet = self._question, self._selected, self._sheet
        if question is None or name is None or sheet is None:
            return
        purpose = f"to read what is there now for {in_a_prompt(sheet.title)}"
        try:
            with self._asking_about(sheet), self._key_session.key(purpose, name) as key:
                asked = PreviewAsked(key, name, str(question["digest"]))
            answer = await in_thread(self._daemon.preview, name, asked.body, PREVIEW_S)
            preview = asked.opened(answer)
        except (AileronError, RequestRefused, GoneError, KeyboardInterrupt) as error:
            self._tell(str(error) or "it was not read", is_bad=True)
            return
        except (KeyError, TypeError, ValueError):
            self._tell("the daemon answered a preview that is none", is_bad=True)
            return
        if self._selected == name and self._question is question:
            self._preview = preview
            self._put_up()


def _has_run(question: dict[str, Any]) -> bool:
    """There is something on record of what it did."""
    return bool(question.get("audit_id")) and question.get("status") not in ("pending_approval", "approved")
