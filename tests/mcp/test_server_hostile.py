"""An agent that misbehaves: garbage, floods, an endless line, never reading. Another agent notices none of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import INVALID_REQUEST, PARSE_ERROR

from aileron.mcp.lines import MAX_CALLS, MAX_LINE_BYTES, LineTooLong, Splitter
from tests.mcp.peers import DictDoor, RawPeer, Served, connected, offered, raw_peer, running

DEADLINE_S = 30.0
"""Seconds for what takes milliseconds: a hang is a failure."""
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def listening(number: int) -> dict[str, Any]:
    """Return a subscription to changes of the tools."""
    params = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
    return {"jsonrpc": "2.0", "id": number, "method": "subscriptions/listen", "params": params}


@contextlib.asynccontextmanager
async def opened(door: DictDoor, **options: Any) -> AsyncIterator[RawPeer]:
    """Run a server, and yield an agent that has said hello and speaks in bytes; all within the deadline."""
    with anyio.fail_after(DEADLINE_S):
        async with running(door, **options) as server, raw_peer(server) as peer:
            await peer.open()
            yield peer


async def works(server: Served) -> bool:
    """Return whether another agent is served meanwhile."""
    with anyio.fail_after(DEADLINE_S):
        async with connected(server, "auto", "ses-other") as other:
            return not (await other.call_tool("quick", {})).is_error


@pytest.mark.abuse_case("A2")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("line", "request_id", "code"),
    [
        (b"not json\n", None, PARSE_ERROR),
        (b"\xff\xfe\n", None, PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping"\n', 1, PARSE_ERROR),
        (b'{"method":"x","params":{"id":3,"a":"}{\\""}},"jsonrpc":"2.0","id":"a-1"}}\n', "a-1", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":4,"method":"x","params":{"n":1%s}}\n' % (b"0" * 5000), 4, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"\n', 2, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":"\\ud83d","method":"ping"}\n', "\ud83d", PARSE_ERROR),
        (b'{"params":{"id":3},"method":"ping"\n', None, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":"\\ud800"}}\n', None, PARSE_ERROR),
        (b"[" * 100_000 + b"\n", None, PARSE_ERROR),
        (b'{"a":' * 100_000 + b"\n", None, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\\ud800"}}\n', 1, PARSE_ERROR),
        (b"[]\n", None, INVALID_REQUEST),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', None, INVALID_REQUEST),
        (b"7\n", None, INVALID_REQUEST),
        (b"null\n", None, INVALID_REQUEST),
        (b'{"id":5,"method":"ping"}\n', 5, INVALID_REQUEST),
        (b'{"jsonrpc":"1.0","id":"a","method":"ping"}\n', "a", INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":9,"method":7}\n', 9, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":9,"method":"ping","params":[1]}\n', 9, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}\n', None, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}\n', None, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"error":"no"}\n', None, INVALID_REQUEST),
    ],
)
async def test_an_invalid_message_is_answered_without_ending_the_connection(
    line: bytes, request_id: object, code: int
) -> None:
    """The response is a JSON-RPC error with the message's id, if it has one; the next request is served."""
    async with opened(DictDoor(offered("quick"))) as peer:
        await peer.say(line)
        refused = await peer.hear()
        await peer.say(b"\n \r\n")  # blank lines are neither messages nor errors
        await peer.say(LIST)

        assert (refused.get("id"), refused["error"]["code"]) == (request_id, code)
        assert (await peer.hear())["id"] == 1


@pytest.mark.abuse_case("A3")
@pytest.mark.anyio
@pytest.mark.parametrize("ending", [b"\n", b""], ids=["ended", "endless"])
async def test_a_line_that_is_too_long_ends_the_connection(ending: bytes) -> None:
    """The server first sends an error. A line of exactly the limit is accepted, and other agents are unaffected."""
    head = b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"'
    fits = head + b"x" * (MAX_LINE_BYTES - len(head) - 3) + b'"}}'
    assert len(fits) == MAX_LINE_BYTES
    with anyio.fail_after(DEADLINE_S):
        async with running(DictDoor(offered("quick"))) as server, raw_peer(server) as peer:
            await peer.open()
            await peer.say(fits + b"\n")
            assert (await peer.hear())["id"] == 7

            await peer.say(fits + b"x" + ending)
            refused = await peer.hear()
            assert (refused["id"], refused["error"]["code"]) == (7, INVALID_REQUEST)
            assert f"{MAX_LINE_BYTES} bytes" in refused["error"]["message"]
            assert await peer.hear() is None
            assert await works(server)


@pytest.mark.abuse_case("A4")
@pytest.mark.anyio
async def test_a_thousand_concurrent_calls_are_bounded() -> None:
    """Only MAX_CALLS of them run, and the others are refused; later calls are accepted again."""
    door = DictDoor(offered("slow"), offered("quick"))
    door.hold = anyio.Event()
    async with opened(door) as peer:
        answers: list[Any] = []

        async def listen() -> None:
            while len(answers) < 1000:
                answers.append(await peer.hear())
                if len(answers) == 1000 - MAX_CALLS:
                    assert len(door.calls) == MAX_CALLS
                    assert door.hold is not None
                    door.hold.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            for number in range(1000):
                await peer.call(number, "slow")

        refused = [answer for answer in answers if "error" in answer]
        assert sorted(answer["id"] for answer in answers) == list(range(1000))
        assert len(refused) == 1000 - MAX_CALLS
        assert {answer["error"]["code"] for answer in refused} == {-32000}
        await peer.call("again", "quick")
        assert (await peer.hear())["id"] == "again"


@pytest.mark.anyio
async def test_concurrent_calls_are_bounded_by_the_sum_of_their_bytes() -> None:
    """Eight megabytes may be in progress, the ninth is refused; an answered call makes room."""
    door = DictDoor(offered("slow"))
    door.hold = anyio.Event()
    large = {"topic": "x" * (MAX_LINE_BYTES - 200)}
    async with opened(door) as peer:
        for number in range(9):
            await peer.call(number, "slow", large)
        refused = await peer.hear()
        door.hold.set()
        answered = sorted([(await peer.hear())["id"] for _ in range(8)])
        await peer.call("again", "slow", large)
        again = await peer.hear()

    assert (refused["id"], refused["error"]["code"]) == (8, -32000)
    assert (answered, again["id"], "result" in again) == (list(range(8)), "again", True)


@pytest.mark.abuse_case("A4")
@pytest.mark.anyio
async def test_a_request_with_an_id_in_use_is_refused() -> None:
    """Two responses with one id could not be told apart; 7 and "7" count as the same id. Later the id is free again."""
    door = DictDoor(offered("slow"))
    door.hold = anyio.Event()
    async with opened(door) as peer:
        await peer.call(7, "slow")
        await door.begun.wait()
        await peer.call("7", "slow")
        refused = await peer.hear()
        door.hold.set()
        first = await peer.hear()
        await peer.call("7", "slow")
        again = await peer.hear()

        assert (refused["id"], refused["error"]["code"]) == ("7", INVALID_REQUEST)
        assert (first["id"], "result" in first, again["id"], "result" in again) == (7, True, "7", True)


@pytest.mark.abuse_case("A27")
@pytest.mark.anyio
async def test_a_cancelled_request_no_longer_counts_as_in_progress_and_is_never_answered() -> None:
    """64 cancelled calls no longer count towards the limit; cancelling an answered request has no effect."""
    door = DictDoor(offered("slow"), offered("quick"))
    door.hold = anyio.Event()
    async with opened(door) as peer:
        for number in range(MAX_CALLS):
            await peer.call(number, "slow")
        while len(door.calls) < MAX_CALLS:
            await anyio.lowlevel.checkpoint()
        for number in range(MAX_CALLS):
            params: dict[str, Any] = {"requestId": number}
            await peer.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        await door.cancelled.wait()
        door.hold = None  # for later calls; those in progress wait for ever
        while True:  # the last cancelled call may not have ended yet
            await peer.call("after", "quick")
            answer = await peer.hear()
            assert answer["id"] == "after"
            if "result" in answer:
                break
        for gone in ("after", 0, "nobody", None, {"a": 1}):
            params = {"requestId": gone}
            await peer.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        await peer.say(LIST)
        assert (await peer.hear())["id"] == 1


@pytest.mark.anyio
async def test_a_call_cancelled_by_the_next_line_never_reaches_the_daemon() -> None:
    """The control is the same call without a cancellation, which reaches it."""
    door = DictDoor(offered("quick"))
    call = {"method": "tools/call", "params": {"name": "quick", "arguments": {}}}
    async with opened(door) as peer:
        for number in range(20):
            cancel = {"method": "notifications/cancelled", "params": {"requestId": number}}
            lines = [{"jsonrpc": "2.0", "id": number, **call}, {"jsonrpc": "2.0", **cancel}]
            await peer.say(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        await peer.call("kept", "quick")
        while (await peer.hear())["id"] != "kept":
            pass

    assert len(door.calls) == 1


@pytest.mark.anyio
async def test_cancelling_a_call_after_its_response_does_not_withdraw_its_pending_approval() -> None:
    """Some agents send a cancellation after every call, also after one whose approval is still pending."""
    door = DictDoor(offered("send-mail", gated=True))
    door.answers["send-mail"] = {"status": "pending_approval", "approval_id": "act-1", "audit_id": "run-1"}
    async with opened(door) as peer:
        await peer.call(1, "send_mail")
        await peer.hear()
        await peer.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        await peer.call(2, "check_action_status", {"id": "act-1"})

        assert (await peer.hear())["result"]["structuredContent"]["status"] == "pending_approval"


@pytest.mark.abuse_case("A5")
@pytest.mark.anyio
async def test_an_agent_that_never_reads_is_disconnected_and_delays_no_other() -> None:
    """The agent requests megabytes without reading them; after a timeout it loses connection and calls."""
    door = DictDoor(offered("big"), offered("quick"))
    door.answers["big"] = {"status": "completed", "audit_id": "run-1", "result": "x" * 1_000_000}
    with anyio.fail_after(DEADLINE_S):
        async with running(door, write_s=0.5) as server, raw_peer(server) as peer, anyio.create_task_group() as tasks:
            await peer.open()

            async def flood() -> None:
                number = 0
                try:
                    while True:
                        number += 1
                        await peer.call(number, "big")
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    tasks.cancel_scope.cancel()  # the server ended the connection

            tasks.start_soon(flood)
            for _ in range(100):
                await server.tools_changed()
            assert await works(server)
            await anyio.sleep_forever()


@pytest.mark.abuse_case("A5")
@pytest.mark.anyio
async def test_a_subscriber_that_never_reads_does_not_delay_other_subscribers() -> None:
    """The listener, of the newer era, reads nothing; other listeners are told of changes."""
    with anyio.fail_after(DEADLINE_S):
        async with (
            running(DictDoor(offered("quick")), write_s=0.5) as server,
            raw_peer(server, "ses-deaf") as deaf,
            connected(server, "auto") as client,
            client.listen(tools_list_changed=True) as changes,
        ):
            for number in range(8):
                await deaf.say(listening(number))
            for _ in range(500):
                await server.tools_changed()
            assert type(await anext(aiter(changes))).__name__ == "ToolsListChanged"
            assert await works(server)


@pytest.mark.abuse_case("A4")
@pytest.mark.anyio
async def test_the_subscriptions_of_one_connection_are_bounded() -> None:
    """A ninth is refused; a cancelled one makes room, and another connection has its own bound."""
    with anyio.fail_after(DEADLINE_S):
        async with running(DictDoor()) as server, raw_peer(server) as peer, raw_peer(server) as other:
            for number in range(8):
                await peer.say(listening(number))
                assert (await peer.hear())["method"] == "notifications/subscriptions/acknowledged"
            await peer.say(listening(8))
            refused = await peer.hear()
            await peer.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 0}})
            await peer.say(listening(9))
            again = await peer.hear()
            await other.say(listening(0))

            assert (refused["id"], refused["error"]["code"]) == (8, INVALID_REQUEST)
            assert again["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 9
            assert (await other.hear())["method"] == "notifications/subscriptions/acknowledged"


@pytest.mark.anyio
async def test_a_server_that_ends_during_a_call_sends_no_response_to_it() -> None:
    """The server sends no response for a call that it interrupted; the relay reports that the outcome is unknown."""
    door = DictDoor(offered("slow"))
    door.hold = anyio.Event()
    async with opened(door) as peer:
        await peer.call(1, "slow")
        await door.begun.wait()
        peer.end_server()
        await door.cancelled.wait()
        heard = await peer.hear()
    assert heard is None


@pytest.mark.abuse_case("A2")
@pytest.mark.anyio
async def test_a_connection_stays_in_its_protocol_era() -> None:
    """The first message determines the era; a request before any handshake is refused."""
    with anyio.fail_after(DEADLINE_S):
        async with running(DictDoor(offered("quick"))) as server:
            async with raw_peer(server) as peer:
                await peer.say(LIST)
                assert "error" in await peer.hear()
            async with raw_peer(server) as peer:
                await peer.say({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": ENVELOPE}})
                assert "2026-07-28" in (await peer.hear())["result"]["supportedVersions"]
                await peer.say({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {}})
                assert (await peer.hear())["error"]["code"] == -32022
            async with raw_peer(server) as peer:
                await peer.say({"jsonrpc": "2.0", "id": 1, "method": "server/discover"})
                assert "error" in await peer.hear()  # at once: an agent that probes falls back
                await peer.open()
                await peer.say({**LIST, "params": {"_meta": ENVELOPE}})
                assert (await peer.hear())["error"]["code"] == INVALID_REQUEST


@pytest.mark.abuse_case("A2")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("NaN", "topic[1] is no number"),
        ("-Infinity", "topic[1] is no number"),
        ("1e400", "topic[1] is no number"),
        (r'"x\ud83d"', "params.arguments.topic[1] has half of a character"),
        (r'{"\ude00": 1}', "params.arguments.topic[1] has a key with half of a character"),
    ],
)
async def test_values_that_json_cannot_represent_never_reach_the_daemon(value: str, words: str) -> None:
    """The SDK's parser would pass NaN on as null; instead, the caller gets an error that names the place."""
    door = DictDoor(offered("quick"))
    call = json.dumps({**LIST, "method": "tools/call", "params": {"name": "quick", "arguments": {"topic": [1, "?"]}}})
    async with opened(door) as peer:
        await peer.say(call.replace('"?"', value).encode() + b"\n")
        answer = await peer.hear()
        assert answer["id"] == 1
        assert words in json.dumps(answer)
        assert door.calls == []

        await peer.say(call.replace('"?"', r'"\ud83d\ude00"').encode() + b"\n")
        await peer.hear()
        assert [call.args for call in door.calls] == [{"topic": [1, "\U0001f600"]}]


@pytest.mark.abuse_case("A2")
@given(st.data())
def test_arbitrary_bytes_cause_only_errors(data: st.DataObject) -> None:
    """Each message that comes back is a JSON-RPC error, and the server serves the next connection."""
    pieces = st.one_of(
        st.binary(max_size=60),
        st.sampled_from([b"\n", json.dumps(LIST).encode(), b'{"jsonrpc":"2.0","method":"notifications/', b'"id":']),
    )
    lines = data.draw(st.lists(pieces, max_size=20))

    async def talk() -> None:
        with anyio.fail_after(DEADLINE_S):
            async with running(DictDoor(offered("quick"))) as server, raw_peer(server) as peer:
                await peer.say(b"".join(lines) + b"\n")
                await peer.stream.send_eof()
                while (said := await peer.hear()) is not None:
                    assert said["jsonrpc"] == "2.0"
                    assert "error" in said
                async with raw_peer(server) as other:
                    await other.open()

    anyio.run(talk)


@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line)), st.data())
def test_any_split_of_the_received_bytes_gives_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    """The places where the kernel cuts a stream have no meaning."""
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    splitter = Splitter()
    found = [
        line
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for line in splitter.feed(stream[start:end])
    ]

    assert found == [line for line in lines if line.strip()]


@pytest.mark.parametrize("pieces", [[b"x" * 11], [b"x" * 6, b"x" * 5], [b"a\n" + b"x" * 11], [b"x" * 11 + b"\n"]])
def test_the_line_splitter_buffers_at_most_one_line(pieces: list[bytes]) -> None:
    """A line of one byte more than the limit is too long, even before it ends; a line of the limit is accepted."""
    assert Splitter(10).feed(b"x" * 10 + b"\n") == [b"x" * 10]
    splitter = Splitter(10)
    for piece in pieces[:-1]:
        splitter.feed(piece)
    with pytest.raises(LineTooLong):
        splitter.feed(pieces[-1])


def test_the_raw_test_client_receives_what_the_server_sends() -> None:
    """This is a control: a `RawPeer` that heard nothing would make the silence in other tests meaningless."""

    async def talk() -> None:
        async with running(DictDoor()) as server, raw_peer(server) as peer:
            assert isinstance(peer, RawPeer)
            await peer.open()

    anyio.run(talk)
