"""Reasons why several requests cannot be approved on one card: those that are known before the previews are read.

Reading a preview needs the approver's key, so these reasons are checked first: a refusal should not ask for the key.

Pure. Source: docs/adr/0047-fewer-keys.md. Not here: which requests are alike, and the check after the previews were read
(both in together.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from aileron.cards.together import why_apart
from aileron.model.preview import Preview

if TYPE_CHECKING:
    from aileron.cards.decision_flow import Review

__all__ = ["as_if_read", "why_apart_unread"]

_FOUND_NOTHING: Final = Preview(fields=[], problem=None, taken_at=None)
"""Empty preview in place of one that has not been read: it contradicts no argument. No decision is ever made about it."""


def why_apart_unread(reviews: Sequence[Review], when: Callable[[str | None], str]) -> str | None:
    """Return why the requests in `reviews` cannot be approved together, whatever their unread previews contain.

    None if only the previews can tell.
    """
    return why_apart([as_if_read(review) for review in reviews], when)


def as_if_read(review: Review) -> Review:
    """Return the review with an empty preview in place of its unread preview; unchanged if no preview needs to be read."""
    return review.with_preview(_FOUND_NOTHING) if review.is_unread else review
