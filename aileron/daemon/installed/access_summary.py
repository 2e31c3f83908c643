"""The hosts that actions and bindings can reach, from their connectors' manifests.

Runs in the daemon. Reads files. Not here: the questions about access (consent_service/consents.py), enforcement
(egress/).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from aileron.model.consent import BindingConsent
from aileron.model.credential import Reach
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile, ConnectorManifest
from aileron.model.names import precedence
from aileron.model.plan import ConnectorPin
from aileron.model.secret_reference import Elsewhere
from aileron.registry.content import ContentStore
from aileron.vault.bindings import Binding

__all__ = ["action_reach", "binding_consent", "binding_reach", "needing", "newest_of_kind"]


def action_reach(store: ContentStore, action: ActionFile) -> list[str]:
    """Return, sorted, each `host:port` that the action's connectors declare, as far as these connectors are installed and
    undamaged.
    """
    hosts: set[str] = set()
    for required in action.connectors:
        try:
            manifest = store.manifest(ConnectorPin(str(required.name), required.version, required.hash))
        except AileronError:
            continue  # this connector cannot run, and the run says why
        hosts.update(map(str, manifest.hosts))
    return sorted(hosts)


def needing(store: ContentStore, coming: Sequence[ConnectorManifest] = ()) -> dict[str, list[ConnectorManifest]]:
    """Return the manifests of the connector versions that are installed or `coming` and need a credential, by connector name,
    the newest first. The store is read once.
    """
    found: dict[str, list[ConnectorManifest]] = {}
    for manifest in (*coming, *(entry.manifest for entry in store.list_connectors())):
        if manifest is not None and manifest.credential is not None:
            found.setdefault(str(manifest.name), []).append(manifest)
    for versions in found.values():
        versions.sort(key=lambda manifest: precedence(manifest.version), reverse=True)
    return found


def newest_of_kind(versions: Sequence[ConnectorManifest], connector: str, kind: str) -> ConnectorManifest:
    """Return the manifest of the newest version of a connector that needs a credential of this kind. `versions` are the
    connector's manifests as `needing` returns them. Raises AileronError (not_found) if no version needs such a credential.
    """
    for manifest in versions:
        if manifest.credential is not None and manifest.credential.kind == kind:
            return manifest
    raise AileronError(
        FailureClass.NOT_FOUND,
        f"no installed connector {connector} needs a credential of kind {kind}; see `aileron connector list`",
        boundary=Boundary.USER,
    )


def binding_reach(versions: Sequence[ConnectorManifest], connector: str, kind: str) -> Reach:
    """Return the reach of a binding that is created now: the reach of the newest version, and also the hosts and scopes
    of older versions whose reach is otherwise the same.

    Raises AileronError as `newest_of_kind` does.
    """
    newest = Reach.of(newest_of_kind(versions, connector, kind))
    wanted = [Reach.of(found) for found in versions if found.credential and found.credential.kind == kind]
    alike = [reach for reach in wanted if (reach.wire, reach.client) == (newest.wire, newest.client)]
    return Reach(
        hosts=tuple(sorted({host for reach in alike for host in reach.hosts})),
        scopes=tuple(sorted({scope for reach in alike for scope in reach.scopes})),
        wire=newest.wire,
        client=newest.client,
    )


def binding_consent(
    binding: Binding,
    reach: Reach,
    elsewhere: Elsewhere | None = None,
    *,
    replaces: bool = False,
    commitment: str | None = None,
) -> BindingConsent:
    """Return the consent that a person is asked to give to a binding with this reach. `elsewhere` says where its secret is
    kept, if that is not the vault.
    """
    return BindingConsent(
        name=str(binding.name),
        connector=binding.connector,
        secret=binding.secret,
        username=binding.username,
        reaches=reach.hosts,
        scopes=reach.scopes,
        wire=reach.wire,
        client=reach.client,
        replaces=replaces,
        account=None if binding.grant is None else binding.grant.account,
        details=binding.details or UNSET,
        commitment=commitment,
        reference=UNSET if elsewhere is None else elsewhere.words,
    )
