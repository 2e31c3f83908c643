"""Conversion of HTML to text: roughly the visible text of a message and, separately, its hidden text.

Styles, scripts, pictures and comments are left out; blocks are on lines of their own; a link's target follows its words.
Any input is accepted, in linear time. (html.parser of the standard library takes a minute for 100,000 characters of `<a `.)

Hidden text (html_styles.py) is returned separately, because it may be meant for a program that reads the message for a
person. It is not dropped, since many newsletters begin with a hidden line for previews.

Pure. Source: WHATWG HTML, "Tokenization" and "Parsing HTML documents", as far as text needs them.

>>> text_from("<p>Hello <b>you</b>, see <a href='https://x.example/'>here</a>")
'Hello you, see here <https://x.example/>'
>>> texts_from("<p>Hello<span style='display:none'>, robot</span>!")
Texts(seen='Hello!', hidden=', robot')
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from aileron_connector.html_styles import PAGE, Look, Styles, look_of
from aileron_connector.mail import without_controls

__all__ = ["MAX_HIDDEN_CHARACTERS", "Texts", "joined", "text_from", "texts_from"]

MAX_TAG_CHARACTERS: Final = 4096
"""Maximum length of a tag in which a `>` in quotes does not end the tag. A longer tag, such as one with an embedded
picture, ends at the next `>`.
"""
MAX_OPEN_ELEMENTS: Final = 1_000
"""Maximum number of open elements, twice as deep as browsers go. Text that is nested deeper, or follows such text, counts
as hidden.
"""
MAX_LINK_CHARACTERS: Final = 2000
MAX_HIDDEN_CHARACTERS: Final = 10_000
"""Maximum number of characters that are returned of a message's hidden text. A newsletter's preview line has some hundred."""

_RAW: Final = frozenset({"script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes"})
"""Elements whose contents up to their end tag are not parsed as markup."""
_SILENT: Final = frozenset("noscript template svg math object select audio video canvas".split())
_BLOCKS: Final = frozenset(
    "address article aside blockquote body br center dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 "
    "h6 header hr legend li main nav ol p pre section summary table tbody tfoot thead tr ul".split()
)
_TAG: Final = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9:-]{0,40})")
_REST: Final = re.compile(r"""(?:[^>"']|"[^"]*+"|'[^']*+')*>""")
_LINK: Final = re.compile(r"""(?<![\w-])href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.IGNORECASE)
_LEADS_OUT: Final = re.compile(r"(?:https?|mailto):", re.IGNORECASE)


class Texts(NamedTuple):
    """The visible text of a page, and its hidden text."""

    seen: str
    hidden: str


def text_from(page: str) -> str:
    """Return the visible text of an HTML page, stripped. Never raises."""
    return texts_from(page).seen


def texts_from(page: str) -> Texts:
    """Return the visible and the hidden text of an HTML page, stripped. Never raises."""
    pieces = list(_pieces(page))
    reader = _Reader(Styles("\n".join(piece.text for piece in pieces if piece.kind == "sheet")))
    for piece in pieces:
        reader.take(piece)
    return Texts(_tidy(reader.seen), _tidy(reader.hidden))


def joined(parts: Iterable[Texts]) -> Texts:
    """Join the texts of a message's parts, without control characters. Hidden text is cut to MAX_HIDDEN_CHARACTERS."""
    every = list(parts)
    seen, hidden = _lines(part.seen for part in every), _lines(part.hidden for part in every)
    return Texts(seen, hidden if len(hidden) <= MAX_HIDDEN_CHARACTERS else f"{hidden[:MAX_HIDDEN_CHARACTERS]}…")


def _lines(texts: Iterable[str]) -> str:
    lines = (text.replace("\r\n", "\n").replace("\r", "\n").strip("\n") for text in texts)
    return without_controls("\n".join(lines)).strip()


def _tidy(said: list[str]) -> str:
    lines = (" ".join(line.split()) for line in "".join(said).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Piece(NamedTuple):
    kind: str
    """Kind of the piece: `text`, `start` or `end` for a tag, or `sheet` for a style sheet."""
    text: str
    """Text as written in the page, or the name of an element in lower case."""
    attributes: str = ""


def _pieces(page: str) -> Iterator[_Piece]:
    """Yield the text, the tags and the style sheets of a page, in order. An unfinished tag, comment or raw element extends
    to the end of the page.
    """
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
            yield _Piece("end" if tag[1] else "start", name, page[tag.end() : ends])
            if name in _RAW and not tag[1]:
                begun, ends = ends, _after_raw(page, name, ends)
                if name == "style":
                    yield _Piece("sheet", page[begun:ends].rpartition("</")[0] or page[begun:ends])
        at = ends
    if at < len(page):
        yield _Piece("text", page[at:])


def _after_declaration(page: str, at: int) -> int | None:
    """Return the position after the comment, declaration or processing instruction that begins at `at`; None if none
    begins there.
    """
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


_VOID: Final = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_ENDED_BY_NEXT: Final = frozenset("p li td th tr dt dd option".split())
"""Elements that end when another element of the same name begins at the same level."""
_ATTRIBUTE: Final = re.compile(r"""([^\s"'<>/=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+)))?""")


class _Reader:
    """Collector of the visible and the hidden text of one page."""

    def __init__(self, sheet: Styles) -> None:
        self.seen: list[str] = []
        self.hidden: list[str] = []
        self._sheet: Final = sheet
        self._open: list[tuple[str, Look]] = []
        self._number_open: dict[str, int] = {}
        self._is_lost = False
        self._link = ""
        self._silent = ""
        self._depth = 0

    def take(self, piece: _Piece) -> None:
        """Process the next piece of the page."""
        if piece.kind == "sheet":
            return
        if self._silent:
            if piece.kind != "text" and piece.text == self._silent and not piece.attributes.endswith("/>"):
                self._depth += 1 if piece.kind == "start" else -1
                self._silent = self._silent if self._depth else ""
        elif piece.kind == "text":
            self._said.append(re.sub(r"\s+", " ", html.unescape(piece.text)))
        elif piece.text in _SILENT and piece.kind == "start" and not piece.attributes.endswith("/>"):
            self._silent, self._depth = piece.text, 1
        else:
            self._tag(piece)

    @property
    def _said(self) -> list[str]:
        return self.seen if not self._is_lost and self._look.is_seen else self.hidden

    @property
    def _look(self) -> Look:
        return self._open[-1][1] if self._open else PAGE

    def _tag(self, piece: _Piece) -> None:
        if piece.text == "a":
            self._end_link()
            self._link = ""
        if piece.kind == "end":
            self._close(piece.text)
        elif piece.text not in _VOID:
            self._begin(piece)
        if piece.text in _BLOCKS:
            self.seen.append("\n")
            self.hidden.append("\n")
        elif piece.text in {"td", "th"}:
            self._said.append(" ")
        elif piece.text == "a" and piece.kind == "start":
            self._link = _link(piece.attributes)

    def _begin(self, piece: _Piece) -> None:
        name = piece.text
        if self._open and self._open[-1][0] in ((name, "p") if name in _BLOCKS else (name,)):
            top = self._open[-1][0]
            if top == "p" or (top == name and name in _ENDED_BY_NEXT):
                self._close(top)
        if len(self._open) >= MAX_OPEN_ELEMENTS:
            self._is_lost = True
            return
        look = look_of(name, _attributes(piece.attributes), self._sheet, self._look)
        self._open.append((name, look))
        self._number_open[name] = self._number_open.get(name, 0) + 1

    def _close(self, name: str) -> None:
        """Close the newest open element with this name and the elements in it. Does nothing if no such element is open."""
        if not self._number_open.get(name):
            return
        while True:
            closed, _ = self._open.pop()
            self._number_open[closed] -= 1
            if closed == name:
                return

    def _end_link(self) -> None:
        said = self._said
        if self._link and not "".join(said[-1:]).strip().endswith(self._link):
            said.append(f" <{self._link}>")


def _attributes(text: str) -> dict[str, str]:
    """Return a tag's attributes by name in lower case. If a name occurs twice, the first value counts."""
    found: dict[str, str] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(text):
        found.setdefault(name.lower(), html.unescape(double or single or bare))
    return found


def _link(attributes: str) -> str:
    found = _LINK.search(attributes)
    if found is None:
        return ""
    target = " ".join(html.unescape(found[1] or found[2] or found[3] or "").split())
    return target[:MAX_LINK_CHARACTERS] if _LEADS_OUT.match(target) else ""
