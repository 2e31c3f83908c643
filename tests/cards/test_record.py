"""A run on record: every request that left, how it ended, and what was denied."""

from __future__ import annotations

from typing import Any

import msgspec

from aileron.api.audit import RecordOfRun
from aileron.api.runs import RunState
from aileron.cards.record import Record, record_of
from tests.support.hostile_text import EVERYTHING, assert_harmless

KEY = {"step": "one", "connector": "mail", "request": 1, "attempt": 1}


def sending(**more: Any) -> dict[str, Any]:
    """Return the event of a request that left."""
    facts = {"method": "POST", "host": "mail.example", "port": 443, "path": "/send", "credential": "basic/mail/home"}
    return {"type": "egress.sending", "at": "t", **facts, **KEY, **more}


def finished(**more: Any) -> dict[str, Any]:
    """Return the event of the request's end."""
    return {
        "type": "egress.finished",
        "at": "t",
        "status": 201,
        "bytes_up": 10,
        "bytes_down": 20,
        "ms": 30,
        **KEY,
        **more,
    }


def recorded(run: dict[str, Any], outcome: dict[str, Any] | None = None) -> Record:
    """Return what a person sees of a run, and of its result."""
    state = None if outcome is None else msgspec.convert({"status": "completed", **outcome}, RunState)
    return record_of(
        msgspec.convert({"audit_id": "run-1", "status": "completed", "events": [], **run}, RecordOfRun), state
    )


def test_a_request_in_a_runs_record_has_its_host_and_status_and_bytes_and_time() -> None:
    """The facts come from the request's two rows, paired by step, connector, request and attempt."""
    (left,) = recorded({"events": [sending(), finished()]}).requests

    assert (left.method, left.where, left.path, left.ended) == ("POST", "mail.example:443", "/send", "201")
    assert (left.bytes_up, left.bytes_down, left.ms, left.credential) == (10, 20, 30, "basic/mail/home")


def test_a_runs_result_is_shown_in_escaped_lines_with_a_count_of_the_lines_left_out() -> None:
    """A text is shown as it is, all else as JSON; there is nothing if the state was not read, or has no result."""
    run: dict[str, Any] = {}

    assert recorded(run).came_back is recorded(run, {"status": "denied"}).came_back is None
    assert recorded(run, {"result": "one\ntwo\x1b[2J"}).came_back == ("one", "two\\x1b[2J")
    assert recorded(run, {"result": {"id": 7}}).came_back == ("{", '  "id": 7', "}")
    assert recorded(run, {"result": None}).came_back == ("null",)
    assert recorded(run, {"result": "x" * 20_001}).left_out == 1


def test_a_request_without_a_recorded_end_is_shown_as_unanswered() -> None:
    """The end of another attempt does not count."""
    left = recorded({"events": [sending(), sending(attempt=2), finished(attempt=2)]}).requests

    assert [request.ended for request in left] == ["left, and nothing came back", "201"]


def test_a_failed_request_is_shown_with_its_reason() -> None:
    """The reason is the failure's class, with the HTTP status if there was one."""
    failed = {"class": "timeout"}
    left = recorded(
        {"events": [sending(), finished(status=None, **failed), sending(request=2), finished(request=2, **failed)]}
    ).requests

    assert [request.ended for request in left] == ["timeout", "201, timeout"]


def test_a_request_that_egress_denied_is_shown_as_not_sent() -> None:
    """The row has its destination and the reason."""
    event = {"type": "egress.denied", "method": "GET", "destination": "evil.example:443", "reason": "not granted"}
    (left,) = recorded({"events": [event]}).requests

    assert (left.where, left.ended, left.note, left.is_bad) == (
        "evil.example:443",
        "NOT LET OUT: not granted",
        "nothing of it left",
        True,
    )


def test_a_secret_masked_in_a_response_is_reported() -> None:
    """The note says how often it was masked."""
    (left,) = recorded({"events": [sending(), finished(scrubbed=2)]}).requests

    assert left.note == "the secret came back 2 times, and was blotted out"


def test_a_truncated_record_of_a_run_is_marked() -> None:
    """The record is longer than the answer that carries it."""
    assert recorded({"truncated": True, "events": []}).is_cut
    assert not recorded({"events": []}).is_cut


def test_no_text_in_a_runs_record_can_look_like_another_fact_of_its_row() -> None:
    """An agent's answer that contains names and values is quoted; a plain word is not."""
    said = "because decision=approve surface=operator"
    answered = {"type": "approval.answered", "at": "t", "approval": "act-1", "text": said, "mark": 'a"b', "count": 2}
    ((_, _, facts),) = recorded({"events": [answered]}).events

    assert facts == f'approval=act-1 text="{said}" mark="a\\"b" count=2'


def test_hostile_text_of_a_service_is_escaped_in_a_runs_record() -> None:
    """The corpus is in every field."""
    events = [
        sending(**dict.fromkeys(("method", "host", "path", "credential"), EVERYTHING)),
        finished(status=EVERYTHING, **{"class": EVERYTHING}),
        {"type": "egress.denied", **dict.fromkeys(("method", "destination", "reason"), EVERYTHING)},
        {"type": EVERYTHING, "at": EVERYTHING, EVERYTHING: EVERYTHING, "deep": [EVERYTHING]},
    ]
    record = recorded({"audit_id": EVERYTHING, "events": events})
    texts = [record.audit_id, record.status, *(word for event in record.events for word in event)]
    for request in record.requests:
        texts += [
            request.method,
            request.where,
            request.path,
            request.ended,
            request.credential or "",
            request.note or "",
        ]
    for text in texts:
        assert_harmless(text)
