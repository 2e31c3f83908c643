"""A new member of a closed type is an error of the type checker until every table of the type has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.plain_host import ROOT

EFFECT = (ROOT / "aileron" / "model" / "effect.py").read_text(encoding="utf-8")
MEMBER = '    PAY = "pay"\n'


def _errors(source: str, folder: Path) -> str:
    """Return what mypy says of a module with this text."""
    (folder / "effect.py").write_text(source, encoding="utf-8")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=/dev/null", "effect.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )
    return "" if checked.returncode == 0 else checked.stdout


def test_an_effect_without_its_facts_is_a_type_error(tmp_path: Path) -> None:
    """Otherwise it would be a KeyError on the card that a person is about to read."""
    assert MEMBER in EFFECT
    assert _errors(EFFECT, tmp_path) == ""

    told = _errors(EFFECT.replace(MEMBER, f'{MEMBER}    LEND = "lend"\n'), tmp_path)

    assert '"assert_never" has incompatible type "Literal[Effect.LEND]"' in told
