"""Recovery codes: keys to the vault in a form that a person can store on paper and type again.

Pure, except for the random source. Runs in the daemon. A code is itself a key: its 28 random symbols out of 31 have 138 bits.
So it needs no expensive derivation, unlike secrets that people choose.

    5JQ2R-8WZ9K-…        seven groups of four random symbols and one check symbol each

Rules
- `read` accepts capital or small letters, with hyphens, spaces or neither, and returns the code in one spelling.
- The symbols are 1-9 and the letters without I, L, O and U; a typed I or L counts as 1. There is no zero.
- The check symbol of a group detects every single mistyped symbol, every swap of two symbols, and a group in a wrong place, so
  that the message can say where the mistake is. It neither protects a secret nor proves anything.

Source: docs/reference/vault-format.md (recovery codes). Not here: what a code opens (slots.py).

>>> code = generate()
>>> read(code.reveal().decode().lower()) == code
True
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from aileron.model.secret import Secret

__all__ = ["GROUPS", "MistypedError", "generate", "read"]

_SYMBOLS: Final = (
    "123456789ABCDEFGHJKMNPQRSTVWXYZ"  # 31, a prime: so a sum with different weights detects swapped symbols
)
_VALUES: Final = {symbol: value for value, symbol in enumerate(_SYMBOLS)} | {"I": 0, "L": 0}
GROUPS: Final = 7
_RANDOM: Final = 4  # in each group, before its check symbol
_FORM: Final = re.compile(r"[0-9A-Za-z]{5}(?:[ -]?[0-9A-Za-z]{5}){6}")


class MistypedError(ValueError):
    """Error: a text has the form of a recovery code but contains a typing mistake.

    The message has the numbers of the wrong groups, and never quotes the text.
    """


def generate() -> Secret:
    """Return a new recovery code in the form in which it is printed: 41 ASCII characters."""
    groups = [[secrets.randbelow(len(_SYMBOLS)) for _ in range(_RANDOM)] for _ in range(GROUPS)]
    return Secret(_spelled([[*group, _check(number, group)] for number, group in enumerate(groups, 1)]))


def read(text: str) -> Secret | None:
    """Return the typed recovery code as `generate` spells it, or None if the text does not have the form of a recovery
    code.

    Raises MistypedError if it has the form but contains a mistake.
    """
    if not _FORM.fullmatch(text.strip()):
        return None
    typed = re.sub(r"[ -]", "", text.strip().upper())
    groups = [[_VALUES.get(symbol, -1) for symbol in typed[at : at + 5]] for at in range(0, len(typed), 5)]
    wrong = [str(number) for number, group in enumerate(groups, 1) if not _is_right(number, group)]
    if wrong:
        raise MistypedError(f"typing mistake in group {' and '.join(wrong)} of the recovery code")
    return Secret(_spelled(groups))


def _check(number: int, group: list[int]) -> int:
    """Return the value of the check symbol for a group of symbols in a recovery code. The group's number, the weighted
    sum of its symbols and this value add up to a multiple of 31.
    """
    return (number + sum(weight * value for weight, value in enumerate(group, 2))) * -1 % len(_SYMBOLS)


def _is_right(number: int, group: list[int]) -> bool:
    return -1 not in group and _check(number, group[:_RANDOM]) == group[_RANDOM]


def _spelled(groups: list[list[int]]) -> bytes:
    return "-".join("".join(_SYMBOLS[value] for value in group) for group in groups).encode()
