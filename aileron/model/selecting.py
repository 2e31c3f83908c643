"""Selectors: texts that select some of the installed actions, with one syntax for settings and command lines.

    tag:calendar                actions with this tag
    connector:github://acme/x   actions that call this connector, whatever its version
    github-*                    actions with this name; `*` stands for any characters

The syntax is closed: for any other text, ValueError lists these forms. Pure.

>>> parse_selector("tag:calendar").matches("list-events", ["calendar"], [])
True
>>> parse_selector("list-*").matches("delete-event", ["calendar"], [])
False

Source: docs/reference/sessions.md#selections. Not here: sessions' selections (daemon/http/sessions.py), the setting (config.py).
"""

from __future__ import annotations

import enum
import fnmatch
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from aileron.model.names import TAG, Fqn

if TYPE_CHECKING:  # the reader of the settings does not need it
    from aileron.model.manifest import ActionFile

__all__ = ["MAX_SELECTORS", "Selection", "Selector", "SelectorKind", "is_selected", "parse_selector", "parse_selectors"]

MAX_SELECTORS: Final = 64
"""Maximum number of selectors in a list; tags are better for selecting more actions."""
_NAME: Final = re.compile(r"[a-z0-9*][a-z0-9*._-]{0,63}")
_FORMS: Final = "tag:NAME, connector:FULL_NAME or an action's name, in which * stands for any characters"


class SelectorKind(enum.StrEnum):
    """The property of an action that a selector selects by. A closed list."""

    TAG = "tag"
    CONNECTOR = "connector"
    NAME = "name"


class Selector(msgspec.Struct, frozen=True):
    """A selector of actions by a tag, a connector, or a name that can have wildcards. Made by `parse_selector`."""

    kind: SelectorKind
    value: str

    def matches(self, name: str, tags: Collection[str], connectors: Collection[str]) -> bool:
        """Return whether the selector selects an action with this name, tags and connectors (full names without a version)."""
        match self.kind:
            case SelectorKind.TAG:
                return self.value in tags
            case SelectorKind.CONNECTOR:
                return self.value in connectors
            case SelectorKind.NAME:
                return fnmatch.fnmatchcase(name, self.value)  # `*` is the only wildcard that the grammar allows

    def __str__(self) -> str:
        return self.value if self.kind is SelectorKind.NAME else f"{self.kind.value}:{self.value}"


class Selection(msgspec.Struct, frozen=True):
    """The actions that a session can use: those that match at least one selector in every list. Without lists, all actions."""

    lists: tuple[tuple[Selector, ...], ...] = ()

    def admits(self, action: ActionFile) -> bool:
        """Return whether the selection includes the action."""
        return all(is_selected(selectors, action) for selectors in self.lists)

    def admits_facts(self, name: str, tags: Collection[str], connectors: Collection[str]) -> bool:
        """Return whether the selection includes an action with these properties, which are known even if the action's
        file is broken.
        """
        return all(any(selector.matches(name, tags, connectors) for selector in selectors) for selectors in self.lists)

    def __bool__(self) -> bool:
        return bool(self.lists)

    def __str__(self) -> str:
        return " and ".join(", ".join(map(str, selectors)) for selectors in self.lists)


def is_selected(selectors: Iterable[Selector], action: ActionFile) -> bool:
    """Return whether at least one of the selectors matches the action."""
    connectors = {str(connector.name) for connector in action.connectors}
    return any(selector.matches(action.name, action.tags, connectors) for selector in selectors)


def parse_selector(text: str) -> Selector:
    """Return the selector that `text` spells. Raises ValueError listing the valid forms for any other text."""
    kind, separator, value = text.partition(":")
    if not separator and _NAME.fullmatch(text):
        return Selector(SelectorKind.NAME, text)
    if kind == SelectorKind.TAG.value and TAG.fullmatch(value):
        return Selector(SelectorKind.TAG, value)
    if kind == SelectorKind.CONNECTOR.value:
        return Selector(SelectorKind.CONNECTOR, str(Fqn.parse(value)))
    raise ValueError(f"{text[:80]!r} is not a selector: use {_FORMS}")


def parse_selectors(texts: Collection[str]) -> tuple[Selector, ...]:
    """Return the parsed selectors in their order, each at most once.

    Raises ValueError for an invalid selector, for an empty list, and for more than MAX_SELECTORS.
    """
    if not 1 <= len(texts) <= MAX_SELECTORS:
        raise ValueError(f"{len(texts)} selectors; expected 1 to {MAX_SELECTORS}")
    return tuple(dict.fromkeys(map(parse_selector, texts)))
