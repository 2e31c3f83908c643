"""Run the seeded faults: sixty ways in which a few lines could break a promise, and the tests that notice each.

    $ python -m tests.seeded                 # all of them; prints which test caught what
    $ python -m tests.seeded 07 escape       # those whose ids contain one of these texts

Each fault is a patch of this folder and a row of table.toml. In a clone of the last commit, never in the tree itself, the patch
is applied, the tests of its row are run until the first fails, and the patch is taken out again. Without any patch the same tests
have to pass. Changes that are not committed have no effect.

Rules
- A fault counts as caught when a test fails by an assertion: not by an error of import or in a fixture, nor by a deadline.
- A patch that no longer applies, a fault that no test catches, and a test that fails or is skipped without a fault are errors,
  reported with the name of the fault or the test. No test is retried.
- Bytecode is bound to the hash of its source (PEP 552, checked): by time and size, a fault of one letter could be overlooked when
  it comes and goes within a second.

It needs what the tests need: a checkout with git, `.venv`, and a machine that can make jails. Not here: how a test failed
(verdict.py), the table (table.py).
"""

from __future__ import annotations

import argparse
import json
import os
import py_compile
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.seeded.table import ROOT, Fault, faults

_HERE: Final = "tests/seeded"
_SOURCES: Final = ("aileron", "sandbox", "connectors")
_DEADLINE_S: Final = 600.0
"""Seconds for the tests of one fault, which take seconds, and for all tests without a fault, which take minutes."""


class _Clone:
    """A clone of the last commit to which faults are applied, with an interpreter that imports our packages from it alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.tree = folder / "tree"
        _git(folder, "clone", "--quiet", "--shared", str(ROOT), str(self.tree))
        self._python = _interpreter(self.tree)
        for source in _SOURCES:
            for path in (self.tree / source).rglob("*.py"):
                py_compile.compile(str(path), quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)

    def apply(self, fault: Fault) -> None:
        """Apply the fault. ValueError if it no longer applies."""
        try:
            _git(self.tree, "apply", f"{_HERE}/{fault.id}.patch")
        except subprocess.CalledProcessError as error:
            raise ValueError(f"does not apply: {error.stderr.strip()}") from None

    def take_out(self) -> None:
        """Restore the commit."""
        _git(self.tree, "checkout", "--quiet", "--", *_SOURCES)

    def failures(self, tests: Iterable[str], *options: str) -> list[dict[str, Any]]:
        """Run the tests and return the verdict on each that did not pass. ValueError if pytest cannot run them in time."""
        verdicts = self._folder / "verdicts"
        verdicts.unlink(missing_ok=True)
        command = [str(self._python), "-m", "pytest", "-p", "tests.seeded.verdict", "--verdicts", str(verdicts)]
        command += ["-p", "no:cacheprovider", "--tb=short", *options, *tests]
        environment = {
            name: value for name, value in os.environ.items() if name not in ("CI", "PYTHONDONTWRITEBYTECODE")
        }
        try:
            done = subprocess.run(
                command,
                cwd=self.tree,
                env={**environment, "AILERON_MUST_JAIL": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"its tests were not over after {_DEADLINE_S:.0f} s") from None
        (self._folder / "output").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode not in (0, 1):  # 2 and more: collection, usage, nothing to run
            raise ValueError(f"pytest ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-500:]}")
        lines = verdicts.read_text(encoding="utf-8").splitlines() if verdicts.exists() else []
        return [json.loads(line) for line in lines]


def _interpreter(tree: Path) -> Path:
    """Return the Python of a new virtual environment with this one's packages, and with the tree in place of our packages."""
    folder = tree / ".venv"
    venv.create(folder, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    places = (tree, tree / "sandbox", tree / "connectors" / "sdk", sysconfig.get_path("purelib"))
    path_file = folder / "lib" / version / "site-packages" / "seeded.pth"
    path_file.write_text("".join(f"{place}\n" for place in places), encoding="utf-8")
    for script in ("aileron", "aileron-mcp"):
        text = (Path(sys.prefix) / "bin" / script).read_text(encoding="utf-8")
        ours = folder / "bin" / script
        ours.write_text(text.replace(f"#!{sys.prefix}/", f"#!{folder}/", 1), encoding="utf-8")
        ours.chmod(0o755)
    return folder / "bin" / "python"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def _caught_by(clone: _Clone, fault: Fault) -> str:
    """Return the test that fails by an assertion under this fault. ValueError if none does."""
    clone.apply(fault)
    try:
        failed = clone.failures(fault.caught_by, "-x")
    finally:
        clone.take_out()
    caught = next((verdict["test"] for verdict in failed if verdict["asserts"]), None)
    if caught is None:
        how = ", ".join(f"{verdict['test']} {verdict['how']}" for verdict in failed) or "its tests pass"
        raise ValueError(f"NOT CAUGHT: {how}")
    return str(caught)


def _check_control(clone: _Clone, chosen: Sequence[Fault]) -> list[str]:
    """Return the errors of the tests themselves: without a fault, each has to pass."""
    tests = dict.fromkeys(test for fault in chosen for test in fault.caught_by)
    try:
        return [f"without a fault: {verdict['test']} {verdict['how']}" for verdict in clone.failures(tests)]
    except ValueError as error:
        return [f"without a fault: {error}"]


def main(arguments: Sequence[str]) -> int:
    """Run the chosen faults. Return 0 if each was caught and every test passes without a fault, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.seeded", description="Have the tests catch seeded faults.")
    parser.add_argument("texts", nargs="*", help="run the faults whose ids contain one of these texts")
    texts = parser.parse_args(arguments).texts
    with tempfile.TemporaryDirectory(prefix="ail-seeded-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # some tests run as another user
        clone = _Clone(folder)
        every = faults(clone.tree / _HERE)
        chosen = [fault for fault in every if not texts or any(text in fault.id for text in texts)]
        problems = _check_control(clone, chosen)
        for fault in chosen:
            began = time.monotonic()
            try:
                said = _caught_by(clone, fault)
            except ValueError as error:
                said = str(error)
                problems.append(f"{fault.id}: {said}")
            print(f"{fault.id} | {said} | {time.monotonic() - began:.1f} s", flush=True)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{len(chosen)} faults, {len(problems)} errors")
    return 1 if problems or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
