"""What keeps requests apart, asked before their previews are read: reading takes the approver's key, and a refusal should not.

Pure. Source: docs/adr/0047-fewer-keys.md. Not here: which are alike (together.py); what is read is asked there again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from aileron.model.preview import Preview
from aileron.review.together import why_apart

if TYPE_CHECKING:
    from aileron.review.decision_flow import Review

__all__ = ["as_if_read", "why_apart_unread"]

_FOUND_NOTHING: Final = Preview(fields=[], problem=None, taken_at=None)
"""In place of one that nobody has read: it contradicts no agent. No decision is ever about it."""


def why_apart_unread(reviews: Sequence[Review], when: Callable[[str | None], str]) -> str | None:
    """Why these are not approved together, whatever is found of those that are not read yet; None: that has to be seen."""
    return why_apart([as_if_read(review) for review in reviews], when)


def as_if_read(review: Review) -> Review:
    """It as it would be if reading it found nothing; itself where nothing is left to be read."""
    return review.with_preview(_FOUND_NOTHING) if review.is_unread else review
