"""Test files side by side, in processes that are forked after the collection."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs pytest on the given files with options, and returns the exit status and the output."""

    def run(files: Mapping[str, str], *options: str) -> tuple[int, str]:
        (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        plugins = ["-p", "tests.support.shards", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-c",
                str(tmp_path / "pytest.ini"),
                *plugins,
                *options,
                str(tmp_path),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout

    return run


MEET = """
import os, time
from pathlib import Path
HERE = Path(__file__)
def test_meets():
    HERE.with_suffix(".met").write_text(str(os.getpid()))
    other = HERE.with_name({other!r}).with_suffix(".met")
    until = time.monotonic() + 20
    while not other.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
def test_is_where_the_one_above_was():
    assert HERE.with_suffix(".met").read_text() == str(os.getpid())
"""


def test_test_files_run_in_parallel_and_the_tests_of_one_file_in_one_process(run: Run) -> None:
    """Each of two files waits for the other, which would deadlock in one process."""
    status, said = run(
        {"test_a.py": MEET.format(other="test_b.py"), "test_b.py": MEET.format(other="test_a.py")}, "--shards=2"
    )

    assert (status, "4 passed" in said) == (0, True), said


def test_test_shards_leave_the_temporary_directories_of_other_runs_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shards have theirs elsewhere, and remove them at the end."""
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(root))
    test = "def test_is_elsewhere(tmp_path): assert tmp_path.is_dir() and {root!r} not in str(tmp_path)"
    status, said = run(dict.fromkeys(("test_a.py", "test_b.py"), test.format(root=str(root))), "--shards=2")

    assert (status, "2 passed" in said) == (0, True), said
    assert list(root.iterdir()) == []


SCOPES = """
import pytest
@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    made = tmp_path_factory.getbasetemp() / "made"
    made.mkdir()
    yield made
@pytest.fixture(scope="module")
def over(kept):
    (kept / "over").mkdir()
    yield
    (kept / "over").rmdir()
@pytest.mark.parametrize("number", range(3))
def test_has_both(kept, over, number): pass
"""


def test_module_fixtures_end_with_their_file_and_session_fixtures_last_longer(run: Run) -> None:
    """The files are in several folders, and each shard gets some of them."""
    body = SCOPES.partition("@pytest.mark")
    files = {f"{folder}/test_{name}.py": body[1] + body[2] for folder in "abc" for name in "defg"}
    files = {name: f"import pytest\n{text}" for name, text in files.items()}

    status, said = run({"conftest.py": body[0], **files}, "--shards=2", "--import-mode=importlib")

    assert (status, "36 passed" in said) == (0, True), said


MIXED = """
import pytest, sys, warnings
ERRORS = sys.stderr
@pytest.fixture(scope="module")
def made():
    yield
    print("over with the module")
def test_fails(made):
    print("what it printed")
    ERRORS.write(f"with {ERRORS.fileno() > 2} words")
    assert 1 == 2
@pytest.mark.skip(reason="a reason")
def test_is_skipped(): pass
@pytest.mark.xfail(strict=True)
def test_is_expected(): assert False
def test_warns(): warnings.warn("careful")
"""


def test_test_outcomes_of_shards_are_shown_and_counted_as_in_one_process(run: Run) -> None:
    """Failures keep their output, warnings are shown, outcomes are counted, and the exit status is the same."""
    files = {"test_mixed.py": MIXED, "test_good.py": "def test_good(): pass\n"}
    alone, aside = run(files), run(files, "--shards=2")

    for status, said in (alone, aside):
        assert status == 1
        assert "what it printed" in said
        assert "with True words" in said
        assert "assert 1 == 2" in said
        assert said.count("careful") >= 1
        assert "2 failed, 1 passed, 1 skipped, 1 xfailed" in said, said


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("import os\ndef test_ends(): os._exit(0)\n", "a shard ended with 0 in test_lost.py::test_ends"),
        ("import os\ndef test_ends(): os.kill(os.getpid(), 9)\n", "a shard ended with -9 in test_lost.py::test_ends"),
        (
            "import pytest\n@pytest.fixture(scope='session')\ndef kept():\n    yield\n    raise OSError('no end')\n"
            "def test_uses(kept): pass\n",
            "in the end of the session",
        ),
    ],
    ids=["it exits", "it is killed", "a fixture of its session fails"],
)
def test_a_shard_that_ends_early_fails_the_run(run: Run, test: str, expected: str) -> None:
    """The report names the test in which the process ended, whatever its exit status was."""
    status, said = run({"test_lost.py": test, "test_other.py": "def test_good(): pass\n"}, "--shards=2")

    assert status == 1, said
    assert expected in said
