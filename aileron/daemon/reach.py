"""Where actions and bindings can go, from what their connectors' manifests declare.

Runs in the daemon. Reads files. Not here: what a person is asked about it (consents.py), whether a host is let out (egress/).
"""

from __future__ import annotations

from aileron.model.consent import BindingConsent
from aileron.model.failure import AileronError
from aileron.model.manifest import ActionFile
from aileron.model.plan import ConnectorPin
from aileron.registry.content import ContentStore

__all__ = ["action_reach", "binding_consent"]


def action_reach(store: ContentStore, action: ActionFile) -> list[str]:
    """`host:port`, sorted: what the action's connectors declare, those that are installed and whole."""
    hosts: set[str] = set()
    for required in action.connectors:
        try:
            manifest = store.manifest(ConnectorPin(str(required.name), required.version, required.hash))
        except AileronError:
            continue  # it cannot run, and the run says why
        hosts.update(map(str, manifest.hosts))
    return sorted(hosts)


def binding_consent(
    store: ContentStore, name: str, connector: str, secret: str, username: str | None
) -> BindingConsent:
    """What a binding means: the hosts that the installed versions of its connector declare."""
    reaches = {
        str(host)
        for entry in store.list_connectors()
        if entry.manifest is not None and str(entry.manifest.name) == connector
        for host in entry.manifest.hosts
    }
    return BindingConsent(
        name=name, connector=connector, secret=secret, username=username, reaches=tuple(sorted(reaches))
    )
