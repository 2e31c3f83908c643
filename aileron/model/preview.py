"""What a preview said to the person who decides, and the digest that a decision about it signs.

Pure. Source: docs/reference/signed-decisions.md. Not here: which parts of an answer these are (approvals/preview.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Preview"]


class Preview(NamedTuple):
    """`fields` are `{"label", "value", "multiline"}`; without them `problem` says why there are none.

    `digest` is of the plan and of what was shown (model/decision.py, digest_with_preview), computed by who shows it.
    """

    fields: list[dict[str, Any]] | None
    problem: str | None
    taken_at: str | None
    digest: str | None
