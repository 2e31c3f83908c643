"""The list of tools that agents see: one for each action, and Aileron's own. Pure; runs in the daemon.

Rules
- Each enabled action is one tool. The order is fixed: our own tools first, then the actions by name.
- If there are too many actions, FIND_ACTION and RUN_ACTION give access to the actions that are not listed. These two tools
  are not shown if all actions are listed.
- Every tool has a title and all four hints, based on the action file (docs/adr/0019-mcp.md has the reasons).
- A description is the file's Markdown, at most MAX_DESCRIPTION characters. A page of the list has at most PAGE_TOOLS tools.
- If, and only if, several credentials could serve an action, its tool has the additional argument ACCOUNT.

Source: docs/reference/mcp.md; MCP specification, "Tools" and "Pagination". Not here: execution of calls (calls.py).
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from aileron.mcp.agent_port import Offer, Offered
from aileron.mcp.finding import MAX_FOUND, MAX_WORDS_CHARACTERS, USUAL_FOUND
from aileron.model.json_value import JSONObject, dict_of
from aileron.model.manifest import ActionFile, Effect
from aileron.model.names import tool_name
from aileron.model.visible import visible

__all__ = [
    "ACCOUNT",
    "FIND_ACTION",
    "MAX_DESCRIPTION",
    "MAX_WAIT_S",
    "OWN",
    "OWN_OF_MANY",
    "PAGE_TOOLS",
    "RUN_ACTION",
    "Hints",
    "Tool",
    "asks_first",
    "page_of",
    "schema_of",
    "tool_of",
]


class Hints(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Hints about the effects that a call can have without a person's decision, in MCP's JSON (`annotations`)."""

    title: str
    read_only_hint: bool
    destructive_hint: bool
    idempotent_hint: bool
    open_world_hint: bool


class Tool(msgspec.Struct, frozen=True, kw_only=True, rename={"input_schema": "inputSchema", "meta": "_meta"}):
    """A tool, in MCP's JSON."""

    name: str
    title: str
    description: str
    input_schema: JSONObject
    annotations: Hints
    meta: dict[str, bool]


ACCOUNT: Final = "useAccount"
"""Argument that names the credential to use. No input of an action can have this name, because names of inputs are lower case."""

MAX_DESCRIPTION: Final = 8192
"""Maximum number of characters of a tool's description, which every request to a model repeats. The longest in use has 2,000."""
PAGE_TOOLS: Final = 200
"""Maximum number of tools in one page: many more than a model can choose from, so that agents that never request a
second page miss nothing.
"""
MAX_WAIT_S: Final = 50
"""Maximum number of seconds that wait_for_action waits. Two agents limit a call to 60."""
_MAX_ACCOUNTS: Final = 32
"""Maximum number of accounts that a tool's schema lists. If there are more, the schema accepts any name, and the error
for a wrong name lists the existing ones.
"""
_MAX_TOLD: Final = 100
"""Maximum number of characters of an account's description. An address has fewer."""
_UP_FRONT: Final = {"anthropic/alwaysLoad": True}
"""Metadata that makes Claude Code show a tool to its model from the start; otherwise the model would have to search for it."""
_CURSOR: Final = re.compile(r"after:([a-z0-9_]{1,64})")

_ID: Final[JSONObject] = {
    "type": "string",
    "description": "The id that the action's answer gave (approval_id, run_id or audit_id).",
}


def tool_of(offered: Offered) -> Tool:
    """Return the tool of an action."""
    action = offered.action
    return Tool(
        name=tool_name(action.name),
        title=action.intent,
        description=_described(action),
        input_schema=schema_of(offered),
        annotations=_annotated(offered),
        meta=_UP_FRONT,
    )


def page_of(offer: Offer, cursor: str | None) -> tuple[list[Tool], str | None]:
    """Return a page of the list of tools, and the cursor of the next page.

    Raises ValueError for a cursor that Aileron did not issue. A cursor names the last tool before the page, so tools
    that are added or removed between two requests do not shift the others.
    """
    after = "" if cursor is None else _after(cursor)
    listed = [entry for entry in offer.actions if offer.listed is None or entry.action.name in offer.listed]
    rest = sorted((entry for entry in listed if tool_name(entry.action.name) > after), key=_by_name)
    first = () if cursor is not None else OWN if offer.listed is None else OWN_OF_MANY
    room = PAGE_TOOLS - len(first)
    tools = [*first, *(tool_of(entry) for entry in rest[:room])]
    return tools, f"after:{tools[-1].name}" if len(rest) > room else None


def schema_of(offered: Offered) -> JSONObject:
    """Return the JSON Schema of the action's inputs. If there is a choice of credentials, it includes ACCOUNT."""
    schema = offered.input_schema
    if not offered.accounts:
        return schema
    listed = offered.accounts[:_MAX_ACCOUNTS]
    told = "; ".join(f"{account.value}: {_cut(visible(account.told))}" for account in listed)
    words = f"Whose account to use. Several could serve, so say which; ask the person if they did not. {told}"
    about: JSONObject = {"type": "string", "description": words}
    if len(listed) == len(offered.accounts):
        about["enum"] = [account.value for account in listed]
    else:
        about["description"] = f"{words}; and more, by name"
    return {**schema, "properties": {**dict_of(schema.get("properties")), ACCOUNT: about}}


def asks_first(offered: Offered) -> bool:
    """Return whether each call of the action waits for a person's decision."""
    return offered.action.approval.required and not offered.granted


def _after(cursor: str) -> str:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise ValueError("not a cursor of this server")
    return match.group(1)


def _by_name(entry: Offered) -> str:
    return tool_name(entry.action.name)


def _described(action: ActionFile) -> str:
    body = action.body.strip() or action.intent
    if len(body) <= MAX_DESCRIPTION:
        return body
    return f"{body[:MAX_DESCRIPTION]}\n\n(cut here: {len(body) - MAX_DESCRIPTION} more characters)"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TOLD else f"{text[:_MAX_TOLD]}…"


def _annotated(offered: Offered) -> Hints:
    """Return the hints about the effects of an action's tool. docs/adr/0019-mcp.md has the reasons."""
    action = offered.action
    asks = asks_first(offered)
    reads = not asks and all(step.does is Effect.READ for step in action.steps)
    adds = all(step.does is not None and step.does.only_adds for step in action.steps)
    return Hints(
        title=action.intent,
        read_only_hint=reads,
        destructive_hint=not asks and not adds and action.approval.irreversible,
        idempotent_hint=not asks and all(step.idempotent for step in action.steps),
        open_world_hint=True,
    )


def _own(
    name: str,
    title: str,
    description: str,
    properties: JSONObject,
    *,
    required: tuple[str, ...] = (),
    reads: bool = False,
    acts: bool = False,
) -> Tool:
    """Return one of Aileron's own tools. `reads` is true if it only reads, `acts` if it can have the effects of any action."""
    return Tool(
        name=name,
        title=title,
        description=description,
        input_schema={
            "type": "object",
            "properties": properties,
            "required": list(required),
            "additionalProperties": False,
        },
        annotations=Hints(
            title=title,
            read_only_hint=reads,
            destructive_hint=acts,
            idempotent_hint=not acts,
            open_world_hint=acts,
        ),
        meta=_UP_FRONT,
    )


OWN: Final = (
    _own(
        "cancel_action",
        "Withdraw what waits for approval",
        "Withdraws an action that waits for approval, or that was approved and has not begun. Nothing is done then. What has "
        "begun cannot be withdrawn. Use it when what you asked for is no longer wanted.",
        {"id": {"type": "string", "description": "The approval_id."}},
        required=("id",),
    ),
    _own(
        "check_action_status",
        "Where an action is",
        "Says where an action is that was not over when you called it: it waits for a person, runs, completed (with the result), "
        "failed, was denied (with the reason), expired or was cancelled. Give `answer` when the person asked you a question, and "
        "`page` for more of a long result.",
        {
            "id": _ID,
            "answer": {"type": "string", "description": "Your answer, where a question of the person waits for one."},
            "page": {"type": "integer", "minimum": 1, "description": "Which page of a long result; 1 unless given."},
        },
        required=("id",),
    ),
    _own(
        "list_pending",
        "What waits for a person",
        "Lists what you asked for in this session and nobody decided yet.",
        {},
        reads=True,
    ),
    _own(
        "wait_for_action",
        "Wait for an action",
        f"As check_action_status, but waits up to `seconds` (at most {MAX_WAIT_S}) for it to end, or for the person to ask you "
        "something. Use it once or twice, then do other work or end your turn: a person may take long.",
        {
            "id": _ID,
            "seconds": {
                "type": "number",
                "minimum": 0,
                "maximum": MAX_WAIT_S,
                "description": "How long to wait; 25 unless given.",
            },
        },
        required=("id",),
        reads=True,
    ),
)

FIND_ACTION: Final = _own(
    "find_action",
    "Find an action",
    "Finds actions by words, and gives their names, what they do and which arguments they take. There are more actions than "
    "tools here: search before you say that something cannot be done. Then call run_action. If nothing fits, try other words.",
    {
        "words": {
            "type": "string",
            "maxLength": MAX_WORDS_CHARACTERS,
            "description": 'What you want to do, with the service if you know it: "create github issue".',
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_FOUND,
            "description": f"How many to show at most; {USUAL_FOUND} unless given.",
        },
    },
    required=("words",),
    reads=True,
)
RUN_ACTION: Final = _own(
    "run_action",
    "Run an action",
    "Runs an action that find_action found, exactly as if it were a tool of its own: it may ask a person first, and it may read, "
    "send, change or delete. What it does and takes is in find_action's answer.",
    {
        "name": {"type": "string", "description": "The action's name, as find_action gives it."},
        "arguments": {"type": "object", "description": "Its arguments, as its input_schema says; {} if it takes none."},
    },
    required=("name",),
    acts=True,
)
OWN_OF_MANY: Final = tuple(sorted((*OWN, FIND_ACTION, RUN_ACTION), key=lambda tool: tool.name))
