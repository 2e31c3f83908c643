"""Numbers of things that a run touches: addresses that a mail goes to, members of a list.

Pure. A single address or member is expected, and is not mentioned. Source: docs/reference/console.md. Not here: the values
(card.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aileron.actions.summary import as_compared
from aileron.cards.plan import given_of
from aileron.cards.several import several
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.model.plan import Plan
    from aileron.model.preview import Preview

__all__ = ["touched_of"]


def touched_of(plan: Plan, preview: Preview | None) -> list[str]:
    """Return one line that counts the parts of values, such as `14 addresses in To, 3 items in labels`; an empty list if no value
    has several parts.

    If the preview found several parts under the name of an argument, these are counted instead of the argument's.
    """
    values = [(argument.label or argument.name, argument.value) for argument in given_of(plan)]
    if preview is not None and preview.fields is not None:
        values += [(field.label, field.value) for field in preview.fields]
    counted = {
        as_compared(name): f"{len(found.parts):,} {found.what} in {visible(name)}"
        for name, value in values
        if (found := several(value)) is not None
    }
    return [", ".join(counted.values())] if counted else []
