"""What is installed and bound, as the JSON values that the routes answer. Pure.

Source: docs/reference/http-api.md. Not here: where the values come from (manage.py, consents.py).
"""

from __future__ import annotations

from typing import Any

import msgspec

from aileron.actions.store import Listed
from aileron.config import GatewaySettings
from aileron.daemon.answers import utc
from aileron.model.manifest import ActionFile, ConnectorManifest
from aileron.model.plan import ConnectorPin
from aileron.vault.bindings import Binding

__all__ = ["action_facts", "binding_facts", "connector_facts", "gateway_facts", "listed_facts"]


def listed_facts(entry: Listed) -> dict[str, Any]:
    """One file of the directory, a broken one with its problem."""
    if entry.action is None:
        return {"name": entry.name, "enabled": entry.enabled, "problem": entry.problem}
    return action_facts(entry.action, entry.enabled)


def action_facts(action: ActionFile, enabled: bool) -> dict[str, Any]:
    """What a list of actions says of one."""
    return {
        "name": action.name,
        "version": action.version,
        "intent": action.intent,
        "enabled": enabled,
        "gated": action.approval.required,
        "inputs": [
            {"name": spec.name, "type": spec.type, "required": spec.required, "description": spec.description}
            for spec in action.inputs
        ],
        "connectors": [f"{connector.name}@{connector.version}" for connector in action.connectors],
        "problem": None,
    }


def connector_facts(pin: ConnectorPin, manifest: ConnectorManifest) -> dict[str, Any]:
    """One installed connector: what it is, and what it may reach and use."""
    credential = manifest.credential
    return {
        "name": pin.name,
        "version": pin.version,
        "hash": pin.hash,
        "hosts": [str(host) for host in manifest.hosts],
        "credential": {"kind": credential.kind, "scope": credential.scope} if credential is not None else None,
        "imports": sorted(manifest.imports),
        "limits": msgspec.to_builtins(manifest.limits),
    }


def binding_facts(binding: Binding) -> dict[str, Any]:
    """One binding; the name of its secret, never a value."""
    return {
        "name": str(binding.name),
        "connector": binding.connector,
        "kind": binding.kind,
        "username": binding.username,
        "secret": binding.secret,
        "created_at": utc(binding.created_at),
    }


def gateway_facts(settings: GatewaySettings) -> dict[str, Any]:
    """Where the models' APIs are, and whether the daemon adds the key."""
    return {
        name: {"url": upstream.url, "has_key": upstream.secret is not None}
        for name, upstream in (("anthropic", settings.anthropic), ("openai", settings.openai))
    }
