"""What would be done, as a person reads it: for `run --dry-run`, `approval show`, and before a decision.

Pure. A plan is the daemon's, but its arguments are an agent's and its names a stranger's: every value is shown on
lines that cannot pass for ours.

Rules
- Nothing is left out without a word: where `more` names a command that shows all, a long value ends with how much is missing and
  that command; where it is None everything is shown.
- A host whose name is not plain ASCII, or stands for one that is not, is marked: it may look like another.

Source: model/plan.py, whose JSON this is. Not here: consents (subject.py), previews and differences (question.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aileron.model.visible import BAR, visible_lines

if TYPE_CHECKING:
    from aileron.model.manifest import ActionFile

__all__ = [
    "LabelledArgument",
    "accounts_of",
    "argument_lines",
    "cut",
    "given_of",
    "host_line",
    "hosts_of",
    "is_irreversible",
    "missing_lines",
    "operations_of",
    "plan_facts",
    "preview_elsewhere",
    "preview_facts",
    "settled_of",
    "step_facts",
    "text_lines",
    "undo_of",
    "unknown_of",
]

_PARTS = ("kind", "service", "identity")
_MAX_CHARACTERS = 600
"""Of one value: eight lines of a terminal; an address, a title or a paragraph has fewer."""
_MAX_LINES = 12
"""Of one value that has several: half of a small terminal."""
_MAX_ARGUMENTS = 40
"""Two screens of them; actions declare a handful."""


def plan_facts(plan: dict[str, Any], more: str | None) -> list[tuple[str, Any]]:
    """The whole of it in a few lines: with what, where to, under which account, and whether it can be undone."""
    return [
        ("arguments", argument_lines(_in_order(plan), more)),
        ("reaches", hosts_of(plan) or "nothing"),
        ("account", accounts_of(plan, more) or "none"),
        ("undo", undo_of(plan)),
    ]


def operations_of(plan: dict[str, Any]) -> list[str]:
    """What its steps have done, one after the other: the operation, and whose program does it."""
    found = []
    for step in plan.get("steps") or []:
        connector = step.get("connector") or {}
        found.append(f"{step.get('op')}, by {connector.get('name')}@{connector.get('version')}")
    return found


def hosts_of(plan: dict[str, Any]) -> list[str]:
    """HOST:PORT of everywhere its steps can go, each once."""
    return _each(host_line(_host(host)) for grant in _grants(plan) for host in grant.get("hosts") or [])


def accounts_of(plan: dict[str, Any], more: str | None = None) -> list[str]:
    """Whose credentials its steps use, and what their connectors want them for."""
    return _each(line for grant in _grants(plan) for line in _credential(grant.get("credential"), more))


def preview_elsewhere(plan: dict[str, Any]) -> list[str]:
    """What is read before a decision, where it reaches a host, or takes an account, that no step of the plan does."""
    step = (plan.get("preview") or {}).get("step") or {}
    alone = {"steps": [step]}
    hosts = [host for host in hosts_of(alone) if host not in hosts_of(plan)]
    accounts = [account for account in accounts_of(alone) if account not in accounts_of(plan)]
    return [*hosts, *(f"as {account}" for account in accounts)]


def preview_facts(plan: dict[str, Any]) -> list[tuple[str, Any]]:
    """What is read for the person before they decide: by what, where, as whom."""
    step = (plan.get("preview") or {}).get("step") or {}
    alone = {"steps": [step]}
    return [
        ("preview", operations_of(alone)),
        ("reaches", hosts_of(alone) or "nothing"),
        ("account", accounts_of(alone) or "none"),
    ]


def settled_of(plan: dict[str, Any]) -> list[tuple[str, Any]]:
    """What a step is given that is not the value of an argument: what the action's file says by itself, wherever it says it.

    Compared are places, and not values: an agent chooses its arguments, and could choose one that is like a value of the file's.
    What an earlier step answers is in `unknown_of`; words of the file's around it are here.
    """
    args, steps = plan.get("args") or {}, plan.get("steps") or []
    action = _action_of(plan)
    said = {} if action is None else {step.id: step.inputs for step in action.steps}
    found: list[tuple[str, Any]] = []
    for number, step in enumerate(steps, start=1):
        inputs = said.get(str(step.get("id")), {})
        for name, value in (step.get("args") or {}).items():
            if name not in inputs and name in args and _spelled(args[name]) == _spelled(value):
                continue  # handed on as it came
            for at, one in _by_the_file(inputs.get(name, _NOTHING), value, name):
                found.append((at if len(steps) == 1 else f"{at} (step {number})", one))
    return found


_NOTHING: Final = object()
"""No value of a file."""


def _by_the_file(said: Any, value: Any, at: str) -> Iterator[tuple[str, Any]]:
    """Of a value and what the file has in its place, the parts that are more than one reference."""
    from aileron.actions.references import pieces

    if isinstance(said, dict) and isinstance(value, dict):
        for name, one in value.items():
            yield from _by_the_file(said.get(name, _NOTHING), one, f"{at}.{name}")
    elif isinstance(said, list) and isinstance(value, list) and len(said) == len(value):
        for number, (one, other) in enumerate(zip(said, value, strict=True)):
            yield from _by_the_file(one, other, f"{at}.{number}")
    elif not (isinstance(said, str) and len(found := pieces(said)) == 1 and not isinstance(found[0], str)):
        yield at, value


def _action_of(plan: dict[str, Any]) -> ActionFile | None:
    """The action's file; None where it cannot be read: it may be of another version."""
    from aileron.actions.manifest import parse_action
    from aileron.model.failure import AileronError

    try:
        return parse_action(str(plan.get("action_text")), file="the action")
    except AileronError:
        return None


def _spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True)  # where 1 is not true


def unknown_of(plan: dict[str, Any]) -> list[str]:
    """Each place that an earlier step's answer fills: nobody can be shown what comes there."""
    return [
        f"step {number} takes {line}, which nobody knows yet"
        for number, step in enumerate(plan.get("steps") or [], start=1)
        for line in _filled_lines(step.get("filled") or [], None)
    ]


def undo_of(plan: dict[str, Any]) -> list[str]:
    """Whether it can be undone, and how long it is held after a yes."""
    rule = plan.get("approval") or {}
    lines = ["it cannot be undone" if is_irreversible(plan) else "it can be undone, says the action"]
    if window_s := rule.get("undo_window_s"):
        lines.append(f"it is held for {window_s} s after a yes, and can be cancelled until then")
    return lines


def is_irreversible(plan: dict[str, Any]) -> bool:
    """Whatever does not say that it can be undone cannot."""
    return bool((plan.get("approval") or {}).get("irreversible", True))


class LabelledArgument(NamedTuple):
    """One argument, and the label its author gave it."""

    name: str
    label: str | None
    value: Any


def given_of(plan: dict[str, Any]) -> list[LabelledArgument]:
    """The arguments in the order of the action's file."""
    args: dict[str, Any] = plan.get("args") or {}
    action = _action_of(plan)
    if action is None:  # then as they come
        return [LabelledArgument(name, None, value) for name, value in args.items()]
    labels = {spec.name: spec.label for spec in action.inputs if spec.name in args}
    return [
        LabelledArgument(name, labels.get(name), args[name]) for name in [*labels, *sorted(set(args) - set(labels))]
    ]


def argument_lines(args: dict[str, Any], more: str | None = None) -> list[str] | str:
    """One line for each, and one for each line of a text that has several."""
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
    """A text of several lines, each marked as not ours; cut after some, with how much is missing, where `more` shows all."""
    shown = text if more is None else "\n".join(text[:_MAX_CHARACTERS].split("\n")[:lines])
    marked = [f"{BAR}{line}" for line in visible_lines(shown)]
    if more is not None and len(shown) < len(text):
        marked += missing_lines(len(text) - len(shown), "characters", more)
    return marked


def cut(before: str, value: str, more: str | None = None) -> list[str]:
    """`before` and a value of one line; a long one cut, with how much is missing on a line of its own, where `more` shows all."""
    missing = len(value) - _MAX_CHARACTERS
    if more is None or missing <= 0:
        return [before + value]
    return [f"{before}{value[:_MAX_CHARACTERS]}…", *missing_lines(missing, "characters", more)]


def host_line(host: str) -> str:
    """HOST:PORT, marked where its name is, or stands for, one in other letters than ASCII's."""
    name = host.rpartition(":")[0] or host
    if name.isascii() and not any(label.startswith("xn--") for label in name.lower().split(".")):
        return host
    return f"{host}  (! not in plain letters: reads {_in_letters(name)}, and may look like another)"


def _in_letters(name: str) -> str:
    """What a browser might show for an `xn--` name, in code points where it cannot be told from ASCII: RFC 3492."""
    labels = []
    for label in name.split("."):
        try:
            raw = label[4:].encode("ascii").decode("punycode") if label.lower().startswith("xn--") else label
        except ValueError:
            raw = label
        labels.append("".join(one if one.isascii() else f"<U+{ord(one):04X}>" for one in raw))
    return ".".join(labels)


def missing_lines(count: int, what: str, more: str) -> list[str]:
    """How much is not shown, and the command that shows it, on a line of its own to be copied."""
    return [f"… {count:,} more {what}:", more]


def _in_order(plan: dict[str, Any]) -> dict[str, Any]:
    def called(name: str, label: str | None) -> str:
        return name if not label or label.casefold() == name.casefold() else f"{name} ({label})"

    return {called(name, label): value for name, label, value in given_of(plan)}


def _grants(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [step.get("grant") or {} for step in plan.get("steps") or []]


def step_facts(number: int, step: dict[str, Any], more: str | None, *, is_whole: bool) -> list[tuple[str, Any]]:
    """One step, and what runs it. `is_whole`: also what it reaches, and as whom."""
    connector, grant = step.get("connector") or {}, step.get("grant") or {}
    facts: list[tuple[str, Any]] = [
        (f"step {number}", f"{step.get('id')}: {step.get('op')}"),
        ("connector", f"{connector.get('name')}@{connector.get('version')}"),
        ("hash", _hash(connector.get("hash"), more)),
    ]
    if is_whole:
        facts += [
            ("reaches", [host_line(_host(host)) for host in grant.get("hosts") or []] or "nothing"),
            ("account", _credential(grant.get("credential"), more) or "none"),
        ]
    return [
        *facts,
        ("repeated", "if need be" if step.get("idempotent") else "never"),
        ("given", argument_lines(step.get("args") or {}, more)),
        ("filled in", _filled_lines(step.get("filled") or [], more) or None),
    ]


def _filled_lines(places: list[dict[str, Any]], more: str | None) -> list[str]:
    """Where what an earlier step answers comes in: nobody knows yet what that is."""
    lines: list[str] = []
    for place in places:
        values = [part for part in place.get("parts") or [] if isinstance(part, dict)]
        steps = _each(f"{part.get('step')}: {'.'.join(map(str, part.get('path') or []))}" for part in values)
        lines += cut(f"{str(place.get('at')).removeprefix('/')} ", f"from the answer of {', '.join(steps)}", more)
    return lines


def _hash(pin: Any, more: str | None) -> str | None:
    """Beside its name and version 12 digits are enough to tell two apart; marked where they are not all."""
    return pin if not isinstance(pin, str) or more is None else f"{pin[:19]}…"


def _each(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _host(value: Any) -> str:
    return f"{value.get('host')}:{value.get('port')}" if isinstance(value, dict) else str(value)


def _credential(use: Any, more: str | None) -> list[str]:
    """Whose it is, what it is called, its kind, and what its connector wants it for; nothing where none is used."""
    if not isinstance(use, dict):
        return []
    name = use.get("binding")
    called = "/".join(str(name.get(part)) for part in _PARTS) if isinstance(name, dict) else str(name)
    account, need = use.get("account"), use.get("need") or {}
    whose = called if account is None else f"{account}, as {called}"
    purpose = f" ({need.get('kind')}: {need.get('scope')})" if need else ""
    return cut("", whose + purpose, more)
