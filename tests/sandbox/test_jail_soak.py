"""Test that no residue of an invocation stays, however it ends: a short run of what `make bench` does ten thousand times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SOAK = "import dataclasses, json; from benchmarks.soak import soak; print(json.dumps(dataclasses.asdict(soak(240))))"


@pytest.mark.abuse_case("L9")
@pytest.mark.jail
def test_starting_many_jails_leaves_no_resources_behind() -> None:
    """Results, exits, tracebacks, kills, limits and denials run eight at once; every resource count is as before."""
    done = subprocess.run([sys.executable, "-c", _SOAK], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    soaked = json.loads(done.stdout)

    assert soaked["after"] == soaked["before"]
    assert soaked["before"]["processes"] >= 3, "this one, the stub and the template: the control"
    assert soaked["groups_left"] == 0
