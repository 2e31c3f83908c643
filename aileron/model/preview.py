"""What a preview said to the person who decides, and the digest that a decision about it signs.

Pure. Source: docs/reference/signed-decisions.md. Not here: which parts of an answer these are (approvals/preview.py).

>>> shown_digest([PreviewField("To", "mira@example.com", multiline=False)])[:15]
'sha256:a2f7c8a2'
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aileron.model.decision import preview_digest

__all__ = ["Preview", "PreviewField", "shown_digest"]


class PreviewField(msgspec.Struct, frozen=True):
    """One line: what an author calls it, what was found there (None: nothing), and whether it is a text of many lines."""

    label: str
    value: str | None
    multiline: bool


class Preview(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found; without `fields`, `problem` says why there are none.

    `digest` is of the plan and of what was shown (model/decision.py, digest_with_preview), computed by who shows it.
    """

    fields: list[PreviewField] | None
    problem: str | None
    taken_at: str | None
    digest: str | None = None


def shown_digest(fields: Sequence[PreviewField]) -> str:
    """`sha256:…` of what was shown."""
    return preview_digest({"fields": msgspec.to_builtins(fields)})
