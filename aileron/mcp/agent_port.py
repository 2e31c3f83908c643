"""The interface of all requests that the MCP server can make of the daemon. They are the routes of the agent socket, as
methods.

Each caller has a session, and cannot see the runs and questions of other sessions. The values are the JSON of
docs/reference/http-api.md. Pure: a Protocol, which the daemon implements (daemon/http/agents.py), and the types of its
arguments and results.

Not here: results for agents (results.py), execution of a run (runs/spine.py).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, Required, TypedDict

import msgspec

from aileron.model.json_value import JSON, JSONObject
from aileron.model.manifest import ActionFile

__all__ = ["Account", "AgentPort", "Asker", "Call", "CallState", "Offer", "Offered", "ProgressReport", "Report"]


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A choice that a call of an action can make: a credential, or a set with one credential for each connector. A call
    names it by `value`. `told` describes it for people, in words of the user and of services.
    """

    value: str
    told: str


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """An enabled action, which becomes one tool. `input_schema` is a JSON Schema of type object."""

    action: ActionFile
    input_schema: JSONObject
    granted: bool = False
    """True if, because of a standing grant, a call of a gated action may run at once. The tool's hints then describe
    the effects of the action.
    """
    accounts: tuple[Account, ...] = ()
    """Credentials, of which a call must choose one; empty if there is no choice."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The actions that one session can use. `listed` has the names of the actions that are listed as tools; the others
    are only found with find_action. If `listed` is None, all are tools, and find_action is not offered.
    """

    actions: tuple[Offered, ...]
    listed: frozenset[str] | None = None
    is_injected: bool = False
    """True if the session's tools are inserted into its requests to models, and shown nowhere else
    (docs/reference/injected-tools.md).
    """


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an action. `args` are not checked yet; `binding` names a credential if several match. `process` is the
    id of the process that made the connection; None if unknown.
    """

    session: str
    action: str
    args: JSONObject
    binding: str | None = None
    process: int | None = None


class ProgressReport(TypedDict, total=False):
    """A run's latest report of progress (`Progress` of the HTTP API). `number` counts the reports, starting at 1."""

    number: Required[int]
    done: Required[float]
    total: float | None
    message: str | None


class CallState(TypedDict, total=False):
    """The state of a run or of a question to a person, with the keys of the HTTP API's bodies. Keys that do not apply
    are absent.
    """

    status: Required[str]
    action: str
    approval_id: str
    audit_id: str
    run_id: str
    review_url: str
    created_at: str
    expires_at: str
    held_until: str
    message: str
    poll_after_ms: int
    question: str
    reason: str
    executed_arguments: JSONObject
    result: JSON
    error: JSONObject
    progress: ProgressReport


class Report(Protocol):
    """Type of a function that receives the progress of a call, which never decreases. `total` is None if it is not known."""

    async def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Pass on one report of progress."""
        ...


class Asker(NamedTuple):
    """The caller of a tool: its session, the id of the process at the other end of the connection (None if unknown),
    and the function that receives progress (None if not requested).
    """

    session: str
    process: int | None = None
    report: Report | None = None


class AgentPort(Protocol):
    """The requests that the MCP server can make of the daemon. Methods raise AileronError if a request is refused or
    its object does not exist. Cancelling a method stops waiting, but never a run that has begun.
    """

    async def offer(self, session: str, process: int | None = None) -> Offer:
        """Return the actions that this session can call now, sorted by name. Actions with a broken file are left out.
        `process` is the process that made the connection, if that is known.
        """
        ...

    async def run(self, call: Call, wait_s: float) -> CallState:
        """Run an action, and wait at most `wait_s` seconds. The result always has `status`, which is `completed` (with
        `audit_id`, `result`), `failed` (`audit_id`, `error`), `pending_approval` (`approval_id`, `audit_id`, `review_url`,
        `message`, `expires_at`, `poll_after_ms`), `running` or `approved` (`run_id`, `poll_after_ms`). If a call is
        cancelled before its run begins, the run does not begin.
        """
        ...

    async def state(self, session: str, asked: str, wait_s: float, seen: int | None = None) -> CallState:
        """Return the state of the run or question with the id `asked`. It has the keys of the body of `GET …/result`,
        and `review_url` and `message` while the run waits for a person. Waits at most `wait_s` seconds for the run's
        end, or for a report of progress with a higher number than `seen`.
        """
        ...

    async def answer(self, session: str, approval_id: str, answer: str) -> CallState:
        """Answer a person's question to the agent. Raises AileronError(invalid_request) if no question waits for an answer."""
        ...

    async def cancel(self, session: str, approval_id: str) -> CallState:
        """Withdraw a question to a person. Raises AileronError: already_decided if a person has decided, approval_expired
        if it has expired.
        """
        ...

    async def pending(self, session: str) -> list[CallState]:
        """Return the session's requests that are not decided yet. Each has `approval_id`, `action`, `status`, `created_at`,
        `expires_at`, `audit_id` and `review_url`.
        """
        ...
