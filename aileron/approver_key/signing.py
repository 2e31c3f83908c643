"""Statements that are signed: a decision about a displayed question, and the request for a preview that only this
process can read.

Runs where the approver's key is open, or a security key is used instead. Neither the daemon nor a program that responds
in its place is trusted: each statement is made here, about a digest that the caller computed from what it shows
(cards/signed_view.py).

Rules
- A key that stays open to read previews (`ReadingKey`) signs only requests for previews.
- A preview is opened with a key made for it, and its digest is computed from the fields that are shown.

Source: docs/reference/signed-decisions.md. Not here: the keys (keyfile.py, security_key.py), protection of the process
(isolation.py), the sending.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeVar, final

import msgspec

from aileron.api.approvals import Decision, PreviewRequest, SealedPreview
from aileron.approver_key.box import Recipient
from aileron.approver_key.keyfile import ApproverKey
from aileron.model.decision import (
    DecisionStatement,
    HeadStatement,
    MismatchError,
    PreviewStatement,
    Statement,
    digest_with_preview,
    moment,
)
from aileron.model.preview import Preview, shown_digest

if TYPE_CHECKING:  # the daemon signs on the page, and has nothing to do with devices
    from aileron.approver_key.security_key import SecurityKeys

__all__ = ["PREVIEW_S", "PreviewAsked", "ReadingKey", "signed_decision"]

PREVIEW_S: Final = 30.0
"""Seconds to wait for a preview: the daemon reads it from the service within 5 s; a jail on a machine under load takes longer."""
_NONCE_BYTES: Final = 16
_S = TypeVar("_S", bound=Statement)


@final
class ReadingKey:
    """The approver's key, open only to sign requests for previews. It owns the key: no other code uses the key meanwhile."""

    __slots__ = ("_key", "key_id")

    def __init__(self, key: ApproverKey) -> None:
        self._key: Final = key
        self.key_id: Final = key.key_id

    def sign(self, statement: Statement) -> str:
        """Sign a request for a preview. Raises TypeError for any other statement, RuntimeError after `wipe`."""
        if not isinstance(statement, PreviewStatement):
            raise TypeError("this key reads previews, and decides nothing")
        return self._key.sign(statement)

    def wipe(self) -> None:
        """Overwrite the approver's key, which can no longer sign afterwards."""
        self._key.wipe()


def signed_decision(
    by: ApproverKey | SecurityKeys,
    approval_id: str,
    digest: str,
    decision: Literal["approve", "deny"],
    reason: str | None,
    head: str | None,
) -> Decision:
    """Return a signed decision. With the approver's key, the ledger's `head` is signed too, if it is known.

    A security key signs no head: that would need a second touch (docs/adr/0028-passkeys.md). Raises SecurityKeyError,
    KeyboardInterrupt.
    """

    def about(key_id: str) -> DecisionStatement:
        return DecisionStatement(
            approval_id=approval_id,
            digest=digest,
            decision=decision,
            reason=reason,
            at=moment(time.time()),
            key_id=key_id,
        )

    made, signature = _signed(by, about)
    signed_head = None
    if isinstance(by, ApproverKey) and head is not None:
        signed_head = by.sign(HeadStatement(head=head, at=made.at, key_id=made.key_id))
    return Decision(
        decision=decision,
        digest=digest,
        reason=reason,
        at=made.at,
        key_id=made.key_id,
        signature=signature,
        head=None if signed_head is None else head,
        head_signature=signed_head,
    )


def _signed(by: ApproverKey | SecurityKeys | ReadingKey, about: Callable[[str], _S]) -> tuple[_S, str]:
    """Return the statement that `about` makes for the id of the signing key, and its signature."""
    if isinstance(by, ApproverKey | ReadingKey):
        statement = about(by.key_id)
        return statement, by.sign(statement)
    return by.sign(about)


@final
class PreviewAsked:
    """A signed request for the preview of a plan (`body`). Only this object can open the response."""

    def __init__(self, by: ApproverKey | SecurityKeys | ReadingKey, approval_id: str, plan_digest: str) -> None:
        """Sign the request. Raises SecurityKeyError or KeyboardInterrupt if a security key signs."""
        recipient = Recipient()

        def about(key_id: str) -> PreviewStatement:
            return PreviewStatement(
                approval_id=approval_id,
                recipient=recipient.public,
                nonce=secrets.token_hex(_NONCE_BYTES),
                at=moment(time.time()),
                key_id=key_id,
            )

        self._recipient: Final = recipient
        self._plan_digest: Final = plan_digest
        self._statement, signature = _signed(by, about)
        self.body: Final = PreviewRequest(
            digest=plan_digest,
            recipient=self._statement.recipient,
            nonce=self._statement.nonce,
            at=self._statement.at,
            key_id=self._statement.key_id,
            signature=signature,
        )

    def opened(self, answer: SealedPreview) -> Preview:
        """Return the decrypted preview. A preview that failed is returned with its problem, not raised as an error.

        Raises MismatchError if the daemon names another digest, AileronError(hash_mismatch) if the response is not
        sealed to this object, and ValueError if the response is not a preview in this version's format.
        """
        sealed = base64.b64decode(answer.sealed, validate=True)
        seen = msgspec.json.decode(self._recipient.open(sealed, self._statement.signed_bytes()), type=Preview)
        if seen.fields is None:
            return Preview(None, seen.problem or "it says nothing", seen.taken_at)
        computed = digest_with_preview(self._plan_digest, shown_digest(seen.fields))
        if seen.digest != computed:
            raise MismatchError.between("the preview", seen.digest, computed)
        return Preview(seen.fields, None, seen.taken_at, computed)
