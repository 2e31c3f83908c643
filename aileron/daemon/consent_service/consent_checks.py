"""Compares what a person approved with the action files and settings of the home, which any process of the same user can write.

Runs in the daemon. The vault has the approved digests; the approved texts are in `agreed/`. A file that is neither as approved
nor narrower does not run: `missing` returns the consent that the file needs, and the spine (runs/spine.py) asks a person for
it.

Rules
- Without an approver, nothing is compared, and the files alone apply.
- The settings in force are chosen before the vault is open, from a copy of the settings that were approved last. Any process of
  the user could have written that copy. So the digest of the settings in force is compared with the digest in the vault before
  each run.

Source: docs/reference/consents.md. Not here: which difference widens (actions/widening.py), asking (consents.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from aileron.actions.approved_texts import ApprovedTexts
from aileron.actions.manifest import parse_action
from aileron.actions.widening import changes, consent_of
from aileron.approvals.gate import Approver
from aileron.config import NAMING_A_SECRET, Settings, consented_form
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.consent import SETTINGS, ActionFileConsent, ConsentKind, Consents, SettingsConsent
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile, ConnectorManifest
from aileron.model.plan import ConnectorPin

__all__ = ["ConsentChecks", "settings_digest"]

_log = logging.getLogger(__name__)


def settings_digest(values: dict[str, Any]) -> str:
    """Return the digest that the vault stores for approved settings. The digest stays the same when a later version adds
    settings.
    """
    return sha256_digest(canonical_json(consented_form(values)))


class ConsentChecks:
    """Service that compares files and settings with the approver's consents. One instance per daemon. `in_force` are the
    settings in force, `wanted` those of config.toml.
    """

    def __init__(
        self,
        approver: Approver,
        texts: ApprovedTexts,
        manifest: Callable[[ConnectorPin], ConnectorManifest],
        *,
        in_force: Settings,
        wanted: Settings,
    ) -> None:
        self._approver = approver
        self._texts = texts
        self._manifest = manifest
        self.take_up(in_force=in_force, wanted=wanted)

    def take_up(self, *, in_force: Settings, wanted: Settings) -> None:
        """Compare these settings with consents from now on."""
        self._in_force = in_force.consented()
        self._in_force_digest = settings_digest(self._in_force)  # once: it is compared before every run
        self._wanted = wanted.consented()
        self._wanted_digest = settings_digest(self._wanted)

    def missing(self, action: ActionFile) -> ActionFileConsent | None:
        """Return the consent that this file still needs before it can run; None if it needs none. Reads files. Raises
        AileronError (vault_locked, hash_mismatch).
        """
        consents = self._approver.consents()
        if consents is None:
            return None
        self._check_connectors(consents, action)
        digest = consents.consent_digest(ConsentKind.ACTION_FILE, action.name)
        if digest == action.digest:
            return None
        before = self._agreed_file(digest)
        if before is not None and not any(change.widens for change in changes(before, action)):
            return None
        return consent_of(before, action, manifests=self._manifest, install=False, replace=False)

    def is_as_consented(self, action: ActionFile) -> bool:
        """Return whether the file's text is exactly as approved. True if the home has no approver, False if that cannot
        be determined. Reads no file.
        """
        try:
            consents = self._approver.consents()
        except AileronError:
            return False
        return consents is None or consents.consent_digest(ConsentKind.ACTION_FILE, action.name) == action.digest

    def consent_to(
        self,
        action: ActionFile,
        *,
        install: bool,
        replace: bool,
        before: ActionFile | None = None,
        coming: Mapping[ConnectorPin, ConnectorManifest] = MappingProxyType({}),
    ) -> ActionFileConsent:
        """Return the consent that this file needs before it may run. `coming` are the connectors that are installed
        together with the file. `before` is the installed file that it replaces. Without an approver, the new file is
        compared only with `before`. With an approver, it is compared with the approved file, and with `before` too: a
        person may have restricted the installed file by hand, and must see if the new file lifts these restrictions.
        """
        here = before
        consents = self._approver.consents()
        if consents is not None:
            self._check_connectors(consents, action, coming)
            before = self._agreed_file(consents.consent_digest(ConsentKind.ACTION_FILE, action.name))

        def manifests(pin: ConnectorPin) -> ConnectorManifest:
            return coming[pin] if pin in coming else self._manifest(pin)

        subject = consent_of(before, action, manifests=manifests, install=install, replace=replace)
        if consents is None or here is None or before is None:
            return subject
        lost = tuple(change for change in changes(here, action) if change.widens and change not in subject.changes)
        return msgspec.structs.replace(subject, changes=(*subject.changes, *lost))

    def _check_connectors(
        self,
        consents: Consents,
        action: ActionFile,
        coming: Mapping[ConnectorPin, ConnectorManifest] = MappingProxyType({}),
    ) -> None:
        """Check that the person approved each installed connector of the action. Raises AileronError (consent_required,
        not_found).
        """
        for needed in action.connectors:
            pin = ConnectorPin(str(needed.name), needed.version, needed.hash)
            if pin in coming or consents.has_connector_consent(pin.hash):
                continue
            self._manifest(pin)  # raises not_found if there is none
            raise AileronError(
                FailureClass.CONSENT_REQUIRED,
                f"the connector {pin} ({pin.hash}) is stored but was never approved: install and approve it "
                f"(`aileron connector install {pin}`, or its archive), or remove it",
                boundary=Boundary.USER,
            )

    def check_settings(self) -> None:
        """Check that the settings in force are the approved ones. Raises AileronError (consent_required, vault_locked,
        hash_mismatch).
        """
        if not self._are_agreed():
            if self._is_wanted_agreed():
                raise AileronError(
                    FailureClass.CONSENT_REQUIRED,
                    "approved settings take effect when the daemon restarts; run `aileron daemon restart`",
                    boundary=Boundary.USER,
                )
            raise AileronError(
                FailureClass.CONSENT_REQUIRED,
                "the daemon runs with settings that nobody approved: `aileron approval list` shows the question, "
                "and `aileron daemon stop` stops it",
                boundary=Boundary.USER,
            )

    def _are_agreed(self) -> bool:
        consents = self._approver.consents()
        if consents is None:
            return True
        return consents.consent_digest(ConsentKind.SETTINGS, SETTINGS) == self._in_force_digest

    def _is_wanted_agreed(self) -> bool:
        """Return whether config.toml has the approved settings, as far as the daemon can tell while the vault may be locked."""
        try:
            consents = self._approver.consents()
        except AileronError:
            return False
        return consents is None or consents.consent_digest(ConsentKind.SETTINGS, SETTINGS) == self._wanted_digest

    def why_not_in_force(self, destination: str) -> str | None:
        """Return why config.toml's permission for this private host:port (`egress.private`, `egress.private_plain`) is not
        in force; None if it is in force or config.toml has no such permission.
        """
        for key in ("egress.private", "egress.private_plain"):
            if destination in self._wanted[key] and destination not in self._in_force[key]:
                return (
                    f"{destination} is in {key} of config.toml but not in effect: it needs approval; see `aileron "
                    "approval list`"
                )
        return None

    @property
    def settings_waiting(self) -> list[str]:
        """Names of the settings whose value in config.toml is not in force because it was not approved."""
        if self._is_wanted_agreed():
            return []
        return [key for key, value in self._wanted.items() if self._in_force.get(key) != value]

    def settings_consent(self) -> SettingsConsent | None:
        """Return the consent that config.toml needs to take effect; None if all its settings are in force, or if the home
        has no approver.

        If the settings in force differ from the approved ones, the copy of the approved settings was written by another process
        or is gone. In that case the consent covers all settings in config.toml. Raises AileronError (vault_locked,
        hash_mismatch).
        """
        if self._approver.consents() is None:
            return None
        are_agreed = self._are_agreed()
        if are_agreed and not self.settings_waiting:
            return None
        return SettingsConsent(before=self._in_force if are_agreed else {}, after=self._wanted)

    def settings_naming(self, secret: str) -> list[str]:
        """Return the names of the settings in force that send this secret to a server, or sign with this secret."""
        return [key for key in NAMING_A_SECRET if self._in_force[key] == secret]

    @property
    def in_force(self) -> dict[str, Any]:
        """The settings in force that need consent."""
        return self._in_force

    def _agreed_file(self, digest: str | None) -> ActionFile | None:
        """Return the approved action file with this digest; None if the digest is None, or if the file's text is gone."""
        text = None if digest is None else self._texts.maybe_get(digest)
        return None if text is None else parse_action(text, file="the file agreed to")
