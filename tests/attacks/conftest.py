"""Attacks: each test tries things, says why each was denied, and shows beside it what works; the counts are printed at the end.

If root starts the suite, it runs once more as an ordinary user, beside the tests of this process (other_user.py).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from aileron_sandbox.jail import Template
from aileron_sandbox.unavailable import JailUnavailable
from tests.attacks.inside import Jail
from tests.attacks.native import Native
from tests.attacks.other_user import OtherUser
from tests.attacks.tally import TALLY, Attack, Tally
from tests.sandbox.conftest import packed, template
from tests.support.other_user import UID

__all__ = ["packed", "template"]

_OWN: Final = pytest.StashKey[Tally]()
_OTHER: Final = pytest.StashKey[Tally]()
_PASSED: Final = pytest.StashKey[bool]()
_ASKED: Final = "test_as_an_ordinary_user.py"


@pytest.fixture(scope="module", autouse=True)
def _real(real_processes: None) -> None:
    """Use real processes, so that the tests attack what people run."""


@pytest.fixture(autouse=True)
def attack(request: pytest.FixtureRequest) -> Iterator[Attack]:
    """Count what this test tries and sees. A test that passes without an attempt or a positive control fails."""
    made = Attack()
    yield made
    stash = request.config.stash
    stash[_OWN] = stash.get(_OWN, Tally()) + made.tally
    if request.node.stash.get(_PASSED, False):
        made.check_complete()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep whether the test itself passed: a test that was skipped or failed need not have tried anything."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture(scope="session", autouse=True)
def other_user(request: pytest.FixtureRequest) -> Iterator[OtherUser | None]:
    """Start the suite as an ordinary user with the first attack. None if this user is ordinary, or no test asks for
    the result.
    """
    asked = any(item.path.name == _ASKED for item in request.session.items)
    if os.geteuid() != 0 or TALLY in os.environ or not asked:
        yield None
        return
    started = OtherUser(Path(tempfile.mkdtemp(prefix="ail-other-")))  # pytest's own folders are 0700
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def jail(template: Template) -> Jail:
    """Return a Jail that makes tries in jails of the one template of this run."""
    return Jail(template)


@pytest.fixture(scope="session")
def native() -> Iterator[Native]:
    """Start a compiled attacker. In CI a machine without a jail or a compiler is a failure; elsewhere a skip."""
    try:
        with Native.started() as started:
            yield started
    except JailUnavailable as error:
        if os.environ.get("AILERON_MUST_JAIL"):
            raise
        pytest.skip(f"no jail here: {error}")


@pytest.fixture
def hostile_environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Set, for the length of the test, variables that a host may have and a jail must not."""
    variables = {
        "AILERON_CANARY_SECRET": "canary-in-the-environment",
        "LD_LIBRARY_PATH": "/tmp/host-libraries",
        "PYTHONPATH": "/tmp/host-modules",
        "PYTHONSTARTUP": "/tmp/host-startup.py",
        "PYTHONWARNINGS": "ignore",
        "NODE_OPTIONS": "--require=/tmp/host.js",
        "HTTPS_PROXY": "http://host-proxy:3128",
        "SSL_CERT_FILE": "/tmp/host.pem",
        "AWS_SECRET_ACCESS_KEY": "canary-key",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


@pytest.fixture
def packed_jail(hostile_environment: dict[str, str], packed: Callable[..., Template]) -> Iterator[Jail]:
    """Start a template from the hostile environment."""
    with packed() as started:
        yield Jail(started)


@pytest.fixture
def note_other(request: pytest.FixtureRequest) -> Callable[[Tally], None]:
    """Return a function that keeps the other user's tally for the summary."""

    def keep(tally: Tally) -> None:
        request.config.stash[_OTHER] = request.config.stash.get(_OTHER, Tally()) + tally

    return keep


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the test that waits for the other user behind the last attack of this one: until then both run side by side."""
    attacks = [item for item in items if item.path.parent == Path(__file__).parent]
    last = [item for item in attacks if item.path.name == _ASKED]
    if last and len(attacks) > len(last):
        items[:] = [item for item in items if item not in last]
        place = items.index(next(item for item in reversed(attacks) if item not in last)) + 1
        items[place:place] = last


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print how many attempts, denials and controls there were, and as which user."""
    own, other = config.stash.get(_OWN, None), config.stash.get(_OTHER, None)
    if own is None:
        return
    told = (own + (other or Tally())).told
    if told:
        terminalreporter.section("what a process of the same user tried, and what it was answered", sep="-")
        for line in told:
            terminalreporter.write_line(line)
    terminalreporter.write_line(f"attacks: {own}, as {_whom(os.geteuid())}")
    if other is not None:
        terminalreporter.write_line(f"attacks: {other}, as {_whom(UID)}")
        terminalreporter.write_line(f"attacks: {own + other}, in all")
    elif os.geteuid() != 0:
        terminalreporter.write_line("attacks: as root they were not tried: for that, start the tests as root")
    else:
        terminalreporter.write_line("attacks: as an ordinary user they were not tried: run all of tests/attacks")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the tally for the process that started this one as another user."""
    if TALLY in os.environ:
        session.config.stash.get(_OWN, Tally()).write(Path(os.environ[TALLY]))


def _whom(uid: int) -> str:
    return "root" if uid == 0 else f"uid {uid}"
