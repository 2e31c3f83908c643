"""That a question waits, told where a person looks: on their desktop, and at an address they named.

Runs in the daemon, one task for each of the two. Told is that something waits, and not what becomes of it. Nothing waits for a
notification and nothing fails with one: `asked` puts it in a bounded queue and returns.

    notifier = Notifier(settings, egress, vault)
    background.start_soon(notifier.serve)
    notifier.asked("apr-…", "send-mail", "action")

Source: docs/reference/notifications.md. Not here: the desktop (desktop.py), the webhook (webhook.py), the text (notices.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Final

import anyio

from aileron.config import Settings
from aileron.daemon.notify.desktop import Desktop
from aileron.daemon.notify.notices import Notice, NotifyTiming
from aileron.daemon.notify.webhook import Webhook
from aileron.egress import Egress
from aileron.egress.refusal import RefusedError
from aileron.model.secret import Secret
from aileron.vault.lend import VaultLender
from aileron.vault.vault import Vault

__all__ = ["Notifier"]

_log = logging.getLogger(__name__)


class Notifier:
    """One for each daemon. Make it and use it in the event loop."""

    def __init__(
        self,
        settings: Settings,
        egress: Egress,
        vault: Vault,
        *,
        environment: Mapping[str, str] = os.environ,
        pace: NotifyTiming = NotifyTiming(),  # noqa: B008 - a frozen value
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`settings` are those in force. `environment` is the daemon's own as it was started; `clock` gives s since the epoch."""
        self._clock: Final = clock
        self._channels: Final[list[Desktop | Webhook]] = []
        if settings.notify_desktop and (desktop := Desktop.maybe_of(environment, pace)) is not None:
            self._channels.append(desktop)
        if settings.notify_webhook is not None and settings.notify_webhook_secret is not None:
            try:
                webhook = Webhook(
                    settings.notify_webhook,
                    settings.notify_webhook_secret,
                    settings.egress_private,
                    egress=egress,
                    lender=_Lender(vault),
                    pace=pace,
                    clock=clock,
                )
            except RefusedError as error:
                # Not worth a daemon that does not start, when nothing but an edit of its settings could mend it.
                _log.error("notify.webhook is not used: %s", error)
            else:
                self._channels.append(webhook)

    def asked(self, approval_id: str, action: str, kind: str) -> None:
        """A question waits. `action`: its name, or that of what a person is asked to agree to; `kind`: a ConsentKind.

        Returns at once and raises nothing. What was asked before `serve` is told when that begins.
        """
        if self._channels:
            notice = Notice.of(approval_id, action, kind, self._clock())
            for channel in self._channels:
                channel.asked(notice)

    async def serve(self) -> None:
        """Tell what is asked. Ends only by cancellation."""
        async with anyio.create_task_group() as tasks:
            for channel in self._channels:
                tasks.start_soon(_serve, channel)
            await anyio.sleep_forever()


async def _serve(channel: Desktop | Webhook) -> None:
    try:
        await channel.serve()
    except Exception:  # noqa: BLE001 - the end of a task: no notification is worth the daemon
        _log.exception("notifications end: %s", type(channel).__name__)


class _Lender:
    """The vault as a SecretLender."""

    def __init__(self, vault: Vault) -> None:
        self._vault: Final = vault
        self._lender: Final = VaultLender(vault)

    @property
    def is_locked(self) -> bool:
        return self._vault.is_locked

    def lend_secret(self, name: str) -> contextlib.AbstractContextManager[Secret]:
        return self._lender.lend_secret(name)
