"""Unused processes end, and the next request starts them again without a visible difference."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.support.descendants import read_descendants
from tests.support.home import DaemonHome, daemon_home, word
from tests.support.impatient_daemon import impatient_daemon
from tests.support.probed import lend_probe
from tests.support.waiting import wait_gone, wait_text

pytestmark = pytest.mark.jail


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """Start a home with an action, whose daemon ends unused processes after a moment."""
    with daemon_home() as made:
        lend_probe(made)
        made.add_probe_action("give_back", "text:string", name="give-back")
        made.stop()
        impatient_daemon(made.path)
        made.unlock()
        yield made


def _below(home: DaemonHome, word: str) -> list[psutil.Process]:
    """Return the daemon's descendants whose command line contains a word."""
    commands = read_descendants(home.daemon_pid, psutil.Process.cmdline)
    return [process for process, command in commands.items() if any(word in part for part in command)]


def test_a_run_restarts_a_template_that_ended_while_unused(home: DaemonHome) -> None:
    """Twice, the idle daemon has no child process left, and the next run is recorded as usual."""
    for _ in range(2):
        before = home.run("give-back", {"text": "x"})
        wait_gone(*(process.pid for process in _below(home, "aileron_sandbox")))
        assert psutil.Process(home.daemon_pid).children(recursive=True) == []
        after = home.run("give-back", {"text": "y"})

        assert (word(before), word(after)) == ("ok", "ok")
        started = [event for event in home.events(after.body["audit_id"]) if event["type"] == "run.started"]
        assert [event["layers"] for event in started] == [home.must("GET", "/v1/status")["jail"]["layers"]]


def test_the_garbage_collector_skips_imported_modules_only(home: DaemonHome) -> None:
    """The collector is off during the imports, and on from the first response."""
    assert home.daemon_pid is not None
    home.must("GET", "/healthz")
    told = home.path / "garbage"

    os.kill(home.daemon_pid, signal.SIGUSR1)
    is_enabled, frozen = wait_text(told, "\n").split()

    assert is_enabled == "True"
    assert int(frozen) > 50_000
