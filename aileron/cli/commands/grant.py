"""`aileron grant`: runs of one action that need no approval, within limits that the approver signed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from aileron.api.daemon import Removed
from aileron.api.grants import AddGrant, GrantEntry, GrantList
from aileron.cli import output
from aileron.cli.commands.completion import action_names, grant_ids
from aileron.cli.commands.options import AsJson, PassphraseFile, Yes
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.ids import meant
from aileron.cli.problem import Problem, parsed
from aileron.cli.prompts import passphrase_from
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.consent import Constraint, Operator
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.api.actions import ActionInput

__all__ = ["add", "list_", "revoke"]

_LONGEST = "90d"
"""Maximum duration of a grant: a quarter of a year, because nobody remembers for longer what they approved.

The daemon enforces its own limit.
"""
_HELP = "aileron grant add --help"


def add(
    action: Annotated[str, Argument(metavar="ACTION", help="Name of the action.", autocompletion=action_names)],
    uses: Annotated[int, Option("--uses", metavar="N", min=1, help="Maximum number of runs.")],
    duration: Annotated[
        str,
        Option("--for", metavar="DURATION", help=f"How long the grant lasts: 30m, 8h, 7d; at most {_LONGEST}."),
    ],
    equals: Annotated[
        list[str] | None, Option("--equals", metavar="ARG=VALUE", help="Require exactly this value.")
    ] = None,
    one_of: Annotated[
        list[str] | None,
        Option(
            "--one-of",
            metavar="ARG=V1,V2",
            help="Allow only these values. Use a JSON list if a value contains a comma.",
        ),
    ] = None,
    prefix: Annotated[
        list[str] | None, Option("--prefix", metavar="ARG=TEXT", help="Allow values that start with TEXT.")
    ] = None,
    at_most: Annotated[list[str] | None, Option("--at-most", metavar="ARG=N", help="Allow numbers up to N.")] = None,
    without: Annotated[
        list[str] | None, Option("--without", metavar="ARG", help="Allow only calls without this argument.")
    ] = None,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Let an action run without approval, within limits.

    The approver signs the grant at a terminal. Actions that cannot be undone are refused. You can give each condition several
    times; a run must meet all of them.
    """
    from aileron.api.actions import ActionDetail
    from aileron.api.approvals import ConsentAnswer
    from aileron.cli.commands.done import tell_done
    from aileron.cli.decision_dialogue import carry_through
    from aileron.cli.duration import seconds

    for_s = seconds(duration, option="--for", most=_LONGEST, command="grant add")
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    inputs = supervisor.fetch(ActionDetail, "GET", path_of("v1", "actions", action)).inputs or []
    constraints = (
        *(_constraint(action, inputs, "equals", text) for text in equals or []),
        *(_constraint(action, inputs, "one_of", text) for text in one_of or []),
        *(_constraint(action, inputs, "prefix", text) for text in prefix or []),
        *(_constraint(action, inputs, "at_most", text) for text in at_most or []),
        *(Constraint(argument=name, operator="absent", value=None) for name in without or []),
    )
    body = AddGrant(action=action, constraints=constraints, uses=uses, for_s=int(for_s))
    answer = supervisor.fetch(ConsentAnswer, "POST", "/v1/grants", body)
    raise Exit(carry_through(supervisor, answer, tell_done, yes=yes, as_json=as_json))


def list_(as_json: AsJson = False) -> None:
    """List standing grants."""
    found = Supervisor().fetch(GrantList, "GET", "/v1/grants")
    names = output.short_ids([entry.id for entry in found.grants])
    output.print_list(
        found,
        ("ID", "USED", "UNTIL", "ACTION, WHERE"),
        (
            (names[entry.id], f"{entry.used} of {entry.uses}", output.time_left(entry.until), _what(entry))
            for entry in found.grants
        ),
        as_json=as_json,
        empty="no grants: every gated action needs your approval",
    )


def revoke(
    grant: Annotated[str, Argument(metavar="ID", help="Id of the grant, or the end of it.", autocompletion=grant_ids)],
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a grant: the next run needs approval again."""
    from aileron.cli.decision_dialogue import carry_through

    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    name = _meant(supervisor, grant)
    answer = supervisor.change(Removed, "DELETE", path_of("v1", "grants", name))

    def tell(_: Any) -> None:
        output.note(f"revoked {visible(name)}")

    raise Exit(carry_through(supervisor, answer, tell, yes=yes, as_json=as_json))


def _constraint(action: str, inputs: Sequence[ActionInput], operator: Operator, text: str) -> Constraint:
    """Parse `ARG=VALUE` into a condition. The value gets the type that the action declares for the argument."""
    from aileron.cli.arguments import typed

    flag = f"--{operator.replace('_', '-')}"
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise Problem.usage(f"{flag} {text!r} is not ARG=VALUE", fix=_HELP)
    types = {spec.name: spec.type for spec in inputs}
    kind = types.get(name)
    if operator == "prefix" and kind not in ("string", None):
        raise Problem.usage(f"{flag} needs a text argument, but {name} is of type {kind}", fix=_HELP)
    if operator == "at_most" and kind not in ("integer", "number", None):
        raise Problem.usage(f"{flag} needs a number argument, but {name} is of type {kind}", fix=_HELP)
    many = operator == "one_of"
    values = [typed({name: part}, types, action=action)[name] for part in (_each(flag, value) if many else [value])]
    return Constraint(argument=name, operator=operator, value=values if many else values[0])


def _each(flag: str, text: str) -> list[str]:
    if not text.startswith("["):
        return text.split(",")
    found = parsed(f"{flag} {text!r} is not a JSON list:", json.loads, text, fix=_HELP)
    return [value if isinstance(value, str) else json.dumps(value) for value in found]


def _meant(supervisor: Supervisor, wanted: str) -> str:
    """Return the grant whose id is `wanted` or ends with it. Raises Problem if none or several match."""
    names = [entry.id for entry in supervisor.fetch(GrantList, "GET", "/v1/grants").grants]
    found = meant(wanted, names, fix="aileron grant list")
    if found is None:
        raise Problem.missing(f"no grant {wanted!r}", fix="aileron grant list")
    return found


def _what(entry: GrantEntry) -> str:
    from aileron.cards.subject import conditions

    return f"{entry.action}, {' and '.join(conditions(entry.constraints)) or 'whatever its arguments are'}"
