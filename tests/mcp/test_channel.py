"""An agent's channel between the daemon and the protocol process, used as a compromised process would use it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Final

import anyio
import anyio.lowlevel
import msgspec
import pytest
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from hypothesis import given
from hypothesis import strategies as st

from aileron.daemon.http.mcp_process import ProtocolProcess
from aileron.mcp.agent_port import Asker, CallState
from aileron.mcp.answering import MAX_UNDER_WAY, answer_agent
from aileron.mcp.asking import Agent, AgentGone
from aileron.mcp.calls import ToolCalls
from aileron.mcp.channel import AT_ONCE, Channel
from aileron.mcp.process_messages import (
    MAX_ASKED_BYTES,
    Answered,
    Asked,
    Call,
    Drop,
    Heard,
    List,
    Listed,
    Progressed,
    Ready,
    Refused,
    Resting,
    Said,
    decode_asked,
    decode_said,
    encode,
)
from tests.mcp.peers import DictDoor, offered

DEADLINE_S: Final = 30.0


def framed(message: bytes) -> bytes:
    """Return a message with its length prefix, as it stands in the stream."""
    return len(message).to_bytes(4, "big") + message


def call(number: int, name: str = "slow", *, arguments: bytes = b"{}", reports: bool = False) -> Call:
    """Return a call that a well-behaved process would pass on."""
    return Call(number, name, arguments, None, reports)


class Taken:
    """The process's end of the channel, in an attacker's hands."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._lines = BufferedByteReceiveStream(stream)

    async def say(self, *asked: Asked | bytes) -> None:
        """Send these messages, or bytes as they are."""
        await self._stream.send(
            b"".join(message if isinstance(message, bytes) else framed(encode(message)) for message in asked)
        )

    async def hear(self) -> Said:
        """Return the next message. Raises anyio.IncompleteRead at the end of the stream."""
        size = int.from_bytes(await self._lines.receive_exactly(4), "big")
        return decode_said(await self._lines.receive_exactly(size))


@contextlib.asynccontextmanager
async def taken(door: DictDoor) -> AsyncIterator[Taken]:
    """Open the channel of an agent of the session `ses-1`."""
    ours, theirs = socket.socketpair()
    with anyio.fail_after(DEADLINE_S):
        async with await SocketStream.from_socket(theirs) as stream, anyio.create_task_group() as tasks:
            tasks.start_soon(answer_agent, ours, ToolCalls(door), Asker("ses-1"))
            yield Taken(stream)
            tasks.cancel_scope.cancel()


@pytest.mark.abuse_case("A45")
@pytest.mark.anyio
async def test_requests_on_a_channel_belong_to_the_session_of_its_agent() -> None:
    """The channel determines the session, as messages cannot name one. Each response has its request's number."""
    door = DictDoor(offered("quick"))
    async with taken(door) as process:
        await process.say(List(1, None), call(2, "quick", arguments=b'{"topic":"x"}'), call(3, "none"), List(4, "mine"))
        answers = [await process.hear() for _ in range(4)]

    said = {answer.id: answer for answer in answers}
    assert [(asked.session, asked.action, asked.args) for asked in door.calls] == [("ses-1", "quick", {"topic": "x"})]
    listed, answered = said[1], said[2]
    assert isinstance(listed, Listed)
    assert "quick" in [tool["name"] for tool in msgspec.json.decode(listed.tools)]
    assert isinstance(answered, Answered)
    assert msgspec.json.decode(answered.facts)["status"] == "completed"
    assert said[3] == Refused(3, "invalid", "Unknown tool: none")
    assert said[4] == Refused(4, "invalid", "cursor: not a cursor of this server")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "arguments", [b"", b"[]", b"{", b'{"topic": NaN}', b"\xff", b'{"a":' * 5000 + b"1" + b"}" * 5000]
)
async def test_arguments_that_are_not_an_object_are_refused_without_ending_the_channel(arguments: bytes) -> None:
    """The refusal is a tool result, which a model reads; no call reaches the daemon."""
    door = DictDoor(offered("quick"))
    async with taken(door) as process:
        await process.say(call(1, "quick", arguments=arguments))
        refused = await process.hear()
        assert isinstance(refused, Answered)
        facts = msgspec.json.decode(refused.facts)
        assert (facts["status"], facts["error"]["class"], door.calls) == ("failed", "bad_input", [])

        await process.say(call(2, "quick"))
        assert (await process.hear()).id == 2


@pytest.mark.abuse_case("A45")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "breach",
    [
        framed(b"\xc1"),
        framed(encode(Progressed(1, 1.0, None, None))),
        framed(encode(call(1))),
        (MAX_ASKED_BYTES + 1).to_bytes(4, "big"),
    ],
    ids=["no message", "a message of the other side", "a number twice", "too long"],
)
async def test_an_invalid_message_ends_the_channel_and_the_calls_in_progress(breach: bytes) -> None:
    """The control is a valid request on the same channel, answered just before."""
    door = DictDoor(offered("slow"))
    door.hold = anyio.Event()
    async with taken(door) as process:
        await process.say(call(1), List(2, None))
        assert (await process.hear()).id == 2
        await door.begun.wait()
        await process.say(breach)
        with pytest.raises(anyio.IncompleteRead):
            await process.hear()
        await door.cancelled.wait()


@pytest.mark.abuse_case("A45")
@pytest.mark.anyio
async def test_calls_in_progress_are_bounded_and_the_others_are_queued() -> None:
    """Queued calls begin as earlier ones end; a call that is cancelled in the queue never begins."""
    door = DictDoor(offered("slow"))
    door.hold = anyio.Event()
    async with taken(door) as process:
        await process.say(*(call(number) for number in range(MAX_UNDER_WAY + 40)), Drop(MAX_UNDER_WAY + 39))
        await anyio.wait_all_tasks_blocked()
        assert len(door.calls) == MAX_UNDER_WAY
        door.hold.set()
        said = [(await process.hear()).id for _ in range(MAX_UNDER_WAY + 39)]

    assert sorted(said) == list(range(MAX_UNDER_WAY + 39))


@pytest.mark.anyio
async def test_only_one_progress_report_is_sent_at_a_time() -> None:
    """A process that does not confirm a report gets no further one, which delays only that call."""

    class Reporting(DictDoor):
        async def state(self, session: str, asked: str, wait_s: float, seen: int | None = None) -> CallState:
            number = (seen or 0) + 1
            if number > 3:
                return {"status": "completed", "audit_id": asked, "result": "sent"}
            return {"status": "running", "audit_id": asked, "progress": {"number": number, "done": number}}

    door = Reporting(offered("slow"), offered("quick"))
    door.answers["slow"] = {"status": "running", "run_id": "run-1"}
    async with taken(door) as process:
        await process.say(call(1, reports=True))
        heard = [await process.hear()]
        await process.say(call(2, "quick"))
        assert (await process.hear()).id == 2
        while isinstance(heard[-1], Progressed):
            await process.say(Heard(1))
            heard.append(await process.hear())

    assert [report.progress for report in heard if isinstance(report, Progressed)] == [1, 2, 3]
    assert isinstance(heard[-1], Answered)


@pytest.mark.abuse_case("A45")
@pytest.mark.anyio
async def test_a_flood_of_messages_does_not_block_the_event_loop() -> None:
    """Only AT_ONCE received messages are handled in one turn of the event loop; later turns handle the rest."""
    taken_of: list[bytes] = []
    channel = Channel(taken_of.append, 30)
    channel.data_received(framed(b"x") * (3 * AT_ONCE))
    assert len(taken_of) == AT_ONCE
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    assert len(taken_of) == 3 * AT_ONCE


@pytest.mark.anyio
async def test_a_flood_of_idle_reports_does_not_block_the_event_loop() -> None:
    """A compromised process reports many times that it is idle, with outdated counts; only the last one is valid."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    order: list[object] = []
    with ours, theirs, anyio.fail_after(DEADLINE_S):
        for number in range(50, -1, -1):
            theirs.send(encode(Resting(number)))
        process = ProtocolProcess(ours, Ready([], []))

        async def hear() -> None:
            order.append(await process.wait_over())

        async def other() -> None:
            order.append("another's turn")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hear)
            tasks.start_soon(other)

    assert order == ["another's turn", True]


@pytest.mark.anyio
@pytest.mark.parametrize("turns", range(6))
async def test_a_call_made_while_the_channel_ends_raises_agent_gone(turns: int) -> None:
    """The test makes the call any number of event loop turns before the end."""
    ours, theirs = socket.socketpair()
    agent = Agent()
    await agent.open(ours)
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                with pytest.raises(AgentGone):
                    await agent.call("slow", {}, None)

            tasks.start_soon(ask)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            theirs.close()


@given(st.lists(st.binary(max_size=30)), st.data())
def test_any_split_of_the_byte_stream_gives_the_same_messages(messages: list[bytes], data: st.DataObject) -> None:
    """A read can end anywhere within a message."""
    stream = b"".join(map(framed, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    found: list[bytes] = []

    async def feed() -> None:
        channel = Channel(found.append, 30)
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            channel.data_received(stream[start:end])
        for _ in messages:
            await anyio.lowlevel.checkpoint()

    anyio.run(feed)

    assert found == messages


@given(
    st.one_of(st.builds(List, st.integers(0, 9), st.none() | st.text()), st.builds(call, st.integers(0, 9), st.text()))
)
def test_a_message_is_unchanged_after_encoding_and_decoding(asked: Asked) -> None:
    """The round trip holds for any text that a caller may have written into a message."""
    assert decode_asked(encode(asked)) == asked
