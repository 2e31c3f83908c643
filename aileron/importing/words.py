r"""Conversion of a document's prose for an action: one line or a few, visible, and no longer than a model or a person needs.

Pure. The document is untrusted and its words are only data: hidden characters and markup that would not be rendered are removed,
and long text is cut at the end of a sentence.

>>> line("Lists <b>all</b> pets.\n\nMore.")
'Lists all pets. More.'
>>> first_sentence("Lists pets. Only yours, e.g. cats.", 200)
'Lists pets'
"""

from __future__ import annotations

import functools
import html
import re
from typing import Final

from aileron.model.text import hidden_at

__all__ = ["first_sentence", "is_visible", "line", "paragraph"]

_TAG: Final = re.compile(r"</?[A-Za-z][^<>]{0,500}>")
_LINK: Final = re.compile(r"!?\[([^\[\]]{0,300})\]\([^()\s]{0,2000}(?:\s[^()]{0,300})?\)")
_MARKS: Final = re.compile(r"[*_]{2,}|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)|`+|^#+\s+", re.MULTILINE)
_END: Final = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)[.!?:]?(?:\s+(?=[A-Z\"“(`])|\s*$)")
_MAX_SHORT: Final = 8
"""Maximum number of characters before a full stop that are searched for an abbreviation."""
_MAX_READ: Final = 20_000
"""Maximum number of characters of a description that are read; only the beginning is used."""


def is_visible(text: str) -> bool:
    """Return whether the text is one line and every character can be seen."""
    return hidden_at(text) is None


@functools.lru_cache(maxsize=4096)  # a thousand operations may refer to one parameter
def line(text: str, most: int = 300) -> str:
    """Return a text as one line of plain text, of at most `most` characters."""
    plain = _LINK.sub(r"\1", _unescaped(_TAG.sub("", text[:_MAX_READ])))
    words = " ".join(_MARKS.sub("", plain).split())
    seen = words if is_visible(words) else "".join(char for char in words if is_visible(char))
    return seen if len(seen) <= most else f"{seen[: most - 1].rsplit(' ', 1)[0]}…"


def _unescaped(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # the number of a character has more digits than Python reads
        return text


def first_sentence(text: str, most: int) -> str:
    """Return the first sentence, without its full stop; cut if it is longer than `most`."""
    whole = line(text, _MAX_READ)
    for stop in re.finditer(r"[.!?](?=\s+[A-Z\"“(`\[]|$)", whole):
        before = whole[: stop.start()]
        if not re.search(r"(?:\be\.g|\bi\.e|\betc|\bvs|\b[A-Z])$", before[-_MAX_SHORT:]):
            whole = before
            break
    return line(whole, most)


def paragraph(text: str, most: int) -> str:
    """Return the first paragraph, and further paragraphs while there is room, as lines of plain text."""
    told: list[str] = []
    room = most
    for part in re.split(r"\n\s*\n", text[:_MAX_READ]):
        plain = line(part, max(room, 2))
        if not plain:
            continue
        told.append(plain)
        room -= len(plain) + 2
        if room < 40 or plain.endswith("…"):
            break
    return "\n\n".join(told)
