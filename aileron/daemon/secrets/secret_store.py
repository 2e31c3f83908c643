"""The secrets that a person stored by name: listed, set, removed. Each change is on record, or asked about first.

Runs in the daemon, behind the operator's socket. No value ever comes back.

Rules
- Where decisions are signed, nobody exchanges a secret that is bound, that a setting names, or that a question about a binding
  names which waits: that would be another credential than the one that is approved.
- There, no secret of the vault leaves it as a token before a person has approved who gets it: whoever can ask for a reference
  names both.

Source: docs/reference/bindings.md. Not here: what is done with them (credentials.py, lending.py), the file they lie in (vault/).
"""

from __future__ import annotations

import anyio
import anyio.to_thread
from msgspec import UNSET

from aileron.api.approvals import ConsentAnswer
from aileron.api.secrets import SecretEntry, SecretStored
from aileron.audit import events
from aileron.audit.log import Audit
from aileron.daemon.decisions.agreements import Agreements
from aileron.daemon.decisions.approver import ApproverState
from aileron.daemon.decisions.consents import ConsentService
from aileron.daemon.secrets.elsewhere import SecretsElsewhere
from aileron.model.consent import BindingConsent, SecretConsent
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere
from aileron.model.timestamp import utc
from aileron.vault.vault import Vault

__all__ = ["SecretStore"]


class SecretStore:
    """One for each daemon. `changing` is held while anything of this home is changed."""

    def __init__(
        self,
        vault: Vault,
        *,
        approver: ApproverState,
        agreements: Agreements,
        consents: ConsentService,
        audit: Audit,
        changing: anyio.Lock,
        elsewhere: SecretsElsewhere,
    ) -> None:
        self._vault = vault
        self._approver = approver
        self._agreements = agreements
        self._consents = consents
        self._audit = audit
        self._changing = changing
        self._elsewhere = elsewhere

    def listed(self) -> list[SecretEntry]:
        """Names, dates, and where those are that are kept elsewhere; never values."""
        return [
            SecretEntry(
                name=info.name,
                created_at=utc(info.created_at),
                updated_at=utc(info.updated_at),
                elsewhere=info.elsewhere or UNSET,
            )
            for info in self._vault.secrets()
        ]

    async def set(self, name: str, value: Secret) -> SecretStored | ConsentAnswer:
        """Store a secret in place of what was there; or ask whether to, where a binding or a setting names it: that is another
        credential.
        """
        async with self._changing:
            used_by = await self._used_by(name)
            if used_by and self._approver.consents() is not None:
                if not self._vault.is_locked:  # nobody is asked about what could not be stored anyway
                    await anyio.to_thread.run_sync(self._vault.check_storable, name, value)
                commitment = self._consents.hold(value)
                return await self._consents.ask(SecretConsent(name=name, bindings=used_by, commitment=commitment))
            return await self._consents.put_secret(name, value)

    async def set_reference(self, name: str, reference: str, token: str | None) -> SecretStored | ConsentAnswer:
        """Store where a secret is kept, in place of what was there, and which value is approved: the one that is there now.

        That is fetched first. Or ask whether to, as `set` does; and before anything is fetched, if that gives its token to
        somebody who does not get it already. AileronError as SecretsElsewhere.found.
        """
        if named := self._agreements.settings_naming(name):
            message = f"{', '.join(named)} uses the secret {name!r}, and settings cannot use one that is kept elsewhere"
            raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
        elsewhere = await self._elsewhere.pinned(reference, token)
        if self._vault.gives_token_anew(name, elsewhere) and self._approver.consents() is not None:
            async with self._changing:
                return await self._ask_first(name, elsewhere)
        value = await self._elsewhere.found(name, elsewhere)
        async with self._changing:
            await anyio.to_thread.run_sync(self._vault.check_reference, name, elsewhere, value)
            if self._vault.is_approved(name, elsewhere, value):
                self._vault.keep_fetched(self._vault.secret_entry(name), value)
                return SecretStored(name=name)
            used_by = await self._used_by(name)
            if not used_by or self._approver.consents() is None:
                return await self._consents.put_reference(name, elsewhere, value)
            commitment = self._consents.hold(value, elsewhere=elsewhere)
            return await self._consents.ask(
                SecretConsent(name=name, bindings=used_by, commitment=commitment, reference=elsewhere.words)
            )

    async def _ask_first(self, name: str, elsewhere: Elsewhere) -> ConsentAnswer:
        """Ask whether its token may go there. The value is the one that is there when that is approved."""
        commitment = self._consents.hold(
            Secret(elsewhere.words.encode()), elsewhere=elsewhere, fetch=lambda: self._elsewhere.found(name, elsewhere)
        )
        return await self._consents.ask(
            SecretConsent(
                name=name,
                bindings=await self._used_by(name),
                commitment=commitment,
                reference=elsewhere.words,
                token_to=elsewhere.place,
                token=elsewhere.token or UNSET,
            )
        )

    async def _used_by(self, name: str) -> tuple[str, ...]:
        """The bindings that name it, also those that a person is asked about, and the settings."""
        bindings = {str(one.name) for one in self._vault.bindings() if one.secret == name}
        waiting = (subject for _, subject in await self._audit.open_consents())
        bindings |= {one.name for one in waiting if isinstance(one, BindingConsent) and one.secret == name}
        return (*sorted(bindings), *self._agreements.settings_naming(name))

    async def remove(self, name: str) -> None:
        """Forget a secret."""
        async with self._changing:
            await anyio.to_thread.run_sync(self._vault.remove_secret, name)
            await self._audit.note(events.SecretRemoved(name=name))
