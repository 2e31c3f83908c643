"""What the console asks of the daemon, over the operator's socket. Every call waits for its answer, with a deadline.

Runs in threads of the console. The daemon may be gone and come back, and somebody else may answer in its place: what it says of a
question that waits is shown, and signed, only as far as its digest covers it (review/signed_view.py); one that is settled is
shown as it tells of it, and nothing is decided about that. What has not the shape that its route's
answer has, or nests deeper than MAX_NESTING, is RefusedError: nothing that is laid out later trips over it.

Not here: what is done with the answers (news.py, reading.py, plain.py), what is signed (approver/signing.py).
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # http.client: 20 ms, after the first frame
    from aileron.client import Answer, Client

__all__ = ["DaemonClient", "GoneError", "RequestRefused"]

_ROUTE: Final = ("v1", "action-approvals")
_CARRY_OUT_S: Final = 60.0
"""An approved change is carried out before its answer: an installation unpacks and hashes 100 MiB at most."""
_DERIVATION_S: Final = 30.0
"""The vault's key out of its passphrase takes half a second; a machine under load takes more."""
NEWS_S: Final = 20.0
"""One wait for news; it is asked again after it."""
MAX_NESTING: Final = 100
"""No arguments of a person's making come near it; Python's own limit, below all the calls of a screen, is some 900."""
_OBJECTS: Final = ("plan", "subject")
_LISTS_OF_OBJECTS: Final = ("conversation", "edits", "changes")


class GoneError(Exception):
    """No daemon answers."""


class RequestRefused(Exception):
    """The daemon said no: the class of the failure, its words, and where a question that was decided is now."""

    def __init__(self, name: str, message: str, status: str | None = None) -> None:
        super().__init__(message)
        self.name: Final = name
        self.message: Final = message
        self.status: Final = status


class _NoAnswerError(RequestRefused):
    """What came has not the shape that its route's answer has."""

    def __init__(self, why: str) -> None:
        super().__init__("internal_error", f"what the daemon answered is none: it {why}")


class DaemonClient:
    """The daemon of one home, as its operator. Any thread may ask."""

    def __init__(self, home: Path) -> None:
        self.home: Final = home

    @functools.cached_property
    def _client(self) -> Client:
        from aileron.client import Client

        return Client(self.home)

    def start(self) -> None:
        """See that there is a daemon. GoneError."""
        from aileron.client import DaemonUnreachable

        try:
            self._client.request("GET", "/healthz")
        except (DaemonUnreachable, OSError, ValueError) as error:
            raise GoneError(_why_gone(error)) from None

    def ask(self, method: str, path: str, body: Any = None, *, wait_s: float = 0.0) -> Any:
        """The body of the answer. RefusedError, GoneError; nothing is asked twice, and no daemon is started."""
        import http.client

        from aileron.client import DaemonUnreachable

        try:
            answer = self._client.ask(method, path, body, wait_s=wait_s)
        except (DaemonUnreachable, OSError, ValueError, http.client.HTTPException) as error:
            raise GoneError(_why_gone(error)) from None
        except RecursionError:
            raise _NoAnswerError("nests too deep to be read") from None
        _check_nesting(answer.body)
        if answer.is_error:
            raise _refused(answer)
        return answer.body

    def _object(self, method: str, path: str, body: Any = None, *, wait_s: float = 0.0) -> dict[str, Any]:
        """The same, where the answer is an object."""
        return _object_in(self.ask(method, path, body, wait_s=wait_s), "the answer")

    def waiting(self) -> list[dict[str, Any]]:
        """The questions that wait, or whose decision has not been used yet."""
        return _rows(self.ask("GET", _path_of(*_ROUTE)), "approvals")

    def question(self, approval_id: str) -> dict[str, Any]:
        """One question, whole."""
        found = self._object("GET", _path_of(*_ROUTE, approval_id))
        _check_question(found)
        return {**found, "approval_id": approval_id}

    def outcome(self, approval_id: str) -> dict[str, Any]:
        """What became of it."""
        return self._object("GET", _path_of(*_ROUTE, approval_id, "result"))

    def decide(self, approval_id: str, body: dict[str, Any], *, is_run: bool) -> dict[str, Any]:
        """Send a decision; what was settled with it. GoneError also where the answer is none: then nobody knows."""
        wait_s = 0.0 if is_run else _CARRY_OUT_S
        try:
            return self._object("POST", _path_of(*_ROUTE, approval_id, "decide"), body, wait_s=wait_s)
        except _NoAnswerError as error:  # it may be decided: nobody knows
            raise GoneError(error.message) from None

    def preview(self, approval_id: str, body: dict[str, Any], wait_s: float) -> Any:
        """The answer to a signed request for a preview, sealed."""
        return self.ask("POST", _path_of(*_ROUTE, approval_id, "preview"), body, wait_s=wait_s)

    def cancel(self, approval_id: str) -> dict[str, Any]:
        """Take a question back, or an approval that has not begun."""
        return self._object("POST", _path_of(*_ROUTE, approval_id, "cancel"), {})

    def ask_back(self, approval_id: str, question: str) -> None:
        """A question to the agent."""
        self.ask("POST", _path_of(*_ROUTE, approval_id, "ask"), {"question": question})

    def edit(self, approval_id: str, args: dict[str, Any]) -> str:
        """The digest of the plan with other arguments. RefusedError where they are not what the action takes."""
        made = self._object("POST", _path_of(*_ROUTE, approval_id, "edit"), {"args": args})
        if _object_in(made.get("plan"), "its plan").get("args") != args:
            raise RequestRefused("hash_mismatch", "the daemon made another plan of it: nothing is decided")
        return str(made.get("digest"))

    def grant(self, action: str, constraints: list[dict[str, Any]], uses: int, for_s: int) -> Any:
        """Ask for a grant; it waits for a person as well."""
        body = {"action": action, "constraints": constraints, "uses": uses, "for_s": for_s}
        return self.ask("POST", _path_of("v1", "grants"), body)

    def grants(self) -> list[dict[str, Any]]:
        """What runs without asking."""
        return _rows(self.ask("GET", _path_of("v1", "grants")), "grants")

    def revoke(self, grant_id: str) -> None:
        """End a grant."""
        self.ask("DELETE", _path_of("v1", "grants", grant_id))

    def sessions(self) -> list[dict[str, Any]]:
        """Who asked, and asks."""
        return _rows(self.ask("GET", _path_of("v1", "sessions")), "sessions")

    def end_session(self, session: str) -> None:
        """End a session: its token opens nothing any more."""
        self.ask("POST", _path_of("v1", "sessions", session, "end"), {})

    def status(self) -> dict[str, Any]:
        """What runs, and who decides."""
        found = self._object("GET", _path_of("v1", "status"))
        for name in ("vault", "jail"):
            _object_in(found.get(name) or {}, name)
        for within, name in ((found, "settings_waiting"), (found.get("jail") or {}, "layers")):
            _list_in(within.get(name) or [], name)
        return found

    def approver(self) -> dict[str, Any]:
        """Who decides for this home."""
        return self._object("GET", _path_of("v1", "approver"))

    def record(self, audit_id: str) -> dict[str, Any]:
        """One run with its events."""
        found = self._object("GET", _path_of("v1", "audit", audit_id))
        _objects_in(found.get("events") or [], "events")
        return found

    def newest(self, count: int) -> list[dict[str, Any]]:
        """The newest events, the oldest of them first."""
        return _events(self.ask("GET", f"/v1/audit?limit={count:d}"))[::-1]

    def news(self, after: int) -> list[dict[str, Any]]:
        """Events after that row, waited for; none where nothing happened."""
        query = f"after={after:d}&order=oldest&limit=200&wait={NEWS_S:g}"
        return _events(self.ask("GET", f"/v1/audit?{query}", wait_s=NEWS_S))

    def unlock_vault(self, passphrase: str) -> None:
        """Open the vault."""
        self.ask("POST", _path_of("v1", "vault", "unlock"), {"passphrase": passphrase}, wait_s=_DERIVATION_S)

    def lock_vault(self) -> None:
        """Close it."""
        self.ask("POST", _path_of("v1", "vault", "lock"), {})


def _path_of(*segments: str) -> str:
    from aileron.client import path_of

    return path_of(*segments)


def _rows(found: Any, name: str) -> list[dict[str, Any]]:
    listed = found.get(name) if isinstance(found, dict) else None
    return [one for one in listed or [] if isinstance(one, dict)]


def _events(found: Any) -> list[dict[str, Any]]:
    """Those that have a number, by which the next are asked for."""
    return [one for one in _rows(found, "events") if isinstance(one.get("seq"), int)]


def _check_question(found: dict[str, Any]) -> None:
    """Return if its parts are what their names say; what is in a plan is checked with its digest. RefusedError."""
    for name in _OBJECTS:
        _object_in(found.get(name) or {}, name)
    for name in _LISTS_OF_OBJECTS:
        _objects_in(found.get(name) or [], name)
    for name, whole in (("difference", found.get("difference")), ("subject", found.get("subject"))):
        if isinstance(whole, dict):
            _objects_in(whole.get("changes") or [], f"changes of its {name}")
    plan = found.get("plan") or {}
    _objects_in(plan.get("steps") or [], "steps")
    _object_in(plan.get("args") or {}, "arguments")


def _check_nesting(body: Any) -> None:
    """Return if nobody who walks through it by calling themselves gets lost. RefusedError."""
    level = [body]
    for _ in range(MAX_NESTING):
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list)))
        level = [one for values in inner for one in values if isinstance(one, (dict, list))]
        if not level:
            return
    raise _NoAnswerError(f"nests deeper than {MAX_NESTING} levels")


def _object_in(found: Any, what: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise _NoAnswerError(f"has a {type(found).__name__} where an object should be: {what}")
    return found


def _list_in(found: Any, what: str) -> list[Any]:
    if not isinstance(found, list):
        raise _NoAnswerError(f"has a {type(found).__name__} where a list should be: {what}")
    return found


def _objects_in(found: Any, what: str) -> None:
    for one in _list_in(found, what):
        _object_in(one, what)


def _why_gone(error: Exception) -> str:
    """For a person: how to have one, where none runs; of all else what the system says."""
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return "aileron daemon start"
    said = error.strerror if isinstance(error, OSError) else None
    return said or str(error) or type(error).__name__


def _refused(answer: Answer) -> RequestRefused:
    error = answer.body.get("error") if isinstance(answer.body, dict) else None
    if not isinstance(error, dict):
        return RequestRefused("internal_error", f"the daemon answered {answer.status} and no reason")
    details = error.get("details")
    status = details.get("status") if isinstance(details, dict) else None
    return RequestRefused(str(error.get("class")), str(error.get("message")), None if status is None else str(status))
