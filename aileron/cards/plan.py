"""Text about a plan for a person, used by `run --dry-run`, by `approval show`, and before a decision.

Pure. The daemon makes a plan, but its arguments come from an agent and its names from untrusted files. So every value is shown on
lines that cannot be taken for Aileron's own.

Rules
- Every omission is stated: if `more` is a command that shows everything, a long value ends with how much is missing and that
  command; if `more` is None, nothing is cut.
- A host whose name is not plain ASCII, or encodes one that is not, is marked, because it may look like another host.

Source: model/plan.py. Not here: consents (subject.py), previews and differences (question.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from aileron.model.json_value import JSON
from aileron.model.visible import BAR, visible_lines

if TYPE_CHECKING:
    from aileron.model.manifest import ActionFile
    from aileron.model.plan import CredentialUse, Filled, Plan, Step

__all__ = [
    "FactRow",
    "LabelledArgument",
    "accounts_of",
    "argument_lines",
    "cut",
    "given_of",
    "host_line",
    "host_name",
    "hosts_of",
    "missing_lines",
    "operations_of",
    "preview_elsewhere",
    "preview_facts",
    "settled_of",
    "step_facts",
    "text_lines",
    "unknown_of",
]

FactRow: TypeAlias = tuple[str, str | Sequence[str] | None]
"""A fact's name, and its line or lines; None in place of the lines if there is nothing to say."""
_MAX_CHARACTERS = 600
"""Maximum number of characters of one value: eight lines of a terminal. An address, a title or a paragraph has fewer."""
_MAX_LINES = 12
"""Maximum number of lines of one value: half of a small terminal."""
_MAX_ARGUMENTS = 40
"""Maximum number of arguments that are shown: two screens; actions declare a handful."""


def operations_of(steps: Iterable[Step]) -> list[str]:
    """Return a line for each step in order: its operation, and the connector that runs it."""
    return [f"{step.op}, by {step.connector}" for step in steps]


def hosts_of(steps: Iterable[Step]) -> list[str]:
    """Return HOST:PORT of all hosts that the steps can reach, each at most once."""
    return _each(host_line(str(host)) for step in steps for host in step.grant.hosts)


def accounts_of(steps: Iterable[Step], more: str | None = None) -> list[str]:
    """Return the owners of the credentials that the steps use, each with the purpose that its connector states."""
    return _each(line for step in steps for line in _credential(step.grant.credential, more))


def preview_elsewhere(plan: Plan) -> list[str]:
    """Return the hosts and accounts that a plan's preview uses, but that none of its steps uses."""
    if plan.preview is None:
        return []
    alone = (plan.preview.step,)
    hosts = [host for host in hosts_of(alone) if host not in hosts_of(plan.steps)]
    accounts = [account for account in accounts_of(alone) if account not in accounts_of(plan.steps)]
    return [*hosts, *(f"as {account}" for account in accounts)]


def preview_facts(plan: Plan) -> list[FactRow]:
    """Return the facts about a plan's preview: its operation, hosts and accounts. Empty if the plan has no preview."""
    if plan.preview is None:
        return []
    alone = (plan.preview.step,)
    return [
        ("preview", operations_of(alone)),
        ("reaches", hosts_of(alone) or "nothing"),
        ("account", accounts_of(alone) or "none"),
    ]


def settled_of(plan: Plan) -> list[tuple[str, Any]]:
    """Return the values in steps' arguments that the action file sets completely or in part, each with its path. A value that
    is only a reference to an argument is not included.

    Paths are compared, not values, because an agent could choose an argument that equals a value in the file. Results of earlier
    steps are in `unknown_of`; the file's text around them is included here.
    """
    action = _action_of(plan)
    said = {} if action is None else {step.id: step.inputs for step in action.steps}
    found: list[tuple[str, Any]] = []
    for number, step in enumerate(plan.steps, start=1):
        inputs = said.get(step.id, {})
        for name, value in step.args.items():
            if name not in inputs and name in plan.args and _spelled(plan.args[name]) == _spelled(value):
                continue  # an argument that is passed on unchanged
            for at, part in _by_the_file(inputs.get(name, _NOTHING), value, name):
                found.append((at if len(plan.steps) == 1 else f"{at} (step {number})", part))
    return found


_NOTHING: Final = object()
"""Marker for a path at which the action file has no value."""


def _by_the_file(said: Any, value: Any, at: str) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an argument `value` that the action file sets, each with its path. `said` is the argument's
    template in that file; a part that is only one reference there is left out.
    """
    from aileron.actions.references import pieces

    if isinstance(said, dict) and isinstance(value, dict):
        for name, part in value.items():
            yield from _by_the_file(said.get(name, _NOTHING), part, f"{at}.{name}")
    elif isinstance(said, list) and isinstance(value, list) and len(said) == len(value):
        for number, (template, part) in enumerate(zip(said, value, strict=True)):
            yield from _by_the_file(template, part, f"{at}.{number}")
    elif not (isinstance(said, str) and len(found := pieces(said)) == 1 and not isinstance(found[0], str)):
        yield at, value


def _action_of(plan: Plan) -> ActionFile | None:
    from aileron.cards.headline import action_in  # 20 ms, with the first question

    return action_in(plan.action_text)


def _spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True)  # in JSON 1 does not equal true


def unknown_of(plan: Plan) -> list[str]:
    """Return a line for each value that comes from an earlier step's result, which cannot be shown yet."""
    return [
        f"step {number}: {line}, not known yet"
        for number, step in enumerate(plan.steps, start=1)
        for line in _filled_lines(step.filled, None)
    ]


class LabelledArgument(NamedTuple):
    """An argument with the label that the action's author gave it."""

    name: str
    label: str | None
    value: Any


def given_of(plan: Plan) -> list[LabelledArgument]:
    """Return the arguments of a plan's call with their labels, in the order of the action's file."""
    args, action = plan.args, _action_of(plan)
    if action is None:  # then in the plan's order
        return [LabelledArgument(name, None, value) for name, value in args.items()]
    labels = {spec.name: spec.label for spec in action.inputs if spec.name in args}
    return [
        LabelledArgument(name, labels.get(name), args[name]) for name in [*labels, *sorted(set(args) - set(labels))]
    ]


def argument_lines(args: Mapping[str, JSON], more: str | None = None) -> list[str] | str:
    """Return one line for each argument; a text of several lines takes a line for each of them. `more` is the command
    that shows everything; if it is given, long values are cut.
    """
    lines: list[str] = []
    for number, (name, value) in enumerate(args.items()):
        if more is not None and number == _MAX_ARGUMENTS:
            lines += missing_lines(len(args) - number, "arguments", more)
            break
        if isinstance(value, str) and "\n" in value:
            lines += [f"{name} =", *text_lines(value, more)]
        else:
            lines += cut(f"{name} = ", json.dumps(value, ensure_ascii=False), more)
    return lines or "none"


def text_lines(text: str, more: str | None = None, *, lines: int = _MAX_LINES) -> list[str]:
    """Return the lines of a text, each marked as untrusted.

    If `more` is given, the text is cut after `lines` lines or _MAX_CHARACTERS characters. The last lines then say how much is
    missing, and have the command `more`, which shows everything.
    """
    shown = text if more is None else "\n".join(text[:_MAX_CHARACTERS].split("\n")[:lines])
    marked = [f"{BAR}{line}" for line in visible_lines(shown)]
    if more is not None and len(shown) < len(text):
        marked += missing_lines(len(text) - len(shown), "characters", more)
    return marked


def cut(before: str, value: str, more: str | None = None) -> list[str]:
    """Return `before` followed by `value`, a text of one line.

    If `more` is given, a long value is cut, and further lines say how much is missing.
    """
    missing = len(value) - _MAX_CHARACTERS
    if more is None or missing <= 0:
        return [before + value]
    return [f"{before}{value[:_MAX_CHARACTERS]}…", *missing_lines(missing, "characters", more)]


def host_line(host: str) -> str:
    """Return HOST:PORT, with a warning if the host's name has, or encodes, letters outside ASCII."""
    name = host_name(host)
    if name.isascii() and not any(label.startswith("xn--") for label in name.lower().split(".")):
        return host
    return f"{host} (! not in plain letters: reads {_in_letters(name)}, and may look like another)"


def host_name(host: str) -> str:
    """Return the host's name from HOST:PORT."""
    return host.rpartition(":")[0] or host


def _in_letters(name: str) -> str:
    """Return the text that a browser might show for an `xn--` name (RFC 3492), with letters outside ASCII as code points."""
    labels = []
    for label in name.split("."):
        try:
            raw = label[4:].encode("ascii").decode("punycode") if label.lower().startswith("xn--") else label
        except ValueError:
            raw = label
        labels.append("".join(letter if letter.isascii() else f"<U+{ord(letter):04X}>" for letter in raw))
    return ".".join(labels)


def missing_lines(count: int, unit: str, more: str) -> list[str]:
    """Return lines that say how many units are not shown, with `more`, the command that shows them, on a line of its
    own, to be copied.
    """
    return [f"… {count:,} more {unit}:", more]


def step_facts(number: int, step: Step, more: str | None, *, is_whole: bool) -> list[FactRow]:
    """Return the facts about one step and its connector. `is_whole` adds the hosts, the account and the logins; `more`
    is the command that shows values in full.
    """
    facts: list[FactRow] = [
        (f"step {number}", f"{step.id}: {step.op}"),
        ("connector", str(step.connector)),
        ("hash", _hash(step.connector.hash, more)),
    ]
    if is_whole:
        facts += [
            ("reaches", hosts_of((step,)) or "nothing"),
            ("account", _credential(step.grant.credential, more) or "none"),
            *_logins(step.grant.credential),
        ]
    return [
        *facts,
        ("repeated", "if need be" if step.idempotent else "never"),
        ("given", argument_lines(step.args, more)),
        ("filled in", _filled_lines(step.filled, more) or None),
    ]


def _filled_lines(places: Iterable[Filled], more: str | None) -> list[str]:
    """Return a line for each place in a step's arguments that is filled from the result of an earlier step, and so is
    not known yet.
    """
    lines: list[str] = []
    for place in places:
        values = [part for part in place.parts if not isinstance(part, str)]
        steps = _each(f"{part.step}: {'.'.join(part.path)}" for part in values)
        lines += cut(f"{place.at.removeprefix('/')} ", f"comes from the answer of {', '.join(steps)}", more)
    return lines


def _hash(pin: str, more: str | None) -> str:
    """Return the hash in full; or only its first 12 digits and an ellipsis if `more`, a command that shows the rest, is
    given.

    Together with the name and version, 12 digits suffice to tell two pins apart.
    """
    return pin if more is None else f"{pin[:19]}…"


def _each(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _logins(use: CredentialUse | None) -> list[FactRow]:
    """Return the facts about a credential's logins: where the supervisor logs in with it, and which commands it can
    execute there.
    """
    if use is None or not use.need.logins:
        return []
    return [
        ("logs in at", [login.words for login in use.need.logins]),
        ("executes", list(use.need.commands) or None),
    ]


def _credential(use: CredentialUse | None, more: str | None) -> list[str]:
    """Return the owner of a credential, its name, and its connector's stated purpose; empty if `use` is None."""
    if use is None:
        return []
    whose = f"{use.whose}{', which only reads' if use.login == 'read_only' else ''}"
    return cut("", f"{whose}: {use.need.scope}", more)
