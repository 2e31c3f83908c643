"""The official conformance suite of the Model Context Protocol, run against an address, and what it found.

    run = judged(tools, "http://127.0.0.1:4711/mcp", folder, "2026-07-28")
    assert run.code == 0, run.said
    code, said, scenario = relayed(tools, folder, "http-standard-headers", "2026-07-28")     # the suite as the server

`expected.toml` says which checks fail, each with its reason; the suite gets them as its baseline, and fails for a check
that fails without being listed, and for a listed one that passes. It runs scenarios that do not count for a revision
(`unscored`), and does not judge them.

Source: the suite's README ("Expected Failures", "Conformance Requirements"). Not here: what is served (home.py), the page it
fills (page.py).
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Final, Literal

from tests.conformance.install import Tools

__all__ = [
    "EXPECTED",
    "EXPECTED_OF_RELAY",
    "RELAYED",
    "REVISIONS",
    "WHY",
    "Check",
    "Run",
    "Scenario",
    "baseline",
    "judged",
    "ran",
    "relayed",
]

REVISIONS: Final = ("2025-11-25", "2026-07-28")
"""The requirement sets of the suite; each runs over the wire of its own revision."""
RELAYED: Final = (
    ("initialize", "2025-11-25"),
    ("tools_call", "2025-11-25"),
    ("sse-retry", "2025-11-25"),
    ("tools_call", "2026-07-28"),
    ("request-metadata", "2026-07-28"),
    ("http-standard-headers", "2026-07-28"),
    ("http-custom-headers", "2026-07-28"),
    ("http-invalid-tool-headers", "2026-07-28"),
    ("json-schema-ref-no-deref", "2026-07-28"),
)
"""The scenarios of the sets for a client, except elicitation and authorization of a client, in which Aileron has no part."""
_ROOT: Final = Path(__file__).resolve().parents[2]
_RUN_S: Final = 100.0
"""Seconds for one set; measured: 3 to 5 s."""
_MARKS: Final = re.compile(r"\x1b\[[0-9;]*m")
_FOLDER: Final = re.compile(r"(?:server-)?(?P<scenario>.+?)-\d{4}-\d\d-\d\dT[\d-]+Z")
_UNSCORED: Final = re.compile(r"^ *- scenario: (?P<scenario>\S+)\n *leg: server\n *reason: (?P<why>\S+)$", re.MULTILINE)

_REASONS: Final = tomllib.loads((Path(__file__).parent / "expected.toml").read_text(encoding="utf-8"))
WHY: Final[dict[str, str]] = {reason: entry["why"] for reason, entry in _REASONS.items()}
"""The word for each reason, and why the check fails."""
EXPECTED: Final[dict[str, str]] = {check: reason for reason, entry in _REASONS.items() for check in entry["checks"]}
"""`SCENARIO:CHECK` → the word for the reason, for each check of the server that fails."""
EXPECTED_OF_RELAY: Final[dict[str, str]] = {
    check: reason for reason, entry in _REASONS.items() for check in entry.get("checks_of_the_relay", ())
}
"""`SCENARIO:CHECK` → the word for the reason, for each failing check with the suite as the server."""


@dataclasses.dataclass(frozen=True)
class Check:
    """A check of the suite. `status`: SUCCESS, FAILURE, WARNING, SKIPPED or INFO."""

    id: str
    status: str
    message: str


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A conversation of the suite. `unscored` says why it does not count (`extension`, `pending`, ...), or is ""."""

    name: str
    checks: tuple[Check, ...]
    unscored: str

    def count(self, status: str) -> int:
        """Return how many checks ended with this status."""
        return sum(check.status == status for check in self.checks)

    @property
    def failed(self) -> list[str]:
        """The checks that did not pass, as expected.toml spells them. Warnings are included, as they are by the suite."""
        return [f"{self.name}:{check.id}" for check in self.checks if check.status in ("FAILURE", "WARNING")]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of one requirement set. `code` is 0 if all is as expected; `said` is what the suite printed."""

    revision: str
    code: int
    said: str
    scenarios: dict[str, Scenario]


def judged(tools: Tools, url: str, folder: Path, revision: str) -> Run:
    """Run one requirement set against what is expected; `folder` is empty, and belongs to the suite from then on."""
    results = folder / "results"
    words = ("--requirements", revision, "--expected-failures", str(baseline(folder, EXPECTED)), "-o", str(results))
    code, said = ran(tools, url, folder, *words)
    required = (tools.suite.parents[1] / "requirements" / f"{revision}.yaml").read_text(encoding="utf-8")
    unscored = {found["scenario"]: found["why"] for found in _UNSCORED.finditer(required)}
    scenarios = [_scenario(path, unscored) for path in results.iterdir()] if results.is_dir() else []
    return Run(revision, code, said, {each.name: each for each in scenarios})


def ran(tools: Tools, url: str, folder: Path, *words: str) -> tuple[int, str]:
    """Run the suite with these options; return its exit code and what it printed, without colours."""
    return _started(tools, folder, "server", "--url", url, *words)


def relayed(tools: Tools, folder: Path, scenario: str, revision: str) -> tuple[int, str, Scenario]:
    """Run one scenario with the suite as server and a client on `aileron-mcp`; return exit code, what was printed, and checks."""
    words = ("--scenario", scenario, "--spec-version", revision, "-o", str(folder / "results"))
    expected = baseline(folder, EXPECTED_OF_RELAY, "client")
    command = f"{shlex.quote(sys.executable)} -m tests.conformance.client"
    code, said = _started(tools, folder, "client", "--command", command, "--expected-failures", str(expected), *words)
    (result,) = (folder / "results").iterdir()
    return code, said, _scenario(result, {})


def _started(tools: Tools, folder: Path, *words: str) -> tuple[int, str]:
    environment = {
        "AILERON_HOME": str(folder / "home"),
        "HOME": str(folder),
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "PYTHONPATH": str(_ROOT),
    }
    done = subprocess.run(
        [str(tools.node), str(tools.suite), *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_RUN_S,
    )
    return done.returncode, _MARKS.sub("", done.stdout + done.stderr)


def baseline(folder: Path, checks: Collection[str], role: Literal["server", "client"] = "server") -> Path:
    """Write the list of expected failures in the suite's own form: a YAML file, which JSON is."""
    path = folder / "expected.yml"
    path.write_text(json.dumps({role: sorted(checks)}), encoding="utf-8")
    return path


def _scenario(path: Path, unscored: dict[str, str]) -> Scenario:
    found = _FOLDER.fullmatch(path.name)
    assert found, f"the suite names its results in another way: {path.name}"
    checks = json.loads((path / "checks.json").read_text(encoding="utf-8"))
    return Scenario(
        name=found["scenario"],
        checks=tuple(Check(each["id"], each["status"], each.get("errorMessage") or "") for each in checks),
        unscored=unscored.get(found["scenario"], ""),
    )
