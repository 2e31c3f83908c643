"""The settings that the daemon runs with: config.toml, taken up when it changes, as far as a person agreed to it.

Runs in the daemon. The file is anybody's of the same user. Where an approver exists, what they agree to (`CONSENTED`) stays as it
was agreed to last, and the difference is a question; all else, and all of it where nobody signs, is in force at once.

Rules
- A file that cannot be read changes nothing: what was in force stays, and `problem` says why. Every look reads it again: what it
  lacked may be there by then (a descriptor, the file of a certificate), and no stamp says so.
- What is built once is not taken up (`AT_START`): it waits for the next start, and `status` says which those are.
- Whether the file changed is looked at before a run, when the status is asked for, and every LOOK_S. A look is one stat, of
  a file that was taken up.
- Whoever uses settings is told by `adopt`, on the event loop, between two of its steps; a run that began goes on with its own.

Source: docs/reference/configuration.md, docs/reference/consents.md. Not here: what the keys mean (config.py), what was agreed to
(agreements.py).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from aileron import files
from aileron.config import SETTINGS, CellSettings, LaunchSettings, Settings, load_settings
from aileron.daemon.decisions.agreements import Agreements
from aileron.daemon.decisions.approver import ApproverState
from aileron.model.failure import AileronError
from aileron.threads import in_thread

__all__ = ["AT_START", "SettingsInForce"]

LOOK_S: Final = 2.0
"""Nobody waits for it: whoever runs something looks first."""
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
"""What jails, trust in certificates, ports and channels are made of, once."""
_FIELDS_AT_START: Final = (*(key.replace(".", "_") for key in AT_START), "egress_ca_pem", "daemon_certificate_pem")
_log = logging.getLogger(__name__)


class SettingsInForce:
    """One for each daemon. `ask` puts what waits for a person into the queue; `read` is the stamp of the file behind `wanted`."""

    def __init__(
        self,
        path: Path,
        approver: ApproverState,
        agreements: Agreements,
        *,
        ask: Callable[[], Awaitable[None]],
        in_force: Settings,
        wanted: Settings,
        read: files.Stamp | None,
    ) -> None:
        self._path = path
        self._approver = approver
        self._agreements = agreements
        self._now = in_force
        self._wanted = wanted
        self._read = read
        self._looking = anyio.Lock()
        self._ask = ask
        self._adopters: list[Callable[[Settings], None]] = []
        self.problem: str | None = None
        """Why the file as it is now could not be read; None where it could."""

    def tell(self, *adopters: Callable[[Settings], None]) -> None:
        """Have these told of what is in force from now on."""
        self._adopters.extend(adopters)

    @property
    def at_start(self) -> list[str]:
        """The settings of the file that are in force when the daemon starts again."""
        now, wanted, waiting = self._now.values(), self._wanted.values(), self._agreements.settings_waiting
        return [key for key in SETTINGS if now[key] != wanted[key] and key not in waiting]

    def launch(self) -> tuple[LaunchSettings, str | None]:
        """How agents are started from now on: as was agreed to, but in a cell as soon as the file says so. That lets an agent do
        less, and whoever has chosen it should not have to sign first.

        Where nobody can tell what was agreed to, a cell shows and reaches nothing beside what it has to, and it is said why.
        """
        now = self._now.launch
        jail = True if self._wanted.launch.jail else now.jail
        try:
            self._agreements.check_settings()
        except AileronError as error:
            bare = LaunchSettings(jail, CellSettings(ask_hosts=now.cell.ask_hosts))
            return bare.with_limits_of(now), error.failure.message
        return msgspec.structs.replace(now, jail=jail), None

    async def look(self) -> None:
        """Take the file up if it is another than was taken up last. Raises nothing."""
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
                if self.problem != error.failure.message:  # once, and not at every look
                    _log.error("config.toml was changed and is not in force: %s", error)
                self.problem = error.failure.message
                return
            self._read = read  # from before it was read: what changed meanwhile is looked at again
            self.problem = None
            self._wanted = msgspec.structs.replace(wanted, daemon_port=wanted.daemon_port or self._now.daemon_port)
            agreed = self._now.consented() if self._approver.is_hinted else None
            self._put_in_force(agreed)
            if self._agreements.settings_waiting:
                try:
                    await self._ask()
                except AileronError as error:  # the vault is locked: it is asked when that is open
                    _log.info("settings are not asked about yet: %s", error)

    def agreed(self, values: dict[str, Any]) -> bool:
        """A person agreed to these of `Settings.consented`. False where some are in force at the next start only."""
        self._put_in_force(values)
        return self._now.consented() == values

    async def serve(self) -> None:
        """Look every LOOK_S. Until cancelled."""
        while True:
            await anyio.sleep(LOOK_S)
            await self.look()

    def _put_in_force(self, agreed: dict[str, Any] | None) -> None:
        new = self._wanted if agreed is None else self._wanted.with_consented(agreed)
        self._now = msgspec.structs.replace(new, **{name: getattr(self._now, name) for name in _FIELDS_AT_START})
        self._agreements.take_up(in_force=self._now, wanted=self._wanted)
        for adopt in self._adopters:
            adopt(self._now)
        _log.info("config.toml was taken up")
