"""Results for agents: every end of a call has the same facts in text and in structuredContent, and says what to do next."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.mcp import results
from aileron.mcp.agent_port import CallState
from aileron.mcp.results import PAGE_BYTES, ToolResult, pages_of, refused, state_result
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.outcome import RunStatus
from tests.support.hostile_text import assert_harmless, hostile
from tests.support.shaped import shaped

ERROR = {"class": "external_api_error", "message": "the service said 404", "retriable": False, "boundary": "external"}
STATES: dict[RunStatus, dict[str, Any]] = {
    RunStatus.PENDING_APPROVAL: {
        "approval_id": "act-1",
        "audit_id": "run-1",
        "review_url": "http://localhost:7/approvals/act-1",
        "message": "Nothing has happened yet: a person must decide this first, at http://localhost:7/approvals/act-1.",
        "expires_at": "2026-11-21T20:00:00.000Z",
        "poll_after_ms": 1500,
    },
    RunStatus.APPROVED: {"approval_id": "act-1", "audit_id": "run-1", "held_until": "2026-11-21T20:00:00.000Z"},
    RunStatus.RUNNING: {"run_id": "run-1", "poll_after_ms": 1000},
    RunStatus.COMPLETED: {"audit_id": "run-1", "result": {"sent": True}},
    RunStatus.FAILED: {"audit_id": "run-1", "error": ERROR},
    RunStatus.DENIED: {"approval_id": "act-1", "audit_id": "run-1", "reason": "not on a Sunday"},
    RunStatus.EXPIRED: {"approval_id": "act-1", "audit_id": "run-1"},
    RunStatus.CANCELLED: {"approval_id": "act-1", "audit_id": "run-1"},
    RunStatus.UNKNOWN: {"audit_id": "run-1"},
}
"""A state for each status word, in the form in which the door reports it."""


def state(status: RunStatus, **more: Any) -> CallState:
    """Return the sample state of this status, with more fields."""
    found: CallState = shaped({"status": status.value, **STATES[status], **more})
    return found


def facts(result: ToolResult) -> dict[str, Any]:
    """Return structuredContent; check that the text has its sentences and the same JSON."""
    found = result.facts
    sentence, _, document = result.text.partition("\n\n")
    assert json.loads(document) == found
    assert sentence == f"{found['message']}\n{found['next_step']}"
    return found


@pytest.mark.parametrize("status", RunStatus)
def test_every_status_says_what_happened_and_what_to_do_next(status: RunStatus) -> None:
    """The result has every fact of the door, and always an id to ask about."""
    told = facts(state_result(state(status)))

    assert told["status"] == status.value
    assert told["message"]
    assert told["next_step"].endswith(".")
    assert told["id"] in ("act-1", "run-1")
    assert {name: told[name] for name in STATES[status] if name != "message"} == {
        name: value for name, value in STATES[status].items() if name != "message"
    }
    assert ("poll_after_ms" in told) == (not status.is_final)


def test_only_a_run_that_ended_without_completing_is_an_error() -> None:
    """Agents display errors differently, so pending and completed calls must not have the mark."""
    errors = {status for status in RunStatus if state_result(state(status)).is_error}

    assert errors == {
        RunStatus.FAILED,
        RunStatus.DENIED,
        RunStatus.EXPIRED,
        RunStatus.CANCELLED,
        RunStatus.UNKNOWN,
    }


def test_a_pending_call_tells_the_agent_to_poll_and_not_to_repeat_it() -> None:
    """The agent is told to pass the message on to the person, not to decide, and not to call again."""
    told = facts(state_result(state(RunStatus.PENDING_APPROVAL)))

    assert told["message"] == STATES[RunStatus.PENDING_APPROVAL]["message"], "word for word"
    assert "pass this message on" in told["next_step"]
    assert "check_action_status with id act-1" in told["next_step"]
    assert "Do not call the action again" in told["next_step"]
    assert "Do not try to approve it" in told["next_step"]


def test_the_persons_question_to_the_agent_is_in_the_result_of_the_call() -> None:
    """The result quotes the question and says how to answer, because the person is waiting."""
    told = facts(state_result(state(RunStatus.PENDING_APPROVAL, question="Which Mira?")))

    assert (told["question"], "Which Mira?" in told["message"]) == ("Which Mira?", True)
    assert "id act-1 and your answer" in told["next_step"]


def test_a_result_has_the_reason_of_a_denial_or_the_edited_arguments() -> None:
    """The agent learns why a person denied the call, or which arguments they changed."""
    denied = facts(state_result(state(RunStatus.DENIED)))
    edited = facts(state_result(state(RunStatus.COMPLETED, executed_arguments={"to": "mira"})))
    plain = facts(state_result(state(RunStatus.COMPLETED)))

    assert 'A person denied this: "not on a Sunday". Nothing was done.' in denied["message"]
    ended = facts(state_result(state(RunStatus.DENIED, reason="Not today.")))
    assert 'A person denied this: "Not today." Nothing was done.' in ended["message"]
    assert edited["executed_arguments"] == {"to": "mira"}
    assert "A person changed the arguments" in edited["message"]
    assert "changed" not in plain["message"]


def test_an_unknown_outcome_tells_the_agent_not_to_repeat_the_call() -> None:
    """The mark follows from the status and from the class of a failure; a failure with a known outcome has none."""
    unknown = facts(state_result(state(RunStatus.UNKNOWN)))
    failed = facts(state_result(state(RunStatus.FAILED, error={**ERROR, "class": "outcome_unknown"})))
    kept = facts(refused(AileronError(FailureClass.OUTCOME_UNKNOWN, "cut short").failure))
    known = facts(state_result(state(RunStatus.FAILED)))

    assert [told.get("do_not_retry") for told in (unknown, failed, kept, known)] == [True, True, True, None]
    assert all("Do not call it again" in told["next_step"] for told in (unknown, failed, kept))


@pytest.mark.parametrize("failure_class", FailureClass)
@pytest.mark.parametrize("retriable", [True, False])
def test_every_failure_has_its_class_and_advice(failure_class: FailureClass, retriable: bool) -> None:
    """Every failure also says whether another try is worthwhile, even when it is not."""
    error = AileronError(failure_class, "it went wrong", boundary=Boundary.USER, retriable=retriable, details={"n": 1})
    result = refused(error.failure, status=RunStatus.FAILED)
    told = facts(result)

    assert result.is_error
    assert told["error"] == {
        "class": failure_class.value,
        "message": "it went wrong",
        "retriable": retriable,
        "boundary": "user",
        "details": {"n": 1},
    }
    assert (told["status"], told["message"], told["next_step"][-1]) == ("failed", "it went wrong", ".")


def test_an_approved_run_that_cannot_begin_says_why() -> None:
    """An example is a vault that was locked meanwhile."""
    error = {"class": "vault_locked", "message": "the vault is locked", "retriable": False, "boundary": "user"}
    result = state_result(state(RunStatus.APPROVED, error=error))

    assert (result.is_error, "cannot begin now: the vault is locked" in facts(result)["message"]) == (False, True)


def test_the_list_of_pending_calls_is_bounded() -> None:
    """A thousand questions are counted and 25 shown; the digest is not passed on."""
    question = {
        "approval_id": "act-1",
        "action": "send",
        "status": "pending_approval",
        "created_at": "t",
        "digest": "d",
    }
    many = facts(results.pending_list([shaped(question)] * 1000))
    none = facts(results.pending_list([]))

    assert (many["count"], len(many["pending"]), none["count"], none["pending"]) == (1000, 25, 0, [])
    assert "digest" not in many["pending"][0]
    assert many["pending"][0]["id"] == "act-1"  # the name under which the other tools take it


@pytest.mark.abuse_case("A7")
@hostile
def test_untrusted_texts_are_escaped_in_sentences(text: str) -> None:
    """A terminal may show the sentence, so hidden and control characters of reasons and questions are spelled out."""
    text = text.encode("utf-8", "replace").decode()  # JSON cannot carry half of a character
    for result in (
        state_result(state(RunStatus.DENIED, reason=text)),
        state_result(state(RunStatus.PENDING_APPROVAL, question=text)),
        state_result(state(RunStatus.FAILED, error={**ERROR, "message": text})),
        refused(AileronError(FailureClass.BAD_INPUT, text).failure),
    ):
        told = facts(result)
        assert_harmless(told["message"])
        assert "\n" not in told["message"]
        assert_harmless(result.text)
        assert text in (
            told.get("reason"),
            told.get("question"),
            told.get("error", {}).get("message"),
        )  # whole, as a fact


def test_no_tool_result_exceeds_the_lowest_size_limit_of_any_agent() -> None:
    """A text of a million characters does not displace the message and the next step."""
    long = "x" * 1_000_000
    many = {f"k{number}": "v" * 50 for number in range(10_000)}
    error = {**ERROR, "message": long, "requested": long, "granted": [long], "details": {"body": long, **many}}
    page = {"result": ['"'] * 100_000}
    for result in (
        state_result(state(RunStatus.DENIED, reason=long)),
        state_result(state(RunStatus.PENDING_APPROVAL, question=long)),
        state_result(state(RunStatus.FAILED, error=error)),
        state_result(state(RunStatus.APPROVED, error=error)),
        state_result(state(RunStatus.COMPLETED, executed_arguments={"body": long}, **page)),
        state_result(state(RunStatus.COMPLETED, executed_arguments=many, **page)),
        refused(AileronError(FailureClass.BAD_INPUT, long, details=many).failure, status=RunStatus.FAILED),
        results.pending_list([state(RunStatus.PENDING_APPROVAL, action="a" * 64)] * 1000),
    ):
        told = facts(result)
        assert len(json.dumps(told)) < 12_000  # codex's limit for an unknown model (docs/reference/agents.md)
        assert told["message"]
        assert told["next_step"]


def test_a_result_shows_the_facts_that_fit_and_names_the_others() -> None:
    """The order stays; edited arguments are shown up to the size limit."""
    arguments = {"to": "mira", "body": "x" * 5000, "subject": "lunch"}
    told = facts(state_result(state(RunStatus.COMPLETED, executed_arguments=arguments)))["executed_arguments"]

    assert (told["to"], told["subject"]) == ("mira", "lunch")
    assert told["body"].startswith("(left out: 5011 bytes")


def test_a_short_result_comes_whole_and_a_long_one_in_pages() -> None:
    """The limit is PAGE_BYTES of the result's JSON."""
    fits = "x" * (PAGE_BYTES - 2)
    whole = facts(state_result(state(RunStatus.COMPLETED, result=fits)))
    first = facts(state_result(state(RunStatus.COMPLETED, result=fits + "x")))
    last = facts(state_result(state(RunStatus.COMPLETED, result=fits + "x"), page=2))

    assert (whole["result"], "next_page" in whole) == (fits, False)
    assert ("result" in first, first["page"], first["pages"], first["next_page"]) == (False, 1, 2, 2)
    assert ("next_page" in last, last["page"], last["result_json"]) == (False, 2, 'x"')
    assert "check_action_status with this id and page 2" in first["next_step"]
    assert json.loads(first["result_json"] + last["result_json"]) == fits + "x"


@pytest.mark.parametrize(("page", "status"), [(0, "completed"), (2, "completed"), (-1, "completed"), (2, "running")])
def test_asking_for_a_page_that_a_result_does_not_have_is_refused(page: int, status: str) -> None:
    """The refusal is of the class bad_input."""
    with pytest.raises(AileronError, match="there is no page") as caught:
        state_result(state(RunStatus(status)), page=page)
    assert caught.value.failure.failure_class is FailureClass.BAD_INPUT


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
)


_LETTERS = st.text(st.sampled_from('"\\ax\n'), min_size=1) | st.text(
    st.characters(min_codepoint=0x7E, exclude_categories=["Cs"]), min_size=1
)


@given(_JSON, st.integers(0, 3), _LETTERS)
def test_the_pages_of_a_long_result_joined_together_equal_the_result(value: Any, padding: int, letters: str) -> None:
    """Each page keeps to its size and splits no character, whatever the alphabet and wherever the cut falls."""
    result = [value, "p" * padding + letters * (2 * PAGE_BYTES // len(letters.encode()))]
    pages = pages_of(result)

    assert json.loads("".join(pages)) == result
    assert all(page and len(json.dumps(page, ensure_ascii=False).encode()) <= PAGE_BYTES + 2 for page in pages)
    assert len(pages) >= 2
