"""Tests of tests/newer.toml, the list of tests that run with a newer Python: each entry has a reason, and no room is missing."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("aileron", "sandbox", "connectors")


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    """Return the list."""
    return tomllib.loads((ROOT / "tests" / "newer.toml").read_text(encoding="utf-8"))


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports anywhere, and their packages."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {*names, *(name.partition(".")[0] for name in names)}


def folder_of(room: str) -> str:
    """Return the folder of a room's tests: connectors and the SDK share one."""
    return "tests/connectors" if room.startswith("connectors/") else f"tests/{Path(room).name}"


def test_each_test_folder_runs_with_a_newer_python_or_has_a_reason_not_to(table: dict[str, Any]) -> None:
    """Each key exists and has a reason. A single file of a folder that is left out may run."""
    folders = {f"tests/{path.parent.name}" for path in ROOT.glob("tests/*/test_*.py")}
    listed = table["run"] | table["left_out"]

    assert folders == {key for key in listed if not key.endswith(".py")}
    assert [key for key in listed if not (ROOT / key).exists() or not listed[key]] == []
    assert table["run"].keys() & table["left_out"].keys() == set()


def test_packages_that_import_modules_that_differ_between_pythons_run_with_a_newer_python(
    table: dict[str, Any],
) -> None:
    """Some of their tests run with a newer Python, or the demo covers them."""
    runs = {f"tests/{Path(key).parts[1]}" for key in table["run"]}
    differing: dict[str, set[str]] = {}
    for source in SOURCES:
        for path in (ROOT / source).rglob("*.py"):
            room = "/".join(path.relative_to(ROOT).parts[:2])
            differing.setdefault(room, set()).update(imported(path) & table["modules"].keys())
    rooms = {room for room, modules in differing.items() if modules and (ROOT / room).is_dir()}

    assert {room.partition("/")[0] for room in rooms} == set(SOURCES)  # the control
    assert (
        sorted(room for room in rooms if folder_of(room) not in runs and room not in table["by_the_demo"]["rooms"])
        == []
    )
