"""What may run as things are now: by the action's file, what the person agreed to, the bindings, the settings.

Reads; writes nothing. Runs in the daemon, in worker threads, since files are read; on the loop what `is_quick`. Nothing here
waits for a person.

Rules
- Nobody is asked about a call that is known not to work: it is resolved, and its destinations looked at, before any question.
- A file that is wider than what the person agreed to last does not run: it is refused, and they are asked. Nor does a frozen plan
  that is not what such a file gives, though it was signed: a person cannot see whose bytes a hash is of.
- What uses a tool that its server changed is refused before anything is asked; what was approved meanwhile, before it begins.

Source: docs/explanation/architecture.md. Not here: making an invocation exact (actions/resolve.py).
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from aileron.actions.resolve import check_as_resolved, resolve
from aileron.audit.frozen import Frozen
from aileron.config import Settings
from aileron.egress.foreseen import check_somewhere_to_go
from aileron.egress.refusal import Reason
from aileron.model.consent import ActionFileConsent
from aileron.model.credential import Candidate
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.manifest import ActionFile, ConnectorManifest, RequiredConnector
from aileron.model.plan import ConnectorPin, CredentialUse, Grant, Plan, Step

__all__ = ["Actions", "Agreements", "Bindings", "Connectors", "NotAgreed", "Runnable", "Tools"]

_MAX_NAME: Final = 64
_FEW_VALUES: Final = 200
_LITTLE_TEXT: Final = 4096
"""Characters, with those of keys: an agent's call has some hundred."""
_MENDED_BY_SETTINGS: Final = frozenset({Reason.PLAIN_HTTP.value, Reason.ADDRESS_NOT_PUBLIC.value})


class Actions(Protocol):
    """The installed actions."""

    def load_enabled(self, name: str) -> ActionFile:
        """The file as it is now. AileronError not_found, action_disabled, invalid_request."""
        ...

    def at_hand(self, name: str) -> ActionFile | None:
        """As it was read last, where reading it again is quick."""
        ...

    def check_enabled(self, name: str) -> None:
        """Still there, whatever it says now, and not switched off. AileronError not_found, action_disabled."""
        ...


class Connectors(Protocol):
    """The installed connectors."""

    def manifest(self, pin: ConnectorPin) -> ConnectorManifest:
        """The verified manifest of exactly these bytes."""
        ...

    def at_hand(self, pin: ConnectorPin) -> ConnectorManifest | None:
        """The same where nothing has to be read for it."""
        ...


class Bindings(Protocol):
    """The bound credentials, by name; and whether one could be lent now."""

    @property
    def is_locked(self) -> bool:
        """They are read from the file each time."""
        ...

    def candidates(self, connector: str, kind: str) -> list[Candidate]:
        """Every binding of `kind` made for this connector."""
        ...

    def check_unchanged(self, use: CredentialUse, since: float) -> None:
        """The binding is the one of `since` (s since the epoch). AileronError binding_required, binding_failed."""
        ...

    def check_unlocked(self) -> None:
        """AileronError vault_locked, with the command that unlocks it."""
        ...


class Agreements(Protocol):
    """What the person agreed to."""

    def missing(self, action: ActionFile) -> ActionFileConsent | None:
        """What has to be agreed to before this file runs; None where nothing has. AileronError vault_locked, hash_mismatch."""
        ...

    def is_as_agreed(self, action: ActionFile) -> bool:
        """The file is word by word what was agreed to, or nobody has to agree: then to ask what is missing is quick."""
        ...

    def check_settings(self) -> None:
        """The settings in force are those agreed to. AileronError consent_required, vault_locked, hash_mismatch."""
        ...

    def why_not_in_force(self, destination: str) -> str | None:
        """Why an exception for this host:port that config.toml has is not one yet; None where that is not so."""
        ...


class Tools(Protocol):
    """What is known of tools that their servers changed."""

    def check(self, step: Step, action: str) -> None:
        """Return unless the step's operation is suspended. AileronError(hash_mismatch)."""
        ...

    def accepted(self, pin: ConnectorPin, op: str) -> str | None:
        """The digest of the changed tool that a person accepted last; None: none. AileronError vault_locked."""
        ...


class NotAgreed(AileronError):
    """The action's file is not what the person agreed to; `subject` is what they are asked."""

    def __init__(self, subject: ActionFileConsent) -> None:
        super().__init__(
            FailureClass.CONSENT_REQUIRED,
            f"the file of action {subject.name!r} is new, or allows more than a person approved",
            boundary=Boundary.USER,
        )
        self.subject = subject


class Runnable:
    """One for each daemon."""

    def __init__(
        self,
        *,
        actions: Actions,
        agreements: Agreements,
        connectors: Connectors,
        bindings: Bindings,
        tools: Tools,
        settings: Settings,
    ) -> None:
        self._actions = actions
        self._agreements = agreements
        self._connectors = connectors
        self._bindings = bindings
        self._tools = tools
        self._settings = settings

    def adopt(self, settings: Settings) -> None:
        """These are in force from now on: for what is resolved or begun after this."""
        self._settings = settings

    def resolve(self, invocation: Invocation) -> Plan:
        """What would be done, from the files as they are now. Reads; writes nothing. AileronError says why not."""
        self._agreements.check_settings()
        action = self._selected(invocation)
        plan = resolve(
            invocation,
            action,
            connectors=self._connectors,
            bindings=self._bindings,
            settings=self._settings,
            accepted=self._tools.accepted,
        )
        self._check_tools(plan)
        if plan.approval.required:
            self._check_destinations(plan)
        missing = self._agreements.missing(action)
        if missing is not None:
            raise NotAgreed(missing)
        if any(step.grant.credential is not None for step in plan.steps):
            self._bindings.check_unlocked()
        return plan

    def _selected(self, invocation: Invocation) -> ActionFile:
        """The action, if the caller can use it. What it cannot is told as what there is not."""
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
        """Whether to resolve it takes less than a thread would: little is asked, a few small files that were read before are read
        again, and nobody touched them since.
        """
        if not _is_little(invocation.args):
            return False
        action = self._actions.at_hand(invocation.action)
        return (
            action is not None
            and self._agreements.is_as_agreed(action)
            and all(self._is_at_hand(connector) for connector in action.connectors)
        )

    def _is_at_hand(self, connector: RequiredConnector) -> bool:
        manifest = self._connectors.at_hand(ConnectorPin(str(connector.name), connector.version, connector.hash))
        return manifest is not None and (manifest.credential is None or not self._bindings.is_locked)

    def _check_tools(self, plan: Plan) -> None:
        """Return if none of its operations is suspended, its preview's among them, and each has what was accepted last.

        A plan that was approved before a change was accepted was about another tool: it is asked for again.
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
        """Return unless a step has nowhere to go. What nobody is asked about is refused, and on record, where it is sent."""
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
        """Where a setting would mend it, and config.toml has it: why that is not in force, in place of where to put it."""
        if failure.details.get("reason") not in _MENDED_BY_SETTINGS:
            return failure
        destination = str(failure.details.get("requested")).removeprefix("network:")
        why = self._agreements.why_not_in_force(destination)
        return failure if why is None else msgspec.structs.replace(failure, message=why)

    def check_readable(self, plan: Plan) -> None:
        """Return if the preview of this frozen plan may be read now. NotAgreed, AileronError."""
        self._agreements.check_settings()
        self._actions.check_enabled(plan.action)
        self._check_tools(plan)
        self._check_own(plan)

    def check_still(self, frozen: Frozen) -> None:
        """Return if what was approved may run as things are by now. NotAgreed, AileronError."""
        self._agreements.check_settings()
        self._actions.check_enabled(frozen.plan.action)
        self._check_tools(frozen.plan)
        for step in frozen.plan.steps:
            _check_exceptions(step.grant, self._settings)
        uses = [step.grant.credential for step in frozen.plan.steps if step.grant.credential is not None]
        for use in uses:
            self._bindings.check_unchanged(use, frozen.asked_at)
        if uses:
            self._bindings.check_unlocked()
        if frozen.decision is not None and frozen.decision.signed is not None:
            self._check_own(frozen.plan)

    def _check_own(self, plan: Plan) -> None:
        """Return if `plan` is what its own file gives, and the person agreed to that file.

        The ledger's file could have been written while no daemon ran, before anybody signed what it says: so that alone does not
        count of hosts, credentials, bytes and of what only reads.
        """
        action = check_as_resolved(
            plan,
            connectors=self._connectors,
            bindings=self._bindings,
            settings=self._settings,
            accepted=self._tools.accepted,
        )
        if (missing := self._agreements.missing(action)) is not None:
            raise NotAgreed(missing)


def _every_step(plan: Plan) -> tuple[Step, ...]:
    return plan.steps if plan.preview is None else (*plan.steps, plan.preview.step)


def _is_little(args: dict[str, Any]) -> bool:
    """Whether they have few values and little text: what is checked of more takes milliseconds. Looks at no more than that."""
    left: list[Any] = [args]
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
    """An exception that was shown and has been taken back since is not used."""
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
