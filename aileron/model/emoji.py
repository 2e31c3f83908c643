r"""Emoji that take more than one character: families, flags, skin tones, keycaps.

The joiners, selectors and tags in an emoji are invisible, but hide nothing, because each belongs to a visible picture. Anywhere
else they are hidden characters. Pure.

Rules
- A joiner (U+200D) stands between two pictures; at most five pictures are joined. The largest recommended emoji join four.
- A selector (U+FE0E, U+FE0F) stands exactly once, right after a character with both styles (text, emoji); a skin tone stands
  after a picture.
- Tags only spell England, Scotland and Wales, on a black flag: other regions are not drawn, and any text could be encoded as one.

Source: Unicode Technical Standard 51 (ED-9 to ED-17), emoji-data.txt and emoji-variation-sequences.txt of Emoji 17.0. Not here:
how hidden characters are shown (visible.py).

>>> [match[0] for match in EMOJI.finditer("a\u200db \u2764\ufe0f x\ufe0f")]
['❤️']
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["EMOJI", "MAY_BE_EMOJI"]

_SIGNS: Final = "©®‼⁉™ℹ↔-↙↩↪Ⓜ▪▫〰〽㊗㊙🅰🅱🅾🅿🈂🈚🈯🈷🀄🃏"
"""Characters with a text and an emoji style. They can be part of a joined emoji, but only one of `_PICTURES` can begin it."""
_PICTURES: Final = (
    "⌚⌛⌨⏏⏩-⏳⏸-⏺▶◀◻-◾☀-☄☎☑☔☕☘☝☠☢☣☦☪☮☯☸-☺♀♂♈-♓♟♠♣♥♦♨♻♾♿⚒-⚗⚙⚛⚜⚠⚡⚧⚪⚫⚰⚱⚽⚾⛄⛅⛈⛎⛏⛑⛓⛔⛩⛪⛰-⛵⛷-⛺⛽"
    "✂✅✈-✍✏✒✔✖✝✡✨✳✴❄❇❌❎❓-❕❗❣❤➕-➗➡➰➿⤴⤵⬅-⬇⬛⬜⭐⭕"
    "\U0001f300-\U0001f3fa\U0001f400-\U0001f64f\U0001f680-\U0001f6ff\U0001f7e0-\U0001f7eb\U0001f7f0"
    "\U0001f90c-\U0001f9ff\U0001fa70-\U0001faff"
)
_TONES: Final = "\U0001f3fb-\U0001f3ff"
_FLAGS: Final = "\U0001f1e6-\U0001f1ff"
_TAGGED: Final = "|".join(
    "".join(chr(0xE0000 + ord(letter)) for letter in f"{region}\x7f") for region in ("gbeng", "gbsct", "gbwls")
)
_PICTURE: Final = f"[{_PICTURES}](?:[{_TONES}]|\ufe0f)?"
_JOINED: Final = f"[{_PICTURES}{_SIGNS}](?:[{_TONES}]|\ufe0f)?"

EMOJI: Final = re.compile(
    rf"[0-9#*]\ufe0f?\u20e3|[{_FLAGS}]{{2}}|\U0001f3f4(?:{_TAGGED})"
    rf"|{_PICTURE}(?:\u200d{_JOINED}){{1,4}}|[{_PICTURES}{_SIGNS}][\ufe0e\ufe0f]|[{_PICTURES}][{_TONES}]"
)
"""Pattern of one emoji."""
MAY_BE_EMOJI: Final = re.compile("[\u200d\ufe0e\ufe0f\U000e0020-\U000e007f]")
"""Pattern of characters that are hidden unless they are part of an emoji."""
