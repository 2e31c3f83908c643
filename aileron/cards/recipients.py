"""Recipients in a call: which names of arguments and lines denote recipients, and which values are unmistakable.

Pure. Names are compared in normalised form (actions/summary.py). Only known names are recognised; an author may use others.

Rules
- A value is a blind copy if its own name says so, at any depth; nothing is guessed from values.
- Two values are compared only if both have the same unmistakable form. A name, an id and an address of one person differ, but
  do not contradict each other.

>>> list(blind_copies("Bcc", "ann@example.com")), list(blind_copies("message", {"to": "a@b.c", "bcc": ["d@e.f"]}))
(['ann@example.com'], [['d@e.f']])
>>> destinations("Ann <Ann@example.com>"), destinations("#general"), destinations("Ann")
(('address', frozenset({'ann@example.com'})), ('channel', frozenset({'#general'})), None)

Source: docs/reference/action-file.md (Preview). Not here: which recipients are alarms (alarms.py), their number (touched.py).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from aileron.actions.summary import as_compared
from aileron.cards.several import several

__all__ = ["blind_copies", "destinations", "is_destination", "says_who_gets_it"]

_BLIND: Final = re.compile(r"bcc\w*|\w+bcc|(blind|blindcarbon|hidden)(copy|copies|recipient|recipients)\w*")
"""Pattern of a name for blind copies, with its spaces removed: `bcc`, `Blind copy to`, `bccRecipients`, `mail_bcc`."""
_DESTINATIONS: Final = frozenset(
    {
        *("to", "goes to", "sent to", "send to", "sends to", "posted to", "post to", "posts to"),
        *("delivered to", "deliver to", "delivers to", "channel", "room", "recipient", "recipients", "destination"),
    }
)
_GETS_IT: Final = _DESTINATIONS | {
    *("cc", "copy", "copy to", "channels", "rooms", "destinations", "receiver", "receivers", "reply to", "answers to"),
    *("attendees", "invited", "guests", "members", "assignee", "assignees", "email", "emails", "address", "addresses"),
    *("phone", "phone number", "iban", "payee", "beneficiary", "url", "host", "webhook", "forward to", "share with"),
}
"""Names of arguments and labels that denote who is notified, invited or paid."""
_FORMS: Final = {
    "address": re.compile(r"(?:[^@<>]*<)?([^\s@<>,;]+@[^\s@<>,;]+)>?\s*"),
    "channel": re.compile(r"(#[^\s#,;]+)"),
    "handle": re.compile(r"(@[^\s@,;]+)"),
    "host": re.compile(r"https?://(?:www\.)?([^\s/?#@]+)(?:[/?#]\S*)?", re.IGNORECASE),
}


def blind_copies(name: str, value: Any) -> Iterator[Any]:
    """Yield each non-empty value whose name denotes recipients of blind copies: `value` itself, or a value nested in it."""
    waiting = deque([(name, value)])
    while waiting:
        called, part = waiting.popleft()
        if _BLIND.fullmatch(as_compared(called).replace(" ", "")):
            if _has_somebody(part):
                yield part
        elif isinstance(part, dict):
            waiting.extend(part.items())
        elif isinstance(part, list):
            waiting.extend(("", member) for member in part)


def is_destination(name: str) -> bool:
    """Return whether `name` can only denote a call's destination. Two such names in one call denote the same destination."""
    return as_compared(name) in _DESTINATIONS


def says_who_gets_it(name: str) -> bool:
    """Return whether `name` denotes who is notified, invited or paid, including recipients of blind copies."""
    return as_compared(name) in _GETS_IT or _BLIND.fullmatch(as_compared(name).replace(" ", "")) is not None


def destinations(value: Any) -> tuple[str, frozenset[str]] | None:
    """Return the kind of destination (`address`, `channel`, `handle` or `host`) that all parts of a value are, and the
    parts in lower case; None if they have no common kind.
    """
    found = several(value)
    parts = value if isinstance(value, list) else [value] if found is None else found.parts
    for form, pattern in _FORMS.items():
        matches = [pattern.fullmatch(part.strip()) for part in parts if isinstance(part, str)]
        whole = frozenset(match[1].casefold() for match in matches if match is not None)
        if whole and None not in matches and len(matches) == len(parts):
            return form, whole
    return None


def _has_somebody(value: Any) -> bool:
    return not isinstance(value, bool) and (bool(value.strip()) if isinstance(value, str) else bool(value))
