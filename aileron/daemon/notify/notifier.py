"""Notifies a person that a question waits: on their desktop, and at an address that they named.

Runs in the daemon, with one task for each channel. A notice says that a question waits, not how it ends; a reminder follows
shortly before the question expires, unless the question was decided by then. No other work waits for a notification, or fails
because a notification fails: `asked` puts the question into a bounded queue and returns. Questions are stored only in memory: a
restarted daemon sends no reminders of older questions.

    notifier = Notifier(settings, egress, vault, queue=entry_of, page="http://localhost:27182")
    background.start_soon(notifier.serve)
    notifier.asked("apr-…", "send-mail", "action")

Source: docs/reference/notifications.md. Not here: the desktop (desktop.py), the webhook (webhook.py), the text (notices.py).
"""

from __future__ import annotations

import heapq
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from aileron.config import Settings
from aileron.daemon.notify.desktop import Desktop
from aileron.daemon.notify.notices import Asked, Notice, NotifyTiming
from aileron.daemon.notify.webhook import Webhook
from aileron.egress import Egress
from aileron.egress.refusal import RefusedError
from aileron.model.failure import AileronError
from aileron.vault.lend import VaultLender
from aileron.vault.vault import Vault

if TYPE_CHECKING:
    from aileron.api.approvals import ApprovalEntry

__all__ = ["MAX_REMINDERS", "Notifier", "QueueLook"]

MAX_REMINDERS: Final = 256
"""Maximum number of questions whose reminder is planned: a person with so many notices reads the list of questions anyway."""
QueueLook = Callable[[str], Awaitable["ApprovalEntry | None"]]
"""A function that returns a question by its id, or None if the question no longer waits for a person. Raises AileronError if
the question cannot be read.
"""
_log = logging.getLogger(__name__)


class Notifier:
    """Service that notifies a person of waiting questions, on all configured channels. One instance per daemon. Create and
    use it in the event loop.
    """

    def __init__(
        self,
        settings: Settings,
        egress: Egress,
        vault: Vault,
        *,
        queue: QueueLook,
        page: str,
        environment: Mapping[str, str] = os.environ,
        pace: NotifyTiming = NotifyTiming(),  # noqa: B008 - a frozen value
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the notifier. `settings` are those in force; `page` is the origin of the page. `environment` is the
        environment that the daemon was started with. `clock` returns seconds since the epoch.
        """
        self._clock: Final = clock
        self._pace: Final = pace
        self._queue: Final = queue
        self._page: Final = page
        self._with_details: Final = settings.notify_details
        self._new: deque[Asked] = deque(maxlen=MAX_REMINDERS)
        self._due: list[tuple[float, str, Asked]] = []
        self._channels: Final[list[Desktop | Webhook]] = []
        if settings.notify_desktop and (desktop := Desktop.maybe_of(environment, pace, self._describe)) is not None:
            self._channels.append(desktop)
        if settings.notify_webhook is not None and settings.notify_webhook_secret is not None:
            try:
                webhook = Webhook(
                    settings.notify_webhook,
                    settings.notify_webhook_secret,
                    settings.egress_private,
                    egress=egress,
                    lender=VaultLender(vault),
                    describe=self._describe,
                    pace=pace,
                    clock=clock,
                )
            except RefusedError as error:
                # Not worth a daemon that does not start, when only an edit of its settings could fix it.
                _log.error("notify.webhook is not used: %s", error)
            else:
                self._channels.append(webhook)

    def asked(self, approval_id: str, action: str, kind: str) -> None:
        """Send notices of a new question. `action`: name of the action, or of the subject of a consent; `kind`: a ConsentKind.

        Returns at once and never raises. The notices of questions that are asked before `serve` begins are sent when it begins.
        """
        if self._channels:
            asked = Asked(approval_id, action, kind, self._clock())
            self._new.append(asked)
            self._tell(asked)

    def _tell(self, asked: Asked) -> None:
        for channel in self._channels:
            channel.asked(asked)

    async def serve(self) -> None:
        """Send notices of questions. Runs until cancelled."""
        async with anyio.create_task_group() as tasks:
            for channel in self._channels:
                tasks.start_soon(_serve, type(channel).__name__, channel.serve)
            if self._channels:
                tasks.start_soon(_serve, "reminders", self._remind)
            await anyio.sleep_forever()

    async def _describe(self, asked: Asked) -> Notice | None:
        try:
            entry = await self._queue(asked.approval_id)
        except AileronError as error:  # by its name alone: it waits, as far as is known
            _log.warning("a notification says less: %s", error)
            return Notice.of(asked, None, self._page, with_details=False)
        return None if entry is None else Notice.of(asked, entry, self._page, with_details=self._with_details)

    async def _remind(self) -> None:
        """Remind the person of each question once, shortly before the question expires. Runs until cancelled."""
        while True:
            await anyio.sleep(self._pace.remind_look_s)
            while self._new:
                await self._plan(self._new.popleft())
            while self._due and self._due[0][0] <= self._clock():
                self._tell(heapq.heappop(self._due)[2])  # the channel checks whether it still waits

    async def _plan(self, asked: Asked) -> None:
        """Plan the reminder of a question, unless the question expires soon after it was asked or too many reminders are
        planned.
        """
        notice = await self._describe(asked)
        if notice is None or notice.expires_at_s is None or len(self._due) >= MAX_REMINDERS:
            return
        at = notice.expires_at_s - self._pace.remind_s
        if at - asked.at_s >= self._pace.remind_s:
            again = msgspec.structs.replace(asked, at_s=at, is_reminder=True)
            heapq.heappush(self._due, (at, asked.approval_id, again))


async def _serve(name: str, serve: Callable[[], Awaitable[None]]) -> None:
    try:
        await serve()
    except Exception:  # noqa: BLE001 - the end of a task: no notification is worth the daemon
        _log.exception("notifications end: %s", name)
