"""What waited for an open vault, done when it is: put on record, asked, carried out, begun.

Runs in the daemon, after each unlock (secrets/vault.py). What one step cannot do yet is said to whoever runs something.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import anyio

from aileron.daemon.decisions.consents import ConsentService
from aileron.daemon.decisions.enrollment import ApproverEnrollment
from aileron.daemon.decisions.passkeys import Passkeys
from aileron.daemon.decisions.service import DecisionService
from aileron.model.failure import AileronError

__all__ = ["AfterUnlock"]


class AfterUnlock:
    """One for each daemon. `begin_approved` begins the runs that were approved; `changing` is held for all that is before."""

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
        """Make the changes that were agreed to and could not be made, ask what is to be asked, begin what was approved."""
        async with self._changing:
            with contextlib.suppress(AileronError):  # an older vault: whoever runs something is told
                await self._enrollment.catch_up()
                await self._passkeys.catch_up()
                await self._consents.ask_about_settings()
            await self._decisions.carry_out_agreed()
        await self._begin_approved()
