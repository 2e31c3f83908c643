"""What the routes beside the one door do: install, bind, unlock, list, show. Each change is on record.

Runs in the daemon. File work and key derivation run in worker threads; one lock serialises the changes, so that two
commands cannot interleave halves. Values come back as JSON-ready dicts in the shapes of docs/reference/http-api.md.

Not here: running actions (runs/perform.py), who may ask (api.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
import msgspec

from aileron import __version__
from aileron.actions.manifest import bind_placeholders, input_schema
from aileron.actions.store import ActionStore, Listed
from aileron.audit import events, query
from aileron.audit.log import Audit
from aileron.audit.verify import verify
from aileron.config import Home
from aileron.daemon.answers import utc
from aileron.ledger.sqlite import Ledger
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.invocation import Invocation, Scope
from aileron.model.manifest import ActionFile, ConnectorManifest
from aileron.model.names import BindingName, Fqn
from aileron.model.plan import ConnectorPin
from aileron.model.secret import Secret
from aileron.model.wire import Decision, Settled
from aileron.registry.content import ContentStore
from aileron.registry.install import Artifact, InstallResult, OnConflict, install, read_artifact
from aileron.registry.program import program_kind
from aileron.runs.perform import Spine
from aileron.vault.bindings import Binding
from aileron.vault.vault import Vault
from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.ending import JailUnavailable

__all__ = ["Manager"]

_T = TypeVar("_T")
_MAX_PATH: Final = 4096  # PATH_MAX, limits.h


class Manager:
    """One for each daemon."""

    def __init__(
        self,
        home: Home,
        *,
        actions: ActionStore,
        connectors: ContentStore,
        vault: Vault,
        ledger: Ledger,
        audit: Audit,
        layers: tuple[str, ...],
        web: str,
    ) -> None:
        self._home = home
        self._actions = actions
        self._connectors = connectors
        self._vault = vault
        self._ledger = ledger
        self._audit = audit
        self._layers = layers
        self._web = web
        self._started_at = time.time()
        self._changing = anyio.Lock()

    # actions

    async def actions(self) -> list[dict[str, Any]]:
        """Every action file, sorted by name."""
        return [_listed(entry) for entry in await _thread(self._actions.list_actions)]

    async def action(self, name: str) -> dict[str, Any]:
        """One action, whole."""
        action = await _thread(lambda: self._actions.load(name))
        enabled = await _thread(lambda: self._actions.is_enabled(name))
        return {
            **_facts(action, enabled),
            "text": action.text,
            "body": action.body,
            "digest": action.digest,
            "input_schema": input_schema(action),
            "steps": msgspec.to_builtins(action.steps),
            "hosts": await _thread(lambda: self._hosts(action)),
        }

    async def add_action(self, text: str, file: str, *, replace: bool) -> dict[str, Any]:
        """Install an action file's text; placeholders are bound to the one installed connector they can mean."""
        async with self._changing:
            bound: dict[str, str] = {}

            def add() -> ActionFile:
                def pins(name: Fqn, version: str) -> list[str]:
                    found = [pin.hash for pin in self._connectors.find(name, version)]
                    if len(found) == 1:
                        bound[f"{name}@{version}"] = found[0]
                    return found

                return self._actions.add(bind_placeholders(text, file=file[:_MAX_PATH], pins=pins), replace=replace)

            before = {entry.name for entry in await _thread(self._actions.list_actions)}
            action = await _thread(add)
            await self._audit.note(
                events.ActionAdded(
                    action=action.name, version=action.version, digest=action.digest, source=action.source
                )
            )
        return {"name": action.name, "bound": bound, "replaced": action.name in before}

    async def enable_action(self, name: str, enabled: bool) -> None:
        """Switch an action on or off."""
        async with self._changing:
            await _thread(lambda: self._actions.load(name))
            await _thread(lambda: self._actions.set_enabled(name, enabled))
            await self._audit.note(events.ActionEnabled(action=name) if enabled else events.ActionDisabled(action=name))

    async def remove_action(self, name: str) -> None:
        """Delete an action file."""
        async with self._changing:
            await _thread(lambda: self._actions.remove(name))
            await self._audit.note(events.ActionRemoved(action=name))

    async def dry_run(self, spine: Spine, invocation: Invocation) -> dict[str, Any]:
        """The plan of an invocation with its digest; nothing runs and nothing is recorded."""
        plan = await _thread(lambda: spine.resolve(invocation))
        return {**plan.to_json(), "digest": plan.digest}

    def _hosts(self, action: ActionFile) -> list[str]:
        hosts: set[str] = set()
        for connector in action.connectors:
            try:
                manifest = self._connectors.manifest(
                    ConnectorPin(str(connector.name), connector.version, connector.hash)
                )
            except AileronError:
                continue  # the run says what is wrong with it
            hosts.update(map(str, manifest.hosts))
        return sorted(hosts)

    # connectors

    async def connectors(self) -> list[dict[str, Any]]:
        """What is installed, broken entries with their problem."""
        return [
            _connector(entry.pin, entry.manifest)
            if entry.pin is not None and entry.manifest is not None
            else {"hash": entry.hash, "problem": entry.problem}
            for entry in await _thread(self._connectors.list_connectors)
        ]

    async def install_connector(self, path: str, on_conflict: OnConflict) -> dict[str, Any]:
        """Install from a directory, which is built, or from an archive."""
        source = Path(path)
        if not source.is_absolute() or len(os.fsencode(path)) > _MAX_PATH:
            raise AileronError(FailureClass.INVALID_REQUEST, "path is not an absolute path on this machine")
        async with self._changing:
            result = await _thread(lambda: self._install(source, on_conflict))
            if result.new:
                await self._audit.note(
                    events.ConnectorInstalled(
                        connector=result.pin.name,
                        version=result.pin.version,
                        hash=result.pin.hash,
                        source=str(source),
                        signature="unsigned",
                    )
                )
            for pin in result.replaced:
                await self._audit.note(events.ConnectorRemoved(connector=pin.name, version=pin.version, hash=pin.hash))
        return {
            **_connector(result.pin, result.manifest),
            "new": result.new,
            "replaced": [pin.hash for pin in result.replaced],
        }

    def _install(self, source: Path, on_conflict: OnConflict) -> InstallResult:
        artifact = read_artifact(source)
        _check_runs_here(artifact)
        return install(artifact, self._connectors, on_conflict=on_conflict)

    async def remove_connector(self, pin_hash: str) -> None:
        """Remove one by its hash."""
        async with self._changing:
            found = [
                entry.pin or ConnectorPin("", "", entry.hash)  # a damaged one has lost its name, and goes all the same
                for entry in await _thread(self._connectors.list_connectors)
                if entry.hash == pin_hash
            ]
            if not found:
                raise AileronError(
                    FailureClass.NOT_FOUND, f"no connector {pin_hash[:80]!r} is installed; see `aileron connector list`"
                )
            pin = found[0]
            await _thread(lambda: self._connectors.remove(pin))
            await self._audit.note(events.ConnectorRemoved(connector=pin.name, version=pin.version, hash=pin.hash))

    # vault, secrets, bindings

    def vault_status(self) -> dict[str, Any]:
        """Whether there is a vault, whether it is locked, and how much is in it."""
        return self._vault.status()

    async def create_vault(self, passphrase: Secret) -> None:
        """Make the vault and leave it unlocked."""
        async with self._changing:
            await _thread(lambda: self._vault.create(passphrase))
            await self._audit.note(events.VaultCreated())

    async def unlock_vault(self, passphrase: Secret) -> None:
        """Unlock; each try is on record."""
        async with self._changing:
            try:
                await _thread(lambda: self._vault.unlock(passphrase))
            except AileronError as error:
                await self._audit.note(events.VaultUnlockFailed(failure_class=error.failure.failure_class))
                raise
            await self._audit.note(events.VaultUnlocked())

    async def lock_vault(self) -> None:
        """Forget the key."""
        async with self._changing:
            self._vault.lock()
            await self._audit.note(events.VaultLocked(reason="asked"))

    def secrets(self) -> list[dict[str, Any]]:
        """Names and dates, never values."""
        return [
            {"name": info.name, "created_at": utc(info.created_at), "updated_at": utc(info.updated_at)}
            for info in self._vault.secrets()
        ]

    async def set_secret(self, name: str, value: Secret) -> None:
        """Store a secret in place of what was there."""
        async with self._changing:
            await _thread(lambda: self._vault.set_secret(name, value))
            await self._audit.note(events.SecretSet(name=name))

    async def remove_secret(self, name: str) -> None:
        """Forget a secret."""
        async with self._changing:
            await _thread(lambda: self._vault.remove_secret(name))
            await self._audit.note(events.SecretRemoved(name=name))

    def bindings(self) -> list[dict[str, Any]]:
        """Which credential serves which connector."""
        return [_binding(binding) for binding in self._vault.bindings()]

    async def bind(self, connector: str, name: str, username: str | None, secret: str) -> dict[str, Any]:
        """Bind a stored secret to an installed connector."""
        fqn, binding_name = _parsed(Fqn.parse, connector), _parsed(BindingName.parse, name)
        async with self._changing:
            kinds: set[str] = {
                entry.manifest.credential.kind
                for entry in await _thread(self._connectors.list_connectors)
                if entry.manifest is not None and entry.manifest.credential is not None and entry.manifest.name == fqn
            }
            _check_kind(fqn, binding_name, kinds)
            binding = Binding(
                name=binding_name,
                connector=str(fqn),
                kind=binding_name.kind,
                username=username,
                secret=secret,
                created_at=time.time(),
            )
            await _thread(lambda: self._vault.bind(binding))
            await self._audit.note(events.BindingCreated(binding=str(binding_name), connector=str(fqn), secret=secret))
        return _binding(binding)

    async def unbind(self, name: str) -> None:
        """Revoke a binding."""
        binding_name = _parsed(BindingName.parse, name)
        async with self._changing:
            await _thread(lambda: self._vault.revoke(binding_name))
            await self._audit.note(events.BindingRevoked(binding=str(binding_name)))

    # runs, approvals, audit

    async def run(self, run_id: str, session: str | None) -> dict[str, Any]:
        """Where a run is, with its outcome once it has one. What is not the session's own does not exist for it."""
        return await query.run_state(self._ledger, run_id, session)

    async def approvals(self) -> list[dict[str, Any]]:
        """What waits for a person, the first to expire first."""
        return await query.open_approvals(self._ledger)

    async def approval(self, approval_id: str) -> dict[str, Any]:
        """One ask with its frozen plan."""
        return await query.approval(self._ledger, approval_id)

    async def approval_result(self, approval_id: str, session: str | None) -> dict[str, Any]:
        """What became of an ask."""
        return await query.approval_result(self._ledger, approval_id, session)

    async def decide(self, approval_id: str, decision: Decision, scope: Scope) -> Settled:
        """Record a person's decision."""
        row = await self._audit.decide(
            approval_id, decision.decision, digest=decision.digest, surface=scope.value, reason=decision.reason
        )
        return Settled(status=row.state.value, approval_id=row.id, audit_id=row.run)

    async def cancel(self, approval_id: str, scope: Scope, session: str | None) -> Settled:
        """Take a question back. One that another session asked does not exist for this one."""
        await query.approval_result(self._ledger, approval_id, session)
        row = await self._audit.cancel(approval_id, surface=scope.value)
        return Settled(status=row.state.value, approval_id=row.id, audit_id=row.run)

    async def events(self, wanted: dict[str, str]) -> list[dict[str, Any]]:
        """Events by filter."""
        return await query.events(self._ledger, wanted)

    async def audit_of(self, audit_id: str) -> dict[str, Any]:
        """One run with all its events."""
        return await query.run_with_events(self._ledger, audit_id)

    async def verify(self) -> dict[str, Any]:
        """Check the chain, from the file."""
        report = await _thread(lambda: verify(self._home.ledger, expected_home=self._home.path))
        problem = msgspec.to_builtins(report.finding)
        return {
            "ok": report.is_whole,
            "rows": report.rows,
            "head": report.head,
            "problem": problem,
            "cannot_prove": list(report.cannot_prove),
        }

    async def status(self) -> dict[str, Any]:
        """What runs, since when, with what in force."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "home": str(self._home.path),
            "started_at": utc(self._started_at),
            "vault": self.vault_status(),
            "web": self._web,
            "jail": {"layers": list(self._layers)},
            "actions": len(await self.actions()),
            "connectors": len(await self.connectors()),
            "pending": len(await self.approvals()),
        }


async def _thread(work: Callable[[], _T]) -> _T:
    return await anyio.to_thread.run_sync(work)


def _check_runs_here(artifact: Artifact) -> None:
    """AileronError(sandbox_unavailable) for a compiled program of another machine, or in want of a library: said now, not at
    the first run. Nothing of it is run.
    """
    if program_kind(artifact.connector) != "elf":
        return
    with open(os.memfd_create("connector", os.MFD_CLOEXEC), "w+b") as file:
        file.write(artifact.connector)
        file.flush()
        try:
            ElfRuntime.of_program(file.fileno())
        except JailUnavailable as error:
            raise AileronError(
                FailureClass.SANDBOX_UNAVAILABLE, f"{artifact.pin}: {error}", boundary=Boundary.SANDBOX
            ) from error


def _listed(entry: Listed) -> dict[str, Any]:
    if entry.action is None:
        return {"name": entry.name, "enabled": entry.enabled, "problem": entry.problem}
    return _facts(entry.action, entry.enabled)


def _facts(action: ActionFile, enabled: bool) -> dict[str, Any]:
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


def _connector(pin: ConnectorPin, manifest: ConnectorManifest) -> dict[str, Any]:
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


def _binding(binding: Binding) -> dict[str, Any]:
    return {
        "name": str(binding.name),
        "connector": binding.connector,
        "kind": binding.kind,
        "username": binding.username,
        "secret": binding.secret,
        "created_at": utc(binding.created_at),
    }


def _parsed(parse: Callable[[str], _T], text: str) -> _T:
    try:
        return parse(text)
    except ValueError as error:
        raise AileronError(FailureClass.INVALID_REQUEST, str(error)) from error


def _check_kind(connector: Fqn, name: BindingName, kinds: set[str]) -> None:
    if not kinds:
        raise AileronError(
            FailureClass.NOT_FOUND,
            f"no installed connector {connector} needs a credential; see `aileron connector list`",
        )
    if name.kind not in kinds:
        raise AileronError(
            FailureClass.INVALID_REQUEST,
            f"{connector} needs a credential of kind {' or '.join(sorted(kinds))}, and {name} is {name.kind!r}",
        )
