r"""Makes text from a service safe for a line that a person reads.

Pure. Not here: the maximum number of characters (login_messages.MAX_WORDS), masking the secret (perform.py).

>>> printable("530 no\r\nsuch \x1b[31muser")
'530 no  such  [31muser'
"""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """Return the text, with its length unchanged and a blank in place of each character that is invisible or moves
    other characters.
    """
    return "".join(character if character.isprintable() else " " for character in text)
