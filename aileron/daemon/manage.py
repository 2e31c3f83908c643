"""What the routes beside the one door do: install, unlock, list, show. Each change is on record.

Runs in the daemon. File work and key derivation run in worker threads; one lock serialises the changes, so that two
commands cannot interleave halves. Values come back as JSON-ready dicts in the shapes of docs/reference/http-api.md.

Not here: running actions (runs/perform.py), credentials (secrets/credentials.py), who may ask (http/api.py).
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec

from aileron import __version__
from aileron.actions.fitting import check_action
from aileron.actions.manifest import bind_placeholders, input_schema
from aileron.actions.resolve import grant_of, used_credentials
from aileron.actions.store import ActionStore
from aileron.approvals.grants import check_grant
from aileron.audit import events, query
from aileron.audit.log import Audit
from aileron.audit.verify import verify
from aileron.config import Home, Settings
from aileron.daemon.decisions.agreements import Agreements
from aileron.daemon.decisions.approver import ApproverState
from aileron.daemon.decisions.consents import SETTINGS_WAIT_S, ConsentService
from aileron.daemon.decisions.enrollment import ApproverEnrollment
from aileron.daemon.decisions.passkeys import Passkeys
from aileron.daemon.decisions.service import DecisionService
from aileron.daemon.decisions.settings import SettingsInForce
from aileron.daemon.http.responses import utc
from aileron.daemon.http.views import action_facts, connector_facts, gateway_facts, listed_facts
from aileron.daemon.packages.install import ActionText, FoundConnector, Installer
from aileron.daemon.secrets.access_summary import action_reach
from aileron.daemon.secrets.vault import VaultService
from aileron.egress.foreseen import check_somewhere_to_go
from aileron.ledger.sqlite import Ledger
from aileron.model.consent import ConsentKind, Constraint, GrantConsent, SecretConsent
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.invocation import Invocation, Scope
from aileron.model.manifest import ActionFile
from aileron.model.names import Fqn
from aileron.model.plan import ConnectorPin
from aileron.model.secret import Secret
from aileron.model.wire import Appointment, ConsentAnswer, Decision, PreviewRequest, Settled
from aileron.registry.artifact import Artifact
from aileron.registry.consent import connector_consent
from aileron.registry.content import ContentStore
from aileron.registry.install import OnConflict, check_installable, read_artifact
from aileron.runs.perform import Spine
from aileron.vault.vault import Vault

__all__ = ["Manager"]

_LONGEST_HOLD_S: Final = 3700.0
"""As long as a decision can be used beyond its question's life: an undo window of an hour, and what clocks differ."""
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
        vaults: VaultService,
        ledger: Ledger,
        audit: Audit,
        approver: ApproverState,
        agreements: Agreements,
        consents: ConsentService,
        installing: Installer,
        deciding: DecisionService,
        appointing: ApproverEnrollment,
        passkeys: Passkeys,
        layers: tuple[str, ...],
        settings: Settings,
        in_force: SettingsInForce,
        web: str,
        changing: anyio.Lock,
    ) -> None:
        """`changing` is held while anything of this home is changed."""
        self._home = home
        self._actions = actions
        self._connectors = connectors
        self._vault = vault
        self._vaults = vaults
        self._ledger = ledger
        self._audit = audit
        self._approver = approver
        self._agreements = agreements
        self._consents = consents
        self._installing = installing
        self._deciding = deciding
        self._appointing = appointing
        self._passkeys = passkeys
        self._layers = layers
        self._settings = settings
        self._in_force = in_force
        self._web = web
        self._started_at = time.time()
        self._changing = changing

    def adopt(self, settings: Settings) -> None:
        """These are in force from now on."""
        self._settings = settings

    async def ask_about_settings(self) -> None:
        """Put what config.toml says beyond what was agreed to into the queue. AileronError(vault_locked)."""
        async with self._changing:
            if (subject := self._agreements.settings_consent()) is not None:
                await self._consents.ask(subject, SETTINGS_WAIT_S)

    # actions

    async def actions(self) -> list[dict[str, Any]]:
        """Every action file, sorted by name."""
        return [listed_facts(entry) for entry in await anyio.to_thread.run_sync(self._actions.list_actions)]

    async def action(self, name: str) -> dict[str, Any]:
        """One action, whole."""
        action = await anyio.to_thread.run_sync(lambda: self._actions.load(name))
        enabled = await anyio.to_thread.run_sync(lambda: self._actions.is_enabled(name))
        return {
            **action_facts(action, enabled),
            "text": action.text,
            "body": action.body,
            "digest": action.digest,
            "input_schema": input_schema(action),
            "steps": msgspec.to_builtins(action.steps),
            "hosts": await anyio.to_thread.run_sync(lambda: action_reach(self._connectors, action)),
        }

    async def add_action(self, text: str, file: str, *, replace: bool) -> dict[str, Any] | ConsentAnswer:
        """Install an action file's text, placeholders bound to the one installed connector they can mean; or ask whether to."""
        async with self._changing:
            bound: dict[str, str] = {}

            def bind() -> ActionFile:
                def pins(name: Fqn, version: str) -> list[str]:
                    found = [pin.hash for pin in self._connectors.find(name, version)]
                    if len(found) == 1:
                        bound[f"{name}@{version}"] = found[0]
                    return found

                text_bound = bind_placeholders(text, file=file[:_MAX_PATH], pins=pins)
                addable = self._actions.check_addable(text_bound, replace=replace)
                check_action(addable, self._connectors.maybe_manifest, file=file[:_MAX_PATH])
                return addable

            action = await anyio.to_thread.run_sync(bind)
            answer = await self._consents.maybe_ask(
                lambda: self._agreements.consent_to(action, install=True, replace=replace)
            )
            if answer is not None:
                return answer
            put = await self._installing.put_action(ActionText(action.text, replace))
            return {**put, "bound": bound, "needs": await anyio.to_thread.run_sync(lambda: self._needs(action))}

    def _needs(self, action: ActionFile) -> list[str]:
        """What a person still has to do before a run can work, with its command: bind a credential, allow a destination."""
        found: list[str] = []
        try:
            used_credentials(action, connectors=self._connectors, bindings=self._vault)
        except AileronError as error:
            if "setup" in error.failure.details:
                found.append(error.failure.message)
        for needed in action.connectors:
            used = [step.op for step in action.steps if step.connector == needed.name]
            pin = ConnectorPin(str(needed.name), needed.version, needed.hash)
            manifest = self._connectors.maybe_manifest(pin)
            if manifest is not None and any(manifest.operation(op).network for op in used):
                try:
                    check_somewhere_to_go(grant_of(manifest, None, self._settings))
                except AileronError as error:
                    found.append(error.failure.message)
        return found

    async def enable_action(self, name: str, enabled: bool) -> None:
        """Switch an action on or off."""
        async with self._changing:
            await anyio.to_thread.run_sync(lambda: self._actions.load(name))
            await anyio.to_thread.run_sync(lambda: self._actions.set_enabled(name, enabled))
            await self._audit.note(events.ActionEnabled(action=name) if enabled else events.ActionDisabled(action=name))

    async def remove_action(self, name: str) -> None:
        """Delete an action file."""
        async with self._changing:
            await anyio.to_thread.run_sync(lambda: self._actions.remove(name))
            await self._audit.note(events.ActionRemoved(action=name))
            await self._consents.end(ConsentKind.ACTION_FILE, name)

    async def dry_run(self, spine: Spine, invocation: Invocation) -> dict[str, Any]:
        """The plan of an invocation with its digest; nothing runs and nothing is recorded."""
        plan = await anyio.to_thread.run_sync(lambda: spine.resolve(invocation))
        return {**plan.to_json(), "digest": plan.digest}

    # connectors

    async def connectors(self) -> list[dict[str, Any]]:
        """What is installed, broken entries with their problem."""
        return [
            connector_facts(entry.pin, entry.manifest)
            if entry.pin is not None and entry.manifest is not None
            else {"hash": entry.hash, "problem": entry.problem}
            for entry in await anyio.to_thread.run_sync(self._connectors.list_connectors)
        ]

    async def install_connector(self, path: str, on_conflict: OnConflict) -> dict[str, Any] | ConsentAnswer:
        """Install from a directory, which is built, or from an archive; or ask whether to."""
        source = Path(path)
        if not source.is_absolute() or len(os.fsencode(path)) > _MAX_PATH:
            raise AileronError(FailureClass.INVALID_REQUEST, "path is not an absolute path on this machine")
        async with self._changing:
            artifact = await anyio.to_thread.run_sync(lambda: self._installable(source, on_conflict))
            installed = await anyio.to_thread.run_sync(self._consents.finding.installed, artifact.manifest.name)
            answer = await self._consents.maybe_ask(
                lambda: connector_consent(artifact, str(source), on_conflict, installed=installed)
            )
            if answer is not None:
                return answer
            return await self._installing.put_connector(FoundConnector(artifact, str(source), on_conflict))

    def _installable(self, source: Path, on_conflict: OnConflict) -> Artifact:
        artifact = read_artifact(source, trust=self._consents.trust())
        self._installing.check_runs_here(artifact)
        check_installable(artifact, self._connectors, on_conflict=on_conflict)
        return artifact

    async def remove_connector(self, pin_hash: str) -> None:
        """Remove one by its hash."""
        async with self._changing:
            found = [
                entry.pin or ConnectorPin("", "", entry.hash)  # a damaged one has lost its name, and goes all the same
                for entry in await anyio.to_thread.run_sync(self._connectors.list_connectors)
                if entry.hash == pin_hash
            ]
            if not found:
                raise AileronError(
                    FailureClass.NOT_FOUND, f"no connector {pin_hash[:80]!r} is installed; see `aileron connector list`"
                )
            pin = found[0]
            await anyio.to_thread.run_sync(lambda: self._connectors.remove(pin))
            await self._audit.note(events.ConnectorRemoved(connector=pin.name, version=pin.version, hash=pin.hash))
            await self._consents.end_connector(pin)

    # secrets

    def _vault_facts(self) -> dict[str, Any]:
        """The vault's, for a page that says everything: one that cannot be read is a fact among others."""
        try:
            return self._vaults.status()
        except AileronError as error:
            return {"exists": True, "locked": True, "problem": error.failure.message}

    def secrets(self) -> list[dict[str, Any]]:
        """Names and dates, never values."""
        return [
            {"name": info.name, "created_at": utc(info.created_at), "updated_at": utc(info.updated_at)}
            for info in self._vault.secrets()
        ]

    async def set_secret(self, name: str, value: Secret) -> dict[str, Any] | ConsentAnswer:
        """Store a secret in place of what was there; or ask whether to, where a binding or a setting names it: that is another
        credential.
        """
        async with self._changing:
            bindings = sorted(str(one.name) for one in self._vault.bindings() if one.secret == name)
            used_by = (*bindings, *self._agreements.settings_naming(name))
            if used_by and self._approver.consents() is not None:
                commitment = self._consents.hold(value)
                return await self._consents.ask(SecretConsent(name=name, bindings=used_by, commitment=commitment))
            return await self._consents.put_secret(name, value)

    async def remove_secret(self, name: str) -> None:
        """Forget a secret."""
        async with self._changing:
            await anyio.to_thread.run_sync(lambda: self._vault.remove_secret(name))
            await self._audit.note(events.SecretRemoved(name=name))

    # who decides, and what stands

    def approver(self) -> dict[str, Any]:
        """Whether decisions are signed, and with which key."""
        return self._approver.facts()

    async def inventory(self) -> dict[str, Any]:
        """What would be agreed to with an approver's key."""
        return await self._appointing.inventory()

    async def appoint(self, asked: Appointment, scope: Scope) -> dict[str, Any]:
        """Name the approver, or another in their place."""
        async with self._changing:
            return await self._appointing.appoint(asked, scope)

    async def decide(self, approval_id: str, decision: Decision, surface: str) -> Settled:
        """Record a person's decision; a change that they agree to is made."""
        async with self._changing:
            return await self._deciding.decide(approval_id, decision, surface)

    async def catch_up(self) -> None:
        """The vault was opened: make the changes that were agreed to and could not be made then, ask what is to be asked."""
        async with self._changing:
            with contextlib.suppress(AileronError):  # an older vault: whoever runs something is told
                await self._appointing.catch_up()
                await self._passkeys.catch_up()
                if (subject := self._agreements.settings_consent()) is not None:
                    await self._consents.ask(subject, SETTINGS_WAIT_S)
            await self._deciding.carry_out_agreed()

    async def edit(self, approval_id: str, args: dict[str, Any]) -> dict[str, Any]:
        """A question's plan with other arguments, which may be approved in its place."""
        return await self._deciding.edit(approval_id, args)

    async def preview(self, approval_id: str, asked: PreviewRequest, scope: Scope) -> dict[str, Any]:
        """What the action would change, read now, sealed for the approver who asks."""
        return await self._deciding.preview(approval_id, asked, scope)

    async def ask_back(self, approval_id: str, question: str) -> dict[str, Any]:
        """A person asks whoever asked."""
        await self._audit.put_question(approval_id, question)
        return {"approval_id": approval_id, "question": question}

    async def answer(self, approval_id: str, answer: str, session: str | None) -> dict[str, Any]:
        """Whoever asked answers. A question of another session does not exist for this one."""
        await query.approval_result(self._ledger, approval_id, session)
        await self._audit.put_answer(approval_id, answer, session or "operator")
        return {"approval_id": approval_id, "answer": answer}

    async def grants(self) -> list[dict[str, Any]]:
        """The grants in force, with how often each was used. AileronError(vault_locked)."""
        consents = self._approver.consents()
        grants = () if consents is None else consents.grants
        used = await self._audit.grant_used([grant.id for grant in grants])
        return [
            {
                **msgspec.to_builtins(grant),
                "used": used.get(grant.id, 0),
                "until": utc(grant.until),
                "over": grant.until <= time.time() or used.get(grant.id, 0) >= grant.uses,
            }
            for grant in grants
        ]

    async def add_grant(
        self, action_name: str, constraints: tuple[Constraint, ...], uses: int, for_s: int, binding: str | None
    ) -> ConsentAnswer:
        """Ask for a standing grant. AileronError as approvals/grants.py says, consent_required without an approver."""
        async with self._changing:
            action = await anyio.to_thread.run_sync(lambda: self._actions.load(action_name))
            check_grant(action, constraints, uses, for_s)
            if (missing := await anyio.to_thread.run_sync(lambda: self._agreements.missing(action))) is not None:
                raise AileronError(
                    FailureClass.CONSENT_REQUIRED,
                    f"the file of action {missing.name!r} is not as you agreed to it: run it once, and decide that first",
                    boundary=Boundary.USER,
                )
            subject = GrantConsent(
                action=action.name,
                action_digest=action.digest,
                credentials=await anyio.to_thread.run_sync(
                    lambda: used_credentials(action, connectors=self._connectors, bindings=self._vault, binding=binding)
                ),
                constraints=constraints,
                uses=uses,
                until=utc(int(time.time()) + for_s),
            )
            if (answer := await self._consents.maybe_ask(lambda: subject)) is None:
                raise AileronError(
                    FailureClass.CONSENT_REQUIRED,
                    "a standing grant is signed, and nobody signs for this home: aileron approver init",
                    boundary=Boundary.USER,
                )
            return answer

    async def revoke_grant(self, grant_id: str) -> None:
        """End a grant. AileronError(not_found), (vault_locked)."""
        async with self._changing:
            consents = self._approver.consents()
            if consents is None or all(grant.id != grant_id for grant in consents.grants):
                raise AileronError(FailureClass.NOT_FOUND, f"no grant {grant_id[:80]!r}; see `aileron grant list`")
            await anyio.to_thread.run_sync(lambda: self._vault.change_consents(lambda now: now.without_grant(grant_id)))
            await self._audit.grant_revoked(grant_id)

    # runs, approvals, audit

    async def run(self, run_id: str, session: str | None) -> dict[str, Any]:
        """Where a run is, with its outcome once it has one. What is not the session's own does not exist for it."""
        return await query.run_state(self._ledger, run_id, session)

    async def approvals(self) -> list[dict[str, Any]]:
        """What waits for a person, the first to expire first."""
        return await query.open_approvals(self._ledger)

    async def approval(self, approval_id: str) -> dict[str, Any]:
        """One question, whole: what is asked about, and what the person needs to judge it."""
        return await self._deciding.shown(approval_id)

    async def approval_result(self, approval_id: str, session: str | None) -> dict[str, Any]:
        """What became of an ask."""
        return await query.approval_result(self._ledger, approval_id, session)

    async def cancel(self, approval_id: str, surface: str, session: str | None) -> Settled:
        """Take a question back. One that another session asked does not exist for this one."""
        await query.approval_result(self._ledger, approval_id, session)
        row = await self._audit.cancel(approval_id, surface=surface)
        self._consents.forget(row.digest)
        if row.signed is not None:  # it was approved: what was taken back stays so
            await self._take_back(row.id, time.time() + (row.expires_us - row.created_us) / 1_000_000 + _LONGEST_HOLD_S)
        if row.kind != ConsentKind.ACTION:
            async with self._changing:  # and not while another of its group is carried out
                await self._consents.end_group(row.id, surface, self._take_back)
        return Settled(status=row.state.status, approval_id=row.id, audit_id=row.run)

    async def _take_back(self, approval_id: str, until: float) -> None:
        """The decision counts no more; while the vault is locked that is remembered until it can be written there."""
        if self._vault.is_locked:
            self._vaults.take_back(approval_id, until)
        else:
            await self._approver.spend_decision(approval_id, until)

    async def caller_refused(self, scope: Scope, route: str, session: str) -> None:
        """Put on record that somebody asked for what their socket does not serve."""
        await self._audit.caller_refused(scope, route, session)

    async def events(self, wanted: dict[str, str], wait_s: float = 0.0) -> list[dict[str, Any]]:
        """Events by filter; where there are none, those that come within `wait_s`."""
        found = await query.events(self._ledger, wanted)
        with anyio.move_on_after(wait_s):
            while not found and wait_s:
                news = self._ledger.news()
                found = await query.events(self._ledger, wanted)
                if not found:
                    await news.wait()
        return found

    async def audit_of(self, audit_id: str) -> dict[str, Any]:
        """One run with all its events."""
        return await query.run_with_events(self._ledger, audit_id)

    async def verify(self) -> dict[str, Any]:
        """Check the chain, from the file."""
        report = await anyio.to_thread.run_sync(lambda: verify(self._home.ledger, expected_home=self._home.path))
        problem = msgspec.to_builtins(report.finding)
        return {
            "ok": report.is_whole,
            "rows": report.rows,
            "head": report.head,
            "signed_head": report.signed_head,
            "decisions": msgspec.to_builtins(report.decisions),
            "problem": problem,
            "cannot_prove": list(report.cannot_prove),
        }

    async def status(self) -> dict[str, Any]:
        """What runs, since when, with what in force."""
        await self._in_force.look()
        return {
            "version": __version__,
            "pid": os.getpid(),
            "home": str(self._home.path),
            "started_at": utc(self._started_at),
            "vault": self._vault_facts(),
            "web": self._web,
            "listen": None if self._settings.daemon_listen is None else f"https://{self._settings.daemon_listen}",
            "gateway": gateway_facts(self._settings.gateway),
            "jail": {"layers": list(self._layers)},
            "actions": len(await self.actions()),
            "connectors": len(await self.connectors()),
            "pending": len(await self.approvals()),
            "approver": self._approver.facts(),
            "settings_waiting": self._agreements.settings_waiting,
            "settings_at_start": self._in_force.at_start,
            "settings_problem": self._in_force.problem,
        }
