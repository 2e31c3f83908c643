"""Tests of `aileron launch` options for cells: what is refused before anything starts, and what `--explain` shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aileron.model.host_pattern import parse_host_patterns
from aileron.model.host_presets import HOST_PRESETS, resolved_hosts
from tests.launch.desk import Desk


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--no-jail", "--read-only"], "--read-only requires --jail"),
        (["--no-jail", "--allow-host", "npm"], "--allow-host requires --jail"),
        (["--dry-run", "--overlay"], "--overlay requires --jail"),
        (["--jail", "--read-only", "--overlay"], "cannot be used together"),
        (["--jail", "--allow-host", "npmm"], "neither a host nor a preset"),
        (["--jail", "--allow-host", "10.0.0.1"], "is an address"),
        (["--jail", "--allow-host", "*.com"], "too wide"),
        (["--jail", "--allow-env", "A=B"], "not the name of a variable"),
        (["--jail", "--publish", "http"], "is not a port"),
        (["--jail", "--dry-run"], "without a cell"),
        (["--explain", "--no-jail"], "--explain is about a cell"),
        (["--jail", "--allow-read", "nowhere"], "no such file"),
    ],
)
def test_a_launch_with_an_invalid_option_starts_nothing(desk: Desk, options: list[str], why: str) -> None:
    """The command exits with a usage error that has a reason and a fix; no session or agent is started."""
    before = len(desk.sessions())
    said = desk.aileron("launch", "claude", *options).exits(2)
    assert why in said.err
    assert "fix: " in said.err
    assert len(desk.sessions()) == before
    assert not desk.record_file.exists()


def test_a_cell_option_without_a_cell_is_refused(desk: Desk) -> None:
    """The settings choose no cells and nobody can be asked, so the option would only seem to protect."""
    said = desk.aileron("launch", "claude", "--read-only").exits(2)
    assert "--read-only requires --jail" in said.err
    assert not desk.record_file.exists()


@pytest.mark.jail
def test_explain_shows_the_cell_and_starts_nothing(desk: Desk) -> None:
    """The output shows what the agent would see and reach; no session, agent or file is created."""
    shown = desk.path / "shown"
    shown.mkdir()
    before = len(desk.sessions())
    options = ["--read-only", "--allow-read", str(shown), "--allow-host", "pypi", "--allow-host", "*.example.com:8443"]
    said = desk.aileron("launch", "claude", "--explain", "--json", *options, "--allow-env", "MINE", MINE="value")
    found = json.loads(said.out)

    assert said.code == 0, said.err
    assert found["project"] == {"path": str(desk.folder), "access": "read-only"}
    assert str(shown) in found["readable"]
    assert found["writable"] == [str(desk.path / "person" / ".claude"), str(desk.path / "person" / ".claude.json")]
    assert found["hosts"] == ["pypi.org", "files.pythonhosted.org", "*.example.com:8443"]
    assert found["environment"]["MINE"] == "value"
    assert found["environment"]["AILERON_HOME"] == "/run/aileron"
    assert {"user-ns", "net-ns", "pivoted-root", "no-new-privs"} <= set(found["layers"])
    assert len(desk.sessions()) == before
    assert not desk.record_file.exists()
    assert list((desk.path / "person").iterdir()) == []


@pytest.mark.jail
def test_the_text_output_of_explain_omits_the_values_of_variables(desk: Desk) -> None:
    """The lines omit the values of variables, which can be secrets."""
    said = desk.aileron("launch", "codex", "--explain", OPENAI_API_KEY="sk-canary").exits(0)
    assert f"{desk.folder} (writable)" in said.out
    assert "OPENAI_API_KEY" in said.out
    assert "sk-canary" not in said.out + said.err
    assert "codex's own sandbox is off" in said.out


@pytest.mark.parametrize("preset", HOST_PRESETS)
def test_every_preset_is_a_list_of_canonical_https_hosts(preset: str) -> None:
    """Each host is in its canonical spelling, at the port of HTTPS."""
    hosts = resolved_hosts([preset])

    assert [str(pattern) for pattern in parse_host_patterns(hosts)] == list(hosts)


def test_the_presets_are_documented_with_their_hosts() -> None:
    """Each preset is listed with its hosts."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")

    for preset, hosts in HOST_PRESETS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{preset}` |")]
        assert all(f"`{host}`" in row for host in hosts), preset
