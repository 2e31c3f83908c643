"""Spares in a real daemon: connectors that wait for their next run are as fresh as others, and end when they must."""

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
    """Start a home with the early connector, which starts a thread while it waits, so that it can be seen."""
    with daemon_home() as home:
        home.unlock()
        install_early(home, _THREAD)
        yield home


def test_each_spare_was_loaded_recently_and_draws_its_own_random_numbers(early: DaemonHome) -> None:
    """A spare was loaded at most half a minute before its run; no two runs may draw the same numbers."""
    early.run("tell")
    told = [when_it_waited(early) for _ in range(3)]
    for result in told:
        asked = next(event["at"] for event in early.events(result["audit_id"]) if event["type"] == "run.requested")
        assert result["loaded"] < _seconds(asked) < result["now"] + 1
        assert result["now"] - result["loaded"] < 31
    assert len({result["drawn"] for result in told} | {result["again"] for result in told}) == 6


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def test_a_run_with_a_spare_is_recorded_like_one_without(early: DaemonHome) -> None:
    """The events have the same facts, the layers too, so a reader of the record need not know about spares."""
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
def test_spares_end_when_the_vault_locks_or_their_connector_or_settings_change(
    early: DaemonHome, change: Callable[[DaemonHome], None]
) -> None:
    """They end at once, long before their own timeout."""
    early.run("tell")
    wait_until(lambda: jails_with_threads(early) > 0, "a connector waits")
    change(early)
    if change is _change_settings:
        early.must("GET", "/v1/actions")
    wait_until(lambda: jails_with_threads(early) == 0, "no connector waits", within_s=10)


def test_no_spare_from_before_a_vault_lock_is_used_afterwards(early: DaemonHome) -> None:
    """Even if the vault is unlocked at once, only spares that were started later are used."""
    when_it_waited(early)
    wait_until(lambda: jails_with_threads(early) > 0, "the next one waits")
    locked = time.time()
    _lock(early)
    early.must("POST", "/v1/vault/unlock", {"passphrase": PASSPHRASE})
    assert early.run("tell").body["result"]["loaded"] > locked
    assert when_it_waited(early)["loaded"] > locked


def test_a_spare_does_not_keep_the_daemon_from_stopping(early: DaemonHome) -> None:
    """The daemon's process is gone after the stop."""
    early.run("tell")
    wait_until(lambda: jails_with_threads(early) > 0, "a connector waits")
    early.stop()
    assert early.daemon_pid is None
