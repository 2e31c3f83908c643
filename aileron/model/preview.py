"""What a preview said to the person who decides, and the digest that a decision about it signs.

Pure. Source: docs/reference/signed-decisions.md. Not here: which parts of an answer these are (approvals/preview.py).

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
"""Of the line that the supervisor adds to a preview itself; it comes first, and no author's line has this name."""


class PreviewField(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line: what an author calls it, what was found there (None: nothing), and whether it is a text of many lines.

    `effects` (`sha256:…`): it is the supervisor's own, of the changes that were seen and taken back.
    """

    label: str
    value: str | None
    multiline: bool
    effects: str | None = None


class Preview(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found; without `fields`, `problem` says why there are none.

    `digest` is of the plan and of what was shown (model/decision.py, digest_with_preview), computed by who shows it.
    """

    fields: list[PreviewField] | None
    problem: str | None
    taken_at: str | None
    digest: str | None = None


class SeenEffects(NamedTuple):
    """What is on record of a preview that showed effects: their digest, and the one of all lines."""

    effects: str
    fields: str

    @property
    def digest(self) -> str:
        """What `shown_digest` gives for it: whoever has both can tell that the effects are those that were shown."""
        return preview_digest({"effects": self.effects, "fields": self.fields})


def shown_effects(fields: Sequence[PreviewField]) -> SeenEffects | None:
    """Of a preview that showed some; None of any other."""
    found = next((field.effects for field in fields if field.effects is not None), None)
    return None if found is None else SeenEffects(found, _digest_of(fields))


def shown_digest(fields: Sequence[PreviewField]) -> str:
    """`sha256:…` of what was shown."""
    effects = shown_effects(fields)
    return _digest_of(fields) if effects is None else effects.digest


def _digest_of(fields: Sequence[PreviewField]) -> str:
    return preview_digest({"fields": msgspec.to_builtins(fields)})
