"""The settings that the daemon runs with. Changes to config.toml take effect while it runs, as far as a person approved them.

Runs in the daemon. Any process of the same user can write the file. With an approver, settings that need consent (`CONSENTED`)
stay as approved last, and the person is asked about the difference. Other settings are in force at once, and so are all
settings if there is no approver.

Rules
- A file that cannot be read changes nothing: the settings in force stay, and `problem` says why. Every check reads such a file
  again, because a missing certificate file or descriptor may be available by then, which the file's stamp does not show. The
  same holds for a change that cannot be recorded.
- Settings of objects that are built once are not adopted (`AT_START`): they wait for the next start, and `status` lists them.
- The file is checked for changes before a run, when the status is requested, and every LOOK_S. For a file that was adopted, a
  check is one stat.
- Which settings change is recorded before they take effect. What cannot be recorded does not take effect.
- Objects that use settings hold the `LiveSettings`, and read the settings from it when they need them. The settings are
  replaced on the event loop, between two of its steps. A run in progress keeps the settings that it began with.

Source: docs/reference/configuration.md, docs/reference/consents.md. Not here: what the keys mean (config.py), what was approved
(consent_checks.py).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import msgspec

from aileron import files
from aileron.audit.events import SettingsChanged
from aileron.audit.log import Audit
from aileron.config import SETTINGS, CellSettings, LaunchSettings, LiveSettings, Settings, load_settings
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.model.failure import AileronError
from aileron.model.json_value import JSONObject
from aileron.threads import in_thread

__all__ = ["AT_START", "SettingsInForce"]

LOOK_S: Final = 2.0
"""Seconds between two checks of config.toml. A run does not depend on this interval, because each run checks first."""
AT_START: Final = (
    "egress.ca_file",
    "sandbox.mode",
    "daemon.port",
    "daemon.listen",
    "daemon.certificate",
    "daemon.certificate_key",
    "notify.desktop",
    "notify.details",
    "notify.webhook",
    "notify.webhook_secret",
)
"""Settings that take effect only when the daemon starts, because jails, certificate trust, ports and notification channels are
built once from them.
"""
_FIELDS_AT_START: Final = (*(key.replace(".", "_") for key in AT_START), "egress_ca_pem", "daemon_certificate_pem")
_log = logging.getLogger(__name__)


class SettingsInForce:
    """The settings in force: the only object in the daemon that replaces `settings`. One instance per daemon. `ask` asks a
    person about settings that wait for approval; `changed` is called with new settings; `read` is the stamp that
    config.toml had when `wanted` was read from it.
    """

    def __init__(
        self,
        path: Path,
        approver: ApproverState,
        consent_checks: ConsentChecks,
        *,
        ask: Callable[[], Awaitable[None]],
        changed: Callable[[Settings], None],
        settings: LiveSettings,
        wanted: Settings,
        read: files.Stamp | None,
        audit: Audit,
    ) -> None:
        self._path = path
        self._approver = approver
        self._consent_checks = consent_checks
        self._settings = settings
        self._wanted = wanted
        self._read = read
        self._looking = anyio.Lock()
        self._putting = anyio.Lock()
        self._audit = audit
        self._ask = ask
        self._changed = changed
        self._approved: JSONObject | None = None
        """Values that a person just approved, until they are in force."""
        self.problem: str | None = None
        """Reason why config.toml is not in force: it cannot be read, or the change cannot be recorded. None if it is in force."""

    @property
    def at_start(self) -> list[str]:
        """Names of the settings in config.toml that take effect only at the daemon's next start."""
        now, wanted, waiting = self._settings.now.values(), self._wanted.values(), self._consent_checks.settings_waiting
        return [key for key in SETTINGS if now[key] != wanted[key] and key not in waiting]

    def launch(self) -> tuple[LaunchSettings, str | None]:
        """Return the settings with which agents are started from now on, as approved, and a problem or None. Agents start in a
        cell as soon as config.toml says so: this restricts them, so it takes effect without a signature.

        If the approved settings cannot be determined, a cell gives access to nothing beyond its minimum, and the returned text
        says why.
        """
        now = self._settings.now.launch
        jail = True if self._wanted.launch.jail else now.jail
        try:
            self._consent_checks.check_settings()
        except AileronError as error:
            bare = LaunchSettings(jail, CellSettings(ask_hosts=now.cell.ask_hosts))
            return bare.with_limits_of(now), error.failure.message
        return msgspec.structs.replace(now, jail=jail), None

    async def look(self) -> None:
        """Adopt config.toml if it has changed since it was last adopted. Never raises."""
        if files.stamp(self._path, follow_symlinks=True) == self._read and self.problem is None:
            return
        async with self._looking:
            read = files.stamp(self._path, follow_symlinks=True)
            if read == self._read and self.problem is None:
                return
            try:
                wanted = await in_thread(load_settings, self._path)
            except OSError as error:  # no thread for it now
                self.problem = f"{self._path} cannot be read now: {error.strerror}"
                return
            except AileronError as error:
                self._refuse(error)
                return
            port = wanted.daemon_port or self._settings.now.daemon_port
            try:
                await self._put_in_force(msgspec.structs.replace(wanted, daemon_port=port))
            except AileronError as error:
                self._refuse(error)
                return
            self._read = read  # from before it was read: later changes are noticed at the next check
            self.problem = None
            if self._consent_checks.settings_waiting:
                try:
                    await self._ask()
                except AileronError as error:  # the vault is locked: the question follows when it is open
                    _log.info("settings are not asked about yet: %s", error)

    async def agreed(self, values: JSONObject) -> bool:
        """Put approved values in force; `values` has those settings that need consent. Return False if some take effect
        only at the next start.

        Raises AileronError(internal_error) if the change cannot be recorded.
        """
        try:
            await self._put_in_force(approved=values)
        except AileronError as error:
            self._refuse(error)
            raise
        return self._settings.now.consented() == values

    def _refuse(self, error: AileronError) -> None:
        """Report why config.toml is not in force: in `problem`, which makes the next check try again, and in the log.
        The same problem is logged only once, not at every check.
        """
        if self.problem != error.failure.message:
            _log.error("config.toml was changed and is not in force: %s", error)
        self.problem = error.failure.message

    async def serve(self) -> None:
        """Check config.toml every LOOK_S until cancelled."""
        while True:
            await anyio.sleep(LOOK_S)
            await self.look()

    async def _put_in_force(self, wanted: Settings | None = None, *, approved: JSONObject | None = None) -> None:
        """Put `wanted`, the settings of config.toml, in force, after recording which settings change. If `wanted` is
        None, use the settings that the file had when it was last adopted. `approved` are values that a person approved just
        now.

        Raises AileronError if the change cannot be recorded; then nothing changes.
        """
        async with self._putting:
            wanted = self._wanted if wanted is None else wanted
            self._approved = approved or self._approved
            with anyio.CancelScope(shield=True):  # what is on record is in force
                recorded = self._settings.now
                # An approver can be set during the commit. Then the settings that nobody approved are replaced again.
                while (new := self._next(wanted)) != recorded:
                    if changed := new.differences(recorded):
                        await self._audit.note(SettingsChanged(settings=changed, digest=new.digest()))
                    recorded = new
            self._wanted, self._approved = wanted, None
            self._consent_checks.take_up(in_force=new, wanted=wanted)
            self._settings.replace(new)
            self._changed(new)
            _log.info("config.toml was taken up")

    def _next(self, wanted: Settings) -> Settings:
        """Return the settings to put in force when config.toml has the settings `wanted`. If decisions are signed,
        settings that need consent get the values that a person approved just now or earlier. Settings that take effect only at
        the daemon's next start stay as they are.
        """
        now, approved = self._settings.now, self._approved
        if approved is None and self._approver.is_hinted:
            approved = now.consented()
        new = wanted if approved is None else wanted.with_consented(approved)
        return msgspec.structs.replace(new, **{name: getattr(now, name) for name in _FIELDS_AT_START})
