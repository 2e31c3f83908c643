r"""A service's words, for a line that a person reads.

Pure. Not here: how many of them are kept (messages.MAX_WORDS), the secret in them (perform.py).

>>> printable("530 no\r\nsuch \x1b[31muser")
'530 no  such  [31muser'
"""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """As long as it was: what would not be seen, or would move what is seen, is a blank each."""
    return "".join(character if character.isprintable() else " " for character in text)
