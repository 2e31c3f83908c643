"""A person who signs, in place of the approver's program: a key, and the signatures of decisions."""

from __future__ import annotations

import base64
from typing import Any, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aileron.audit.log import Audit
from aileron.model.decision import (
    ApproverStatement,
    DecisionStatement,
    HeadStatement,
    Signature,
    Statement,
    key_id_of,
    moment,
)
from tests.audit.conftest import START_S

__all__ = ["Signer"]


class Signer:
    """The key of a person who signs."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self.public_key = self._key.public_key().public_bytes_raw()
        self.key_id = key_id_of(self.public_key)

    def sign(self, statement: Statement) -> str:
        """Return the signature, in base64."""
        return base64.b64encode(self._key.sign(statement.signed_bytes())).decode()

    def statement(self, replaces: Signer | None = None) -> ApproverStatement:
        """Return the statement that this key decides."""
        return ApproverStatement(
            public_key=self.public_key.hex(),
            inventory="sha256:" + "00" * 32,
            replaces=None if replaces is None else replaces.key_id,
            at=moment(START_S),
            key_id=self.key_id,
        )

    async def appoint(self, audit: Audit, replaces: Signer | None = None) -> None:
        """Record that this key decides from now on."""
        statement = self.statement(replaces)
        await audit.approver_set(
            statement, self.sign(statement), None if replaces is None else replaces.sign(statement)
        )

    def signed(
        self,
        approval_id: str,
        digest: str,
        decision: Literal["approve", "deny"] = "approve",
        *,
        reason: str | None = None,
        head: str | None = None,
        **others: Any,
    ) -> Signature:
        """Return the signature of a decision; `others` replace parts of it afterwards."""
        at = moment(START_S)
        statement = DecisionStatement(
            approval_id=approval_id, digest=digest, decision=decision, reason=reason, at=at, key_id=self.key_id
        )
        signed = Signature(key_id=self.key_id, at=at, signature=self.sign(statement))
        if head is not None:
            over_head = HeadStatement(head=head, at=at, key_id=self.key_id)
            signed = msgspec.structs.replace(signed, head=head, head_signature=self.sign(over_head))
        return msgspec.structs.replace(signed, **others)
