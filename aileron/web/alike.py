"""Which of the requests that wait are alike, so that the queue leads to a page for all of them.

Runs in the daemon, for who was let in. Source: docs/reference/page.md (Several at once). Not here: that page (several_pages.py),
which decides again whether they are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from aileron.api.approvals import ApprovalEntry
from aileron.model.failure import AileronError
from aileron.model.timestamp import local_time
from aileron.review.apart import as_if_read
from aileron.review.decision_flow import Review, review_of
from aileron.review.question import is_run, waits
from aileron.review.together import MOST_TOGETHER, why_apart
from aileron.web.daemon_port import DaemonPort

__all__ = ["Alike", "alike_among"]

_MOST_LOOKED: Final = 20
"""Requests that are compared, the oldest: a queue is loaded often, and each is read whole for it."""


class Alike(NamedTuple):
    """Some that can be decided together, by the ids of the requests; `action` is hostile text."""

    action: str
    names: list[str]

    @property
    def of(self) -> str:
        """As the address of their page has it."""
        return ",".join(self.names)


async def alike_among(daemon: DaemonPort, waiting: Sequence[ApprovalEntry]) -> list[Alike]:
    """Those with one that is like them, in the order in which they were asked. What cannot be shown is like nothing."""
    groups: list[list[Review]] = []
    for row in _of_one_action(waiting):
        try:
            review = as_if_read(review_of(await daemon.question(row.approval_id), is_signed=True))
        except AileronError:
            continue
        home = next((group for group in groups if _is_like(group, review)), None)
        if home is None:
            groups.append([review])
        else:
            home.append(review)
    return [Alike(str(group[0].question.action), [one.id for one in group]) for group in groups if len(group) > 1]


def _of_one_action(waiting: Sequence[ApprovalEntry]) -> list[ApprovalEntry]:
    """Runs of actions that are asked for more than once."""
    runs = [row for row in waiting if is_run(row) and waits(row)]
    counts = Counter(row.action for row in runs)
    return [row for row in runs if counts[row.action] > 1][:_MOST_LOOKED]


def _is_like(group: list[Review], review: Review) -> bool:
    return len(group) < MOST_TOGETHER and why_apart([group[0], review], local_time) is None
