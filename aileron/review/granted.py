"""What a standing grant leaves open: arguments that it does not limit, and an end that is far away.

Pure. The subject, which is signed, names the action's file by its digest and each limit by its argument; which other arguments
there are stands in the file alone. So the daemon sends the file beside the subject, and it counts where it has just that digest.

Rules
- Who is told, invited or paid without a limit is an alarm; any other argument without one is told. A text is seldom limited.
- Where the file that the grant names is not here, nobody can say what it leaves open, and that is an alarm as well.
- How far away the end is counts from when it was asked, by the daemon's word; the end itself is signed, and shown.

Source: docs/reference/consents.md (Grants). Not here: whether a call is covered (approvals/grants.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aileron.model.canonical import sha256_digest
from aileron.model.timestamp import parse_timestamp
from aileron.review.headline import action_in
from aileron.review.recipients import says_who_gets_it

if TYPE_CHECKING:
    from aileron.model.consent import GrantConsent
    from aileron.model.manifest import ActionFile, InputSpec

__all__ = ["far_end", "granted_action", "left_open"]

_LONGEST_DAYS: Final = 366
"""An end within a year is one that a person can mean; the daemon of this version asks for 30 days at most."""
_MOST_NAMES: Final = 6
"""Arguments in one line; all of them stand in the action's file."""


def granted_action(subject: GrantConsent, text: str | None) -> ActionFile | None:
    """The action of a grant, as its file is; None where `text` is not the very file that the grant names."""
    if text is None or sha256_digest(text.encode("utf-8", "replace")) != subject.action_digest:
        return None
    return action_in(text)


def left_open(subject: GrantConsent, action: ActionFile | None) -> tuple[str | None, str | None]:
    """What it does not limit, in words: what is an alarm, and what is not; None: nothing. Not where it limits nothing at all."""
    if not subject.constraints:
        return None, None
    if action is None:
        return "no limit on other arguments: the action file is not known here", None
    limited = {one.argument for one in subject.constraints}
    free = [spec for spec in action.inputs if spec.name not in limited]
    gets = [spec for spec in free if any(map(says_who_gets_it, (spec.name, spec.label or "")))]
    rest = [spec for spec in free if spec not in gets]
    return (
        f"no limit on {_names(gets)}" if gets else None,
        f"any value of {_names(rest)}" if rest else None,
    )


def far_end(subject: GrantConsent, asked_at: str) -> str | None:
    """`until 31 Dec 2099: 73 years`, where it ends more than a year after it was asked, or nobody can tell; else None."""
    until, asked = parse_timestamp(subject.until), parse_timestamp(asked_at)
    if until is None or asked is None:
        return f"until {subject.until}: how long that is cannot be told"
    days = (until - asked).days
    if days <= _LONGEST_DAYS:
        return None
    years = days // 365
    return f"until {until.day} {until:%b %Y}: {years} year{'s' if years > 1 else ''}"


def _names(specs: list[InputSpec]) -> str:
    shown = ", ".join(spec.label or spec.name for spec in specs[:_MOST_NAMES])
    more = len(specs) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
