r"""Three-way merge of an action file: the file from the old import, the author's edited copy, and the file imported from a
newer document.

Pure. Lines are merged as in actions/merging.py, with three additional rules:

- Inputs are merged one by one, by name, and so are their keys. A new input is added even if the author removed others. An input
  that the author removed stays removed, unless the operation now requires it.
- Texts that the author has written (summary, tags, intent, descriptions, the text below) are kept. The newer document's text
  is reported as a change to the operation (updating.py).
- If both sides changed the same key differently, the file has both versions between markers.

A file whose inputs do not have the import's form is merged only by lines.

Not here: which files are merged, and what a change means (updating.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from aileron.actions.merging import Merged, merged_closely

__all__ = ["merged_action"]

_INPUT: Final = "[[inputs]]"
_NAME: Final = re.compile(r'name = (".*")')
_KEY: Final = re.compile(r"([a-z_]+) = .*")
_WORDS: Final = re.compile(r"^(?:summary|tags|intent) = .*$", re.MULTILINE)
_EFFECT: Final = re.compile(r"^effect = .*$", re.MULTILINE)
_DESCRIPTION: Final = "description"
_OPTIONAL: Final = "required = false"
_END: Final = "\n+++\n"

Parts = dict[str, str]
"""Parts of an action file's text by the name of an input or of a key, in the order of the file."""


class _File(NamedTuple):
    """An action file split into parts. `inputs` are complete tables, each with the empty line that follows."""

    head: str
    inputs: Parts
    tail: str
    body: str


def merged_action(base: str, mine: str, theirs: str) -> Merged:
    """Return `theirs` with the changes that `mine` made to `base`."""
    if base in (mine, theirs) or mine == theirs:
        return merged_closely(base, mine, theirs)
    was, edited, newer = map(_parts, (base, mine, theirs))
    if was is None or edited is None or newer is None:
        return merged_closely(base, mine, theirs)
    inputs, conflicts = _each(was.inputs, edited.inputs, newer.inputs, _input, _is_kept_out)
    head = merged_closely(was.head, edited.head, _with_words(was.head, edited.head, newer.head))
    tail = merged_closely(was.tail, edited.tail, _with_effect(was.tail, edited.tail, newer.tail))
    body = edited.body if edited.body != was.body else newer.body
    return Merged(f"{head.text}{inputs}{tail.text}{body}", head.conflicts + conflicts + tail.conflicts)


def _with_effect(was: str, edited: str, newer: str) -> str:
    """Return `newer`, but with the effect of `was` if the author already set the same effect as `newer`. The merge then
    finds that only the author changed the line, so there is no conflict.
    """
    before, mine, now = (_EFFECT.findall(text) for text in (was, edited, newer))
    return newer.replace(now[0], before[0]) if len(before) == 1 and mine == now and mine != before else newer


def _each(
    was: Parts,
    edited: Parts,
    newer: Parts,
    merge: Callable[[str, str, str, str], Merged],
    is_kept_out: Callable[[str, str], bool],
) -> tuple[str, int]:
    """Merge the parts of three versions of a file (from the old import, edited, newly imported), each part by `merge`,
    in the author's order. Return the text and the number of conflicts.
    """
    made: Parts = {}
    conflicts = 0
    for name in _order(was, edited, newer):
        if name in was and name not in edited and (name not in newer or is_kept_out(was[name], newer[name])):
            continue
        base = was.get(name, "") if name in edited else ""  # an input that comes back is new
        done = merge(name, base, edited.get(name, ""), newer.get(name, ""))
        made[name] = done.text
        conflicts += done.conflicts
    return "".join(made.values()), conflicts


def _order(was: Mapping[str, str], edited: Mapping[str, str], newer: Mapping[str, str]) -> list[str]:
    """Return the names in the author's order, with each new name after the name that it follows in the newer file."""
    order = list(edited)
    before = ""
    for name in newer:
        if name not in order:
            order.insert(order.index(before) + 1 if before else 0, name)
        before = name
    return order


def _input(name: str, was: str, edited: str, newer: str) -> Merged:
    keys = [_keys(text) for text in (was, edited, newer)]
    if "" in (was, edited, newer) or None in keys:
        return merged_closely(was, edited, newer)
    base, mine, theirs = (found for found in keys if found is not None)
    text, conflicts = _each(base, mine, theirs, _line, lambda before, after: before == after)
    return Merged(f"{_INPUT}\n{text}\n", conflicts)


def _line(key: str, was: str, edited: str, newer: str) -> Merged:
    if key == _DESCRIPTION and edited and edited != was:
        return Merged(edited, 0)
    return merged_closely(was, edited, newer)


def _is_kept_out(was: str, newer: str) -> bool:
    """Return whether an input that the author removed stays removed: yes, unless it became required in the newer file."""
    return _OPTIONAL in newer.splitlines() or _OPTIONAL not in was.splitlines()


def _with_words(was: str, edited: str, newer: str) -> str:
    """Return `newer`, but with summary, tags and intent of `was` where the author replaced them. The merge then finds
    that only the author changed these lines, so there is no conflict.
    """
    before, mine, after = (_WORDS.findall(text) for text in (was, edited, newer))
    if not len(before) == len(mine) == len(after):
        return newer
    words = iter([old if old != own else new for old, own, new in zip(before, mine, after, strict=True)])
    return _WORDS.sub(lambda found: next(words), newer)


def _parts(text: str) -> _File | None:
    """Split a file that the import generated into its parts; None if it has another form."""
    front, end, body = text.partition(_END)
    head, first, rest = front.partition("\n[[execute]]\n")
    if not end or not first:
        return None
    head, *tables = f"{head}\n".split(f"\n{_INPUT}\n")
    inputs: Parts = {}
    for table in tables:
        name = _NAME.match(table)
        if name is None or name[1] in inputs or re.search(r"^\[", table, re.MULTILINE):
            return None
        inputs[name[1]] = f"{_INPUT}\n{table.rstrip()}\n\n"
    return _File(f"{head.rstrip()}\n\n", inputs, f"{first.lstrip()}{rest}{end}", body)


def _keys(table: str) -> Parts | None:
    """Return the lines of an input by key; None if a value has several lines."""
    lines = table.rstrip().splitlines()[1:]
    found = [_KEY.fullmatch(line) for line in lines]
    if not all(found):
        return None
    keys = {match[1]: f"{match[0]}\n" for match in found if match is not None}
    return keys if len(keys) == len(lines) else None
