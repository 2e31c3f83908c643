"""Actions as tools: names, schemas, hints, order and pages."""

from __future__ import annotations

from typing import Any

import jsonschema
import msgspec
import pytest

from aileron.mcp import tools
from aileron.mcp.agent_port import Offer, Offered
from aileron.mcp.tools import FIND_ACTION, MAX_DESCRIPTION, OWN, PAGE_TOOLS, RUN_ACTION, Tool, page_of, tool_of
from aileron.model.names import RESERVED_TOOLS
from tests.mcp.peers import offered
from tests.support.shaped import shaped

OWN_NAMES = [tool.name for tool in OWN]


def offer(*actions: Offered, listed: frozenset[str] | None = None) -> Offer:
    """Return these actions, all of them as tools unless only some are `listed`."""
    return Offer(actions=actions, listed=listed)


def hints(tool: Tool) -> dict[str, bool | None]:
    """Return the four hints, by their names on the wire."""
    dumped: dict[str, Any] = msgspec.to_builtins(tool.annotations)
    return {name: value for name, value in dumped.items() if name.endswith("Hint")}


def every_tool() -> list[Tool]:
    """Return our own tools, and one for each kind of action."""
    kinds = [
        offered(f"a-{gated}-{idempotent}-{irreversible}-{granted}".lower(), **options, granted=granted)
        for gated in (True, False)
        for idempotent in (True, False)
        for irreversible in (True, False)
        for granted in (True, False)
        for options in [{"gated": gated, "idempotent": idempotent, "irreversible": irreversible}]
    ]
    return [*OWN, FIND_ACTION, RUN_ACTION, *(tool_of(kind) for kind in kinds)]


@pytest.mark.parametrize("tool", every_tool(), ids=lambda tool: tool.name)
def test_every_tool_has_a_title_a_description_and_every_hint(tool: Tool) -> None:
    """A client assumes the worst about a hint that is missing."""
    assert None not in hints(tool).values()
    assert len(hints(tool)) == 4
    assert tool.title
    assert tool.title == tool.annotations.title
    assert tool.description
    assert tool.meta == {"anthropic/alwaysLoad": True}


@pytest.mark.parametrize("tool", every_tool(), ids=lambda tool: tool.name)
def test_every_schema_is_valid_and_describes_each_argument(tool: Tool) -> None:
    """The schema is JSON Schema 2020-12 of an object, closed, with each property described."""
    jsonschema.Draft202012Validator.check_schema(tool.input_schema)

    assert (tool.input_schema["type"], tool.input_schema["additionalProperties"]) == ("object", False)
    assert all(spec["description"] for spec in shaped(tool.input_schema)["properties"].values())


def test_the_tool_of_an_action_gets_its_title_description_and_schema_from_the_action_file() -> None:
    """The tool has the name in snake_case, the intent as title, the body as description, the inputs as schema."""
    tool = tool_of(offered("send.the-mail", body="# Send\n\nWhen it fires: send it."))

    assert (tool.name, tool.title, tool.description) == (
        "send_the_mail",
        "do send.the-mail",
        "# Send\n\nWhen it fires: send it.",
    )
    assert tool.input_schema["properties"] == {"topic": {"type": "string", "description": "What about."}}


def test_a_long_tool_description_is_truncated_and_says_so() -> None:
    """The cut is at MAX_DESCRIPTION characters, and the number of missing ones is given."""
    whole = tool_of(offered("a", body="y" * MAX_DESCRIPTION)).description
    cut = tool_of(offered("a", body="y" * (MAX_DESCRIPTION + 7))).description

    assert whole == "y" * MAX_DESCRIPTION
    assert cut == "y" * MAX_DESCRIPTION + "\n\n(cut here: 7 more characters)"


@pytest.mark.parametrize(
    ("options", "reads", "destroys", "repeats"),
    [
        ({"idempotent": True}, True, False, True),
        ({}, False, True, False),
        ({"gated": True}, False, False, False),
        ({"gated": True, "idempotent": True}, False, False, False),
        ({"gated": True, "irreversible": False}, False, False, False),
        ({"gated": True, "irreversible": False, "granted": True}, False, False, False),
        ({"gated": True, "irreversible": True, "granted": True}, False, True, False),
        ({"gated": True, "irreversible": False, "idempotent": True, "granted": True}, True, False, True),
    ],
)
def test_the_hints_of_a_tool_describe_what_a_call_does_without_a_decision_by_a_person(
    options: dict[str, Any], reads: bool, destroys: bool, repeats: bool
) -> None:
    """A gated call only asks a person, so it is not destructive; an ungated one is what its file says (ADR 0019)."""
    assert hints(tool_of(offered("a", **options))) == {
        "readOnlyHint": reads,
        "destructiveHint": destroys,
        "idempotentHint": repeats,
        "openWorldHint": True,
    }


def test_the_names_of_aileron_s_own_tools_are_exactly_the_reserved_names() -> None:
    """An action cannot have one of these names. Only two of these tools claim to be read-only."""
    assert {*OWN_NAMES, "find_action", "run_action"} == RESERVED_TOOLS
    assert {tool.name for tool in OWN if hints(tool)["readOnlyHint"]} == {"list_pending", "wait_for_action"}
    assert [hints(tool)["destructiveHint"] or hints(tool)["openWorldHint"] for tool in OWN] == [False] * 4


def test_the_hints_say_that_finding_actions_only_reads_and_that_running_actions_may_destroy() -> None:
    """Finding only reads local facts; running may do anything, and is as bad as the worst action."""
    assert hints(FIND_ACTION) == {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert hints(RUN_ACTION) == {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    }


def test_with_many_actions_only_the_listed_actions_have_tools_of_their_own() -> None:
    """The tools that find and run the others are listed too. No action may be listed, or several pages of them."""
    actions = [offered(f"a{number:04}") for number in range(PAGE_TOOLS + 1)]
    names = [entry.action.name for entry in actions]
    none, _ = page_of(offer(*actions, listed=frozenset()), None)
    some, _ = page_of(offer(*actions, listed=frozenset(names[3:5])), None)
    first, cursor = page_of(offer(*actions, listed=frozenset(names)), None)
    second, end = page_of(offer(*actions, listed=frozenset(names)), cursor)

    assert [tool.name for tool in none] == sorted(RESERVED_TOOLS)
    assert [tool.name for tool in some] == [*sorted(RESERVED_TOOLS), *names[3:5]]
    assert [tool.name for tool in [*first, *second]] == [*sorted(RESERVED_TOOLS), *names]
    assert (len(first), end) == (PAGE_TOOLS, None)


def test_the_order_of_tools_does_not_depend_on_the_order_of_actions() -> None:
    """Aileron's tools come first, then actions by name: a changed order would invalidate an agent's prompt cache."""
    actions = [offered(name) for name in ("b", "a.c", "a-b")]

    assert page_of(offer(*actions), None) == page_of(offer(*reversed(actions)), None)
    assert [tool.name for tool in page_of(offer(*actions), None)[0]] == [*OWN_NAMES, "a_b", "a_c", "b"]


def test_a_long_tool_list_comes_in_pages_that_contain_every_tool_once() -> None:
    """Each tool is there once, no page is too long, ours are on the first; a list that fits has no second page."""
    actions = [offered(f"a{number:04}") for number in range(2 * PAGE_TOOLS)]
    seen: list[str] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        page, cursor = page_of(offer(*actions), cursor)
        assert len(page) <= PAGE_TOOLS
        seen += [tool.name for tool in page]
        pages += 1

    assert seen == [*OWN_NAMES, *(entry.action.name for entry in actions)]
    assert pages == 3
    assert page_of(offer(*actions[: PAGE_TOOLS - 4]), None)[1] is None


def test_an_action_added_between_two_pages_of_the_tool_list_moves_no_other_tool() -> None:
    """A cursor names a tool instead of a position."""
    actions = [offered(f"a{number:04}") for number in range(PAGE_TOOLS)]
    first, cursor = page_of(offer(*actions), None)
    second, end = page_of(offer(offered("a0000-new"), *actions[1:]), cursor)

    assert [tool.name for tool in [*first[4:], *second]] == [entry.action.name for entry in actions]
    assert end is None


@pytest.mark.parametrize("cursor", ["", "after:", "after:A", "4", "after:a\n", "before:a", "after:" + "a" * 65])
def test_an_invalid_cursor_is_refused(cursor: str) -> None:
    """A client may only give cursors back, not make them up."""
    with pytest.raises(ValueError, match="not a cursor"):
        page_of(offer(offered("a")), cursor)


def test_the_description_of_the_tool_that_waits_states_its_time_limit() -> None:
    """Agents read the limit that the server enforces."""
    [waiting] = [tool for tool in OWN if tool.name == "wait_for_action"]

    assert str(tools.MAX_WAIT_S) in (waiting.description or "")
    assert shaped(waiting.input_schema)["properties"]["seconds"]["maximum"] == tools.MAX_WAIT_S
