"""The objects with which every run is resolved, admitted, executed and recorded.

Runs in the daemon. Not here: what is done with them (request.py, resume.py, preview.py, carry_out.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from aileron.approvals.gate import Gate
from aileron.audit.log import Audit
from aileron.executor.execute import Executor
from aileron.ledger.sqlite import Ledger
from aileron.model.consent import ActionFileConsent
from aileron.model.failure import Failure
from aileron.model.plan import Plan
from aileron.runs.progress import Board
from aileron.runs.runnable import Runnable

__all__ = ["Parts"]


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that all runs of a daemon share, such as the gate, the executor and the audit.

    `ask` queues a question about a file and returns the approval's id; `asked` is called for each question about a run;
    `look` reloads the settings if they changed. `tool_changed` is called with each failure of a run, handles
    a tool that an MCP server changed, and returns the failure to report.
    """

    runnable: Runnable
    gate: Gate
    audit: Audit
    ledger: Ledger
    executor: Executor
    board: Board
    ask: Callable[[ActionFileConsent], Awaitable[str]]
    asked: Callable[[str, str, str], None]
    look: Callable[[], Awaitable[None]]
    tool_changed: Callable[[str, Plan, Failure], Awaitable[Failure]]
