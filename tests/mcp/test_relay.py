"""The relay between a client on two pipes and a fake daemon that says what the test says."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.client import home_directory as of_the_client
from aileron.mcp.lines import MAX_LINE_BYTES
from aileron.mcp.relay import MAX_ASKED_BYTES, home_directory
from aileron.mcp.relay_process import token_of
from tests.support.relay import INITIALIZE, INITIALIZED, Agent, FakeServer, Link, envelope
from tests.support.waiting import wait_until

CALL = {"name": "send_mail", "arguments": {"to": "mira"}}
TOKEN = "ail_" + "k" * 43
LIST_CHANGED = "notifications/tools/list_changed"


@pytest.fixture
def home() -> Iterator[Path]:
    """Make a home at a short path: a socket's path may have 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="ail-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def server(home: Path) -> Iterator[FakeServer]:
    """Listen where the daemon would."""
    with FakeServer(home) as fake:
        yield fake


@pytest.fixture
def agent(home: Path, server: FakeServer) -> Iterator[Agent]:
    """Start a relay of that home, with the test as its client."""
    with Agent(home) as running:
        yield running


def done(number: int, **result: Any) -> dict[str, Any]:
    """Return an answer that says the request succeeded."""
    return {"jsonrpc": "2.0", "id": number, "result": result}


def greeted(agent: Agent, server: FakeServer) -> Link:
    """Complete the handshake of a client of the 2025 protocol. Return its connection."""
    number = agent.request("initialize", INITIALIZE)
    link = server.accept()
    assert link.receive()["method"] == "initialize"
    link.send(done(number, protocolVersion="2025-11-25"))
    assert agent.answer(number)["result"] == {"protocolVersion": "2025-11-25"}
    agent.send(INITIALIZED)
    assert link.receive() == INITIALIZED
    return link


# Bytes


def test_the_relay_passes_lines_on_unchanged(agent: Agent, server: FakeServer) -> None:
    """Spelling, spaces and invalid JSON stay as they are: the relay does not judge."""
    lines = [b'{"jsonrpc": "2.0" , "method":"x"}\n', b"\n", b"not json \xff\x00\n", '{"ü":"\u2028"}\n'.encode()]
    agent.write(b"".join(lines))
    link = server.accept()
    assert [link.line() for _ in lines] == lines

    link.write(b"".join(lines))
    assert [agent._lines.next() for _ in lines] == lines


def test_a_line_is_passed_on_only_when_it_is_whole(agent: Agent, server: FakeServer) -> None:
    """Half of a line is kept until the other half comes, in both directions."""
    agent.write(b'{"jsonrpc":"2.0",')
    link = server.accept()
    agent.write(b'"method":"x"}')
    assert link.is_quiet(0.1)
    agent.write(b"\n")
    assert link.line() == b'{"jsonrpc":"2.0","method":"x"}\n'

    link.write(b'{"half":')
    assert agent.is_quiet(0.1)
    link.write(b"1}\n")
    assert agent.receive() == {"half": 1}


@pytest.mark.parametrize("size", [4096, 65536, 1 << 19])
def test_a_large_message_from_the_client_passes_through_the_relay(agent: Agent, server: FakeServer, size: int) -> None:
    """The largest is more than a kernel buffer takes at once."""
    pid = os.fork()
    if pid == 0:  # the child writes while the test reads
        try:
            agent.send({"text": "x" * size})
        finally:
            os._exit(0)
    assert server.accept().receive() == {"text": "x" * size}
    os.waitpid(pid, 0)


@pytest.mark.parametrize("size", [4096, 65536, 4 << 20])
def test_a_large_message_from_the_daemon_passes_through_the_relay(agent: Agent, server: FakeServer, size: int) -> None:
    """Messages from the daemon may be larger than those from the client."""
    agent.send(INITIALIZED)
    link = server.accept()
    pid = os.fork()
    if pid == 0:
        try:
            link.send({"text": "x" * size})
        finally:
            os._exit(0)
    assert agent.receive() == {"text": "x" * size}
    os.waitpid(pid, 0)


def test_the_relay_works_with_nonblocking_standard_streams(home: Path, server: FakeServer) -> None:
    """Some programs start a server with such pipes: nothing is lost."""
    code = (
        "import os, sys; [os.set_blocking(fd, False) for fd in (0, 1)]; "
        "from aileron.mcp.relay import main; sys.exit(main())"
    )
    with Agent(home, program=[sys.executable, "-c", code]) as agent:
        agent.send(INITIALIZED)
        link = server.accept()
        assert link.receive() == INITIALIZED
        pid = os.fork()
        if pid == 0:
            try:
                link.send({"text": "x" * 500_000})
            finally:
                os._exit(0)
        assert len(agent.receive()["text"]) == 500_000
        os.waitpid(pid, 0)


def test_a_client_that_does_not_read_makes_the_daemon_wait(agent: Agent, server: FakeServer) -> None:
    """The relay's buffer does not grow (backpressure); once the client reads again, everything arrives."""
    agent.send(INITIALIZED)
    link = server.accept()
    assert link.receive() == INITIALIZED
    link._connection.setblocking(False)
    line, sent = b'{"n":"' + b"y" * 60_000 + b'"}\n', 0
    try:
        while True:  # ends when the sockets and the one line of the relay are full
            sent += link._connection.send(line[sent % len(line) :])
            assert sent < 16 << 20
    except BlockingIOError:
        pass
    received = 0
    while received < sent - len(line):
        received += len(agent._lines.next())


def test_a_daemon_that_does_not_read_makes_the_client_wait(agent: Agent, server: FakeServer) -> None:
    """Backpressure works in the other direction too: once the daemon reads again, everything arrives."""
    line, sent = b'{"n":"' + b"y" * 60_000 + b'"}\n', 0
    import select

    while select.select([], [agent._in], [], 0.5)[1]:
        sent += os.write(agent._in, line[sent % len(line) :])
        assert sent < 16 << 20
    link, received = server.accept(), 0
    while received < sent - len(line):
        received += len(link.line())


@pytest.mark.parametrize(
    ("message", "request_id"),
    [
        (b'{"id":8,"x":"' + b"z" * (17 << 20) + b'"}', 8),
        (b'{"method":"m","params":{"id":1,"x":"' + b'\\"' * (9 << 20) + b'"},"jsonrpc":"2.0","id":"last"}', "last"),
        (b'{"method":"m","params":{"id":1,"x":"' + b"z" * (17 << 20) + b'"}}', None),
    ],
    ids=["first", "last", "none"],
)
def test_a_message_far_over_the_limit_is_refused_with_its_own_id(
    agent: Agent, server: FakeServer, message: bytes, request_id: int | str | None
) -> None:
    """The id may be anywhere in the message; the next message passes."""
    agent.write(message + b"\n")
    agent.send(INITIALIZED)

    refused = agent.receive()
    assert "more than 1 MiB" in refused["error"]["message"]
    assert refused["id"] == request_id
    assert server.accept().receive() == INITIALIZED


def test_a_message_over_the_daemons_limit_is_refused_by_the_relay(agent: Agent, server: FakeServer) -> None:
    """The daemon would end the connection; the relay answers itself, so that other requests on it survive."""
    link = greeted(agent, server)
    call = agent.request("tools/call", CALL)
    number = agent.request("tools/call", {"name": "send_mail", "arguments": {"text": "x" * MAX_ASKED_BYTES}})
    assert "more than 1 MiB" in agent.answer(number)["error"]["message"]

    assert link.receive()["id"] == call
    link.send(done(call))
    assert agent.answer(call) == done(call)


def test_the_relay_and_the_daemon_have_the_same_message_limit() -> None:
    """The number is defined twice, because the relay imports as little as possible."""
    assert MAX_ASKED_BYTES == MAX_LINE_BYTES


# The session


def test_the_relay_sends_its_session_token_before_anything_else(home: Path, server: FakeServer) -> None:
    """The session token is sent before any byte of the client, on every connection."""
    with Agent(home, AILERON_SESSION_TOKEN=TOKEN) as agent:
        said = {"jsonrpc": "2.0", "method": "notifications/aileron/session", "params": {"token": TOKEN}}
        link = greeted_after(agent, server, said)
        link.close()
        assert server.accept().receive() == said


def greeted_after(agent: Agent, server: FakeServer, said: dict[str, Any]) -> Link:
    """Return a connection that began with `said`."""
    agent.send(INITIALIZED)
    link = server.accept()
    assert [link.receive(), link.receive()] == [said, INITIALIZED]
    return link


def test_a_relay_without_a_token_sends_no_session_token(agent: Agent, server: FakeServer) -> None:
    """The positive control of the test above: the daemon then treats the agent as the session `local`."""
    agent.send(INITIALIZED)
    assert server.accept().receive() == INITIALIZED


@pytest.mark.parametrize("token", ['x"}}\n{"a":"', "ail_ü", "a b", "x\n"])
def test_an_invalid_token_is_not_sent(home: Path, server: FakeServer, token: str) -> None:
    """A line break in it could inject a second line. The error message does not print the value."""
    with Agent(home, AILERON_SESSION_TOKEN=token) as agent:
        code, said = agent.wait()

    assert code == 2
    assert "AILERON_SESSION_TOKEN is not a session's token" in said
    assert token not in said
    assert token_of({"AILERON_SESSION_TOKEN": TOKEN}) == TOKEN


# The end


def test_the_relay_exits_when_its_standard_input_is_closed(agent: Agent, server: FakeServer) -> None:
    """The relay exits and closes its connection at once, even if requests are unanswered."""
    agent.request("tools/call", CALL)
    link = server.accept()
    link.line()
    agent.close()

    assert link.line() == b""
    assert agent.wait() == (0, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
def test_a_signal_ends_the_relay_without_output(
    agent: Agent, server: FakeServer, number: signal.Signals, code: int
) -> None:
    """Agents end their servers with signals."""
    agent.send(INITIALIZED)
    link = server.accept()
    link.line()
    agent.signal(number)

    assert agent.wait() == (code, "")
    assert link.line() == b""


def test_the_relay_exits_when_its_standard_output_is_closed(agent: Agent, server: FakeServer) -> None:
    """Standard input is still open."""
    agent.send(INITIALIZED)
    server.accept()
    assert agent.process.stdout is not None
    agent.process.stdout.close()

    assert agent.wait() == (0, "")


@pytest.mark.parametrize("url", ["", "https://127.0.0.1:1"])
@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_the_relay_refuses_to_run_without_its_standard_streams(home: Path, closed: str, url: str) -> None:
    """A socket could get the descriptor number of the missing stream."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "aileron.mcp.relay"],
        env={"AILERON_HOME": str(home), "AILERON_URL": url},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "an agent starts this program" in done.stderr


# The loss of the daemon


def test_a_call_whose_answer_was_lost_gets_an_error(agent: Agent, server: FakeServer) -> None:
    """The connection broke after the call was sent: the agent is told that the outcome is unknown, and what to do."""
    link = greeted(agent, server)
    number = agent.request("tools/call", CALL)
    link.line()
    link.close()

    error = agent.answer(number)["error"]
    assert error["code"] == -32000
    assert "Do not repeat it" in error["message"]
    assert "list_pending" in error["message"]
    assert error["data"] == {"retriable": False, "class": "outcome_unknown"}


def test_a_lost_response_to_a_read_only_call_says_that_the_call_can_be_repeated(
    agent: Agent, server: FakeServer
) -> None:
    """Tools that only read have no effect that could happen twice."""
    link = greeted(agent, server)
    number = agent.request("tools/call", {"name": "wait_for_action", "arguments": {"id": "a-1"}})
    link.line()
    link.close()

    error = agent.answer(number)["error"]
    assert error["data"] == {"retriable": True}
    assert error["message"].endswith("call wait_for_action again")


def test_the_handshake_is_repeated_invisibly_for_the_client(agent: Agent, server: FakeServer) -> None:
    """The relay repeats it after a reconnect under an id of its own. The client only sees that tools may differ."""
    greeted(agent, server).close()
    link = server.accept()

    again = link.receive()
    assert (again["method"], again["params"]) == ("initialize", INITIALIZE)
    assert link.receive() == INITIALIZED
    link.send(done(again["id"], protocolVersion="2025-11-25"))
    assert agent.receive() == {"jsonrpc": "2.0", "method": LIST_CHANGED}

    number = agent.request("tools/list")
    assert link.receive()["id"] == number
    link.send(done(number, tools=[]))
    assert agent.receive() == done(number, tools=[])


PROMISED: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}}


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [
        (PROMISED, True),
        ({**PROMISED, "capabilities": {**PROMISED["capabilities"], "logging": {}}}, True),
        ({**PROMISED, "protocolVersion": "2025-06-18"}, False),
        ({**PROMISED, "capabilities": {"tools": {}}}, False),
        (None, False),
    ],
)
def test_a_new_daemon_with_fewer_capabilities_ends_the_relay(
    agent: Agent, server: FakeServer, given: Any, is_kept: bool
) -> None:
    """The repeated handshake returns another version or lacks a capability; waiting requests get an error."""
    number = agent.request("initialize", INITIALIZE)
    link = server.accept()
    link.receive()
    link.send({"jsonrpc": "2.0", "id": number, "result": PROMISED})
    agent.answer(number)
    agent.send(INITIALIZED)
    link.receive()
    link.close()
    again = server.accept()
    own = again.receive()["id"]
    assert again.receive() == INITIALIZED
    number = agent.request("tools/list")
    assert again.receive()["method"] == "tools/list"
    error = {"code": -32603, "message": "no"}
    again.send({"jsonrpc": "2.0", "id": own, **({"result": given} if given else {"error": error})})
    if is_kept:
        again.send(done(number))
        assert "result" in agent.answer(number)
        return
    assert "start the agent again" in agent.answer(number)["error"]["message"]
    code, said = agent.wait()
    assert (code, "start the agent again" in said) == (69, True)


def test_only_requests_without_effects_are_repeated_after_a_reconnect(agent: Agent, server: FakeServer) -> None:
    """Requests that change nothing are resent under their own ids and in order; a call between them is not."""
    link = greeted(agent, server)
    first, call, last = agent.request("tools/list"), agent.request("tools/call", CALL), agent.request("ping")
    assert [link.receive()["id"] for _ in range(3)] == [first, call, last]
    link.close()
    link = server.accept()
    again = [link.receive() for _ in range(4)]

    assert [message["method"] for message in again[:2]] == ["initialize", "notifications/initialized"]
    assert [message["id"] for message in again[2:]] == [first, last]
    assert "error" in agent.answer(call)
    link.send(done(again[0]["id"], protocolVersion="2025-11-25"), done(first), done(last))
    assert agent.answer(first) == done(first)
    assert agent.answer(last) == done(last)
    assert link.is_quiet(0.1)


def test_the_first_request_of_a_client_survives_the_loss_of_its_connection(agent: Agent, server: FakeServer) -> None:
    """The relay resends the client's unanswered `server/discover`, which gets exactly one response."""
    number = agent.request("server/discover", envelope())
    link = server.accept()
    link.line()
    link.close()
    link = server.accept()
    again = link.receive()

    assert (again["id"], again["method"], again["params"]) == (number, "server/discover", envelope())
    link.send(done(number))
    assert agent.receive() == done(number)
    assert link.is_quiet(0.1)


def test_a_subscription_is_reopened_after_a_reconnect(agent: Agent, server: FakeServer) -> None:
    """The client sees no second acknowledgement, but a notification that the tools may have changed."""
    number = agent.request("subscriptions/listen", envelope(notifications={"toolsListChanged": True}))
    meta = {"io.modelcontextprotocol/subscriptionId": number}
    acknowledged = {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": {"toolsListChanged": True}, "_meta": meta},
    }
    link = server.accept()
    link.line()
    link.send(acknowledged)
    assert agent.receive() == acknowledged
    for _ in range(6):  # more often than an unanswered request is asked again
        link.close()
        link = server.accept()
        assert link.receive()["id"] == number
        link.send(acknowledged)
        assert agent.receive() == {"jsonrpc": "2.0", "method": LIST_CHANGED, "params": {"_meta": meta}}


def test_a_call_of_which_no_byte_was_sent_goes_to_the_next_daemon(agent: Agent, server: FakeServer) -> None:
    """The connection broke before any byte of the call was sent, so the call can be neither lost nor run twice."""
    link = greeted(agent, server)
    agent.send(done(99))
    assert link.receive() == done(99)  # the relay is idle
    agent.signal(signal.SIGSTOP)
    number = agent.request("tools/call", CALL)
    link.close()
    agent.signal(signal.SIGCONT)
    link = server.accept()

    assert [link.receive()["method"] for _ in range(2)] == ["initialize", "notifications/initialized"]
    assert link.receive()["id"] == number
    assert link.is_quiet(0.1)
    assert agent.is_quiet()


def test_an_initialized_notification_sent_while_no_daemon_runs_reaches_the_next_daemon(
    agent: Agent, server: FakeServer
) -> None:
    """The relay keeps the end of the handshake and cancellations as state; neither makes it start a daemon."""
    number = agent.request("initialize", INITIALIZE)
    link = server.accept()
    link.receive()
    listed = agent.request("tools/list")
    link.receive()
    link.send(done(number))
    agent.answer(number)
    with server.away():
        link.close()
        agent.send(INITIALIZED)
        agent.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": listed}})
    link = server.accept()

    assert [link.receive()["method"] for _ in range(2)] == ["initialize", "notifications/initialized"]
    assert link.is_quiet(0.1)


def test_a_line_that_two_json_parsers_read_differently_is_not_repeated(agent: Agent, server: FakeServer) -> None:
    """Duplicate keys can mean a safe request to one parser and a call to another. Only unambiguous lines are resent."""
    agent.write(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"send_mail"},"method":"tools/list"}\n')
    link = server.accept()
    link.line()
    link.close()

    assert server.accept().line().count(b"tools/call") == 0


@pytest.mark.abuse_case("A26")
@pytest.mark.parametrize("seed", range(6))
def test_wherever_a_connection_breaks_no_call_is_sent_twice(agent: Agent, server: FakeServer, seed: int) -> None:
    """Each daemon reads some bytes, answers some requests, and dies. Every request still gets exactly one response."""
    chance = random.Random(seed)
    greeted(agent, server).close()
    asked = {
        agent.request("tools/call", CALL) if chance.random() < 0.6 else agent.request("tools/list"): None
        for _ in range(40)
    }
    calls: list[int] = []
    answered: list[int] = []
    while len(answered) < len(asked):
        link = server.accept()
        left = chance.randrange(1, 4000)
        while left > 0 and not link.is_quiet(0.05):
            line = link.line()
            left -= len(line)
            message = json.loads(line)
            if message["method"] == "tools/call":
                calls.append(message["id"])
            if "id" in message and chance.random() < 0.7:
                is_hello = message["method"] == "initialize"
                link.send(done(message["id"], **({"protocolVersion": "2025-11-25"} if is_hello else {})))
        link.close()
        while not agent.is_quiet(0.2):
            said = agent.receive()
            if "id" in said:
                answered.append(said["id"])

    assert sorted(answered) == sorted(asked)
    assert len(calls) == len(set(calls))


@pytest.mark.parametrize(
    "line",
    [
        b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]\n',
        b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}\n',
        b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}\n',
        b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}\n',
        b'{"jsonrpc":"2.0","id":1,"method":["tools/list"]}\n',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":NaN}}\n',
        b'{"jsonrpc":"2.0","id":' + b"1" * 5000 + b',"method":"tools/list"}\n',
        b"[" * 100_000 + b"\n",
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\r{"jsonrpc":"2.0","id":2,"method":"tools/call"}\n',
    ],
)
def test_a_line_that_the_relay_cannot_parse_is_not_repeated(agent: Agent, server: FakeServer, line: bytes) -> None:
    """The relay passes it on once and keeps running; after a reconnect it is not resent."""
    agent.write(line)
    link = server.accept()
    assert link.line() == line
    link.close()
    link = server.accept()
    assert link.is_quiet(0.1)
    agent.send(INITIALIZED)
    assert link.receive() == INITIALIZED


def test_the_relay_gives_up_on_a_daemon_that_keeps_closing_connections(
    agent: Agent, server: FakeServer, home: Path
) -> None:
    """The client gets an error after three connections without a response. One that lasted a second does not count."""
    number, closed, began = agent.request("tools/list"), 0, time.monotonic()

    def is_given_up() -> bool:
        nonlocal number, closed
        if agent.is_quiet():
            with contextlib.suppress(TimeoutError):
                server.accept(0.05).close()
                closed += 1
            return False
        message = agent.answer(number)["error"]["message"]
        if message.endswith("went away before it answered: ask again"):  # asked too often: one connection lasted
            number = agent.request("tools/list")
            return False
        assert message == f"aileron: the daemon ends the connection at once: see {home}/logs/daemon.log"
        return True

    wait_until(is_given_up, "the daemon is given up")
    assert closed == 3 or time.monotonic() - began >= 1


def test_a_cancelled_request_is_not_answered(agent: Agent, server: FakeServer) -> None:
    """The request is neither resent after a reconnect nor reported as failed."""
    link = greeted(agent, server)
    call, listed = agent.request("tools/call", CALL), agent.request("tools/list")
    for number in (call, listed):
        agent.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    for _ in range(4):
        link.line()
    link.close()
    link = server.accept()

    assert [link.receive()["method"], link.receive()["method"]] == ["initialize", "notifications/initialized"]
    assert link.is_quiet(0.1)
    assert agent.is_quiet()


def test_the_number_of_unanswered_requests_is_bounded(agent: Agent, server: FakeServer) -> None:
    """The relay stops reading after 1024 of them, until one is answered."""
    agent.request("ping")
    link = server.accept()
    link.line()
    link.send(done(1))
    agent.answer(1)  # from now on the relay reads all that it passes on
    seen: list[int] = []
    for sent in range(80, 1201, 80):  # in portions: connection and pipe hold some hundred lines each
        for _ in range(80):
            agent.request("tools/call", CALL)
        while len(seen) < min(1024, sent):
            seen.append(link.receive()["id"])
    while not link.is_quiet(0.2):  # lines that the relay read together with the last one
        seen.append(link.receive()["id"])
    assert 1024 <= len(seen) < sent
    link.send(*(done(number) for number in seen))
    for number in seen:
        agent.answer(number)
    assert link.receive()["id"] == seen[-1] + 1


# The start


@pytest.mark.parametrize("configured", [None, "", "/tmp/x", "x/../y", "~/x", "."])
def test_the_relay_finds_the_same_home_as_every_other_command(
    monkeypatch: pytest.MonkeyPatch, configured: str | None
) -> None:
    """The rule is implemented twice, because the relay imports as little as possible."""
    if configured is None:
        monkeypatch.delenv("AILERON_HOME", raising=False)
    else:
        monkeypatch.setenv("AILERON_HOME", configured)

    assert Path(home_directory()) == of_the_client()


def imported(home: Path, *, is_answered: bool) -> set[str]:
    """Return the packages that a relay imports while it passes on one request and, if there is one, its answer."""
    with FakeServer(home) as server:
        program = [sys.executable, "-X", "importtime", "-m", "aileron.mcp.relay"]
        with Agent(home, program=program) as agent:
            number = agent.request("ping")
            link = server.accept()
            link.line()
            if is_answered:
                link.send(done(number))
                agent.answer(number)
            agent.close()
            _, said = agent.wait()
    names = {line.rpartition("|")[2].strip() for line in said.splitlines() if line.startswith("import time:")}
    return {name.partition(".")[0] for name in names}


DEAR = {
    "typing",
    "json",
    "enum",
    "re",
    "socket",
    "signal",
    "subprocess",
    "threading",
    "http",
    "ssl",
    "asyncio",
    "msgspec",
    "mcp",
    "pathlib",
}


def test_no_expensive_module_is_imported_before_the_first_answer(home: Path) -> None:
    """Agents wait for the relay at the start of each session."""
    assert imported(home, is_answered=False) & DEAR == set()


def test_the_relay_imports_json_after_the_first_answer(home: Path) -> None:
    """The positive control of the test above: the relay has time then to load what it needs for resending requests."""
    assert "json" in imported(home, is_answered=True)
