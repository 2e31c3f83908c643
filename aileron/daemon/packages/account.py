"""The accounts that installed connectors, bindings and actions make up, each with what belongs to it.

Pure. Nothing is stored about an account but what it consists of: what belongs together is found by the names of connectors and
bindings.

Rules
- An account is a connector with the bindings of one identity. A connector without a binding is an account too, so that what was
  added by half is seen and can be removed.
- An action belongs to an account if it is pinned to the connector and names the identity. If the connector has one account, an
  action without an identity belongs to it too.

Source: docs/reference/http-api.md#services. Not here: whether an account works (account_state.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from aileron.api.bindings import BindingEntry
from aileron.api.connectors import ConnectorEntry
from aileron.catalogue.preparing import FIRST, label
from aileron.catalogue.service import Service, services
from aileron.model.manifest import ActionFile
from aileron.model.names import BindingName
from aileron.model.plan import ConnectorPin

__all__ = ["ConnectedAccount", "joined"]


class ConnectedAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account: its connector's name and installed versions, its bindings, and its actions."""

    connector: str
    identity: str
    service: Service | None
    versions: tuple[ConnectorEntry, ...]
    bindings: tuple[BindingEntry, ...]
    actions: tuple[ActionFile, ...]

    @property
    def pins(self) -> tuple[ConnectorPin, ...]:
        """Pins of the installed versions of its connector."""
        named = ((entry.version, entry.hash) for entry in self.versions)
        return tuple(ConnectorPin(self.connector, version, pin) for version, pin in named if isinstance(version, str))

    @property
    def name(self) -> str:
        """Name of the account, with which its actions begin."""
        of = self.service.name if self.service is not None else _service_of(self.bindings) or _last_part(self.connector)
        return label(of, self.identity)


def joined(
    versions: dict[str, list[ConnectorEntry]], bindings: Iterable[BindingEntry], files: Sequence[ActionFile]
) -> Iterator[ConnectedAccount]:
    """Yield the accounts that connectors, bindings and actions make up."""
    identities: dict[str, dict[str, list[BindingEntry]]] = {name: {} for name in versions}
    for binding in bindings:
        of = identities.setdefault(binding.connector, {})
        of.setdefault(BindingName.parse(binding.name).identity, []).append(binding)
    for connector, accounts in identities.items():
        service, own = _maybe_service(connector)
        for identity, bound in (accounts or {own: []}).items():
            yield ConnectedAccount(
                connector=connector,
                identity=identity,
                service=service,
                versions=tuple(versions.get(connector, ())),
                bindings=tuple(bound),
                actions=tuple(file for file in files if _belongs(file, connector, identity, only=len(accounts) < 2)),
            )


def _belongs(file: ActionFile, connector: str, identity: str, *, only: bool) -> bool:
    return any(
        str(needed.name) == connector and (needed.identity == identity or (needed.identity is None and only))
        for needed in file.connectors
    )


def _maybe_service(connector: str) -> tuple[Service | None, str]:
    """Return the service of the catalogue that a connector's name belongs to, or None, and the identity in that name."""
    for service in services():
        if connector == service.connector:
            return service, FIRST
        if connector.startswith(f"{service.connector}/"):
            return service, connector.removeprefix(f"{service.connector}/")
    return None, FIRST


def _service_of(bindings: Sequence[BindingEntry]) -> str | None:
    return BindingName.parse(bindings[0].name).service if bindings else None


def _last_part(connector: str) -> str:
    return connector.rpartition("/")[2].removeprefix("connector-")
