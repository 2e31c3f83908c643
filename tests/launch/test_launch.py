"""Tests of `aileron launch` as a person uses it: a stand-in for the agent, a real daemon, a pipe or a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.launch.desk import DEADLINE_S, NAMES, Desk
from tests.support.home import PASSPHRASE
from tests.support.waiting import end_of, wait_gone, wait_text, wait_until

_INJECTED = re.compile(r"https?://[a-z0-9.:]+/inject/[A-Za-z0-9_-]+")
_BASE_URLS = ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "ANTHROPIC_HOST", "OPENAI_HOST")


def tree(path: Path) -> dict[str, bytes]:
    """Return every file below a directory."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


# What the agent gets


@pytest.mark.abuse_case("A9")
@pytest.mark.parametrize("name", NAMES)
def test_a_session_ends_with_its_agents_exit_code(desk: Desk, name: str) -> None:
    """Agent, folder and exit code are on record; the token is in a variable and in no argument."""
    said = desk.aileron("launch", name, "--", "run", "it", STAND_IN="exit:7")
    record = desk.record
    session = desk.sessions()[0]
    token = record["environment"]["AILERON_SESSION_TOKEN"]

    assert said.code == 7, said
    assert (session["agent"], session["folder"], session["status"]) == (name, str(desk.folder), "ended")
    assert (session["exit_code"], session["reason"]) == (7, "ended")
    assert record["argv"][-1] == "it"
    assert token.startswith("ail_")
    assert token not in " ".join(record["argv"]) + said.out + said.err
    assert record["environment"]["AILERON_HOME"] == str(desk.daemon.path)


def test_a_token_works_until_the_agent_ends(desk: Desk) -> None:
    """Afterwards it is refused with the reason; while the agent ran it opened the session."""
    with desk.start("launch", "claude", STAND_IN="term") as launcher:
        token = desk.record["environment"]["AILERON_SESSION_TOKEN"]
        shown = {"Authorization": f"Bearer {token}"}
        during = desk.daemon.agent.request("GET", "/v1/actions", headers=shown)
        launcher.send_signal(signal.SIGTERM)
        launcher.communicate(timeout=DEADLINE_S)
    after = desk.daemon.agent.request("GET", "/v1/actions", headers=shown)

    assert (during.status, after.status) == (200, 401)
    assert after.body["error"]["class"] == "unauthorized"


def test_an_agent_gets_tools_from_the_registered_mcp_server(desk: Desk) -> None:
    """The agent starts the server with exactly the registered command and environment."""
    desk.aileron("launch", "opencode", STAND_IN="mcp")
    initialized, listed = desk.record["mcp"]

    assert initialized["result"]["serverInfo"]["name"] == "aileron"
    assert "list_pending" in [tool["name"] for tool in listed["result"]["tools"]]


def test_an_agent_sees_only_its_selected_actions(desk: Desk) -> None:
    """The session's record names the selection."""
    desk.daemon.install_probe()
    for name in ("give-back", "list-notes"):
        desk.daemon.add_probe_action("give_back", "text:string", name=name)
    try:
        desk.aileron("launch", "opencode", "--only", "list-*", "--only", "tag:notes", STAND_IN="mcp")
        _initialized, listed = desk.record["mcp"]
        tools = {tool["name"] for tool in listed["result"]["tools"]}
        said = desk.aileron("sessions", "show", desk.sessions()[0]["id"]).out
    finally:
        for name in ("give-back", "list-notes"):
            desk.daemon.must("DELETE", f"/v1/actions/{name}")

    assert "list_notes" in tools
    assert "give_back" not in tools
    assert desk.sessions()[0]["only"] == ["list-*", "tag:notes"]
    assert "only\tlist-*, tag:notes" in said


@pytest.mark.parametrize("command", [("launch", "claude"), ("sessions", "new", "--for", "1h")])
def test_an_invalid_selector_starts_nothing(desk: Desk, command: tuple[str, ...]) -> None:
    """A typing mistake must not give an agent every action."""
    before = len(desk.sessions())
    said = desk.aileron(*command, "--only", "tags:notes").exits(2)
    assert "--only: 'tags:notes' is not a selector: use tag:NAME, connector:FULL_NAME or an action's name" in said.err
    assert len(desk.sessions()) == before


@pytest.mark.abuse_case("A10")
def test_no_secret_of_ailerons_is_in_the_agents_environment(desk: Desk) -> None:
    """The environment of its parent, which it can read, has none either. The person's other variables stay."""
    secrets = {"AILERON_VAULT_PASSPHRASE": PASSPHRASE, "AILERON_SESSION_TOKEN": "ail_outer", "AILERON_OTHER": "o"}
    said = desk.aileron(
        "launch", "claude", is_exec_ed=True, variables=secrets, ANTHROPIC_API_KEY="sk-mine", LC_ALL="C.UTF-8"
    )
    record = desk.record
    ours = {name for name in record["environment"] if name.startswith("AILERON_")}

    assert said.code == 0, said
    assert ours == {"AILERON_HOME", "AILERON_SESSION_TOKEN"}
    assert record["environment"]["AILERON_SESSION_TOKEN"] != "ail_outer"
    assert record["environment"]["ANTHROPIC_API_KEY"] == "sk-mine"
    assert PASSPHRASE not in record["of_parent"]
    assert "STAND_IN_RECORD" in record["of_parent"]  # the agent could read it


@pytest.mark.abuse_case("A24")
def test_a_launch_changes_no_configuration_file_of_the_person(desk: Desk) -> None:
    """Every agent has a configuration of the person's beforehand, and two launches of one agent run at once."""
    person = desk.path / "person"
    for file in (".codex/config.toml", ".pi/agent/models.json", ".pi/agent/mcp.json", ".config/goose/config.yaml"):
        (person / file).parent.mkdir(parents=True, exist_ok=True)
        (person / file).write_text("# a comment\n", encoding="utf-8")
    before = tree(person)
    for name in NAMES:
        assert desk.aileron("launch", name, "--", "run").code == 0
    second = desk.path / "second.json"
    with (
        desk.start("launch", "pi", STAND_IN="term") as first,
        desk.start("launch", "pi", STAND_IN="term", STAND_IN_RECORD=str(second)) as other,
    ):
        records = [json.loads(wait_text(second, unless=end_of(other))), desk.record]
        tokens = [record["environment"]["AILERON_SESSION_TOKEN"] for record in records]
        for launcher in (first, other):
            launcher.send_signal(signal.SIGTERM)
            launcher.communicate(timeout=DEADLINE_S)

    assert tree(person) == before
    assert len(set(tokens)) == 2


@pytest.mark.parametrize(
    "name", [b"a b'c\"d", b"new\nline\x1b[31m", b"\xff\xfe", b"$(touch x)", b"--json"], ids=lambda name: ascii(name)
)
def test_an_agent_can_be_launched_in_a_folder_with_any_name(desk: Desk, name: bytes) -> None:
    """The agent works in it, and a list shows it without control characters."""
    folder = os.fsencode(desk.path) + b"/" + name
    os.mkdir(folder)
    said = desk.aileron("launch", "codex", folder=folder)
    listed = desk.aileron("sessions", "list").out.splitlines()[0]

    assert said.code == 0, said
    assert desk.record["folder"] == folder.decode("utf-8", "backslashreplace")
    assert "\x1b" not in listed
    assert listed.split("\t")[1] == "codex"


# The terminal


def test_the_agent_is_in_the_foreground_of_the_terminal_and_gets_ctrl_c(desk: Desk) -> None:
    """The agent is in the foreground; Ctrl-C goes to it and does not end the launcher."""
    said = desk.at_terminal("launch", "claude", answers=[("agent ready", "\x03")], STAND_IN="interrupt")

    assert desk.record["is_in_foreground"] is True
    assert "agent saw SIGINT" in said.out
    assert "interrupted" not in said.out
    assert said.code == 5, said
    assert desk.sessions()[0]["exit_code"] == 5


def test_ctrl_z_stops_agent_and_launcher_and_fg_continues_both(desk: Desk) -> None:
    """The shell sees the stop, and gets the exit code at the end."""
    launch = f"{sys.executable} -m aileron launch claude"
    shell = Command(desk.daemon.path, program=["bash", "--norc", "--noprofile", "--noediting", "-i"])
    said = shell.at_terminal(
        answers=[
            ("shell>", launch),
            ("agent ready", "\x1a"),
            ("Stopped", "fg"),
            ("agent saw SIGCONT", "echo code=$?"),
            ("code=4", "exit"),
        ],
        variables=desk.environment,
        STAND_IN="stop",
        PS1="shell>",
    )

    assert "code=4" in said.out
    assert desk.sessions()[0]["exit_code"] == 4


def test_the_launcher_sends_no_second_sigcont_to_an_agent_that_the_shell_continued(desk: Desk) -> None:
    """A second SIGCONT would make the agent redraw its screen over itself."""
    launch = f"{sys.executable} -m aileron launch claude"
    shell = Command(desk.daemon.path, program=["bash", "--norc", "--noprofile", "--noediting", "-i"])
    said = shell.at_terminal(
        answers=[
            ("shell>", launch),
            ("agent ready", "\x1a"),
            ("Stopped", "fg"),
            ("agent goes on", "\x03"),
            ("agent saw SIGINT", "exit"),
        ],
        variables=desk.environment,
        STAND_IN="interrupt",
        PS1="shell>",
    )

    assert "agent went on 1 times" in said.out


def test_the_launcher_passes_sigcont_on_to_an_agent_that_stopped_alone(desk: Desk) -> None:
    """SIGCONT is sent only to the launcher, which passes it on."""
    with desk.start("launch", "claude", STAND_IN="stop") as launcher:
        os.kill(desk.record["pid"], signal.SIGSTOP)
        os.waitid(os.P_PID, launcher.pid, os.WSTOPPED)
        launcher.send_signal(signal.SIGCONT)
        out, _ = launcher.communicate(timeout=DEADLINE_S)

    assert "agent saw SIGCONT" in out
    assert launcher.returncode == 4


def test_sigterm_to_the_launcher_reaches_the_agent(desk: Desk) -> None:
    """The launcher waits for it, and the session ends with its exit code."""
    with desk.start("launch", "goose", STAND_IN="term") as launcher:
        assert desk.record["pid"] != launcher.pid
        launcher.send_signal(signal.SIGTERM)
        out, _ = launcher.communicate(timeout=DEADLINE_S)

    assert "agent saw SIGTERM" in out
    assert launcher.returncode == 9
    assert desk.sessions()[0]["exit_code"] == 9


def test_a_launch_whose_agent_was_killed_by_a_signal_has_the_exit_code_that_a_shell_would_give(desk: Desk) -> None:
    """The exit code is 128 plus the signal's number."""
    assert desk.aileron("launch", "pi", STAND_IN=f"kill:{signal.SIGKILL}").code == 137
    assert desk.sessions()[0]["exit_code"] == 137


def test_a_terminal_left_raw_by_a_killed_agent_is_restored(desk: Desk) -> None:
    """The person can type again."""
    launch = f"{sys.executable} -m aileron launch claude; echo code=$?; stty -a"
    shell = Command(desk.daemon.path, program=["/bin/sh", "-c", launch])
    said = shell.at_terminal(variables=desk.environment, STAND_IN=f"raw:{signal.SIGKILL}")

    assert "code=137" in said.out
    assert " icanon" in said.out
    assert "-icanon" not in said.out


@pytest.mark.slow
def test_a_session_ends_when_its_launcher_is_killed(desk: Desk) -> None:
    """The daemon sees that its process is gone. No file needs to be restored, and the next launch works."""
    person = tree(desk.path / "person")
    with desk.start("launch", "pi", STAND_IN="wait") as launcher:
        agent = desk.record["pid"]
        session = desk.sessions()[0]["id"]
        launcher.kill()
        launcher.wait(DEADLINE_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(agent, signal.SIGKILL)
    wait_until(
        lambda: desk.daemon.must("GET", f"/v1/sessions/{session}")["status"] != "open",
        "the session of a killed one ends",
    )
    found = desk.daemon.must("GET", f"/v1/sessions/{session}")

    assert (found["status"], found["reason"], found["exit_code"]) == ("ended", "process gone", None)
    assert tree(desk.path / "person") == person
    assert desk.aileron("launch", "pi").code == 0


@pytest.mark.abuse_case("A42")
def test_a_daemonized_process_of_an_agent_stays_in_the_session(desk: Desk) -> None:
    """The launcher becomes its parent after a double fork, in place of process 1, and reaps it."""
    with desk.start("launch", "pi", STAND_IN="detach") as launcher:
        agent = desk.record["pid"]
        detached = Path(f"{desk.record_file}.detached")
        pid, parent = json.loads(wait_text(detached))
        found = [session["id"] for session in desk.daemon.must("GET", f"/v1/sessions?pid={pid}")["sessions"]]

        assert parent == launcher.pid
        assert found == [desk.sessions()[0]["id"]]
        os.kill(pid, signal.SIGKILL)
        wait_gone(pid)
        assert launcher.poll() is None
        os.kill(agent, signal.SIGKILL)
        launcher.communicate(timeout=DEADLINE_S)
    assert launcher.returncode == 128 + signal.SIGKILL


# The vault


def test_a_given_passphrase_opens_the_vault_before_the_agent_starts(desk: Desk) -> None:
    """A variable, a file or the person gives it; without it the agent still starts, and the command says how to unlock."""
    file = desk.path / "passphrase"
    file.write_text(PASSPHRASE + "\n")
    desk.daemon.unlock()
    began: list[bool] = []
    for words, given in (
        ((), {"AILERON_VAULT_PASSPHRASE": PASSPHRASE}),
        (("--passphrase-file", str(file)), {}),
        (("--no-gateway", "--passphrase-file", str(file)), {}),
        ((), {}),
    ):
        desk.daemon.must("POST", "/v1/vault/lock")
        said = desk.aileron("launch", "claude", *words, is_exec_ed=True, variables=given)
        began.append(desk.daemon.must("GET", "/v1/vault/status")["locked"])
        assert said.code == 0, said
    typed = desk.at_terminal("launch", "claude", answers=[("Its passphrase", PASSPHRASE)])
    began.append(desk.daemon.must("GET", "/v1/vault/status")["locked"])
    desk.daemon.must("POST", "/v1/vault/lock")
    desk.daemon.configure("[gateway]\nrequire_vault = false\n")
    unneeded = desk.aileron("launch", "claude")

    assert began == [False, False, False, True, False]
    assert "vault" not in unneeded.err
    assert "aileron vault unlock" in said.err
    assert typed.code == 0


def test_a_wrong_passphrase_starts_no_agent(desk: Desk) -> None:
    """The command creates no session either."""
    desk.daemon.unlock()
    desk.daemon.must("POST", "/v1/vault/lock")
    before = len(desk.sessions())
    said = desk.aileron("launch", "claude", AILERON_VAULT_PASSPHRASE="not this one")

    assert said.code != 0
    assert not desk.record_file.exists()
    assert len(desk.sessions()) == before


# Refusals


def test_a_missing_agent_is_reported(desk: Desk) -> None:
    """The error says what installs it, and no session is made."""
    before = len(desk.sessions())
    said = desk.aileron("launch", "goose", PATH="/usr/bin:/bin")

    assert (said.code, said.out) == (3, "")
    assert "goose is not installed" in said.err
    assert "npm install -g" in said.err
    assert len(desk.sessions()) == before


def test_an_unknown_agent_is_refused_with_the_known_names(desk: Desk) -> None:
    """The exit code is that of a usage error."""
    said = desk.aileron("launch", "emacs").exits(2)
    assert "claude, codex, opencode, goose, pi" in said.err


def test_a_program_that_does_not_start_ends_the_session(desk: Desk) -> None:
    """The error names the reason."""
    broken = desk.path / "broken"
    broken.write_text("#!/nonexistent/interpreter\n")
    broken.chmod(0o755)
    said = desk.aileron("launch", "claude", "--program", str(broken))
    newest = desk.sessions()[0]

    assert said.code == 1
    assert "cannot start" in said.err
    assert (newest["status"], newest["exit_code"]) == ("ended", None)
    assert desk.aileron("launch", "claude", "--program", "/nonexistent").code == 3


def test_an_unreadable_configuration_stops_the_launch(desk: Desk) -> None:
    """The agent does not start, and the session ends too."""
    said = desk.aileron("launch", "opencode", OPENCODE_CONFIG_CONTENT="{ // comment").exits(2)
    assert "OPENCODE_CONFIG" in said.err
    assert not desk.record_file.exists()
    assert desk.sessions()[0]["status"] == "ended"


# Tools injected into requests to the model


@pytest.mark.parametrize("name", [name for name in NAMES if name != "codex"])
def test_each_launch_with_injected_tools_has_a_model_address_of_its_own(desk: Desk, name: str) -> None:
    """The address is in the environment and not in an argument. A nested launch gets another one."""
    assert desk.aileron("launch", name, "--inject").code == 0
    record = desk.record
    web = desk.daemon.must("GET", "/v1/status")["web"]
    addresses = {found for value in record["environment"].values() for found in _INJECTED.findall(value)}

    assert {address.rpartition("/")[0] for address in addresses} == {f"{web}/inject"}
    (address,) = addresses
    assert address.rpartition("/")[2] not in " ".join(record["argv"])
    assert desk.sessions()[0]["inject"] is True
    desk.record_file.unlink()
    desk.aileron("launch", name, "--inject", **dict.fromkeys(_BASE_URLS, address))
    inner = {found for value in desk.record["environment"].values() for found in _INJECTED.findall(value)}
    assert inner - addresses


def test_tools_are_not_injected_for_an_agent_that_takes_the_address_as_an_argument(desk: Desk) -> None:
    """The address contains the token and every user can read arguments, so the launch fails and its session ends."""
    said = desk.aileron("launch", "codex", "--inject")

    assert (said.code, "every user of this machine can read" in said.err, "ail_" in said.err) == (2, True, False)
    assert not desk.record_file.exists()
    assert desk.sessions()[0]["status"] == "ended"


@pytest.mark.parametrize(
    ("words", "variables", "why"),
    [
        (("--no-gateway",), {}, "--no-gateway"),
        ((), {"ANTHROPIC_BASE_URL": "https://llm.example.com"}, "ANTHROPIC_BASE_URL is set"),
    ],
)
def test_injected_tools_require_the_gateway(
    desk: Desk, words: tuple[str, ...], variables: dict[str, str], why: str
) -> None:
    """The agent would have no actions at all without the gateway."""
    said = desk.aileron("launch", "claude", "--inject", *words, variables=variables)

    assert (said.code, why in said.err) == (2, True)
    assert not desk.record_file.exists()


# Dry runs


@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run_shows_the_launch_and_starts_nothing(desk: Desk, name: str) -> None:
    """The output has the command, the environment with a placeholder for the token, and the gateway; no session is made."""
    before = len(desk.sessions())
    shown = desk.aileron("launch", name, "--dry-run", "--json", "--", "run", AILERON_VAULT_PASSPHRASE=PASSPHRASE)
    as_text = desk.aileron("launch", name, "--dry-run", "--", "run").out
    web = desk.daemon.must("GET", "/v1/status")["web"]

    assert shown.code == 0, shown
    assert shown.json["environment"]["set"]["AILERON_SESSION_TOKEN"] == "<session token>"
    assert shown.json["command"][0] == str(desk.path / "bin" / name)
    assert shown.json["files"] == []
    assert web in shown.out
    assert web in as_text
    assert "files\tno files changed" in as_text
    assert PASSPHRASE not in shown.out + shown.err
    assert "ail_" not in shown.out + as_text
    assert len(desk.sessions()) == before
    assert not desk.record_file.exists()


def test_the_option_no_gateway_leaves_the_address_of_the_model_unset(desk: Desk) -> None:
    """A launch with the gateway sets it."""
    shown = [
        desk.aileron("launch", "claude", "--dry-run", "--json", *more).json["environment"]["set"]
        for more in ((), ("--no-gateway",))
    ]

    assert ["ANTHROPIC_BASE_URL" in variables for variables in shown] == [True, False]


def test_the_option_json_requires_the_option_dry_run(desk: Desk) -> None:
    """Otherwise the output is the agent's. Behind `--`, the option is the agent's too."""
    ours, theirs = desk.aileron("launch", "claude", "--json"), desk.aileron("launch", "emacs", "--", "--json")

    assert (ours.code, theirs.code) == (2, 2)
    assert ours.json["error"]["class"] == "invalid_request"
    assert theirs.out == ""
