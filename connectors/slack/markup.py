"""Conversion of Slack's text format. Outgoing plain text stays plain; incoming messages become readable.

In a message's text `<` and `>` enclose markup: `<!channel>` notifies everybody in the channel, `<@U024BE7LH>` one
member, `<https://…|words>` is a link whose words can differ from its target. Literal `&`, `<` and `>` are entities.

Rules
- In the result of `escaped`, Slack finds no markup: no text becomes a mention, or a link with other words.
- `plain` shows both parts of markup: the id and the label of a mention, the target and the words of a link.
- plain(escaped(text)) equals text, for every text.

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
    """Escape text so that Slack shows it literally."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plain(text: str) -> str:
    """Return the text of a message as its reader sees it, with the targets of links. Never raises."""
    return _SPECIAL.sub(lambda found: _shown(found[1]) if found[1] else _ENTITIES[found[2]], text)


def _shown(inner: str) -> str:
    """Return Slack's markup `<…>`, such as a mention or a link, as readable text."""
    target, _, label = (_unescaped(part) for part in inner.partition("|"))
    kind, name = target[:1], target[1:]
    if target in _EVERYBODY:
        return f"@{name}"  # a label is ignored, as Slack does not show it
    if target.startswith("!subteam^"):
        kind, name, target = "@", name.removeprefix("subteam^"), f"@{name}"
    if kind in {"@", "#"}:
        return f"{kind}{label.removeprefix(kind)} ({name})" if label else target
    if kind == "!":
        return label or target
    return f"{label} <{target}>" if label and label != target else target


def _unescaped(text: str) -> str:
    return _ENTITY.sub(lambda found: _ENTITIES[found[1]], text)
