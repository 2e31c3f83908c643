"""Attacks of an agent of the same user in a cell: each either finds no target or is refused.

Every attempt is made twice, by the same program: started by `aileron launch --jail`, and by itself. It succeeds outside,
which is the control. docs/explanation/consent.md has the list, with a column for the cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.attacks.cell.household import (
    BY_MACHINE,
    IN_A_HOME_OF_ITS_OWN,
    NOT_THERE,
    REFUSED,
    Household,
    household,
)
from tests.attacks.tally import Attack
from tests.support.home import daemon_home

pytestmark = [pytest.mark.jail, pytest.mark.timeout(300), pytest.mark.abuse_case("CP7")]

_IN_VAIN: Final = "ok, in a home that nobody else sees"


@pytest.fixture(scope="module")
def house() -> Iterator[Household]:
    """Provide one household: creating the next one undoes what an attempt changes outside."""
    with daemon_home() as home, household(home) as made:
        home.unlock()
        yield made


@pytest.mark.abuse_case("CP1")
def test_every_attempt_of_a_same_user_agent_to_act_as_the_person_fails_in_a_cell(
    attack: Attack, house: Household
) -> None:
    """The attempts are those that docs/explanation/consent.md lists; without a cell the same program succeeds."""
    inside = house.launch()
    marked = house.marked
    for name, answer in inside.items():
        in_vain = name in IN_A_HOME_OF_ITS_OWN and answer == "ok" and name not in marked
        attack.answered(f"in a cell: {name}", NOT_THERE | REFUSED | {_IN_VAIN}, _IN_VAIN if in_vain else answer)

    outside = house.outside()
    assert outside.keys() == inside.keys()
    for name in outside.keys() - BY_MACHINE:
        attack.control(f"outside: {name}", "ok", outside[name])
    attack.control("what it wrote outside is the person's", IN_A_HOME_OF_ITS_OWN, house.marked)
