"""Passkeys of this home. They are made on the home's page, enrolled by the approver's key, used for decisions, and revoked.

Runs in the daemon, for its own page and for the operator's socket, which any process of the same user can reach. A caller has
no identity here. Only a signature proves that the caller holds a passkey. Only a decision by the approver's key, which no
passkey replaces, proves that the passkey belongs to the person.

Rules
- A challenge can be answered once, within CEREMONY_S. Only a few challenges wait at a time; the oldest is dropped first.
- A new passkey becomes a question of the kind `passkey`. Until the question is approved, the passkey cannot be used.
- Revoking a passkey takes effect at once, without a signature, because it only removes permissions.
- Each change is written to the vault first, then to the ledger. Changes that the daemon could not record before it ended are
  recorded when the vault is opened next (`catch_up`). A passkey that was revoked according to the record does not become valid
  again if an older vault is put in place.

Source: W3C, Web Authentication Level 3, sections 5.4, 5.5 and 7; docs/reference/signed-decisions.md. Not here: checking a
browser's answer (model/passkey.py), the question (consents.py), the decision (service.py), the page (http/pages.py).
"""

from __future__ import annotations

import secrets
import time
from typing import Any, Final, Literal

import anyio
import anyio.to_thread

from aileron.api.approvals import ConsentAnswer
from aileron.api.approver import (
    Challenge,
    PageUnlock,
    PasskeyEntry,
    PasskeyMade,
    PasskeyOptions,
    PasskeyStatement,
    UnlockChallenge,
)
from aileron.approvals.passkey_rules import check_enrollable, check_name
from aileron.approvals.signed import CEREMONY_S, NotCounted, Why, check_fresh, counted
from aileron.audit.log import Audit
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consents import ConsentService
from aileron.model.consent import PASSKEY_DECIDES, Consents, Passkey, PasskeyConsent
from aileron.model.decision import DecisionStatement, PageStatement, Statement, moment
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.passkey import (
    ALGORITHMS,
    RP_ID,
    base64url,
    challenge_of,
    check_registration,
    from_base64url,
    passkey_id,
    said_challenge,
)
from aileron.model.text import hidden_at
from aileron.vault.vault import Vault

__all__ = ["Passkeys"]

MAX_CHALLENGES: Final = 16
"""Maximum number of waiting challenges of each kind: a person makes one passkey at a time, and has a few pages open."""
MAX_TRANSPORTS: Final = 6
"""Maximum number of transports of a passkey (Web Authentication, section 5.8.4)."""
MAX_TRANSPORT_CHARACTERS: Final = 32
_CHALLENGE_BYTES: Final = 32
_HANDLE_BYTES: Final = 32
"""Length of a user handle in bytes. A handle is random and new for each passkey, so it does not identify the user."""
_NONCE_BYTES: Final = 16


class _Waiting:
    """Challenges that wait for a browser's answer, each with a text, such as the name of the passkey to create."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[str, float]] = {}

    def add(self, challenge: str, about: str) -> None:
        now = time.monotonic()
        self._asked = {name: entry for name, entry in self._asked.items() if now - entry[1] <= CEREMONY_S}
        while len(self._asked) >= MAX_CHALLENGES:
            self._asked.pop(next(iter(self._asked)))
        self._asked[challenge] = (about, now)

    def take(self, challenge: str) -> str | None:
        """Remove a challenge and return its text; None if it was not issued, has expired, or was answered before."""
        about, asked_at = self._asked.pop(challenge, ("", float("-inf")))
        return about if time.monotonic() - asked_at <= CEREMONY_S else None


class Passkeys:
    """The service for the home's passkeys: it enrolls and revokes them, and issues the challenges that they sign. One
    instance per daemon. `origin` is the origin of the home's page; `changing` is the lock held during every change to
    this home.
    """

    def __init__(
        self,
        approver: ApproverState,
        *,
        audit: Audit,
        vault: Vault,
        consents: ConsentService,
        origin: str,
        changing: anyio.Lock,
    ) -> None:
        self._approver = approver
        self._audit = audit
        self._vault = vault
        self._consents = consents
        self._origin = origin
        self._changing = changing
        self.made = _Waiting()
        self._pages = _Waiting()

    def listed(self) -> list[PasskeyEntry]:
        """Return the passkeys that can sign decisions. Raises AileronError (vault_locked)."""
        consents = self._approver.consents()
        return [self._facts(passkey) for passkey in (() if consents is None else consents.passkeys)]

    # Enrolling

    def registration(self, name: str) -> PasskeyOptions:
        """Return the options with which a page calls `navigator.credentials.create`, for a passkey of this name.

        Bytes are in base64url. Raises AileronError (consent_required) if the home has no approver, (invalid_request) if the
        name is invalid or there are too many passkeys, or (vault_locked).
        """
        consents = self._approved()
        check_name(consents, name)
        challenge = base64url(secrets.token_bytes(_CHALLENGE_BYTES))
        self.made.add(challenge, name)
        return PasskeyOptions(
            public_key={
                "rp": {"id": RP_ID, "name": "Aileron"},
                "user": {"id": base64url(secrets.token_bytes(_HANDLE_BYTES)), "name": name, "displayName": name},
                "challenge": challenge,
                "pubKeyCredParams": [{"type": "public-key", "alg": number} for number in ALGORITHMS],
                "timeout": int(CEREMONY_S * 1000),
                "excludeCredentials": [_descriptor(passkey.subject) for passkey in consents.passkeys],
                "authenticatorSelection": {
                    "residentKey": "preferred",
                    "requireResidentKey": False,
                    "userVerification": "required",
                },
                "attestation": "none",
            }
        )

    async def register(self, made: PasskeyMade) -> ConsentAnswer:
        """Ask the approver whether the new passkey may sign decisions.

        Raises AileronError as `registration` does, (invalid_request) if the answer belongs to no waiting challenge, and (busy).
        Raises PasskeyError if the browser's answer is invalid.
        """
        async with self._changing:
            consents = self._approved()
            client_data, attestation = from_base64url(made.client_data), from_base64url(made.attestation)
            challenge = said_challenge(client_data)
            name = self.made.take(challenge)
            if name is None:
                raise AileronError(
                    FailureClass.INVALID_REQUEST,
                    "this passkey is no longer expected; create it again",
                    boundary=Boundary.USER,
                )
            found = check_registration(client_data, attestation, challenge=challenge, origin=self._origin)
            subject = PasskeyConsent(
                name=name,
                credential_id=base64url(found.credential_id),
                public_key=found.public_key.hex(),
                rp_id=RP_ID,
                origin=self._origin,
                key_id=passkey_id(found.credential_id, found.public_key),
                algorithm=found.algorithm,
                synced=found.synced,
                aaguid=found.aaguid,
                transports=_known(made.transports),
            )
            check_enrollable(consents, subject, self._origin)
            return await self._consents.ask(subject)

    # Signing

    async def challenge(
        self, approval_id: str, digest: str, decision: Literal["approve", "deny"], reason: str | None = None
    ) -> Challenge:
        """Return the options with which a page calls `navigator.credentials.get` for this decision, with each passkey that is
        usable on this page.

        The client then sends the decision with exactly this `at`, the `key_id` of the passkey that signed, and the passkey's
        answer as `signature`. Raises AileronError as Audit.check_decidable does, (invalid_request) for another digest,
        (unauthorized) for a decision that no passkey can make, and (vault_locked).
        """
        consents = self._approved()
        question = await self._audit.check_decidable(approval_id)
        if digest not in question.digests:
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                f"the decision is about {digest[:80]}, but {approval_id} has changed: load it again",
                boundary=Boundary.USER,
            )
        if decision == "approve" and question.row.kind not in PASSKEY_DECIDES:
            raise NotCounted(
                "kind",
                f"a passkey cannot approve this ({question.row.kind:.40}): decide it with `aileron approve "
                f"{approval_id}`",
            )
        at = moment(time.time())

        def statement(key_id: str) -> DecisionStatement:
            return DecisionStatement(
                approval_id=approval_id, digest=digest, decision=decision, reason=reason, at=at, key_id=key_id
            )

        return Challenge(
            approval_id=approval_id,
            digest=digest,
            decision=decision,
            reason=reason,
            at=at,
            statements=[self._asked(passkey, statement(passkey.id)) for passkey in self._usable(consents)],
        )

    def unlocking(self) -> UnlockChallenge:
        """Return the options with which a passkey unlocks the page, which then shows waiting questions.

        `check_unlocked` checks the answer. The approver's key may also sign the challenge (`PageStatement`). Raises AileronError
        (consent_required, vault_locked).
        """
        consents = self._approved()
        nonce, at = secrets.token_hex(_NONCE_BYTES), moment(time.time())
        self._pages.add(nonce, "")
        statements = [
            self._asked(passkey, PageStatement(nonce=nonce, at=at, key_id=passkey.id))
            for passkey in self._usable(consents)
        ]
        return UnlockChallenge(nonce=nonce, at=at, statements=statements)

    async def check_unlocked(self, asked: PageUnlock, surface: str) -> str:
        """Check a signed request to unlock the page, and return the id of the key that signed it. Each nonce is accepted
        once. Record an attempt that is refused, with the caller's `surface`. Raises AileronError (unauthorized,
        consent_required, vault_locked).
        """
        try:
            statement = PageStatement(nonce=asked.nonce, at=asked.at, key_id=asked.key_id)
            if self._pages.take(asked.nonce) is None:
                raise NotCounted("signature", "this page is out of date: load it again")
            counted(self._approved(), statement, asked.signature)
            check_fresh(asked.at, asked.key_id)
        except AileronError as error:
            why: Why = error.why if isinstance(error, NotCounted) else "locked"
            await self._audit.refuse(None, "unlock", why, surface, asked.key_id)
            raise
        return asked.key_id

    # Revoking

    async def revoke(self, key_id: str) -> None:
        """Revoke a passkey. Decisions that it signed and that were not used yet become invalid. Raises AileronError
        (not_found, vault_locked).
        """
        async with self._changing:
            consents = self._approver.consents()
            if consents is None or consents.passkey(key_id) is None:
                raise AileronError(
                    FailureClass.NOT_FOUND, f"no passkey {key_id[:80]!r}; see `aileron approver passkeys`"
                )
            await self._drop([key_id])
            await self._audit.passkey_removed(key_id, "revoked")

    async def catch_up(self) -> None:
        """Make the ledger and the just opened vault list the same passkeys. If the vault is an older one, passkeys
        that have ended according to the ledger are removed from it. The caller holds `changing`.
        """
        consents = self._approver.consents()
        if consents is None:
            return
        known = await self._audit.passkeys()
        there = {passkey.id: passkey.approval for passkey in consents.passkeys}
        for key_id, approval in known.in_force.items():
            if there.get(key_id) != approval:
                await self._audit.passkey_removed(key_id, "vault")
        missing = [passkey for passkey in consents.passkeys if known.in_force.get(passkey.id) != passkey.approval]
        if ended := [
            passkey.id for passkey in missing if passkey.approval in known.enrolments
        ]:  # still in an older vault
            await self._drop(ended)
        for passkey in missing:
            if passkey.id not in ended:
                await self._audit.passkey_added(passkey)

    async def _drop(self, ids: list[str]) -> None:
        def without(now: Consents) -> Consents:
            for key_id in ids:
                now = now.without_passkey(key_id)
            return now

        await anyio.to_thread.run_sync(self._vault.change_consents, without)

    def _approved(self) -> Consents:
        consents = self._approver.consents()
        if consents is None:
            raise AileronError(
                FailureClass.CONSENT_REQUIRED,
                "the approver's key enrolls passkeys, and this home has none: aileron approver init",
                boundary=Boundary.USER,
            )
        return consents

    def _usable(self, consents: Consents) -> list[Passkey]:
        return [passkey for passkey in consents.passkeys if passkey.subject.origin == self._origin]

    def _asked(self, passkey: Passkey, statement: Statement) -> PasskeyStatement:
        return PasskeyStatement(
            key_id=passkey.id,
            name=passkey.subject.name,
            public_key={
                "challenge": challenge_of(statement),
                "rpId": RP_ID,
                "allowCredentials": [_descriptor(passkey.subject)],
                "userVerification": "required",
                "timeout": int(CEREMONY_S * 1000),
            },
        )

    def _facts(self, passkey: Passkey) -> PasskeyEntry:
        subject = passkey.subject
        return PasskeyEntry(
            id=passkey.id,
            name=subject.name,
            origin=subject.origin,
            usable=subject.origin == self._origin,
            algorithm=subject.algorithm,
            synced=subject.synced,
            aaguid=subject.aaguid,
            transports=list(subject.transports),
            credential_id=subject.credential_id,
            public_key=subject.public_key,
            approval_id=passkey.approval,
            enrolled_at=passkey.at,
        )


def _descriptor(subject: PasskeyConsent) -> dict[str, Any]:
    return {"type": "public-key", "id": subject.credential_id, "transports": list(subject.transports)}


def _known(transports: tuple[str, ...]) -> tuple[str, ...]:
    """Return at most MAX_TRANSPORTS of the transports that the browser reported for a passkey, without names that cannot be
    displayed. Transports are hints for browsers, and nothing depends on them.
    """
    fit = [
        transport
        for transport in transports
        if 1 <= len(transport) <= MAX_TRANSPORT_CHARACTERS and hidden_at(transport) is None
    ]
    return tuple(sorted(set(fit)))[:MAX_TRANSPORTS]
