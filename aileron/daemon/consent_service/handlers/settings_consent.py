"""Handles consents to the settings of config.toml.

Runs in the daemon. Source: docs/reference/consents.md. Not here: which settings need consent (aileron/config.py), taking them
up (settings.py), the copy of the approved settings (approved_settings.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import anyio.to_thread

from aileron.api.approvals import SettingsApproved
from aileron.daemon.consent_service.approved_settings import ApprovedSettings
from aileron.daemon.consent_service.consent_checks import ConsentChecks, settings_digest
from aileron.daemon.consent_service.consent_store import ConsentStore
from aileron.daemon.consent_service.handlers.handler import LONG_WAIT_S, ConsentHandler
from aileron.ledger.rows import ApprovalRow
from aileron.model.consent import SETTINGS, ConsentKind, SettingsConsent

__all__ = ["SettingsHandler"]


class SettingsHandler(ConsentHandler[SettingsConsent]):
    """Handler of consents to settings. `take_up` puts approved settings in force, and returns whether all of them are in
    force now.
    """

    wait_s: ClassVar = LONG_WAIT_S

    def __init__(
        self,
        store: ConsentStore,
        consent_checks: ConsentChecks,
        approved: ApprovedSettings,
        take_up: Callable[[dict[str, Any]], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._approved = approved
        self._take_up = take_up
        self.question = consent_checks.settings_consent

    def is_so(self, subject: SettingsConsent) -> bool:
        """Return whether config.toml still asks for exactly these settings."""
        return self.question() == subject

    async def carry_out(self, subject: SettingsConsent, row: ApprovalRow) -> SettingsApproved:
        """Store the consent, write the copy that the daemon starts with, and put the settings in force."""
        await self._store.put(ConsentKind.SETTINGS, SETTINGS, settings_digest(subject.after), row.id)
        await anyio.to_thread.run_sync(self._approved.write, subject.after)
        is_whole = await self._take_up(subject.after)
        return SettingsApproved(settings=subject.after, restart=not is_whole)
