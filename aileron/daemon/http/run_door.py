"""The one door: turns a call of an agent or a person into a run, whichever way it came.

Runs in the daemon. `POST /v1/actions/{name}/run` and the protocol's `tools/call` both come here. Whether the caller's session is
open is checked around it (sessions.py, `answering`): by the guard of the routes (api/routes.py) and by the protocol's port
(agents.py).

Source: docs/reference/http-api.md#running. Not here: what a run does (runs/spine.py), how its outcome is returned.
"""

from __future__ import annotations

from typing import Any

from aileron.api.runs import RunRequest
from aileron.daemon.http.sessions import Caller, Sessions
from aileron.daemon.runner import Runner
from aileron.model.invocation import Invocation
from aileron.model.outcome import Outcome, Pending, Running

__all__ = ["RunDoor"]


class RunDoor:
    """The one door to runs. One per daemon."""

    def __init__(self, runner: Runner, sessions: Sessions) -> None:
        self._runner = runner
        self._sessions = sessions

    async def run(
        self, caller: Caller, action: str, asked: RunRequest, wait_s: float, *, key: str | None = None
    ) -> Outcome | Pending | Running:
        """Run an action, and wait for at most `wait_s`; `key` is the caller's idempotency key. AileronError as Runner.submit."""
        return await self._runner.submit(self._invocation(caller, action, asked, key), wait_s)

    async def plan(self, caller: Caller, action: str, asked: RunRequest) -> dict[str, Any]:
        """Return the plan of a run with its digest; nothing runs, and nothing is recorded."""
        return await self._runner.dry_run(self._invocation(caller, action, asked, None))

    def _invocation(self, caller: Caller, action: str, asked: RunRequest, key: str | None) -> Invocation:
        return Invocation(
            action=action,
            args=asked.args,
            scope=caller.scope,
            session=caller.session,
            binding=asked.binding,
            idempotency_key=key,
            again=asked.again,
            party=self._sessions.party_of(caller),
            selection=self._sessions.selection_of(caller),
        )
