"""`--help`: the list of all commands is made without importing them, and says of each what its own help does."""

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
DEAR = {"pydantic", "rich", "msgspec", "http", "ssl", "asyncio", "aileron.review", "aileron.cli.decision_dialogue"}


@pytest.fixture(scope="module")
def listed() -> str:
    """What `aileron --help` prints, in lines of any length."""
    done = subprocess.run(
        [sys.executable, "-m", "aileron", "--help"], check=True, capture_output=True, text=True, timeout=30
    )
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_is_listed_with_the_first_line_of_its_help(listed: str, name: str) -> None:
    """The list is written beside it, so that it takes no import."""
    assert f" {name} {COMMANDS[name].get_short_help_str(70)} " in listed


def test_no_page_imports_what_is_dear(home: Path) -> None:
    """Somebody waits for each, and reads one: in one process all of them, of nouns and of commands."""
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


def test_what_is_asked_for_is_imported(home: Path) -> None:
    """The control of the test above: what a command does is imported when it is called."""
    called = "import sys; from aileron.__main__ import main; main(); sys.stderr.write(' '.join(sys.modules))"

    assert {"msgspec", "aileron.cli.commands.status"} <= modules_of(home, "status", code=called)


def verbs_of(found: Any) -> list[str]:
    """The commands of a noun."""
    return list(getattr(found, "commands", ()))


def modules_of(home: Path, *words: str, code: str) -> set[str]:
    """What is imported when the code is over."""
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
def test_a_page_is_as_typer_makes_it(
    name: str, width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command's, a noun's and each of its verbs', to the letter, on a narrow, an ordinary and a wide terminal."""
    monkeypatch.setenv("COLUMNS", width)
    found = COMMANDS[name] if name else get_command(app)
    verbs = verbs_of(found) if name else []
    for words in ([name] if name else [], *([name, verb] for verb in verbs)):
        page = page_of([*words, "--help"])
        assert page is not None
        assert call_of([*words, "--help"], as_json=False) == 0
        assert page.text + "\n" == capsys.readouterr().out


@pytest.mark.parametrize("words", [[], *([name] for name, found in COMMANDS.items() if hasattr(found, "commands"))])
def test_a_missing_command_is_told_as_typer_does(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The page, on standard error, with the exit code of wrong usage."""
    assert main(words) == call_of(words, as_json=False) == 2

    shown, typers = capsys.readouterr().err.split("Usage: ")[1:]
    assert shown == typers
    assert "Commands:" in shown or "Try it:" in shown
