"""What a run is asked for with, in a line: so that two questions about one action are told apart in a list.

Pure. It is a beginning, for finding the question that is meant; what is decided about is the question, whole. Names are the
action's own, values the agent's, and neither is made harmless here: that is for who shows it.

Rules
- Short values stand first: what is long (a body, a file) tells the least in a line.
- A value with anything in it that could pass for the next name is quoted, as JSON.

>>> glance_of(b'{"args": {"body": "Dear Mira, the invoice is paid.", "to": "mira@example.com", "urgent": true}}')
'to=mira@example.com urgent=true body="Dear Mira, the invoice…'

Not here: what is signed (frozen.py), rows of a list (query.py).
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

__all__ = ["MAX_SUBJECT_BYTES", "glance_of"]

MAX_SUBJECT_BYTES: Final = 64 << 10
"""Of a plan that is read for a line of it: a list has up to 800, and is read with every piece of news."""
_MAX: Final = 160
"""Characters of a line; no list is wider."""
_MAX_VALUE: Final = 24
_BARE: Final = re.compile(r"[\w@.:/+%,-]+")


class _Asked(msgspec.Struct):
    """Of a plan, what it was asked for with."""

    args: dict[str, Any] = {}


def glance_of(plan: bytes | None) -> str | None:
    """The arguments of a stored plan in at most 160 characters; None where it has none, or cannot be read in a line."""
    try:
        args = {} if plan is None else msgspec.json.decode(plan, type=_Asked).args
    except msgspec.DecodeError:
        return None
    spelled = {name: _spelled(value) for name, value in args.items()}
    pairs = [
        f"{name}={value if len(value) <= _MAX_VALUE else value[: _MAX_VALUE - 1] + '…'}"
        for name, value in sorted(spelled.items(), key=lambda pair: (len(pair[1]) > _MAX_VALUE, pair[0]))
    ]
    line = " ".join(pairs)
    return line if 0 < len(line) <= _MAX else line[: _MAX - 1] + "…" if line else None


def _spelled(value: Any) -> str:
    if isinstance(value, str) and _BARE.fullmatch(value):
        return value
    return msgspec.json.encode(value).decode()
