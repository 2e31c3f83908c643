"""Builds the services that ask a person, before anything can run, and later the services that act on the decisions."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from aileron import files
from aileron.config import Settings
from aileron.daemon.consent_service.after_unlock import AfterUnlock
from aileron.daemon.consent_service.allowed_hosts import AllowedHosts, AskingCell
from aileron.daemon.consent_service.approval_queue import ApprovalQueue
from aileron.daemon.consent_service.approved_settings import ApprovedSettings
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.consent_service.consent_store import ConsentStore
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.enrollment import ApproverEnrollment
from aileron.daemon.consent_service.handlers.action_file_consent import ActionFileHandler
from aileron.daemon.consent_service.handlers.binding_consent import BindingHandler
from aileron.daemon.consent_service.handlers.connector_consent import ConnectorHandler
from aileron.daemon.consent_service.handlers.every_kind import ConsentHandlers
from aileron.daemon.consent_service.handlers.grant_consent import GrantHandler
from aileron.daemon.consent_service.handlers.host_consent import HostHandler
from aileron.daemon.consent_service.handlers.installation_consent import InstallationHandler
from aileron.daemon.consent_service.handlers.passkey_consent import PasskeyHandler
from aileron.daemon.consent_service.handlers.secret_consent import SecretHandler
from aileron.daemon.consent_service.handlers.settings_consent import SettingsHandler
from aileron.daemon.consent_service.handlers.tool_change_consent import ToolChangeHandler
from aileron.daemon.consent_service.handlers.trusted_key_consent import TrustedKeyHandler
from aileron.daemon.consent_service.held_values import HeldValues
from aileron.daemon.consent_service.passkeys import Passkeys
from aileron.daemon.consent_service.previews import PreviewRegistry
from aileron.daemon.consent_service.service import DecisionService
from aileron.daemon.consent_service.settings import SettingsInForce
from aileron.daemon.consent_service.standing_grants import GrantService
from aileron.daemon.consent_service.suspended_tools import SuspendedTools
from aileron.daemon.consent_service.tool_changes import ToolChanges
from aileron.daemon.foundation import Foundation
from aileron.daemon.installed.install import Installer
from aileron.daemon.installed.verify import ArtifactVerifier
from aileron.model.failure import AileronError
from aileron.runs.spine import Spine

__all__ = ["BuiltConsents", "Decisions", "build_consents", "build_decisions"]


class BuiltConsents(msgspec.Struct, frozen=True, kw_only=True):
    """The services that ask for and check consents, and those for passkeys, changed tools and hosts. `asked` is
    called for each new question with its id, name and kind.
    """

    approver: ApproverState
    consent_checks: ConsentChecks
    in_force: SettingsInForce
    store: ConsentStore
    held: HeldValues
    finding: ArtifactVerifier
    handlers: ConsentHandlers
    consents: ConsentService
    passkeys: Passkeys
    tools: SuspendedTools
    tool_changes: ToolChanges
    hosts: AllowedHosts
    asked: Callable[[str, str, str], None]


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """Services for a person's decisions on waiting questions."""

    queue: ApprovalQueue
    decisions: DecisionService
    previews: PreviewRegistry
    enrollment: ApproverEnrollment
    grants: GrantService
    after_unlock: AfterUnlock


async def build_consents(
    base: Foundation,
    installing: Installer,
    *,
    notify: Callable[[str, str, str], None],
    read: files.Stamp | None,
    cell: Callable[[str], AskingCell | None],
    changed: Callable[[Settings], None],
) -> BuiltConsents:
    """Build the services for consent. `notify` sends a notice of a question. `read` is the stamp that config.toml had when
    it was read. `cell` returns the open session of an agent in a cell. `changed` is called with the new settings whenever
    other settings take effect.
    """
    approver = ApproverState(base.vault, on_record=await base.audit.has_approver())
    tools = SuspendedTools(base.audit, approver)
    await tools.load()
    hosts = AllowedHosts(base.audit, approver, cell)
    await hosts.load()
    consent_checks = ConsentChecks(
        approver, base.texts, base.connectors.manifest, in_force=base.settings.now, wanted=base.wanted
    )

    async def ask_about_settings() -> None:
        async with base.changing:
            await consents.ask_about_settings()

    def asked(approval_id: str, name: str, kind: str) -> None:
        with contextlib.suppress(AileronError):  # settings that were not approved must not send anything
            consent_checks.check_settings()
            notify(approval_id, name, kind)

    in_force = SettingsInForce(
        base.home.config,
        approver,
        consent_checks,
        ask=ask_about_settings,
        settings=base.settings,
        changed=changed,
        wanted=base.wanted,
        read=read,
        audit=base.audit,
    )
    store, held = ConsentStore(approver, base.vault, base.audit), HeldValues()
    trusted_keys = TrustedKeyHandler(store, consent_checks, base.audit, base.home.keyring)
    finding = ArtifactVerifier(base.connectors, base.staging, trusted_keys.trust, store.is_installed)
    tool_changes = ToolChangeHandler(store, tools)
    connectors = ConnectorHandler(store, finding, installing, tool_changes)
    action_files = ActionFileHandler(base, store, consent_checks=consent_checks, finding=finding, installing=installing)
    bindings = BindingHandler(base, store, held=held)
    handlers = ConsentHandlers(
        action_files=action_files,
        connectors=connectors,
        bindings=bindings,
        installations=InstallationHandler(
            action_files=action_files,
            connectors=connectors,
            bindings=bindings,
            finding=finding,
            installing=installing,
        ),
        secrets=SecretHandler(base.vault, held, base.audit),
        grants=GrantHandler(store, base.actions, base.audit),
        trusted_keys=trusted_keys,
        settings=SettingsHandler(store, consent_checks, ApprovedSettings(base.home.agreed), in_force.agreed),
        passkeys=PasskeyHandler(store, base.audit, base.review),
        tool_changes=tool_changes,
        hosts=HostHandler(hosts),
    )
    consents = ConsentService(base, approver, handlers, held=held, asked=asked)
    passkeys = Passkeys(
        approver,
        audit=base.audit,
        vault=base.vault,
        consents=consents,
        origin=base.review,
        changing=base.changing,
    )
    return BuiltConsents(
        approver=approver,
        consent_checks=consent_checks,
        in_force=in_force,
        store=store,
        held=held,
        finding=finding,
        handlers=handlers,
        consents=consents,
        passkeys=passkeys,
        tools=tools,
        tool_changes=ToolChanges(base, tools, consents, tool_changes),
        hosts=hosts,
        asked=asked,
    )


def build_decisions(
    base: Foundation,
    consenting: BuiltConsents,
    *,
    spine: Spine,
    begin: Callable[[str], object],
    begin_approved: Callable[[], Awaitable[None]],
    take_back: Callable[[str, float], Awaitable[None]],
) -> Decisions:
    """Build the services that receive a person's decisions and act on them.

    `begin` starts the approved run with the given id, and `begin_approved` starts all approved runs. `take_back` invalidates
    a signed decision until the given time, after which the decision is too old to be used.
    """
    approver, consents, changing = consenting.approver, consenting.consents, base.changing
    previews = PreviewRegistry(spine)
    decisions = DecisionService(
        approver,
        audit=base.audit,
        readings=previews,
        consents=consents,
        secrets=consenting.handlers.secrets,
        begin=begin,
        changing=changing,
    )
    enrollment = ApproverEnrollment(base, approver, consent_checks=consenting.consent_checks)
    return Decisions(
        queue=ApprovalQueue(base, approver, consents=consents, take_back=take_back),
        decisions=decisions,
        previews=previews,
        enrollment=enrollment,
        grants=GrantService(base, approver, consent_checks=consenting.consent_checks, consents=consents),
        after_unlock=AfterUnlock(
            enrollment=enrollment,
            passkeys=consenting.passkeys,
            consents=consents,
            decisions=decisions,
            begin_approved=begin_approved,
            changing=changing,
        ),
    )
