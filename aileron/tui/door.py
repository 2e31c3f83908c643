"""What the console asks of the daemon, over the operator's socket. Every call waits for its answer, with a deadline.

Runs in threads of the console. The daemon may be gone and come back, and somebody else may answer in its place: what it says of a
question is shown, and signed, only as far as its digest covers it (review/genuine.py).

Not here: what is done with the answers (app.py, plain.py), what is signed (approver/signing.py).
"""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from aileron.client import Answer, Client, DaemonUnreachable, path_of

__all__ = ["Door", "GoneError", "RefusedError"]

_ROUTE: Final = ("v1", "action-approvals")
_CARRY_OUT_S: Final = 60.0
"""An approved change is carried out before its answer: an installation unpacks and hashes 100 MiB at most."""
_DERIVATION_S: Final = 30.0
"""The vault's key out of its passphrase takes half a second; a machine under load takes more."""
NEWS_S: Final = 20.0
"""One wait for news; it is asked again after it."""


class GoneError(Exception):
    """No daemon answers."""


class RefusedError(Exception):
    """The daemon said no: the class of the failure, its words, and where a question that was decided is now."""

    def __init__(self, name: str, message: str, status: str | None = None) -> None:
        super().__init__(message)
        self.name: Final = name
        self.message: Final = message
        self.status: Final = status


class Door:
    """The daemon of one home, as its operator. Any thread may ask."""

    def __init__(self, home: Path) -> None:
        self.home: Final = home
        self._client: Final = Client(home)

    def start(self) -> None:
        """See that there is a daemon. GoneError."""
        try:
            self._client.request("GET", "/healthz")
        except (DaemonUnreachable, OSError, ValueError) as error:
            raise GoneError(str(error)) from None

    def ask(self, method: str, path: str, body: Any = None, *, wait_s: float = 0.0) -> Any:
        """The body of the answer. RefusedError, GoneError; nothing is asked twice, and no daemon is started."""
        try:
            answer = self._client.ask(method, path, body, wait_s=wait_s)
        except (DaemonUnreachable, OSError, ValueError, http.client.HTTPException) as error:
            raise GoneError(str(error) or type(error).__name__) from None
        if answer.is_error:
            raise _refused(answer)
        return answer.body

    def waiting(self) -> list[dict[str, Any]]:
        """The questions that wait, or whose decision has not been used yet."""
        return _rows(self.ask("GET", path_of(*_ROUTE)), "approvals")

    def question(self, approval_id: str) -> dict[str, Any]:
        """One question, whole."""
        found = self.ask("GET", path_of(*_ROUTE, approval_id))
        return {**found, "approval_id": approval_id} if isinstance(found, dict) else {}

    def outcome(self, approval_id: str) -> dict[str, Any]:
        """What became of it."""
        found: dict[str, Any] = self.ask("GET", path_of(*_ROUTE, approval_id, "result"))
        return found

    def decide(self, approval_id: str, body: dict[str, Any], *, is_run: bool) -> dict[str, Any]:
        """Send a decision; what was settled with it."""
        wait_s = 0.0 if is_run else _CARRY_OUT_S
        found: dict[str, Any] = self.ask("POST", path_of(*_ROUTE, approval_id, "decide"), body, wait_s=wait_s)
        return found

    def preview(self, approval_id: str, body: dict[str, Any], wait_s: float) -> Any:
        """The answer to a signed request for a preview, sealed."""
        return self.ask("POST", path_of(*_ROUTE, approval_id, "preview"), body, wait_s=wait_s)

    def cancel(self, approval_id: str) -> dict[str, Any]:
        """Take a question back, or an approval that has not begun."""
        found: dict[str, Any] = self.ask("POST", path_of(*_ROUTE, approval_id, "cancel"), {})
        return found

    def ask_back(self, approval_id: str, question: str) -> None:
        """A question to the agent."""
        self.ask("POST", path_of(*_ROUTE, approval_id, "ask"), {"question": question})

    def edit(self, approval_id: str, args: dict[str, Any]) -> str:
        """The digest of the plan with other arguments. RefusedError where they are not what the action takes."""
        made = self.ask("POST", path_of(*_ROUTE, approval_id, "edit"), {"args": args})
        if (made.get("plan") or {}).get("args") != args:
            raise RefusedError("hash_mismatch", "the daemon made another plan of it: nothing is decided")
        return str(made.get("digest"))

    def grant(self, action: str, constraints: list[dict[str, Any]], uses: int, for_s: int) -> Any:
        """Ask for a grant; it waits for a person as well."""
        body = {"action": action, "constraints": constraints, "uses": uses, "for_s": for_s}
        return self.ask("POST", path_of("v1", "grants"), body)

    def grants(self) -> list[dict[str, Any]]:
        """What runs without asking."""
        return _rows(self.ask("GET", path_of("v1", "grants")), "grants")

    def revoke(self, grant_id: str) -> None:
        """End a grant."""
        self.ask("DELETE", path_of("v1", "grants", grant_id))

    def sessions(self) -> list[dict[str, Any]]:
        """Who asked, and asks."""
        return _rows(self.ask("GET", path_of("v1", "sessions")), "sessions")

    def end_session(self, session: str) -> None:
        """End a session: its token opens nothing any more."""
        self.ask("POST", path_of("v1", "sessions", session, "end"), {})

    def status(self) -> dict[str, Any]:
        """What runs, and who decides."""
        found: dict[str, Any] = self.ask("GET", path_of("v1", "status"))
        return found

    def approver(self) -> dict[str, Any]:
        """Who decides for this home."""
        found: dict[str, Any] = self.ask("GET", path_of("v1", "approver"))
        return found

    def record(self, audit_id: str) -> dict[str, Any]:
        """One run with its events."""
        found: dict[str, Any] = self.ask("GET", path_of("v1", "audit", audit_id))
        return found

    def newest(self, count: int) -> list[dict[str, Any]]:
        """The newest events, the oldest of them first."""
        return _events(self.ask("GET", f"/v1/audit?{urlencode({'limit': count})}"))[::-1]

    def news(self, after: int) -> list[dict[str, Any]]:
        """Events after that row, waited for; none where nothing happened."""
        query = urlencode({"after": after, "order": "oldest", "limit": 200, "wait": f"{NEWS_S:g}"})
        return _events(self.ask("GET", f"/v1/audit?{query}", wait_s=NEWS_S))

    def unlock_vault(self, passphrase: str) -> None:
        """Open the vault."""
        self.ask("POST", path_of("v1", "vault", "unlock"), {"passphrase": passphrase}, wait_s=_DERIVATION_S)

    def lock_vault(self) -> None:
        """Close it."""
        self.ask("POST", path_of("v1", "vault", "lock"), {})


def _rows(found: Any, name: str) -> list[dict[str, Any]]:
    listed = found.get(name) if isinstance(found, dict) else None
    return [one for one in listed or [] if isinstance(one, dict)]


def _events(found: Any) -> list[dict[str, Any]]:
    """Those that have a number, by which the next are asked for."""
    return [one for one in _rows(found, "events") if isinstance(one.get("seq"), int)]


def _refused(answer: Answer) -> RefusedError:
    error = answer.body.get("error") if isinstance(answer.body, dict) else None
    if not isinstance(error, dict):
        return RefusedError("internal_error", f"the daemon answered {answer.status} and no reason")
    details = error.get("details")
    status = details.get("status") if isinstance(details, dict) else None
    return RefusedError(str(error.get("class")), str(error.get("message")), None if status is None else str(status))
