"""A call of a packed tool with the SDK's own test host: arguments, results of each kind, and what fits a frame."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from aileron_connector import operation
from aileron_connector.mcp.client import LATEST, MODERN
from aileron_connector.mcp.service import Service
from aileron_connector.testing import Done, Reply, Request, call
from tests.connectors.mcp.played import DONE, TOOL, answer
from tests.connectors.mcp.played import RESULTS as RESULTS_OF
from tests.support.shaped import shaped

PIXEL = base64.b64encode(b"\x89PNG").decode()


def packed(tool: dict[str, Any], **more: Any) -> bytes:
    """Return the packed tools of a server that has this one, called `x`."""
    whole = {"digest": "sha256:0", "listed": tool, **more}
    return json.dumps(
        {"format": 1, "title": "T", "path": "/mcp", "protocol": MODERN, "credential": "api_key", "tools": {"x": whole}}
    ).encode()


@contextlib.contextmanager
def declared(data: bytes) -> Iterator[None]:
    """Declare the packed operations for the length of the block."""
    known = dict(operation.OPERATIONS)
    try:
        Service(data).declare()
        yield
    finally:
        operation.OPERATIONS.clear()
        operation.OPERATIONS.update(known)


def done(result: Any, tool: dict[str, Any] = TOOL, now: Any = None, args: Any = None, **more: Any) -> Done:
    """Call the tool, at a server that lists `now` and answers with this result."""

    def reply(request: Request) -> Reply:
        asked = request.json()
        if asked["method"] == "tools/list":
            return Reply.of(answer(asked["id"], {"tools": [tool] if now is None else now}))
        return Reply.of(answer(asked["id"], result))

    with declared(packed(tool, **more)):
        return call("x", args or {}, answer=reply)


RESULTS: list[tuple[dict[str, Any], Any]] = [
    ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, {"text": "a\nb"}),
    ({"content": []}, {"text": ""}),
    ({}, {"text": ""}),
    ({"structuredContent": {"a": 1}, "content": [{"type": "text", "text": '{"a": 1}'}]}, {"a": 1}),
    ({"structuredContent": [1]}, [1]),
    (
        {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]},
        {"content": [{"type": "image", "content_type": "image/png", "bytes": 4, "base64": PIXEL}]},
    ),
    (
        {
            "structuredContent": {"a": 1},
            "content": [{"type": "audio", "data": PIXEL, "mimeType": "audio/\u202ewav"}],
        },
        {"a": 1, "content": [{"type": "audio", "content_type": "audio/wav", "bytes": 4, "base64": PIXEL}]},
    ),
    (
        {
            "content": [
                {"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain", "icons": []}
            ]
        },
        {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a", "content_type": "text/plain"}]},
    ),
    (
        {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "x"}}, {"type": "text", "text": "y"}]},
        {"text": "y", "content": [{"type": "resource", "uri": "a:b", "text": "x"}]},
    ),
    (
        {"content": [{"type": "resource", "resource": {"uri": "a:b", "blob": PIXEL}}]},
        {"content": [{"type": "resource", "uri": "a:b", "bytes": 4, "base64": PIXEL}]},
    ),
    ({"content": [{"type": "hologram", "data": "x"}]}, {"content": [{"type": "unknown", "kind": "hologram"}]}),
]


@pytest.mark.parametrize(("result", "output"), RESULTS)
def test_each_kind_of_content_in_a_tool_result_becomes_data(result: dict[str, Any], output: Any) -> None:
    """Text is text, structured content is as it is, and other content says its type."""
    assert done(result).output == output


BAD: list[tuple[Any, str]] = [
    ({"isError": True, "content": [{"type": "text", "text": "no\n\u200bsuch note"}]}, "the tool failed: no such note"),
    ({"isError": True}, "the tool failed"),
    ({"resultType": "input_required"}, "wants more before it answers"),
]


@pytest.mark.parametrize(("result", "words"), BAD)
def test_a_tool_result_with_an_error_or_a_request_for_more_input_is_a_failure(result: Any, words: str) -> None:
    """The failure is the service's, in its words, bounded and on one line."""
    failure = done(result, answered={"properties": {"a": {"type": "integer"}}}).failure
    assert failure.failure_class == "external_api_error"
    assert words in failure.message


MISFITS: list[tuple[Any, Any, str]] = [
    ({"content": "text"}, {"content": "text"}, "content is not a list of objects"),
    ({"content": [1]}, {"content": [1]}, "content is not a list of objects"),
    (
        {"content": [{"type": "image", "data": "%%%"}]},
        {"content": [{"type": "image", "data": "%%%"}]},
        "is not base64",
    ),
    ({"structuredContent": {"a": "x"}}, {"a": "x"}, ".a is not an integer (by the tool's output schema)"),
    ({"structuredContent": ["x"]}, {"value": ["x"]}, "the whole is not an object"),
    (
        {"structuredContent": {"a": 10**20, "b": "\ud83d"}},
        {"a": "100000000000000000000", "b": "\ufffd"},
        ".a is a number that is given as text; .b has what is no character",
    ),
    ({"content": [{"type": "text", "text": "done \ud83d"}]}, {"text": "done \ufffd"}, ".text has what is no character"),
]


@pytest.mark.parametrize(("result", "output", "words"), MISFITS)
def test_a_result_that_violates_its_schema_is_returned_with_a_note(result: Any, output: Any, words: str) -> None:
    """The note says where. The call has been made, and a lost result makes an agent repeat it."""
    told = done(result, answered={"type": "object", "properties": {"a": {"type": "integer"}}}).output
    assert words in told.pop("does_not_fit")
    assert told == output


def test_only_the_first_1000_parts_of_a_tool_result_are_returned() -> None:
    """The note says how many there are in all."""
    told = done({"content": [{"type": "x"}] * 1001}).output
    assert len(told["content"]) == 1000
    assert "content has 1001 parts" in told["does_not_fit"]


def test_a_result_too_large_for_a_frame_is_cut_with_a_note() -> None:
    """Text is cut at its end, content by its members; data that is one thing becomes the beginning of its JSON."""
    text = done({"content": [{"type": "text", "text": "x" * 2_000_000}]}).output
    assert len(text["text"]) + text["left_out"] == 2_000_000

    data = base64.b64encode(bytes(300_000)).decode()
    some = done({"content": [{"type": "image", "data": data}] * 5}).output
    assert (len(some["content"]), some["left_out"]) == (2, 3)

    with_text = {
        "structuredContent": {"text": "x" * 600_000, "id": 1},
        "content": [{"type": "image", "data": data}] * 5,
    }
    other = done(with_text).output
    assert (other["structured"]["id"], len(other["content"]), other["left_out"]) == (1, 1, 4)

    whole = done({"structuredContent": {"a": "x" * 2_000_000}}).output
    assert whole["text"].startswith('{"a":"xxx')
    assert len(whole["text"]) + whole["left_out"] == 2_000_008
    assert "2000008 characters" in whole["does_not_fit"]


CHANGED: list[tuple[dict[str, Any], str]] = [
    ({**TOOL, "description": "Deletes."}, "description"),
    ({**TOOL, "title": "Add"}, "title"),
    ({**TOOL, "inputSchema": {"type": "object", "properties": {"a\u200b": {}}}}, "inputSchema.properties"),
    ({**TOOL, "outputSchema": {"type": "object"}}, "outputSchema"),
    ({**TOOL, "annotations": {"readOnlyHint": True}}, "annotations"),
    ({"name": "add", "inputSchema": TOOL["inputSchema"]}, "description"),
]


@pytest.mark.parametrize(("now", "place"), CHANGED)
def test_a_changed_tool_is_not_called(now: dict[str, Any], place: str) -> None:
    """Any change of what a person chose the tool by counts. Hidden characters are made visible in the changes."""
    found = done({}, now=[now])
    assert len(found.requests) == 1
    assert found.failure.details["reason"] == "tool_changed"
    assert [change["where"] for change in shaped(found.failure.details)["changes"]] == [place]
    assert "\u200b" not in json.dumps(found.failure.details["changes"], ensure_ascii=False)
    assert json.loads(shaped(found.failure.details)["now"]) == now, "whole and as it is, for whoever shows it"


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_tool_is_compared_again_in_a_new_mcp_session(is_changed: bool) -> None:
    """A server that has forgotten the session may have been restarted, with other tools."""
    asked: list[str] = []

    def reply(request: Request) -> Reply:
        if request.method == "DELETE":
            return Reply(204)
        message = request.json()
        asked.append(message["method"])
        if message["method"] == "initialize":
            data = json.dumps(answer(message["id"], RESULTS_OF["initialize"])).encode()
            return Reply(200, data, (("content-type", "application/json"), ("mcp-session-id", f"s{len(asked)}")))
        if "id" not in message:
            return Reply(202)
        is_new = asked.count("initialize") == 2
        if message["method"] == "tools/list":
            tool = {**TOOL, "description": "Deletes."} if is_new and is_changed else TOOL
            return Reply.of(answer(message["id"], {"tools": [tool]}))
        return Reply.of(answer(message["id"], DONE)) if is_new else Reply(404)

    with declared(packed(TOOL).replace(MODERN.encode(), LATEST.encode())):
        told = call("x", {}, answer=reply)
    if is_changed:
        assert "has changed the tool" in told.failure.message
        assert asked.count("tools/call") == 1
    else:
        assert told.output == {"text": "done"}
        assert asked.count("tools/call") == 2


def test_changes_that_are_not_about_the_tool_are_ignored() -> None:
    """Icons, `_meta`, the order of keys, and other tools may change."""
    now = [{"name": "other"}, {"_meta": {"a": 1}, "icons": [], **dict(reversed(TOOL.items()))}]
    assert done({}, now=now).output == {"text": ""}


def test_a_missing_or_duplicate_tool_is_not_called() -> None:
    """The failure says which of the two it is."""
    assert "no longer has the tool" in done({}, now=[]).failure.message
    assert "twice" in done({}, now=[TOOL, TOOL]).failure.message


def test_the_reported_differences_of_a_changed_tool_are_bounded() -> None:
    """Eight places at most are reported, each with a piece of both texts around the difference."""
    many = {f"p{number}": {"description": "a" * 5000 + "b"} for number in range(50)}
    now = {name: {"description": "a" * 5000 + "c"} for name in many}
    tool = {**TOOL, "inputSchema": {"properties": many}}
    found = shaped(done({}, tool, now=[{**tool, "inputSchema": {"properties": now}}]).failure.details["changes"])
    assert len(found) == 8
    assert all(len(change["before"]) < 300 and "b" in change["before"] and "c" in change["after"] for change in found)


def test_arguments_go_to_the_tool_s_properties_and_headers() -> None:
    """Arguments are properties or one whole value; marked ones are sent in a header too."""
    schema = {"type": "object", "properties": {"noteText": {"type": "string", "x-mcp-header": "Text"}}}
    tool = {**TOOL, "inputSchema": schema}
    found = done({}, tool, args={"note_text": "mÿlk"}, arguments={"noteText": "note_text"}, sent=schema)
    request = found.requests[1]
    assert request.json()["params"]["arguments"] == {"noteText": "mÿlk"}
    headers = dict(request.headers)
    assert headers["Mcp-Param-Text"] == "=?base64?bcO/bGs=?="
    assert (headers["Mcp-Method"], headers["Mcp-Name"]) == ("tools/call", "add")
    assert {request.credential for request in found.requests} == {"api_key"}

    whole = done({}, args={"body": {"a": 1}}, argument="body")
    assert whole.requests[1].json()["params"]["arguments"] == {"a": 1}


@pytest.mark.parametrize("args", [{"other": 1}, {"note_text": 1}, {}])
def test_invalid_arguments_are_bad_input_and_no_request_is_sent(args: dict[str, Any]) -> None:
    """The failure is `bad_input`, and no request is sent."""
    schema = {"type": "object", "properties": {"noteText": {"type": "string"}}, "required": ["noteText"]}
    found = done({}, args=args, arguments={"noteText": "note_text"}, sent=schema)
    assert found.failure.failure_class == "bad_input"
    assert found.requests == ()


def test_packed_tools_of_a_newer_format_are_refused() -> None:
    """They come from a newer import, which needs a newer SDK."""
    with pytest.raises(Exception, match="format 2"):
        Service(json.dumps({"format": 2, "title": "", "path": "/", "protocol": MODERN, "tools": {}}).encode())
