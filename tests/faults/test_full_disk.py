"""Faults of a disk without room: a run that cannot be recorded does not begin, and an outcome that cannot be is not called done.

A real file system of a few megabytes holds the home, in a mount namespace of its own. The test runs itself there as a
program, `python -m tests.faults.test_full_disk SCENARIO DIRECTORY`, which prints its observations as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.client import DaemonUnreachable
from tests.support.home import DaemonHome, daemon_home, word
from tests.support.probed import probed_home
from tests.support.upstream_http import CountingServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
ROOT = Path(__file__).resolve().parents[2]
DISK_MIB = 12
_CLOSED_S = 30.0
MOUNT = f'mount -t tmpfs -o size={DISK_MIB}m none "$0" && chmod 777 "$0" && exec "$@"'


def _ways_to_mount(directory: Path) -> Iterator[list[str]]:
    """Yield the ways to mount: as root in a mount namespace; else as root of a user namespace, then as this user, who
    runs the daemon.
    """
    if os.geteuid() == 0:
        yield ["unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNT, str(directory)]
    ids = [f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}"]
    inside = ["unshare", "--user", *ids] if os.geteuid() else []
    yield ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(directory), *inside]


@pytest.fixture
def on_small_disk() -> Iterator[Callable[[str], dict[str, Any]]]:
    """Return a function that runs a scenario with its home on a disk of a few megabytes, and returns what it saw."""
    directory = Path(tempfile.mkdtemp(prefix="ail-"))
    try:
        tried = [
            way
            for way in _ways_to_mount(directory)
            if subprocess.run([*way, "true"], capture_output=True).returncode == 0
        ]
        if not tried:
            if os.environ.get("AILERON_MUST_JAIL") == "1":
                pytest.fail("a file system of a test's own needs root or user namespaces")
            pytest.skip("neither root nor user namespaces: no small file system to be had")

        def run(scenario: str) -> dict[str, Any]:
            program = [sys.executable, "-m", "tests.faults.test_full_disk", scenario, str(directory)]
            done = subprocess.run([*tried[0], *program], cwd=ROOT, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            seen: dict[str, Any] = json.loads(done.stdout)
            return seen

        yield run
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.abuse_case("R6")
def test_a_run_on_a_full_disk_is_refused_before_its_effect(on_small_disk: Callable[[str], dict[str, Any]]) -> None:
    """The error has a fix, for an ungated run and a gated one. With free space the same run has its effect."""
    seen = on_small_disk("before")

    for refused in (seen["refused"], seen["gated"]):
        assert refused["status"] == 500
        assert refused["error"]["class"] == "internal_error"
        assert refused["error"]["details"]["cause"] == "disk_full"
        assert "free some space" in refused["error"]["message"]
    assert seen["effects"] == {"with room": 1, "full": 1, "with room again": 2}
    assert seen["recorded while full"] == 0
    assert seen["again"] == 200
    assert seen["verified"]


def test_an_outcome_that_cannot_be_recorded_is_reported_as_unknown(
    on_small_disk: Callable[[str], dict[str, Any]],
) -> None:
    """The disk fills up at the moment of the effect: the response is an error, and no request is repeated."""
    seen = on_small_disk("during")

    assert seen["answered"]["status"] == 500
    assert seen["answered"]["error"]["class"] == "outcome_unknown"
    assert seen["answered"]["error"]["retriable"] is False
    assert seen["effects"] == 1
    assert seen["on record"] == ["run.requested", "run.started", "egress.sending", "run.unknown"]
    assert seen["status"] == "unknown"
    assert seen["with the same key"]["error"]["class"] == "outcome_unknown"
    assert seen["effects in the end"] == 1
    assert seen["verified"]


def test_an_unrecorded_outcome_is_recorded_as_soon_as_the_disk_has_space(
    on_small_disk: Callable[[str], dict[str, Any]],
) -> None:
    """The daemon that ran it continues, and records it once there is space; until then the run counts as running."""
    seen = on_small_disk("room")

    assert seen["answered"] == "outcome_unknown"
    assert seen["while full"] == "running"
    assert seen["with room"] == "unknown"
    assert seen["same daemon"]
    assert seen["verified"]


def test_a_read_only_ledger_or_full_disk_keeps_the_daemon_from_starting(
    on_small_disk: Callable[[str], dict[str, Any]],
) -> None:
    """A file mounted read-only, and a disk that is full at the start, each give their reason; without them the daemon starts."""
    seen = on_small_disk("start")

    assert "mounted read-only" in seen["read-only"]
    assert "space" in seen["full"]
    assert seen["afterwards"] == 200


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("PRAGMA user_version = 99", "use the version that wrote it, or a newer one"),
        ("UPDATE events SET record = 'x' WHERE seq = (SELECT max(seq) FROM events)", "`aileron audit verify`"),
        ("DROP INDEX events_at", "`aileron audit verify`"),
        (None, "`aileron audit verify`"),
    ],
    ids=["newer", "altered", "without an index", "garbage"],
)
def test_a_damaged_or_newer_ledger_keeps_the_daemon_from_starting(spoil: str | None, words: str) -> None:
    """The error has the fix, and the file stays as it is; the same home started before."""
    with daemon_home() as home:
        home.must("GET", "/v1/status")
        home.stop()
        ledger = home.path / "ledger.db"
        if spoil is None:
            ledger.write_bytes(b"\x00garbage" * 1000)
        else:
            with contextlib.closing(sqlite3.connect(ledger, isolation_level=None)) as connection:
                connection.execute(spoil)
        before = ledger.read_bytes()

        with pytest.raises(DaemonUnreachable, match=words):
            home.must("GET", "/v1/status")

        assert ledger.read_bytes() == before


# The program


class _FillingServer(CountingServer):
    """A server that fills the disk at the moment of the effect, before it responds."""

    def __init__(self, disk: Path) -> None:
        self._disk = disk
        self._effects = 0
        self.is_armed = False
        super().__init__()

    @property
    def effects(self) -> int:
        """The number of effects."""
        return self._effects

    @effects.setter
    def effects(self, count: int) -> None:
        self._effects = count
        if self.is_armed:
            _fill(self._disk)


def _fill(disk: Path) -> None:
    with open(disk / "ballast", "ab", buffering=0) as ballast:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while ballast.write(bytes(size)):
                    pass


def _empty(disk: Path) -> None:
    (disk / "ballast").unlink()


@contextlib.contextmanager
def _world(disk: Path) -> Iterator[tuple[DaemonHome, _FillingServer]]:
    tempfile.tempdir = str(disk)
    with _FillingServer(disk) as upstream, probed_home(upstream.port) as home:
        home.add_probe_action("effect")
        home.add_probe_action("effect", name="gated", gated=True)
        yield home, upstream


def _before(disk: Path) -> dict[str, Any]:
    with _world(disk) as (home, upstream):
        home.run("effect")
        effects = {"with room": upstream.effects}
        rows = home.must("GET", "/v1/audit?limit=1")["events"][0]["seq"]
        _fill(disk)
        answers = [home.run("effect") for _ in range(20)]
        gated = home.run("gated")
        assert {answer.status for answer in answers} == {500}
        effects["full"] = upstream.effects
        recorded = home.must("GET", "/v1/audit?limit=1")["events"][0]["seq"] - rows
        _empty(disk)
        again = home.run("effect")
        effects["with room again"] = upstream.effects
        return {
            "refused": {"status": 500, **answers[-1].body},
            "gated": {"status": gated.status, **gated.body},
            "effects": effects,
            "recorded while full": recorded,
            "again": again.status,
            "verified": home.must("GET", "/v1/audit/verify")["ok"],
        }


def _during(disk: Path) -> dict[str, Any]:
    with _world(disk) as (home, upstream):
        upstream.is_armed = True
        answered = home.run("effect", headers={"Idempotency-Key": "once"})
        upstream.is_armed = False
        effects = upstream.effects
        _empty(disk)
        home.kill()
        (run,) = [event["run"] for event in home.must("GET", "/v1/audit?type=run.requested")["events"]]
        home.unlock()
        repeated = home.run("effect", headers={"Idempotency-Key": "once"})
        return {
            "answered": {"status": answered.status, **answered.body},
            "effects": effects,
            "on record": [event["type"] for event in home.events(run)],
            "status": home.must("GET", f"/v1/runs/{run}")["status"],
            "with the same key": repeated.body,
            "effects in the end": upstream.effects,
            "verified": home.must("GET", "/v1/audit/verify")["ok"],
        }


def _room(disk: Path) -> dict[str, Any]:
    with _world(disk) as (home, upstream):
        upstream.is_armed = True
        answered = word(home.run("effect"))
        upstream.is_armed = False
        daemon = home.daemon_pid
        (run,) = [event["run"] for event in home.must("GET", "/v1/audit?type=run.requested")["events"]]
        full = home.must("GET", f"/v1/runs/{run}")["status"]
        _empty(disk)

        def is_closed() -> bool:
            home.run("gated")  # a question, at which what is over is looked for
            return bool(home.must("GET", f"/v1/runs/{run}")["status"] != full)

        wait_until(is_closed, "the run is closed", within_s=_CLOSED_S)
        found = home.must("GET", f"/v1/runs/{run}")["status"]
        return {
            "answered": answered,
            "while full": full,
            "with room": found,
            "same daemon": home.daemon_pid == daemon,
            "verified": home.must("GET", "/v1/audit/verify")["ok"],
        }


def _start(disk: Path) -> dict[str, Any]:
    tempfile.tempdir = str(disk)
    with daemon_home() as home:

        def refusal() -> str:
            try:
                return f"it started: {home.ask('GET', '/v1/status').body}"
            except DaemonUnreachable as error:
                return str(error)

        home.must("GET", "/v1/status")
        home.stop()
        ledger = str(home.path / "ledger.db")
        seen = {}
        if os.geteuid() == 0:  # whom no mode stops
            subprocess.run(["mount", "--bind", ledger, ledger], check=True)
            subprocess.run(["mount", "-o", "remount,bind,ro", ledger], check=True)
            seen["read-only"] = refusal()
            subprocess.run(["umount", ledger], check=True)
        else:
            os.chmod(ledger, 0o400)
            seen["read-only"] = refusal()
            for file in home.path.glob("ledger.db*"):  # SQLite gives the files beside it the same mode
                os.chmod(file, 0o600)
        _fill(disk)
        seen["full"] = refusal()
        _empty(disk)
        return {**seen, "afterwards": home.ask("GET", "/v1/status").status}


if __name__ == "__main__":
    scenario, place = sys.argv[1:]
    saw = {"before": _before, "during": _during, "room": _room, "start": _start}[scenario](Path(place))
    print(json.dumps(saw))
