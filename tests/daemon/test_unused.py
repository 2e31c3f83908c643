"""Processes that nobody uses end, and the next request finds them again: nobody but the machine's memory notices."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.support.home import DaemonHome, daemon_home, word
from tests.support.impatient_daemon import impatient_daemon
from tests.support.waiting import wait_gone, wait_text

pytestmark = pytest.mark.jail


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """A home with an action, whose daemon lets go of everything after a moment."""
    with daemon_home() as made:
        made.install_probe()
        made.unlock()
        made.bind_probe()
        made.add_probe_action("give_back", "text:string", name="give-back")
        made.stop()
        impatient_daemon(made.path)
        made.unlock()
        yield made


def _below(home: DaemonHome, word: str) -> list[psutil.Process]:
    """Its processes that were executed with such a word."""
    assert home.daemon_pid is not None
    return [process for process in psutil.Process(home.daemon_pid).children(recursive=True) if _has(process, word)]


def _has(process: psutil.Process, word: str) -> bool:
    with contextlib.suppress(psutil.Error):  # it has ended meanwhile
        return any(word in part for part in process.cmdline())
    return False


def test_a_run_after_the_template_ended_works_and_is_recorded_as_any_other(home: DaemonHome) -> None:
    """Twice: it starts again as often as it ends. Before, the daemon alone is left, which is what an idle user pays for."""
    for _ in range(2):
        before = home.run("give-back", {"text": "x"})
        wait_gone(*(process.pid for process in _below(home, "aileron_sandbox")))
        assert psutil.Process(home.daemon_pid).children(recursive=True) == []
        after = home.run("give-back", {"text": "y"})

        assert (word(before), word(after)) == ("ok", "ok")
        started = [event for event in home.events(after.body["audit_id"]) if event["type"] == "run.started"]
        assert [event["layers"] for event in started] == [home.must("GET", "/v1/status")["jail"]["layers"]]


def test_what_was_imported_is_not_searched_for_garbage_and_what_comes_later_is(home: DaemonHome) -> None:
    """From the first answer on: before it nothing is searched at all."""
    assert home.daemon_pid is not None
    home.must("GET", "/healthz")
    told = home.path / "garbage"

    os.kill(home.daemon_pid, signal.SIGUSR1)
    is_enabled, frozen = wait_text(told, "\n").split()

    assert is_enabled == "True"
    assert int(frozen) > 50_000
