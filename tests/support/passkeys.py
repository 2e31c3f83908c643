"""A passkey and the page of a test's home: made there, agreed to by the approver, asked for decisions. As our page would."""

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
    """One device with one passkey, for the page of one home."""

    def __init__(self, home: DaemonHome, algorithm: Algorithm = "ES256") -> None:
        super().__init__(algorithm, str(home.must("GET", "/v1/status")["web"]))
        self.home = home

    def options(self, name: str) -> Any:
        """What a page would hand to the browser to make one."""
        return self.home.must("POST", "/v1/passkeys/options", {"name": name})

    def made(self, name: str = "laptop", told: Told = Told()) -> Answer:  # noqa: B008 - frozen
        """What the daemon says to the passkey that is made."""
        return self.home.ask("POST", "/v1/passkeys", self.make(self.options(name), told))

    def enrol(self, approver: Approver, name: str = "laptop") -> str:
        """It may decide from now on; the approval with which."""
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
        """The body of a decision signed with it, about what the daemon shows, or about `digest`."""
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
        """Decide with it; as `decision` says."""
        return self.home.ask("POST", f"{_ROUTE}/{approval_id}/decide", self.decision(approval_id, decision, **options))
