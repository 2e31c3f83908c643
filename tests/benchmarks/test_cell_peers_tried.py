"""The attempts of the comparison of a cell with other sandboxes: the same in each, with the known results.

tests/attacks/test_cell_persons_place.py tests the attempts themselves. These tests check that the benchmark makes them under
another sandbox, if that is installed, and reports their results.
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
    """Yield the host that an agent may reach."""
    with cell_peers.ListedHost() as made:
        yield made


@pytest.fixture(scope="module")
def house(host: cell_peers.ListedHost) -> Iterator[Household]:
    """Yield a person's home with a daemon that allows the host."""
    with daemon_home() as home, household(home) as made:
        host.allow(home)
        home.unlock()
        yield made


def test_the_escape_attempts_fail_in_a_cell_and_succeed_without_a_sandbox(house: Household) -> None:
    """The committed results list the same attempts."""
    committed = json.loads((RESULTS / cell_peers.FILE).read_text(encoding="utf-8"))["sandboxes"]
    found = dict(cell_peers.attempts(house, [_sandbox(CELL), _sandbox(BARE)]))
    inside, outside = (_answers(found[_sandbox(name)]) for name in (CELL, BARE))

    assert _possible(inside) == set()
    assert {cell_peers.verdict(inside[name]) for name in IN_A_HOME_OF_ITS_OWN} <= {"no effect", "refused"}
    assert outside.keys() - _possible(outside) <= BY_MACHINE
    assert {frozenset(sandbox["answers"]) for sandbox in committed} == {frozenset(inside)} == {frozenset(outside)}


def test_the_same_escape_attempts_can_be_made_in_another_sandbox(house: Household) -> None:
    """The program runs unchanged under bubblewrap and writes its results into the project."""
    sandbox = _sandbox(BUBBLEWRAP)
    if sandbox.missing:
        pytest.skip(sandbox.missing)
    ((_, found),) = cell_peers.attempts(house, [sandbox])
    answers = _answers(found)

    assert _possible(answers) <= BY_MACHINE
    assert cell_peers.verdict(answers["write the shell's startup file"]) == "no effect"
    assert cell_peers.verdict(answers["read an ssh key"]) == "no object"
    assert not house.marked


def test_a_sandbox_that_does_not_start_is_reported_with_its_output(house: Household) -> None:
    """Missing results must not count as refusals."""
    broken = Sandbox("broken", None, str, lambda _place: ["sh", "-c", "echo cannot start >&2; exit 1"])
    ((_, found),) = cell_peers.attempts(house, [broken])

    assert isinstance(found, cell_peers.NotStarted)
    assert "cannot start" in found.said


def test_the_benchmark_reports_what_a_cell_allows_in_the_project(house: Household) -> None:
    """A cell allows git hooks and a socket that appears: the page names these, since other sandboxes refuse them."""
    answers = cell_peers.in_the_project(_sandbox(CELL), Place.of(house), house.environment)

    assert answers == {
        "write a git hook of the project": "ok",
        "reach a socket that appears in the project": "ok",
    }


def test_a_connection_is_reported_as_possible_only_if_its_bytes_arrive_at_the_host(
    house: Household, host: cell_peers.ListedHost
) -> None:
    """Only TLS for the host's own name arrives from a cell, whatever the client saw; without a sandbox, all does."""
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
