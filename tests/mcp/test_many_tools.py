"""More actions than an agent can choose from: found by words, run by name, and called the same way as every tool."""

from __future__ import annotations

import json
from typing import Any

import anyio
import jsonschema
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from aileron.actions.manifest import input_schema, parse_action
from aileron.mcp.agent_port import Account, Offered
from aileron.mcp.calls import CALL_S
from aileron.mcp.finding import MAX_FOUND, MAX_WORDS_CHARACTERS
from aileron.mcp.results import PAGE_BYTES
from aileron.model.names import RESERVED_TOOLS
from tests.mcp.peers import ERAS, DictDoor, action_text, connected, offered, running
from tests.support.many_actions import many_actions, requests
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.anyio

both_eras = pytest.mark.parametrize("mode", ERAS)
MOST_SHOWN = 12_000
"""Characters of an answer that every agent shows its model whole."""


def many(count: int = 300) -> DictDoor:
    """Return a door with this number of actions, of which none is listed."""
    actions = [parse_action(text, file=f"{name}.md") for name, text in many_actions(count).items()]
    door = DictDoor(*(Offered(action=action, input_schema=input_schema(action)) for action in actions))
    door.listed = frozenset()
    return door


def facts(result: Any) -> dict[str, Any]:
    """Return structuredContent; check that the text ends with the same, and is short enough for every agent to show whole."""
    found: dict[str, Any] = result.structured_content
    assert json.loads(result.content[0].text.partition("\n\n")[2]) == found
    assert len(result.content[0].text) < MOST_SHOWN
    return found


async def find(client: Client, words: str, **more: Any) -> dict[str, Any]:
    """Return the answer of find_action."""
    result = await client.call_tool("find_action", {"words": words, **more})
    assert not result.is_error, result.structured_content
    return facts(result)


@both_eras
async def test_an_agent_lists_finds_and_runs_one_of_three_hundred_actions(mode: str) -> None:
    """Six tools stand in place of three hundred; the right action comes with everything that a call needs."""
    door = many()
    async with running(door) as server, connected(server, mode) as client:
        listed = await client.list_tools()
        found = await find(client, "file a bug in the github repo")
        (meant,) = [action for action in found["actions"] if action["name"] == "github_create_issue"]
        result = await client.call_tool(
            "run_action", {"name": meant["name"], "arguments": {"title": "It is broken", "owner": "acme"}}
        )

    assert [tool.name for tool in listed.tools] == sorted(RESERVED_TOOLS)
    assert listed.next_cursor is None
    assert all(tool.meta == {"anthropic/alwaysLoad": True} for tool in listed.tools)
    assert (meant["title"], meant["asks_a_person"]) == ("create an issue", False)
    assert meant["description"].startswith("Create an issue.\n\nAny user with pull access")
    jsonschema.validate({"title": "It is broken", "owner": "acme"}, meant["input_schema"])
    assert (result.is_error, facts(result)["status"]) == (False, "completed")
    [call] = door.calls
    assert (call.action, call.args) == ("github-create-issue", {"title": "It is broken", "owner": "acme"})
    assert door.waits == [CALL_S]


async def test_every_search_result_stays_within_its_size_limit() -> None:
    """The JSON has about a page at most; actions that do not fit are listed by name only."""
    async with running(many()) as server, connected(server, "auto") as client:
        for words, _ in requests():
            found = await find(client, words, limit=MAX_FOUND)
            shown = found["actions"] + found.get("more", [])
            assert found["actions"]
            assert len(shown) == found["count"] <= MAX_FOUND
            assert len(json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode()) <= PAGE_BYTES + 2048
            if found.get("more"):
                assert {frozenset(action) for action in found["more"]} == {frozenset({"name", "title"})}
                assert "search for its name" in found["next_step"]


async def test_a_search_result_says_that_a_schema_was_too_long_and_left_out() -> None:
    """The names of the arguments are still listed."""
    inputs = "".join(
        f'[[inputs]]\nname = "input_{number}"\ntype = "string"\ndescription = "{"long " * 100}"\n\n'
        for number in range(40)
    )
    action = parse_action(action_text("huge").replace("[[execute]]", f"{inputs}[[execute]]"), file="huge.md")
    door = DictDoor(Offered(action=action, input_schema=input_schema(action)), offered("huge-other"))
    async with running(door) as server, connected(server, "auto") as client:
        found = await find(client, "huge")

    first = found["actions"][0]
    assert "input_schema" not in first
    assert first["arguments"][0] == "input_0"
    assert first["left_out"].startswith("input_schema: ")
    assert [hit["name"] for hit in found["actions"][1:]] == ["huge_other"]


async def test_a_search_result_is_bounded_even_if_actions_have_the_longest_allowed_texts() -> None:
    """Twenty actions have the longest names, intents and bodies; every agent still shows the result whole."""
    texts = [
        action_text(f"same-{'n' * 56}-{number:02}", body="größe 𝔘 " * 2000).replace(
            'intent = "do same', f'intent = "{"größe " * 200}do same'
        )
        for number in range(MAX_FOUND)
    ]
    actions = [parse_action(text, file=f"same-{'n' * 56}-{number:02}.md") for number, text in enumerate(texts)]
    door = DictDoor(*(Offered(action=action, input_schema=input_schema(action)) for action in actions))
    async with running(door) as server, connected(server, "auto") as client:
        found = await find(client, "same", limit=MAX_FOUND)

    assert found["actions"]
    assert found["more"]
    assert len(found["actions"] + found["more"]) == found["count"] <= MAX_FOUND


@both_eras
async def test_a_search_result_says_whether_an_action_needs_approval_and_which_accounts_it_has(mode: str) -> None:
    """The result mentions the approval unless a standing grant exists, and lists the accounts to choose from."""
    door = DictDoor(offered("pay-bill", gated=True), offered("pay-rent", gated=True, irreversible=False, granted=True))
    entry = door.actions["pay-bill"]
    accounts = (Account(value="ann", told="ann@example.com"), Account(value="bob", told="bob@example.com"))
    door.actions["pay-bill"] = Offered(action=entry.action, input_schema=entry.input_schema, accounts=accounts)
    async with running(door) as server, connected(server, mode) as client:
        found = await find(client, "pay")
        await client.call_tool("run_action", {"name": "pay_bill", "arguments": {"useAccount": "ann", "topic": "x"}})
        bad = await client.call_tool("run_action", {"name": "pay_bill", "arguments": {"useAccount": 7}})

    assert {action["name"]: action["asks_a_person"] for action in found["actions"]} == {
        "pay_bill": True,
        "pay_rent": False,
    }
    schema = next(action["input_schema"] for action in found["actions"] if action["name"] == "pay_bill")
    assert schema["properties"]["useAccount"]["enum"] == ["ann", "bob"]
    assert [(call.args, call.binding) for call in door.calls] == [({"topic": "x"}, "ann")]
    assert (facts(bad)["error"]["class"], facts(bad)["status"]) == ("bad_input", "failed")


@both_eras
async def test_run_action_returns_the_same_result_as_the_actions_own_tool(mode: str) -> None:
    """Pending, failed and completed calls have the same facts, whichever way they were made."""
    door = many()
    door.answers["mail-send-message"] = {
        "status": "pending_approval",
        "approval_id": "act-1",
        "audit_id": "run-1",
        "review_url": "http://localhost:7/approvals/act-1",
    }
    door.answers["mail-get-message"] = {
        "status": "failed",
        "audit_id": "run-2",
        "error": {"class": "external_api_error", "message": "503", "retriable": True},
    }
    async with running(door) as server, connected(server, mode) as client:
        for name in ("mail_send_message", "mail_get_message", "mail_list_labels"):
            direct = await client.call_tool(name, {"to": "ann"})
            by_name = await client.call_tool("run_action", {"name": name, "arguments": {"to": "ann"}})
            assert facts(direct) == facts(by_name)
            assert direct.is_error == by_name.is_error
    assert len(door.calls) == 6


@both_eras
async def test_an_action_that_is_not_in_the_tool_list_can_still_be_called_as_a_tool(mode: str) -> None:
    """Agents remember names from earlier sessions. An unknown name is still a protocol error."""
    async with running(many()) as server, connected(server, mode) as client:
        result = await client.call_tool("stripe_create_refund", {"charge": "ch_1"})
        with pytest.raises(MCPError, match="Unknown tool: stripe_make_coffee"):
            await client.call_tool("stripe_make_coffee", {})

    assert facts(result)["status"] == "completed"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("github_create_isue", "github_create_issue"),
        ("create_issue", "github_create_issue"),
        ("send_email", "mail_send_message"),
    ],
)
async def test_running_an_unknown_action_returns_the_nearest_action_names(name: str, nearest: str) -> None:
    """The call ran no action; the suggested names let the next call succeed."""
    door = many()
    async with running(door) as server, connected(server, "auto") as client:
        result = await client.call_tool("run_action", {"name": name, "arguments": {}})

    told = facts(result)
    assert (result.is_error, told["status"], told["error"]["class"]) == (True, "failed", "not_found")
    assert nearest in told["error"]["details"]["nearest"]
    assert nearest in told["next_step"]
    assert len(told["error"]["details"]["nearest"]) <= 5
    assert door.calls == []


async def test_running_an_action_removed_after_it_was_listed_returns_the_nearest_names() -> None:
    """The daemon's own message is passed on, because only the daemon knows why the action is gone."""
    door = many(20)
    async with running(door) as server, connected(server, "auto") as client:
        await find(client, "issue")
        del door.actions["github-create-issue"]
        result = await client.call_tool("run_action", {"name": "github_create_issue"})

    assert facts(result)["error"]["message"] == "no action 'github-create-issue' is installed"
    assert "github_create_issue_comment" in facts(result)["error"]["details"]["nearest"]


@pytest.mark.parametrize("name", ["github-create-issue", "github_create_issue"])
async def test_run_action_accepts_the_name_of_a_tool_and_the_name_of_its_action_file(name: str) -> None:
    """Both spellings mean one action."""
    door = many(20)
    async with running(door) as server, connected(server, "auto") as client:
        result = await client.call_tool("run_action", {"name": name, "arguments": {"title": "x"}})

    assert facts(result)["status"] == "completed"
    assert [call.action for call in door.calls] == ["github-create-issue"]


@pytest.mark.parametrize(
    ("tool", "args", "problem"),
    [
        ("find_action", {}, "required field `words`"),
        ("find_action", {"words": ""}, "words has 0 characters"),
        ("find_action", {"words": "x" * (MAX_WORDS_CHARACTERS + 1)}, f"expected 1 to {MAX_WORDS_CHARACTERS}"),
        ("find_action", {"words": "x", "limit": 0}, f"limit is 0; expected 1 to {MAX_FOUND}"),
        ("find_action", {"words": "x", "limit": MAX_FOUND + 1}, f"expected 1 to {MAX_FOUND}"),
        ("find_action", {"words": "x", "tag": "y"}, "unknown field `tag`"),
        ("run_action", {}, "required field `name`"),
        ("run_action", {"name": "a", "arguments": "{}"}, "Expected `object`, got `str`"),
        ("run_action", {"name": "a", "topic": "x"}, "unknown field `topic`"),
        ("run_action", {"name": "list_pending"}, "list_pending is a tool of its own: call it directly"),
        ("run_action", {"name": "run-action"}, "run_action is a tool of its own"),
    ],
)
async def test_invalid_arguments_to_run_action_are_explained_in_a_tool_result(
    tool: str, args: dict[str, Any], problem: str
) -> None:
    """The error is a tool result, which a model reads; no action was run."""
    door = DictDoor(offered("a"))
    async with running(door) as server, connected(server, "auto") as client:
        result = await client.call_tool(tool, args)

    assert (result.is_error, facts(result)["error"]["class"]) == (True, "bad_input")
    assert problem in facts(result)["error"]["message"]
    assert door.calls == []


async def test_a_search_without_matches_suggests_other_words() -> None:
    """The result is neither a guess nor an error: it suggests searching with other words."""
    async with running(many(20)) as server, connected(server, "auto") as client:
        found = await find(client, "qwertz \u202e zzz")

    assert (found["count"], found["actions"]) == (0, [])
    assert "None of 20 actions" in found["message"]
    assert "Try other words" in found["next_step"]


async def test_progress_of_an_action_arrives_by_run_action_and_by_its_own_tool() -> None:
    """Progress has the token of the client's call, both through `run_action` and through the action's own tool."""
    door = many(20)
    seen: list[float] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    door.answers["github-get-repository"] = {"status": "running", "run_id": "run-7"}
    async with running(door) as server, connected(server, "auto") as client:

        async def end_it() -> None:
            state = door.states["local", "run-7"]
            state["progress"] = {"number": 1, "done": 3.0, "total": 4.0}
            state |= {"status": "completed", "audit_id": "run-7", "result": {}}
            door.over.set()

        async with anyio.create_task_group() as tasks:

            async def later() -> None:
                await wait_until_async(lambda: ("local", "run-7") in door.states, "the run is asked for")
                await end_it()

            tasks.start_soon(later)
            result = await client.call_tool("run_action", {"name": "github_get_repository"}, progress_callback=report)

    assert facts(result)["status"] == "completed"
    assert seen == [3.0]
