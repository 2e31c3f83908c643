"""Whose account a call means: one argument where there is a choice, none where there is none, and never one of the action's."""

from __future__ import annotations

from typing import Any

import jsonschema
import msgspec
import pytest

from aileron.mcp.agent_port import Account, Offered
from aileron.mcp.results import refused
from aileron.mcp.tools import ACCOUNT, tool_of
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import INPUT_NAME
from aileron.model.outcome import RunStatus
from tests.mcp.peers import ERAS, DictDoor, connected, offered, running

pytestmark = pytest.mark.anyio
TWO = (
    Account(value="home", told="mira@example.com (oauth2/mail/home)"),
    Account(value="work", told="oauth2/mail/work"),
)


def choosing(*accounts: Account) -> Offered:
    """An action whose caller has this choice."""
    return msgspec.structs.replace(offered("get-advice"), accounts=accounts)


def test_no_input_of_an_action_can_be_taken_for_it():
    """The grammar of inputs has no such name, so nothing an author writes, now or later, means this argument."""
    assert INPUT_NAME.fullmatch(ACCOUNT) is None


def test_a_choice_is_one_optional_argument_more():
    """With the values there are and whose each is; the action's own schema stays as it was."""
    entry = choosing(*TWO)
    before = msgspec.json.encode(entry.input_schema)
    schema = tool_of(entry).input_schema
    about = schema["properties"][ACCOUNT]

    jsonschema.Draft202012Validator.check_schema(schema)
    assert (about["type"], about["enum"]) == ("string", ["home", "work"])
    assert "home: mira@example.com (oauth2/mail/home); work: oauth2/mail/work" in about["description"]
    assert ACCOUNT not in schema.get("required", [])
    jsonschema.validate({"topic": "x", ACCOUNT: "work"}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({ACCOUNT: "eve"}, schema)
    assert msgspec.json.encode(entry.input_schema) == before


def test_without_a_choice_there_is_no_argument():
    """The tool is what it was."""
    assert tool_of(choosing()).input_schema == offered("get-advice").input_schema


def test_more_accounts_than_are_listed_take_any_name():
    """The list is cut and says so; a strict client may still name the others."""
    about = tool_of(choosing(*(Account(value=f"a{n}", told=f"a{n}") for n in range(33)))).input_schema["properties"][
        ACCOUNT
    ]

    assert "enum" not in about
    assert about["description"].endswith("; and more, by name")
    assert "a32" not in about["description"]


def test_whose_it_is_was_written_by_somebody_else():
    """Hidden characters are spelled out, and a long one is cut."""
    told = tool_of(choosing(Account(value="home", told="\u202eevil\x1b" + "x" * 5000), TWO[1]))
    description = told.input_schema["properties"][ACCOUNT]["description"]

    assert not {"\u202e", "\x1b"} & set(description)
    assert len(description) < 500


@pytest.mark.parametrize("mode", ERAS)
async def test_what_is_named_is_no_argument_of_the_action(mode: str):
    """It goes to the door beside the arguments, whether it was offered or not; the arguments do not have it."""
    door = DictDoor(choosing(*TWO))
    async with running(door) as server, connected(server, mode) as client:
        named = await client.call_tool("get_advice", {"topic": "x", ACCOUNT: "work"})
        plain = await client.call_tool("get_advice", {"topic": "x"})

    assert [(call.args, call.binding) for call in door.calls] == [({"topic": "x"}, "work"), ({"topic": "x"}, None)]
    assert named.structured_content == plain.structured_content


@pytest.mark.parametrize("value", [7, ["home"], {"a": 1}, True, "x" * 2001])
async def test_what_is_no_name_is_refused(value: Any):
    """Before the door is asked."""
    door = DictDoor(choosing(*TWO))
    async with running(door) as server, connected(server, "auto") as client:
        result = await client.call_tool("get_advice", {ACCOUNT: value})

    assert result.is_error
    assert result.structured_content is not None
    assert result.structured_content["error"]["class"] == "bad_input"
    assert door.calls == []


def test_a_refusal_says_what_to_call_again_with():
    """The choices, and that the person is to be asked; where there is nothing to choose, what the message says."""
    details = {"choices": ["oauth2/mail/home", "oauth2/mail/work"]}
    several = AileronError(FailureClass.BINDING_REQUIRED, "2 could serve", boundary=Boundary.USER, details=details)
    none = AileronError(FailureClass.BINDING_REQUIRED, "none is bound", boundary=Boundary.USER, details={"setup": "x"})

    def next_step(error: AileronError) -> str:
        facts = refused(error.failure, status=RunStatus.FAILED).facts
        assert facts is not None
        return str(facts["next_step"])

    assert f"call again with {ACCOUNT}, one of: oauth2/mail/home, oauth2/mail/work." in next_step(several)
    assert next_step(none) == "Tell the person what the message says; call again once they have done it."
