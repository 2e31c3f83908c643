"""What egress needs of the ledger, as a Protocol, and the three things it writes there.

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
    """What is about to be sent. `number` counts the requests of a step from 1; `identity` is the binding's name."""

    number: int
    method: str
    destination: HostPort
    path: str
    identity: str | None


class RequestReport(msgspec.Struct, frozen=True):
    """How the request of that `number` ended. `status` None: no answer came. Sizes in bytes, bodies only."""

    number: int
    status: int | None
    bytes_up: int
    bytes_down: int
    ms: float
    address: str | None
    scrubbed: int
    failure: FailureClass | None


class RequestDenial(msgspec.Struct, frozen=True):
    """What may not leave. `method` and `destination` are the connector's text, bounded; `reason` is of refusal.Reason."""

    number: int
    method: str
    destination: str
    reason: str


class MailIntent(msgspec.Struct, frozen=True):
    """By the login that is the request of that `number` a message is about to be sent, from and for whom the server has accepted.

    `size` in bytes, as the connector announced it.
    """

    number: int
    sender: str
    recipients: tuple[str, ...]
    size: int | None


class MailReport(msgspec.Struct, frozen=True):
    """The server answered a message of `size` bytes with this code (RFC 5321 section 4.2); 2xx: it is delivered from now on."""

    number: int
    size: int
    code: int


class EffectsReport(msgspec.Struct, frozen=True):
    """What the transaction of the login of that `number` did: of a preview, which is taken back; else it is committed next.

    `digest` (`sha256:…`) is of all of it, `text` shows it to a person.
    """

    number: int
    digest: str
    text: str


class Journal(Protocol):
    """The ledger, as one step sees it."""

    async def sending(self, intent: RequestIntent) -> None:
        """Write it down; durable when it returns. An error here stops the request."""
        ...

    async def denied(self, denial: RequestDenial) -> None:
        """Write down that a rule refused a request; durable when it returns."""
        ...

    async def mail_sending(self, intent: MailIntent) -> None:
        """Write it down; durable when it returns. An error here stops the message."""
        ...

    async def mail_sent(self, report: MailReport) -> None:
        """Write down what became of it; durable when it returns."""
        ...

    async def effects(self, report: EffectsReport) -> None:
        """Write down its digest; durable when it returns. An error here stops the commit."""
        ...

    async def finished(self, report: RequestReport) -> None:
        """Write down how it ended."""
        ...


class Unrecorded:
    """A Journal for requests of the supervisor's own, which are of no run: what they are for is on record by itself."""

    def __init__(self) -> None:
        self.may_be_sent = False
        """Whether the other side may have seen it."""

    async def sending(self, intent: RequestIntent) -> None:
        """From here on it may."""
        self.may_be_sent = True

    async def denied(self, denial: RequestDenial) -> None:
        """Nothing: the error says it."""

    async def mail_sending(self, intent: MailIntent) -> None:
        """Nothing: the supervisor sends no mail."""

    async def effects(self, report: EffectsReport) -> None:
        """Nothing: no request of the supervisor's own has any."""

    async def mail_sent(self, report: MailReport) -> None:
        """Nothing."""

    async def finished(self, report: RequestReport) -> None:
        """Nothing."""
