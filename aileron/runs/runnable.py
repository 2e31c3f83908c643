"""Checks whether an invocation or a plan can run now, from the action's file, the consents, the bindings and the
settings.

Only reads. Runs in the daemon, in worker threads because files are read, or on the event loop if `is_quick`. Nothing
here waits for a person.

Rules
- No person is asked about a call that cannot work: the call is resolved, and its destinations are checked, before any
  question.
- An action file that allows more than the file with the newest consent does not run: the call is refused, and the
  person is asked about the file. A frozen plan does not run, even if it is signed, unless a file with consent resolves
  to it: a person cannot see which bytes belong to a hash.
- A plan that uses a tool which its server has changed is refused before any question. A plan that was approved before
  the change is refused before it starts.

Source: docs/explanation/architecture.md. Not here: making an invocation exact (actions/resolve.py).
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from aileron.actions.resolve import check_as_resolved, resolve
from aileron.audit.frozen import Frozen
from aileron.config import LiveSettings, Settings
from aileron.egress.foreseen import check_somewhere_to_go
from aileron.egress.refusal import Reason
from aileron.model.consent import ActionFileConsent
from aileron.model.credential import Candidate
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.json_value import JSON, JSONObject
from aileron.model.manifest import ActionFile, ConnectorManifest, RequiredConnector
from aileron.model.plan import ConnectorPin, CredentialUse, Grant, Plan, Step

__all__ = ["Actions", "Bindings", "Connectors", "ConsentChecks", "ConsentMissing", "Runnable", "Tools"]

_MAX_NAME: Final = 64
_FEW_VALUES: Final = 200
_LITTLE_TEXT: Final = 4096
"""Maximum number of characters in the arguments of an invocation that is resolved on the event loop (`is_quick`).

Strings and keys count. An agent's call has a few hundred.
"""
_MENDED_BY_SETTINGS: Final = frozenset({Reason.PLAIN_HTTP.value, Reason.ADDRESS_NOT_PUBLIC.value})


class Actions(Protocol):
    """Interface of the installed actions."""

    def load_enabled(self, name: str) -> ActionFile:
        """Return the current action file. Raises AileronError (not_found, action_disabled, invalid_request)."""
        ...

    def at_hand(self, name: str) -> ActionFile | None:
        """Return the action file from the cache if it is known to be unchanged; otherwise None. No file is read."""
        ...

    def check_enabled(self, name: str) -> None:
        """Check that the action exists and is enabled, independent of its file.

        Raises AileronError (not_found, action_disabled).
        """
        ...


class Connectors(Protocol):
    """Interface of the installed connectors."""

    def manifest(self, pin: ConnectorPin) -> ConnectorManifest:
        """Return the verified manifest of the connector with exactly this pin."""
        ...

    def at_hand(self, pin: ConnectorPin) -> ConnectorManifest | None:
        """Return the manifest from the cache if the connector's files are known to be unchanged; otherwise None. No
        file is read.
        """
        ...


class Bindings(Protocol):
    """Interface of the bindings: finds bound credentials, and checks whether one can be lent now."""

    @property
    def is_locked(self) -> bool:
        """True while the vault is locked; bindings are then read from the file each time."""
        ...

    def candidates(self, connector: str, kind: str) -> list[Candidate]:
        """Return every binding of `kind` made for this connector."""
        ...

    def check_unchanged(self, use: CredentialUse, since: float) -> None:
        """Raise AileronError if the binding that `use` names has changed since `since` (s since the epoch).

        The error is binding_required or binding_failed.
        """
        ...

    def check_unlocked(self) -> None:
        """Raise AileronError(vault_locked), with the command that unlocks it, if the vault is locked."""
        ...


class ConsentChecks(Protocol):
    """Interface for checks of action files and settings against those that the person consented to."""

    def missing(self, action: ActionFile) -> ActionFileConsent | None:
        """Return the consent that this file needs before it runs, or None. Raises AileronError (vault_locked, hash_mismatch)."""
        ...

    def is_as_consented(self, action: ActionFile) -> bool:
        """Return whether `missing` returns quickly, because the file is identical to a file that the person consented
        to, or the home has no approver.
        """
        ...

    def check_settings(self) -> None:
        """Check that the person consented to the settings in force. Raises AileronError (consent_required,
        vault_locked, hash_mismatch).
        """
        ...

    def why_not_in_force(self, destination: str) -> str | None:
        """Return the reason why an exception in config.toml for this host:port is not in force; None if it is in force,
        or if there is no such exception.
        """
        ...


class Tools(Protocol):
    """Interface of the record of MCP tools that their servers changed, and of the changed tools that a person accepted."""

    def check(self, step: Step, action: str) -> None:
        """Raise AileronError(hash_mismatch) if the step's operation is suspended."""
        ...

    def accepted(self, pin: ConnectorPin, op: str) -> str | None:
        """Return the digest of the changed tool that a person accepted last, or None. Raises AileronError(vault_locked)."""
        ...


class ConsentMissing(AileronError):
    """Error: an action's file is new, or allows more than the person consented to; `subject` is the change to ask the
    person about.
    """

    def __init__(self, subject: ActionFileConsent) -> None:
        super().__init__(
            FailureClass.CONSENT_REQUIRED,
            f"the file of action {subject.name!r} is new, or allows more than a person approved",
            boundary=Boundary.USER,
        )
        self.subject = subject


class Runnable:
    """Resolves invocations, and checks whether plans can run now. Each daemon has one instance."""

    def __init__(
        self,
        *,
        actions: Actions,
        consent_checks: ConsentChecks,
        connectors: Connectors,
        bindings: Bindings,
        tools: Tools,
        settings: LiveSettings,
    ) -> None:
        self._actions = actions
        self._consent_checks = consent_checks
        self._connectors = connectors
        self._bindings = bindings
        self._tools = tools
        self._settings = settings

    def resolve(self, invocation: Invocation) -> Plan:
        """Return the plan for an invocation, resolved with the current files of its action and connectors.

        Writes nothing. Raises AileronError if the invocation does not resolve.
        """
        self._consent_checks.check_settings()
        action = self._selected(invocation)
        plan = resolve(
            invocation,
            action,
            connectors=self._connectors,
            bindings=self._bindings,
            settings=self._settings.now,
            accepted=self._tools.accepted,
        )
        self._check_tools(plan)
        if plan.approval.required:
            self._check_destinations(plan)
        missing = self._consent_checks.missing(action)
        if missing is not None:
            raise ConsentMissing(missing)
        if any(step.grant.credential is not None for step in plan.steps):
            self._bindings.check_unlocked()
        return plan

    def _selected(self, invocation: Invocation) -> ActionFile:
        """Return the invoked action's file if the caller can use the action. Raises AileronError(not_found) otherwise,
        which does not reveal whether the action exists.
        """
        try:
            action = self._actions.load_enabled(invocation.action)
            if invocation.selection.admits(action):
                return action
        except AileronError as error:
            if not invocation.selection or error.failure.failure_class is not FailureClass.NOT_FOUND:
                raise
        raise AileronError(
            FailureClass.NOT_FOUND,
            f"this session has no action {invocation.action[:_MAX_NAME]!a}: a person limited it to {invocation.selection} "
            "(`aileron launch AGENT --only SELECTOR`, or mcp.folders)",
            boundary=Boundary.ACTION,
        )

    def is_quick(self, invocation: Invocation) -> bool:
        """Return whether the invocation can be resolved quickly enough to do so on the event loop, without a thread.

        True if the arguments are small, and the files of the action and its connectors are known and unchanged.
        """
        if not _is_little(invocation.args):
            return False
        action = self._actions.at_hand(invocation.action)
        return (
            action is not None
            and self._consent_checks.is_as_consented(action)
            and all(self._is_at_hand(connector) for connector in action.connectors)
        )

    def _is_at_hand(self, connector: RequiredConnector) -> bool:
        manifest = self._connectors.at_hand(ConnectorPin(str(connector.name), connector.version, connector.hash))
        return manifest is not None and (manifest.credential is None or not self._bindings.is_locked)

    def _check_tools(self, plan: Plan) -> None:
        """Check that no operation of the plan or its preview is suspended, and that each operation of an MCP server
        uses the form of its tool that a person accepted last.

        A plan that was approved before a person accepted a changed tool uses the old tool, and must be requested again.
        """
        for step in _every_step(plan):
            self._tools.check(step, plan.action)
            if (step.accepted or None) != self._tools.accepted(step.connector, step.op):
                raise AileronError(
                    FailureClass.HASH_MISMATCH,
                    f"the tool of {step.op!r} ({step.connector}) is another than when {plan.action!r} was requested: "
                    "request the run again",
                    boundary=Boundary.EXTERNAL,
                    details={
                        "reason": "tool_changed",
                        "connector": str(step.connector),
                        "op": step.op,
                        "step": step.id,
                    },
                )

    def _check_destinations(self, plan: Plan) -> None:
        """Check that every step that uses the network has a host it can reach.

        Raises AileronError otherwise. The caller does not check a plan that needs no approval, because egress refuses the
        plan's requests and records the refusals.
        """
        for step in plan.steps:
            if not self._connectors.manifest(step.connector).operation(step.op).network:
                continue
            try:
                check_somewhere_to_go(step.grant)
            except AileronError as error:
                details = {**error.failure.details, "connector": str(step.connector), "step": step.id}
                failure = msgspec.structs.replace(error.failure, details=details)
                raise AileronError.of(self.with_setting(failure)) from None

    def with_setting(self, failure: Failure) -> Failure:
        """Return the failure, with another message if config.toml has an exception that would avoid the failure but is
        not in force.

        The new message is the reason why the exception is not in force.
        """
        if failure.details.get("reason") not in _MENDED_BY_SETTINGS:
            return failure
        destination = str(failure.details.get("requested")).removeprefix("network:")
        why = self._consent_checks.why_not_in_force(destination)
        return failure if why is None else msgspec.structs.replace(failure, message=why)

    def check_readable(self, plan: Plan) -> None:
        """Check that the preview of this frozen plan can be read now. Raises ConsentMissing or AileronError."""
        self._consent_checks.check_settings()
        self._actions.check_enabled(plan.action)
        self._check_tools(plan)
        self._check_own(plan, self._settings.now)

    def check_still(self, frozen: Frozen) -> None:
        """Check that an approved plan can still run under the current conditions. Raises ConsentMissing or AileronError."""
        settings = self._settings.now
        self._consent_checks.check_settings()
        self._actions.check_enabled(frozen.plan.action)
        self._check_tools(frozen.plan)
        for step in frozen.plan.steps:
            _check_exceptions(step.grant, settings)
        uses = [step.grant.credential for step in frozen.plan.steps if step.grant.credential is not None]
        for use in uses:
            self._bindings.check_unchanged(use, frozen.asked_at)
        if uses:
            self._bindings.check_unlocked()
        if frozen.decision is not None and frozen.decision.signed is not None:
            self._check_own(frozen.plan, settings)

    def _check_own(self, plan: Plan, settings: Settings) -> None:
        """Check that resolving the action file inside `plan` again gives this plan, and that the person consented to that file.

        The stored plan could have been edited in the ledger, while no daemon ran, before the person signed it. So the signature
        alone does not prove that its hosts, credentials, bytes or effects are those of the action file.
        """
        action = check_as_resolved(
            plan,
            connectors=self._connectors,
            bindings=self._bindings,
            settings=settings,
            accepted=self._tools.accepted,
        )
        if (missing := self._consent_checks.missing(action)) is not None:
            raise ConsentMissing(missing)


def _every_step(plan: Plan) -> tuple[Step, ...]:
    return plan.steps if plan.preview is None else (*plan.steps, plan.preview.step)


def _is_little(args: JSONObject) -> bool:
    """Return whether the arguments have few values and little text. Resolving larger arguments would take milliseconds.

    Counting stops at the limit.
    """
    left: list[JSON] = [args]
    values = characters = 0
    while left and values < _FEW_VALUES and characters < _LITTLE_TEXT:
        value = left.pop()
        values += 1
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, (dict, list)):
            if len(value) > _FEW_VALUES:
                return False
            if isinstance(value, dict):
                characters += sum(map(len, value))
            left.extend(value.values() if isinstance(value, dict) else value)
    return not left and characters < _LITTLE_TEXT


def _check_exceptions(grant: Grant, settings: Settings) -> None:
    """Check that the settings still have each exception for hosts without TLS (plain) or with private addresses that a
    grant uses.

    Raises AileronError(consent_required) otherwise.
    """
    gone = (grant.plain - settings.egress_private_plain) | (
        grant.private - settings.egress_private - settings.egress_private_plain
    )
    if gone:
        raise AileronError(
            FailureClass.CONSENT_REQUIRED,
            f"{min(map(str, gone))} is no longer an exception in config.toml (egress.private, egress.private_plain): "
            "request it again",
            boundary=Boundary.USER,
        )
