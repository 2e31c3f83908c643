"""Detection of values with several parts: the addresses of a mail, the members of a list.

Pure. Source: docs/reference/console.md. Not here: the words about such values (touched.py, headline.py).

>>> several("ann@example.com, Bob <bob@example.com>")
Several(parts=['ann@example.com', 'Bob <bob@example.com>'], what='addresses')
>>> several("ann@example.com"), several("@all: hello, you")
(None, None)
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

__all__ = ["Several", "several"]

_ADDRESS: Final = re.compile(r"[^@<>]*(?:<[^\s@<>,;]+|(?<=[^\s@<>,;]))@[^\s@<>,;]+>?\s*")
"""Pattern of an address in a list: `ann@example.com`, `Ann <ann@example.com>`.

No two parts of the pattern can match the same character, so a text that does not match is read only once.
"""


class Several(NamedTuple):
    """Two or more parts of a value, and the plural noun for the parts."""

    parts: list[Any]
    what: str


def several(value: Any) -> Several | None:
    """Return the parts of a list, or of a text that lists mail addresses; None if there are fewer than two."""
    if isinstance(value, list):
        return Several(value, "items") if len(value) > 1 else None
    parts = re.split(r"[,;]", value) if isinstance(value, str) and "@" in value and "\n" not in value else []
    is_list = len(parts) > 1 and all(_ADDRESS.fullmatch(part) for part in parts)
    return Several([part.strip() for part in parts], "addresses") if is_list else None
