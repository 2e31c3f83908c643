"""Kill -9 at any point: everything acknowledged is on disk, the chain is whole, and every run that had begun is unknown."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import anyio

from aileron.audit import query
from aileron.audit.log import Audit
from aileron.audit.verify import verify
from aileron.ledger import Ledger, RunRow
from aileron.model.outcome import RunStatus, Succeeded

ROUNDS = 8
REPOSITORY = Path(__file__).parents[2]


def killed_after(path: Path, lines: int) -> list[tuple[str, str]]:
    """Return the lines of a writer that is killed a moment after this number of lines, whatever it is doing then."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, str(Path(__file__).with_name("crash_writer.py")), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(lines)]
        writer.kill()
        said += writer.stdout.readlines()
    assert writer.returncode == -9
    return [(line.split()[0].decode(), line.split()[1].decode()) for line in said]


def test_no_acknowledged_event_is_lost_after_a_kill(tmp_path: Path) -> None:
    """All rounds use the same ledger, so damage of one round would show in the next."""
    path = tmp_path / "ledger.db"
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    began: set[str] = set()
    ended: set[str] = set()
    asked: set[str] = set()

    for _ in range(ROUNDS):
        for word, name in killed_after(path, choose.randint(1, 300)):
            {"began": began, "ended": ended, "asked": asked}[word].add(name)
        assert verify(path).is_whole

    with Ledger.open(path, path.parent, "0.1.0") as ledger:
        lost = anyio.run(Audit(ledger).recover)

        def look(name: str) -> RunRow:
            row = ledger.read_now(lambda snapshot: snapshot.run(name))
            assert row is not None, f"{name} was answered and is not there"
            return row

        for run_id in ended:
            assert query.outcome_of(look(run_id)) == Succeeded(run_id=run_id, result=run_id)
        for run_id in began - ended:
            # Ended but not yet said so, or begun and cut short: never running, never failed.
            assert look(run_id).status in (RunStatus.COMPLETED, RunStatus.UNKNOWN)
        assert all(look(run_id).status is RunStatus.UNKNOWN for run_id in lost)
        assert asked <= {row.id for row in ledger.read_now(lambda snapshot: snapshot.open_approvals())}
        assert ledger.read_now(lambda snapshot: snapshot.runs_in(RunStatus.RUNNING)) == []
    assert began
    assert verify(path).is_whole
