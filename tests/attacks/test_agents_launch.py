"""Attacks of a launched agent that looks for secrets: in arguments and environments of every process, descriptors, and files.

A program in an agent's place looks around as the agent could. Its own token, which it is meant to have, is the control.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.attacks.tally import Attack
from tests.launch.desk import Desk
from tests.support.home import PASSPHRASE, DaemonHome, daemon_home

pytestmark = pytest.mark.jail
_LOOKS_ROUND: Final = """\
import json, os, pathlib
def read(path):
    try:
        return pathlib.Path(path).read_bytes().decode("utf-8", "backslashreplace")
    except OSError:
        return ""
pids = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
look = {
    "descriptors": {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2
                    and os.path.exists(f"/proc/self/fd/{fd}")},
    "arguments": {pid: read(f"/proc/{pid}/cmdline") for pid in [*pids, "self"]},
    "environments": {pid: read(f"/proc/{pid}/environ") for pid in pids},
    "own": dict(os.environ),
    "parent": os.getppid(),
}
pathlib.Path(os.environ["LOOK"]).write_text(json.dumps(look))
"""


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """A home with a vault, and the key of a model in it."""
    with daemon_home() as made:
        made.configure('[gateway.upstreams]\nanthropic = { url = "http://127.0.0.1:9", secret = "pw" }\n')
        made.unlock()
        yield made


@pytest.fixture
def desk(home: DaemonHome, tmp_path: Path) -> Desk:
    """Return the place where agents are launched."""
    return Desk(tmp_path, home)


def looked_round(desk: Desk, name: str, folder: bytes | None = None) -> dict[str, Any]:
    """Launch an agent of this name, and return what it sees."""
    program, found = desk.path / "look.py", desk.path / "look.json"
    program.write_text(_LOOKS_ROUND, encoding="utf-8")
    agent = desk.path / "bin" / name
    agent.write_text(f"#!/bin/sh\nexec /usr/bin/env python3 -I {program}\n", encoding="utf-8")
    desk.aileron("launch", name, folder=folder, LOOK=str(found), AILERON_VAULT_PASSPHRASE=PASSPHRASE).exits(0)
    look: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    return look


@pytest.mark.abuse_case("A24")
@pytest.mark.parametrize("name", ["claude", "codex", "opencode", "goose", "pi"])
def test_a_launched_agent_finds_no_secret_in_processes_descriptors_or_files(
    name: str, desk: Desk, attack: Attack
) -> None:
    """Other processes' arguments and environments hold no token or passphrase, and the agent inherits no descriptor of
    ours.
    """
    look = looked_round(desk, name)
    token = look["own"]["AILERON_SESSION_TOKEN"]
    arguments, environments = look["arguments"], look["environments"]
    attack.denied("the token, in arguments", [], [pid for pid, words in arguments.items() if token in words])
    attack.denied("any token, in arguments", [], re.findall(r"ail_[A-Za-z0-9_-]{43}", "".join(arguments.values())))
    attack.denied(
        "the token, in another's environment", [], [pid for pid, found in environments.items() if token in found]
    )
    attack.denied(
        "the passphrase, in its own environment", [], [key for key, value in look["own"].items() if PASSPHRASE in value]
    )
    attack.denied("the passphrase, in its launcher's", False, PASSPHRASE in environments[str(look["parent"])])
    ours = [at for at in look["descriptors"].values() if "pidfd" in at or ".sock" in at or str(desk.daemon.path) in at]
    attack.denied("a descriptor of the launcher's", [], ours)
    left = [path for path in desk.path.rglob("*") if path.is_file() and path.name not in {"look.py", "look.json", name}]
    attack.denied("the token, in a file", [], [path for path in left if token.encode() in path.read_bytes()])
    attack.control("its launcher could be read", True, "LOOK=" in environments[str(look["parent"])])
    attack.control("its own token", True, re.fullmatch(r"ail_[A-Za-z0-9_-]{43}", token) is not None)


@pytest.mark.abuse_case("A24")
def test_a_hostile_folder_name_is_escaped_where_sessions_are_shown(desk: Desk, attack: Attack) -> None:
    """Terminal sequences, a line break and a title in the name are escaped for a person, and complete for a program."""
    name = "\x1b[2J\x1b]0;own\x07\nses-forged\tclaude\u202e\u200b"
    folder = os.fsencode(desk.path) + b"/" + name.encode()
    os.mkdir(folder)
    looked_round(desk, "pi", folder=folder)
    (newest, *_) = desk.sessions()
    shown = {
        "list": desk.aileron("sessions", "list").out,
        "list, at a terminal": desk.at_terminal("sessions", "list", NO_COLOR="1").out,
        "show": desk.aileron("sessions", "show", newest["id"]).out,
        "show, at a terminal": desk.at_terminal("sessions", "show", newest["id"], NO_COLOR="1").out,
    }
    for where, words in shown.items():
        obeyed = [sign for sign in ("\x1b[2J", "\x1b]0", "\x07", "\u202e", "\u200b") if sign in words]
        attack.denied(f"a terminal, by {where}", [], obeyed)
        attack.denied(f"a line, by {where}", [], [line for line in words.splitlines() if line.startswith("ses-forged")])
        attack.control(f"its session, in {where}", True, newest["id"][-8:] in words)
    attack.control("the name itself", True, newest["folder"].endswith(name))
