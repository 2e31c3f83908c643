"""A preview as shown to the person who decides, and the digest that a decision about it signs.

Pure. Source: docs/reference/signed-decisions.md. Not here: selecting the parts of a result (approvals/preview.py).

>>> shown_digest([PreviewField("To", "mira@example.com", multiline=False)])[:15]
'sha256:a2f7c8a2'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from aileron.model.decision import preview_digest

__all__ = ["EFFECTS_LABEL", "Preview", "PreviewField", "SeenEffects", "shown_digest", "shown_effects"]


EFFECTS_LABEL: Final = "Changes"
"""Label of the line that the supervisor itself adds to a preview. The line comes first, and no author's line has this label."""


class PreviewField(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a preview: the author's label, the value (None if nothing was found), and a flag for text with several lines.

    `effects` (`sha256:…`) marks the supervisor's own line about the changes that were made and rolled back for the preview.
    """

    label: str
    value: str | None
    multiline: bool
    effects: str | None = None


class Preview(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields that a preview found. If there are no `fields`, `problem` says why.

    `digest` covers the plan and what was shown (model/decision.py, digest_with_preview); the program that shows the preview
    computes it.
    """

    fields: list[PreviewField] | None
    problem: str | None
    taken_at: str | None
    digest: str | None = None


class SeenEffects(NamedTuple):
    """The record of a preview that showed effects: the digest of the effects, and the digest of all its fields."""

    effects: str
    fields: str

    @property
    def digest(self) -> str:
        """The digest of the preview, as `shown_digest` returns it.

        Computed from `effects` and `fields` alone, so that their holder can check that these effects were shown.
        """
        return preview_digest({"effects": self.effects, "fields": self.fields})


def shown_effects(fields: Sequence[PreviewField]) -> SeenEffects | None:
    """Return the record of a preview with these fields if it showed effects; None otherwise."""
    found = next((field.effects for field in fields if field.effects is not None), None)
    return None if found is None else SeenEffects(found, _digest_of(fields))


def shown_digest(fields: Sequence[PreviewField]) -> str:
    """Return the digest (`sha256:…`) of a preview with these fields."""
    effects = shown_effects(fields)
    return _digest_of(fields) if effects is None else effects.digest


def _digest_of(fields: Sequence[PreviewField]) -> str:
    return preview_digest({"fields": msgspec.to_builtins(fields)})
