"""The interface that egress needs of the ledger, as a Protocol, and the values that it writes there.

The executor passes in a journal for each step. A request is in it before anything leaves and again when it is over, so
that after a crash the ledger says "sent, outcome unknown" rather than nothing. A request that a rule refused is in it as
that, before the invocation ends.

Rules
- Host, path without query, sizes, times: never a header value, a query or a body.

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
    """The end of the request of that `number`. `status` None: no response came. Sizes in bytes, bodies only."""

    number: int
    status: int | None
    bytes_up: int
    bytes_down: int
    ms: float
    address: str | None
    scrubbed: int
    failure: FailureClass | None


class RequestDenial(msgspec.Struct, frozen=True):
    """A request that was refused. `method` and `destination` are the connector's text, bounded; `reason` is of
    refusal.Reason.
    """

    number: int
    method: str
    destination: str
    reason: str


class MailIntent(msgspec.Struct, frozen=True):
    """A message that a login, the request of that `number`, is about to send, with the sender and recipients that the
    server accepted.

    `size` in bytes, as the connector announced it.
    """

    number: int
    sender: str
    recipients: tuple[str, ...]
    size: int | None


class MailReport(msgspec.Struct, frozen=True):
    """The server's response to a message of `size` bytes (RFC 5321 section 4.2); code 2xx: it is delivered from now on."""

    number: int
    size: int
    code: int


class EffectsReport(msgspec.Struct, frozen=True):
    """The effects of a login's transaction, the request of that `number`: it is committed next, or in a preview rolled back.

    `digest` (`sha256:…`) covers all effects, `text` shows them to a person.
    """

    number: int
    digest: str
    text: str


class Journal(Protocol):
    """The ledger, as one step sees it."""

    async def sending(self, intent: RequestIntent) -> None:
        """Write down a request that is about to be sent; durable when it returns. An error here stops the request."""
        ...

    async def denied(self, denial: RequestDenial) -> None:
        """Write down that a rule refused a request; durable when it returns."""
        ...

    async def mail_sending(self, intent: MailIntent) -> None:
        """Write down a message that is about to be sent; durable when it returns. An error here stops the message."""
        ...

    async def mail_sent(self, report: MailReport) -> None:
        """Write down the server's response to a message; durable when it returns."""
        ...

    async def effects(self, report: EffectsReport) -> None:
        """Write down a transaction's effects; durable when it returns. An error here stops the commit."""
        ...

    async def finished(self, report: RequestReport) -> None:
        """Write down how a request ended."""
        ...


class Unrecorded:
    """A Journal for requests of the supervisor's own, which belong to no run: their purpose is on record by itself."""

    def __init__(self) -> None:
        self.may_be_sent = False
        """True if the other side may have seen the request."""

    async def sending(self, intent: RequestIntent) -> None:
        """Note that the request may be sent from now on."""
        self.may_be_sent = True

    async def denied(self, denial: RequestDenial) -> None:
        """Ignore a denial: the error says it."""

    async def mail_sending(self, intent: MailIntent) -> None:
        """Ignore it: the supervisor sends no mail."""

    async def effects(self, report: EffectsReport) -> None:
        """Ignore it: no request of the supervisor's own has effects."""

    async def mail_sent(self, report: MailReport) -> None:
        """Ignore it: the supervisor sends no mail."""

    async def finished(self, report: RequestReport) -> None:
        """Ignore the end of a request."""
