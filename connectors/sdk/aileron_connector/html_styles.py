"""A test of whether the text of an HTML element is visible to a person, based on its attributes and the page's own
style sheets.

    sheet = Styles(".note { display: none }")
    look_of("div", {"class": "note"}, sheet, PAGE).is_hidden        # True

Invisible text in a mail may be meant for a program that reads the mail for a person. Therefore text counts as hidden in
case of doubt: only the last part of a selector has to match, and a condition of a style sheet counts as true, unless it
is for a narrow window, a printer or a dark color scheme.

Pure; the time grows with the length of the input. Source: CSS 2.2 (display, visibility, overflow, clip), CSS Color 4, CSS Syntax
3 (escapes). Not here: style sheets from elsewhere, pictures behind a text, the effects of scripts, text (markup.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

__all__ = ["MAX_STYLE_CHARACTERS", "PAGE", "Look", "Styles", "look_of"]

MAX_STYLE_CHARACTERS: Final = 200_000
"""Maximum number of characters of a page's style sheets. The largest newsletters have a third of that."""
_MAX_RULES: Final = 2_000
"""Maximum number of rules that hide or color something. If a page has more, every element with a class counts as hidden."""
_MAX_COMPARED: Final = 1_000_000
"""Maximum number of comparisons of rules with elements, which take half a second. After that, every element counts as hidden."""
_LEAST_PIXELS: Final = 2.0
"""Font size in pixels up to which text counts as hidden."""
_LEAST_OPACITY: Final = 0.1
_FAR_PIXELS: Final = 200.0
"""Distance in pixels out of the window, or out of the element's own box, at which text counts as hidden."""
_LEAST_CONTRAST: Final = 32
"""Minimum difference (0 to 255) between text and background, in the color channel that differs most. With less, text
counts as hidden.
"""

Color = tuple[int, int, int]
Declarations = Mapping[str, str]


class Look(NamedTuple):
    """The computed style of an element: the properties that decide whether its text is visible, and that inner elements
    inherit.
    """

    is_hidden: bool = False
    """True if the element is hidden together with all its contents."""
    is_invisible: bool = False
    """True if the element is hidden by `visibility`, which an inner element can override."""
    pixels: float = 16.0
    color: Color | None = (0, 0, 0)
    """Color of the text, or None if the color is not known."""
    background: Color | None = (255, 255, 255)

    @property
    def is_seen(self) -> bool:
        """True if text with this style is visible."""
        return not (self.is_hidden or self.is_invisible or self.pixels <= _LEAST_PIXELS or self._is_blank)

    @property
    def _is_blank(self) -> bool:
        if self.color is None or self.background is None:
            return False
        return (
            max(abs(channel - other) for channel, other in zip(self.color, self.background, strict=True))
            < _LEAST_CONTRAST
        )


PAGE: Final = Look()


class Styles:
    """The style sheets of one page."""

    def __init__(self, text: str = "") -> None:
        self._rules: Final[dict[str, list[tuple[frozenset[str], Declarations]]]] = {}
        self._is_cut = len(text) > MAX_STYLE_CHARACTERS
        self._left = _MAX_COMPARED
        for number, (selector, declarations) in enumerate(_rules(text[:MAX_STYLE_CHARACTERS])):
            if number >= _MAX_RULES:
                self._is_cut = True
                return
            needed = _compound(selector)
            if needed:
                # A rule is found by one of its names, so that an element is compared with few rules.
                self._rules.setdefault(max(needed, key=lambda name: (name[:1] in ".#", name)), []).append(
                    (needed, declarations)
                )

    def declared(self, names: frozenset[str]) -> Iterator[Declarations]:
        """Yield the declarations that apply to an element, given its tag, `.class` names and `#id`. Once a bound on the
        page's styles is exceeded, yield a declaration that hides the element.
        """
        if self._left <= 0 or (self._is_cut and any(name[:1] == "." for name in names)):
            yield {"display": "none"}
            return
        for name in (*sorted(names), "*"):
            rules = self._rules.get(name, ())
            self._left -= len(rules)
            for needed, declarations in rules:
                if needed <= names | {"*"}:
                    yield declarations


def look_of(tag: str, attributes: Mapping[str, str], sheet: Styles, around: Look) -> Look:
    """Return the computed style of an element whose parent has the style `around`."""
    names = {tag, *(f".{name.lower()}" for name in attributes.get("class", "").split())}
    if attributes.get("id"):
        names.add(f"#{attributes['id'].strip().lower()}")
    style: dict[str, str] = {}
    if attributes.get("bgcolor"):
        style["background-color"] = attributes["bgcolor"]
    if attributes.get("background"):
        style["background"] = "url()"
    if tag == "font" and attributes.get("color"):
        style["color"] = attributes["color"]
    for declarations in sheet.declared(frozenset(names)):
        style |= declarations
    style |= _declarations(attributes.get("style", ""))
    is_hidden = around.is_hidden or "hidden" in attributes or (tag == "dialog" and "open" not in attributes)
    visibility = style.get("visibility", "")
    return Look(
        is_hidden or _hides(style),
        visibility in ("hidden", "collapse") if visibility else around.is_invisible,
        _pixels(style.get("font-size", "") or _size_in(style.get("font", "")), around.pixels, around.pixels),
        _text_color(style, around),
        _background(style, around.background),
    )


# Style sheets

_COMMENT: Final = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|(.))", re.DOTALL)
_NARROW: Final = re.compile(r"max-(?:device-)?width|print|prefers-color-scheme\s*:\s*dark", re.IGNORECASE)
_NAME: Final = re.compile(r"[.#]?[A-Za-z_*][\w-]*|\*")


def _rules(text: str) -> Iterator[tuple[str, Declarations]]:
    """Yield (selector, declarations) for each selector of each rule that may hide or color text. Rules for narrow
    windows, print and dark color schemes are left out.
    """
    skipped = 0
    depth = 0
    for prelude, mark in _preludes(_COMMENT.sub("", text)):
        if mark == "{" and prelude.startswith("@"):
            depth += 1
            skipped = skipped or (depth if _NARROW.search(prelude) or prelude.startswith("@font") else 0)
        elif mark == "}":
            skipped = 0 if depth == skipped else skipped
            depth = max(0, depth - 1)
        elif not skipped:
            selectors, _, body = prelude.partition("{")
            declarations = {name: value for name, value in _declarations(body).items() if name in _LOOKED_AT}
            if declarations:
                for selector in selectors.split(","):
                    yield selector.strip(), declarations


def _preludes(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a style sheet as pairs: an ordinary rule as (`selectors{declarations`, empty text), the start
    of an `@` rule as (`@…`, `{`), and the end of an `@` rule as (empty text, `}`).
    """
    at = 0
    while at < len(text):
        begin, end = text.find("{", at), text.find("}", at)
        if end >= 0 and (begin < 0 or end < begin):
            yield "", "}"
            at = end + 1
            continue
        if begin < 0:
            return
        prelude = text[at:begin].rpartition(";")[2].strip()
        if prelude.startswith("@"):
            yield prelude, "{"
            at = begin + 1
            continue
        end = len(text) if end < 0 else end
        yield f"{prelude}{{{text[begin + 1 : end]}", ""
        at = end + 1


def _compound(selector: str) -> frozenset[str]:
    """Return the names (tag, `.class`, `#id`) that an element must have to match a selector's last part. Empty if that
    part has a `:`, such as `:hover`; the rule is then ignored.
    """
    last = re.split(r"[\s>+~]+", _ESCAPE.sub(_unescaped, selector).strip())[-1]
    if ":" in last:
        return frozenset()
    return frozenset(name.lower() for name in _NAME.findall(re.sub(r"\[[^\[\]]*\]", "", last)))


def _declarations(text: str) -> dict[str, str]:
    """Parse CSS declarations. Return the values by property, both in lower case; if a property occurs twice, the last value
    counts.
    """
    found = {}
    for part in _ESCAPE.sub(_unescaped, _COMMENT.sub("", text)).split(";"):
        name, colon, value = part.partition(":")
        if colon:
            found[name.strip().lower()] = value.lower().replace("!important", "").strip()
    return found


def _unescaped(match: re.Match[str]) -> str:
    if not match[1]:
        return match[2]
    code = int(match[1], 16)
    return chr(code) if 0 < code < 0x110000 else "\ufffd"


# What hides

_LOOKED_AT: Final = frozenset(
    "display visibility opacity font-size font color background background-color height max-height width max-width overflow "
    "overflow-x overflow-y position left right top bottom text-indent margin-left margin-top margin clip clip-path transform "
    "mso-hide".split()
)
_NUMBER: Final = re.compile(r"\s*([-+]?[0-9]*\.?[0-9]+)\s*([a-z%]*)")
_TO_PIXELS: Final = {
    "": 1.0,
    "px": 1.0,
    "pt": 4 / 3,
    "pc": 16.0,
    "in": 96.0,
    "cm": 37.8,
    "mm": 3.78,
    "vw": 10.0,
    "vh": 8.0,
}
_NOTHING: Final = re.compile(
    r"scale[xy3d]*\(\s*0?\.?0*\s*[,)]|inset\(\s*(?:[5-9]\d|100)(?:\.\d+)?%|circle\(\s*0|rect\(\s*(?:0|1px|0px)[\s,]+(?:0|1px|0px)[\s,]+"
)
_MOVED: Final = re.compile(r"translate[xy3d]*\(([^()]*)\)")


def _hides(style: Declarations) -> bool:
    if style.get("display", "").split()[:1] == ["none"] or style.get("mso-hide") == "all":
        return True
    opacity = _NUMBER.match(style.get("opacity", ""))
    if opacity is not None and float(opacity[1]) * (0.01 if opacity[2] == "%" else 1) < _LEAST_OPACITY:
        return True
    return _is_clipped(style) or _is_away(style)


def _size_in(font: str) -> str:
    """Return the font size in a `font` value like `bold 12px/1 Arial`: the first word with a unit or a line height, or a zero."""
    for word in font.split():
        match = _NUMBER.match(word)
        if match is not None and (match[2] or "/" in word or not float(match[1])):
            return word
    return ""


def _is_clipped(style: Declarations) -> bool:
    if any(_NOTHING.search(style.get(name, "")) for name in ("clip", "clip-path", "transform")):
        return True
    cuts = any("hidden" in style.get(name, "") or "clip" in style.get(name, "") for name in _OVERFLOWS)
    sizes = ("height", "max-height", "width", "max-width")
    return cuts and any(_pixels(style.get(name, ""), 16.0, _FAR_PIXELS) <= 1 for name in sizes)


_OVERFLOWS: Final = ("overflow", "overflow-x", "overflow-y")


def _is_away(style: Declarations) -> bool:
    is_placed = style.get("position", "") in ("absolute", "fixed", "relative")
    names = ["text-indent", "margin-left", "margin-top", *(("left", "right", "top", "bottom") if is_placed else ())]
    lengths = [style.get(name, "") for name in names] + style.get("margin", "").split()
    for moved in _MOVED.findall(style.get("transform", "")):
        lengths += moved.split(",")
    return any(_pixels(length, 16.0, 0.0) <= -_FAR_PIXELS for length in lengths)


def _pixels(text: str, whole: float, otherwise: float) -> float:
    """Convert a CSS length to pixels. `whole` is the size that em, rem, ex, ch and % are relative to; `otherwise` is
    returned for text without a number.
    """
    match = _NUMBER.match(text)
    if match is None:
        return otherwise
    number, unit = float(match[1]), match[2]
    if unit in ("em", "rem", "ex", "ch"):
        return number * whole
    if unit == "%":
        return number / 100 * whole
    return number * _TO_PIXELS.get(unit, 1.0)


# Colors

_COLORS: Final[dict[str, Color]] = {
    "white": (255, 255, 255), "black": (0, 0, 0), "snow": (255, 250, 250), "ivory": (255, 255, 240), "red": (255, 0, 0),
    "whitesmoke": (245, 245, 245), "ghostwhite": (248, 248, 255), "floralwhite": (255, 250, 240), "blue": (0, 0, 255),
    "mintcream": (245, 255, 250), "azure": (240, 255, 255), "gray": (128, 128, 128), "grey": (128, 128, 128),
    "silver": (192, 192, 192), "green": (0, 128, 0), "yellow": (255, 255, 0), "navy": (0, 0, 128), "lime": (0, 255, 0),
    "lightgray": (211, 211, 211), "lightgrey": (211, 211, 211), "gainsboro": (220, 220, 220), "seashell": (255, 245, 238),
}  # fmt: skip
_OTHER_COLORS: Final = frozenset(
    "aliceblue antiquewhite aqua aquamarine beige bisque blanchedalmond blueviolet brown burlywood cadetblue canvas "
    "canvastext chartreuse chocolate coral cornflowerblue cornsilk crimson cyan darkblue darkcyan darkgoldenrod darkgray "
    "darkgreen darkgrey darkkhaki darkmagenta darkolivegreen darkorange darkorchid darkred darksalmon darkseagreen "
    "darkslateblue darkslategray darkslategrey darkturquoise darkviolet deeppink deepskyblue dimgray dimgrey dodgerblue "
    "firebrick forestgreen fuchsia gold goldenrod greenyellow honeydew hotpink indianred indigo khaki lavender "
    "lavenderblush lawngreen lemonchiffon lightblue lightcoral lightcyan lightgoldenrodyellow lightgreen lightpink "
    "lightsalmon lightseagreen lightskyblue lightslategray lightslategrey lightsteelblue lightyellow limegreen linen "
    "magenta maroon mediumaquamarine mediumblue mediumorchid mediumpurple mediumseagreen mediumslateblue "
    "mediumspringgreen mediumturquoise mediumvioletred midnightblue mistyrose moccasin navajowhite oldlace olive "
    "olivedrab orange orangered orchid palegoldenrod palegreen paleturquoise palevioletred papayawhip peachpuff peru "
    "pink plum powderblue purple rebeccapurple rosybrown royalblue saddlebrown salmon sandybrown seagreen sienna skyblue "
    "slateblue slategray slategrey springgreen steelblue tan teal thistle tomato turquoise violet wheat yellowgreen".split()
)
"""Names of further CSS colors, whose RGB values are not listed here."""
_HEX: Final = re.compile(r"#?([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})")
_RGB: Final = re.compile(r"rgba?\(([^()]*)\)")
_HSL: Final = re.compile(r"hsla?\(([^()]*)\)")


def _text_color(style: Declarations, around: Look) -> Color | None:
    text = style.get("color", "")
    if not text or text in ("inherit", "currentcolor"):
        return around.color
    if _is_transparent(text):
        return _background(style, around.background)
    found = _color(text)
    return found if found is not None or _is_some_color(text) else around.color


def _background(style: Declarations, around: Color | None) -> Color | None:
    for name in ("background-color", "background"):
        text = style.get(name, "")
        if not text or text in ("inherit", "none", "initial", "unset") or (_is_transparent(text) and "url" not in text):
            continue
        words = re.findall(r"(?:rgba?|hsla?)\([^()]*\)|[^\s]+", text)
        found = next((color for word in words if (color := _color(word)) is not None), None)
        if found is not None or any(map(_is_some_color, words)) or "(" in text:
            return found
    return around


def _is_some_color(word: str) -> bool:
    return word in _OTHER_COLORS or word.startswith(
        ("rgb", "hsl", "hwb", "lab", "lch", "oklab", "oklch", "color", "var(")
    )


def _is_transparent(text: str) -> bool:
    if text.startswith("transparent"):
        return True
    match = _RGB.match(text) or _HSL.match(text)
    if match is not None:
        parts = re.split(r"[\s,/]+", match[1].strip())
        alpha = _NUMBER.match(parts[3]) if len(parts) > 3 else None
        return alpha is not None and float(alpha[1]) * (0.01 if alpha[2] == "%" else 1) < _LEAST_OPACITY
    hex_ = _HEX.fullmatch(text)
    digits = hex_[1] if hex_ is not None else ""
    return (len(digits) == 4 and digits[3] in "01") or (len(digits) == 8 and int(digits[6:], 16) < 26)


def _color(text: str) -> Color | None:
    """Return the RGB values of a CSS color, or None if the color is not known here."""
    if text in _COLORS:
        return _COLORS[text]
    if (match := _HEX.fullmatch(text)) is not None:
        digits = match[1] if len(match[1]) >= 6 else "".join(2 * digit for digit in match[1])
        return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:6], 16)
    if (match := _RGB.match(text)) is not None:
        parts = [_NUMBER.match(part) for part in re.split(r"[\s,/]+", match[1].strip())[:3]]
        if len(parts) == 3 and all(parts):
            red, green, blue = (
                min(255, max(0, round(float(part[1]) * (2.55 if part[2] == "%" else 1)))) for part in parts if part
            )
            return red, green, blue
    if (match := _HSL.match(text)) is not None:
        parts = [_NUMBER.match(part) for part in re.split(r"[\s,/]+", match[1].strip())[:3]]
        if len(parts) == 3 and parts[2] is not None:
            lightness = float(parts[2][1])
            return (255, 255, 255) if lightness >= 98 else (0, 0, 0) if lightness <= 2 else None
    return None
