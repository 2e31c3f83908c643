"""`--help`: the pages are made without importing the commands, and match what typer prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from aileron.cli.app import main
from aileron.cli.help_page import page_of
from aileron.cli.typer_app import app, call_of

COMMANDS: dict[str, Any] = dict(get_command(app).commands)  # type: ignore[attr-defined]
DEAR = {"pydantic", "rich", "msgspec", "http", "ssl", "asyncio", "aileron.cards", "aileron.cli.decision_dialogue"}


@pytest.fixture(scope="module")
def listed() -> str:
    """Output of `aileron --help` as one line."""
    done = subprocess.run(
        [sys.executable, "-m", "aileron", "--help"], check=True, capture_output=True, text=True, timeout=30
    )
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_command_list_repeats_the_first_line_of_each_commands_help(listed: str, name: str) -> None:
    """The list is stored apart from the commands, so that `--help` need not import them."""
    assert f" {name} {COMMANDS[name].get_short_help_str(70)} " in listed


def test_no_help_page_imports_expensive_modules(home: Path) -> None:
    """A person waits for the page. The test makes all pages of groups and commands in one process."""
    pages = [[name, *words] for name, found in COMMANDS.items() for words in ([], *([v] for v in verbs_of(found)))]
    code = (
        "import json, sys; from aileron.cli.help_page import page_of; "
        "assert all(page_of([*words, '--help']) for words in json.loads(sys.argv[1])); "
        "sys.stderr.write(' '.join(sys.modules))"
    )
    loaded = modules_of(home, json.dumps([[], *pages]), code=code)

    assert len(pages) > 100
    assert loaded & (DEAR | {"typer", "inspect", "dataclasses"}) == set()
    assert not any(name.startswith("aileron.cli.commands.") for name in loaded)


def test_running_a_command_imports_the_module_of_that_command(home: Path) -> None:
    """Positive control of the test above: its measurement can see such an import."""
    called = "import sys; from aileron.__main__ import main; main(); sys.stderr.write(' '.join(sys.modules))"

    assert {"msgspec", "aileron.cli.commands.status"} <= modules_of(home, "status", code=called)


def verbs_of(found: Any) -> list[str]:
    """Return the commands of a noun."""
    return list(getattr(found, "commands", ()))


def modules_of(home: Path, *words: str, code: str) -> set[str]:
    """Return the modules that are imported when the code has run."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "AILERON_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("width", ["52", "80", "130"])
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_pages_are_identical_to_those_of_typer(
    name: str, width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every page is compared on a narrow, an ordinary and a wide terminal."""
    monkeypatch.setenv("COLUMNS", width)
    found = COMMANDS[name] if name else get_command(app)
    verbs = verbs_of(found) if name else []
    for words in ([name] if name else [], *([name, verb] for verb in verbs)):
        page = page_of([*words, "--help"])
        assert page is not None
        assert call_of([*words, "--help"], as_json=False) == 0
        assert page.text + "\n" == capsys.readouterr().out


@pytest.mark.parametrize("words", [[], *([name] for name, found in COMMANDS.items() if hasattr(found, "commands"))])
def test_a_command_group_without_a_command_prints_typers_help_page(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is on standard error, and the exit code is that of wrong usage."""
    assert main(words) == call_of(words, as_json=False) == 2

    shown, typers = capsys.readouterr().err.split("Usage: ")[1:]
    assert shown == typers
    assert "Commands:" in shown or "Start here:" in shown
