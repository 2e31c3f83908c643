"""Facts about the limits of a standing grant: unlimited arguments, and an end that is far in the future.

Pure. The subject, which is signed, names the action's file by its digest and each limit by its argument. The other arguments
are only in the file. So the daemon sends the file in addition to the subject, and the file is used only if it has that digest.

Rules
- An unlimited argument that names a recipient, an invitee or a payee is an alarm; any other is only listed, because a text is
  seldom limited.
- If the file that the grant names is missing, the unlimited arguments are unknown, which is an alarm too.
- The time to the end counts from the request's time, which only the daemon states; the end itself is signed, and shown.

Source: docs/reference/consents.md (Grants). Not here: whether a call is covered (approvals/grants.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aileron.cards.headline import action_in
from aileron.cards.recipients import says_who_gets_it
from aileron.model.canonical import sha256_digest
from aileron.model.timestamp import parse_timestamp

if TYPE_CHECKING:
    from aileron.model.consent import GrantConsent
    from aileron.model.manifest import ActionFile, InputSpec

__all__ = ["far_end", "granted_action", "left_open"]

_LONGEST_DAYS: Final = 366
"""Longest plausible time from the request to a grant's end, in days: a year. This version of the daemon asks for at most 30
days."""
_MOST_NAMES: Final = 6
"""Maximum number of arguments that one line names; the action's file has all of them."""


def granted_action(subject: GrantConsent, text: str | None) -> ActionFile | None:
    """Return the action of a grant, parsed from `text`; None if `text` is not exactly the file that the grant names."""
    if text is None or sha256_digest(text.encode("utf-8", "replace")) != subject.action_digest:
        return None
    return action_in(text)


def left_open(subject: GrantConsent, action: ActionFile | None) -> tuple[str | None, str | None]:
    """Return two texts about the arguments that a grant does not limit: one about those that are an alarm, one about the others.

    Each is None if there are no such arguments. Both are None for a grant without any limit, because other parts of its card say
    that.
    """
    if not subject.constraints:
        return None, None
    if action is None:
        return "no limit on other arguments: the action file is not known here", None
    limited = {constraint.argument for constraint in subject.constraints}
    free = [spec for spec in action.inputs if spec.name not in limited]
    gets = [spec for spec in free if any(map(says_who_gets_it, (spec.name, spec.label or "")))]
    rest = [spec for spec in free if spec not in gets]
    return (
        f"no limit on {_names(gets)}" if gets else None,
        f"any value of {_names(rest)}" if rest else None,
    )


def far_end(subject: GrantConsent, asked_at: str) -> str | None:
    """Return words for an end more than a year after the request, such as `until 31 Dec 2099: 73 years`, or for an end that
    cannot be parsed.

    Return None for an earlier end.
    """
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
