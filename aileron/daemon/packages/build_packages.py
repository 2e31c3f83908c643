"""Builds the services that fetch, install and maintain connectors and actions."""

from __future__ import annotations

import msgspec

from aileron.daemon.consent_service.build_consents import BuiltConsents
from aileron.daemon.foundation import Foundation
from aileron.daemon.installed.install import Installer
from aileron.daemon.packages.actions import ActionService
from aileron.daemon.packages.connected import ConnectedServices
from aileron.daemon.packages.connectors import ConnectorService
from aileron.daemon.packages.fetch import FetchJobs
from aileron.daemon.packages.forge_web import ForgeWeb
from aileron.daemon.packages.hub import HubSearch
from aileron.daemon.packages.keyring import Forges, PublisherKeys
from aileron.daemon.packages.service_updates import ServiceUpdates
from aileron.daemon.packages.services import Services
from aileron.daemon.packages.updates import Updates
from aileron.daemon.secrets.build_secrets import Secrets
from aileron.egress.engine import Egress

__all__ = ["Packages", "build_packages"]


class Packages(msgspec.Struct, frozen=True, kw_only=True):
    """Services for installed packages and their sources."""

    actions: ActionService
    connectors: ConnectorService
    fetches: FetchJobs
    updates: Updates
    keys: PublisherKeys
    hub: HubSearch
    services: Services
    connected: ConnectedServices
    service_updates: ServiceUpdates


def build_packages(
    base: Foundation, egress: Egress, installing: Installer, consenting: BuiltConsents, secrets: Secrets
) -> Packages:
    """Build the services for installed packages and their sources, from the services for consent and for secrets."""
    consents, consent_checks, changing = consenting.consents, consenting.consent_checks, base.changing
    trusted = consenting.handlers.trusted_keys
    forges = Forges(ForgeWeb(egress, base.settings), base.settings, base.vault)
    actions = ActionService(
        base,
        consent_checks=consent_checks,
        consents=consents,
        consent_store=consenting.store,
        tools=consenting.tools,
        installing=installing,
    )
    connectors = ConnectorService(
        connectors=base.connectors,
        consents=consents,
        approved=consenting.handlers.connectors,
        finding=consenting.finding,
        installing=installing,
        audit=base.audit,
        changing=changing,
    )
    connected = ConnectedServices(
        ledger=base.ledger,
        actions=actions,
        store=base.actions,
        connectors=connectors,
        credentials=secrets.credentials,
        secrets=secrets.stored,
    )
    return Packages(
        actions=actions,
        connectors=connectors,
        fetches=FetchJobs(
            base,
            forges=forges,
            consent_checks=consent_checks,
            consents=consents,
            finding=consenting.finding,
            installing=installing,
        ),
        updates=Updates(base, forges=forges),
        keys=PublisherKeys(forges=forges, consents=consents, trusted=trusted, changing=changing),
        hub=HubSearch(forges=forges, keyring=trusted.keyring),
        services=Services(
            base,
            consent_checks=consent_checks,
            consents=consents,
            approved=consenting.handlers.installations,
            finding=consenting.finding,
            installing=installing,
            credentials=secrets.credentials,
            sign_ins=secrets.sign_ins,
            held=consenting.held,
        ),
        connected=connected,
        service_updates=ServiceUpdates(
            base,
            connected=connected,
            consent_checks=consent_checks,
            consents=consents,
            approved=consenting.handlers.installations,
            finding=consenting.finding,
            installing=installing,
        ),
    )
