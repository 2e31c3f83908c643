"""The approver of this home, as far as can be determined now: according to the vault, and checked against the ledger.

Runs in the daemon. The approver's public key and all of the approver's consents are in the vault's authenticated contents,
which can be verified only while the vault is open. While it is locked, the files of the vault and of the ledger may have been
written by any process of the same user. They are trusted only as evidence that there *is* an approver, and never where that
would allow something that an open vault would refuse later.

    vault open, names an approver                   → the approver decides
    vault open, neither it nor the ledger names one → no signatures: as in a home before `aileron approver init`
    vault open, only the ledger names one           → hash_mismatch: an older vault was put in its place
    vault locked, its file or the ledger names one  → vault_locked: nothing is decided and nothing runs
    vault locked or missing, neither names one      → no signatures. An unsigned approval is refused later, when it is
                                                      used, if the vault, once open, names an approver. Without the vault
                                                      there is no credential.

Source: docs/explanation/consent.md. Not here: whether a signature is valid (approvals/signed.py).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Literal

import anyio.to_thread

from aileron.api.approver import ApproverFacts
from aileron.approvals.signed import check_signed
from aileron.ledger.rows import ApprovalRow
from aileron.model.consent import ConsentKind, Consents
from aileron.model.decision import moment
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.vault.vault import Vault

__all__ = ["ApproverState"]


class ApproverState:
    """The daemon's knowledge of this home's approver: whether there is one, and their verified key and consents. One
    instance per daemon. `on_record` is true if the ledger names an approver.
    """

    def __init__(self, vault: Vault, *, on_record: bool) -> None:
        self._vault = vault
        self._on_record = on_record
        self._is_in_doubt = False

    @contextlib.contextmanager
    def in_doubt(self) -> Iterator[None]:
        """Treat the vault as locked during this block: it was just opened, and the check that the file is the newest
        version of the vault is not finished.
        """
        self._is_in_doubt = True
        try:
            yield
        finally:
            self._is_in_doubt = False

    @property
    def is_hinted(self) -> bool:
        """True if the vault file or the ledger says that there is an approver, whether this is verified or not."""
        return self._on_record or self._vault.says_consents

    def consents(self) -> Consents | None:
        """Return the verified key and consents of the approver; None if the home has no approver. Raises AileronError
        (vault_locked, hash_mismatch).
        """
        if self._vault.is_locked or self._is_in_doubt:
            if not self.is_hinted:
                return None
            raise AileronError(
                FailureClass.VAULT_LOCKED,
                "the vault is locked, and it holds the approver's identity: run `aileron vault unlock`",
                boundary=Boundary.USER,
            )
        consents = self._vault.consents()
        if consents is None and self._on_record:
            raise AileronError(
                FailureClass.HASH_MISMATCH,
                "the record names an approver but this vault does not: it was replaced by an older or another "
                "vault. Restore the newest backup, or start over in another home (AILERON_HOME)",
                boundary=Boundary.USER,
            )
        return consents

    def check_approved(self, row: ApprovalRow, kind: ConsentKind) -> None:
        """Check that the approver signed the approval in the ledger's row, because other processes could have written the
        ledger's file.

        `kind` is the kind of the change that is about to be made, not the kind in the row. Does nothing if the home has no
        approver. Raises AileronError (vault_locked, hash_mismatch), or NotCounted if the signature is not valid.
        """
        consents = self.consents()
        if consents is not None:
            check_signed(
                consents,
                row.signed,
                approval_id=row.id,
                digest=row.digest,
                decision="approve",
                reason=row.reason,
                kind=kind,
            )

    async def spend_decision(self, approval_id: str, until: float) -> None:
        """Record in the vault that this decision was used. The record is kept until the time `until`, after which the
        decision is too old to be used. Raises AileronError (vault_locked), or (hash_mismatch) if the decision was used
        before.
        """

        def used(now: Consents) -> Consents:
            if now.is_used(approval_id):
                raise AileronError(FailureClass.HASH_MISMATCH, f"{approval_id} was already used or withdrawn")
            return now.with_used(approval_id, math.ceil(until), int(time.time()))

        await anyio.to_thread.run_sync(self._vault.change_consents, used)

    async def spend_use(self, grant_id: str) -> None:
        """Count one use of a standing grant in the vault. Raises AileronError (vault_locked), or (consent_required) if no
        use is left.
        """

        def counted(now: Consents) -> Consents:
            if not any(grant.id == grant_id and grant.used < grant.uses for grant in now.grants):
                raise AileronError(
                    FailureClass.CONSENT_REQUIRED, f"grant {grant_id} has no uses left", boundary=Boundary.USER
                )
            return now.with_use(grant_id)

        await anyio.to_thread.run_sync(self._vault.change_consents, counted)

    def recorded(self) -> None:
        """Remember that the ledger names an approver from now on."""
        self._on_record = True

    def facts(self) -> ApproverFacts:
        """Return the approver's state for `status` and `aileron approver status`; never fails."""
        status: Literal["none", "locked", "ready", "problem"]
        try:
            consents = self.consents()
        except AileronError as error:
            status = "locked" if error.failure.failure_class is FailureClass.VAULT_LOCKED else "problem"
            return ApproverFacts(status=status, problem=error.failure.message)
        if consents is None:
            return ApproverFacts(status="none")
        return ApproverFacts(
            status="ready",
            key_id=consents.key_id,
            public_key=consents.public_key,
            created_at=moment(consents.created_ms / 1000),
            passkeys=len(consents.passkeys),
        )
