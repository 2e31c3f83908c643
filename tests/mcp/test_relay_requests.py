"""The relay's memory of a conversation, and its use after the daemon goes away."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.mcp.relay_requests import (
    MAX_ASKED,
    MAX_KEPT_BYTES,
    MAX_OPEN,
    SAFE,
    ClientConversation,
    message_of,
    refusal,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
IDS: st.SearchStrategy[Any] = st.integers(0, 3) | st.sampled_from(["0", "1", "a", True, None, 1.0, [], "x" * 2000])
METHODS = st.sampled_from([*SAFE, "tools/call", "notifications/initialized", "notifications/cancelled", "", 7])
PARAMS = st.fixed_dictionaries({"name": st.sampled_from(["send", "list_pending"]), "requestId": IDS}) | JSON
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={"id": IDS, "method": METHODS, "params": PARAMS, "result": JSON, "error": JSON},
)
LINES = MESSAGES.map(lambda message: json.dumps(message).encode() + b"\n") | st.binary(max_size=40).map(
    lambda data: data.replace(b"\n", b"") + b"\n"
)
STEPS = st.lists(st.tuples(st.sampled_from(["sent", "heard", "lost"]), LINES), max_size=30)


def line(**message: Any) -> bytes:
    """Return one message as a line."""
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def messages(lines: bytes) -> list[dict[str, Any]]:
    """Return the messages in some lines."""
    return [json.loads(data) for data in lines.splitlines()]


@pytest.fixture
def conversation() -> ClientConversation:
    """Return a new conversation."""
    return ClientConversation()


@given(STEPS)
def test_only_requests_without_effects_are_ever_resent(steps: list[tuple[str, bytes]]) -> None:
    """Any lines in any order, over any number of daemons, lead to whole lines only and never to a second call."""
    conversation = ClientConversation()
    for step, data in steps:
        if step == "sent":
            conversation.sent(data)
        elif step == "heard":
            told = conversation.heard(data)
            assert told == data or told == b"" or message_of(told) is not None
        else:
            for answer in messages(conversation.lost()):
                assert set(answer) == {"jsonrpc", "id", "error"}
            for again in messages(conversation.resumed()):
                assert again["method"] in SAFE | {"notifications/initialized"}
                assert set(again) <= {"jsonrpc", "id", "method", "params"}


@given(STEPS)
def test_every_request_gets_one_answer(steps: list[tuple[str, bytes]]) -> None:
    """A request that the daemon answered gets no second response from the relay; every other one gets exactly one."""
    conversation = ClientConversation()
    answered: list[str] = []
    for _, data in steps:
        conversation.sent(data)
    for _, data in steps:
        message = message_of(data)
        if message is not None and "method" not in message and "id" in message:
            conversation.heard(data)
            answered.append(json.dumps(message["id"]))
    given_up = [json.dumps(answer["id"]) for answer in messages(conversation.lost() + conversation.give_up("why"))]

    assert len(given_up) == len(set(given_up))
    assert not set(given_up) & set(answered)
    assert conversation.lost() == b""


@given(st.binary(max_size=200) | MESSAGES.map(lambda message: json.dumps(message).encode()))
def test_the_relay_answers_a_refused_request_but_not_a_refused_notification(data: bytes) -> None:
    """The refusal has the request's id; notifications and responses are not answered."""
    answer = refusal(data, "why")
    message = message_of(data)
    if answer:
        assert message is not None
        assert messages(answer)[0]["id"] == message["id"]
        assert type(message["id"]) in (int, str)


def test_the_memory_of_the_relay_is_bounded(conversation: ClientConversation) -> None:
    """A request that does not fit cannot be resent later; after a reconnect, its client is told to ask again."""
    size = 1000
    for number in range(MAX_OPEN):
        conversation.sent(line(id=number, method="ping", params={"x": "y" * size}))
        assert conversation.is_full == (number == MAX_OPEN - 1)
    given_up = messages(conversation.lost())
    again = conversation.resumed()

    assert len(again) <= MAX_KEPT_BYTES + MAX_OPEN
    assert len(given_up) + len(messages(again)) == MAX_OPEN
    assert "ask again" in given_up[0]["error"]["message"]


def test_the_relay_resends_a_request_at_most_a_few_times(conversation: ClientConversation) -> None:
    """The client is told after MAX_ASKED (four) daemons that went away."""
    conversation.sent(line(id=1, method="tools/list"))
    for _ in range(MAX_ASKED - 1):
        assert conversation.lost() == b""
        assert len(messages(conversation.resumed())) == 1

    assert [answer["id"] for answer in messages(conversation.lost())] == [1]
    assert conversation.resumed() == b""


def test_a_failed_handshake_is_not_repeated(conversation: ClientConversation) -> None:
    """The relay replays only a handshake that the daemon accepted; the client may try another."""
    conversation.sent(line(id=1, method="initialize", params={}))
    conversation.heard(line(id=1, error={"code": -32022, "message": "no"}))

    assert conversation.lost() + conversation.resumed() == b""


def test_the_number_1_and_the_text_1_are_different_ids(conversation: ClientConversation) -> None:
    """A response to one of them leaves the other request unanswered."""
    conversation.sent(line(id=1, method="tools/call"))
    conversation.sent(line(id="1", method="tools/call"))
    conversation.heard(line(id=1, result={}))

    assert [answer["id"] for answer in messages(conversation.lost())] == ["1"]


def test_an_id_made_by_the_relay_never_equals_an_id_chosen_by_the_client(conversation: ClientConversation) -> None:
    """A client that uses such an id gets its own answers."""
    conversation.sent(line(id=1, method="initialize", params={}))
    conversation.heard(line(id=1, result={}))
    conversation.sent(line(id="aileron-relay-1", method="tools/list"))
    conversation.lost()
    own, theirs = messages(conversation.resumed())

    assert (own["id"], theirs["id"]) == ("aileron-relay-2", "aileron-relay-1")
    assert conversation.heard(line(id="aileron-relay-1", result={})) != b""
    assert conversation.heard(line(id="aileron-relay-2", result={})) == b""


def test_a_subscription_that_did_not_ask_for_tool_changes_gets_no_notification_when_it_is_reopened(
    conversation: ClientConversation,
) -> None:
    """The subscription is opened again all the same, silently."""
    acknowledged = {
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": {}, "_meta": {"io.modelcontextprotocol/subscriptionId": 1}},
    }
    conversation.sent(line(id=1, method="subscriptions/listen"))
    assert conversation.heard(line(**acknowledged)) == line(**acknowledged)
    conversation.lost()
    conversation.resumed()
    assert conversation.is_resuming
    assert not conversation.is_waiting
    assert conversation.heard(line(**acknowledged)) == b""
    assert not conversation.is_resuming
