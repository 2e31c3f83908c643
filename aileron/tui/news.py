"""What the daemon tells: read once, then waited for and read again, for as long as the console is open.

Without a daemon nothing looks as if it could be decided; whatever it answers, the console stays.

Not here: what is asked of it and in which shape it answers (daemon_client.py).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from textual.widgets.option_list import Option

from aileron.tui import rendering
from aileron.tui.console_base import in_thread
from aileron.tui.daemon_client import GoneError, RequestRefused
from aileron.tui.queue import Rows
from aileron.tui.reading import ReadingConsole

if TYPE_CHECKING:
    from aileron.api.approver import ApproverFacts

__all__ = ["NewsConsole"]

MOST_EVENTS: Final = 500
_FIRST_EVENTS: Final = 100
_RETRY_S: Final = 1.0


class NewsConsole(ReadingConsole):
    """The console, as far as it follows the daemon."""

    async def _follow(self) -> None:
        """Read what there is, then wait for news and read again; for as long as the console is open."""
        is_started = False
        try:
            await in_thread(self._hooks.check)
        except Exception as error:  # noqa: BLE001 - raised where the console was run
            self.refused = error
            self.exit()
            return
        self._is_checked = True
        while True:
            try:
                if not is_started:
                    await in_thread(self.key_session.look)
                    await in_thread(self._daemon.start)
                    is_started = True
                last = await self._read_all()
                while True:
                    events = await in_thread(self._daemon.news, last)
                    last = int(events[-1]["seq"]) if events else last
                    await self._took(events)
            except (GoneError, RequestRefused) as error:
                self._lose(str(error))
                await asyncio.sleep(_RETRY_S)
            except Exception as error:  # noqa: BLE001 - whatever it answers, the console stays, and nothing can be decided
                self._lose(f"its answer cannot be shown: {type(error).__name__}")
                await asyncio.sleep(_RETRY_S)

    async def _read_all(self) -> int:
        events = await in_thread(self._daemon.newest, _FIRST_EVENTS)
        self._show_events(events)
        await self._refresh()
        self._regain()
        self._reload()
        return int(events[-1]["seq"]) if events else 0

    async def _took(self, events: list[dict[str, Any]]) -> None:
        self._regain()
        if not events:
            return
        self._add_events(events)
        await self._refresh()
        run = self._review and (self._review.question.audit_id or None)
        about = {event.get(name) for event in events for name in ("run", "approval")} - {None}
        if {run, self.selected} & about:
            self._reload()

    async def _refresh(self) -> None:
        """The queue, who decides, and what stands on the other screens."""
        self._status = await in_thread(self._daemon.status)
        self._take_approver(await in_thread(self._daemon.approver))
        news = self.waiting.take(await in_thread(self._daemon.waiting))
        for name in news.gone:
            await self._settle(name)
        if news.new:
            self.guard.arrive(now=time.monotonic())
            if self._has_looked and time.monotonic() >= self._quiet_until:
                self.bell()
        self._has_looked = True
        self._show_list()
        self._show_frame()
        await self._fill_pane()

    async def _settle(self, name: str) -> None:
        """What became of one that waits no more; that nobody can say is told once, and it is asked again with the next news."""
        try:
            became = await in_thread(self._daemon.outcome, name)
        except RequestRefused as error:
            if name not in self._untold:
                self._untold.add(name)
                self._tell(
                    f"{self.waiting[name].title} is no longer waiting; its outcome is not known: {error}", is_bad=True
                )
            return
        self._untold.discard(name)
        self.waiting.settle(name, became.status, kept=self.selected)

    def _take_approver(self, told: ApproverFacts) -> None:
        """Who decides, as the daemon says now. Where somebody did, nobody is believed who says that nobody does any more."""
        was = None if self._approver is None else self._approver.status
        if told.status == "none" and was not in ("none", None):
            raise GoneError("who answers says that nobody signs for this home any more: aileron approver status")
        self._approver = told
        self.key_session.key_id = told.key_id or None
        if was == "none" and told.status != "none":  # what is on the screen was not held against its digest
            self._select(self.selected)

    async def _refresh_now(self) -> None:
        try:
            await self._refresh()
        except (GoneError, RequestRefused) as error:
            self._lose(str(error))

    def _show_events(self, events: list[dict[str, Any]]) -> None:
        """These and no others; the cursor stays on its event, if that is among them and was not the last."""
        shown = self.query_one("#activity", Rows)
        kept = None if _is_at_end(shown) else shown.chosen()
        shown.clear_options()
        options = self._event_options(events)
        shown.add_options(options)
        self._events = events
        if options:
            names = [option.id for option in options]
            shown.highlighted = names.index(kept) if kept in names else len(names) - 1

    def _add_events(self, events: list[dict[str, Any]]) -> None:
        """These too, as rows below; of what stands there no row is made anew, and what is too much goes from the top."""
        shown = self.query_one("#activity", Rows)
        at, is_at_end = shown.highlighted or 0, _is_at_end(shown)
        options = self._event_options(events[-MOST_EVENTS:])
        too_many = max(shown.option_count + len(options) - MOST_EVENTS, 0)
        for _ in range(too_many):
            shown.remove_option_at_index(0)
        shown.add_options(options)
        shown.scroll_to(y=shown.scroll_y - too_many, animate=False, immediate=True)
        self._events = [*self._events, *events][-MOST_EVENTS:]
        if self._events:
            shown.highlighted = len(self._events) - 1 if is_at_end else max(at - too_many, 0)

    def _event_options(self, events: list[dict[str, Any]]) -> list[Option]:
        return [Option(rendering.event_row(event, self.size.width - 2), id=f"e{event.get('seq')}") for event in events]

    def _lose(self, why: str) -> None:
        self.lost, self._is_asking = why, False
        self.guard.lose_daemon()
        self._show_frame()

    def _regain(self) -> None:
        self.lost, self._is_asking = None, False
        self.guard.regain_daemon(now=time.monotonic())
        self._show_frame()


def _is_at_end(shown: Rows) -> bool:
    """Whether the cursor goes on to what comes."""
    return shown.highlighted is None or shown.highlighted >= shown.option_count - 1
