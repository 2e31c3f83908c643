"""What a run is asked for with, in a line: so that two questions about one action are told apart in a list.

Pure. It is a beginning, for finding the question that is meant; what is decided about is the question, whole. Names are the
action's own, values the agent's, and neither is made harmless here: that is for who shows it.

Rules
- What tells questions about one action apart stands first, among those that are listed together; then what is short, since a body
  or a file tells the least in a line.
- A value with anything in it that could pass for the next name is quoted, as JSON.

>>> asked = [(to, "send", b'{"args": {"body": "Hello! How are you?", "to": "%s"}}' % to.encode()) for to in ("mira", "zoe")]
>>> summaries_of(asked[:1])
{'mira': 'body="Hello! How are you?" to=mira'}
>>> summaries_of(asked)
{'mira': 'to=mira body="Hello! How are you?"', 'zoe': 'to=zoe body="Hello! How are you?"'}

Not here: what is signed (frozen.py), rows of a list (query.py).
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from aileron.model.visible import is_bare

__all__ = ["MAX_SUBJECT_BYTES", "summaries_of"]

MAX_SUBJECT_BYTES: Final = 64 << 10
"""Of a plan that is read for a line of it: a list has up to 800, and is read with every piece of news."""
_MAX: Final = 160
"""Characters of a line; no list is wider."""
_MAX_VALUE: Final = 24
_BEFORE: Final = 6
"""Characters before the first one that is another."""


class _PlanArguments(msgspec.Struct):
    """Of a plan, what it was asked for with."""

    args: dict[str, Any] = {}


def summaries_of(asked: Iterable[tuple[str, str, bytes | None]]) -> dict[str, str]:
    """By id, of id, action and stored plan: its arguments in at most 160 characters. Nothing for a plan without, or for none."""
    shown = {name: (action, args) for name, action, plan in asked if (args := _arguments(plan))}
    by_action: dict[str, list[dict[str, str]]] = {}
    for action, args in shown.values():
        by_action.setdefault(action, []).append(args)
    telling = {action: _telling(each) for action, each in by_action.items()}
    return {name: _line(args, telling[action]) for name, (action, args) in shown.items()}


def _arguments(plan: bytes | None) -> dict[str, str]:
    """Each argument, spelled."""
    try:
        args = {} if plan is None else msgspec.json.decode(plan, type=_PlanArguments).args
    except msgspec.DecodeError:
        return {}
    return {name: _spelled(value) for name, value in args.items()}


def _telling(each: list[dict[str, str]]) -> dict[str, int]:
    """Names that do not say the same in all of them, and from which character on they differ."""
    names = {name for args in each for name in args}
    values = {name: {args[name] for args in each if name in args} for name in names}
    return {
        name: len(os.path.commonprefix(list(some)))  # noqa: RUF071 - character by character
        for name, some in values.items()
        if len(some) > 1 or any(name not in args for args in each)
    }


def _line(args: dict[str, str], telling: dict[str, int]) -> str:
    pairs = sorted(args.items(), key=lambda pair: (pair[0] not in telling, len(pair[1]) > _MAX_VALUE, pair[0]))
    line = " ".join(f"{name}={_cut(value, telling.get(name, 0))}" for name, value in pairs)
    return line if len(line) <= _MAX else line[: _MAX - 1] + "…"


def _cut(value: str, at: int) -> str:
    """So much of a value that the character `at` is there, and some before it."""
    begin = 0 if at < _MAX_VALUE - 1 or at >= len(value) else at - _BEFORE
    shown = ("…" if begin else "") + value[begin:]
    return shown if len(shown) <= _MAX_VALUE else shown[: _MAX_VALUE - 1] + "…"


def _spelled(value: Any) -> str:
    if isinstance(value, str) and is_bare(value):
        return value
    return msgspec.json.encode(value).decode()
