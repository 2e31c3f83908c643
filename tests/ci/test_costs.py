"""Seconds and processor time of targets and of test files, which `.ci/run` prints at its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import costs

ROOT = Path(__file__).resolve().parents[2]
COMPUTE = "import time\nwhile time.process_time() < 0.3: pass"
CONFTEST = """
from pathlib import Path
from tests.support.costs import Files

def pytest_configure(config):
    config.pluginmanager.register(Files(Path({folder!r})))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder for costs."""
    folder = tmp_path / "costs"
    folder.mkdir()
    monkeypatch.setenv(costs.FOLDER, str(folder))
    return folder


def ran(*command: str, expect: int = 0) -> str:
    """Run Python with these arguments at the top of the tree. Return its output; fail unless it exits with `expect`."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout


def written(folder: Path) -> list[dict[str, Any]]:
    """Read all lines in the folder."""
    return [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]


def test_measuring_a_make_target_counts_its_child_processes_and_keeps_its_exit_status(folder: Path) -> None:
    """The processor time includes the child's, and a failure stays a failure."""
    ran(
        "-m",
        "tests.support.costs",
        "measure",
        "lint",
        sys.executable,
        "-c",
        COMPUTE + "\nraise SystemExit(3)",
        expect=3,
    )

    [line] = written(folder)
    assert line["target"] == "lint"
    assert 0.3 <= line["used_s"] < 3
    assert "lint" in ran("-m", "tests.support.costs", "show")


def test_each_test_file_has_a_line_with_its_costs(folder: Path, tmp_path: Path) -> None:
    """Processor time of a child process counts for the file that started it, and for no other."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "conftest.py").write_text(CONFTEST.format(folder=str(folder)))
    (project / "test_one.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    (project / "test_two.py").write_text(
        f"import subprocess, sys\ndef test_c(): subprocess.run([sys.executable, '-c', {COMPUTE!r}], check=True)\n"
    )

    ran("-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={project}", str(project))

    used_s = {line["file"]: line["used_s"] for line in written(folder)}
    assert set(used_s) == {"test_one.py", "test_two.py"}
    assert used_s["test_one.py"] < 0.3 <= used_s["test_two.py"]


def test_the_table_shows_all_targets_and_the_slowest_twenty_files() -> None:
    """The longest come first, and the heading says how many files there were."""
    lines = [{"file": f"test_{number}.py", "of": "fast", "wall_s": number, "used_s": 0.5} for number in range(30)]
    shown = list(costs.table([*lines, {"target": "lint", "wall_s": 1.0, "used_s": 2.0}]))

    assert [line.split()[2] for line in shown[1:2] + shown[3:5]] == ["lint", "test_29.py", "test_28.py"]
    assert len(shown) == 3 + 20
    assert shown[2].endswith("file (20 of 30)")
