"""Facts about what is installed, bound and in force, in the form that every room displays. No I/O but the clock.

Source: docs/reference/http-api.md. Not here: where the values come from (packages/, secrets/, consent_service/).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET

from aileron.actions.store import Listed
from aileron.api.actions import ActionEntry, ActionInput
from aileron.api.bindings import BindingEntry, BindingState
from aileron.api.connectors import ConnectorEntry, CredentialWanted
from aileron.api.daemon import GatewayUpstream, LaunchedCell, LaunchInForce
from aileron.config import GatewaySettings, LaunchSettings
from aileron.model.client_certificate import ClientCertificate
from aileron.model.credential import Reach, wire_words
from aileron.model.manifest import ActionFile, ConnectorManifest
from aileron.model.plan import ConnectorPin
from aileron.model.secret_reference import Elsewhere
from aileron.model.timestamp import utc
from aileron.vault.bindings import Binding

__all__ = [
    "action_facts",
    "binding_facts",
    "connector_facts",
    "gateway_facts",
    "launch_facts",
    "listed_facts",
    "review_url",
    "where_to_decide",
]


def listed_facts(entry: Listed, suspended: Sequence[str] = ()) -> ActionEntry:
    """Return the facts of one file in the actions directory; a broken file is returned with its problem."""
    if entry.action is None:
        return ActionEntry(name=entry.name, enabled=entry.enabled, problem=entry.problem)
    return action_facts(entry.action, entry.enabled, suspended)


def action_facts(action: ActionFile, enabled: bool, suspended: Sequence[str] = ()) -> ActionEntry:
    """Return one row of a list of actions. `suspended` are the action's operations whose tool was changed by its server."""
    return ActionEntry(
        name=action.name,
        version=action.version,
        source=action.source,
        intent=action.intent,
        tags=list(action.tags),
        enabled=enabled,
        gated=action.approval.required,
        inputs=[
            ActionInput(name=spec.name, type=spec.type, required=spec.required, description=spec.description)
            for spec in action.inputs
        ],
        connectors=[f"{connector.name}@{connector.version}" for connector in action.connectors],
        problem=None,
        suspended=list(suspended) or UNSET,
    )


def connector_facts(pin: ConnectorPin, manifest: ConnectorManifest) -> ConnectorEntry:
    """Return the facts of one installed connector: its identity, and the hosts, credential and operations that it declares."""
    return ConnectorEntry(
        name=pin.name,
        version=pin.version,
        hash=pin.hash,
        hosts=[str(host) for host in manifest.hosts],
        credential=_credential_facts(manifest),
        imports=sorted(manifest.imports),
        limits=manifest.limits,
        operations=manifest.operations,
    )


def _credential_facts(manifest: ConnectorManifest) -> CredentialWanted | None:
    """Return the credential that a connector needs; for a sign-in also its provider and scopes."""
    need, provider = manifest.credential, manifest.oauth2
    if need is None:
        return None
    found = CredentialWanted(kind=need.kind, scope=need.scope)
    if need.logins:
        found = msgspec.structs.replace(
            found,
            logins=[str(login) for login in need.logins],
            commands=list(need.commands),
            read_only=any(operation.login == "read_only" for operation in manifest.operations or ()),
        )
    else:
        found = msgspec.structs.replace(found, sent_as=wire_words(Reach.of(manifest).wire))
    if need.token is not UNSET:
        host = urlsplit(need.token.token_url).hostname
        return msgspec.structs.replace(found, scopes=list(need.token.scopes), provider=host, stores=need.token.stores)
    if provider is None:
        return found
    return msgspec.structs.replace(
        found,
        scopes=list(provider.scopes),
        provider=urlsplit(provider.authorize_url).hostname,
        device=provider.device_authorization_url is not None,
    )


def binding_facts(
    binding: Binding,
    *,
    kept_at: Elsewhere | None,
    is_suspended: bool = False,
    certificate: ClientCertificate | None = None,
) -> BindingEntry:
    """Return the facts of one binding with the name of its secret, never a value. `kept_at` is the place of the value, or None
    if the vault has it. `certificate` is None if the binding has none, or if it is unknown because the vault is locked or has
    not fetched it yet.
    """
    grant = binding.grant
    expires_at = _moment(None if grant is None else grant.expires_ms)
    return BindingEntry(
        name=str(binding.name),
        connector=binding.connector,
        kind=binding.kind,
        username=binding.username,
        account=binding.username if grant is None else grant.account,
        secret=binding.secret,
        created_at=utc(binding.created_at),
        expires_at=expires_at if certificate is None else certificate.facts.valid_until,
        refreshed_at=_moment(None if grant is None else grant.refreshed_ms),
        state=_state(binding, certificate, is_suspended=is_suspended),
        details=binding.details or UNSET,
        elsewhere=kept_at or UNSET,
    )


def _state(binding: Binding, certificate: ClientCertificate | None, *, is_suspended: bool) -> BindingState:
    """Return the state of a binding. `failed` and `expired` mean that a person must sign in again, or store a new certificate;
    `suspended`, that its connector now requests more; `unknown`, that its secret is a certificate that cannot be read now.
    """
    grant = binding.grant
    if certificate is not None and certificate.ends_at < time.time():
        return "expired"
    if grant is not None and grant.failed is not None:
        return "failed"
    if grant is not None and not grant.refreshable and (grant.expires_ms or math.inf) <= time.time() * 1000:
        return "expired"
    if is_suspended:
        return "suspended"
    return "unknown" if binding.kind == "mtls" and certificate is None else "ok"


def _moment(ms: int | None) -> str | None:
    return None if ms is None else utc(ms / 1000)


def gateway_facts(settings: GatewaySettings) -> dict[str, GatewayUpstream]:
    """Return the URLs of the models' APIs, and whether the daemon adds the key to requests."""
    return {
        name: GatewayUpstream(url=upstream.url, has_key=upstream.secret is not None)
        for name, upstream in (("anthropic", settings.anthropic), ("openai", settings.openai))
    }


def launch_facts(settings: LaunchSettings, problem: str | None) -> LaunchInForce:
    """Return the settings with which agents are started now. `problem` says why they may allow less than a person approved."""
    cell = settings.cell
    return LaunchInForce(
        jail=settings.jail,
        cell=LaunchedCell(
            allow_read=list(cell.allow_read),
            allow_write=list(cell.allow_write),
            allow_hosts=list(cell.allow_hosts),
            allow_env=list(cell.allow_env),
            ask_hosts=cell.ask_hosts,
            memory_mb=cell.memory_mb,
            processes=cell.processes,
            open_files=cell.open_files,
            file_mb=cell.file_mb,
            scratch_mb=cell.scratch_mb,
        ),
        problem=problem,
    )


def review_url(review: str, approval_id: str) -> str:
    """Return the URL of one question's page; `review` is the base URL of the pages, without a slash at its end."""
    return f"{review}/approvals/{approval_id}"


def where_to_decide(review: str, approval_id: str) -> str:
    """Return the part of a sentence that says where a person can decide a question: on its page or in a terminal. It gives an
    agent no means to decide.
    """
    return (
        f"at {review_url(review, approval_id)} (`aileron open approval {approval_id}` opens it), "
        f"or in a terminal with `aileron approve {approval_id}`"
    )
