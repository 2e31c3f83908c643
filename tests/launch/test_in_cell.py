"""Tests of `aileron launch --jail` in a real cell, with a shell in the agent's place and a real daemon."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import stat
import sys
from pathlib import Path

import pytest

from aileron.model.placeholder import CELL_PLACEHOLDER
from tests.cli.command import Command
from tests.launch.desk import NAMES, Desk
from tests.support.home import daemon_home

pytestmark = pytest.mark.jail


def look(desk: Desk, script: str, *options: str, agent: str = "claude", **environment: str) -> str:
    """Return the output of a shell in the agent's place, in a cell; it must exit with 0."""
    program = desk.path / "shell"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    said = desk.aileron("launch", agent, "--jail", "--program", str(program), *options, variables=environment).exits(0)
    return said.out


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_in_a_cell_has_a_session_without_its_token(desk: Desk, name: str) -> None:
    """The agent gets only a placeholder; the session ends with the agent's exit code."""
    program = desk.path / "agent"
    program.write_text("#!/bin/sh\nenv\nexit 7\n")
    program.chmod(0o755)
    said = desk.aileron("launch", name, "--jail", "--program", str(program), "--allow-host", "crates", "--", "run")
    session = desk.sessions()[0]

    assert said.code == 7, said
    assert (session["agent"], session["folder"], session["exit_code"]) == (name, str(desk.folder), 7)
    assert session["cell"]["hosts"] == ["crates.io", "index.crates.io", "static.crates.io"]
    assert f"AILERON_SESSION_TOKEN={CELL_PLACEHOLDER}" in said.out
    assert said.out.count("ail_") == said.out.count(CELL_PLACEHOLDER)


@pytest.mark.parametrize("name", NAMES)
def test_tools_can_be_injected_into_the_model_requests_of_a_cell(desk: Desk, name: str) -> None:
    """The connection identifies the session, so the address needs no token. A base URL of the person's is refused."""
    program = _shell(desk, 'env; printf "%s\\n" "$@"')
    said = desk.aileron("launch", name, "--jail", "--inject", "--program", program).exits(0)
    assert desk.sessions()[0]["inject"] is True
    assert said.out.count("ail_") == said.out.count(CELL_PLACEHOLDER)
    if name == "claude":
        elsewhere = {"ANTHROPIC_BASE_URL": "https://llm.example.com"}
        refused = desk.aileron("launch", name, "--jail", "--inject", "--program", program, variables=elsewhere)
        assert (refused.code, "ANTHROPIC_BASE_URL is set" in refused.err, refused.out) == (2, True, "")


def test_the_persons_home_directory_in_a_cell_shows_only_the_agents_files(desk: Desk) -> None:
    """Positive control: the same shell outside a cell reads the secrets."""
    person = desk.path / "person"
    for name in (".ssh/id_ed25519", ".aws/credentials", "letter.txt"):
        (person / name).parent.mkdir(exist_ok=True)
        (person / name).write_text("secret")
    script = "ls -A ~; cat ~/.ssh/id_ed25519 ~/letter.txt || true"
    outside = desk.aileron("launch", "claude", "--no-jail", "--program", _shell(desk, script))

    assert "secret" in outside.out
    assert look(desk, script).split() == [".claude", ".claude.json"]


def test_ailerons_home_in_a_cell_has_only_sockets(desk: Desk) -> None:
    """Vault and ledger are not there, and the path of the real home is empty."""
    found = look(desk, f'find "$AILERON_HOME" -type f; find "$AILERON_HOME" -type s; ls {desk.daemon.path} || true')

    assert sorted(found.split()) == ["/run/aileron/run/agent.sock", "/run/aileron/run/mcp.sock"]
    assert (desk.daemon.path / "run" / "mcp.sock").exists()


def test_a_project_in_a_cell_is_writable_unless_the_read_only_option_is_given(desk: Desk) -> None:
    """Each command runs with and without the option."""
    script = "echo x > made && echo written || echo refused"

    assert look(desk, script, "--read-only") == "refused\n"
    assert not (desk.folder / "made").exists()
    assert look(desk, script) == "written\n"
    assert (desk.folder / "made").read_text() == "x\n"


def test_a_socket_in_the_project_connects_to_no_program_outside_of_the_cell(desk: Desk) -> None:
    """/proc has no path for a socket with a relative or changed name, so it is hard to find. Outside, both connect."""
    script = (
        "import socket\n"
        "for name in ('relative.sock', 'renamed.sock'):\n"
        "    with socket.socket(socket.AF_UNIX) as made:\n"
        "        try: made.connect(name); print('connected')\n"
        "        except OSError as error: print(error.errno)\n"
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(desk.folder))
        for name in ("relative.sock", str(desk.folder / "absolute.sock")):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(name)
            listener.listen()
        os.rename("absolute.sock", "renamed.sock")
        command = f'exec {sys.executable} -c "{script}"'
        outside = desk.aileron("launch", "claude", "--no-jail", "--program", _shell(desk, command))
        inside = look(desk, command)

    assert outside.out == "connected\nconnected\n"
    assert inside == f"{errno.EACCES}\n{errno.EACCES}\n"


def test_a_cell_can_use_at_most_half_of_the_users_inotify_instances(desk: Desk) -> None:
    """Inotify instances are counted per user, so an agent could otherwise blind the person's editor."""
    most = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    script = (
        f"import ctypes\nlibc = ctypes.CDLL(None)\nprint(sum(libc.inotify_init1(0) >= 0 for _ in range({most} + 8)))\n"
    )

    assert 0 < int(look(desk, f'exec {sys.executable} -c "{script}"')) <= most // 2


def test_a_project_in_a_cell_has_its_python_its_ignored_files_and_a_host_name_that_resolves(desk: Desk) -> None:
    """The virtual environment has its Python, git ignores the same files, and the machine's name resolves."""
    person = desk.path / "person"
    python = person / ".local/share/uv/python/cpython-3/bin/python3"
    for path, text in ((python, ""), (person / ".config/git/ignore", "*.local\n"), (desk.folder / "env.local", "")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copy(os.path.realpath("/usr/bin/python3"), python)
    (person / "python3").symlink_to(python)
    scripts = desk.folder / ".venv" / "bin"
    scripts.mkdir(parents=True)
    (scripts / "python").symlink_to(person / "python3")
    (desk.folder / ".venv" / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    script = "getent hosts $(hostname); .venv/bin/python -c 'print(7)'; git init -q .; git status --porcelain"

    assert look(desk, script).split() == ["127.0.0.1", "localhost", "cell", "7", "??", ".venv/"]


def test_an_overlay_keeps_the_project_as_it_was(desk: Desk) -> None:
    """The agent sees what it wrote; the project does not have it."""
    (desk.folder / "there").write_text("before")
    found = look(desk, "echo after > there; echo x > made; cat there made", "--overlay")

    assert found == "after\nx\n"
    assert (desk.folder / "there").read_text() == "before"
    assert not (desk.folder / "made").exists()


def test_allowed_folders_and_variables_are_in_the_cell(desk: Desk) -> None:
    """The options allow a folder to be read, one to be written, and a variable."""
    read, write = desk.path / "read", desk.path / "write"
    for folder in (read, write):
        folder.mkdir()
        (folder / "file").write_text("there\n")
    script = f"cat {read}/file {write}/file; echo new > {write}/new; echo new > {read}/new || true; echo $MINE"
    options = ["--allow-read", str(read), "--allow-write", str(write), "--allow-env", "MINE"]

    assert look(desk, script, *options, MINE="mine") == "there\nthere\nmine\n"
    assert (write / "new").exists()
    assert not (read / "new").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user cannot read it outside either")
def test_a_file_that_only_root_can_read_is_masked_for_root(desk: Desk) -> None:
    """An agent that is root by number in the cell could read it otherwise."""
    assert Path("/etc/shadow").read_bytes()

    assert look(desk, "cat /etc/shadow >&2 && echo read || echo refused; cat /etc/passwd > /dev/null && echo read") == (
        "refused\nread\n"
    )


def test_the_agents_own_files_are_created_private_and_kept_after_the_session(desk: Desk) -> None:
    """They are made with the agent's own permissions, for no other user; what it writes into them stays."""
    person = desk.path / "person"
    look(desk, "true")
    assert (person / ".claude.json").read_text() == "{}\n"
    told = desk.aileron("sessions", "changes").out
    assert "/.claude.json\n" not in told  # made for the agent, not by it

    look(desk, "echo x > ~/.claude/x; echo new > ~/.claude.json; echo x > ~/gone")
    assert "/.claude.json\n" in desk.aileron("sessions", "changes").out
    assert (person / ".claude" / "x").exists()
    assert (person / ".claude.json").read_text() == "new\n"
    assert not (person / "gone").exists()
    assert stat.S_IMODE((person / ".claude").stat().st_mode) == 0o700
    assert stat.S_IMODE((person / ".claude.json").stat().st_mode) == 0o600


def test_the_registered_mcp_server_works_in_a_cell(desk: Desk) -> None:
    """The agent's configuration starts it as outside; the daemon knows the session by the cell's socket."""
    desk.daemon.install_probe()
    desk.daemon.add_probe_action("give_back", "text:string", name="give-back")
    desk.daemon.add_probe_action("give_back", "text:string", name="not-selected")
    desk.record_file = desk.folder / "record.json"
    names = ("STAND_IN", "STAND_IN_RECORD")
    options = ["--allow-read", str(Path(__file__).parent), *(word for name in names for word in ("--allow-env", name))]
    desk.aileron(
        "launch",
        "opencode",
        "--jail",
        "--only",
        "give-*",
        *options,
        STAND_IN="mcp",
        STAND_IN_RECORD=str(desk.record_file),
    ).exits(0)
    initialized, listed = desk.record["mcp"]
    tools = [tool["name"] for tool in listed["result"]["tools"]]

    assert initialized["result"]["serverInfo"]["name"] == "aileron"
    assert "give_back" in tools
    assert "not_selected" not in tools
    assert desk.record["of_parent"] is None


def test_an_action_can_be_run_by_command_in_a_cell(desk: Desk) -> None:
    """`aileron run` uses the cell's own socket, so the run belongs to its session."""
    desk.daemon.install_probe()
    desk.daemon.add_probe_action("give_back", "text:string", name="by-command")
    desk.daemon.unlock()
    desk.daemon.bind_probe()
    found = look(desk, f"{sys.executable} -m aileron run by-command text=hello")

    assert "hello" in found
    assert desk.sessions()[0]["runs"] == 1


def test_aileron_commands_in_a_cell_show_only_the_actions_of_its_session(desk: Desk) -> None:
    """`action list` shows only the session's actions; outside, as a control, it shows all."""
    desk.daemon.install_probe()
    for name in ("give-back", "not-selected"):
        desk.daemon.add_probe_action("give_back", "text:string", name=name)
    command = f"{sys.executable} -m aileron"
    script = f"{command} action list && {command} action show give-back --json && {command} status --json"
    found = look(desk, script, "--only", "give-*")
    listed, _, rest = found.partition("{")
    shown, end = json.JSONDecoder().raw_decode("{" + rest)
    status = json.loads(("{" + rest)[end:])

    assert "give-back" in listed
    assert "not-selected" not in listed
    assert "not-selected" in desk.aileron("action", "list").out
    assert shown["name"] == "give-back"
    assert status["pid"] == desk.daemon.daemon_pid


@pytest.mark.parametrize(
    ("named", "more"),
    [
        ("vault unlock", ""),
        ("action add", "FILE"),
        ("sessions list", ""),
        ("console", ""),
        ("launch", "claude"),
        ("doctor", ""),
        ("config get", ""),
        ("approve", "x"),
    ],
)
def test_commands_of_the_person_are_refused_in_a_cell(desk: Desk, named: str, more: str) -> None:
    """The error with a fix comes before any prompt, file or daemon start; `--help` still works."""
    command = f"{sys.executable} -m aileron {named} {more}"
    found = look(desk, f"{command} 2>&1; echo code $?; {command} --help")
    error, why, fix, code, *usage = found.strip().splitlines()

    assert error == f"error: `aileron {named}` does not work in a cell, as it is for the person who started the agent"
    assert "aileron action list" in why
    assert fix == f"  fix: run `aileron {named}` in a terminal outside the cell"
    assert code == "code 6"
    assert any(line.strip().startswith(f"Usage: aileron {named}") for line in usage)


def test_no_approval_is_prompted_for_at_a_terminal_in_a_cell(desk: Desk) -> None:
    """The person would type the passphrase to the agent: the command says where to decide instead."""
    desk.daemon.install_probe()
    desk.daemon.add_probe_action("give_back", "text:string", name="gated", gated=True)
    command = f"{sys.executable} -m aileron run gated text=x"
    outside = desk.at_terminal("run", "gated", "text=x", answers=[("?", "\x03")])
    inside = desk.at_terminal("launch", "claude", "--jail", "--program", _shell(desk, f"{command}; echo code $?"))

    assert "code 75" in inside.out
    assert "aileron approve act-" in inside.out
    assert ("from the agent, not checked" in outside.out, "from the agent, not checked" in inside.out) == (True, False)


def test_cell_settings_in_the_configuration_apply_to_every_launch(tmp_path: Path) -> None:
    """A setting can also make launches use a cell without an option."""
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "file").write_text("there\n")
    with daemon_home() as home:
        settings = f'allow_read = ["{shown}"]\nallow_hosts = ["go"]\nallow_env = ["MINE"]\nask_hosts = false\n'
        home.configure(f"[launch]\njail = true\n[launch.cell]\n{settings}")
        home.ask("GET", "/healthz")
        desk = Desk(tmp_path, home)
        script = f"cat {shown}/file; echo $MINE"
        said = desk.aileron("launch", "claude", "--program", _shell(desk, script), MINE="mine")
        session = desk.sessions()[0]

    assert said.code == 0, said
    assert said.out.split()[:2] == ["there", "mine"]
    assert session["cell"] == {"hosts": ["proxy.golang.org", "sum.golang.org"], "ask": False}


def test_a_program_that_cannot_be_executed_ends_the_session(desk: Desk) -> None:
    """The reason is the kernel's."""
    program = desk.path / "not-a-program"
    program.write_bytes(b"\x7fELF nothing")
    program.chmod(0o755)
    said = desk.aileron("launch", "claude", "--jail", "--program", str(program)).exits(1)
    assert "cannot start" in said.err
    assert desk.sessions()[0]["status"] == "ended"


def test_doctor_reports_that_cells_work(desk: Desk) -> None:
    """The check names the layers of a cell that it made."""
    said = desk.aileron("doctor", "--json")
    (row,) = [check for check in json.loads(said.out)["checks"] if check["name"] == "cells"]

    assert row["state"] == "ok"
    assert "pivoted-root" in row["found"]
    assert "seccomp:cell" in row["found"]


LATE = {"aileron.cell.compare", "aileron.cell.executes"}
"""Modules that read changes."""
NEEDLESS = {
    *("aileron.cell.git_config", "aileron.cell.terminal_filter", "aileron.cell.overlay", "aileron_sandbox.jail"),
    *("secrets", "random", "asyncio", "tempfile", "hashlib", "_hashlib"),
}
"""Modules that an agent needs neither without a terminal and an overlay nor if it changes no file."""


def test_an_agent_in_a_cell_starts_before_modules_needed_later_are_imported(desk: Desk) -> None:
    """Modules that list changes load after its end; those for a terminal or an overlay only if needed."""
    program = [sys.executable, "-X", "importtime", "-m", "aileron"]
    command = Command(desk.daemon.path, folder=str(desk.folder), program=program)
    agent = _shell(desk, "echo the agent is here >&2")
    said = command("launch", "claude", "--jail", "--program", agent, **desk.environment)
    lines = [line.rpartition("|")[2].strip() for line in said.err.splitlines()]
    begun = lines.index("the agent is here")
    before, after = set(lines[:begun]), set(lines[begun:])

    assert said.code == 0, said
    assert "aileron.cell.attend" in before
    assert (before & {*LATE, *NEEDLESS}, after & LATE, after & NEEDLESS) == (set(), LATE, set())


def _shell(desk: Desk, script: str) -> str:
    program = desk.path / "outside"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)
