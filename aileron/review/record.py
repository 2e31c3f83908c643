"""A run on record, as a person looks at it afterwards: how it ended, and every request that left for it.

Pure; the console and the page show the same. Every text has been made harmless (model/visible.py).

Source: docs/reference/audit-events.md. Not here: where the record is read (daemon/, over `GET /v1/audit/{id}`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from aileron.model.visible import as_text, visible

__all__ = ["Left", "Record", "record_of"]


@dataclasses.dataclass(frozen=True)
class Left:
    """One request of a connector. `ended`: its HTTP status, the class of its failure, or that nobody knows."""

    method: str
    where: str
    path: str
    ended: str
    bytes_up: int | None
    bytes_down: int | None
    ms: int | None
    credential: str | None
    note: str | None
    is_denied: bool = False


@dataclasses.dataclass(frozen=True)
class Record:
    """One run: its state, what happened in order, and what left. `is_cut`: there is more on record than this."""

    audit_id: str
    status: str
    events: tuple[tuple[str, str, str], ...]
    """When (RFC 3339), the type, and what it says."""
    requests: tuple[Left, ...]
    is_cut: bool


def record_of(found: Mapping[str, Any]) -> Record:
    """What `GET /v1/audit/{id}` answered."""
    events = [event for event in found.get("events") or [] if isinstance(event, dict)]
    return Record(
        audit_id=visible(str(found.get("audit_id"))),
        status=visible(str(found.get("status") or "refused")),
        events=tuple(_told(event) for event in events if not str(event.get("type")).startswith("egress.")),
        requests=tuple(_requests(events)),
        is_cut=bool(found.get("truncated")),
    )


def _requests(events: list[dict[str, Any]]) -> Iterator[Left]:
    """In the order in which they left; a request that was sent and has no end is one of which nobody knows."""
    ends = {_key(event): event for event in events if event.get("type") == "egress.finished"}
    for event in events:
        match event.get("type"):
            case "egress.sending":
                yield _left(event, ends.get(_key(event)))
            case "egress.denied":
                yield Left(
                    method=as_text(event.get("method")),
                    where=as_text(event.get("destination")),
                    path="",
                    ended=f"denied: {as_text(event.get('reason'))}",
                    bytes_up=None,
                    bytes_down=None,
                    ms=None,
                    credential=None,
                    note="nothing of it left",
                    is_denied=True,
                )


def _left(sent: dict[str, Any], end: dict[str, Any] | None) -> Left:
    end = end or {}
    status, failed = end.get("status"), end.get("class")
    ended = as_text(status) if status is not None else as_text(failed) if failed is not None else "nobody knows"
    scrubbed = end.get("scrubbed") or 0
    return Left(
        method=as_text(sent.get("method")),
        where=f"{as_text(sent.get('host'))}:{as_text(sent.get('port'))}",
        path=as_text(sent.get("path")),
        ended=ended if failed is None or status is None else f"{ended}, {as_text(failed)}",
        bytes_up=_number(end.get("bytes_up")),
        bytes_down=_number(end.get("bytes_down")),
        ms=_number(end.get("ms")),
        credential=None if sent.get("credential") is None else as_text(sent.get("credential")),
        note=f"the secret came back {scrubbed} times, and was blotted out" if scrubbed else None,
    )


def _told(event: dict[str, Any]) -> tuple[str, str, str]:
    hidden = {"seq", "at", "type", "run", "hash", "args", "plan", "layers", "steps"}
    facts = " ".join(f"{visible(name)}={as_text(value)}" for name, value in event.items() if name not in hidden)
    return as_text(event.get("at")), as_text(event.get("type")), facts


def _key(event: dict[str, Any]) -> tuple[Any, ...]:
    return event.get("step"), event.get("connector"), event.get("request"), event.get("attempt")


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
