"""Journals with which the executor and egress write to the audit trail: for runs in progress, and for spares.

They implement the journal Protocols of the executor and egress, which know nothing of a ledger, with the methods of
audit/log.py. A connector's text is hostile: it is bounded here, or in audit/log.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aileron.audit.events import (
    ConnectorActedEarly,
    EgressDenied,
    EgressEffects,
    EgressEnvelope,
    EgressFinished,
    EgressSending,
    EgressSubmitted,
)
from aileron.audit.log import Audit
from aileron.audit.moves import MAX_DESTINATION_CHARACTERS, MAX_NAME_CHARACTERS, bounded
from aileron.egress.journal import EffectsReport, MailIntent, MailReport, RequestDenial, RequestIntent, RequestReport
from aileron.executor.spares import Early
from aileron.model.failure import Failure
from aileron.model.json_value import JSONObject
from aileron.model.plan import ConnectorPin, Step

__all__ = ["LedgerJournal", "PreviewJournal", "SparesJournal"]

Note = Callable[[int | float, int | float | None, str | None], None]
"""A function that receives each progress report of a connector: its `done`, `total` and `message`."""


class LedgerJournal:
    """The journal of one run in the audit trail. `note` receives a connector's progress reports, which are not
    recorded.
    """

    def __init__(self, audit: Audit, run_id: str, note: Note | None = None) -> None:
        self._audit = audit
        self._run_id = run_id
        self._note = note

    async def started(self, step: Step, attempt: int, layers: tuple[str, ...]) -> None:
        """Record durably that the jail for this attempt of the step is about to receive its task."""
        await self._audit.started(self._run_id, step, attempt + 1, layers)

    async def retried(self, step: Step, attempt: int, failure: Failure, delay_s: float) -> None:
        """Record durably that this attempt of the step failed in a way that may be transient, and that another follows
        after `delay_s` seconds.
        """
        await self._audit.retried(self._run_id, step, attempt + 1, failure, delay_s)

    def of_step(self, step: Step) -> _StepJournal:
        """Return the journal with which egress records the requests of this step."""
        return _StepJournal(self._audit, self._run_id, step, self._note)


class PreviewJournal(LedgerJournal):
    """The journal of one preview in the audit trail.

    It records requests that leave, but no text of the connector, because that text may repeat content that the
    connector read.

    `effects` are the effects that logins reported, in the order of the reports.
    """

    def __init__(self, audit: Audit, run_id: str) -> None:
        super().__init__(audit, run_id)
        self.effects: Final[list[EffectsReport]] = []

    async def retried(self, step: Step, attempt: int, failure: Failure, delay_s: float) -> None:
        """Record durably the class of the failure of this attempt of the step, without its message."""
        said = Failure(failure_class=failure.failure_class, message="not recorded", boundary=failure.boundary)
        await super().retried(step, attempt, said, delay_s)

    def of_step(self, step: Step) -> _StepJournal:
        """Return the journal of a step, which omits all text of the step's connector."""
        return _SilentJournal(self._audit, self._run_id, step, self.effects)


class SparesJournal:
    """The journal of spares, that is of connectors that no run uses yet."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    async def acted_early(self, pin: ConnectorPin, what: Early, destination: str | None) -> None:
        """Record durably that a spare was ended because it acted before it got a run (`what` says how)."""
        await self._audit.note(
            ConnectorActedEarly(
                connector=pin.name, version=pin.version, hash=pin.hash, what=what, destination=destination
            )
        )


class _StepJournal:
    def __init__(self, audit: Audit, run_id: str, step: Step, note: Note | None = None) -> None:
        self._audit = audit
        self._run_id = run_id
        self._step = step
        self._note = note

    async def sending(self, intent: RequestIntent) -> None:
        await self._audit.note(
            EgressSending(
                run=self._run_id,
                step=self._step.id,
                connector=self._step.connector.name,
                request=intent.number,
                method=intent.method,
                host=intent.destination.host,
                port=intent.destination.port,
                path=intent.path.partition("?")[0],  # egress cuts it too; a query may hold a secret
                credential=intent.identity,
            )
        )

    async def denied(self, denial: RequestDenial) -> None:
        await self._audit.note(
            EgressDenied(
                run=self._run_id,
                step=self._step.id,
                connector=self._step.connector.name,
                request=denial.number,
                method=bounded(denial.method, MAX_NAME_CHARACTERS),
                destination=bounded(denial.destination, MAX_DESTINATION_CHARACTERS),
                reason=denial.reason,
            )
        )

    async def mail_sending(self, intent: MailIntent) -> None:
        await self._audit.note(
            EgressEnvelope(
                run=self._run_id,
                step=self._step.id,
                connector=self._step.connector.name,
                request=intent.number,
                sender=bounded(intent.sender, MAX_DESTINATION_CHARACTERS),
                recipients=tuple(bounded(recipient, MAX_DESTINATION_CHARACTERS) for recipient in intent.recipients),
                size=intent.size,
            )
        )

    async def effects(self, report: EffectsReport) -> None:
        await self._audit.note(
            EgressEffects(
                run=self._run_id,
                step=self._step.id,
                connector=self._step.connector.name,
                request=report.number,
                digest=report.digest,
            )
        )

    async def mail_sent(self, report: MailReport) -> None:
        await self._audit.note(
            EgressSubmitted(
                run=self._run_id,
                step=self._step.id,
                connector=self._step.connector.name,
                request=report.number,
                size=report.size,
                code=report.code,
            )
        )

    async def finished(self, report: RequestReport) -> None:
        """Record how a request ended. This record is durable before any later record. So if a later record is on disk,
        this record is too.
        """
        self._audit.note_end(
            EgressFinished(
                run=self._run_id,
                step=self._step.id,
                connector=self._step.connector.name,
                request=report.number,
                status=report.status,
                bytes_up=report.bytes_up,
                bytes_down=report.bytes_down,
                ms=int(report.ms),
                address=report.address,
                scrubbed=report.scrubbed,
                failure_class=report.failure,
            )
        )

    async def connector_event(self, event: str, fields: JSONObject) -> None:
        await self._audit.connector_event(self._run_id, self._step, event, fields)

    def progressed(self, done: int | float, total: int | float | None, message: str | None) -> None:
        if self._note is not None:
            self._note(done, total, message)


class _SilentJournal(_StepJournal):
    def __init__(self, audit: Audit, run_id: str, step: Step, told: list[EffectsReport]) -> None:
        super().__init__(audit, run_id, step)
        self._told = told

    async def effects(self, report: EffectsReport) -> None:
        """Record the digest of the effects, and keep the effects to be shown to the person."""
        await super().effects(report)
        self._told.append(report)

    async def connector_event(self, event: str, fields: JSONObject) -> None:
        """Record that the connector reported an event, without the event's contents."""
        await super().connector_event("(a preview's)", {})
