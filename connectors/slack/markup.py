"""Slack's text format, both ways: plain text so that it stays plain, and what people wrote so that it can be read.

In a message's text `<` and `>` enclose what Slack acts on: `<!channel>` tells everybody in the channel, `<@U024BE7LH>` one of
them, `<https://…|words>` leads somewhere else than its words say. `&`, `<` and `>` that mean themselves are entities.

Rules
- `escaped` leaves nothing that Slack acts on: no text becomes a mention or a link with other words by it.
- `plain` shows both halves of whatever has two: whom a mention names and as what, where a link leads and how it is called.
- plain(escaped(text)) is text, for every text.

Pure. Source: Slack's developer documentation, "Formatting message text", "Escaping text" and "Retrieving messages".

>>> escaped("a < b & <!channel>")
'a &lt; b &amp; &lt;!channel&gt;'
>>> plain("<!here> see <https://x.example/?a=1&amp;b=2|the report> of <@U024BE7LH|bob>")
'@here see the report <https://x.example/?a=1&b=2> of @bob (U024BE7LH)'
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["escaped", "plain"]

_EVERYBODY: Final = frozenset({"!channel", "!here", "!everyone", "!group"})
_ENTITIES: Final = {"amp": "&", "lt": "<", "gt": ">"}
_ENTITY: Final = re.compile(r"&(amp|lt|gt);")
_SPECIAL: Final = re.compile(r"<([^<>]+)>|&(amp|lt|gt);")


def escaped(text: str) -> str:
    """The text as Slack takes text that means itself."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plain(text: str) -> str:
    """What a reader sees of a message's text, with where it leads; never an exception."""
    return _SPECIAL.sub(lambda found: _shown(found[1]) if found[1] else _ENTITIES[found[2]], text)


def _shown(inner: str) -> str:
    """The inside of `<…>`, in words."""
    target, _, label = (_unescaped(part) for part in inner.partition("|"))
    kind, name = target[:1], target[1:]
    if target in _EVERYBODY:
        return f"@{name}"  # a label would say what Slack does not
    if target.startswith("!subteam^"):
        kind, name, target = "@", name.removeprefix("subteam^"), f"@{name}"
    if kind in {"@", "#"}:
        return f"{kind}{label.removeprefix(kind)} ({name})" if label else target
    if kind == "!":
        return label or target
    return f"{label} <{target}>" if label and label != target else target


def _unescaped(text: str) -> str:
    return _ENTITY.sub(lambda found: _ENTITIES[found[1]], text)
