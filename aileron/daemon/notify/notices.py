"""Text of the notices that a question waits: the requester, the action, and where to decide. Values only on request.

Pure, in the daemon. A name comes from files and agents, and is read on a desktop or in a chat: our own names are plain
ASCII, so every other character is spelled out, and so are characters that a desktop would take for markup or an escape. With
`notify.details` the sentence from the lists is included: the agent's words, marked as such. Results of a preview never are.

>>> asked = Asked("apr-1", "send-mail\u202e<b>", "action", at_s=0.0)
>>> Notice.of(asked, None, "http://localhost:27182", with_details=False).title
'Approval needed: send-mail[U+202E][U+003C]b[U+003E]'

Source: docs/reference/notifications.md. Not here: sending (desktop.py, webhook.py), when to send (notifier.py).
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
"""Most characters of a name, spelled out: three times the longest action name. A longer one is cut, and marked as cut."""
# Visible ASCII without \, which notify-send(1) unescapes, and markup in a notification's body (<, >, &).
_UNSAFE: Final = re.compile(r"[^\x20-\x7e]|[\\<>&]")
_MARKUP: Final = re.compile(r"[\\<>&]")


class Asked(msgspec.Struct, frozen=True):
    """A question that waits, as it was asked. `name` is that of the action, or of the other subject of the question."""

    approval_id: str
    name: str
    kind: str
    at_s: float
    """Time of the question, in seconds since the epoch."""
    is_reminder: bool = False
    """True if the question was told before, and is about to expire."""


class Notice(msgspec.Struct, frozen=True):
    """The text of a notice, safe to show. `headline` is empty unless details are wanted, `agent` if the requester is unknown."""

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
        """Return the notice of a question as it is in the queue; `entry` None: unreadable. `base` is the page's origin."""
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
        """Single line: the requester and the action."""
        said = f"{self.agent} asks: {self.action}" if self.agent else f"Approval needed: {self.action}"
        return f"Expires soon: {said}" if self.is_reminder else said[:1].upper() + said[1:]

    @property
    def body(self) -> str:
        """The agent's sentence, if details are wanted, and the address of the page."""
        return "\n".join([*([f"The agent says: {self.headline}"] if self.headline else []), self.url])


Describe = Callable[[Asked], Awaitable[Notice | None]]
"""A function that returns a question's notice; None if the question no longer waits."""


class NotifyTiming(msgspec.Struct, frozen=True):
    """Intervals and deadlines in seconds; tests that simulate an outage shorten them."""

    desktop_s: float = 5.0
    """Deadline of one notify-send(1): it hands a message to the bus and ends, in milliseconds."""
    round_s: float = 60.0
    """Length of a round, in which a desktop gets a handful of notices and at most two that count the others."""
    settle_s: float = 1.0
    """Pause before other questions are counted, so that those of one burst are counted together."""
    attempt_s: float = 5.0
    """Deadline of one request to the webhook, from the look-up of its name to the status of the response."""
    backoff_s: tuple[float, ...] = (1.0, 5.0)
    """Pauses between the tries, of which there is one more: a receiver that restarts is back by the third."""
    keep_s: float = 600.0
    """Age at which an unsent notice is dropped: most questions expire about then, and old news helps nobody."""
    open_s: float = 600.0
    """Deadline of a notification with a button: as long as most questions wait. Then only the page is left."""
    remind_s: float = 180.0
    """Time before a question's expiry when it is told again: enough to get to a screen and to read."""
    remind_look_s: float = 5.0
    """Pause between two checks of the clock, which goes on while a machine sleeps."""
    unlocked_s: float = 1.0
    """Pause between two checks whether the vault is open by now; a check costs nothing."""


def _called(asked: Asked) -> str:
    """Return the action's name; for a consent its kind and name: `connector github://you/notes`."""
    kind = asked.kind.replace("_", " ")
    return asked.name if asked.kind == ConsentKind.ACTION or asked.name == kind else f"{kind} {asked.name}"


def _shown(text: str) -> str:
    spelled = _UNSAFE.sub(lambda found: f"[U+{ord(found[0]):04X}]", text[: MAX_NAME_CHARACTERS + 1])
    return spelled if len(spelled) <= MAX_NAME_CHARACTERS else spelled[:MAX_NAME_CHARACTERS] + " [cut]"


def _sentence(entry: ApprovalEntry) -> str:
    """Return the agent's sentence about a run; empty for a consent, whose sentence is ours and whose name is in the title."""
    return _said(entry.headline) if entry.kind == ConsentKind.ACTION and entry.headline else ""


def _said(text: str) -> str:
    """Return an agent's words with hidden characters and markup spelled out, cut after MAX_NAME_CHARACTERS."""
    spelled = _MARKUP.sub(lambda found: f"[U+{ord(found[0]):04X}]", visible(text[: MAX_NAME_CHARACTERS + 1]))
    return spelled if len(spelled) <= MAX_NAME_CHARACTERS else spelled[:MAX_NAME_CHARACTERS] + " [cut]"
