"""What is told to somebody outside when a question waits: who asks, for which action, and where to look. Values only on request.

Pure, in the daemon. A name comes from files and agents, and is read on a desktop or in somebody's chat: names of ours are plain
ASCII, so every other character is spelled out, and with it whatever a desktop would take for markup or an escape. With
`notify.details` the sentence that lists show is told too: what the agent said, marked so. What a preview found never is.

>>> asked = Asked("apr-1", "send-mail\u202e<b>", "action", at_s=0.0)
>>> Notice.of(asked, None, "http://localhost:27182", with_details=False).title
'Approval needed: send-mail[U+202E][U+003C]b[U+003E]'

Source: docs/reference/notifications.md. Not here: how it gets there (desktop.py, webhook.py), when (notifier.py).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Self

import msgspec

from aileron.model.consent import ConsentKind
from aileron.model.timestamp import parse_timestamp
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.api.approvals import ApprovalEntry

__all__ = ["MAX_NAME_CHARACTERS", "Asked", "Describe", "Notice", "NotifyTiming"]

MAX_NAME_CHARACTERS: Final = 200
"""Of a name, spelled out: three times the longest an action may have. Beyond it there is a mark that something is missing."""
# Visible ASCII without what notify-send(1) unescapes (\) and what a desktop takes for markup in a notification's body (<, >, &).
_UNSAFE: Final = re.compile(r"[^\x20-\x7e]|[\\<>&]")
_MARKUP: Final = re.compile(r"[\\<>&]")


class Asked(msgspec.Struct, frozen=True):
    """A question that waits, as it was asked. `name` is of the action, or of what else a person is asked to agree to."""

    approval_id: str
    name: str
    kind: str
    at_s: float
    """When it was asked, in seconds since the epoch."""
    is_reminder: bool = False
    """It was told before, and its time is nearly over."""


class Notice(msgspec.Struct, frozen=True):
    """What is told of one, safe to show. `headline` is empty unless details are wanted, `agent` where nobody knows who asks."""

    approval_id: str
    action: str
    agent: str
    headline: str
    url: str
    at_s: float
    expires_at_s: float | None
    is_reminder: bool

    @classmethod
    def of(cls, asked: Asked, entry: ApprovalEntry | None, base: str, *, with_details: bool) -> Self:
        """Of the question as it stands in the queue; None: it could not be read. `base` is the page's origin."""
        expires = None if entry is None else parse_timestamp(entry.expires_at)
        return cls(
            approval_id=_shown(asked.approval_id),
            action=_shown(_called(asked)),
            agent="" if entry is None else _shown(entry.agent or "a command"),
            headline=_sentence(entry) if with_details and entry is not None else "",
            url=f"{base}/approvals/{_shown(asked.approval_id)}",
            at_s=asked.at_s,
            expires_at_s=None if expires is None else expires.timestamp(),
            is_reminder=asked.is_reminder,
        )

    @property
    def title(self) -> str:
        """Who asks, and for what, on one line."""
        said = f"{self.agent} asks: {self.action}" if self.agent else f"Approval needed: {self.action}"
        return f"Expires soon: {said}" if self.is_reminder else said[:1].upper() + said[1:]

    @property
    def body(self) -> str:
        """What the agent says, where that is told, and where to look."""
        return "\n".join([*([f"The agent says: {self.headline}"] if self.headline else []), self.url])


Describe = Callable[[Asked], Awaitable[Notice | None]]
"""What is told of a question; None: nothing, it waits no more."""


class NotifyTiming(msgspec.Struct, frozen=True):
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
    open_s: float = 600.0
    """For a notification with a button: as long as most questions wait. Then its button is gone, and the page is still there."""
    remind_s: float = 180.0
    """Before a question expires it is told once more: time to get to a screen and to read."""
    remind_look_s: float = 5.0
    """Between two looks at the clock, which goes on while a machine sleeps."""
    unlocked_s: float = 1.0
    """Between two looks whether the vault is open by now; looking costs nothing."""


def _called(asked: Asked) -> str:
    """The action; of a consent its kind and its name: `connector github://you/notes`."""
    kind = asked.kind.replace("_", " ")
    return asked.name if asked.kind == ConsentKind.ACTION or asked.name == kind else f"{kind} {asked.name}"


def _shown(text: str) -> str:
    spelled = _UNSAFE.sub(lambda found: f"[U+{ord(found[0]):04X}]", text[: MAX_NAME_CHARACTERS + 1])
    return spelled if len(spelled) <= MAX_NAME_CHARACTERS else spelled[:MAX_NAME_CHARACTERS] + " [cut]"


def _sentence(entry: ApprovalEntry) -> str:
    """Return the agent's sentence about a run; empty for a consent, whose sentence is ours and whose name is in the title."""
    return _said(entry.headline) if entry.kind == ConsentKind.ACTION and entry.headline else ""


def _said(text: str) -> str:
    """What an agent said: hidden characters and markup spelled out, at most so much of it."""
    spelled = _MARKUP.sub(lambda found: f"[U+{ord(found[0]):04X}]", visible(text[: MAX_NAME_CHARACTERS + 1]))
    return spelled if len(spelled) <= MAX_NAME_CHARACTERS else spelled[:MAX_NAME_CHARACTERS] + " [cut]"
