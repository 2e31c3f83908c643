"""The early connector of tests/support/connectors, installed with code that it runs while it waits for an invocation."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psutil

from tests.support.descendants import read_descendants
from tests.support.home import DaemonHome

__all__ = ["EARLY", "install_early", "jails_with_threads", "when_it_waited"]

EARLY: Final = "github://aileron-tests/early"
_SOURCE: Final = Path(__file__).parent / "connectors" / "early"
_PATIENCE_S: Final = 20.0
_LOADS_S: Final = 1.0
"""Seconds until a spare made after the last run waits: 0.6 s until it knows that it is one, and the time to load."""


def install_early(home: DaemonHome, does: str = "pass", host: str = "localhost:1") -> None:
    """Install the connector and its action `tell`. `does` is Python that a spare runs when it is loaded."""
    home.ask("GET", "/healthz")  # makes the home
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(_SOURCE, Path(folder, "early")))
        source = (copy / "connector.py").read_text(encoding="utf-8")
        lines = does.replace("\n", "\n    ")
        (copy / "connector.py").write_text(source.replace("pass  # EARLY", lines), encoding="utf-8")
        home.install(copy, host)
    home.add_probe_action("tell", "text:string?", name="tell", connector=EARLY)


def when_it_waited(home: DaemonHome, action: str = "tell", **args: Any) -> dict[str, Any]:
    """Run the action until its connector was loaded before the request. Return that run's result, with `audit_id`."""
    over = time.monotonic() + _PATIENCE_S
    while time.monotonic() < over:
        time.sleep(_LOADS_S)
        answer = home.run(action, args)
        assert answer.status == 200, answer.body
        told: dict[str, Any] = answer.body["result"]
        if not told["was_told"]:
            return {**told, "audit_id": answer.body["audit_id"]}
    raise AssertionError("no run found its connector waiting")


def jails_with_threads(home: DaemonHome) -> int:
    """Return how many processes below the daemon's templates have threads; templates and Aileron's own never do."""
    return sum(read_descendants(home.daemon_pid, lambda process: _is_jail_with_threads(process, home)).values())


def _is_jail_with_threads(process: psutil.Process, home: DaemonHome) -> bool:
    return bool(process.ppid() != home.daemon_pid and process.num_threads() > 1)
