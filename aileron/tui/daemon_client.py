"""Requests of the console to the daemon, over the operator's socket. Every call waits for the response, with a
deadline.

Runs in threads of the console. The daemon can stop and start again, and another program can answer in its place. So an
open question is shown, and signed, only as far as its digest covers the response (cards/signed_view.py). A settled
question is shown as the response describes it, because nothing is decided about it. A response that does not have its
route's type (api/), or is nested deeper than MAX_NESTING, raises RequestRefused, so that the layout gets valid data
only.

Not here: the use of the responses (news.py, reading.py), what is signed (approver_key/signing.py).
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aileron.model.json_value import JSONObject

if TYPE_CHECKING:  # after the first frame, like the types of the responses
    from aileron.api.approvals import ApprovalEntry, Decision, PreviewRequest, Question, SealedPreview, Settled
    from aileron.api.approver import ApproverFacts, PasskeyEntry
    from aileron.api.audit import RecordOfRun
    from aileron.api.body import Body
    from aileron.api.daemon import Status
    from aileron.api.grants import GrantEntry
    from aileron.api.runs import RunState
    from aileron.api.sessions import Session
    from aileron.client import Answer, Client
    from aileron.model.plan import Plan

__all__ = ["DaemonClient", "GoneError", "RequestRefused"]

_ROUTE: Final = ("v1", "action-approvals")
_CARRY_OUT_S: Final = 60.0
"""Seconds to wait for the response to the approval of a change, which the daemon makes before it responds.

The slowest, an installation, unpacks and hashes at most 100 MiB.
"""
_DERIVATION_S: Final = 30.0
"""Seconds to wait for the vault's key: its derivation from the passphrase takes half a second, and more under load."""
NEWS_S: Final = 20.0
"""Seconds to wait for news in one request; the console then sends the next request."""
MAX_NESTING: Final = 100
"""Maximum nesting depth of a response.

Real arguments are far less nested. Python's recursion limit leaves some 900 calls.
"""
_T = TypeVar("_T")


class GoneError(Exception):
    """The daemon does not respond."""


class RequestRefused(Exception):
    """The daemon refused a request.

    Has the class of the failure, the message, and the status of a question that was already decided.
    """

    def __init__(self, name: str, message: str, status: str | None = None) -> None:
        super().__init__(message)
        self.name: Final = name
        self.message: Final = message
        self.status: Final = status


class _NoAnswerError(RequestRefused):
    """The response does not have the type that its route declares."""

    def __init__(self, why: str) -> None:
        super().__init__("internal_error", f"unexpected answer from the daemon: {why}")


class DaemonClient:
    """A client of the daemon of one home, as its operator. Any thread may use it."""

    def __init__(self, home: Path) -> None:
        self.home: Final = home

    @functools.cached_property
    def _client(self) -> Client:
        from aileron.client import Client

        return Client(self.home)

    def start(self) -> None:
        """Check that a daemon runs, or start one. Raises GoneError if that fails."""
        from aileron.client import DaemonUnreachable

        try:
            self._client.request("GET", "/healthz")
        except (DaemonUnreachable, OSError, ValueError) as error:
            raise GoneError(_why_gone(error)) from None

    def ask(self, kind: type[_T], method: str, path: str, body: Body | None = None, *, wait_s: float = 0.0) -> _T:
        """Send a request and return the response as `kind`.

        Raises RequestRefused if the daemon refuses, GoneError if it does not respond. No request is sent twice, and no daemon is
        started.
        """
        return _read(kind, self._ask(method, path, body, wait_s=wait_s))

    def _ask(self, method: str, path: str, body: Body | None = None, *, wait_s: float = 0.0) -> Any:
        import msgspec

        from aileron.client import DaemonUnreachable

        try:
            built = None if body is None else msgspec.to_builtins(body)
            answer = self._client.ask(method, path, built, wait_s=wait_s)
        except (DaemonUnreachable, OSError, ValueError) as error:
            raise GoneError(_why_gone(error)) from None
        except RecursionError:
            raise _NoAnswerError("nested too deeply") from None
        _check_nesting(answer.body)
        if answer.is_error:
            raise _refused(answer)
        return answer.body

    def waiting(self) -> list[ApprovalEntry]:
        """Return all questions that are open or whose decision has not been used yet."""
        from aileron.api.approvals import ApprovalList

        return self.ask(ApprovalList, "GET", _path_of(*_ROUTE)).approvals

    def question(self, approval_id: str) -> Question:
        """Return the question with this id, with everything that its digest covers."""
        import msgspec

        from aileron.api.approvals import Question

        found = self.ask(Question, "GET", _path_of(*_ROUTE, approval_id))
        return msgspec.structs.replace(found, approval_id=approval_id)

    def outcome(self, approval_id: str) -> RunState:
        """Return the state of the question with this id or of its run, with the result if there is one."""
        from aileron.api.runs import RunState

        return self.ask(RunState, "GET", _path_of(*_ROUTE, approval_id, "result"))

    def run(self, run: str) -> RunState:
        """Return the state of a run, with its result."""
        from aileron.api.runs import RunState

        return self.ask(RunState, "GET", _path_of("v1", "runs", run))

    def decide(self, approval_id: str, decision: Decision, *, is_run: bool) -> Settled:
        """Send a decision, and return the settled question.

        An invalid response also raises GoneError, because it is then unknown whether the decision took effect.
        """
        from aileron.api.approvals import Settled

        wait_s = 0.0 if is_run else _CARRY_OUT_S
        try:
            return self.ask(Settled, "POST", _path_of(*_ROUTE, approval_id, "decide"), decision, wait_s=wait_s)
        except _NoAnswerError as error:  # it is unknown whether the decision took effect
            raise GoneError(error.message) from None

    def preview(self, approval_id: str, asked: PreviewRequest, wait_s: float) -> SealedPreview:
        """Send a signed request for a preview, and return the encrypted preview."""
        from aileron.api.approvals import SealedPreview

        return self.ask(SealedPreview, "POST", _path_of(*_ROUTE, approval_id, "preview"), asked, wait_s=wait_s)

    def cancel(self, approval_id: str) -> Settled:
        """Withdraw a question, or an approval whose run has not begun. Raises GoneError as `decide` does."""
        from aileron.api.approvals import Settled
        from aileron.api.body import Body

        try:
            return self.ask(Settled, "POST", _path_of(*_ROUTE, approval_id, "cancel"), Body())
        except _NoAnswerError as error:
            raise GoneError(error.message) from None

    def ask_back(self, approval_id: str, question: str) -> None:
        """Ask the agent a question."""
        from aileron.api.approvals import AskBack

        self._ask("POST", _path_of(*_ROUTE, approval_id, "ask"), AskBack(question=question))

    def edit(self, approval_id: str, args: JSONObject) -> str:
        """Send other arguments for a question and return the digest of the new plan.

        Raises RequestRefused if the action does not accept the arguments.
        """
        from aileron.api.approvals import Edited, EditRequest

        made = self.ask(Edited, "POST", _path_of(*_ROUTE, approval_id, "edit"), EditRequest(args=args))
        if made.plan.get("args") != args:
            raise RequestRefused("hash_mismatch", "the daemon returned a different plan: nothing is decided")
        return made.digest

    def grant(self, plan: Plan, uses: int, for_s: int) -> None:
        """Request a grant for exactly this call, that is for these arguments only. The grant needs a person's approval too."""
        from aileron.api.grants import AddGrant
        from aileron.cards.headline import action_in
        from aileron.model.consent import Constraint

        action = action_in(plan.action_text)
        others = [] if action is None else [spec.name for spec in action.inputs if spec.name not in plan.args]
        same = (
            *(Constraint(argument=name, operator="equals", value=value) for name, value in plan.args.items()),
            *(Constraint(argument=name, operator="absent", value=None) for name in others),
        )
        self._ask(
            "POST",
            _path_of("v1", "grants"),
            AddGrant(action=plan.action, constraints=same, uses=uses, for_s=for_s),
        )

    def grants(self) -> list[GrantEntry]:
        """Return the grants, which let actions run without a question."""
        from aileron.api.grants import GrantList

        return self.ask(GrantList, "GET", _path_of("v1", "grants")).grants

    def revoke(self, grant_id: str) -> None:
        """Revoke a grant."""
        self._ask("DELETE", _path_of("v1", "grants", grant_id))

    def sessions(self) -> list[Session]:
        """Return the sessions, open and ended."""
        from aileron.api.sessions import SessionList

        return self.ask(SessionList, "GET", _path_of("v1", "sessions")).sessions

    def end_session(self, session: str) -> None:
        """End a session. Its token is invalid from then on."""
        from aileron.api.sessions import EndSession

        self._ask("POST", _path_of("v1", "sessions", session, "end"), EndSession())

    def status(self) -> Status:
        """Return the status of the daemon."""
        from aileron.api.daemon import Status

        return self.ask(Status, "GET", _path_of("v1", "status"))

    def approver(self) -> ApproverFacts:
        """Return the facts about the approver of this home."""
        from aileron.api.approver import ApproverFacts

        return self.ask(ApproverFacts, "GET", _path_of("v1", "approver"))

    def passkeys(self) -> list[PasskeyEntry]:
        """Return the passkeys that can decide."""
        from aileron.api.approver import PasskeyList

        return self.ask(PasskeyList, "GET", _path_of("v1", "passkeys")).passkeys

    def record(self, audit_id: str) -> RecordOfRun:
        """Return a run with its events."""
        from aileron.api.audit import RecordOfRun

        return self.ask(RecordOfRun, "GET", _path_of("v1", "audit", audit_id))

    def newest(self, count: int) -> list[JSONObject]:
        """Return the newest `count` events in chronological order."""
        return self._events(f"limit={count:d}")[::-1]

    def before(self, seq: int, count: int) -> list[JSONObject]:
        """Return up to `count` events before row `seq`, in chronological order."""
        return self._events(f"before={seq:d}&limit={count:d}")[::-1]

    def news(self, after: int) -> list[JSONObject]:
        """Wait up to NEWS_S for events after row `after` and return them; empty if none came."""
        return self._events(f"after={after:d}&order=oldest&limit=200&wait={NEWS_S:g}", wait_s=NEWS_S)

    def _events(self, query: str, *, wait_s: float = 0.0) -> list[JSONObject]:
        """Return the events of a query. Omit events without a row number, because later requests refer to row numbers."""
        from aileron.api.audit import EventList

        listed = self.ask(EventList, "GET", f"/v1/audit?{query}", wait_s=wait_s).events
        return [event for event in listed if isinstance(event.get("seq"), int)]

    def unlock_vault(self, passphrase: str) -> None:
        """Unlock the vault."""
        from aileron.api.secrets import UnlockVault

        asked = UnlockVault(passphrase=passphrase)
        self._ask("POST", _path_of("v1", "vault", "unlock"), asked, wait_s=_DERIVATION_S)

    def lock_vault(self) -> None:
        """Lock the vault."""
        from aileron.api.body import Body

        self._ask("POST", _path_of("v1", "vault", "lock"), Body())


def _path_of(*segments: str) -> str:
    from aileron.client import path_of

    return path_of(*segments)


def _read(kind: type[_T], body: Any) -> _T:
    import msgspec

    try:
        return msgspec.convert(body, kind)
    except ValueError as error:  # msgspec's, also for invalid Unicode where it expects one of several words
        raise _NoAnswerError(str(error)) from None


def _check_nesting(body: Any) -> None:
    """Raise RequestRefused if the response is nested so deeply that recursive code could not process it."""
    level = [body]
    for _ in range(MAX_NESTING):
        inner = (
            value.values() if isinstance(value, dict) else value for value in level if isinstance(value, (dict, list))
        )
        level = [value for values in inner for value in values if isinstance(value, (dict, list))]
        if not level:
            return
    raise _NoAnswerError(f"nested deeper than {MAX_NESTING} levels")


def _why_gone(error: Exception) -> str:
    """Return a message for a person: how to start a daemon if none runs; for other errors, the system's message."""
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return "aileron daemon start"
    said = error.strerror if isinstance(error, OSError) else None
    return said or str(error) or type(error).__name__


def _refused(answer: Answer) -> RequestRefused:
    error = answer.body.get("error") if isinstance(answer.body, dict) else None
    if not isinstance(error, dict):
        return RequestRefused("internal_error", f"the daemon answered {answer.status} without a reason")
    details = error.get("details")
    status = details.get("status") if isinstance(details, dict) else None
    return RequestRefused(str(error.get("class")), str(error.get("message")), None if status is None else str(status))
