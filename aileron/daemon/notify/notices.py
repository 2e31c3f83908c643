"""What is told to somebody outside when a question waits: that it does, under which id, and about what. Nothing else.

Pure, in the daemon. A name comes from files and agents, and is read on a desktop or in somebody's chat: names of ours are plain
ASCII, so every other character is spelled out, and with it whatever a desktop would take for markup or an escape.

>>> Notice.of("apr-1", "send-mail\u202e<b>", "action", at_s=0.0).name
'send-mail[U+202E][U+003C]b[U+003E]'

Source: docs/reference/notifications.md. Not here: how it gets there (desktop.py, webhook.py), when (notifier.py).
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final, Self

__all__ = ["MAX_NAME_CHARACTERS", "Notice", "NotifyTiming"]

MAX_NAME_CHARACTERS: Final = 200
"""Of a name, spelled out: three times the longest an action may have. Beyond it there is a mark that something is missing."""
# Visible ASCII without what notify-send(1) unescapes (\) and what a desktop takes for markup in a notification's body (<, >, &).
_UNSAFE: Final = re.compile(r"[^\x20-\x7e]|[\\<>&]")


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """One question. `name` is of the action, or of what else a person is asked to agree to; it is safe to show."""

    approval_id: str
    name: str
    kind: str
    at_s: float
    """When it was asked, in seconds since the epoch."""

    @classmethod
    def of(cls, approval_id: str, name: str, kind: str, at_s: float) -> Self:
        """The notice with its texts made visible and cut to their bound."""
        return cls(_shown(approval_id), _shown(name), _shown(kind), at_s)


@dataclasses.dataclass(frozen=True, slots=True)
class NotifyTiming:
    """How often and how long, in seconds; tests that play an outage make it shorter."""

    desktop_s: float = 5.0
    """For one notify-send(1): it hands a message to the bus and ends, in milliseconds."""
    round_s: float = 60.0
    """In which a desktop gets a handful of notices and at most two that count the others."""
    settle_s: float = 1.0
    """Before others are counted: those that come in one go are counted together."""
    attempt_s: float = 5.0
    """For one request to the webhook, from the look-up of its name to the status of the answer."""
    backoff_s: tuple[float, ...] = (1.0, 5.0)
    """Between the tries, of which there is one more: a receiver that restarts is back by the third."""
    keep_s: float = 600.0
    """Until what could not be sent is dropped: most questions expire about then, and old news is none."""
    unlocked_s: float = 1.0
    """Between two looks whether the vault is open by now; looking costs nothing."""


def _shown(text: str) -> str:
    spelled = _UNSAFE.sub(lambda found: f"[U+{ord(found[0]):04X}]", text[: MAX_NAME_CHARACTERS + 1])
    return spelled if len(spelled) <= MAX_NAME_CHARACTERS else spelled[:MAX_NAME_CHARACTERS] + " [cut]"
