"""The early connector of tests/support/connectors: installed with what it does while nobody has told it anything."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psutil

from tests.support.home import DaemonHome

__all__ = ["EARLY", "install_early", "jails_with_threads", "when_it_waited"]

EARLY: Final = "github://aileron-tests/early"
_SOURCE: Final = Path(__file__).parent / "connectors" / "early"
_PATIENCE_S: Final = 20.0
_LOADS_S: Final = 1.0
"""For one that was made after the last run: 0.6 s until it knows that it waits, and what it takes to load."""


def install_early(home: DaemonHome, does: str = "pass", host: str = "localhost:1") -> None:
    """Install it, and the action `tell` of it. `does` is Python, run when it is loaded before it is wanted."""
    home.ask("GET", "/healthz")  # makes the home
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(_SOURCE, Path(folder, "early")))
        source = (copy / "connector.py").read_text(encoding="utf-8")
        lines = does.replace("\n", "\n    ")
        (copy / "connector.py").write_text(source.replace("pass  # EARLY", lines), encoding="utf-8")
        home.install(copy, host)
    home.add_probe_action("tell", "text:string?", name="tell", connector=EARLY)


def when_it_waited(home: DaemonHome, action: str = "tell", **args: Any) -> dict[str, Any]:
    """The answer of a run whose connector was there before it was asked, with `audit_id`; runs until there is one."""
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
    """How many processes below the daemon's templates have threads, as no template and nothing of ours there has."""
    assert home.daemon_pid is not None
    count = 0
    for template in psutil.Process(home.daemon_pid).children():
        for process in template.children(recursive=True):
            try:
                count += process.num_threads() > 1
            except psutil.NoSuchProcess:
                continue
    return count
