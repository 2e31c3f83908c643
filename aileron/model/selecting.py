"""Selectors: words for some of the installed actions, the same in a setting and on a command line.

    tag:calendar                actions with this tag
    connector:github://acme/x   actions that call this connector, whatever its version
    github-*                    actions with this name; `*` stands for any characters

A closed syntax: any other text is a ValueError that lists these forms. Pure.

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
"""Selectors in one list: tags serve people who name more single actions."""
_NAME: Final = re.compile(r"[a-z0-9*][a-z0-9*._-]{0,63}")
_FORMS: Final = "tag:NAME, connector:FULL_NAME or an action's name, in which * stands for any characters"


class SelectorKind(enum.StrEnum):
    """The property that a selector selects by. A closed list."""

    TAG = "tag"
    CONNECTOR = "connector"
    NAME = "name"


class Selector(msgspec.Struct, frozen=True):
    """A selector in one of the three forms. Made by `parse_selector`."""

    kind: SelectorKind
    value: str

    def matches(self, name: str, tags: Collection[str], connectors: Collection[str]) -> bool:
        """Return whether it means the action of this name, with these tags and connectors (full names without a version)."""
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
    """The actions that a session can use: those that every list means by at least one selector. Without lists, all."""

    lists: tuple[tuple[Selector, ...], ...] = ()

    def admits(self, action: ActionFile) -> bool:
        """Return whether the action is among them."""
        return all(is_selected(selectors, action) for selectors in self.lists)

    def admits_facts(self, name: str, tags: Collection[str], connectors: Collection[str]) -> bool:
        """Return whether an action is among them, by facts that are known even if its file is broken."""
        return all(any(one.matches(name, tags, connectors) for one in selectors) for selectors in self.lists)

    def __bool__(self) -> bool:
        return bool(self.lists)

    def __str__(self) -> str:
        return " and ".join(", ".join(map(str, selectors)) for selectors in self.lists)


def is_selected(selectors: Iterable[Selector], action: ActionFile) -> bool:
    """Return whether at least one of the selectors means the action."""
    connectors = {str(connector.name) for connector in action.connectors}
    return any(one.matches(action.name, action.tags, connectors) for one in selectors)


def parse_selector(text: str) -> Selector:
    """Return the selector that `text` spells. ValueError has the valid forms."""
    kind, separator, value = text.partition(":")
    if not separator and _NAME.fullmatch(text):
        return Selector(SelectorKind.NAME, text)
    if kind == SelectorKind.TAG.value and TAG.fullmatch(value):
        return Selector(SelectorKind.TAG, value)
    if kind == SelectorKind.CONNECTOR.value:
        return Selector(SelectorKind.CONNECTOR, str(Fqn.parse(value)))
    raise ValueError(f"{text[:80]!r} is not a selector: use {_FORMS}")


def parse_selectors(texts: Collection[str]) -> tuple[Selector, ...]:
    """Return a list of selectors, each once, in their order. ValueError, also for none and for more than MAX_SELECTORS."""
    if not 1 <= len(texts) <= MAX_SELECTORS:
        raise ValueError(f"{len(texts)} selectors; expected 1 to {MAX_SELECTORS}")
    return tuple(dict.fromkeys(map(parse_selector, texts)))
