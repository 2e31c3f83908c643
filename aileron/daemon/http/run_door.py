"""The run door: the single place that turns a call of an agent or a person into a run, whichever interface the call came through.

Runs in the daemon. `POST /v1/actions/{name}/run` and the protocol's `tools/call` both come here. The callers of this module
check that the caller's session is open (sessions.py, `answering`): the guard of the routes (api/routes.py) and the service for
agents (agents.py).

Source: docs/reference/http-api.md#running. Not here: what a run does (runs/spine.py), how its outcome is returned.
"""

from __future__ import annotations

from aileron.api.runs import RunRequest
from aileron.daemon.http.sessions import Caller, Sessions
from aileron.daemon.runner import Runner
from aileron.model.invocation import Invocation
from aileron.model.json_value import JSONObject
from aileron.model.outcome import Outcome, Pending, Running

__all__ = ["RunDoor"]


class RunDoor:
    """The single entry through which agents and people start runs, whichever interface they use. One instance per daemon."""

    def __init__(self, runner: Runner, sessions: Sessions) -> None:
        self._runner = runner
        self._sessions = sessions

    async def run(
        self, caller: Caller, action: str, asked: RunRequest, wait_s: float, *, key: str | None = None
    ) -> Outcome | Pending | Running:
        """Run an action, and wait at most `wait_s` seconds for its outcome; `key` is the caller's idempotency key. Raises
        AileronError as Runner.submit does.
        """
        return await self._runner.submit(self._invocation(caller, action, asked, key), wait_s)

    async def plan(self, caller: Caller, action: str, asked: RunRequest) -> JSONObject:
        """Return the plan of a run with its digest, without running or recording anything."""
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
