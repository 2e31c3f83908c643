"""A passkey and the page of a test's home: created there, approved by the approver, used for decisions as by Aileron's page."""

from __future__ import annotations

import time
from typing import Any, Literal

from aileron.client import Answer
from aileron.model.decision import DecisionStatement, moment
from tests.support.approver import Approver
from tests.support.authenticator import Algorithm, Authenticator, Told
from tests.support.home import DaemonHome

__all__ = ["Device"]

_ROUTE = "/v1/action-approvals"


class Device(Authenticator):
    """A device with one passkey, for the page of one home."""

    def __init__(self, home: DaemonHome, algorithm: Algorithm = "ES256") -> None:
        super().__init__(algorithm, str(home.must("GET", "/v1/status")["web"]))
        self.home = home

    def options(self, name: str) -> Any:
        """Return the options that a page would pass to the browser to create a passkey."""
        return self.home.must("POST", "/v1/passkeys/options", {"name": name})

    def made(self, name: str = "laptop", told: Told = Told()) -> Answer:  # noqa: B008 - frozen
        """Return the daemon's response to a new passkey."""
        return self.home.ask("POST", "/v1/passkeys", self.make(self.options(name), told))

    def enrol(self, approver: Approver, name: str = "laptop") -> str:
        """Enrol the passkey, so that it may decide. Return the id of the approval for that."""
        answer = self.made(name)
        assert answer.status == 202, answer.body
        settled = approver.agree(self.home, answer)
        assert settled["status"] == "completed", settled
        assert settled["result"]["id"] == self.key_id
        return str(answer.body["approval_id"])

    def decision(
        self,
        approval_id: str,
        decision: Literal["approve", "deny"] = "approve",
        *,
        digest: str | None = None,
        reason: str | None = None,
        at: float | None = None,
        told: Told = Told(),  # noqa: B008 - frozen
    ) -> dict[str, Any]:
        """Return the body of a decision signed with the passkey, about what the daemon shows, or about `digest`."""
        statement = DecisionStatement(
            approval_id=approval_id,
            digest=digest or self.home.must("GET", f"{_ROUTE}/{approval_id}")["digest"],
            decision=decision,
            reason=reason,
            at=moment(time.time() if at is None else at),
            key_id=self.key_id,
        )
        return {
            "decision": decision,
            "digest": statement.digest,
            "reason": reason,
            "at": statement.at,
            "key_id": self.key_id,
            "signature": self.sign(statement, told),
        }

    def decide(self, approval_id: str, decision: Literal["approve", "deny"] = "approve", **options: Any) -> Answer:
        """Sign the decision with the passkey and send it."""
        return self.home.ask("POST", f"{_ROUTE}/{approval_id}/decide", self.decision(approval_id, decision, **options))
