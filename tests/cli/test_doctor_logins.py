"""`aileron doctor` without a package that logins need: the package, the logins that fail, and the command that installs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = (
    "import sys; sys.modules.update(dict.fromkeys(sys.argv[1].split())); "
    "from aileron.cli.app import main; sys.exit(main(['doctor']))"
)


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("", None),
        ("asyncssh", "asyncssh cannot be imported: connectors that log in by ssh fail"),
        ("asyncssh scramp", "asyncssh and scramp cannot be imported: connectors that log in by ssh or SCRAM fail"),
    ],
    ids=["none", "one", "both"],
)
def test_doctor_names_packages_that_logins_lack(tmp_path: Path, missing: str, said: str | None) -> None:
    """The check is absent if no package is missing."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, missing],
        env={**os.environ, "AILERON_HOME": str(tmp_path / "home"), "COLUMNS": "400"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert any("jail" in line for line in lines), done.stderr
    about = [line for line in lines if "cannot be imported" in line]
    if said is None:
        assert about == []
    else:
        (line,) = about
        assert said in line
        assert line.endswith(f" {missing}")  # the end of the command that installs them
