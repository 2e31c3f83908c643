"""The account that a call means: one argument where there is a choice, none otherwise, and never an argument of the action."""

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
from tests.support.shaped import shaped

pytestmark = pytest.mark.anyio
TWO = (
    Account(value="home", told="mira@example.com (oauth2/mail/home)"),
    Account(value="work", told="oauth2/mail/work"),
)


def choosing(*accounts: Account) -> Offered:
    """Return an action whose caller has this choice of accounts."""
    return msgspec.structs.replace(offered("get-advice"), accounts=accounts)


def test_no_action_input_can_have_the_name_of_the_account_argument() -> None:
    """The grammar of input names excludes it, so an author's input cannot be mistaken for Aileron's argument."""
    assert INPUT_NAME.fullmatch(ACCOUNT) is None


def test_an_action_with_several_accounts_gets_one_optional_account_argument() -> None:
    """The argument lists the values and their accounts; the action's own schema stays as it was."""
    entry = choosing(*TWO)
    before = msgspec.json.encode(entry.input_schema)
    schema = shaped(tool_of(entry).input_schema)
    about = schema["properties"][ACCOUNT]

    jsonschema.Draft202012Validator.check_schema(schema)
    assert (about["type"], about["enum"]) == ("string", ["home", "work"])
    assert "home: mira@example.com (oauth2/mail/home); work: oauth2/mail/work" in about["description"]
    assert ACCOUNT not in schema.get("required", [])
    jsonschema.validate({"topic": "x", ACCOUNT: "work"}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({ACCOUNT: "eve"}, schema)
    assert msgspec.json.encode(entry.input_schema) == before


def test_an_action_without_several_accounts_has_no_account_argument() -> None:
    """The schema equals that of an action without accounts."""
    assert tool_of(choosing()).input_schema == offered("get-advice").input_schema


def test_any_account_name_is_accepted_if_there_are_too_many_accounts_to_list() -> None:
    """The list is truncated and says so. Without an enum, a strict client can still name an unlisted account."""
    about = shaped(tool_of(choosing(*(Account(value=f"a{n}", told=f"a{n}") for n in range(33)))).input_schema)[
        "properties"
    ][ACCOUNT]

    assert "enum" not in about
    assert about["description"].endswith("; and more, by name")
    assert "a32" not in about["description"]


def test_the_account_label_is_escaped_and_truncated() -> None:
    """Other people wrote the label: hidden characters are spelled out, and a long label is truncated."""
    told = tool_of(choosing(Account(value="home", told="\u202eevil\x1b" + "x" * 5000), TWO[1]))
    description = shaped(told.input_schema)["properties"][ACCOUNT]["description"]

    assert not {"\u202e", "\x1b"} & set(description)
    assert len(description) < 500


@pytest.mark.parametrize("mode", ERAS)
async def test_the_named_account_is_not_passed_as_an_argument_of_the_action(mode: str) -> None:
    """The account goes to the door beside the arguments, whether it was offered or not; the arguments do not have it."""
    door = DictDoor(choosing(*TWO))
    async with running(door) as server, connected(server, mode) as client:
        named = await client.call_tool("get_advice", {"topic": "x", ACCOUNT: "work"})
        plain = await client.call_tool("get_advice", {"topic": "x"})

    assert [(call.args, call.binding) for call in door.calls] == [({"topic": "x"}, "work"), ({"topic": "x"}, None)]
    assert named.structured_content == plain.structured_content


@pytest.mark.parametrize("value", [7, ["home"], {"a": 1}, True, "x" * 2001])
async def test_an_account_argument_that_is_not_a_string_is_refused(value: Any) -> None:
    """The server refuses it before the door is asked."""
    door = DictDoor(choosing(*TWO))
    async with running(door) as server, connected(server, "auto") as client:
        result = await client.call_tool("get_advice", {ACCOUNT: value})

    assert result.is_error
    assert result.structured_content is not None
    assert result.structured_content["error"]["class"] == "bad_input"
    assert door.calls == []


def test_a_call_refused_for_lack_of_an_account_lists_the_accounts() -> None:
    """The refusal lists the choices and says to ask the person; where there is no choice, it refers to the message."""
    details = {"choices": ["oauth2/mail/home", "oauth2/mail/work"]}
    several = AileronError(FailureClass.BINDING_REQUIRED, "2 could serve", boundary=Boundary.USER, details=details)
    none = AileronError(FailureClass.BINDING_REQUIRED, "none is bound", boundary=Boundary.USER, details={"setup": "x"})

    def next_step(error: AileronError) -> str:
        facts = refused(error.failure, status=RunStatus.FAILED).facts
        assert facts is not None
        return str(facts["next_step"])

    assert f"call again with {ACCOUNT}, one of: oauth2/mail/home, oauth2/mail/work." in next_step(several)
    assert next_step(none) == "Tell the person what the message says; call again once they have done it."
