"""Tests of `aileron doctor AGENT`: what it checks, in order, and where it stops."""

from __future__ import annotations

import pytest

from tests.cli.command import Said
from tests.launch.desk import NAMES, Desk


def states(said: Said) -> list[tuple[str, str]]:
    """Return the name and state of each check."""
    return [(check["name"], check["state"]) for check in said.json["checks"]]


@pytest.mark.parametrize("name", NAMES)
def test_all_four_checks_of_doctor_pass_for_every_agent(desk: Desk, name: str) -> None:
    """The tools are listed. The agent itself runs only with `--version`, and the session of the check has ended."""
    said = desk.aileron("doctor", name, "--json", STAND_IN="version")
    found = {check["name"]: check["found"] for check in said.json["checks"]}
    session = desk.sessions()[0]

    assert said.code == 0, said
    assert states(said) == [("configured", "ok"), ("started", "ok"), ("tools", "ok"), ("call", "ok")]
    assert str(desk.path / "bin" / name) in found["configured"]
    assert "stand-in 1.0" in found["configured"]
    assert "list_pending" in found["tools"]
    assert found["call"] == "list_pending: Nothing that you asked for waits for a person. Go on."
    assert (session["agent"], session["status"]) == (name, "ended")


def test_doctor_stops_at_a_missing_agent(desk: Desk) -> None:
    """The fix is the command that installs it; no session is made."""
    before = len(desk.sessions())
    said = desk.aileron("doctor", "claude", "--json", PATH="/usr/bin:/bin").exits(1)
    assert states(said) == [("configured", "bad")]
    assert said.json["checks"][0]["fix"] == "npm install -g @anthropic-ai/claude-code"
    assert len(desk.sessions()) == before


def test_doctor_stops_at_an_agent_that_does_not_start(desk: Desk) -> None:
    """The check names the exit code."""
    said = desk.aileron("doctor", "claude", "--json", STAND_IN="exit:4")

    assert states(said) == [("configured", "bad")]
    assert "ended with 4" in said.json["checks"][0]["found"]


def test_doctor_notes_a_model_address_that_bypasses_the_gateway(desk: Desk) -> None:
    """Such an address bypasses the gateway, but that is no failure."""
    said = desk.aileron(
        "doctor", "claude", "--json", STAND_IN="version", ANTHROPIC_BASE_URL="https://proxy.example.com"
    ).exits(0)
    assert states(said)[:2] == [("configured", "ok"), ("configured", "note")]


def test_doctor_notes_a_locked_vault(desk: Desk) -> None:
    """Actions work while it is locked, but requests to the model do not."""
    desk.daemon.unlock()
    before = desk.aileron("doctor", "claude", "--json", STAND_IN="version")
    desk.daemon.must("POST", "/v1/vault/lock")
    said = desk.aileron("doctor", "claude", "--json", STAND_IN="version")
    desk.daemon.unlock()
    notes = [check for check in said.json["checks"] if check["state"] == "note"]

    assert ("vault", "note") not in states(before)
    assert said.code == 0
    assert [(note["name"], note["fix"]) for note in notes] == [("vault", "aileron vault unlock")]
    assert states(said)[-1] == ("call", "ok")


def test_doctor_prints_one_line_for_each_check(desk: Desk) -> None:
    """The output looks like that of `aileron doctor`."""
    said = desk.at_terminal("doctor", "codex", STAND_IN="version")

    assert [line.split()[1] for line in said.out.splitlines() if "  " in line and not line.startswith(" ")] == [
        "configured",
        "started",
        "tools",
        "call",
    ]


def test_doctor_refuses_the_option_program_without_an_agent_and_the_name_of_an_unknown_agent(desk: Desk) -> None:
    """`doctor --program` without an agent, and an unknown agent, are usage errors."""
    assert desk.aileron("doctor", "--program", "/bin/true").code == 2
    assert desk.aileron("doctor", "emacs").code == 2
