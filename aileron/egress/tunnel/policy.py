"""The policy that decides which hosts a cell's agent can reach: those that its session lists. Another policy can admit
more.

The function `listed` is pure. Runs in the daemon; the destination is the agent's, parsed and in its canonical spelling.

Rules
- A host is listed if a pattern of the session matches it (model/host_pattern.py): by the exact name and port, or by
  `*.` in front of at least two labels. Only listed hosts are admitted here; the policy that asks a person wraps this
  one.
- Admission does not cover addresses, which are checked afterwards, for every tunnel (steps.py).

Source: docs/reference/cell-egress.md. Not here: asking a person (daemon/), the session's list (daemon/http/sessions.py).
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from aileron.egress.refusal import Reason
from aileron.model.host_pattern import DEFAULT_PORT, HostPattern
from aileron.model.names import HostPort

__all__ = ["Admitted", "Cell", "HostPolicy", "Refused", "listed"]


class Cell(Protocol):
    """Interface of an open session whose agent is in a cell, with the properties that tunnels need."""

    @property
    def id(self) -> str:
        """Id of the cell's session."""
        ...

    @property
    def hosts(self) -> tuple[HostPattern, ...]:
        """Patterns of the hosts that the cell's session lists as reachable."""
        ...


class Admitted(msgspec.Struct, frozen=True):
    """The policy's decision that a cell can reach a host."""


class Refused(msgspec.Struct, frozen=True):
    """The policy's decision that a cell cannot reach a host. `reason` names the rule; `text` is a message to the agent,
    which says how to change the decision.
    """

    reason: Reason
    text: str


class HostPolicy(Protocol):
    """Interface of the policy that decides which hosts a cell can reach."""

    async def admit(self, cell: Cell, destination: HostPort) -> Admitted | Refused:
        """Decide whether the cell can reach the destination. This may wait for a person, and is cancelled when the
        client no longer waits.
        """
        ...


def listed(hosts: tuple[HostPattern, ...], destination: HostPort) -> Admitted | Refused:
    """Admit a destination that one of the patterns in `hosts` matches, and refuse every other. The text of a refusal
    names the option with which a session lists the host.
    """
    if any(pattern.matches(destination) for pattern in hosts):
        return Admitted()
    host, port = destination.host, destination.port
    option = host if port == DEFAULT_PORT else str(destination)
    return Refused(
        Reason.HOST_NOT_LISTED,
        f"{destination} is not allowed in this cell: ask the person to start it with --allow-host {option}",
    )
