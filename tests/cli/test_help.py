"""`--help`: the list of all commands is made without importing them, and says of each what its own help does."""

from __future__ import annotations

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


@pytest.mark.parametrize("words", ["--help", "run --help", "completion --help"])
def test_help_imports_no_other_command(home: Path, words: str) -> None:
    """Somebody waits for it, and reads one page."""
    loaded = modules_of(home, *words.split())

    assert loaded & DEAR == set()
    assert not any(name.startswith("aileron.cli.commands.a") for name in loaded)


def test_what_is_asked_for_is_imported(home: Path) -> None:
    """The control of the test above."""
    assert {"aileron.review", "msgspec", "aileron.cli.commands.approval"} <= modules_of(home, "approval", "--help")


def modules_of(home: Path, *words: str) -> set[str]:
    """What is imported when a command is over."""
    code = "import sys; from aileron.__main__ import main; main(); sys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "AILERON_HOME": str(home)},
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("width", ["52", "80", "130"])
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_a_page_is_as_typer_makes_it(
    name: str, width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command's, a noun's and each of its verbs', to the letter, on a narrow, an ordinary and a wide terminal."""
    monkeypatch.setenv("COLUMNS", width)
    found = COMMANDS[name] if name else get_command(app)
    verbs = getattr(found, "commands", {}) if name else {}
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
