"""The client against servers that are wrong or hostile: each is refused for its reason, and none keeps it busy."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from aileron_connector import ConnectorError, ExternalApiError, NetworkError
from aileron_connector.mcp.client import LATEST, MODERN, Client
from tests.connectors.mcp.played import DONE, RESULTS, STREAM, Played, Said, answer, event

Reply = Callable[[dict[str, Any]], Said]


def called(wire: Played, protocol: str = LATEST, **more: Any) -> dict[str, Any]:
    """Hold a conversation with one call."""
    with Client(wire, **more) as client:
        client.open(protocol)
        next(client.pages())
        return client.call("add", {"text": "milk"})


def body(value: Any) -> Said:
    """Return an answer in JSON."""
    return Said([json.dumps(value).encode()])


def stream(*messages: Any) -> Said:
    """Return an answer as a stream."""
    return Said([event(*messages)], STREAM)


def asks(number: int) -> dict[str, Any]:
    """Return a request of the server to the client."""
    return {"jsonrpc": "2.0", "id": f"s{number}", "method": "sampling/createMessage", "params": {}}


PROGRESS = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 3, "progress": 1}}


def endless(piece: bytes) -> Reply:
    """Return a reply that streams for as long as the client reads."""
    return lambda message: Said(itertools.repeat(piece), STREAM)


HOSTILE: dict[str, tuple[Reply, str]] = {
    "another number": (lambda asked: body(answer(99)), "no answer to it"),
    "the number as text": (lambda asked: body(answer(str(asked["id"]))), "no answer to it"),
    "no number": (lambda asked: body(answer(None)), "no answer to it"),
    "another number in a stream": (lambda asked: stream(answer(99), answer(asked["id"])), "no answer to it"),
    "several at once": (lambda asked: body([answer(asked["id"])]), "no message of JSON-RPC"),
    "no JSON": (lambda asked: Said([b"<html>"]), "no message of JSON-RPC"),
    "deep JSON": (lambda asked: Said([b'{"a":' * 100_000]), "no message of JSON-RPC"),
    "a result that is a word": (
        lambda asked: Said([b'{"jsonrpc":"2.0","id":3,"result":"done"}']),
        "no message of JSON-RPC",
    ),
    "another version": (lambda asked: body({**answer(asked["id"]), "jsonrpc": "1.0"}), "no message of JSON-RPC"),
    "result and error": (
        lambda asked: body({**answer(asked["id"]), "error": {"code": 1, "message": "x"}}),
        "either a result or an error",
    ),
    "neither": (lambda asked: body({"jsonrpc": "2.0", "id": asked["id"]}), "either a result or an error"),
    "an error": (
        lambda asked: body({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "a\n\u202eb"}}),
        "the server refused tools/call (code -1): a b",
    ),
    "a page": (lambda asked: Said([b"{}"], "text/html"), "text/html, which is no message"),
    "no kind": (lambda asked: Said([b"{}"], ""), "no content type, which is no message"),
    "nothing": (lambda asked: Said(status=202), "status 202"),
    "a redirect": (
        lambda asked: Said(status=307, location="https://u:p@evil.example/mcp?key=secret"),
        "redirects tools/call to https://evil.example/mcp, which is not followed",
    ),
    "a redirect to nowhere": (lambda asked: Said(status=307), "and names no place (status 307)"),
    "an error status": (lambda asked: Said([b"secret"], status=500), "answered tools/call with status 500"),
    "an empty stream": (lambda asked: Said([], STREAM), "the stream ended before"),
    "a stream that breaks off": (lambda asked: Said([b"data: {}"], STREAM), "the stream ended before"),
    "an endless line": (endless(b"data: " + b"x" * (1 << 20)), "an event of more than"),
    "endless lines": (endless(b"data: xxxxxxx\n" * 10_000), "an event of more than"),
    "endless comments": (endless(b": " + b"x" * (1 << 20) + b"\n"), "larger than"),
    "endless progress": (endless(event(PROGRESS) * 1000), "says too much"),
    "endless requests": (endless(event(asks(1))), "says too much"),
    "a large answer": (lambda asked: Said(itertools.repeat(b"x" * (1 << 20))), "larger than"),
    "events of nothing": (lambda asked: Said([b"data: []\n\n"], STREAM), "no message of JSON-RPC"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("protocol", [LATEST, MODERN])
def test_an_invalid_answer_of_an_mcp_server_is_refused_with_the_reason(name: str, protocol: str) -> None:
    """The error says what is wrong with the answer, and whether the call can be repeated; it contains no secret."""
    reply, words = HOSTILE[name]
    wire = Played(call=reply)
    if protocol == MODERN and "requests" in name:
        words = "which this revision does not have"

    with pytest.raises(ExternalApiError) as caught:
        called(wire, protocol)

    assert words in caught.value.message
    assert "secret" not in caught.value.message
    is_refusal = "status 500" in words or "refused" in words
    assert ("do not simply repeat it" in caught.value.message) is not is_refusal
    assert all(said.is_closed for said in wire.said)


def test_an_invalid_message_of_a_server_is_kept_in_the_details_of_the_failure() -> None:
    """The tool may have run, so the failure's details have the message as it was received."""
    with pytest.raises(ExternalApiError) as caught:
        called(Played(call=lambda asked: Said([b'{"jsonrpc":"2.0","result":"paid 7"'])), LATEST)
    assert caught.value.details == {"answer": '{"jsonrpc":"2.0","result":"paid 7"'}


@pytest.mark.parametrize("half", [b"\xff", rb"\ud83d"])
def test_invalid_unicode_in_a_description_does_not_hide_a_list_of_tools(half: bytes) -> None:
    """A lone surrogate or an invalid byte becomes U+FFFD, as in anything else that a frame carries."""
    tools = {"tools": [{"name": "add", "description": "x~"}]}
    wire = Played(list=lambda asked: Said([json.dumps(answer(asked["id"], tools)).encode().replace(b"~", half)]))
    with Client(wire) as client:
        client.open(LATEST)
        assert [tool["description"] for tool in next(client.pages())] == ["x\ufffd"]


def test_a_request_by_the_server_is_refused_and_its_response_still_arrives() -> None:
    """Sampling, elicitation and roots are not supported; a ping is answered."""
    ping = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
    wire = Played(call=lambda asked: stream(asks(1), ping, answer(asked["id"])))

    assert called(wire) == DONE
    replies = [message for _, _, message in wire.sent if "method" not in message and message]
    assert replies[0]["error"]["code"] == -32601
    assert replies[1] == {"jsonrpc": "2.0", "id": 7, "result": {}}


def test_only_the_first_response_to_a_request_is_read() -> None:
    """A second response to the same request is ignored."""
    wire = Played(call=lambda asked: stream(answer(asked["id"]), answer(asked["id"], {"content": "another"})))
    assert called(wire) == DONE


def test_only_progress_of_the_current_call_is_reported_and_its_rate_is_bounded() -> None:
    """Only progress of this call is reported, in numbers, and not more often than a person can read."""
    heard: list[tuple[float, float | None, str | None]] = []
    params = [
        {"progressToken": 9, "progress": 5},
        {"progressToken": 3, "progress": True},
        {"progressToken": 3, "progress": 1, "total": "x", "message": "half\n\u200bway"},
        *[{"progressToken": 3, "progress": number} for number in range(2, 5000)],
    ]
    messages = [{"jsonrpc": "2.0", "method": "notifications/progress", "params": progress} for progress in params]
    wire = Played(call=lambda asked: stream(*messages, answer(asked["id"])))

    assert called(wire, on_progress=lambda *args: heard.append(args)) == DONE
    assert heard[:1] == [(1, None, "half way")]
    assert len(heard) < 200


def test_an_mcp_session_is_named_in_each_request_and_ended_by_the_client() -> None:
    """Each request after the first also has the negotiated protocol revision."""
    first = {**RESULTS["initialize"], "protocolVersion": "2025-06-18"}
    wire = Played(
        initialize=lambda asked: Said([json.dumps(answer(asked["id"], first)).encode()], mcp_session_id="s-1")
    )
    called(wire)

    assert wire.methods == ["initialize", "notifications/initialized", "tools/list", "tools/call", "DELETE"]
    assert "Mcp-Session-Id" not in wire.sent[0][1]
    for _, headers, _ in wire.sent[1:]:
        assert (headers["Mcp-Session-Id"], headers["MCP-Protocol-Version"]) == ("s-1", "2025-06-18")


@pytest.mark.parametrize("session", ["a\r\nX-Evil: 1", "a b", "ü", "x" * 2000])
def test_an_mcp_session_id_that_could_break_a_header_is_refused(session: str) -> None:
    """The client never sends such an id back to the server."""
    reply = json.dumps(answer(1, RESULTS["initialize"])).encode()
    wire = Played(initialize=lambda asked: Said([reply], mcp_session_id=session))
    with pytest.raises(ExternalApiError, match="a name that no header can have"):
        called(wire)
    assert wire.methods == ["initialize"]


def test_the_client_ends_its_mcp_session_after_a_failed_call_too() -> None:
    """A server that refuses to end its session changes nothing about the result."""
    reply = json.dumps(answer(1, RESULTS["initialize"])).encode()
    wire = Played(
        initialize=lambda asked: Said([reply], mcp_session_id="s"),
        call=lambda asked: Said(status=500),
        DELETE=lambda asked: Said(status=405),
    )
    with pytest.raises(ExternalApiError, match="status 500"):
        called(wire)
    assert wire.methods[-1] == "DELETE"


def test_a_call_that_exceeds_its_timeout_is_cancelled() -> None:
    """A server with sessions gets a notification; for one without, the closed stream is enough."""

    def late(asked: dict[str, Any]) -> Said:
        raise TimeoutError

    for protocol, cancelled in ((LATEST, 1), (MODERN, 0)):
        wire = Played(call=late)
        with pytest.raises(ConnectorError, match="may have been carried out") as caught:
            called(wire, protocol)
        assert caught.value.failure_class == "resource_limit_exceeded"
        assert wire.methods.count("notifications/cancelled") == cancelled


def test_a_timeout_while_listing_tools_says_that_no_tool_was_called() -> None:
    """The agent therefore knows that it can repeat the call."""

    def late(asked: dict[str, Any]) -> Said:
        raise TimeoutError

    with pytest.raises(ConnectorError, match="no tool was called"):
        called(Played(list=late))


def test_the_client_finds_out_which_protocol_revision_a_server_speaks() -> None:
    """The client uses `server/discover` if the server has it, else `initialize`. An outage or refusal is an error."""
    found = {"supportedVersions": [MODERN], "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "New"}}}
    with Client(Played(discover=lambda asked: body(answer(asked["id"], found)))) as new:
        new.open()
        assert (new.protocol, new.server) == (MODERN, {"name": "New"})
    with Client(Played()) as old:
        old.open()
        assert old.protocol == LATEST
    with Client(Played(discover=lambda asked: body(answer(asked["id"], {"supportedVersions": [LATEST]})))) as both:
        both.open()
        assert both.protocol == LATEST
    with pytest.raises(ExternalApiError, match="401"):
        Client(Played(discover=lambda asked: Said(status=401))).open()


def test_an_unknown_protocol_revision_of_a_server_is_refused() -> None:
    """The error names the revision that the server chose."""
    wire = Played(initialize=lambda asked: body(answer(asked["id"], {"protocolVersion": "2031-01-01"})))
    with pytest.raises(ExternalApiError, match="2031-01-01"):
        called(wire)


LISTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no list": (lambda params: {"tools": {}}, "is none"),
    "no names": (lambda params: {"tools": [{}]}, "is none"),
    "ten thousand": (lambda params: {"tools": [{"name": f"t{n}"} for n in range(10_000)]}, "more than 2000 tools"),
    "no end": (lambda params: {"tools": [], "nextCursor": params.get("cursor", "") + "x"}, "more than 100 pages"),
    "a cursor of another kind": (lambda params: {"tools": [], "nextCursor": 1}, "does not end"),
}


ENDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an empty cursor": lambda params: {"tools": [{"name": "a"}, {"name": "b"}], "nextCursor": ""},
    "null": lambda params: {"tools": [{"name": "a"}, {"name": "b"}], "nextCursor": None},
    "the last cursor again": lambda params: {
        "tools": [{"name": "b"}] if "cursor" in params else [{"name": "a"}],
        "nextCursor": "2",
    },
    "the same page each time": lambda params: {"tools": [{"name": "a"}, {"name": "b"}], "nextCursor": "2"},
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("protocol", [LATEST, MODERN])
def test_a_list_of_tools_ends_at_a_cursor_that_leads_back_to_a_known_page(name: str, protocol: str) -> None:
    """Each tool is listed once, and the client asks at most twice."""
    wire = Played(list=lambda asked: body(answer(asked["id"], ENDS[name](asked["params"]))))
    with Client(wire) as client:
        client.open(protocol)
        assert [tool["name"] for page in client.pages() for tool in page] == ["a", "b"]
        assert wire.methods.count("tools/list") <= 2


def begun(*sessions: str) -> Reply:
    """Return a reply to `initialize` that gives these sessions, one after the other."""
    left = iter(sessions)
    return lambda asked: Said(
        [json.dumps(answer(asked["id"], RESULTS["initialize"])).encode()], mcp_session_id=next(left)
    )


def no_session(words: str, status: int = 400) -> Said:
    """Return a refusal as the SDKs' own examples have it."""
    refused = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": words}}
    return Said([json.dumps(refused).encode()], status=status)


GONE: dict[str, Callable[[], Said]] = {
    "404": lambda: Said(status=404),
    "400": lambda: no_session("Bad Request: No valid session ID provided"),
    "404 with an error": lambda: no_session("Session not found", 404),
}


def test_a_request_refused_for_another_reason_than_a_lost_session_is_not_repeated() -> None:
    """The client keeps its session."""
    wire = Played(initialize=begun("one", "two"), call=lambda asked: no_session("Bad Request: no such argument"))
    with Client(wire) as client:
        client.open(LATEST)
        with pytest.raises(ExternalApiError, match="no such argument"):
            client.in_session(lambda: client.call("add", {}))
    assert wire.methods.count("tools/call") == wire.methods.count("initialize") == 1


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
def test_a_lost_mcp_session_is_replaced_once(method: str, gone: str) -> None:
    """The client repeats its requests in the new session, with the list: the tool may have changed."""
    wire = Played(initialize=begun("one", "two"))

    def unless_gone(asked: dict[str, Any]) -> Said:
        is_gone = asked["method"] == method and wire.sent[-1][1]["Mcp-Session-Id"] == "one"
        return GONE[gone]() if is_gone else body(answer(asked["id"], RESULTS[asked["method"]]))

    wire._on |= {"list": unless_gone, "call": unless_gone}
    with Client(wire) as client:
        client.open(LATEST)

        def work() -> dict[str, Any]:
            next(client.pages())
            return client.call("add", {"text": "milk"})

        assert client.in_session(work) == DONE
    asked = ["initialize", "notifications/initialized", "tools/list", "tools/call"]
    first = asked[: asked.index(method) + 1]
    assert wire.methods == [*first, *asked, "DELETE"]
    assert "Mcp-Session-Id" not in wire.sent[len(first)][1]
    assert wire.sent[-1][1]["Mcp-Session-Id"] == "two"


def test_the_client_gives_up_on_a_server_that_forgets_every_session() -> None:
    """The second lost session is the last. A 404 without a session begins no new session."""
    wire = Played(initialize=begun("one", "two", "three"), list=lambda asked: Said(status=404))
    with Client(wire) as client:
        client.open(LATEST)
        with pytest.raises(ExternalApiError, match="status 404"):
            client.in_session(lambda: next(client.pages()))
    assert wire.methods.count("initialize") == 2

    wire = Played(list=lambda asked: Said(status=404))
    with Client(wire) as client:
        client.open(LATEST)
        with pytest.raises(ExternalApiError, match="answered tools/list with status 404"):
            client.in_session(lambda: next(client.pages()))
    assert wire.methods.count("initialize") == 1


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_tools_is_bounded(name: str) -> None:
    """The client refuses a malformed list and stops after a number of pages and tools, whatever the server says."""
    page, words = LISTS[name]
    wire = Played(list=lambda asked: body(answer(asked["id"], page(asked["params"]))))
    with Client(wire) as client:
        client.open(MODERN)
        with pytest.raises(ExternalApiError, match=words):
            list(client.pages())


def test_a_broken_connection_to_an_mcp_server_is_a_network_error() -> None:
    """The class is not that of the service's errors, so that the host knows whether it may retry."""

    def broken(asked: dict[str, Any]) -> Said:
        raise NetworkError("gone")

    with pytest.raises(NetworkError):
        called(Played(call=broken))


def test_a_server_sent_event_without_data_is_not_a_message() -> None:
    """Servers that can resume a stream begin it with such an event (2025-11-25)."""
    begins = b"id: 1\ndata: \n\n"
    wire = Played(call=lambda asked: Said([begins, event(answer(asked["id"]))], STREAM))
    assert called(wire) == DONE

    wire = Played(call=lambda asked: Said([begins], STREAM))
    with pytest.raises(ExternalApiError, match="the stream ended before"):
        called(wire)
    wire = Played(call=endless(begins))
    with pytest.raises(ExternalApiError, match="says too much before"):
        called(wire)
