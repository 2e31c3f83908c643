"""Shares: no party is kept out, and no party gets more than there is, in whatever order they come."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.invocation import Scope
from aileron.model.shares import PERSON, NoPlace, Places, Turns, party_of

RUNS, QUESTIONS = 64, 800
PARTIES = (PERSON, *(f"ses-{number}" for number in range(20)))
STEPS = st.lists(st.tuples(st.sampled_from(PARTIES), st.integers(1, 80), st.booleans()), max_size=60)
"""Steps of a history: the party, how many times, and True if it comes (False if it leaves)."""


def taken(places: Places, party: str, held: Counter[str]) -> int:
    """Return how many places the party holds after it has asked until it was refused."""
    while places.why_not(party, held) is None:
        held[party] += 1
    return held[party]


def after(places: Places, steps: list[tuple[str, int, bool]]) -> Counter[str]:
    """Return what each party holds after all steps."""
    held: Counter[str] = Counter()
    for party, times, comes in steps:
        for _ in range(times):
            if comes and places.why_not(party, held) is None:
                held[party] += 1
            elif not comes and held[party]:
                held[party] -= 1
    return held


@pytest.mark.parametrize(("total", "first", "second"), [(RUNS, 32, 11), (QUESTIONS, 400, 134)])
def test_a_party_gets_half_of_the_places_and_the_next_party_two_thirds_of_the_rest(
    total: int, first: int, second: int
) -> None:
    """The person's reserved places, and those kept for parties that have none yet, are not counted."""
    places, held = Places(total), Counter[str]()

    assert taken(places, "ses-1", held) == first
    assert taken(places, "ses-2", held) == second
    assert places.why_not("ses-1", held) is NoPlace.SHARE
    assert places.why_not("ses-3", held) is None


def test_ended_runs_free_their_places_for_other_parties() -> None:
    """The share is counted anew: a party at its share gets more when others have gone."""
    places, held = Places(RUNS), Counter({"ses-2": 24})
    alone = taken(places, "ses-1", held)
    held["ses-2"] = 0

    assert taken(places, "ses-1", held) > alone


@given(STEPS)
def test_all_parties_together_never_hold_more_places_than_exist(steps: list[tuple[str, int, bool]]) -> None:
    """The bound holds for all parties together, and for the agents without the person's places."""
    held = after(Places(RUNS), steps)

    assert held.total() <= RUNS
    assert held.total() - held[PERSON] <= RUNS - RUNS // 8


@given(STEPS)
def test_the_persons_reserved_places_stay_free_whatever_agents_hold(steps: list[tuple[str, int, bool]]) -> None:
    """The person gets an eighth of all places, after everything that agents and the person did before."""
    places = Places(RUNS)
    held = after(places, steps)
    held[PERSON] = 0

    assert taken(places, PERSON, held) >= RUNS // 8


@given(STEPS, st.integers(0, 11))
def test_a_twelfth_party_gets_a_place_whatever_eleven_other_parties_hold(
    steps: list[tuple[str, int, bool]], most: int
) -> None:
    """They come and leave in any order, and the person may be among them."""
    places, parties = Places(RUNS), PARTIES[:most]
    held = after(places, [step for step in steps if step[0] in parties])
    for party in parties:
        taken(places, party, held)

    assert places.why_not("another", held) is None


def test_it_takes_twelve_parties_to_fill_all_places() -> None:
    """Eleven is therefore the exact bound: the next party is told that all places are taken, and gets the first that is free."""
    places, held = Places(RUNS), Counter[str]()
    for number in range(12):
        taken(places, f"ses-{number}", held)

    assert places.why_not("another", held) is NoPlace.FULL
    assert places.why_not(PERSON, held) is None
    held["ses-0"] -= 1
    assert [places.why_not(party, held) for party in ("ses-0", "another")] == [NoPlace.SHARE, None]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=40))
def test_waiting_parties_take_turns_and_each_partys_entries_stay_in_order(added: list[tuple[str, int]]) -> None:
    """Each entry comes out once, and between two entries of a party no other party comes twice."""
    turns, waiting = Turns(), list(dict.fromkeys((party, f"{party}{number}") for party, number in added))
    for party, name in waiting:
        turns.add(party, name)
        turns.add(party, name)
        assert name in turns

    out = []
    while (found := turns.next(lambda _: True)) is not None:
        out.append(found)
        assert found[1] not in turns

    assert sorted(out) == sorted(waiting)
    for party in "abc":
        mine = [entry for entry in out if entry[0] == party]
        assert mine == [entry for entry in waiting if entry[0] == party]
        rounds = [number for number, entry in enumerate(out) if entry[0] == party]
        assert all(len({who for who, _ in out[a + 1 : b]}) == b - a - 1 for a, b in itertools.pairwise(rounds))


def test_a_waiting_party_that_cannot_run_yet_is_skipped_and_keeps_its_turn() -> None:
    """The next party that may run begins; the first does once it may."""
    turns = Turns()
    for party, name in (("a", "a1"), ("a", "a2"), ("b", "b1")):
        turns.add(party, name)

    assert turns.next(lambda party: party != "a") == ("b", "b1")
    assert turns.next(lambda party: party != "a") is None
    assert [turns.next(lambda _: True) for _ in range(3)] == [("a", "a1"), ("a", "a2"), None]


def test_a_caller_belongs_to_the_given_party_or_its_session_or_the_person() -> None:
    """Callers of the operator socket show no token: they are the person, unless they descend from a session."""
    assert party_of(Scope.AGENT, "ses-1", None) == "ses-1"
    assert party_of(Scope.AGENT, "local", "ses-1") == party_of(Scope.OPERATOR, "local", "ses-1") == "ses-1"
    assert party_of(Scope.OPERATOR, "local", None) == PERSON
