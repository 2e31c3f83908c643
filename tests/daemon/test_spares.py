"""Connectors that wait for their next run, in a real daemon: as fresh as any, and gone when they must be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.support.early import install_early, jails_with_threads, when_it_waited
from tests.support.home import PASSPHRASE, DaemonHome, daemon_home
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
_THREAD = "import threading\nthreading.Thread(target=time.sleep, args=(3600,), daemon=True).start()"


@pytest.fixture
def early() -> Iterator[DaemonHome]:
    """A home with the early connector, which starts a thread when it waits, so that it can be seen."""
    with daemon_home() as home:
        home.unlock()
        install_early(home, _THREAD)
        yield home


def test_what_a_module_reads_once_is_as_old_as_the_spare_and_chance_is_its_own(early: DaemonHome) -> None:
    """Loaded before the run was asked for, and not longer than half a minute; no two runs draw the same numbers."""
    early.run("tell")
    told = [when_it_waited(early) for _ in range(3)]
    for one in told:
        asked = next(event["at"] for event in early.events(one["audit_id"]) if event["type"] == "run.requested")
        assert one["loaded"] < _seconds(asked) < one["now"] + 1
        assert one["now"] - one["loaded"] < 31
    assert len({one["drawn"] for one in told} | {one["again"] for one in told}) == 6


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def test_a_run_is_on_record_as_one_without_a_spare_is(early: DaemonHome) -> None:
    """The same events with the same facts, the layers too; whoever reads the record need not know of spares."""
    without = early.run("tell")
    assert without.body["result"]["was_told"], "nobody had used it before"
    with_one = when_it_waited(early)

    def facts(audit_id: str) -> list[dict[str, Any]]:
        changing = {"seq", "at", "at_us", "hash", "previous", "run", "ms", "result", "outcome_digest"}
        return [{key: value for key, value in event.items() if key not in changing} for event in early.events(audit_id)]

    assert facts(with_one["audit_id"]) == facts(without.body["audit_id"])


def _lock(home: DaemonHome) -> None:
    home.must("POST", "/v1/vault/lock")


def _disable(home: DaemonHome) -> None:
    home.must("PATCH", "/v1/actions/tell", {"enabled": False})


def _remove(home: DaemonHome) -> None:
    home.must("DELETE", "/v1/actions/tell")


def _change_settings(home: DaemonHome) -> None:
    config = home.path / "config.toml"
    config.write_text(config.read_text() + '\n[egress]\nprivate = ["localhost:9"]\n')


@pytest.mark.parametrize("change", [_lock, _disable, _remove, _change_settings])
def test_none_waits_after(early: DaemonHome, change: Callable[[DaemonHome], None]) -> None:
    """The vault's lock, an action's end, other settings: what waited is gone in a moment, long before its time is over."""
    early.run("tell")
    wait_until(lambda: jails_with_threads(early) > 0, "a connector waits")
    change(early)
    if change is _change_settings:
        early.must("GET", "/v1/actions")
    wait_until(lambda: jails_with_threads(early) == 0, "no connector waits", within_s=10)


def test_none_of_before_the_lock_is_used_after_it(early: DaemonHome) -> None:
    """Though the vault is open again, and nobody has looked meanwhile; of after it there are some."""
    when_it_waited(early)
    wait_until(lambda: jails_with_threads(early) > 0, "the next one waits")
    locked = time.time()
    _lock(early)
    early.must("POST", "/v1/vault/unlock", {"passphrase": PASSPHRASE})
    assert early.run("tell").body["result"]["loaded"] > locked
    assert when_it_waited(early)["loaded"] > locked


def test_what_waits_does_not_keep_a_daemon_from_stopping(early: DaemonHome) -> None:
    """Nothing of it is left."""
    early.run("tell")
    wait_until(lambda: jails_with_threads(early) > 0, "a connector waits")
    early.stop()
    assert early.daemon_pid is None
