"""Commands that the tests fork have the output and effect of newly started ones (tests/support/forks.py)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import Command, Said

_CASES = (
    ("--version",),
    ("status",),
    ("status", "--json"),
    ("no-such-command",),
    ("run", "no-such-action", "a=\udcff"),
    ("action", "validate", "not-there.md"),
)


@pytest.mark.parametrize("words", _CASES, ids=lambda words: words[0])
def test_a_forked_command_has_the_output_and_exit_code_of_a_new_process(
    aileron: Command, words: tuple[str, ...]
) -> None:
    """The command runs twice through `Command`, which forks the second one, and once in a new process."""
    aileron(*words)
    forked = aileron(*words)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AILERON_")}
    real = subprocess.run(
        [*aileron.program, *words],
        env={**environment, "AILERON_HOME": str(aileron.home), "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
    )

    assert (forked.code, forked.out, forked.err) == (real.returncode, real.stdout.decode(), real.stderr.decode())


def test_a_forked_command_has_the_given_directory_and_terminal(
    aileron: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command depends on both besides its arguments."""
    (tmp_path / "here.md").write_text("nothing of an action", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found: list[Said] = [aileron("action", "validate", "here.md") for _ in range(2)]
    shown = [aileron.at_terminal("action", "validate", "here.md", NO_COLOR="1") for _ in range(2)]

    for first, second in (found, shown):
        assert (first.code, first.out, first.err) == (second.code, second.out, second.err)
    assert "here.md" in found[0].err
