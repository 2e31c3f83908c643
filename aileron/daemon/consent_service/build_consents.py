"""Builds the services that ask a person, before anything can run, and later the services that act on the decisions."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from aileron import files
from aileron.daemon.consent_service.after_unlock import AfterUnlock
from aileron.daemon.consent_service.allowed_hosts import AllowedHosts, AskingCell
from aileron.daemon.consent_service.approval_queue import ApprovalQueue
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.enrollment import ApproverEnrollment
from aileron.daemon.consent_service.passkeys import Passkeys
from aileron.daemon.consent_service.previews import PreviewRegistry
from aileron.daemon.consent_service.service import DecisionService
from aileron.daemon.consent_service.settings import SettingsInForce
from aileron.daemon.consent_service.standing_grants import GrantService
from aileron.daemon.consent_service.suspended_tools import SuspendedTools
from aileron.daemon.consent_service.tool_changes import ToolChanges
from aileron.daemon.foundation import Foundation
from aileron.daemon.installed.install import Installer
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
) -> BuiltConsents:
    """Build the services for consent. `notify` sends a notice of a question. `read` is the stamp that config.toml had when it
    was read. `cell` returns the open session of an agent in a cell.
    """
    approver = ApproverState(base.vault, on_record=await base.audit.has_approver())
    tools = SuspendedTools(base.audit, approver)
    await tools.load()
    hosts = AllowedHosts(base.audit, approver, cell)
    await hosts.load()
    consent_checks = ConsentChecks(
        approver, base.texts, base.connectors.manifest, in_force=base.settings, wanted=base.wanted
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
        in_force=base.settings,
        wanted=base.wanted,
        read=read,
    )
    consents = ConsentService(
        base.home,
        approver,
        actions=base.actions,
        consent_checks=consent_checks,
        connectors=base.connectors,
        installing=installing,
        staging=base.staging,
        vault=base.vault,
        audit=base.audit,
        texts=base.texts,
        tools=tools,
        hosts=hosts,
        review=base.review,
        asked=asked,
        settings_agreed=in_force.agreed,
        bound=base.note_bound,
    )
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
        consents=consents,
        passkeys=passkeys,
        tools=tools,
        tool_changes=ToolChanges(tools, consents, actions=base.actions, changing=base.changing),
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
    """Build the decision services. `begin` starts one approved run, and `begin_approved` all of them; `take_back` invalidates a
    decision.
    """
    approver, consents, changing = consenting.approver, consenting.consents, base.changing
    previews = PreviewRegistry(spine)
    decisions = DecisionService(
        approver, audit=base.audit, readings=previews, consents=consents, begin=begin, changing=changing
    )
    enrollment = ApproverEnrollment(
        base.home,
        approver,
        actions=base.actions,
        connectors=base.connectors,
        vault=base.vault,
        audit=base.audit,
        texts=base.texts,
        consent_checks=consenting.consent_checks,
        changing=changing,
    )
    return Decisions(
        queue=ApprovalQueue(
            approver,
            audit=base.audit,
            ledger=base.ledger,
            consents=consents,
            actions=base.actions,
            connectors=base.connectors,
            take_back=take_back,
            changing=changing,
        ),
        decisions=decisions,
        previews=previews,
        enrollment=enrollment,
        grants=GrantService(
            approver,
            actions=base.actions,
            connectors=base.connectors,
            vault=base.vault,
            consent_checks=consenting.consent_checks,
            consents=consents,
            audit=base.audit,
            changing=changing,
        ),
        after_unlock=AfterUnlock(
            enrollment=enrollment,
            passkeys=consenting.passkeys,
            consents=consents,
            decisions=decisions,
            begin_approved=begin_approved,
            changing=changing,
        ),
    )
