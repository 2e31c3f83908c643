"""Commands of docs/how-to/publish-a-connector.md run in order as written, and its case passes."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from aileron.connector_tests.cases import parse_cases
from tests.cli.command import Command
from tests.support.plain_host import ROOT

pytestmark = pytest.mark.jail
PAGE = (ROOT / "docs" / "how-to" / "publish-a-connector.md").read_text(encoding="utf-8")


def test_the_how_to_pages_commands_succeed_and_its_case_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command exits with 0, and the page's case passes beside those of the template."""
    aileron = Command(tmp_path / "home", program=[sys.executable, "-m", "aileron"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "sandbox"), str(ROOT / "connectors" / "sdk")])
    )
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    assert len(lines) == 5
    for line in lines:
        program, *words = shlex.split(line)
        if program == "cd":
            monkeypatch.chdir(words[0])
            continue
        said = aileron(*words)
        assert (program, said.code) == ("aileron", 0), (line, said)

    (case,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(parse_cases(case, file="the page").cases) == 1
    cases = Path("tests", "cases.toml")
    cases.write_text(f"{cases.read_text()}\n{case}")
    said = aileron("connector", "test")
    assert (said.code, "one thing is enough\tpassed" in said.out) == (0, True), said
    preview = {str(path.relative_to("preview")) for path in Path("preview").rglob("*.gz")}
    assert preview == {f"{place}v0.1.0/aileron.tar.gz" for place in ("", "actions/list-things/", "actions/add-thing/")}
