"""What is tried for the comparison of a cell with other sandboxes: made alike in each, and what is known comes out.

The attempts themselves are tested in tests/attacks/test_cell_persons_place.py; here, that the benchmark makes them under another
sandbox, where that is installed, and says what they came to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from benchmarks import cell_peers
from benchmarks.cell_sandboxes import BARE, BUBBLEWRAP, CELL, SANDBOXES, Place, Sandbox
from benchmarks.measure import RESULTS
from tests.attacks.cell.household import BY_MACHINE, IN_A_HOME_OF_ITS_OWN, Household, household
from tests.support.home import daemon_home

pytestmark = pytest.mark.jail


@pytest.fixture(scope="module")
def host() -> Iterator[cell_peers.ListedHost]:
    """What an agent may reach."""
    with cell_peers.ListedHost() as made:
        yield made


@pytest.fixture(scope="module")
def house(host: cell_peers.ListedHost) -> Iterator[Household]:
    """A person's home, with a daemon."""
    with daemon_home() as home, household(home) as made:
        host.allow(home)
        home.unlock()
        yield made


def test_what_is_measured_is_what_the_attacks_expect(house: Household) -> None:
    """In a cell nothing is possible; without a sandbox, all that the machine allows. The results have the same attempts."""
    committed = json.loads((RESULTS / cell_peers.FILE).read_text(encoding="utf-8"))["sandboxes"]
    found = dict(cell_peers.attempts(house, [_sandbox(CELL), _sandbox(BARE)]))
    inside, outside = (_answers(found[_sandbox(name)]) for name in (CELL, BARE))

    assert _possible(inside) == set()
    assert {cell_peers.verdict(inside[name]) for name in IN_A_HOME_OF_ITS_OWN} <= {"no effect", "refused"}
    assert outside.keys() - _possible(outside) <= BY_MACHINE
    assert {frozenset(sandbox["answers"]) for sandbox in committed} == {frozenset(inside)} == {frozenset(outside)}


def test_another_sandbox_is_measured_alike(house: Household) -> None:
    """bubblewrap: the same attempts by the same program, which writes its answers into the project; the home is another one."""
    sandbox = _sandbox(BUBBLEWRAP)
    if sandbox.missing:
        pytest.skip(sandbox.missing)
    ((_, found),) = cell_peers.attempts(house, [sandbox])
    answers = _answers(found)

    assert _possible(answers) <= BY_MACHINE
    assert cell_peers.verdict(answers["write the shell's startup file"]) == "no effect"
    assert cell_peers.verdict(answers["read an ssh key"]) == "no object"
    assert not house.marked


def test_a_sandbox_that_does_not_start_is_said_so_with_what_it_said(house: Household) -> None:
    """No answers are no refusals."""
    broken = Sandbox("broken", None, str, lambda _place: ["sh", "-c", "echo cannot start >&2; exit 1"])
    ((_, found),) = cell_peers.attempts(house, [broken])

    assert isinstance(found, cell_peers.NotStarted)
    assert "cannot start" in found.said


def test_what_a_cell_allows_in_the_project_is_said_too(house: Household) -> None:
    """Hooks, and a socket that appears: the page names what others refuse and a cell does not."""
    answers = cell_peers.in_the_project(_sandbox(CELL), Place.of(house), house.environment)

    assert answers == {
        "write a git hook of the project": "ok",
        "reach a socket that appears in the project": "ok",
    }


def test_what_arrives_at_a_host_is_what_counts(house: Household, host: cell_peers.ListedHost) -> None:
    """From a cell, only TLS for the host's own name does, whatever the program was answered; without a sandbox, all of it."""
    inside, outside = (
        {name: cell_peers.verdict(answer) for name, answer in cell_peers.way_out(sandbox, house, host).items()}
        for sandbox in (_sandbox(CELL), _sandbox(BARE))
    )

    assert inside == {
        "reach a host that is listed": "possible",
        "name another host in TLS": "refused",
        "speak to it without TLS": "refused",
        "reach a host that is not listed": "refused",
    }
    assert outside == dict.fromkeys(inside, "possible")


def _sandbox(name: str) -> Sandbox:
    return next(sandbox for sandbox in SANDBOXES if sandbox.name == name)


def _answers(found: dict[str, str] | cell_peers.NotStarted) -> dict[str, str]:
    assert isinstance(found, dict), found
    return found


def _possible(answers: dict[str, str]) -> set[str]:
    return {name for name, answer in answers.items() if cell_peers.verdict(answer) == "possible"}
