"""Text of the notices that a question waits: the requester, the action, and where to decide. Arguments are included only if the
settings say so.

Pure, in the daemon. A name comes from files and agents, and is read on a desktop or in a chat. Our own names are plain ASCII,
so every other character is spelled out. Characters that a desktop would take for markup or an escape are spelled out too. With
`notify.details`, a notice includes the sentence that lists of questions show for the question: the agent's words, marked as
such. It never includes results of a preview.

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
"""Maximum number of characters of a name after hidden characters were spelled out: three times the longest action name. A
longer name is truncated, and marked as truncated.
"""
# Visible ASCII without \, which notify-send(1) unescapes, and markup in a notification's body (<, >, &).
_UNSAFE: Final = re.compile(r"[^\x20-\x7e]|[\\<>&]")
_MARKUP: Final = re.compile(r"[\\<>&]")


class Asked(msgspec.Struct, frozen=True):
    """A waiting question to a person. `name` is the action's name, or for a consent the name of its subject."""

    approval_id: str
    name: str
    kind: str
    at_s: float
    """Time of the question, in seconds since the epoch."""
    is_reminder: bool = False
    """True if the person was notified of the question before, and it is about to expire."""


class Notice(msgspec.Struct, frozen=True):
    """A notice that a question waits, with text that is safe to show. `headline` is empty unless the settings ask for details;
    `agent` is empty if the requester is unknown.
    """

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
        """Return the notice of the question `asked`. `entry` is the question in the queue, or None if it cannot be read. `base`
        is the page's origin.
        """
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
        """Title of the notice in a single line: the requester and the action."""
        said = f"{self.agent} asks: {self.action}" if self.agent else f"Approval needed: {self.action}"
        return f"Expires soon: {said}" if self.is_reminder else said[:1].upper() + said[1:]

    @property
    def body(self) -> str:
        """Body of the notice: the agent's sentence, if details are wanted, and the address of the page."""
        return "\n".join([*([f"The agent says: {self.headline}"] if self.headline else []), self.url])


Describe = Callable[[Asked], Awaitable[Notice | None]]
"""A function that returns a question's notice; None if the question no longer waits."""


class NotifyTiming(msgspec.Struct, frozen=True):
    """Intervals and deadlines of notifications in seconds. Tests that simulate an outage use shorter ones."""

    desktop_s: float = 5.0
    """Deadline of one notify-send(1), which sends a message to the bus and exits within milliseconds."""
    round_s: float = 60.0
    """Length of a round, in which a desktop gets at most HANDFUL notices of questions, and two that count the others."""
    settle_s: float = 1.0
    """Pause before further questions are counted, so that the questions of one burst are counted together."""
    attempt_s: float = 5.0
    """Deadline of one request to the webhook, from the look-up of its name to the status of the response."""
    backoff_s: tuple[float, ...] = (1.0, 5.0)
    """Pauses between the attempts to reach the webhook; one more attempt follows the last pause. A receiver that restarts is
    available again at the third attempt.
    """
    keep_s: float = 600.0
    """Age at which an unsent notice is dropped: most questions expire at about this age, and an old notice is useless."""
    open_s: float = 600.0
    """Time after which the button of a notification no longer works: as long as most questions wait. Afterwards, the person must
    open the page.
    """
    remind_s: float = 180.0
    """Time before a question's expiry at which the person is reminded of it: enough to get to a screen and to read."""
    remind_look_s: float = 5.0
    """Pause between two checks whether a reminder is due. The checks use the clock, which advances while a machine sleeps,
    unlike timers.
    """
    unlocked_s: float = 1.0
    """Pause between two checks whether a locked vault has been unlocked; a check costs almost nothing."""


def _called(asked: Asked) -> str:
    """Return the action's name; for a consent its kind and name: `connector github://you/notes`."""
    kind = asked.kind.replace("_", " ")
    return asked.name if asked.kind == ConsentKind.ACTION or asked.name == kind else f"{kind} {asked.name}"


def _shown(text: str) -> str:
    spelled = _UNSAFE.sub(lambda found: f"[U+{ord(found[0]):04X}]", text[: MAX_NAME_CHARACTERS + 1])
    return spelled if len(spelled) <= MAX_NAME_CHARACTERS else spelled[:MAX_NAME_CHARACTERS] + " [cut]"


def _sentence(entry: ApprovalEntry) -> str:
    """Return the agent's sentence about the run; empty for a consent, whose sentence is not from an agent and whose name is
    already in the notice's title.
    """
    return _said(entry.headline) if entry.kind == ConsentKind.ACTION and entry.headline else ""


def _said(text: str) -> str:
    """Return an agent's text with hidden characters and markup spelled out, truncated after MAX_NAME_CHARACTERS."""
    spelled = _MARKUP.sub(lambda found: f"[U+{ord(found[0]):04X}]", visible(text[: MAX_NAME_CHARACTERS + 1]))
    return spelled if len(spelled) <= MAX_NAME_CHARACTERS else spelled[:MAX_NAME_CHARACTERS] + " [cut]"
