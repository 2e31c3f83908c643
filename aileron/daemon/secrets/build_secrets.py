"""Builds the services for secrets: first the services that send requests with secrets, then the services for people."""

from __future__ import annotations

import os

import msgspec

from aileron.daemon.consent_service.build_consents import BuiltConsents
from aileron.daemon.foundation import Foundation
from aileron.daemon.secrets.credentials import Credentials
from aileron.daemon.secrets.kept_in_stores import SecretsInStores
from aileron.daemon.secrets.lending import Lending, RenewalsOnRecord
from aileron.daemon.secrets.secret_store import SecretStore
from aileron.daemon.secrets.signins import SignIns
from aileron.daemon.secrets.vault import VaultService
from aileron.egress.engine import Egress
from aileron.logins.keeper import Keeper
from aileron.oauth.endpoint import Endpoints
from aileron.oauth.minting import Minting
from aileron.oauth.renew import Renewals
from aileron.secret_stores.fetch import Fetcher
from aileron.secret_stores.key_value import KeyValueStores
from aileron.secret_stores.programs import Programs

__all__ = ["Outgoing", "Secrets", "build_outgoing", "build_secrets"]


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """Services that send requests, and that add credentials to these requests."""

    lending: Lending
    egress: Egress
    logins: Keeper
    endpoints: Endpoints
    renewals: Renewals
    minting: Minting
    elsewhere: SecretsInStores


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """The vault, and the services for people that use the vault."""

    vaults: VaultService
    stored: SecretStore
    credentials: Credentials
    sign_ins: SignIns


def build_outgoing(base: Foundation) -> Outgoing:
    """Build the services that send requests. Lending gets renewals, token requests and fetches of secrets as functions, and calls
    these only when it lends a secret, because these services themselves need egress.
    """
    lending = Lending(base.vault, lambda: renewals, lambda: minting, lambda: elsewhere)
    lending.send_own(base.settings.now)
    logins = Keeper(base.settings.now.egress_ca_pem)
    egress = Egress(base.settings.now, lending, own_port=base.port, logins=logins)
    endpoints = Endpoints(egress, base.settings)
    on_record = RenewalsOnRecord(base.audit)
    renewals = Renewals(base.vault, endpoints, on_record)
    minting = Minting(endpoints, on_record, base.vault.remember_token)
    fetcher = Fetcher(KeyValueStores(egress, base.settings), Programs(), dict(os.environ))
    elsewhere = SecretsInStores(base.vault, fetcher, base.audit)
    return Outgoing(
        lending=lending,
        egress=egress,
        logins=logins,
        endpoints=endpoints,
        renewals=renewals,
        minting=minting,
        elsewhere=elsewhere,
    )


def build_secrets(base: Foundation, outgoing: Outgoing, consenting: BuiltConsents) -> Secrets:
    """Build the services with which people manage the vault, its secrets and bindings, from the consent services `consenting`."""
    approver, consents = consenting.approver, consenting.consents
    credentials = Credentials(
        base,
        consents=consents,
        consent_store=consenting.store,
        approved=consenting.handlers.bindings,
        revoker=outgoing.renewals,
        elsewhere=outgoing.elsewhere,
    )
    return Secrets(
        vaults=VaultService(
            base.vault,
            ledger=base.ledger,
            audit=base.audit,
            approver=approver,
            changing=base.changing,
            settings=base.settings,
            locked=outgoing.egress.forget_certificates,
        ),
        stored=SecretStore(
            base,
            approver=approver,
            consent_checks=consenting.consent_checks,
            consents=consents,
            approved=consenting.handlers.secrets,
            held=consenting.held,
            elsewhere=outgoing.elsewhere,
        ),
        credentials=credentials,
        sign_ins=SignIns(
            base,
            outgoing.endpoints,
            credentials=credentials,
            consents=consents,
            approved=consenting.handlers.bindings,
            held=consenting.held,
            is_signed=lambda: approver.consents() is not None,
        ),
    )
