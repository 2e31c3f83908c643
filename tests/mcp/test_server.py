"""The protocol's server with the SDK's own client, in both eras: list, call, wait, cancel, and news of other actions."""

from __future__ import annotations

import json
from typing import Any

import anyio
import jsonschema
import mcp_types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from aileron.mcp.agent_port import CallState, ProgressReport
from aileron.mcp.calls import CALL_S
from aileron.mcp.results import PAGE_BYTES
from aileron.mcp.server import INSTRUCTIONS
from aileron.mcp.tools import OWN
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import RESERVED_TOOLS
from tests.mcp.peers import ERAS, DictDoor, connected, offered, running
from tests.support.shaped import shaped

pytestmark = pytest.mark.anyio

OWN_NAMES = [tool.name for tool in OWN]

both_eras = pytest.mark.parametrize("mode", ERAS)
PENDING: CallState = {
    "status": "pending_approval",
    "approval_id": "act-1",
    "audit_id": "run-1",
    "review_url": "http://localhost:7/approvals/act-1",
    "expires_at": "2026-11-21T20:00:00.000Z",
    "poll_after_ms": 2000,
}


def facts(result: Any) -> dict[str, Any]:
    """Return structuredContent; check that the text ends with the same."""
    found: dict[str, Any] = result.structured_content
    assert json.loads(result.content[0].text.partition("\n\n")[2]) == found
    return found


def pending_door() -> DictDoor:
    """Return a door whose only action waits for a person, as `act-1`."""
    door = DictDoor(offered("send-mail", gated=True))
    door.answers["send-mail"] = PENDING.copy()
    return door


@both_eras
async def test_a_client_of_either_protocol_era_lists_and_calls_tools(mode: str) -> None:
    """Both eras get the same tools and the same result; the client chooses the era."""
    door = DictDoor(offered("get-advice"), offered("send.mail", gated=True))
    async with running(door) as server, connected(server, mode) as client:
        tools = (await client.list_tools()).tools
        result = await client.call_tool("get_advice", {"topic": "work"})

        assert client.protocol_version == {"legacy": "2025-11-25", "auto": "2026-07-28"}[mode]
        assert [tool.name for tool in tools] == [*OWN_NAMES, "get_advice", "send_mail"]
        assert (result.is_error, facts(result)["result"]) == (False, {"args": {"topic": "work"}})
        [call] = door.calls
        assert (call.session, call.action, call.binding) == ("local", "get-advice", None)
        assert door.waits == [CALL_S]


@both_eras
async def test_the_servers_instructions_are_sent_at_the_start_and_fit_every_agents_limit(mode: str) -> None:
    """They are equal in `initialize` and `server/discover`, and fit the agent that truncates them earliest."""
    async with running(DictDoor()) as server, connected(server, mode) as client:
        assert client.instructions == INSTRUCTIONS
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("aileron", "1.2.3")
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed is True
        assert client.server_capabilities.prompts is None
    assert len(INSTRUCTIONS) <= 2048
    assert INSTRUCTIONS.index("pending_approval") < 500
    assert all(name in INSTRUCTIONS for name in RESERVED_TOOLS)


@both_eras
async def test_every_tool_on_the_wire_has_a_valid_schema_and_all_hints(mode: str) -> None:
    """The client sees a valid JSON Schema, and every hint is present."""
    door = DictDoor(offered("a", idempotent=True), offered("b", gated=True), offered("c"))
    async with running(door) as server, connected(server, mode) as client:
        listed = await client.list_tools()
        for tool in listed.tools:
            jsonschema.Draft202012Validator.check_schema(tool.input_schema)
            assert tool.annotations is not None
            dumped = tool.annotations.model_dump()
            assert None not in dumped.values(), (tool.name, dumped)
            assert tool.meta == {"anthropic/alwaysLoad": True}
        if mode == "auto":
            assert (listed.ttl_ms, listed.cache_scope) == (1000, "private")


@both_eras
async def test_a_long_tool_list_is_read_page_by_page_with_cursors(mode: str) -> None:
    """A client that follows the cursors sees all tools; an invented cursor is a protocol error."""
    door = DictDoor(*(offered(f"a{number:03}") for number in range(300)))
    async with running(door) as server, connected(server, mode) as client:
        first = await client.list_tools()
        second = await client.list_tools(cursor=first.next_cursor)
        with pytest.raises(MCPError) as caught:
            await client.list_tools(cursor="mine")

        assert len({tool.name for tool in [*first.tools, *second.tools]}) == 304
        assert second.next_cursor is None
        assert caught.value.error.code == mcp_types.INVALID_PARAMS


@both_eras
async def test_a_call_of_a_gated_action_returns_at_once_and_its_status_is_polled(mode: str) -> None:
    """The statuses are pending, still pending, and denied with the reason; another session's id is unknown."""
    door = pending_door()
    async with running(door) as server, connected(server, mode, "ses-1") as client:
        asked = await client.call_tool("send_mail", {})
        waiting = await client.call_tool("check_action_status", {"id": "act-1"})
        listed = await client.call_tool("list_pending", {})
        door.states["ses-1", "act-1"] |= {"status": "denied", "reason": "not now"}
        denied = await client.call_tool("check_action_status", {"id": "act-1"})

        assert [facts(result)["status"] for result in (asked, waiting, denied)] == ["pending_approval"] * 2 + ["denied"]
        assert (asked.is_error, waiting.is_error, denied.is_error) == (False, False, True)
        assert facts(denied)["reason"] == "not now"
        assert [question["approval_id"] for question in facts(listed)["pending"]] == ["act-1"]
        async with connected(server, mode, "ses-2") as other:
            for tool in ("check_action_status", "wait_for_action", "cancel_action"):
                result = await other.call_tool(tool, {"id": "act-1"})
                assert (result.is_error, facts(result)["error"]["class"]) == (True, "not_found")
            assert facts(await other.call_tool("list_pending", {}))["pending"] == []


@both_eras
async def test_an_agents_answer_to_a_question_reaches_the_person(mode: str) -> None:
    """A question ends the wait at once, and the answer reaches the person; without a question, an answer is refused."""
    door = pending_door()
    async with running(door) as server, connected(server, mode) as client:
        await client.call_tool("send_mail", {})
        early = await client.call_tool("check_action_status", {"id": "act-1", "answer": "Mira Park"})
        door.states["local", "act-1"]["question"] = "Which Mira?"
        door.over.set()
        asked = await client.call_tool("wait_for_action", {"id": "act-1", "seconds": 50})
        after = await client.call_tool("check_action_status", {"id": "act-1", "answer": "Mira Park"})

        assert (early.is_error, facts(early)["error"]["class"]) == (True, "invalid_request")
        assert facts(asked)["question"] == "Which Mira?"
        assert (after.is_error, "question" in facts(after)) == (False, False)
        assert facts(after)["message"].startswith("Your answer was passed on. Nothing has happened yet")


@both_eras
async def test_waiting_reports_progress_and_ends_with_the_action(mode: str) -> None:
    """Progress arrives during the wait; the result says how the action ended."""
    door = pending_door()
    seen: list[tuple[float, str | None]] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        assert total == 50
        seen.append((progress, message))
        if len(seen) == 3:
            door.states["local", "act-1"] |= {"status": "completed", "result": "sent"}
            door.over.set()

    async with running(door, progress_s=0.01) as server, connected(server, mode) as client:
        await client.call_tool("send_mail", {})
        arguments = {"id": "act-1", "seconds": 50}
        result = await client.call_tool("wait_for_action", arguments, progress_callback=progressed)

        assert facts(result)["result"] == "sent"
        assert len(seen) >= 3
        assert [progress for progress, _ in seen] == sorted(progress for progress, _ in seen)
        assert (seen[0][1] or "").startswith("pending_approval")


class ReportingDoor(DictDoor):
    """A door whose runs report the test's `reports`, one at each look, and then complete."""

    def __init__(self, *reports: tuple[float, float | None]) -> None:
        super().__init__(offered("send-mail"))
        self.answers["send-mail"] = {"status": "running", "run_id": "run-1"}
        self.reports = list(reports)
        self.looks: list[int | None] = []

    async def state(self, session: str, asked: str, wait_s: float, seen: int | None = None) -> CallState:
        self._own(session, asked)
        if len(self.looks) == len(self.reports):
            return {"status": "completed", "audit_id": asked, "result": "sent"}
        self.looks.append(seen)
        done, total = self.reports[len(self.looks) - 1]
        progress: ProgressReport = {"number": len(self.looks), "done": done}
        if total is not None:
            progress["total"] = total
        return {"status": "running", "audit_id": asked, "progress": progress}


@both_eras
async def test_progress_only_rises_whatever_a_connector_reports(mode: str) -> None:
    """Progress that restarts from zero is added to the total so far; progress that decreases is not sent."""
    door = ReportingDoor((1, 2), (2, 2), (2, 2), (0, 4), (1, 4), (-5, None), (1e9, 2))
    seen: list[tuple[float, float | None]] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total))

    async with running(door) as server, connected(server, mode) as client:
        result = await client.call_tool("send_mail", {}, progress_callback=progressed)

    assert facts(result)["result"] == "sent"
    assert seen == [(1, 2), (2, 2), (3, 6), (3 + 1e9, 5)]
    assert door.looks == list(range(7)), "each look asks for what is newer"


@both_eras
async def test_waiting_ends_after_the_requested_time(mode: str) -> None:
    """The result is the current state, as of a check; a time above the bound is refused."""
    door = pending_door()
    async with running(door, progress_s=0.01) as server, connected(server, mode) as client:
        await client.call_tool("send_mail", {})
        result = await client.call_tool("wait_for_action", {"id": "act-1", "seconds": 0.03})
        long = await client.call_tool("wait_for_action", {"id": "act-1", "seconds": 51})

        assert facts(result)["status"] == "pending_approval"
        assert (long.is_error, facts(long)["error"]["class"]) == (True, "bad_input")
        assert "expected 0 to 50" in facts(long)["message"]


@both_eras
async def test_cancel_action_withdraws_a_pending_approval_once(mode: str) -> None:
    """The withdrawal works once; a second one is refused, because the question is already decided."""
    door = pending_door()
    async with running(door) as server, connected(server, mode) as client:
        await client.call_tool("send_mail", {})
        taken = await client.call_tool("cancel_action", {"id": "act-1"})
        again = await client.call_tool("cancel_action", {"id": "act-1"})

        assert (taken.is_error, facts(taken)["status"]) == (False, "cancelled")
        assert (again.is_error, facts(again)["error"]["class"]) == (True, "already_decided")


@both_eras
@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("check_action_status", {}, "required field `id`"),
        ("check_action_status", {"id": 7}, "Expected `str`, got `int`"),
        ("check_action_status", {"id": ""}, "an id has 1 to 200 characters"),
        ("check_action_status", {"id": "x" * 201}, "an id has 1 to 200 characters"),
        ("check_action_status", {"id": "act-1", "page": "2"}, "Expected `int`, got `str`"),
        ("check_action_status", {"id": "act-1", "approve": True}, "unknown field `approve`"),
        ("wait_for_action", {"id": "act-1", "seconds": -1}, "expected 0 to 50"),
        ("cancel_action", {"id": None}, "Expected `str`, got `null`"),
        ("list_pending", {"session": "ses-2"}, "unknown field `session`"),
    ],
)
async def test_invalid_arguments_give_a_tool_result_that_names_them(
    mode: str, tool: str, arguments: dict[str, Any], words: str
) -> None:
    """The error is a tool result and not a protocol error, because a model reads only the former."""
    async with running(DictDoor()) as server, connected(server, mode) as client:
        result = await client.call_tool(tool, arguments)

        assert (result.is_error, facts(result)["error"]["class"]) == (True, "bad_input")
        assert words in facts(result)["message"]


@both_eras
async def test_a_refusal_by_the_daemon_is_a_tool_result(mode: str) -> None:
    """The result has the failure's class and fix; a refused action has the status failed."""
    door = DictDoor(offered("send-mail"))

    async def locked(*_args: object) -> dict[str, Any]:
        raise AileronError(FailureClass.VAULT_LOCKED, "the vault is locked: aileron vault unlock")

    door.run = locked  # type: ignore[assignment, method-assign]
    async with running(door) as server, connected(server, mode) as client:
        result = await client.call_tool("send_mail", {})

        assert (result.is_error, facts(result)["status"]) == (True, "failed")
        assert facts(result)["error"]["class"] == "vault_locked"
        assert "aileron vault unlock" in facts(result)["next_step"]


@both_eras
async def test_an_unknown_tool_is_a_protocol_error(mode: str) -> None:
    """The specification requires this; the message quotes the name escaped and truncated."""
    async with running(DictDoor(offered("a"))) as server, connected(server, mode) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("no\u202esuch\x1b[2Jtool" + "x" * 1000, {})

        assert caught.value.error.code == mcp_types.INVALID_PARAMS
        assert caught.value.error.message.startswith(r"Unknown tool: no\u202esuch\x1b[2Jtoolxx")
        assert len(caught.value.error.message) < 300


@both_eras
async def test_calling_a_removed_tool_says_why_it_is_gone(mode: str) -> None:
    """The door gives the reason to a session that listed it before; another action of the same tool name is found."""
    door = DictDoor(offered("a-b"))
    async with running(door) as server, connected(server, mode) as client:
        await client.list_tools()
        del door.actions["a-b"]
        gone = await client.call_tool("a_b", {})
        door.actions["a.b"] = offered("a.b")
        other = await client.call_tool("a_b", {})

        assert (gone.is_error, facts(gone)["error"]["class"]) == (True, "not_found")
        assert (other.is_error, door.calls[-1].action) == (False, "a.b")


@pytest.mark.abuse_case("A8")
@both_eras
async def test_an_unexpected_exception_reveals_nothing_about_the_call(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the agent nor the log gets the exception's text or the arguments of the call."""
    door = DictDoor(offered("a"))

    async def broken(*_args: object) -> dict[str, Any]:
        raise ValueError("hunter2 in the words")

    door.run = broken  # type: ignore[assignment, method-assign]
    with caplog.at_level("DEBUG"):
        async with running(door) as server, connected(server, mode) as client:
            result = await client.call_tool("a", {"topic": "hunter2 in an argument"})
            door.offer = broken  # type: ignore[assignment, method-assign]
            with pytest.raises(MCPError, match="this is a bug in aileron") as caught:
                await client.list_tools()

    assert (result.is_error, facts(result)["error"]["class"]) == (True, "internal_error")
    assert "hunter2" not in f"{result} {caught.value}"
    ours = [record for record in caplog.records if not record.name.startswith(("mcp.client", "asyncio"))]
    assert "ValueError" in " ".join(record.getMessage() for record in ours)
    assert not [record for record in ours if "hunter2" in f"{record.getMessage()} {record.exc_text} {record.exc_info}"]


@both_eras
async def test_a_long_result_is_read_page_by_page(mode: str) -> None:
    """The first page comes with the answer; together they are the result."""
    result = {"notes": ["größe \U0001f680" * 40] * 200}
    door = DictDoor(offered("read", idempotent=True))
    door.answers["read"] = {"status": "completed", "audit_id": "run-9", "result": shaped(result)}
    async with running(door) as server, connected(server, mode) as client:
        page = facts(await client.call_tool("read", {}))
        pages = [page["result_json"]]
        while "next_page" in page:
            arguments = {"id": page["id"], "page": page["next_page"]}
            page = facts(await client.call_tool("check_action_status", arguments))
            pages.append(page["result_json"])
        beyond = await client.call_tool("check_action_status", {"id": "run-9", "page": len(pages) + 1})

        assert json.loads("".join(pages)) == result
        assert len(pages) == page["pages"] > 2
        assert all(len(piece.encode()) <= PAGE_BYTES for piece in pages)
        assert (beyond.is_error, facts(beyond)["error"]["class"]) == (True, "bad_input")


@both_eras
async def test_a_cancelled_call_stops_waiting(mode: str) -> None:
    """The daemon's coroutine is cancelled, and the connection stays open."""
    door = DictDoor(offered("slow"), offered("quick"))
    door.hold = anyio.Event()
    async with running(door) as server, connected(server, mode) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "slow", {})
        await door.begun.wait()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), anyio.fail_after(10):
            await door.cancelled.wait()
            door.hold.set()
            assert not (await client.call_tool("quick", {})).is_error


@both_eras
async def test_calls_stop_waiting_when_their_connection_ends(mode: str) -> None:
    """The calls stop as cancelled ones do: there is no client to be answered."""
    door = DictDoor(offered("slow"))
    door.hold = anyio.Event()
    async with running(door) as server:
        async with anyio.create_task_group() as tasks, connected(server, mode) as client:
            tasks.start_soon(client.call_tool, "slow", {})
            await door.begun.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(10):
            await door.cancelled.wait()


async def test_clients_of_the_older_era_are_notified_of_changed_actions() -> None:
    """Every connected client is notified without a subscription; its next list is the new one."""
    door = DictDoor(offered("a"))
    heard = [anyio.Event(), anyio.Event()]

    def hear(event: anyio.Event) -> Any:
        async def handler(message: object) -> None:
            if isinstance(message, mcp_types.ToolListChangedNotification):
                event.set()

        return handler

    async with (
        running(door) as server,
        connected(server, "legacy", message_handler=hear(heard[0])) as client,
        connected(server, "legacy", "ses-2", message_handler=hear(heard[1])) as other,
    ):
        await client.list_tools()
        await other.list_tools()  # now the server knows that both are initialized
        door.actions["b"] = offered("b")
        await server.tools_changed()
        with anyio.fail_after(10):
            await heard[0].wait()
            await heard[1].wait()
        assert "b" in [tool.name for tool in (await client.list_tools()).tools]


async def test_a_client_of_the_newer_era_is_notified_on_its_subscription() -> None:
    """A client without a subscription gets no notification; both see the new list."""
    door = DictDoor(offered("a"))
    unasked: list[object] = []

    async def handler(message: object) -> None:
        unasked.append(message)

    async with (
        running(door) as server,
        connected(server, "auto") as client,
        connected(server, "auto", message_handler=handler) as deaf,
        client.listen(tools_list_changed=True) as changes,
    ):
        door.actions["b"] = offered("b")
        await server.tools_changed()
        with anyio.fail_after(10):
            event = await anext(aiter(changes))
        assert type(event).__name__ == "ToolsListChanged"
        assert "b" in [tool.name for tool in (await _fresh(client)).tools]
        assert "b" in [tool.name for tool in (await _fresh(deaf)).tools]
        assert [message for message in unasked if isinstance(message, mcp_types.ToolListChangedNotification)] == []


async def test_ended_connections_get_no_notifications_and_are_forgotten() -> None:
    """Connections that have ended leave no entry behind, so changes cost nothing for them."""
    door = DictDoor(offered("a"))
    async with running(door) as server:
        for _ in range(5):
            async with connected(server, "legacy") as client:
                await client.list_tools()
        await server.tools_changed()
        assert len(server.told) == 0


async def _fresh(client: Client) -> mcp_types.ListToolsResult:
    return await client.list_tools(cache_mode="refresh")
