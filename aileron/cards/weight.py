"""The weight of a question: how prominently to ask it, based on the effects of its steps as the action's author declares them.

Pure. The author states the effect, like the rest of the file, and it is signed; it neither allows nor refuses anything. An
undeclared effect counts as the heaviest, unless the file says that it can be undone. The second step is how a person confirms
an approval: by pressing a key, or by typing a word.

| effect | sign | second step |
|---|---|---|
| read, create | `·` `+` | a key |
| change, send; delete that can be undone | `~` `»` | a key |
| delete, pay; an undeclared effect that cannot be undone | `!` | a word |
| a consent | `!` | a word |
| a consent that allows only reading, or no more than before | `~` | a word |

Source: docs/reference/action-file.md (Effects), docs/adr/0045-one-card.md. Not here: how the weight is shown.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from aileron.cards.headline import action_in
from aileron.model.consent import (
    ActionFileConsent,
    BindingConsent,
    ConnectorConsent,
    ConnectorUpdateConsent,
    GrantConsent,
    HostConsent,
    InstallationConsent,
    PasskeyConsent,
    SecretConsent,
    SettingsConsent,
    Subject,
    ToolChangeConsent,
    TrustedKeyConsent,
)
from aileron.model.effect import Effect, Stakes

if TYPE_CHECKING:
    from aileron.model.manifest import ActionFile
    from aileron.model.plan import Plan

__all__ = ["UNREADABLE", "Verdict", "Weight", "consent_verdict_of", "only_reads", "verdict_of"]


class Weight(enum.StrEnum):
    """The prominence with which a question is asked."""

    LIGHT = "light"
    MARKED = "marked"
    HEAVY = "heavy"


class Verdict(msgspec.Struct, frozen=True):
    """The verdict of a card: a word or two next to the sentence, with a shorter form for a row of a list.

    `word` is what a person must type to approve; None if a key press is enough.
    """

    text: str
    brief: str
    weight: Weight
    word: str | None = None


_ALLOWS_MORE: Final = Verdict("! LASTING PERMISSION", "! LASTING", Weight.HEAVY, "allow")
_ALLOWS_LITTLE: Final = Verdict("~ lasting permission", "~ lasting", Weight.MARKED, "allow")
_OPENS: Final = Verdict("! ANYTHING CAN BE SENT THERE until the session ends", "! OPENS HOST", Weight.HEAVY, "allow")
UNREADABLE: Final = Verdict("! FROM ANOTHER VERSION: shown as received", "! UNREADABLE", Weight.HEAVY, "allow")
_HEAVIEST_FIRST: Final = tuple(reversed(Effect))


def verdict_of(plan: Plan) -> Verdict:
    """Return the verdict for a run of this plan."""
    is_final = plan.approval.irreversible
    undo = "cannot be undone" if is_final else "can be undone"
    effects = _effects_of(plan)
    if effects is None:
        if is_final:
            return Verdict("! CANNOT BE UNDONE · effect not declared", "! UNDECLARED", Weight.HEAVY, "yes")
        return Verdict(f"~ effect not declared · {undo}", "~ undeclared", Weight.MARKED)
    heaviest, words = effects[0], " and ".join(effect.verb for effect in effects)
    if heaviest.stakes is Stakes.HIGH or (heaviest.stakes is Stakes.HIGH_IF_FINAL and is_final):
        return Verdict(f"! {words.upper()} · {undo}", f"! {heaviest.verb.upper()}", Weight.HEAVY, heaviest.value)
    weight = Weight.LIGHT if heaviest.only_adds else Weight.MARKED
    # Adding an event, for example, can never be undone, and a warning that is always there warns of nothing.
    is_told = weight is Weight.MARKED or not is_final
    sign = heaviest.sign
    return Verdict(f"{sign} {words}" + (f" · {undo}" if is_told else ""), f"{sign} {heaviest.verb}", weight)


def consent_verdict_of(subject: Subject, granted: ActionFile | None) -> Verdict:
    """Return the verdict for a consent, that is, a lasting permission.

    Approving it always takes a typed word. The verdict is not an alarm if the consent allows only reading, or no more than
    before, judged by the subject alone, which is signed. For a connector, that is so if it reaches no host and needs no
    credential. `granted` is the action of a grant, if its file is known to be the one that the subject names.
    """
    if isinstance(subject, HostConsent):
        return _OPENS
    return _ALLOWS_LITTLE if _allows_little(subject, granted) else _ALLOWS_MORE


def _allows_little(subject: Subject, granted: ActionFile | None) -> bool:
    match subject:
        case ActionFileConsent() if subject.before is None:
            return only_reads(action_in(subject.text))
        case ActionFileConsent() | ConnectorUpdateConsent():
            return not any(change.widens for change in subject.changes)
        case ConnectorConsent():
            return not subject.reaches and subject.credential is None
        case InstallationConsent():
            parts: tuple[Subject, ...] = (*subject.connectors, *subject.actions)
            return not subject.bindings and all(_allows_little(part, None) for part in parts)
        case GrantConsent():  # if the action asks each time although it only reads, that may just be a guess from a name
            return only_reads(granted) and granted is not None and not granted.approval.required
        case BindingConsent() | PasskeyConsent() | SecretConsent() | SettingsConsent() | TrustedKeyConsent():
            return False  # unknown: the subject does not tell
        case ToolChangeConsent() | HostConsent():
            return False
        case impossible:
            assert_never(impossible)


def only_reads(action: ActionFile | None) -> bool:
    """Return whether the author declares that every step only reads; False if the file cannot be parsed."""
    return action is not None and all(step.does is Effect.READ for step in action.steps)


def _effects_of(plan: Plan) -> tuple[Effect, ...] | None:
    """Return the effects of the steps, each at most once, the heaviest first; None if the effect of any step is
    undeclared.

    READ is included only if there is no other effect.
    """
    action = action_in(plan.action_text)
    said = {} if action is None else {step.id: step.does for step in action.steps}
    does = {said.get(step.id) for step in plan.steps}
    known = tuple(effect for effect in _HEAVIEST_FIRST if effect in does)
    if None in does or not known:
        return None
    return tuple(effect for effect in known if effect is not Effect.READ) or (Effect.READ,)
