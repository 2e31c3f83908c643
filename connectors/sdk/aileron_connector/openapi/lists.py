"""Reducing a list in an answer: to chosen fields of its members, and to as many members as fit.

    chosen([{"id": 1, "user": {"login": "ada", "url": "…"}}], ["id", "user.login"])     # [{"id": 1, "user": {"login": "ada"}}]

Pure. Not here: deciding to make a list smaller (answer.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from aileron_sandbox.frames import JSON

__all__ = ["chosen", "fitting", "list_at"]

_Tree: TypeAlias = "dict[str, _Tree]"
"""A selection of fields: names of properties, each with the selection inside that property. An empty selection stands
for everything.
"""
_MAX_LEVELS: Final = 64
"""Maximum number of levels of an answer that fits a frame."""


def list_at(answer: Any, keys: list[str]) -> list[JSON] | None:
    """Return the list to which these keys lead, or None if there is no such list."""
    for key in keys:
        answer = answer.get(key) if isinstance(answer, dict) else None
    return answer if isinstance(answer, list) else None


def chosen(members: list[JSON], fields: list[str]) -> list[JSON]:
    """Return the members of a list reduced to these fields, such as `user.login`, which keep their place in the
    structure. If a field's path contains a list, each member of that list is reduced.
    """
    tree: _Tree = {}
    for name in fields:
        _add(tree, name.split("."))
    return [_part(member, tree, _MAX_LEVELS) for member in members]


def _add(tree: _Tree, names: list[str]) -> None:
    for name in names[:-1]:
        below = tree.setdefault(name, {})
        if below is _WHOLE:
            return
        tree = below
    tree[names[-1]] = _WHOLE


_WHOLE: Final[_Tree] = {}
"""The selection of a complete property. It takes precedence over fields that select parts of the same property."""


def _part(value: Any, tree: _Tree, levels: int) -> Any:
    if tree is _WHOLE or not levels:
        return value
    if isinstance(value, list):
        return [_part(member, tree, levels - 1) for member in value]
    if isinstance(value, dict):
        return {name: _part(value[name], below, levels - 1) for name, below in tree.items() if name in value}
    return value  # such as null where an object is expected


def fitting(members: list[JSON], fits: Callable[[list[JSON]], bool]) -> list[JSON] | None:
    """Return the longest prefix of `members` for which `fits` is true. None if it is false even for an empty list."""
    if not fits([]):
        return None
    few, many = 0, len(members)
    while few < many:
        middle = (few + many + 1) // 2
        if fits(members[:middle]):
            few = middle
        else:
            many = middle - 1
    return members[:few]
