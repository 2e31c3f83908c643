"""Completes, after an unlock, the work that had to wait for the vault: records, questions, approved changes, approved runs.

Runs in the daemon, after each unlock (secrets/vault.py). If a step still fails, the next caller that starts a run gets the
error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import anyio

from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.enrollment import ApproverEnrollment
from aileron.daemon.consent_service.passkeys import Passkeys
from aileron.daemon.consent_service.service import DecisionService
from aileron.model.failure import AileronError

__all__ = ["AfterUnlock"]


class AfterUnlock:
    """Service that completes, after an unlock, the work that had to wait for the vault. One instance per daemon. The
    last step is `begin_approved`, which starts the approved runs. The lock `changing` is held during the steps before it.
    """

    def __init__(
        self,
        *,
        enrollment: ApproverEnrollment,
        passkeys: Passkeys,
        consents: ConsentService,
        decisions: DecisionService,
        begin_approved: Callable[[], Awaitable[None]],
        changing: anyio.Lock,
    ) -> None:
        self._enrollment = enrollment
        self._passkeys = passkeys
        self._consents = consents
        self._decisions = decisions
        self._begin_approved = begin_approved
        self._changing = changing

    async def catch_up(self) -> None:
        """Do the work that had to wait for the vault: complete the records of the approver and of passkeys, ask about
        settings, make approved changes, and start approved runs.
        """
        async with self._changing:
            with contextlib.suppress(AileronError):  # an older vault: the next caller that runs something is told
                await self._enrollment.catch_up()
                await self._passkeys.catch_up()
                await self._consents.ask_about_settings()
            await self._decisions.carry_out_approved()
        await self._begin_approved()
