"""Sets the approver's key of this home. Once a key is set, replacing it takes a signature with that key.

Runs in the daemon. The caller proves knowledge of the vault's passphrase, and signs the existing contents (the inventory) with
the new key: existing contents are approved as they were shown, not because they exist. Replacing the key also takes a signature
with the old key.

Order: the approved texts → the vault → the ledger. If the daemon ends after the vault was written, the ledger does not name the
approver yet. The vault has all the data for that record, which is written when the vault is next opened (`catch_up`).

Source: docs/reference/signed-decisions.md. Not here: the private key (approver_key/), the approver's decisions (service.py).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import anyio
import anyio.to_thread
import msgspec

from aileron.api.approver import (
    Appointment,
    ApproverInventory,
    ApproverNamed,
    Inventory,
    InventoryAction,
    InventoryConnector,
    InventoryKeys,
    InventoryReference,
)
from aileron.approvals.signed import NotCounted, Why, check_fresh
from aileron.audit import events
from aileron.daemon.consent_service.approved_settings import ApprovedSettings
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consent_checks import ConsentChecks, settings_digest
from aileron.daemon.foundation import Foundation
from aileron.daemon.installed.access_summary import action_reach, binding_consent
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.consent import SETTINGS, Appointed, BindingConsent, Consent, ConsentKind, Consents, subject_digest
from aileron.model.credential import Reach
from aileron.model.decision import PUBLIC_KEY_BYTES, ApproverStatement, check_signature, key_id_of
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.invocation import Scope
from aileron.model.manifest import ActionFile
from aileron.model.names import HostPort
from aileron.model.plan import ConnectorPin
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere
from aileron.registry.keyring import Keyring, KeyringFile, trust_digest

__all__ = ["ApproverEnrollment"]

_KEY: Final = re.compile(rf"[0-9a-f]{{{2 * PUBLIC_KEY_BYTES}}}")
_RECORD: Final = "approver"
"""Subject under which a refused attempt to set the approver's key is recorded, in place of a question's id."""


class _Seen(NamedTuple):
    """The actions, bindings, connectors, trusted keys and references to secrets of the home, all read at the same moment."""

    actions: list[ActionFile]
    bindings: list[BindingConsent]
    connectors: list[tuple[ConnectorPin, tuple[HostPort, ...]]]
    keyring: Keyring
    kept_at: dict[str, Elsewhere]
    """References to the secrets that are kept outside the vault, by the name of the secret."""


class ApproverEnrollment:
    """Service that enrolls the approver. One instance per daemon."""

    def __init__(
        self,
        base: Foundation,
        approver: ApproverState,
        *,
        consent_checks: ConsentChecks,
    ) -> None:
        self._base = base
        self._approver = approver
        self._consent_checks = consent_checks
        self._settings = ApprovedSettings(base.home.agreed)
        self._keyring = KeyringFile(base.home.keyring)

    async def inventory(self) -> ApproverInventory:
        """Return the inventory that a new approver would approve, and its digest. Raises AileronError (vault_locked)."""
        self._base.vault.check_unlocked()
        found = self._inventory(await anyio.to_thread.run_sync(self._look))
        return ApproverInventory(inventory=found, digest=_digest_of(found))

    async def appoint(self, asked: Appointment, scope: Scope) -> ApproverNamed:
        """Make the requested key the approver's key. Raises AileronError (vault_locked), (unauthorized) for a wrong
        passphrase or signature, (invalid_request) if the home has changed since its inventory was shown, or (hash_mismatch)
        if the vault is not the newest.
        """
        async with self._base.changing:
            return await self._appoint(asked, scope)

    async def _appoint(self, asked: Appointment, scope: Scope) -> ApproverNamed:
        try:
            statement = await self._checked(asked)
            seen = await anyio.to_thread.run_sync(self._look)  # read once: compare what is then approved
            if _digest_of(self._inventory(seen)) != asked.inventory:
                raise AileronError(
                    FailureClass.INVALID_REQUEST,
                    "something was added, bound or edited after it was shown: run `aileron approver init` again",
                    boundary=Boundary.USER,
                )
        except AileronError as error:
            if error.failure.failure_class is FailureClass.UNAUTHORIZED:
                why: Why = error.why if isinstance(error, NotCounted) else "signature"
                await self._base.audit.refuse(_RECORD, "appoint", why, scope.value, key_id=None)
            raise
        consents = await anyio.to_thread.run_sync(lambda: self._agreed(statement, seen, asked))
        await anyio.to_thread.run_sync(lambda: self._settings.write(self._consent_checks.in_force))
        await anyio.to_thread.run_sync(lambda: self._base.vault.set_approver(consents))
        await self._base.audit.approver_set(statement, asked.signature, asked.old_signature)
        self._approver.recorded()
        return ApproverNamed(key_id=statement.key_id)

    async def catch_up(self) -> None:
        """Record in the ledger the approver that the open vault names, if an earlier daemon ended before it could.
        The caller holds `changing`.
        """
        consents = self._approver.consents()
        if consents is None or await self._base.audit.approver_key() == consents.key_id:
            return
        named, statement = consents.appointed, consents.appointment()
        if named is not None and statement is not None:
            await self._base.audit.approver_set(statement, named.signature, named.old_signature)
            self._approver.recorded()

    async def _checked(self, asked: Appointment) -> ApproverStatement:
        self._base.vault.check_unlocked()
        try:
            await anyio.to_thread.run_sync(lambda: self._base.vault.check_passphrase(Secret(asked.passphrase.encode())))
        except AileronError as error:
            await self._base.audit.note(events.VaultUnlockFailed(failure_class=error.failure.failure_class))
            raise
        if not _KEY.fullmatch(asked.public_key):
            raise AileronError(FailureClass.INVALID_REQUEST, "public_key is not 32 bytes in lower-case hex digits")
        public = bytes.fromhex(asked.public_key)
        statement = ApproverStatement(
            public_key=asked.public_key,
            inventory=asked.inventory,
            replaces=asked.replaces,
            at=asked.at,
            key_id=key_id_of(public),
        )
        check_signature(public, statement, asked.signature)
        check_fresh(asked.at)
        self._check_replaced(asked, statement)
        return statement

    def _check_replaced(self, asked: Appointment, statement: ApproverStatement) -> None:
        """Check that the current key, if there is one, authorizes the new key. Raises NotCounted if it does not, or
        AileronError: hash_mismatch if the ledger names an approver and the vault names none; invalid_request if there
        is no key to replace.
        """
        now = self._approver.consents()
        if now is None:
            if asked.replaces is not None:
                raise AileronError(FailureClass.INVALID_REQUEST, "there is no approver's key to replace")
            return
        if asked.replaces != now.key_id or asked.old_signature is None:
            raise NotCounted(
                "key",
                f"{now.key_id} is this home's approver: only it can authorize another key (`aileron approver init "
                "--replace`)",
            )
        check_signature(bytes.fromhex(now.public_key), statement, asked.old_signature)

    def _agreed(self, statement: ApproverStatement, seen: _Seen, asked: Appointment) -> Consents:
        """Return the new approver's consents to all contents in `seen`. If the key replaces another key, the earlier
        standing grants are dropped.
        """
        consents = Consents(
            key_id=statement.key_id,
            public_key=statement.public_key,
            created_ms=int(time.time() * 1000),
            appointed=Appointed(
                inventory=statement.inventory,
                replaces=statement.replaces,
                at=statement.at,
                signature=asked.signature,
                old_signature=asked.old_signature,
            ),
        )
        consented = [
            (ConsentKind.ACTION_FILE, action.name, self._base.texts.put(action.text)) for action in seen.actions
        ]
        consented += [(ConsentKind.CONNECTOR, name, pin_hash) for name, pin_hash in _connectors(seen)]
        consented += [(ConsentKind.BINDING, binding.name, subject_digest(binding)) for binding in seen.bindings]
        consented += [
            (ConsentKind.TRUSTED_KEY, str(authority), trust_digest(authority, keys))
            for authority, keys in seen.keyring.keys.items()
        ]
        consented.append((ConsentKind.SETTINGS, SETTINGS, settings_digest(self._consent_checks.in_force)))
        for kind, name, digest in consented:
            consents = consents.with_consent(Consent(kind=kind, name=name, digest=digest, approval=statement.key_id))
        return consents

    def _inventory(self, seen: _Seen) -> Inventory:
        return Inventory(
            actions=[self._action_row(action) for action in seen.actions],
            bindings=[
                {name: value for name, value in msgspec.to_builtins(binding).items() if name != "kind"}
                for binding in seen.bindings
            ],
            connectors=[
                InventoryConnector(name=pin.name, version=pin.version, hash=pin.hash, reaches=sorted(map(str, hosts)))
                for pin, hosts in seen.connectors
            ],
            keys=[
                InventoryKeys(name=str(authority), keys=[key.fingerprint for key in keys])
                for authority, keys in seen.keyring.keys.items()
            ],
            references=[InventoryReference(name=name, kept_at=place.words) for name, place in seen.kept_at.items()],
            settings=self._consent_checks.in_force,
        )

    def _look(self) -> _Seen:
        kept_at = self._base.vault.kept_elsewhere()
        return _Seen(
            actions=[entry.action for entry in self._base.actions.list_actions() if entry.action is not None],
            bindings=[
                binding_consent(binding, binding.reach or Reach(), kept_at.get(binding.secret))
                for binding in self._base.vault.bindings()
            ],
            connectors=[
                (entry.pin, entry.manifest.hosts)
                for entry in self._base.connectors.list_connectors()
                if entry.pin is not None and entry.manifest is not None
            ],
            keyring=self._keyring.read(),
            kept_at=kept_at,
        )

    def _action_row(self, action: ActionFile) -> InventoryAction:
        return InventoryAction(
            name=action.name,
            version=action.version,
            digest=action.digest,
            gated=action.approval.required,
            reaches=action_reach(self._base.connectors, action),
        )


def _digest_of(inventory: Inventory) -> str:
    """Return the digest of the inventory that the approver signs."""
    return sha256_digest(canonical_json(msgspec.to_builtins(inventory)))


def _connectors(seen: _Seen) -> Iterator[tuple[str, str]]:
    """Yield the consent name and hash of each connector; one version of a connector may be installed with several hashes."""
    named: set[str] = set()
    for pin, _ in seen.connectors:
        name = f"{pin.name}@{pin.version}"
        yield (f"{name} {pin.hash}" if name in named else name), pin.hash
        named.add(name)
