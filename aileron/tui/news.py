"""News from the daemon: the console loads the current state, then waits for changes and loads it again, until the
console ends.

While the daemon is unreachable, no question looks as if it could be decided. The console continues after any response.

Not here: the requests and the types of the responses (daemon_client.py).
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from aileron.model.json_value import JSONObject, checked_int
from aileron.tui.console_base import in_thread
from aileron.tui.daemon_client import GoneError, RequestRefused
from aileron.tui.telling import TellingConsole

if TYPE_CHECKING:
    from aileron.api.approver import ApproverFacts

__all__ = ["NewsConsole"]

_FIRST_EVENTS: Final = 100
_RETRY_S: Final = 1.0
NOTICE_S: Final = 5.0
"""Minimum seconds between two notifications, so that an agent that asks all the time cannot cover the desktop with them.

The questions that arrive in between are counted in the next notification.
"""
_MOST_UNTOLD: Final = 100


class NewsConsole(TellingConsole):
    """The part of the console that waits for news from the daemon and updates its lists."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._told_at = -math.inf
        self._unannounced: list[tuple[str, str]] = []
        """Agent and action of each question that arrived since the last notification."""

    async def _follow(self) -> None:
        """Load the current state, then wait for news and load it again, until the console ends."""
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
                    last = checked_int(events[-1]["seq"]) if events else last
                    await self._took(events)
            except (GoneError, RequestRefused) as error:
                self._lose(str(error))
                await asyncio.sleep(_RETRY_S)
            except Exception as error:  # noqa: BLE001 - whatever it answers, the console stays, and nothing can be decided
                self._lose(f"unexpected answer ({type(error).__name__})")
                await asyncio.sleep(_RETRY_S)

    async def _read_all(self) -> int:
        events = await in_thread(self._daemon.newest, _FIRST_EVENTS)
        self._activity.show_events(events, self.size.width - 2)
        await self._refresh()
        self._regain()
        self._reload()
        return checked_int(events[-1]["seq"]) if events else 0

    async def _took(self, events: list[JSONObject]) -> None:
        self._regain()
        if not events:
            return
        self._activity.add_events(events, self.size.width - 2)
        self._take_history(events)
        await self._refresh()
        run = self._review and (self._review.question.audit_id or None)
        about = {event.get(name) for event in events for name in ("run", "approval")} - {None}
        if {run, self.selected} & about:
            self._reload()

    async def _refresh(self) -> None:
        """Read the queue, the approver, and the data of the other screens."""
        self._status = await in_thread(self._daemon.status)
        self._take_approver(await in_thread(self._daemon.approver))
        news = self.waiting.take(await in_thread(self._daemon.waiting))
        for name in news.gone:
            await self._settle(name)
        if news.new:
            self.guard.arrive(now=self.now())
            if self._has_looked and self.now() >= self._quiet_until:
                self.bell()
                self._announce(news.new)
        self._has_looked = True
        self._show_list()
        self._show_frame()
        await self._fill_pane()

    def _announce(self, names: Sequence[str]) -> None:
        """Notify the person of new questions, by agent and action, if the terminal supports notifications.

        At most one notification is sent in NOTICE_S; questions that arrive meanwhile are in the next one.
        """
        from aileron.tui.terminal_signals import notification, notification_way

        self._unannounced += [(self.waiting[name].asker, self.waiting[name].action) for name in names]
        way, now = notification_way(os.environ), self.now()
        if way is not None and now - self._told_at >= NOTICE_S:
            self._told_at = now
            self._tell_terminal(notification(way, self._unannounced[:_MOST_UNTOLD]))
            self._unannounced.clear()
        del self._unannounced[_MOST_UNTOLD:]

    async def _settle(self, name: str) -> None:
        """Request the outcome of the settled question with the id `name` from the daemon, and record it in the list.

        If the daemon does not report the outcome, notify the person once, and request it again with the next news.
        """
        try:
            became = await in_thread(self._daemon.outcome, name)
        except RequestRefused as error:
            if name not in self._untold:
                self._untold.add(name)
                self._tell(
                    f"{self.waiting[name].title} is no longer waiting; its outcome is unknown: {error}", is_bad=True
                )
            return
        self._untold.discard(name)
        self.waiting.settle(name, became.status, kept=self.selected)

    def _take_approver(self, told: ApproverFacts) -> None:
        """Store the facts about the approver that the daemon reports.

        Raises GoneError if the daemon says that this home no longer has its approver.
        """
        was = None if self._approver is None else self._approver.status
        if told.status == "none" and was not in ("none", None):
            raise GoneError("the daemon now says that this home has no approver: aileron approver status")
        self._approver = told
        self.key_session.key_id = told.key_id or None
        if was == "none" and told.status != "none":  # the question on the screen was not compared with its digest
            self._select(self.selected)

    async def _refresh_now(self) -> None:
        try:
            await self._refresh()
        except (GoneError, RequestRefused) as error:
            self._lose(str(error))

    def _lose(self, why: str) -> None:
        self.lost, self._is_asking = why, False
        self._has_history = False  # events that occur meanwhile are missed
        self.guard.lose_daemon()
        self._show_frame()

    def _regain(self) -> None:
        self.lost, self._is_asking = None, False
        self.guard.regain_daemon(now=self.now())
        self._show_frame()
