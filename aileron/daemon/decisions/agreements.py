"""What a person agreed to, against what lies in the home now: action files and settings that anybody of the same user can write.

Runs in the daemon. The vault names the digest that was agreed to; the texts lie in `agreed/`. A file that is not as agreed, or
narrower, does not run: `missing` says what would have to be agreed to, and the spine asks.

Rules
- Without an approver nothing is compared, and everything is as its files say.
- Settings are decided before the vault is open, from a copy of what was agreed to last that anybody could have written too. So
  the digest of those in force is compared with the vault's word whenever something is about to run.

Source: docs/reference/consents.md. Not here: which difference widens (actions/widening.py), asking (consents.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from aileron.actions.agreed import AgreedTexts
from aileron.actions.manifest import parse_action
from aileron.actions.widening import changes, consent_of
from aileron.approvals.gate import Approver
from aileron.config import NAMING_A_SECRET, Settings, agreed_form
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.consent import SETTINGS, ActionFileConsent, ConsentKind, Consents, SettingsConsent
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile, ConnectorManifest
from aileron.model.plan import ConnectorPin

__all__ = ["Agreements", "settings_digest"]

_log = logging.getLogger(__name__)


def settings_digest(values: dict[str, Any]) -> str:
    """What the vault holds of settings that were agreed to, also before there were all of those there are now."""
    return sha256_digest(canonical_json(agreed_form(values)))


class Agreements:
    """One for each daemon. `in_force` are the settings it runs with, `wanted` those of config.toml."""

    def __init__(
        self,
        approver: Approver,
        texts: AgreedTexts,
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
        """The settings are these from now on."""
        self._in_force = in_force.consented()
        self._in_force_digest = settings_digest(self._in_force)  # once: it is compared before every run
        self._wanted = wanted.consented()
        self._wanted_digest = settings_digest(self._wanted)

    def missing(self, action: ActionFile) -> ActionFileConsent | None:
        """What has to be agreed to before this file runs; None where nothing has. Reads files. AileronError vault_locked,
        hash_mismatch.
        """
        consents = self._approver.consents()
        if consents is None:
            return None
        self._check_connectors(consents, action)
        digest = consents.agreed_digest(ConsentKind.ACTION_FILE, action.name)
        if digest == action.digest:
            return None
        before = self._agreed_file(digest)
        if before is not None and not any(change.widens for change in changes(before, action)):
            return None
        return consent_of(before, action, manifests=self._manifest, install=False, replace=False)

    def is_as_agreed(self, action: ActionFile) -> bool:
        """Whether its file is word by word what the person agreed to, or nobody signs. Reads no file."""
        try:
            consents = self._approver.consents()
        except AileronError:
            return False
        return consents is None or consents.agreed_digest(ConsentKind.ACTION_FILE, action.name) == action.digest

    def consent_to(
        self,
        action: ActionFile,
        *,
        install: bool,
        replace: bool,
        before: ActionFile | None = None,
        coming: Mapping[ConnectorPin, ConnectorManifest] = MappingProxyType({}),
    ) -> ActionFileConsent:
        """What a person is asked before this file may run. `coming`: what is installed with it; `before` is what lies there: what
        it is compared with where nobody signs, and too where somebody does, since edits of theirs that narrow it would be lost.
        """
        here = before
        consents = self._approver.consents()
        if consents is not None:
            self._check_connectors(consents, action, coming)
            before = self._agreed_file(consents.agreed_digest(ConsentKind.ACTION_FILE, action.name))

        def manifests(pin: ConnectorPin) -> ConnectorManifest:
            return coming[pin] if pin in coming else self._manifest(pin)

        subject = consent_of(before, action, manifests=manifests, install=install, replace=replace)
        if consents is None or here is None or before is None:
            return subject
        lost = tuple(one for one in changes(here, action) if one.widens and one not in subject.changes)
        return msgspec.structs.replace(subject, changes=(*subject.changes, *lost))

    def _check_connectors(
        self,
        consents: Consents,
        action: ActionFile,
        coming: Mapping[ConnectorPin, ConnectorManifest] = MappingProxyType({}),
    ) -> None:
        """Return if nobody but the person had the action's connectors installed. AileronError consent_required, not_found."""
        for needed in action.connectors:
            pin = ConnectorPin(str(needed.name), needed.version, needed.hash)
            if pin in coming or consents.is_connector_agreed(pin.hash):
                continue
            self._manifest(pin)  # which says it where there is none
            raise AileronError(
                FailureClass.CONSENT_REQUIRED,
                f"the connector {pin} ({pin.hash}) is stored but was never approved: install and approve it "
                f"(`aileron connector install {pin}`, or its archive), or remove it",
                boundary=Boundary.USER,
            )

    def check_settings(self) -> None:
        """Return if the settings in force are those agreed to. AileronError consent_required, vault_locked, hash_mismatch."""
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
        return consents.agreed_digest(ConsentKind.SETTINGS, SETTINGS) == self._in_force_digest

    def _is_wanted_agreed(self) -> bool:
        """Whether config.toml says what was agreed to, as far as can be known now."""
        try:
            consents = self._approver.consents()
        except AileronError:
            return False
        return consents is None or consents.agreed_digest(ConsentKind.SETTINGS, SETTINGS) == self._wanted_digest

    def why_not_in_force(self, destination: str) -> str | None:
        """Why an exception for this host:port that config.toml has is not one yet; None where that is not so."""
        for key in ("egress.private", "egress.private_plain"):
            if destination in self._wanted[key] and destination not in self._in_force[key]:
                return (
                    f"{destination} is in {key} of config.toml but not in effect: it needs approval; see `aileron "
                    "approval list`"
                )
        return None

    @property
    def settings_waiting(self) -> list[str]:
        """The settings whose value in config.toml is not in force, because nobody agreed to it."""
        if self._is_wanted_agreed():
            return []
        return [key for key, value in self._wanted.items() if self._in_force.get(key) != value]

    def settings_consent(self) -> SettingsConsent | None:
        """What a person is asked so that config.toml takes effect; None where it does, and where nobody signs.

        Where those in force are not as agreed, the copy of what was agreed to was written by somebody else, or is gone: then all
        of the file is asked about. AileronError vault_locked, hash_mismatch.
        """
        if self._approver.consents() is None:
            return None
        are_agreed = self._are_agreed()
        if are_agreed and not self.settings_waiting:
            return None
        return SettingsConsent(before=self._in_force if are_agreed else {}, after=self._wanted)

    def settings_naming(self, secret: str) -> list[str]:
        """The settings in force that send this secret somewhere, or sign with it."""
        return [key for key in NAMING_A_SECRET if self._in_force[key] == secret]

    @property
    def in_force(self) -> dict[str, Any]:
        """The settings that a person agrees to, as they are now."""
        return self._in_force

    def _agreed_file(self, digest: str | None) -> ActionFile | None:
        """The action file of this digest; None for none, and where its text is gone."""
        text = None if digest is None else self._texts.maybe_get(digest)
        return None if text is None else parse_action(text, file="the file agreed to")
