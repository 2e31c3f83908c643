"""Second run of the attack suite, as an ordinary user: root starts it in a copy of the checkout that this user can read.

This module runs in the process of the tests; the copy is in a directory of the test run's own, and is removed with it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.attacks.tally import TALLY, Tally
from tests.support.other_user import UID, checkout, environment_of

__all__ = ["SAME_USER", "OtherUser"]

ROOT: Final = Path(__file__).resolve().parents[2]
DEADLINE_S: Final = 900.0
"""Seconds for the whole suite on a busy machine; it takes three minutes on two idle cores."""
_TREE: Final = ("aileron", "sandbox", "connectors", "tests", "docs", "pyproject.toml", "README.md", "SECURITY.md")
_NEEDED: Final = ("aileron", "pytest", "pytest-timeout", "hypothesis", "trustme", "radicale", "websockets")
_TESTS: Final = (
    "tests/attacks",
    "tests/sandbox/test_cell_denials.py",
    "tests/sandbox/test_cell_life.py",
    "tests/sandbox/test_jail_denials.py",
    "tests/sandbox/test_jail_landlock_mode.py",
    "tests/daemon/test_landlock_mode.py",
    "tests/logins/test_mail_from_a_jail.py",
    "tests/daemon/test_secrets_in_stores.py::test_a_secret_kept_in_the_program_pass_is_lent_but_not_stored_by_aileron",
)
SAME_USER: Final = tuple(
    sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "attacks").glob("test_same_user*.py"))
)
"""Tests of what a process of the same user tries; they are not run as root."""


class OtherUser:
    """A run of the suite as UID, in the background. `finish` waits; `close` ends it and removes the copy."""

    def __init__(self, folder: Path, tests: tuple[str, ...] = _TESTS) -> None:
        self._folder = folder
        self._tally = folder / "home" / "tally.json"
        self._output = (folder / "output.txt").open("w+b")
        try:
            python = checkout(folder, _TREE, _NEEDED)
            self._process = subprocess.Popen(
                [str(python), "-m", "pytest", "-p", "no:cacheprovider", "--maxfail=8", *tests],
                cwd=folder / "tree",
                env=environment_of(folder / "home") | {TALLY: str(self._tally)},
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                user=UID,
                group=UID,
                extra_groups=[],
                start_new_session=True,
            )
        except BaseException:
            self._output.close()
            raise

    def finish(self) -> tuple[int, str, Tally | None]:
        """Return exit status, output, and tally (None if the run ended before it wrote one). Waits DEADLINE_S at most."""
        try:
            status = self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            status = -1
        self._output.seek(0)
        printed = self._output.read().decode("utf-8", "replace")
        try:
            return status, printed, Tally.read(self._tally)
        except (OSError, ValueError):
            return status, printed, None

    def close(self) -> None:
        """End the run if it is still going, and remove the copy."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        self._output.close()
        shutil.rmtree(self._folder, ignore_errors=True)
