"""An agent that misbehaves: garbage, floods, a line without end, and one that never reads. None of it reaches another agent."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import INVALID_REQUEST, PARSE_ERROR

from aileron.mcp.lines import MAX_CALLS, MAX_LINE_BYTES, LineTooLong, Splitter
from aileron.mcp.server import McpServer
from tests.mcp.peers import DictDoor, RawPeer, connected, offered, raw_peer, running

DEADLINE_S = 30.0
"""For what takes milliseconds: a hang is a failure."""
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def listening(number: int) -> dict[str, Any]:
    """A request for news of the tools."""
    params = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
    return {"jsonrpc": "2.0", "id": number, "method": "subscriptions/listen", "params": params}


async def works(server: McpServer) -> bool:
    """Whether another agent is served meanwhile."""
    with anyio.fail_after(DEADLINE_S):
        async with connected(server, "auto", "ses-other") as other:
            return not (await other.call_tool("quick", {})).is_error


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
async def test_what_is_no_message_is_answered_and_the_connection_goes_on(
    line: bytes, request_id: object, code: int
) -> None:
    """With JSON-RPC's own error, under the id where there is one; the next request is served."""
    with anyio.fail_after(DEADLINE_S):
        async with running(DictDoor(offered("quick"))) as server, raw_peer(server) as peer:
            await peer.open()
            await peer.say(line)
            refused = await peer.hear()
            await peer.say(b"\n \r\n")  # nothing at all is no message and no mistake
            await peer.say(LIST)

            assert (refused.get("id"), refused["error"]["code"]) == (request_id, code)
            assert (await peer.hear())["id"] == 1


@pytest.mark.anyio
@pytest.mark.parametrize("ending", [b"\n", b""], ids=["ended", "endless"])
async def test_a_line_that_is_too_long_ends_the_connection(ending: bytes) -> None:
    """At the bound, and after saying so; a line that just fits is taken, and other agents notice nothing."""
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


@pytest.mark.anyio
async def test_a_thousand_calls_at_once_are_bounded() -> None:
    """As many as are allowed are under way, the others are told to wait; afterwards there is room again."""
    door = DictDoor(offered("slow"), offered("quick"))
    door.hold = anyio.Event()
    with anyio.fail_after(DEADLINE_S):
        async with running(door) as server, raw_peer(server) as peer:
            await peer.open()
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
async def test_large_calls_at_once_are_bounded_by_their_bytes() -> None:
    """Eight megabytes are under way, the ninth waits for an answer first; one that is answered makes room."""
    door = DictDoor(offered("slow"))
    door.hold = anyio.Event()
    large = {"topic": "x" * (MAX_LINE_BYTES - 200)}
    with anyio.fail_after(DEADLINE_S):
        async with running(door) as server, raw_peer(server) as peer:
            await peer.open()
            for number in range(9):
                await peer.call(number, "slow", large)
            refused = await peer.hear()
            door.hold.set()
            answered = sorted([(await peer.hear())["id"] for _ in range(8)])
            await peer.call("again", "slow", large)
            again = await peer.hear()

    assert (refused["id"], refused["error"]["code"]) == (8, -32000)
    assert (answered, again["id"], "result" in again) == (list(range(8)), "again", True)


@pytest.mark.anyio
async def test_an_id_that_is_in_use_is_refused() -> None:
    """Two answers under one id could not be told apart; 7 and "7" are one id. Afterwards it is free."""
    door = DictDoor(offered("slow"))
    door.hold = anyio.Event()
    with anyio.fail_after(DEADLINE_S):
        async with running(door) as server, raw_peer(server) as peer:
            await peer.open()
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


@pytest.mark.anyio
async def test_a_cancelled_request_makes_room_and_is_never_answered() -> None:
    """Sixty-four that are cancelled do not count any more; a cancellation of what was answered changes nothing."""
    door = DictDoor(offered("slow"), offered("quick"))
    door.hold = anyio.Event()
    with anyio.fail_after(DEADLINE_S):
        async with running(door) as server, raw_peer(server) as peer:
            await peer.open()
            for number in range(MAX_CALLS):
                await peer.call(number, "slow")
            while len(door.calls) < MAX_CALLS:
                await anyio.lowlevel.checkpoint()
            for number in range(MAX_CALLS):
                params = {"requestId": number}
                await peer.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
            await door.cancelled.wait()
            door.hold = None  # for later calls; those under way wait for ever
            while True:  # the last of them may be on its way out
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
async def test_what_is_cancelled_in_the_same_breath_is_never_asked_for() -> None:
    """The next line takes the call back before it comes to the door; the same call, which nobody takes back, does."""
    door = DictDoor(offered("quick"))
    call = {"method": "tools/call", "params": {"name": "quick", "arguments": {}}}
    with anyio.fail_after(DEADLINE_S):
        async with running(door) as server, raw_peer(server) as peer:
            await peer.open()
            for number in range(20):
                cancel = {"method": "notifications/cancelled", "params": {"requestId": number}}
                lines = [{"jsonrpc": "2.0", "id": number, **call}, {"jsonrpc": "2.0", **cancel}]
                await peer.say(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            await peer.call("kept", "quick")
            while (await peer.hear())["id"] != "kept":
                pass

    assert len(door.calls) == 1


@pytest.mark.anyio
async def test_a_cancellation_after_the_answer_leaves_a_question_waiting() -> None:
    """One agent sends one after every call: what waits for a person still does."""
    door = DictDoor(offered("send-mail", gated=True))
    door.answers["send-mail"] = {"status": "pending_approval", "approval_id": "act-1", "audit_id": "run-1"}
    with anyio.fail_after(DEADLINE_S):
        async with running(door) as server, raw_peer(server) as peer:
            await peer.open()
            await peer.call(1, "send_mail")
            await peer.hear()
            await peer.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
            await peer.call(2, "check_action_status", {"id": "act-1"})

            assert (await peer.hear())["result"]["structuredContent"]["status"] == "pending_approval"


@pytest.mark.anyio
async def test_an_agent_that_never_reads_is_ended_and_holds_nobody_up() -> None:
    """It asks for megabytes and for news, and reads nothing: it costs what is under way, until its time is over."""
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
                    tasks.cancel_scope.cancel()  # it was ended

            tasks.start_soon(flood)
            for _ in range(100):
                await server.tools_changed()
            assert await works(server)
            await anyio.sleep_forever()


@pytest.mark.anyio
async def test_a_listener_that_never_reads_is_ended_and_the_others_hear() -> None:
    """Of the newer era: it listens and reads nothing; what changes is told to whoever reads."""
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


@pytest.mark.anyio
async def test_streams_of_one_connection_are_bounded() -> None:
    """One more is refused; after one was cancelled there is room, and another connection has its own."""
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
async def test_a_server_that_ends_leaves_calls_to_the_relay() -> None:
    """No answer is made up for what it cut short: whether that happened is not known, and the relay says so."""
    door = DictDoor(offered("slow"))
    door.hold = anyio.Event()
    with anyio.fail_after(DEADLINE_S):
        async with running(door) as server, raw_peer(server) as peer:
            await peer.open()
            await peer.call(1, "slow")
            await door.begun.wait()
            peer.end_server()
            await door.cancelled.wait()
            heard = await peer.hear()
    assert heard is None


@pytest.mark.anyio
async def test_the_two_eras_do_not_mix_on_one_connection() -> None:
    """What a connection began as, it stays; a request before anything else is refused."""
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
async def test_what_json_cannot_carry_never_reaches_the_door(value: str, words: str) -> None:
    """The SDK's parser lets some of it through, and would call with null: the caller hears where it is, under its id."""
    door = DictDoor(offered("quick"))
    call = json.dumps({**LIST, "method": "tools/call", "params": {"name": "quick", "arguments": {"topic": [1, "?"]}}})
    with anyio.fail_after(DEADLINE_S):
        async with running(door) as server, raw_peer(server) as peer:
            await peer.open()
            await peer.say(call.replace('"?"', value).encode() + b"\n")
            answer = await peer.hear()
            assert answer["id"] == 1
            assert words in json.dumps(answer)
            assert door.calls == []

            await peer.say(call.replace('"?"', r'"\ud83d\ude00"').encode() + b"\n")
            await peer.hear()
            assert [call.args for call in door.calls] == [{"topic": [1, "\U0001f600"]}]


@given(st.data())
def test_any_bytes_end_in_errors_and_nothing_else(data: st.DataObject) -> None:
    """Whatever is sent, each message that comes back is JSON-RPC, and the server serves the next one."""
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
def test_any_split_of_the_bytes_gives_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    """Where the kernel cuts a stream means nothing."""
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
def test_a_splitter_holds_one_line_at_most(pieces: list[bytes]) -> None:
    """A byte more than the bound is too long, whether the line ended or not; as many as the bound are fine."""
    assert Splitter(10).feed(b"x" * 10 + b"\n") == [b"x" * 10]
    splitter = Splitter(10)
    for piece in pieces[:-1]:
        splitter.feed(piece)
    with pytest.raises(LineTooLong):
        splitter.feed(pieces[-1])


def test_the_peer_of_these_tests_reads_what_it_is_sent() -> None:
    """A `RawPeer` that heard nothing would make the silence above mean nothing."""

    async def talk() -> None:
        async with running(DictDoor()) as server, raw_peer(server) as peer:
            assert isinstance(peer, RawPeer)
            await peer.open()

    anyio.run(talk)
