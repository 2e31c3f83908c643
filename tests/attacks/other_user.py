"""The attack suite once more, as an ordinary user: started by root, in a copy of the checkout that this user can read.

Runs in the process of the tests; the copy is below a directory of the test run's own and goes with it.
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
"""The whole suite on a busy machine; three minutes on two idle cores."""
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
    "tests/daemon/test_secrets_elsewhere.py::test_a_secret_in_pass_is_lent_and_left_nowhere",
)
SAME_USER: Final = tuple(
    sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "attacks").glob("test_same_user*.py"))
)
"""What a process of the user themselves tries; root is not tried at all."""


class OtherUser:
    """A run of the suite as UID, in the background. `finish` waits; `close` ends it and takes the copy away."""

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
        """Exit status, what it printed, what it counted (None where it did not come so far). Waits DEADLINE_S at most."""
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
        """End it if it still runs, and remove the copy."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        self._output.close()
        shutil.rmtree(self._folder, ignore_errors=True)
