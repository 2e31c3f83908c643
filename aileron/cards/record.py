"""The record of a run, as a person views it afterwards: how the run ended, and every request that it sent.

Pure; the console and the page show the same. Every text has been escaped (model/visible.py).

Source: docs/reference/audit-events.md. Not here: reading the record (daemon/, over `GET /v1/audit/{id}`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from aileron.model.json_value import JSON, JSONObject
from aileron.model.visible import as_fact, as_text, visible, visible_lines

if TYPE_CHECKING:
    from aileron.api.audit import RecordOfRun
    from aileron.api.runs import RunState

__all__ = ["Left", "Record", "record_of", "requests_of", "result_lines"]

_OF_REQUESTS: Final = ("egress.sending", "egress.denied", "egress.finished")
_MAX_RESULT: Final = 20_000
"""Maximum number of characters of a result that are shown; `aileron audit show` prints the complete result."""


class Left(msgspec.Struct, frozen=True):
    """A request that a connector sent or tried to send.

    `at` is RFC 3339; `where` is HOST:PORT, sizes are those of the bodies. `ended` is the HTTP status, the failure's class, or
    words for an unknown outcome.
    """

    at: str
    step: str
    method: str
    where: str
    path: str
    ended: str
    bytes_up: int | None = None
    bytes_down: int | None = None
    ms: int | None = None
    credential: str | None = None
    note: str | None = None
    is_bad: bool = False
    is_denied: bool = False
    """True if the egress engine denied the request."""


class Record(msgspec.Struct, frozen=True):
    """A recorded run: its state, its events in order, and its requests. `is_cut` means that the ledger has more events of the
    run.
    """

    audit_id: str
    status: str
    events: tuple[tuple[str, str, str], ...]
    """Events, each with its time (RFC 3339), its type, and its facts."""
    requests: tuple[Left, ...]
    is_cut: bool
    came_back: tuple[str, ...] | None = None
    """Lines of the result; None if there is no result, or it was not requested."""
    left_out: int = 0
    """Number of characters of the result that are left out."""


def result_lines(result: Any) -> tuple[list[str], int]:
    """Return the escaped lines of an operation's result, and the number of characters that are left out."""
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, indent=2)
    return visible_lines(text[:_MAX_RESULT]), max(0, len(text) - _MAX_RESULT)


def record_of(found: RecordOfRun, outcome: RunState | None = None) -> Record:
    """Return the record from the response to `GET /v1/audit/{id}` and the result from `GET /v1/action-approvals/{id}/result`."""
    has_result = outcome is not None and outcome.result is not UNSET
    came_back, left_out = result_lines(outcome.result) if has_result and outcome else (None, 0)
    return Record(
        audit_id=visible(found.audit_id),
        status=visible(found.status or "refused"),
        events=tuple(_told(event) for event in found.events if event.get("type") not in _OF_REQUESTS),
        requests=tuple(requests_of(found.events)),
        is_cut=bool(found.truncated),
        came_back=None if came_back is None else tuple(came_back),
        left_out=left_out,
    )


def requests_of(events: Iterable[Mapping[str, JSON]]) -> list[Left]:
    """Return every request of a run, sent or denied, in order."""
    rows: dict[tuple[Any, Any, int], tuple[Mapping[str, JSON], Mapping[str, JSON]]] = {}
    tries: dict[tuple[Any, Any], int] = {}
    for event in events:
        kind, key = event.get("type"), (event.get("step"), event.get("request"))
        if kind in ("egress.sending", "egress.denied"):
            tries[key] = tries.get(key, 0) + 1  # each try of a step counts its requests from the start
            rows[*key, tries[key]] = (event, {})
        elif kind == "egress.finished" and key in tries:
            rows[*key, tries[key]] = (rows[*key, tries[key]][0], event)
    return [_left(sent, end) for sent, end in rows.values()]


def _left(sent: Mapping[str, JSON], end: Mapping[str, JSON]) -> Left:
    at, step, method = as_text(sent.get("at")), as_text(sent.get("step")), as_text(sent.get("method"))
    if sent.get("type") == "egress.denied":
        return Left(
            at=at,
            step=step,
            method=method,
            where=as_text(sent.get("destination")),
            path="",
            ended=f"NOT LET OUT: {as_text(sent.get('reason'))}",
            note="nothing of it left",
            is_bad=True,
            is_denied=True,
        )
    status, failed, scrubbed = end.get("status"), end.get("class"), end.get("scrubbed") or 0
    words = ", ".join(as_text(part) for part in (status, failed) if part is not None)
    return Left(
        at=at,
        step=step,
        method=method,
        where=f"{as_text(sent.get('host'))}:{as_text(sent.get('port'))}",
        path=as_text(sent.get("path")),
        ended=words or ("no answer" if end else "left, and nothing came back"),
        bytes_up=_number(end.get("bytes_up")),
        bytes_down=_number(end.get("bytes_down")),
        ms=_number(end.get("ms")),
        credential=None if sent.get("credential") is None else as_text(sent.get("credential")),
        note=f"the secret came back {scrubbed} times, and was blotted out" if scrubbed else None,
        is_bad=not end or failed is not None or (isinstance(status, int) and status >= 400),
    )


def _told(event: JSONObject) -> tuple[str, str, str]:
    hidden = {"seq", "at", "type", "run", "hash", "args", "plan", "layers", "steps"}
    facts = " ".join(f"{visible(name)}={as_fact(value)}" for name, value in event.items() if name not in hidden)
    return as_text(event.get("at")), as_text(event.get("type")), facts


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
