"""What the protocol's server may ask of the daemon, and nothing else: the routes of the agent socket, as methods.

Each caller has a session; what is another session's does not exist for it. The values are the JSON of docs/reference/http-api.md.
Pure: a Protocol that the daemon implements (daemon/http/agents.py) and the shapes that go through it.

Not here: how an agent is told (results.py), what a run does (runs/spine.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgspec

from aileron.model.manifest import ActionFile

__all__ = ["Account", "AgentPort", "Asker", "Call", "Offer", "Offered", "Report"]


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One credential, or one of each connector, that a call may name. `value` is what it says; `told` whose that is, for people:
    the words of users and of services.
    """

    value: str
    told: str


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """One action that is switched on: what becomes one tool. `input_schema` is a JSON Schema of an object."""

    action: ActionFile
    input_schema: dict[str, Any]
    granted: bool = False
    """A standing grant may let a call of a gated action through at once, so its hints say what the action does."""
    accounts: tuple[Account, ...] = ()
    """What a call has to choose between, where several credentials could serve; empty where there is no choice."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What one session can use. `listed` are the names of the actions that are tools of their own, where the others are only
    found by words; None: all are tools, and there is nothing to find.
    """

    actions: tuple[Offered, ...]
    listed: frozenset[str] | None = None
    is_injected: bool = False
    """The session's tools are put into its requests to models, and shown nowhere else: docs/reference/injected-tools.md."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One use of the one door. `args` are not checked yet; `binding` names a credential where several could serve. `process` made
    the connection, where that is known.
    """

    session: str
    action: str
    args: dict[str, Any]
    binding: str | None = None
    process: int | None = None


class Report(Protocol):
    """Hears of a call's progress, which never goes back; `total` where that is known."""

    async def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell of one report."""
        ...


class Asker(NamedTuple):
    """The caller: the session, the process at the other end where that is known, and who hears of progress, if anybody does."""

    session: str
    process: int | None = None
    report: Report | None = None


class AgentPort(Protocol):
    """Every method raises AileronError for what is refused or does not exist; cancelling one never ends a run that has begun."""

    async def offer(self, session: str, process: int | None = None) -> Offer:
        """The actions that this session may call now, sorted by name; a broken file is not among them. `process` made the
        connection, where that is known.
        """
        ...

    async def run(self, call: Call, wait_s: float) -> dict[str, Any]:
        """Run, and wait at most `wait_s` seconds. Always with `status`: `completed` (`audit_id`, `result`), `failed` (`audit_id`,
        `error`), `pending_approval` (`approval_id`, `audit_id`, `review_url`, `message`, `expires_at`, `poll_after_ms`),
        `running` or `approved` (`run_id`, `poll_after_ms`). A call that is cancelled before it began does not begin.
        """
        ...

    async def state(self, session: str, asked: str, wait_s: float, seen: int | None = None) -> dict[str, Any]:
        """Where a run or a question is, by the id of either: the body of `GET …/result`, and `review_url` and `message` while it
        waits for a person. Waits at most `wait_s` for the end, or for a report of progress of a higher number than `seen`.
        """
        ...

    async def answer(self, session: str, approval_id: str, answer: str) -> dict[str, Any]:
        """Answer what a person asked back. AileronError(invalid_request) where no question waits."""
        ...

    async def cancel(self, session: str, approval_id: str) -> dict[str, Any]:
        """Take a question back. AileronError(already_decided), (approval_expired)."""
        ...

    async def pending(self, session: str) -> list[dict[str, Any]]:
        """What the session asked and nobody decided yet, each with `approval_id`, `action`, `status`, `created_at`, `expires_at`,
        `audit_id`, `review_url`.
        """
        ...
