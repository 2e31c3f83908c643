"""Fixtures of services: one machine for all tests of a file, whose Internet has the real names, and a new home for each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.cli.person import INIT, at_terminal
from tests.services import google as at_google
from tests.services.person import Person
from tests.services.stands import NAMES, STANDS, Stand
from tests.support.home import daemon_home
from tests.support.real_names import RealNames
from tests.support.upstream import Authority


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the authority that the machine trusts."""
    return Authority(tmp_path_factory.mktemp("trusted"), *NAMES, *at_google.NAMES)


@pytest.fixture(scope="module")
def machine(trusted: Authority) -> Iterator[RealNames]:
    """Provide a machine from which the services' names lead to the test's servers."""
    with RealNames(trusted, [*NAMES, *at_google.NAMES]) as made:
        yield made


@contextlib.contextmanager
def signing(machine: RealNames) -> Iterator[Person]:
    """Yield a person with a new home: an open vault, a key that signs decisions, and nothing else."""
    with daemon_home() as home:
        machine.start_daemon(home.path)
        home.unlock()
        home.must("DELETE", "/v1/secrets/pw")
        made = Person(home, machine)
        at_terminal(made.aileron, "approver", "init", answers=INIT).exits(0)
        yield made


@pytest.fixture
def newcomer(machine: RealNames) -> Iterator[Person]:
    """Provide a person with a new home."""
    with signing(machine) as made:
        yield made


@pytest.fixture(scope="module")
def _home_of_all(machine: RealNames) -> Iterator[Person]:
    with signing(machine) as made:
        yield made


@pytest.fixture
def person(_home_of_all: Person) -> Iterator[Person]:
    """Provide a person with a home that other tests use too; what a test added is removed after it."""
    yield _home_of_all
    for entry in _home_of_all.home.must("GET", "/v1/services")["services"]:
        _home_of_all.home.must("DELETE", f"/v1/services/{entry['name']}", wait_s=30.0)


@pytest.fixture(scope="module", params=sorted(STANDS))
def stand(
    request: pytest.FixtureRequest, machine: RealNames, trusted: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stand]:
    """Provide a service at its server, which all tests of the service use. Only one of them writes there."""
    with STANDS[request.param](machine, trusted, tmp_path_factory.mktemp(request.param)) as made:
        yield made
