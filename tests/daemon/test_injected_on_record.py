"""Tools in requests are recorded once for each list, and again with the next request if the record could not be written."""

from __future__ import annotations

from typing import TypeVar

import pytest

from aileron.audit.events import EgressEvent, InjectionAdded, InjectionSkipped, Notice
from aileron.audit.log import Audit
from aileron.daemon.http.injected_tools import InjectedTools
from aileron.ledger import EventFilter, Ledger
from aileron.model.failure import AileronError, FailureClass

pytestmark = pytest.mark.anyio
T = TypeVar("T", InjectionAdded, InjectionSkipped)


class _FullDisk(Audit):
    """A record that cannot be written while `is_full`."""

    is_full = True

    async def note(self, event: Notice | EgressEvent) -> int:
        """Note an event, or raise the error of a ledger on a full disk."""
        if self.is_full:
            raise AileronError(FailureClass.INTERNAL_ERROR, "the disk is full")
        return await super().note(event)


def _on_record(ledger: Ledger, kind: type[T]) -> list[T]:
    wanted = EventFilter(session="ses-1", oldest_first=True)
    return [row.event for row in ledger.read_now(lambda look: look.events_of(kind, wanted))]


async def test_injected_tools_that_could_not_be_recorded_are_recorded_later(ledger: Ledger) -> None:
    """Every request fails until the record works again; then an unchanged list is recorded only once."""
    audit = _FullDisk(ledger)
    tools = InjectedTools(None, None, audit)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(AileronError):
            await tools.added("ses-1", "chat", ["aileron_a"])
        await tools.passed("ses-1", "chat", "n is more than 1")
    audit.is_full = False
    for names in (["aileron_a"], ["aileron_a"], ["aileron_b"], ["aileron_a"]):
        await tools.added("ses-1", "chat", names)
        await tools.passed("ses-1", "chat", "n is more than 1")

    added = _on_record(ledger, InjectionAdded)
    assert [event.tools for event in added] == [("aileron_a",), ("aileron_b",), ("aileron_a",)]
    assert [event.reason for event in _on_record(ledger, InjectionSkipped)] == ["n is more than 1"]
