"""Services of the catalogue, for one account each: added with everything that belongs to them, listed, removed.

Runs in the daemon, behind the operator's socket. The catalogue is ours; the values that the person gives, such as hosts, are
checked like a manifest's.

Rules
- A service is added whole, or not at all: connector, actions and bindings are one question (ADR 78), and one installation.
- An account that is there is not changed by adding it again; it is removed first.
- Nothing is kept about an account but what it consists of. Its name is that of its bindings and actions.

Source: docs/reference/http-api.md#services. Not here: the catalogue (aileron/catalogue), sign-ins (secrets/signins.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import anyio.to_thread
import msgspec

from aileron.actions.manifest import parse_action
from aileron.api.approvals import ConsentAnswer
from aileron.api.bindings import SignInState
from aileron.api.fetches import Installed
from aileron.api.services import AddService, ServiceCredential, SignInToService
from aileron.catalogue.preparing import Hosts, action_texts, built, label
from aileron.catalogue.service import Service, service_at, service_named
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.handlers.installation_consent import InstallationHandler
from aileron.daemon.consent_service.held_values import HeldValues
from aileron.daemon.foundation import Foundation
from aileron.daemon.installed.access_summary import binding_consent
from aileron.daemon.installed.install import Installer
from aileron.daemon.installed.verify import ArtifactVerifier, bundled_source
from aileron.daemon.secrets.credentials import Credentials, parsed
from aileron.daemon.secrets.signins import SignIns
from aileron.model.consent import ActionFileConsent, BindingConsent, InstallationConsent
from aileron.model.credential import Reach
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.login import LoginTarget
from aileron.model.names import BindingName, HostPort
from aileron.model.secret import Secret
from aileron.oauth.signin import GrantedTokens
from aileron.registry.artifact import Artifact, connector_of
from aileron.registry.connector_build import Application
from aileron.registry.consent import connector_consent
from aileron.registry.install import read_archive
from aileron.vault.bindings import Binding

__all__ = ["Services"]


class Services:
    """Service that adds the catalogue's services. One instance per daemon."""

    def __init__(
        self,
        base: Foundation,
        *,
        consent_checks: ConsentChecks,
        consents: ConsentService,
        approved: InstallationHandler,
        finding: ArtifactVerifier,
        installing: Installer,
        credentials: Credentials,
        sign_ins: SignIns,
        held: HeldValues,
    ) -> None:
        self._base = base
        self._consent_checks = consent_checks
        self._consents = consents
        self._approved = approved
        self._finding = finding
        self._installing = installing
        self._credentials = credentials
        self._sign_ins = sign_ins
        self._held = held

    async def add(self, asked: AddService) -> Installed | ConsentAnswer:
        """Add a service for an account, or ask a person to approve that first.

        Raises AileronError (not_found) for an unknown service, action or secret, (invalid_request) for a value that is missing or
        not valid and for an account that is there, and as registry.install and the vault do.
        """
        service = await anyio.to_thread.run_sync(_service_of, asked)
        archive = await anyio.to_thread.run_sync(_archive_of, service, asked)
        for credential in asked.credentials:
            await self._credentials.secret_ready(credential.secret)
        return await self._put(service, asked, archive, None)

    async def sign_in(self, asked: SignInToService) -> SignInState:
        """Begin a sign-in for a service that is added when the person has signed in. Return the address that they must visit.

        Raises AileronError as `add` does, and as a sign-in does.
        """
        service = await anyio.to_thread.run_sync(_service_of, asked)
        archive = await anyio.to_thread.run_sync(_archive_of, service, asked)
        async with self._base.changing:  # so that what cannot be added is refused before the person signs in
            artifact = await anyio.to_thread.run_sync(self._read, service, asked, archive)
            await anyio.to_thread.run_sync(self._described, service, asked, artifact)
        name = BindingName("oauth2", service.name, asked.identity)
        again = f"aileron add {service.name}"

        async def keep(granted: GrantedTokens) -> Installed | ConsentAnswer:
            return await self._put(service, asked, archive, granted)

        return await self._sign_ins.begin_with(artifact.manifest, name, asked.flow, again=again, keep=keep)

    async def _put(
        self, service: Service, asked: AddService, archive: bytes, granted: GrantedTokens | None
    ) -> Installed | ConsentAnswer:
        """Install the service, with the tokens of a sign-in if it has one; or ask a person first."""
        async with self._base.changing:
            artifact = await anyio.to_thread.run_sync(self._read, service, asked, archive)
            subject = await anyio.to_thread.run_sync(self._described, service, asked, artifact)
            if granted is not None:
                subject = msgspec.structs.replace(
                    subject, bindings=(self._signed_in(service, asked, artifact, granted),)
                )
            await anyio.to_thread.run_sync(self._base.staging.put, artifact.pin.hash, archive)
            answer = await self._consents.maybe_ask_about(subject)
            if answer is not None:
                return answer
            try:
                return await self._approved.put(subject)
            finally:
                await anyio.to_thread.run_sync(self._base.staging.drop, artifact.pin.hash)

    def _read(self, service: Service, asked: AddService, archive: bytes) -> Artifact:
        """Return the service's connector. Raises AileronError as `ArtifactVerifier.bundled` does."""
        if asked.directory is None:
            return self._finding.bundled(service.name, archive)
        return connector_of(archive, self._finding.trust(), file=service.name)

    def _described(self, service: Service, asked: AddService, artifact: Artifact) -> InstallationConsent:
        """Return the question about a service. Reads files. Raises AileronError as `add` does."""
        name = label(service.name, asked.identity)
        self._installing.check_runs_here(artifact)
        installed = self._finding.installed(artifact.manifest.name)
        stored = self._base.connectors.find(artifact.manifest.name, artifact.pin.version)
        on_conflict = "replace" if any(pin != artifact.pin for pin in stored) else "refuse"
        source = asked.directory or bundled_source(service.name)
        connector = connector_consent(artifact, source, on_conflict, installed=installed)
        return InstallationConsent(
            name=name,
            connectors=(connector,),
            actions=tuple(self._actions(service, asked, artifact)),
            bindings=tuple(self._binding(service, asked.identity, artifact, found) for found in asked.credentials),
        )

    def _actions(self, service: Service, asked: AddService, artifact: Artifact) -> Sequence[ActionFileConsent]:
        coming = {artifact.pin: artifact.manifest}
        texts = action_texts(service, asked.actions, asked.identity, artifact.pin)
        found = [parse_action(text, file=service.name) for text in texts]
        here = {action.name: self._base.actions.maybe_load(action.name) for action in found}
        return [
            self._consent_checks.consent_to(
                action, install=True, replace=here[action.name] is not None, before=here[action.name], coming=coming
            )
            for action in found
        ]

    def _signed_in(
        self, service: Service, asked: AddService, artifact: Artifact, granted: GrantedTokens
    ) -> BindingConsent:
        """Return the question about a binding of the tokens that a provider granted, which are held in memory until then."""
        name = self._free_name(service, "oauth2", service.name, asked.identity)
        reach = Reach.of(artifact.manifest)
        binding = Binding(
            name=name,
            connector=str(artifact.manifest.name),
            kind=name.kind,
            username=None,
            secret=self._sign_ins.secret_for(name),
            created_at=time.time(),
            reach=reach,
            grant=granted.grant,
        )
        commitment = self._held.hold(granted.tokens.sealed(), granted.grant)
        return binding_consent(binding, reach, commitment=commitment)

    def _binding(
        self, service: Service, identity: str, artifact: Artifact, credential: ServiceCredential
    ) -> BindingConsent:
        need = artifact.manifest.credential
        if need is None:
            raise AileronError(
                FailureClass.INVALID_REQUEST, f"{service.name} needs no credential", boundary=Boundary.USER
            )
        only_reads = credential.details is not None and credential.details.read_only
        of = f"{service.name}-reader" if only_reads else service.name
        name = self._free_name(service, need.kind, of, identity)
        reach = Reach.of(artifact.manifest)
        binding = Binding(
            name=name,
            connector=str(artifact.manifest.name),
            kind=need.kind,
            username=credential.username,
            secret=credential.secret,
            created_at=time.time(),
            reach=reach,
            grant=None,
            details=credential.details,
        )
        self._credentials.check_usable(binding)
        return binding_consent(binding, reach, self._base.vault.kept_at(binding.secret))

    def _free_name(self, service: Service, kind: str, of: str, identity: str) -> BindingName:
        """Return the name of a new binding. Raises AileronError(invalid_request) if the account is connected already."""
        name = BindingName(kind, of, identity)
        if self._base.vault.binding(name) is None:
            return name
        connected = label(service.name, identity)
        raise AileronError(
            FailureClass.INVALID_REQUEST,
            f"{connected} is connected already: remove it first (`aileron remove {connected}`), or add another account with "
            "`--as NAME`",
            boundary=Boundary.USER,
        )


def _service_of(asked: AddService) -> Service:
    """Return the service of the catalogue, or of a directory on this machine. Raises AileronError(not_found, invalid_request)."""
    if asked.directory is None:
        return service_named(asked.service)
    directory = Path(asked.directory)
    if not directory.is_absolute():
        raise AileronError(FailureClass.INVALID_REQUEST, "directory is not an absolute path", boundary=Boundary.USER)
    return service_at(directory, asked.service)


def _archive_of(service: Service, asked: AddService) -> bytes:
    """Return the archive of the service's connector, built for the person's hosts if it came with Aileron."""
    if asked.directory is not None:
        return read_archive(Path(asked.directory))
    return built(service, asked.identity, _given(asked)).archive


def _given(asked: AddService) -> Hosts:
    """Return the person's values, parsed. Raises AileronError(invalid_request)."""
    application = None
    if asked.client_id is not None:
        secret = None if asked.client_secret is None else Secret(asked.client_secret.encode())
        application = Application(client_id=asked.client_id, client_secret=secret)
    return Hosts(
        hosts=tuple(parsed(HostPort.parse, host) for host in asked.hosts),
        logins=tuple(parsed(LoginTarget.parse, login) for login in asked.logins),
        region=asked.region,
        application=application,
    )
