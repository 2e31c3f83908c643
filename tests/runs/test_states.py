"""The table of transitions, and that recorded moves agree with it."""

from __future__ import annotations

import pytest

from aileron.audit.log import MOVES
from aileron.model.failure import AileronError, FailureClass
from aileron.model.outcome import RunStatus
from aileron.runs.states import INITIAL, TRANSITIONS, check_transition

PAIRS = [(current, new) for current in RunStatus for new in RunStatus]


@pytest.mark.parametrize(("current", "new"), PAIRS)
def test_a_transition_is_legal_only_if_the_table_has_it(current: RunStatus, new: RunStatus) -> None:
    """A step from a final state is `already_decided`; any other illegal step is a bug."""
    if new in TRANSITIONS[current]:
        check_transition(current, new)
        return
    with pytest.raises(AileronError) as caught:
        check_transition(current, new)
    expected = FailureClass.ALREADY_DECIDED if current.is_final else FailureClass.INTERNAL_ERROR
    assert caught.value.failure.failure_class is expected


def test_the_table_of_transitions_has_every_run_status_and_final_states_lead_nowhere() -> None:
    """Every status has its row; a final state leads nowhere, and only final states do."""
    assert set(TRANSITIONS) == set(RunStatus)
    for status, targets in TRANSITIONS.items():
        assert status.is_final == (not targets)


def test_every_state_of_a_run_can_be_reached_from_an_initial_state() -> None:
    """The search begins at the initial states."""
    reached = set(INITIAL)
    while len(grown := reached.union(*(TRANSITIONS[status] for status in reached))) > len(reached):
        reached = grown

    assert reached == set(RunStatus)


def test_a_run_is_never_carried_out_without_approval() -> None:
    """The only way from a question to a jail leads through `approved`."""
    assert RunStatus.RUNNING not in TRANSITIONS[RunStatus.PENDING_APPROVAL]
    assert [status for status in RunStatus if RunStatus.RUNNING in TRANSITIONS[status]] == [RunStatus.APPROVED]


def test_the_methods_of_the_audit_make_every_legal_transition_and_no_other() -> None:
    """Each move is legal, and each legal transition has a verb that makes it."""
    made = {(current, new) for expected, reached in MOVES.values() for current in expected for new in reached}
    later_steps = {(RunStatus.RUNNING, RunStatus.RUNNING)}  # a run that goes on to its next step stays where it is

    assert made - later_steps == {(current, new) for current, targets in TRANSITIONS.items() for new in targets}
