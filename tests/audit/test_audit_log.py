"""The verbs of a run: the events and state that each writes, and the data that it never writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from aileron.audit import query
from aileron.audit.events import EVENT_TYPES, Event, Genesis, SecretSet, VaultCreated
from aileron.audit.log import Audit, Repeated
from aileron.audit.moves import MAX_DETAILS_BYTES, MAX_MESSAGE_CHARACTERS, MAX_OUTCOME_BYTES
from aileron.audit.verify import verify
from aileron.egress.journal import RequestIntent, RequestReport
from aileron.ledger import Ledger
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.json_value import JSONObject
from aileron.model.names import HostPort
from aileron.model.outcome import Failed, Outcome, RunStatus, Succeeded
from aileron.model.plan import Plan
from aileron.runs.journal import LedgerJournal
from tests.audit.conftest import Clock, a_plan, an_invocation, cut_short
from tests.support.answers import as_json
from tests.support.refusals import refusal

pytestmark = pytest.mark.anyio

Facts = Callable[..., list[dict[str, Any]]]
LAYERS = ("seccomp", "landlock 7")


def a_failure(failure_class: FailureClass = FailureClass.NETWORK_ERROR, **changes: Any) -> Failure:
    """Return a failure outside of Aileron."""
    failure = Failure(failure_class=failure_class, message="no answer", boundary=Boundary.EXTERNAL)
    return msgspec.structs.replace(failure, **changes)


def row_of(ledger: Ledger, run_id: str) -> Any:
    """Return the run as it is now."""
    return ledger.read_now(lambda snapshot: snapshot.run(run_id))


async def test_an_ungated_run_is_requested_and_started_in_one_commit(
    audit: Audit, plan: Plan, asked: Invocation, facts: Facts, ledger: Ledger
) -> None:
    """Both rows exist when the call returns, have the whole plan, and have the same time."""
    run_id = await audit.requested(plan, asked, layers=LAYERS)

    requested, started = facts(run_id)
    assert requested == {
        "type": "run.requested",
        "run": run_id,
        "session": "local",
        "scope": "agent",
        "action": "send-email",
        "action_version": "1.2.0",
        "action_digest": plan.action_digest,
        "plan_digest": plan.digest,
        "args": {"to": "a@example.com"},
        "steps": [
            {
                "id": "send",
                "connector": "github://acme/mail",
                "version": "1.2.0",
                "hash": plan.steps[0].connector.hash,
                "op": "send_email",
                "hosts": ["api.example.com:443"],
                "credential": "basic/mail/office",
                "idempotent": False,
                "scope": "send mail",
            }
        ],
    }
    assert started == {
        "type": "run.started",
        "run": run_id,
        "step": "send",
        "connector": "github://acme/mail",
        "op": "send_email",
        "attempt": 1,
        "layers": list(LAYERS),
    }
    rows = (as_json(await query.run_with_events(ledger, run_id)))["events"]
    assert rows[0]["at"] == rows[1]["at"]
    assert row_of(ledger, run_id).status is RunStatus.RUNNING


async def test_the_start_recorded_with_the_request_is_not_recorded_again(
    audit: Audit, asked: Invocation, types: Callable[..., list[str]]
) -> None:
    """The start that `requested` recorded is not repeated; every later one is a row of its own."""
    plan = a_plan("look", "send")
    run_id = await audit.requested(plan, asked, layers=LAYERS)
    await audit.started(run_id, plan.steps[0], 1, LAYERS)
    assert types(run_id) == ["run.requested", "run.started"]

    await audit.retried(run_id, plan.steps[0], 1, a_failure(), 1.25)
    await audit.started(run_id, plan.steps[0], 2, LAYERS)
    await audit.started(run_id, plan.steps[1], 1, LAYERS)

    assert types(run_id)[2:] == ["run.retried", "run.started", "run.started"]


async def test_an_admitted_run_has_the_status_approved_until_it_starts(
    audit: Audit, plan: Plan, asked: Invocation, ledger: Ledger
) -> None:
    """A run that still has this status after a crash had no effect."""
    run_id = await audit.requested(plan, asked)
    assert row_of(ledger, run_id).status is RunStatus.APPROVED

    await audit.started(run_id, plan.steps[0], 1, LAYERS)

    assert row_of(ledger, run_id).status is RunStatus.RUNNING
    assert row_of(ledger, run_id).connector == "github://acme/mail"


async def test_success_is_recorded_with_the_digest_of_its_result(
    audit: Audit, plan: Plan, asked: Invocation, facts: Facts, ledger: Ledger
) -> None:
    """The result is beside the chain and bound to it; status and row change together."""
    run_id = await audit.requested(plan, asked, layers=LAYERS)
    outcome = Succeeded(run_id=run_id, result={"id": 7, "text": "\u202e!"})

    assert await audit.finished(run_id, outcome, 12) is outcome

    row = row_of(ledger, run_id)
    finished = facts(run_id)[-1]
    assert finished.pop("outcome_digest").startswith("sha256:")
    assert finished == {
        "type": "run.finished",
        "run": run_id,
        "session": "local",
        "action": "send-email",
        "connector": "github://acme/mail",
        "status": "completed",
        "ms": 12,
    }
    assert row.status is RunStatus.COMPLETED
    assert query.outcome_of(row) == outcome


async def test_failure_is_recorded_with_its_class_and_details(
    audit: Audit, plan: Plan, asked: Invocation, facts: Facts, ledger: Ledger
) -> None:
    """The record has everything that the caller is told."""
    run_id = await audit.requested(plan, asked, layers=LAYERS)
    failure = a_failure(details={"phase": "connect", "ratio": 0.5})

    await audit.finished(run_id, Failed(run_id=run_id, failure=failure), 12)

    finished = facts(run_id)[-1]
    assert (finished["status"], finished["class"], finished["message"]) == ("failed", "network_error", "no answer")
    assert (finished["boundary"], finished["details"]) == ("external", failure.details)
    assert query.outcome_of(row_of(ledger, run_id)) == Failed(run_id=run_id, failure=failure)


async def test_a_run_can_end_only_once(
    audit: Audit, plan: Plan, asked: Invocation, types: Callable[..., list[str]]
) -> None:
    """A second caller is told how the run ended, and no event is added."""
    run_id = await audit.requested(plan, asked, layers=LAYERS)
    await audit.finished(run_id, Succeeded(run_id=run_id, result=1), 1)

    for late in (
        audit.finished(run_id, Failed(run_id=run_id, failure=a_failure()), 2),
        audit.interrupted(run_id),
        audit.started(run_id, plan.steps[0], 2, LAYERS),
    ):
        assert (await refusal(late)).details == {"status": "completed"}
    assert types(run_id) == ["run.requested", "run.started", "run.finished"]


async def test_an_unknown_outcome_is_recorded_as_unknown_and_not_as_failed(
    audit: Audit, plan: Plan, asked: Invocation, ledger: Ledger, facts: Facts
) -> None:
    """A run whose daemon was killed, or whose executor cannot tell, is `unknown` and never `failed`."""
    first = await audit.requested(plan, asked, layers=LAYERS)
    await cut_short(audit, first, plan)
    second = await audit.requested(plan, msgspec.structs.replace(asked, again=first), layers=LAYERS)
    await audit.finished(second, Failed(run_id=second, failure=a_failure(FailureClass.OUTCOME_UNKNOWN)), 5)

    for run_id in (first, second):
        assert facts(run_id)[-1]["type"] == "run.unknown"
        state = as_json(await query.run_state(ledger, run_id, None))
        assert state["status"] == "unknown"
        assert state["error"]["class"] == FailureClass.OUTCOME_UNKNOWN


async def test_a_request_that_does_not_resolve_to_a_plan_is_recorded_as_one_row(
    audit: Audit, facts: Facts, ledger: Ledger
) -> None:
    """The row has class, message and the requested name, but no arguments."""
    asked = an_invocation(action="no-such" + "x" * 500 + "\ud800", args={"secret": "s3cret-value"})

    audit_id = await audit.refused(asked, a_failure(FailureClass.NOT_FOUND))

    (_, row) = facts()
    assert row == {
        "type": "run.refused",
        "run": audit_id,
        "session": "local",
        "scope": "agent",
        "action": ("no-such" + "x" * 500)[:200],
        "class": "not_found",
        "message": "no answer",
    }
    assert row_of(ledger, audit_id) is None


async def test_an_outgoing_request_is_recorded_before_it_is_sent_and_after_it_ended(
    audit: Audit, plan: Plan, asked: Invocation, facts: Facts
) -> None:
    """The rows have destination, credential, bytes and time; never a query string, even if a caller passes one."""
    run_id = await audit.requested(plan, asked, layers=LAYERS)
    journal, where = LedgerJournal(audit, run_id).of_step(plan.steps[0]), HostPort("api.example.com", 443)

    await journal.sending(RequestIntent(1, "POST", where, "/v1/send?token=s3cret", "basic/mail/office"))
    await journal.finished(RequestReport(1, 200, 10, 20, 3.7, "93.184.216.34", 1, None))
    assert [fact["type"] for fact in facts(run_id)[2:]] == ["egress.sending"], "the end waits for company"
    await audit.daemon_stopped("1.0.0")

    common = {"run": run_id, "step": "send", "connector": "github://acme/mail", "request": 1}
    assert facts(run_id)[2:] == [
        {
            "type": "egress.sending",
            **common,
            "method": "POST",
            "host": "api.example.com",
            "port": 443,
            "path": "/v1/send",
            "credential": "basic/mail/office",
        },
        {
            "type": "egress.finished",
            **common,
            "status": 200,
            "bytes_up": 10,
            "bytes_down": 20,
            "ms": 3,
            "address": "93.184.216.34",
            "scrubbed": 1,
        },
    ]


async def test_events_of_a_connector_are_recorded_unchanged(
    audit: Audit, plan: Plan, asked: Invocation, facts: Facts
) -> None:
    """Hidden characters are kept, because escaping is the task of whoever displays them."""
    run_id, step = await audit.requested(plan, asked, layers=LAYERS), plan.steps[0]
    fields: JSONObject = {"note": "\u202egnp.exe\x1b[2J", "ratio": 0.1, "é": [None, True]}

    await audit.connector_event(run_id, step, "sent\x00" + "x" * 500, fields)

    row = facts(run_id)[-1]
    assert row["fields"] == fields
    assert row["event"] == ("sent\x00" + "x" * 500)[:200]


@pytest.mark.parametrize("fields", [{"n": 2**53}, {"n": float("nan")}, {"n": "x" * MAX_DETAILS_BYTES}])
async def test_an_invalid_audit_event_from_a_connector_fails_the_run(
    audit: Audit, plan: Plan, asked: Invocation, types: Callable[..., list[str]], fields: dict[str, Any]
) -> None:
    """The run fails with the connector's name, and the record is unchanged."""
    run_id, step = await audit.requested(plan, asked, layers=LAYERS), plan.steps[0]

    assert (
        await refusal(
            audit.connector_event(run_id, step, "sent", fields),
            match=r"github://acme/mail@1\.2\.0 wrote an audit event",
        )
    ).failure_class is FailureClass.CONNECTOR_RUNTIME_ERROR
    assert types(run_id) == ["run.requested", "run.started"]


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"n": 2**60}, "cannot be written as canonical JSON"),
        ({"n": "x" * MAX_DETAILS_BYTES}, "at most"),
        ({"n": float("inf")}, "cannot be written as canonical JSON"),
    ],
)
async def test_a_failure_is_recorded_even_if_its_details_cannot_be_stored(
    audit: Audit, plan: Plan, asked: Invocation, facts: Facts, details: dict[str, Any], reason: str
) -> None:
    """Otherwise a connector could hide its failure by adding details that have no canonical form."""
    run_id = await audit.requested(plan, asked, layers=LAYERS)
    message = "m" * 10_000 + "\ud800"

    await audit.finished(run_id, Failed(run_id=run_id, failure=a_failure(details=details, message=message)), 1)

    finished = facts(run_id)[-1]
    assert reason in finished["details"]["omitted"]
    assert len(finished["message"]) <= MAX_MESSAGE_CHARACTERS
    assert "characters left out" in finished["message"]
    assert finished["message"].endswith("mmm?")  # half a character cannot be recorded


@pytest.mark.parametrize(
    ("result", "failure_class", "words"),
    [
        ({"a": object()}, "connector_runtime_error", "is not JSON"),
        ("\ud800", "connector_runtime_error", "is not JSON"),
        ("x" * MAX_OUTCOME_BYTES, "resource_limit_exceeded", "can be stored"),
    ],
    ids=["object", "surrogate", "large"],
)
async def test_a_result_that_cannot_be_stored_is_recorded_as_a_failure(
    audit: Audit, plan: Plan, asked: Invocation, ledger: Ledger, result: Any, failure_class: str, words: str
) -> None:
    """The run has ended all the same, and its caller gets the recorded failure."""
    run_id = await audit.requested(plan, asked, layers=LAYERS)

    recorded = await audit.finished(run_id, Succeeded(run_id=run_id, result=result), 1)

    assert isinstance(recorded, Failed)
    assert recorded.failure.failure_class == failure_class
    assert words in recorded.failure.message
    assert query.outcome_of(row_of(ledger, run_id)) == recorded


async def test_a_run_whose_arguments_have_no_canonical_form_does_not_begin(
    audit: Audit, plan: Plan, asked: Invocation, types: Callable[..., list[str]]
) -> None:
    """The caller gets an error instead of a run, and no event is recorded."""
    plan = msgspec.structs.replace(plan, args={"text": "\ud800"})

    with pytest.raises((AileronError, ValueError), match="canonical"):
        await audit.requested(plan, asked, layers=LAYERS)

    assert types() == ["genesis"]


async def test_each_lifecycle_event_is_recorded_as_a_row(audit: Audit, facts: Facts, path: Any) -> None:
    """Events about a secret have only its name."""
    await audit.daemon_started("0.1.0", LAYERS, "sha256:0")
    await audit.note(VaultCreated())
    assert await audit.note(SecretSet(name="mail")) == 4
    await audit.daemon_stopped("0.1.0")

    assert facts()[1:] == [
        {
            "type": "daemon.started",
            "version": "0.1.0",
            "home": str(path.parent),
            "layers": list(LAYERS),
            "digest": "sha256:0",
        },
        {"type": "vault.created"},
        {"type": "secret.set", "name": "mail"},
        {"type": "daemon.stopped", "version": "0.1.0"},
    ]


async def test_recovery_after_a_crash_closes_interrupted_runs_and_starts_none(
    audit: Audit, plan: Plan, asked: Invocation, ledger: Ledger, types: Callable[..., list[str]], path: Any, clock: Any
) -> None:
    """A begun run becomes unknown, an admitted one cancelled, an overdue question expired; a waiting one stays. A
    second recovery changes nothing.
    """
    begun = await audit.requested(plan, asked, layers=LAYERS)
    admitted = await audit.requested(plan, asked)
    waiting = await audit.pending(plan, asked, clock.now_us / 1e6 + 900)
    approved = await audit.pending(plan, asked, clock.now_us / 1e6 + 900)
    await audit.decide(approved.approval_id, "approve", digest=plan.digest, surface="cli")
    late = await audit.pending(plan, asked, clock.now_us / 1e6 + 10)
    done = await audit.requested(plan, asked, layers=LAYERS)
    await audit.finished(done, Succeeded(run_id=done, result=None), 1)
    clock.advance(60)

    next_audit = Audit(ledger)
    assert await next_audit.recover() == [begun]
    assert await next_audit.recover() == []

    expected = {
        begun: "unknown",
        admitted: "cancelled",
        waiting.run_id: "pending_approval",
        approved.run_id: "approved",
        late.run_id: "expired",
        done: "completed",
    }
    assert {run_id: row_of(ledger, run_id).status.value for run_id in expected} == expected
    assert types(begun) == ["run.requested", "run.started", "run.unknown"]
    assert types(admitted) == ["run.requested", "run.finished"]
    assert verify(path).is_whole


async def test_a_request_with_the_same_idempotency_key_finds_the_existing_run(
    audit: Audit, plan: Plan, ledger: Ledger
) -> None:
    """The run is found in any state, but not from another session or with other arguments."""
    asked = an_invocation(idempotency_key="k-1")
    assert await audit.earlier(asked) is None
    run_id = await audit.requested(plan, asked, layers=LAYERS)

    found = await audit.earlier(asked)
    assert found is not None
    assert (found.id, found.status) == (run_id, RunStatus.RUNNING)
    assert await audit.earlier(an_invocation(idempotency_key="k-1", session="other")) is None
    assert await audit.earlier(an_invocation()) is None
    for other in ({"args": {"to": "b"}}, {"action": "other"}, {"binding": "home"}):
        assert (
            await refusal(audit.earlier(an_invocation(idempotency_key="k-1", **other)))
        ).failure_class is FailureClass.IDEMPOTENCY_CONFLICT


async def test_a_second_concurrent_request_with_the_same_idempotency_key_records_no_run(
    audit: Audit, plan: Plan, types: Callable[..., list[str]]
) -> None:
    """Two requests look the key up at the same time: the second one writes nothing, and is told the first one's run."""
    asked = an_invocation(idempotency_key="k-1")
    run_id = await audit.requested(plan, asked, layers=LAYERS)
    before = types()

    for late in (audit.requested(plan, asked, layers=LAYERS), audit.pending(plan, asked, 1.9e9)):
        with pytest.raises(AileronError, match=run_id) as caught:
            await late
        assert caught.value.failure.failure_class is FailureClass.BUSY
        assert caught.value.failure.details == {"run_id": run_id}
    assert types() == before


async def test_an_idempotency_key_whose_run_has_an_unknown_outcome_is_refused(audit: Audit, plan: Plan) -> None:
    """The run may have taken effect, so it is not repeated under that key."""
    asked = an_invocation(idempotency_key="k-1")
    run_id = await audit.requested(plan, asked, layers=LAYERS)
    await audit.interrupted(run_id)

    assert (await refusal(audit.earlier(asked), match=run_id)).failure_class is FailureClass.OUTCOME_UNKNOWN


async def test_a_run_with_an_unknown_outcome_is_repeated_only_by_a_request_that_names_its_id(
    audit: Audit, plan: Plan, clock: Clock, facts: Facts, ledger: Ledger
) -> None:
    """A repetition must name the newest such run, and works once, for every caller. Other arguments are not affected."""
    invocation, other = an_invocation(), an_invocation(session="another")
    lost = await audit.requested(plan, invocation, layers=LAYERS)
    await cut_short(audit, lost, plan)
    clock.advance(1)

    for refused in (
        audit.requested(plan, other, layers=LAYERS),
        audit.pending(plan, invocation, clock.now_us / 1_000_000 + 900),
        audit.requested(plan, an_invocation(again="run-20270116T090000-0000"), layers=LAYERS),
    ):
        with pytest.raises(Repeated, match=f"aileron audit show {lost}") as caught:
            await refused
        assert caught.value.failure.failure_class is FailureClass.OUTCOME_UNKNOWN
        assert caught.value.failure.details == {"run_id": lost}
    elsewhere = msgspec.structs.replace(plan, args={"to": "b@example.com"})
    await audit.requested(elsewhere, invocation, layers=LAYERS)
    assert ledger.read_now(lambda snapshot: snapshot.unsettled(plan.digest, clock.now_us)) == lost

    again = await audit.requested(plan, an_invocation(again=lost), layers=LAYERS)
    assert facts(again)[0]["again"] == lost
    clock.advance(1)
    assert (
        await refusal(
            audit.requested(plan, an_invocation(again=lost), layers=LAYERS), match="Request the action without it"
        )
    ).failure_class is FailureClass.INVALID_REQUEST
    await audit.requested(plan, invocation, layers=LAYERS)  # as ever: this one is running, and nobody has lost it

    await cut_short(audit, again, plan)
    clock.advance(1)
    with pytest.raises(Repeated, match=again):
        await audit.requested(plan, an_invocation(again=lost), layers=LAYERS)
    clock.advance(24 * 3600)
    await audit.requested(plan, invocation, layers=LAYERS)


async def test_an_unknown_run_whose_steps_are_all_idempotent_is_repeated(
    audit: Audit, plan: Plan, asked: Invocation
) -> None:
    """A single step that is not idempotent is enough to refuse the repetition."""
    harmless = msgspec.structs.replace(
        plan, steps=tuple(msgspec.structs.replace(step, idempotent=True) for step in plan.steps)
    )
    half = msgspec.structs.replace(plan, steps=(*harmless.steps, *plan.steps))
    for variant in (harmless, half):
        await cut_short(audit, await audit.requested(variant, asked, layers=LAYERS), variant)

    await audit.requested(harmless, asked, layers=LAYERS)
    with pytest.raises(Repeated):
        await audit.requested(half, asked, layers=LAYERS)


async def test_an_unknown_run_that_had_sent_nothing_is_repeated(audit: Audit, plan: Plan, asked: Invocation) -> None:
    """The first run stays unknown. Once a repetition has sent something, a further one is refused."""
    await audit.interrupted(await audit.requested(plan, asked, layers=LAYERS))
    later = await audit.requested(plan, asked, layers=LAYERS)
    await cut_short(audit, later, plan)

    with pytest.raises(Repeated, match=later):
        await audit.requested(plan, asked, layers=LAYERS)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "\ud800"])
async def test_an_invalid_idempotency_key_is_refused(audit: Audit, key: str) -> None:
    """A key is bounded and printable; 255 characters are accepted."""
    assert await audit.earlier(an_invocation(idempotency_key="x" * 255)) is None

    assert (
        await refusal(audit.earlier(an_invocation(idempotency_key=key)))
    ).failure_class is FailureClass.INVALID_REQUEST


async def test_a_request_with_an_idempotency_key_refuses_arguments_without_a_canonical_form(audit: Audit) -> None:
    """A request with a key is compared with the earlier run by the canonical form of its arguments."""
    assert (
        await refusal(audit.earlier(an_invocation(idempotency_key="k", args={"n": 2**60})), match="canonical")
    ).failure_class is FailureClass.BAD_INPUT


async def test_ids_sort_by_time_and_cannot_be_guessed(audit: Audit, plan: Plan, asked: Invocation, clock: Any) -> None:
    """Ids a second apart are in order, and eighty bits of each are random."""
    ids = []
    for _ in range(3):
        ids.append(await audit.requested(plan, asked))
        clock.advance(1)

    assert ids == sorted(ids)
    assert [run_id.rsplit("-", 1)[0] for run_id in ids] == [f"run-20270115T08000{second}" for second in range(3)]
    assert len({run_id.rsplit("-", 1)[1] for run_id in ids}) == 3
    assert all(len(run_id.rsplit("-", 1)[1]) == 20 for run_id in ids)


async def test_every_ledger_row_is_parsed_as_an_event_of_a_known_type(
    audit: Audit, plan: Plan, asked: Invocation, facts: Facts
) -> None:
    """The genesis row is among them, which the ledger writes itself."""
    run_id = await audit.requested(plan, asked, layers=LAYERS)
    await audit.finished(run_id, Failed(run_id=run_id, failure=a_failure(details={"phase": "dns"})), 3)

    events: list[Any] = [msgspec.convert(row, Event) for row in facts()]

    assert isinstance(events[0], Genesis)
    assert [type(event) for event in events] == [EVENT_TYPES[row["type"]] for row in facts()]


async def test_no_event_has_a_field_for_a_secret(audit: Audit, path: Any, plan: Plan, asked: Invocation) -> None:
    """The plan's credential appears only by the binding's name."""
    outcome: Outcome = Succeeded(run_id=await audit.requested(plan, asked, layers=LAYERS), result=None)
    await audit.finished(outcome.run_id, outcome, 1)

    record = json.dumps([msgspec.json.schema(kind) for kind in EVENT_TYPES.values()])

    for word in ("header", "body", "query", "password", "token"):
        assert f'"{word}"' not in record
    assert b"basic/mail/office" in path.with_name("ledger.db-wal").read_bytes()
