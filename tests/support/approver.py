"""The approver of a test's home: the key, what it signs, and how a preview is requested, as a person's own program would.

It computes every digest itself, from what the daemon shows, and never takes the daemon's word for one.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import secrets
import time
from collections.abc import Iterator
from typing import Any, Final, Literal, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aileron.approver_key.box import Recipient
from aileron.client import Answer
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.decision import (
    ApproverStatement,
    DecisionStatement,
    HeadStatement,
    PreviewStatement,
    Statement,
    digest_with_preview,
    key_id_of,
    moment,
    preview_digest,
)
from aileron.model.plan import Plan
from tests.support.home import PASSPHRASE, DaemonHome, daemon_home, probed_home
from tests.support.upstream_http import CountingServer

__all__ = ["Approver", "Office", "bound_home", "decided_home"]

_ROUTE: Final = "/v1/action-approvals"


class Approver:
    """A key that signs decisions. `appoint` makes it the approver of a home."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self.public: Final = self._key.public_key().public_bytes_raw()
        self.key_id: Final = key_id_of(self.public)

    def sign(self, statement: Statement) -> str:
        """Return the signature in base64."""
        return base64.b64encode(self._key.sign(statement.signed_bytes())).decode()

    def appointment(self, home: DaemonHome, replaces: Approver | None = None, **others: Any) -> dict[str, Any]:
        """Return the signed body of POST /v1/approver; `others` replace parts of it."""
        shown = home.must("GET", "/v1/approver/inventory")
        statement = ApproverStatement(
            public_key=self.public.hex(),
            inventory=sha256_digest(canonical_json(shown["inventory"])),
            replaces=None if replaces is None else replaces.key_id,
            at=moment(time.time()),
            key_id=self.key_id,
        )
        body = {
            "passphrase": PASSPHRASE,
            "public_key": statement.public_key,
            "inventory": statement.inventory,
            "at": statement.at,
            "signature": self.sign(statement),
        }
        if replaces is not None:
            body |= {"replaces": replaces.key_id, "old_signature": replaces.sign(statement)}
        return {**body, **others}

    @classmethod
    def of(cls, home: DaemonHome) -> Self:
        """Return a new key that is the approver of the home."""
        person = cls()
        person.appoint(home)
        return person

    def appoint(self, home: DaemonHome, replaces: Approver | None = None) -> None:
        """Make this key the approver of the home."""
        answer = home.ask("POST", "/v1/approver", self.appointment(home, replaces))
        assert answer.status == 200, answer.body

    def shown(self, home: DaemonHome, approval_id: str) -> dict[str, Any]:
        """Return a question, after a check that its digest covers its plan or subject."""
        question: dict[str, Any] = home.must("GET", f"{_ROUTE}/{approval_id}")
        about = question["plan"] if question["kind"] == "action" else question["subject"]
        digest = Plan.from_json(about).digest if "steps" in about else sha256_digest(canonical_json(about))
        assert question["digest"] == digest
        return question

    def decision(
        self,
        home: DaemonHome,
        approval_id: str,
        decision: Literal["approve", "deny"] = "approve",
        *,
        digest: str | None = None,
        reason: str | None = None,
        at: float | None = None,
    ) -> dict[str, Any]:
        """Return the body of a signed decision about what the daemon shows, or about `digest`."""
        question = self.shown(home, approval_id)
        about = digest or question["digest"]
        signed_at = moment(time.time() if at is None else at)
        statement = DecisionStatement(
            approval_id=approval_id, digest=about, decision=decision, reason=reason, at=signed_at, key_id=self.key_id
        )
        head = HeadStatement(head=question["head"], at=signed_at, key_id=self.key_id)
        return {
            "decision": decision,
            "digest": about,
            "reason": reason,
            "at": signed_at,
            "key_id": self.key_id,
            "signature": self.sign(statement),
            "head": head.head,
            "head_signature": self.sign(head),
        }

    def decide(
        self, home: DaemonHome, approval_id: str, decision: Literal["approve", "deny"] = "approve", **options: Any
    ) -> Answer:
        """Sign and send the decision."""
        return home.ask("POST", f"{_ROUTE}/{approval_id}/decide", self.decision(home, approval_id, decision, **options))

    def agree(self, home: DaemonHome, answer: Answer) -> dict[str, Any]:
        """Consent to the change that the response asks about. Return the decision's result."""
        assert answer.status == 202, answer.body
        decided = self.decide(home, answer.body["approval_id"])
        assert decided.status == 200, decided.body
        settled: dict[str, Any] = decided.body
        return settled

    def preview(self, home: DaemonHome, approval_id: str, plan_digest: str | None = None) -> dict[str, Any]:
        """Request a preview, open it and check its digest against one computed here. Return the preview."""
        recipient = Recipient()
        statement = self.preview_statement(approval_id, recipient.public)
        answer = home.must("POST", f"{_ROUTE}/{approval_id}/preview", self.preview_body(statement, plan_digest))
        opened = recipient.open(base64.b64decode(answer["sealed"]), statement.signed_bytes())
        preview: dict[str, Any] = json.loads(opened)
        if preview["fields"] is not None:
            digest = plan_digest or self.shown(home, approval_id)["digest"]
            shown = preview_digest({"fields": preview["fields"]})
            for effects in (field["effects"] for field in preview["fields"] if "effects" in field):
                shown = preview_digest({"effects": effects, "fields": shown})
            assert preview["digest"] == digest_with_preview(digest, shown)
        return preview

    def preview_statement(self, approval_id: str, recipient: str) -> PreviewStatement:
        """Return the statement that is signed to request a preview now."""
        return PreviewStatement(
            approval_id=approval_id,
            recipient=recipient,
            nonce=secrets.token_hex(16),
            at=moment(time.time()),
            key_id=self.key_id,
        )

    def preview_body(self, statement: PreviewStatement, plan_digest: str | None = None) -> dict[str, Any]:
        """Return the request body for a preview, with the signed statement."""
        body = {
            "recipient": statement.recipient,
            "nonce": statement.nonce,
            "at": statement.at,
            "key_id": statement.key_id,
            "signature": self.sign(statement),
        }
        return body if plan_digest is None else {**body, "digest": plan_digest}


@dataclasses.dataclass(frozen=True)
class Office:
    """A home, and the person who decides what is gated there. Tests that have more beside them derive from it."""

    home: DaemonHome
    person: Approver

    def ask(self, action: str, **args: Any) -> str:
        """Request a gated action, and return its question's id."""
        answer = self.home.run(action, args)
        assert (answer.status, answer.body["status"]) == (202, "pending_approval"), answer.body
        return str(answer.body["approval_id"])

    def preview(self, question: str) -> dict[str, str]:
        """Return what the person sees of the effect, by label."""
        shown = self.person.preview(self.home, question)
        assert shown["fields"] is not None, shown
        return {line["label"]: line["value"] for line in shown["fields"]}

    def decide(self, question: str, decision: Literal["approve", "deny"] = "approve", **options: Any) -> dict[str, Any]:
        """Decide the question as the person, and return its outcome."""
        decided = self.person.decide(self.home, question, decision, **options)
        assert decided.status == 200, decided.body
        return self.home.result({"approval_id": question})


@contextlib.contextmanager
def decided_home(upstream: CountingServer, approver: Approver) -> Iterator[DaemonHome]:
    """Yield a home with `approver`, an open vault, and the actions `gated` and `free`, each with one effect."""
    with probed_home(upstream.port) as home:
        home.bind_probe()
        home.add_probe_action("effect", "path:string?", name="gated", gated=True)
        home.add_probe_action("effect", "path:string?", name="free")
        approver.appoint(home)
        yield home


@contextlib.contextmanager
def bound_home(approver: Approver) -> Iterator[DaemonHome]:
    """Yield a home with `approver`, an open vault, a credential that serves the probe, and no action."""
    with daemon_home() as home:
        home.install_probe()
        home.unlock()
        home.bind_probe()
        approver.appoint(home)
        yield home
