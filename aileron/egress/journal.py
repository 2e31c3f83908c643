"""The interface that egress needs of the ledger, as a Protocol, and the values that it writes there.

The executor passes in a journal for each step. A request is recorded before anything leaves and again when it is over,
so that after a crash the ledger says "sent, outcome unknown" rather than nothing. A request that a rule refused is
recorded as refused, before the invocation ends.

Rules
- The record has the host, the path without the query, sizes and times, and never a header value, a query or a body.

Source: docs/reference/egress.md. Not here: how a row becomes durable (audit/log.py).
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from aileron.model.failure import FailureClass
from aileron.model.names import HostPort

__all__ = [
    "EffectsReport",
    "Journal",
    "MailIntent",
    "MailReport",
    "RequestDenial",
    "RequestIntent",
    "RequestReport",
    "Unrecorded",
]


class RequestIntent(msgspec.Struct, frozen=True):
    """A request that is about to be sent. `number` counts the requests of a step from 1; `identity` is the binding's name."""

    number: int
    method: str
    destination: HostPort
    path: str
    identity: str | None


class RequestReport(msgspec.Struct, frozen=True):
    """The end of the request with this `number`. `status` is None if no response came. The sizes are those of the
    bodies, in bytes.
    """

    number: int
    status: int | None
    bytes_up: int
    bytes_down: int
    ms: float
    address: str | None
    scrubbed: int
    failure: FailureClass | None


class RequestDenial(msgspec.Struct, frozen=True):
    """A request that was refused. `method` and `destination` are the connector's text, truncated; `reason` is a value
    of refusal.Reason.
    """

    number: int
    method: str
    destination: str
    reason: str


class MailIntent(msgspec.Struct, frozen=True):
    """A mail message that a login is about to send, with the sender and recipients that the server accepted. `number`
    is the number of the login's request.

    `size` in bytes, as the connector announced it.
    """

    number: int
    sender: str
    recipients: tuple[str, ...]
    size: int | None


class MailReport(msgspec.Struct, frozen=True):
    """The mail server's response to a message of `size` bytes (RFC 5321 section 4.2). With a `code` of 2xx, the server
    has accepted the message for delivery.
    """

    number: int
    size: int
    code: int


class EffectsReport(msgspec.Struct, frozen=True):
    """The changes that a database transaction would make, over the login whose request has this `number`. The transaction is
    committed next, or rolled back in a preview.

    `digest` (`sha256:…`) covers all effects, `text` shows them to a person.
    """

    number: int
    digest: str
    text: str


class Journal(Protocol):
    """Protocol with which egress records the requests, mail and effects of one step in the ledger."""

    async def sending(self, intent: RequestIntent) -> None:
        """Record a request that is about to be sent. The record is durable on return; an error stops the request."""
        ...

    async def denied(self, denial: RequestDenial) -> None:
        """Record that a rule refused a request. The record is durable on return."""
        ...

    async def mail_sending(self, intent: MailIntent) -> None:
        """Record a mail message that is about to be sent. The record is durable on return; an error stops the message."""
        ...

    async def mail_sent(self, report: MailReport) -> None:
        """Record the server's response to a mail message. The record is durable on return."""
        ...

    async def effects(self, report: EffectsReport) -> None:
        """Record a transaction's effects. The record is durable on return; an error stops the commit."""
        ...

    async def finished(self, report: RequestReport) -> None:
        """Record how a request that was sent ended."""
        ...


class Unrecorded:
    """A Journal that stores nothing, for the supervisor's own requests. They belong to no run; their purpose is
    recorded elsewhere.
    """

    def __init__(self) -> None:
        self.may_be_sent = False
        """True if the server may have received the supervisor's request."""

    async def sending(self, intent: RequestIntent) -> None:
        """Record in `may_be_sent` that the server may receive the request from now on."""
        self.may_be_sent = True

    async def denied(self, denial: RequestDenial) -> None:
        """Ignore the denial of a request; the raised error reports it."""

    async def mail_sending(self, intent: MailIntent) -> None:
        """Ignore the mail message that is about to be sent: the supervisor sends no mail."""

    async def effects(self, report: EffectsReport) -> None:
        """Ignore the effects: none of the supervisor's own requests has effects."""

    async def mail_sent(self, report: MailReport) -> None:
        """Ignore the mail server's response: the supervisor sends no mail."""

    async def finished(self, report: RequestReport) -> None:
        """Ignore the report of how a request ended."""
