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
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from aileron.config import Settings
from aileron.daemon.desktop import Desktop
from aileron.daemon.notices import Notice, Pace
from aileron.daemon.webhook import Webhook
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
        pace: Pace = Pace(),  # noqa: B008 - a frozen value
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`settings` are those in force. `environment` is the daemon's own as it was started; `clock` gives s since the epoch."""
        self._clock: Final = clock
        self._channels: Final[list[Desktop | Webhook]] = []
        if settings.notify_desktop and (desktop := Desktop.maybe_of(environment, pace)) is not None:
            self._channels.append(desktop)
        if settings.notify_webhook is not None and settings.notify_webhook_secret is not None:
            with contextlib.suppress(RefusedError):
                pass
            self._add_webhook(settings.notify_webhook, settings.notify_webhook_secret, settings, egress, vault, pace)

    def _add_webhook(self) -> None: ...
