"""The closed set of effects: their order, and the words that suggest each."""

from __future__ import annotations

from collections import Counter

from aileron.model.effect import Effect, Stakes


def test_a_heavier_effect_never_has_lower_stakes_than_a_lighter_effect() -> None:
    """A card takes the stakes of its heaviest step, so a step that pays must not be hidden by a heavier one of lower stakes."""
    order = [list(Stakes).index(effect.stakes) for effect in Effect]

    assert order == sorted(order)


def test_no_verb_in_an_operations_name_suggests_two_effects() -> None:
    """The later effect would silently win."""
    verbs = Counter(verb for effect in Effect for verb in effect.name_verbs)

    assert [verb for verb, times in verbs.items() if times > 1] == []


def test_each_effect_has_its_own_verb() -> None:
    """Two effects with one verb could not be told apart on a card. Changing and deleting share a sign."""
    assert len({effect.verb for effect in Effect}) == len(Effect)
