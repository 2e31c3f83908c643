"""Which hosts a cell's agent reaches: what its session lists, or whoever else says so.

The part that decides is pure. Runs in the daemon; the destination is what an agent asked for, parsed and in its only spelling.

Rules
- Listed is what a pattern of the session means (model/host_pattern.py): by the exact name and port, or by `*.` before at
  least two labels. Nothing that is not listed is admitted here; whoever asks a person wraps this.
- Admitted says nothing about addresses: these are looked at afterwards, for every tunnel (steps.py).

Source: docs/reference/cell-egress.md. Not here: asking a person (daemon/), whose list it is (daemon/http/sessions.py).
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from aileron.egress.refusal import Reason
from aileron.model.host_pattern import DEFAULT_PORT, HostPattern
from aileron.model.names import HostPort

__all__ = ["Admitted", "Cell", "HostPolicy", "Refused", "listed"]


class Cell(Protocol):
    """An open session whose agent is in a cell, as much of it as matters here."""

    @property
    def id(self) -> str:
        """Of the session."""
        ...

    @property
    def hosts(self) -> tuple[HostPattern, ...]:
        """What it lists."""
        ...


class Admitted(msgspec.Struct, frozen=True):
    """This cell reaches this host."""


class Refused(msgspec.Struct, frozen=True):
    """It does not: which rule says so, and what the agent is told, with the way to change it."""

    reason: Reason
    text: str


class HostPolicy(Protocol):
    """Who decides."""

    async def admit(self, cell: Cell, destination: HostPort) -> Admitted | Refused:
        """May wait for a person. It is cancelled when nobody waits for the answer any more."""
        ...


def listed(hosts: tuple[HostPattern, ...], destination: HostPort) -> Admitted | Refused:
    """Whether one of these patterns means the destination. The text for one that is not names the option that lists it."""
    if any(pattern.matches(destination) for pattern in hosts):
        return Admitted()
    host, port = destination.host, destination.port
    option = host if port == DEFAULT_PORT else str(destination)
    return Refused(
        Reason.HOST_NOT_LISTED,
        f"{destination} is not allowed in this cell: ask the person to start it with --allow-host {option}",
    )
