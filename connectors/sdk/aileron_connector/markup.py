"""HTML as text: what a reader would see of a message that has nothing else, more or less.

No styles, scripts, pictures or comments; blocks on lines of their own; where links lead, behind their words. Any text goes in,
and time grows with its length alone: html.parser of the standard library takes a minute for 100,000 characters of `<a `.

Pure. Source: WHATWG HTML, "Tokenization" and "Parsing HTML documents", as far as text needs them.

>>> text_from("<p>Hello <b>you</b>, see <a href='https://x.example/'>here</a>")
'Hello you, see here <https://x.example/>'
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["text_from"]

MAX_TAG_CHARACTERS: Final = 4096
"""Within which a tag's quotes are looked at; a longer one, with a picture in it, ends at the next `>`."""
MAX_LINK_CHARACTERS: Final = 2000

_RAW: Final = frozenset({"script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes"})
"""Nothing in these is markup, up to their own end."""
_SILENT: Final = frozenset("noscript template svg math object select audio video canvas".split())
_BLOCKS: Final = frozenset(
    "address article aside blockquote body br center dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 "
    "h6 header hr legend li main nav ol p pre section summary table tbody tfoot thead tr ul".split()
)
_TAG: Final = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9:-]{0,40})")
_REST: Final = re.compile(r"""(?:[^>"']|"[^"]*+"|'[^']*+')*>""")
_LINK: Final = re.compile(r"""(?<![\w-])href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.IGNORECASE)
_LEADS_OUT: Final = re.compile(r"(?:https?|mailto):", re.IGNORECASE)


def text_from(page: str) -> str:
    """Its text, without space around it; never an exception."""
    reader = _Reader()
    for piece in _pieces(page):
        reader.take(piece)
    lines = (" ".join(line.split()) for line in "".join(reader.said).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Piece(NamedTuple):
    kind: str
    """`text`, `start` or `end`."""
    text: str
    """Text as it is written, or the name of an element, in lower case."""
    attributes: str = ""


def _pieces(page: str) -> Iterator[_Piece]:
    """Text and tags, in order. What is begun and never ended has no text behind it."""
    at = 0
    while (found := page.find("<", at)) >= 0:
        if found > at:
            yield _Piece("text", page[at:found])
        tag = _TAG.match(page, found)
        if tag is None:
            ends = _after_declaration(page, found)
            if ends is None:
                yield _Piece("text", "<")
                ends = found + 1
        else:
            name = tag[2].lower()
            ends = _after_tag(page, tag.end())
            yield _Piece("end" if tag[1] else "start", name, page[tag.end() : ends][:MAX_TAG_CHARACTERS])
            if name in _RAW and not tag[1]:
                ends = _after_raw(page, name, ends)
        at = ends
    if at < len(page):
        yield _Piece("text", page[at:])


def _after_declaration(page: str, at: int) -> int | None:
    """Behind a comment, a declaration or an instruction; None for a `<` that begins nothing."""
    if page.startswith("<!--", at):
        return _after(page, "-->", at + 4)
    return _after(page, ">", at) if page[at + 1 : at + 2] in {"!", "?", "/"} else None


def _after_tag(page: str, at: int) -> int:
    found = _REST.match(page, at, at + MAX_TAG_CHARACTERS)
    return found.end() if found is not None else _after(page, ">", at)


def _after_raw(page: str, name: str, at: int) -> int:
    found = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(page, at)
    return len(page) if found is None else _after(page, ">", found.end())


def _after(page: str, mark: str, at: int) -> int:
    found = page.find(mark, at)
    return len(page) if found < 0 else found + len(mark)


class _Reader:
    """Puts together what is seen."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._link = ""
        self._silent = ""
        self._depth = 0

    def take(self, piece: _Piece) -> None:
        """One piece, in order."""
        if self._silent:
            if piece.kind != "text" and piece.text == self._silent and not piece.attributes.endswith("/>"):
                self._depth += 1 if piece.kind == "start" else -1
                self._silent = self._silent if self._depth else ""
        elif piece.kind == "text":
            self.said.append(re.sub(r"\s+", " ", html.unescape(piece.text)))
        elif piece.text in _BLOCKS:
            self.said.append("\n")
        elif piece.text in {"td", "th"}:
            self.said.append(" ")
        elif piece.text == "a":
            self._end_link()
            self._link = _link(piece.attributes) if piece.kind == "start" else ""
        elif piece.text in _SILENT and piece.kind == "start" and not piece.attributes.endswith("/>"):
            self._silent, self._depth = piece.text, 1

    def _end_link(self) -> None:
        if self._link and not "".join(self.said[-1:]).strip().endswith(self._link):
            self.said.append(f" <{self._link}>")


def _link(attributes: str) -> str:
    found = _LINK.search(attributes)
    if found is None:
        return ""
    target = " ".join(html.unescape(found[1] or found[2] or found[3] or "").split())
    return target[:MAX_LINK_CHARACTERS] if _LEADS_OUT.match(target) else ""
