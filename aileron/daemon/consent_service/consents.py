"""Changes that need a person's consent. Without an approver they are made at once; otherwise the person is asked, and they are
made after approval.

Runs in the daemon. One subject (model/consent.py) describes one change completely, so that the value shown, the value signed
and the change made are the same. After approval, nothing is looked up again except the bytes that the subject identifies by
hash.

Rules
- A question changes nothing. After approval, the decision is first durably marked as used, and then the change is made. If the
  daemon ends in between, nothing has changed, and the person is asked again.
- A consent is stored in the vault before the changed file is written, because a file without its consent does not run.
- A question is read from a file that other processes can write. So its hosts, credentials and differences are determined again
  before the change is made. A question that would read differently by now fails, signed or not.
- The questions about an action and its new connectors form one group: no change of the group is made before all are approved,
  and one denial ends all of its questions.
- A secret's new value, or a provider's tokens, are stored only in memory while their question waits. They are released only to
  that question, and are lost when the daemon ends.

Source: docs/reference/consents.md. Not here: signatures (service.py), differences from the consents (consent_checks.py).
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, assert_never

import anyio.to_thread
import msgspec
from msgspec import UNSET

from aileron.actions.approved_texts import ApprovedTexts
from aileron.actions.manifest import parse_action
from aileron.actions.store import ActionStore
from aileron.api.actions import AddedAction
from aileron.api.approvals import (
    AllowedHost,
    ApprovedFile,
    ConsentAnswer,
    GrantMade,
    PasskeyEnrolled,
    SettingsApproved,
    ToolAccepted,
)
from aileron.api.bindings import BindingEntry
from aileron.api.connectors import InstalledConnector
from aileron.api.fetches import InstalledTogether
from aileron.api.publishers import RevokedKeys, TrustedKeys
from aileron.api.secrets import SecretStored
from aileron.approvals.grants import MIN_FOR_S, check_grant
from aileron.approvals.passkey_rules import check_enrollable
from aileron.approvals.signed import NotCounted
from aileron.audit import events
from aileron.audit.log import Audit
from aileron.audit.tools_on_record import ToolState
from aileron.daemon.consent_service.allowed_hosts import AllowedHosts
from aileron.daemon.consent_service.approved_settings import ApprovedSettings
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consent_checks import ConsentChecks, settings_digest
from aileron.daemon.consent_service.suspended_tools import SuspendedTools
from aileron.daemon.installed.access_summary import binding_reach, needing
from aileron.daemon.installed.install import ActionText, FoundConnector, Installer
from aileron.daemon.installed.verify import ArtifactVerifier, fetched_for
from aileron.daemon.views import binding_facts, review_url, where_to_decide
from aileron.home import Home
from aileron.ledger.rows import ApprovalRow, ApprovalState
from aileron.model.canonical import sha256_digest
from aileron.model.consent import (
    SETTINGS,
    ActionFileConsent,
    BindingConsent,
    ConnectorConsent,
    Consent,
    ConsentKind,
    Consents,
    GrantConsent,
    HostConsent,
    Passkey,
    PasskeyConsent,
    SecretConsent,
    SettingsConsent,
    StandingGrant,
    Subject,
    ToolChangeConsent,
    TrustedKeyConsent,
    group_of,
    subject_digest,
    subject_kind,
    subject_name,
    tool_consent_name,
)
from aileron.model.credential import OAuthGrant, Reach
from aileron.model.decision import parse_moment
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ConnectorManifest
from aileron.model.names import BindingName
from aileron.model.plan import ConnectorPin
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere
from aileron.model.timestamp import utc
from aileron.registry.artifact import ArtifactRequest, Trust
from aileron.registry.consent import text_signature_words
from aileron.registry.content import ContentStore
from aileron.registry.keyring import Authority, Keyring, KeyringFile, trust_digest
from aileron.registry.signatures import PublicKey
from aileron.registry.sigstore import public_forges
from aileron.registry.staging import Staging
from aileron.vault.bindings import Binding
from aileron.vault.vault import Vault

__all__ = ["MAX_TOOLS_ASKED", "SETTINGS_WAIT_S", "ConsentService", "binding_of"]

WAIT_S: Final = 15 * 60.0
"""Seconds that a question about a change waits: as long as a question about a run whose action sets no other time."""
SETTINGS_WAIT_S: Final = 24 * 3600.0
"""Seconds that a question about settings waits: it may be asked when the daemon starts and no person is present."""
MAX_TOOLS_ASKED: Final = 32
"""Maximum number of waiting questions about changed tools that runs have found. It is a sixth of the queue's capacity, because
connectors determine how many such questions there are, and each waits a day.
"""
MAX_HELD: Final = 16
"""Maximum number of stored values of secrets and sign-ins that wait for a decision. Each has at most 64 KiB, and a person sets
them one by one.
"""


class _Held:
    """A secret value that is stored while its question waits. `digest` is the digest of the question; None until the question
    is asked.
    """

    def __init__(
        self,
        nonce: bytes,
        value: Secret,
        grant: OAuthGrant | None,
        elsewhere: Elsewhere | None = None,
        fetch: Callable[[], Awaitable[Secret]] | None = None,
    ) -> None:
        self.nonce: Final = nonce
        self.value: Final = value
        self.grant: Final = grant
        self.elsewhere: Final = elsewhere
        self.fetch: Final = fetch
        self.digest: str | None = None


CarriedOut = (
    AddedAction
    | ApprovedFile
    | AllowedHost
    | BindingEntry
    | GrantMade
    | InstalledConnector
    | InstalledTogether
    | PasskeyEnrolled
    | SecretStored
    | SettingsApproved
    | ToolAccepted
    | TrustedKeys
)
"""The result of an approved change that was made: the response of the route that requested it, by kind of consent."""


class ToFetch(NamedTuple):
    """An approved secret that must still be fetched. Its token may be sent now, because the decision was already marked as
    used.
    """

    approval_id: str
    subject: SecretConsent
    elsewhere: Elsewhere
    fetch: Callable[[], Awaitable[Secret]]

    async def value(self) -> Secret:
        """Fetch the secret's current value. Do not await this while `changing` is held, because the server or program that has
        the secret determines how long it takes.

        Raises AileronError as SecretsInStores.found does. The error says how to ask again, because this approval was already
        used.
        """
        try:
            return await self.fetch()
        except AileronError as error:
            failure = error.failure
            token = "" if self.elsewhere.token is None else f" --from-token {self.elsewhere.token}"
            again = f"aileron secret set {self.subject.name} --from {shlex.quote(self.elsewhere.reference)}{token}"
            message = f"{failure.message}; this approval is used up, so ask again: {again}"
            raise AileronError.of(msgspec.structs.replace(failure, message=message, retriable=False)) from None


class ConsentService:
    """Asks a person about changes, and makes them after approval. One instance per daemon. The caller holds the lock `changing`
    during each change.
    """

    def __init__(
        self,
        home: Home,
        approver: ApproverState,
        *,
        actions: ActionStore,
        consent_checks: ConsentChecks,
        connectors: ContentStore,
        installing: Installer,
        staging: Staging,
        vault: Vault,
        audit: Audit,
        texts: ApprovedTexts,
        tools: SuspendedTools,
        hosts: AllowedHosts,
        review: str,
        asked: Callable[[str, str, str], None],
        settings_agreed: Callable[[dict[str, Any]], bool],
        bound: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the service. `asked` is called for each new question, and `bound` whenever a credential has changed.
        `settings_agreed` puts approved settings in force, and returns whether all of them are in force now.
        """
        self._approver = approver
        self._actions = actions
        self._consent_checks = consent_checks
        self._connectors = connectors
        self._installing = installing
        self.finding: Final = ArtifactVerifier(connectors, staging, self.trust, self.is_installed)
        self._vault = vault
        self._audit = audit
        self._texts = texts
        self._tools = tools
        self._hosts = hosts
        self._settings = ApprovedSettings(home.agreed)
        self._keyring = KeyringFile(home.keyring)
        self._review = review
        self._asked = asked
        self._settings_agreed = settings_agreed
        self._bound = bound
        self._held: dict[str, _Held] = {}
        """Values of secrets whose questions wait for a decision, by the commitment to the value (its hash with a nonce)."""

    async def maybe_ask(self, about: Callable[[], Subject]) -> ConsentAnswer | None:
        """Ask the person about a change. Return None if the home has no approver, or if the change was already approved.
        `about` may read files. Raises AileronError (vault_locked, busy), and the errors of `about`.
        """
        consents = self._approver.consents()
        if consents is None:
            return None
        subject = await anyio.to_thread.run_sync(about)
        return None if _is_agreed(consents, subject) else await self.ask(subject)

    async def maybe_ask_all(self, subjects: Sequence[Subject]) -> list[ConsentAnswer]:
        """Ask the person about each change that is not yet approved, and about all changes of a group if one of them is not.
        Return an empty list if the home has no approver, or if all changes are approved. Raises AileronError as
        `maybe_ask` does.
        """
        consents = self._approver.consents()
        if consents is None:
            return []
        missing = [subject for subject in subjects if not _is_agreed(consents, subject)]
        groups = {group_of(subject) for subject in missing} - {None}
        return [await self.ask(subject) for subject in subjects if subject in missing or group_of(subject) in groups]

    async def ask(self, subject: Subject, wait_s: float = WAIT_S) -> ConsentAnswer:
        """Insert a question into the queue, unless it is already there. Raises AileronError (busy) if too many questions wait."""
        kind, name = subject_kind(subject), subject_name(subject)
        row, is_new = await self._audit.ask(name, subject, expires_at=time.time() + wait_s)
        if is_new:
            self._asked(row.id, name, kind.value)
        if isinstance(subject, BindingConsent | SecretConsent) and subject.commitment in self._held:
            self._held[subject.commitment].digest = subject_digest(subject)
        return ConsentAnswer(
            approval_id=row.id,
            kind=kind,
            digest=row.digest,
            review_url=review_url(self._review, row.id),
            message=f"Nothing has changed yet: a person must approve it first, {where_to_decide(self._review, row.id)}.",
            expires_at=utc(row.expires_us / 1_000_000),
        )

    async def ask_for_file(self, subject: ActionFileConsent) -> str:
        """Ask about an action file that allows more than was approved, as a run detected. Return the approval's id."""
        return (await self.ask(subject)).approval_id

    async def ask_about_tool(self, state: ToolState) -> ConsentAnswer | None:
        """Ask whether to accept a tool that its server changed. Return None if there is nothing to accept. Also return None if
        the change was already accepted and the daemon ended before it resumed the tool; this method then resumes the tool.
        Raises AileronError (busy, vault_locked).
        """
        subject = self._tools.question(state)
        if subject is None:
            return None
        consents = self._approver.consents()
        agreed = () if consents is None else consents.agreed
        for consent in agreed:
            is_this = (consent.kind, consent.name, consent.digest) == (
                ConsentKind.TOOL_CHANGE,
                subject.consent_name,
                subject.digest,
            )
            if is_this and not self._tools.is_used(consent.approval):
                await self._tools.accept(subject, consent.approval)
                return None
        return await self.ask(subject, SETTINGS_WAIT_S)

    async def has_room_for_tools(self) -> bool:
        """Return whether a run may ask about another changed tool now. A person's own request for such a question is always
        allowed.
        """
        waiting = [row for row, _ in await self._audit.open_consents() if row.kind == ConsentKind.TOOL_CHANGE.value]
        return len(waiting) < MAX_TOOLS_ASKED

    async def ask_about_settings(self) -> None:
        """Ask about settings of config.toml that go beyond the approved ones, if any. Raises AileronError (vault_locked)."""
        if (subject := self._consent_checks.settings_consent()) is not None:
            await self.ask(subject, SETTINGS_WAIT_S)

    async def carry_out(self, approval_id: str) -> CarriedOut | ToFetch | None:
        """Make an approved change once. The decision is marked as used before anything changes. Return None while other
        questions of its group are not approved. If a value must be fetched first, return a ToFetch; `put_fetched` then stores
        the value. Raises AileronError that says why the change was not made.
        """
        row, subject = await self._audit.consent(approval_id)
        if (group := group_of(subject)) is not None:
            return await self._carry_out_group(group)
        await self._use(row, subject)
        if not await anyio.to_thread.run_sync(self._is_so, subject):
            raise _not_so(row.id)
        result = await self._do(subject, row)
        await self._drop([subject])
        return result

    async def _carry_out_group(self, group: str) -> CarriedOut | None:
        """Install an action together with its new connectors once all questions of the group are approved."""
        members = await self._members(group)
        whole = _complete(members)
        if whole is None:
            return None
        (asked, head), connectors = whole
        all_of_it: list[tuple[ApprovalRow, Subject]] = [(asked, head), *connectors]
        for row, subject in all_of_it:  # before one is used up, check that all of them count
            self._check_decided(row, subject)
        for row, subject in all_of_it:
            await self._use(row, subject)
        found, action = await anyio.to_thread.run_sync(
            self._as_agreed, [connector for _, connector in connectors], head
        )
        for row, connector in connectors:
            await self._record_connector_consent(connector, row.id)
        await self._record_text_consent(head, asked.id)
        result = await self._installing.put_together(found, action)
        for row, _ in await self._members(group):  # duplicate questions about the same change: it is made
            await self._take_back(row, "operator", self._approver.spend_decision)
        await self._drop(subject for _, subject in members)
        return result

    async def _members(self, group: str) -> list[tuple[ApprovalRow, Subject]]:
        """Return the questions of a group that are open, or that are approved and whose change has not been made."""
        return [(row, subject) for row, subject in await self._audit.open_consents() if group_of(subject) == group]

    async def end_group(
        self, approval_id: str, surface: str, take_back: Callable[[str, float], Awaitable[None]]
    ) -> None:
        """Withdraw the other questions of a group, because one question was denied or withdrawn. Delete the files that were
        fetched for the group.

        `take_back` invalidates the decision about a question that was already approved, until the given time.
        """
        _, subject = await self._audit.consent(approval_id)
        group = group_of(subject)
        members = [] if group is None else await self._members(group)
        for row, _ in members:
            await self._take_back(row, surface, take_back)
        await self._drop([subject, *(other for _, other in members)])

    async def _take_back(
        self, row: ApprovalRow, surface: str, take_back: Callable[[str, float], Awaitable[None]]
    ) -> None:
        await self._audit.cancel(row.id, surface=surface)
        if row.signed is not None:
            await take_back(row.id, parse_moment(row.signed.at) + SETTINGS_WAIT_S)

    async def fetched(self) -> set[str]:
        """Return the digests of the fetched files that are in staging for an open question."""
        found = [fetched_for(subject) for _, subject in await self._audit.open_consents()]
        return {digest for digest in found if digest is not None}

    async def _drop(self, subjects: Iterable[Subject]) -> None:
        """Delete the files that were fetched for these subjects, except files that another question needs."""
        gone = {digest for subject in subjects if (digest := fetched_for(subject)) is not None}
        for digest in gone - await self.fetched():
            await anyio.to_thread.run_sync(self.finding.drop, digest)

    async def _use(self, row: ApprovalRow, subject: Subject) -> None:
        """Mark the decision about this question as used. Raises AileronError if the decision is not valid."""
        signed_at = self._check_decided(row, subject)
        await self._audit.redeem(row.id, row.digest)
        if signed_at is not None:
            await self._approver.spend_decision(row.id, signed_at + SETTINGS_WAIT_S)

    def _as_agreed(
        self, connectors: Sequence[ConnectorConsent], head: ActionFileConsent
    ) -> tuple[list[FoundConnector], ActionText]:
        """Return the fetched files, after reading them again and comparing them with the approved ones. Raises AileronError
        (hash_mismatch).
        """
        found = [self.finding.agreed(consent) for consent in connectors]
        coming = {connector.artifact.pin: connector.artifact.manifest for connector in found}
        if not self._is_file_so(head, coming):
            raise _not_so(head.name)
        return found, self._action_text(head)

    def _is_file_so(self, subject: ActionFileConsent, coming: Mapping[ConnectorPin, ConnectorManifest]) -> bool:
        action = parse_action(subject.text, file=f"{subject.name}.md")
        here = None if subject.fetched is None else self._actions.maybe_load(subject.name)
        now = self._consent_checks.consent_to(
            action, install=subject.install, replace=subject.replace, before=here, coming=coming
        )
        if subject.fetched is not None and subject.published is not None:
            fetched = self.finding.action(ArtifactRequest.parse(subject.fetched), subject.published)
            now = msgspec.structs.replace(
                now,
                fetched=subject.fetched,
                published=subject.published,
                signature=text_signature_words(fetched.signed, subject.text, subject.published),
                group=subject.group,
                installs=subject.installs,
            )
        return now == subject

    def _action_text(self, subject: ActionFileConsent) -> ActionText:
        if subject.fetched is None or subject.published is None:
            return ActionText(subject.text, subject.replace)
        fetched = self.finding.action(ArtifactRequest.parse(subject.fetched), subject.published)
        return ActionText(subject.text, subject.replace, subject.fetched, fetched.action.text)

    def _is_so(self, subject: Subject) -> bool:
        """Return whether the same question would be asked now, that is, whether the state of the home still matches it. A
        connector's artifact is not checked here, but during installation. Raises AileronError if the question cannot be asked
        at all.
        """
        match subject:
            case ActionFileConsent():
                return self._is_file_so(subject, {})
            case BindingConsent():
                return self._is_binding_now(subject)
            case SecretConsent():
                users = {str(binding.name) for binding in self._vault.bindings() if binding.secret == subject.name}
                return users <= set(subject.bindings)
            case GrantConsent():
                action = self._actions.load(subject.action)
                left_s = max(MIN_FOR_S, int(parse_moment(subject.until) - time.time()))
                check_grant(action, subject.constraints, subject.uses, left_s)
                return action.digest == subject.action_digest
            case TrustedKeyConsent():
                return self.key_consent(subject.authority, _newest(subject), subject.source) == subject
            case SettingsConsent():
                return self._consent_checks.settings_consent() == subject
            case PasskeyConsent():
                consents = self._approver.consents()
                if consents is not None:
                    check_enrollable(consents, subject, self._review)
                return consents is not None
            case ToolChangeConsent():
                return self._tools.is_asked_now(subject)
            case HostConsent():
                return self._hosts.is_asked_now(subject)
            case ConnectorConsent():
                return True
            case impossible:
                assert_never(impossible)

    def _is_binding_now(self, subject: BindingConsent) -> bool:
        """Return whether the binding still replaces what the question says, for the same connector, and whether the
        installed versions of the connector ask for no more than the question says. Without new tokens, its account
        must also be that of the stored grant, and its secret must still be kept where the question says.
        """
        before = self._vault.binding(BindingName.parse(subject.name))
        if subject.replaces != (before is not None) or (before is not None and before.connector != subject.connector):
            return False
        if subject.commitment is None:
            grant = before.grant if before is not None and before.secret == subject.secret else None
            if subject.account != (None if grant is None else grant.account):
                return False
            kept_at = self._vault.kept_at(subject.secret)
            if (subject.reference or None) != (None if kept_at is None else kept_at.words):
                return False
        return _is_binding(self._connectors, subject)

    def _check_decided(self, row: ApprovalRow, subject: Subject) -> float | None:
        """Return the time at which the approver signed the decision in the ledger's row. The signature is checked because the
        ledger's file could have been written while no daemon ran.

        Return None if the home has no approver and the question is about a changed tool or a host, because these are asked
        about in every home.
        """
        if (
            isinstance(subject, ToolChangeConsent | HostConsent)
            and self._approver.consents() is None
            and row.signed is None
        ):
            return None
        if self._approver.consents() is None or row.signed is None:
            raise NotCounted("unsigned", f"{row.id} was not approved with a signature; nothing changed")
        self._approver.check_approved(row, subject_kind(subject))
        signed_at = parse_moment(row.signed.at)
        if time.time() > signed_at + SETTINGS_WAIT_S:
            raise AileronError(
                FailureClass.APPROVAL_EXPIRED, f"{row.id} was approved too long ago", boundary=Boundary.USER
            )
        return signed_at

    async def end_connector(self, pin: ConnectorPin) -> None:
        """End the consents to the connector with exactly these bytes, and to its changed tools."""
        for op in await self._tools.remove(pin):
            await self.end(ConsentKind.TOOL_CHANGE, tool_consent_name(pin.hash, op))
        consents = None if self._vault.is_locked else self._approver.consents()
        agreed = () if consents is None else consents.agreed
        for consent in [
            consent for consent in agreed if consent.kind is ConsentKind.CONNECTOR and consent.digest == pin.hash
        ]:
            await self.end(ConsentKind.CONNECTOR, consent.name)

    async def end(self, kind: ConsentKind, name: str) -> None:
        """End the consent under this name, because its subject was removed. If the subject is added again, the person is asked
        again.

        While the vault is locked, the consent cannot be ended; the subject is removed nevertheless.
        """
        if self._vault.is_locked or (consents := self._approver.consents()) is None:
            return
        if consents.consent_digest(kind, name) is not None:
            await self._change(lambda now: now.without_consent(kind, name))
            await self._audit.ended(kind, name, "removed")

    def hold(
        self,
        value: Secret,
        grant: OAuthGrant | None = None,
        elsewhere: Elsewhere | None = None,
        fetch: Callable[[], Awaitable[Secret]] | None = None,
    ) -> str:
        """Store a secret's value in memory until its question is decided. Return the commitment to the value, which the
        question contains. If too many values are stored, the oldest is dropped; its question then fails and says how to ask
        again.

        With `fetch`, the secret is fetched only after the question is approved. In that case the commitment is computed from
        `value`.
        """
        if len(self._held) >= MAX_HELD:
            self._held.pop(next(iter(self._held)))
        nonce = secrets.token_bytes(32)
        commitment = hashlib.sha256(nonce + value.reveal()).hexdigest()
        self._held[commitment] = _Held(nonce, value, grant, elsewhere, fetch)
        return commitment

    def forget(self, digest: str) -> None:
        """Forget the value that was stored for a question, because the question was denied or withdrawn."""
        self._held = {commitment: held for commitment, held in self._held.items() if held.digest != digest}

    def _released(self, subject: BindingConsent | SecretConsent, commitment: str, what: str, again: str) -> _Held:
        """Remove and return the value that was stored for this question. Raises AileronError (invalid_request) if the value is
        no longer stored. A value stored for another question stays.
        """
        held = self._held.get(commitment)
        if held is None or held.digest != subject_digest(subject):
            raise AileronError(
                FailureClass.INVALID_REQUEST, f"{what} is no longer kept: {again}", boundary=Boundary.USER
            )
        del self._held[commitment]
        if hashlib.sha256(held.nonce + held.value.reveal()).hexdigest() != commitment:
            raise AileronError(FailureClass.INTERNAL_ERROR, f"{what} is not what was kept: {again}")
        return held

    async def put_binding(
        self, binding: Binding, *, replace: bool = False, tokens: Secret | None = None
    ) -> BindingEntry:
        """Store a binding, and `tokens` as its secret in the same write. Raises AileronError as Vault.bind and `bind_sign_in`
        do.
        """
        if tokens is None:
            await anyio.to_thread.run_sync(lambda: self._vault.bind(binding, replace=replace))
        else:
            await anyio.to_thread.run_sync(lambda: self._vault.bind_sign_in(binding, tokens, replace=replace))
            await self._audit.note(events.SecretSet(name=binding.secret))
        await self._audit.note(
            events.BindingCreated(
                binding=str(binding.name),
                connector=binding.connector,
                secret=binding.secret,
                account=binding.username if binding.grant is None else binding.grant.account,
                hosts=[] if binding.reach is None else list(binding.reach.hosts),
                scopes=[] if binding.grant is None else list(binding.grant.scopes),
            )
        )
        self._bound()
        return binding_facts(
            binding,
            kept_at=self._vault.kept_at(binding.secret),
            certificate=self._vault.certificate(binding.name),
        )

    async def put_secret(self, name: str, value: Secret) -> SecretStored:
        """Store a secret, replacing an earlier value. Raises AileronError as Vault.set_secret does."""
        await anyio.to_thread.run_sync(lambda: self._vault.set_secret(name, value))
        await self._audit.note(events.SecretSet(name=name))
        return SecretStored(name=name)

    async def put_reference(self, name: str, elsewhere: Elsewhere, value: Secret) -> SecretStored:
        """Store the reference to a secret in an external store, and that `value` was approved as its value. Raises
        AileronError as Vault.set_reference does.
        """
        await anyio.to_thread.run_sync(lambda: self._vault.set_reference(name, elsewhere, value))
        await self._audit.note(events.SecretSet(name=name, reference=elsewhere.reference))
        return SecretStored(name=name)

    async def _do(self, subject: Subject, row: ApprovalRow) -> CarriedOut | ToFetch:
        approval_id = row.id
        match subject:
            case ActionFileConsent():
                return await self._action_file(subject, approval_id)
            case ConnectorConsent():
                return await self._connector(subject, approval_id)
            case BindingConsent():
                return await self._binding(subject, approval_id)
            case SecretConsent():
                return await self._secret(subject, approval_id)
            case GrantConsent():
                return await self._grant(subject, approval_id)
            case TrustedKeyConsent():
                return await self._trusted_key(subject, approval_id)
            case SettingsConsent():
                return await self._config(subject, approval_id)
            case PasskeyConsent():
                return await self._passkey(subject, row)
            case ToolChangeConsent():
                return await self._tool_change(subject, approval_id)
            case HostConsent():
                await self._hosts.allow(subject, approval_id)
                return AllowedHost(session=subject.session, host=subject.destination)
            case impossible:
                assert_never(impossible)

    async def _action_file(self, subject: ActionFileConsent, approval_id: str) -> ApprovedFile | AddedAction:
        digest = await self._record_text_consent(subject, approval_id)
        if not subject.install:
            return ApprovedFile(name=subject.name, digest=digest)
        action = await anyio.to_thread.run_sync(lambda: self._action_text(subject))
        return await self._installing.put_action(action)

    async def _record_text_consent(self, subject: ActionFileConsent, approval_id: str) -> str:
        """Store the consent to the action file, so that it can run from now on. Return the file's digest."""
        digest = sha256_digest(subject.text.encode())
        await anyio.to_thread.run_sync(self._texts.put, subject.text)
        await self._agree(ConsentKind.ACTION_FILE, subject.name, digest, approval_id)
        return digest

    async def _connector(self, subject: ConnectorConsent, approval_id: str) -> InstalledConnector:
        found = await anyio.to_thread.run_sync(self.finding.agreed, subject)
        await self._record_connector_consent(subject, approval_id)
        result = await self._installing.put_connector(found)
        await self._drop([subject])
        return result

    async def _record_connector_consent(self, subject: ConnectorConsent, approval_id: str) -> None:
        """Store the consent to install the connector. It replaces the consent to other bytes of the same version, or
        is added to it if both are kept.
        """
        kind, name = ConsentKind.CONNECTOR, subject_name(subject)
        consents = self._approver.consents()
        agreed = () if consents is None else consents.agreed
        before = next((consent for consent in agreed if (consent.kind, consent.name) == (kind, name)), None)
        if before is not None and before.digest != subject.hash and subject.on_conflict == "keep_both":
            await self._agree(kind, f"{name} {before.digest}", before.digest, before.approval)
        await self._agree(kind, name, subject.hash, approval_id)

    def is_installed(self, pin: ConnectorPin) -> bool:
        """Return whether the stored connector with this pin was approved; always True without an approver."""
        consents = self._approver.consents()
        return consents is None or consents.has_connector_consent(pin.hash)

    async def _binding(self, subject: BindingConsent, approval_id: str) -> BindingEntry:
        tokens, grant = None, None
        if subject.commitment is not None:
            again = f"aileron binding setup {subject.connector} --name {subject.name}"
            held = self._released(subject, subject.commitment, "what the provider gave at sign-in", again)
            tokens, grant = held.value, held.grant
        elif subject.replaces and (known := self._vault.binding(BindingName.parse(subject.name))) is not None:
            grant = known.grant if known.secret == subject.secret else None
        result = await self.put_binding(binding_of(subject, grant), replace=subject.replaces, tokens=tokens)
        await self._agree(ConsentKind.BINDING, subject.name, subject_digest(subject), approval_id)
        return result

    async def put_fetched(self, fetched: ToFetch, value: Secret) -> SecretStored:
        """Store an approved reference with its fetched value, if the question would still be the same now. Raises AileronError
        as `carry_out` does.
        """
        if not await anyio.to_thread.run_sync(self._is_so, fetched.subject):
            raise _not_so(fetched.approval_id)
        return await self.put_reference(fetched.subject.name, fetched.elsewhere, value)

    async def _secret(self, subject: SecretConsent, approval_id: str) -> SecretStored | ToFetch:
        again = f"aileron secret set {subject.name}"
        held = self._released(subject, subject.commitment, f"the new value of {subject.name}", again)
        if held.elsewhere is None:
            return await self.put_secret(subject.name, held.value)
        to, token = (UNSET, UNSET) if held.fetch is None else (held.elsewhere.place, held.elsewhere.token or UNSET)
        if (subject.reference, subject.token_to, subject.token) != (held.elsewhere.words, to, token):
            raise AileronError(FailureClass.INTERNAL_ERROR, f"{subject.name} is kept elsewhere than was said: {again}")
        if held.fetch is not None:
            return ToFetch(approval_id, subject, held.elsewhere, held.fetch)
        return await self.put_reference(subject.name, held.elsewhere, held.value)

    async def _grant(self, subject: GrantConsent, approval_id: str) -> GrantMade:
        grant = StandingGrant(
            id=approval_id,
            action=subject.action,
            action_digest=subject.action_digest,
            credentials=subject.credentials,
            constraints=subject.constraints,
            uses=subject.uses,
            until=int(parse_moment(subject.until)),
        )
        await self._change(lambda consents: consents.with_grant(grant))
        await self._audit.agreed(ConsentKind.GRANT, subject.action, subject_digest(subject), approval_id)
        return GrantMade(id=approval_id, action=subject.action, uses=subject.uses, until=subject.until)

    def keyring(self) -> Keyring:
        """Return the trusted keys. Reads a file. Raises AileronError (vault_locked, hash_mismatch), or (invalid_request) for a
        broken file.
        """
        consents = self._approver.consents()
        kept = self._keyring.read()
        if consents is None:
            return kept
        return kept.agreed(lambda authority: consents.consent_digest(ConsentKind.TRUSTED_KEY, authority))

    def trust(self) -> Trust:
        """Return the keys that are trusted now, and whether a signature is required. Raises AileronError as `keyring` does."""
        required = self._consent_checks.in_force["connectors.require_signature"]
        public = public_forges(self._consent_checks.in_force)
        return Trust(keyring=self.keyring(), require_signature=bool(required), public_forges=public)

    def key_consent(self, authority: str, key: PublicKey, source: str) -> TrustedKeyConsent:
        """Return the consent that `key` needs to be trusted. Raises AileronError as `keyring` does, and if there are too many
        keys.
        """
        whose = Authority.parse(authority)
        before = self.keyring()
        after = before.trusting(whose, key)
        return TrustedKeyConsent(
            authority=str(whose),
            new=key.fingerprint,
            keys=tuple(sorted(trusted_key.to_base64() for trusted_key in after.of(whose))),
            before=tuple(trusted_key.fingerprint for trusted_key in before.of(whose)),
            source=source,
        )

    async def put_key(self, subject: TrustedKeyConsent) -> TrustedKeys:
        """Trust exactly the keys that the subject lists for its authority from now on."""
        whose = Authority.parse(subject.authority)
        keys = [PublicKey.parse(text) for text in subject.keys]
        write = lambda: self._keyring.write(self._keyring.read().replacing(whose, keys))  # noqa: E731 - two words, used once
        await anyio.to_thread.run_sync(write)
        await self._audit.note(events.KeyTrusted(authority=subject.authority, key=subject.new, source=subject.source))
        return TrustedKeys(authority=subject.authority, key=subject.new, keys=[key.fingerprint for key in keys])

    async def end_key(self, whose: Authority, fingerprint: str | None) -> RevokedKeys:
        """Revoke the key of authority `whose` with this fingerprint; all of its keys if `fingerprint` is None. Raises
        AileronError (not_found), or (vault_locked) if there is an approver.
        """
        agreed, found = self.keyring(), self._keyring.read()
        gone = set(found.of(whose)) - set(found.without(whose, fingerprint).of(whose))
        left = [key for key in agreed.of(whose) if key not in gone]
        consents = self._approver.consents()
        if consents is not None:  # the rest stays as it was approved
            name = str(whose)
            kept = next(
                (
                    consent
                    for consent in consents.agreed
                    if (consent.kind, consent.name) == (ConsentKind.TRUSTED_KEY, name)
                ),
                None,
            )
            if kept is not None and left:
                narrower = msgspec.structs.replace(kept, digest=trust_digest(whose, left))
                await self._change(lambda now: now.with_consent(narrower))
            elif kept is not None:
                await self._change(lambda now: now.without_consent(ConsentKind.TRUSTED_KEY, name))
        await anyio.to_thread.run_sync(lambda: self._keyring.write(found.replacing(whose, left)))
        for key in sorted(public_key.fingerprint for public_key in gone):
            await self._audit.note(events.KeyRevoked(authority=str(whose), key=key))
        return RevokedKeys(authority=str(whose), revoked=sorted(public_key.fingerprint for public_key in gone))

    async def _trusted_key(self, subject: TrustedKeyConsent, approval_id: str) -> TrustedKeys:
        keys = [PublicKey.parse(text) for text in subject.keys]
        digest = trust_digest(Authority.parse(subject.authority), keys)
        await self._agree(ConsentKind.TRUSTED_KEY, subject.authority, digest, approval_id)
        return await self.put_key(subject)

    async def _passkey(self, subject: PasskeyConsent, row: ApprovalRow) -> PasskeyEnrolled:
        signed = row.signed
        if signed is None:
            raise NotCounted("unsigned", f"{row.id} was not approved with a signature; nothing changed")
        passkey = Passkey(
            id=subject.key_id,
            approval=row.id,
            subject=subject,
            at=signed.at,
            reason=row.reason,
            signature=signed.signature,
        )
        await self._change(lambda consents: consents.with_passkey(passkey))
        await self._audit.passkey_added(passkey)
        return PasskeyEnrolled(id=passkey.id, name=subject.name, origin=subject.origin)

    async def _tool_change(self, subject: ToolChangeConsent, approval_id: str) -> ToolAccepted:
        if self._approver.consents() is not None:
            await self._agree(ConsentKind.TOOL_CHANGE, subject.consent_name, subject.digest, approval_id)
        await self._tools.accept(subject, approval_id)
        return ToolAccepted(
            connector=f"{subject.connector}@{subject.version}",
            op=subject.op,
            action=subject.action,
            digest=subject.digest,
        )

    async def _config(self, subject: SettingsConsent, approval_id: str) -> SettingsApproved:
        await self._agree(ConsentKind.SETTINGS, SETTINGS, settings_digest(subject.after), approval_id)
        await anyio.to_thread.run_sync(self._settings.write, subject.after)
        is_whole = self._settings_agreed(subject.after)
        return SettingsApproved(settings=subject.after, restart=not is_whole)

    async def _agree(self, kind: ConsentKind, name: str, digest: str, approval_id: str) -> None:
        consent = Consent(kind=kind, name=name, digest=digest, approval=approval_id)

        await self._change(lambda consents: consents.with_consent(consent))
        await self._audit.agreed(kind, name, digest, approval_id)

    async def _change(self, how: Callable[[Consents], Consents]) -> None:
        await anyio.to_thread.run_sync(self._vault.change_consents, how)


def _newest(subject: TrustedKeyConsent) -> PublicKey:
    """Return the new key that the question asks to trust. Raises AileronError (hash_mismatch) if that key is not
    among the question's keys.
    """
    for text in subject.keys:
        if (key := PublicKey.parse(text)).fingerprint == subject.new:
            return key
    raise AileronError(FailureClass.HASH_MISMATCH, f"{subject.new} is none of the keys of its own question")


def _is_agreed(consents: Consents, subject: Subject) -> bool:
    """Return whether exactly these bytes have consent: for an action file, the last consent under its name; for a
    connector, any. False for every other subject.
    """
    match subject:
        case ActionFileConsent():
            digest = consents.consent_digest(ConsentKind.ACTION_FILE, subject.name)
            return digest == sha256_digest(subject.text.encode())
        case ConnectorConsent():
            return consents.has_connector_consent(subject.hash)
        case _:
            return False


def _complete(
    members: Sequence[tuple[ApprovalRow, Subject]],
) -> tuple[tuple[ApprovalRow, ActionFileConsent], list[tuple[ApprovalRow, ConnectorConsent]]] | None:
    """Return the action and each of its new connectors if all of their questions are approved, else None.

    Several callers may have asked about the same change in different ways: the latest approved question counts.
    """
    agreed = [(row, subject) for row, subject in members if row.state is ApprovalState.APPROVED]
    agreed.sort(key=lambda member: member[0].decided_us or 0)
    connectors = {subject.hash: (row, subject) for row, subject in agreed if isinstance(subject, ConnectorConsent)}
    heads = [(row, subject) for row, subject in agreed if isinstance(subject, ActionFileConsent)]
    if not heads or set(heads[-1][1].installs) != set(connectors):
        return None
    return heads[-1], list(connectors.values())


def _not_so(name: str) -> AileronError:
    return AileronError(
        FailureClass.HASH_MISMATCH,
        f"what {name} says is out of date; nothing changed, request it again",
        boundary=Boundary.USER,
    )


def _is_binding(store: ContentStore, subject: BindingConsent) -> bool:
    """Return whether the installed versions of the connector ask for no more than the question about the binding says."""
    kind = BindingName.parse(subject.name).kind
    versions = needing(store).get(subject.connector, [])
    return not _reach_of(subject).widened_to(binding_reach(versions, subject.connector, kind))


def binding_of(subject: BindingConsent, grant: OAuthGrant | None) -> Binding:
    """Create the binding that the question is about, with the current time as its creation time."""
    name = BindingName.parse(subject.name)
    return Binding(
        name=name,
        connector=subject.connector,
        kind=name.kind,
        username=subject.username,
        secret=subject.secret,
        created_at=time.time(),
        reach=_reach_of(subject),
        grant=grant,
        details=subject.details or None,
    )


def _reach_of(subject: BindingConsent) -> Reach:
    return Reach(hosts=subject.reaches, scopes=subject.scopes, wire=subject.wire, client=subject.client)
