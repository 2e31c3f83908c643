"""The README's commands from the setup to the audit trail, typed as they stand at a terminal, with a real calendar server.

The test gives the replies that the README's comments ask of a person, the id of the approval in place of `ID`, and tomorrow in
place of the README's day.
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.command import Answers, Command, Said
from tests.support.canary import scan
from tests.support.radicale import RadicaleServer
from tests.support.relay import Agent
from tests.support.serving import made_folder

pytestmark = [pytest.mark.jail, pytest.mark.slow]
ROOT: Final = Path(__file__).resolve().parents[2]
VAULT, APPROVER = "correct horse battery", "nine of swords, reversed"
SIGN: Final = ("Approver passphrase: ", APPROVER)
SETUP: Final[Answers] = [
    ("New vault passphrase: ", VAULT),
    ("again: ", VAULT),
    ("Create the approver's key? [y/N] ", "y"),
    ("New approver passphrase: ", APPROVER),
    ("again: ", APPROVER),
    ("Enter to go on): ", ""),
]
EVENT: Final = """\
BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//a person//EN
BEGIN:VEVENT
UID:dentist
DTSTAMP:20260101T000000Z
DTSTART:{day:%Y%m%d}T121500Z
DTEND:{day:%Y%m%d}T124500Z
SUMMARY:Dentist
END:VEVENT
END:VCALENDAR
"""
DAY: Final = "2027-03-01"
TOMORROW: Final = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1)
_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Provide the reader's folder; in a short path, because a socket's path is short."""
    with made_folder("reader-") as path:
        yield path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RadicaleServer]:
    """Start the reader's calendar server, with an event at the time of the README's."""
    with RadicaleServer(tmp_path / "radicale") as started:
        started.make_calendar("work", "Work")
        started.put("work/dentist.ics", EVENT.format(day=TOMORROW))
        yield started


def commands() -> list[str]:
    """Return what the README has a reader type to set Aileron up and to use a service, without the installation."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^## Two commands.*?(?=^## Before an agent gets it)", text, re.DOTALL | re.MULTILINE)
    assert found
    lines = [line for block in _BLOCK.findall(found[0]) for line in block.splitlines()]
    typed = [re.sub(r" {2,}# .*", "", line.removeprefix("$ ")) for line in lines]
    installs, others = typed[:1], [line for line in typed[1:] if not line.startswith("make ")]
    assert installs == ["uv tool install '.[demo]'"]
    assert any(DAY in line for line in others)
    return [line.replace(DAY, f"{TOMORROW}") for line in others]


def changes(server: RadicaleServer) -> list[tuple[str, str]]:
    """Return the requests that change something, after the event of the test."""
    (own, *others) = [(method, path) for method, path in server.requests() if method in ("PUT", "DELETE")]
    assert own == ("PUT", "/ada/work/dentist.ics")
    return others


class Reader:
    """A reader at a terminal, with `aileron` and no agent in PATH."""

    def __init__(self, folder: Path) -> None:
        self._path = f"{folder / 'bin'}:/usr/bin:/bin"
        (folder / "bin").mkdir()
        launcher = folder / "bin" / "aileron"
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aileron "$@"\n', encoding="utf-8")
        launcher.chmod(0o755)
        begin = ["bash", "--norc", "--noprofile", "-c", 'eval "$1"', "bash"]
        self._terminal = Command(folder / "home", program=begin, folder=str(folder))

    def types(self, command: str, answers: Answers = (), code: int = 0) -> Said:
        """Type a command, and check its exit code and that no passphrase is shown."""
        said = self._terminal.at_terminal(command, answers=answers, variables={"PATH": self._path, "NO_COLOR": "1"})
        assert said.code == code, (command, said)
        assert VAULT not in said.out
        assert APPROVER not in said.out
        return said


def follow(reader: Reader, aileron: Command, server: RadicaleServer) -> dict[str, Said]:
    """Type the README's commands. Return what each showed, by its first words."""
    add: Answers = [
        ("Your address (Enter to name the servers yourself): ", ""),
        ("Server, such as calendar.example.com: ", f"localhost:{server.port}"),
        ("Which actions? [1-3, Enter for 2] ", ""),
        ("User name: ", server.user),
        ("Password or token: ", server.password),
        ("Approve? ", "y"),
        SIGN,
    ]
    asked: dict[str, tuple[Answers, int]] = {
        "aileron setup": (SETUP, 75),  # no service and no agent yet
        "aileron add caldav": (add, 0),
        "aileron run caldav-create-event": ((), 75),
        "aileron approve": ([SIGN, ("Approve? ", "y")], 0),
    }
    said: dict[str, Said] = {}
    for command in commands():
        begins = next((key for key in asked if command.startswith(key)), command)
        if command == "aileron approve ID":
            (shown,) = re.findall(r"^([0-9a-f]{8}) ", said["aileron approval list"].out, re.MULTILINE)
            command = command.replace("ID", shown)
            assert changes(server) == [], "nothing is changed before the decision"
        said[begins] = reader.types(command, *asked.get(begins, ((), 0)))
    assert set(asked) <= set(said)
    return said


def as_an_agent(reader: Reader, aileron: Command) -> list[Any]:
    """Delete an event as an agent. Return the titles that the agent read, the status of the deletion that waits, and its status
    after a person has approved it.
    """
    with Agent(aileron.home) as agent:

        def call(tool: str, **arguments: Any) -> Any:
            params = {"name": tool, "arguments": arguments}
            return agent.ask("tools/call", params)["result"]["structuredContent"]

        agent.initialize()
        listed = call("caldav_list_events")
        waits = call("caldav_delete_event", uid="dentist", title="a trifle")
        assert waits["id"] in aileron("approval", "list").out
        shown = reader.types(f"aileron approve {waits['id']}", [SIGN, ("Type delete to approve: ", "delete")])
        assert "Dentist" in shown.out.partition("Type delete")[0]
        titles = sorted(event["title"] for event in listed["result"]["events"])
        return [titles, waits["status"], call("wait_for_action", id=waits["id"])["result"]]


def test_the_commands_of_the_readme_work(folder: Path, server: RadicaleServer) -> None:
    """The connector never has the password, the approver sees the service's data, and only an approved change is made."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[egress]\nprivate_plain = ["localhost:{server.port}"]\n')
    aileron, reader = Command(home), Reader(folder)
    try:
        said, told = follow(reader, aileron, server), as_an_agent(reader, aileron)
    finally:
        aileron("daemon", "stop")

    assert "Dentist" in said["aileron approve"].out.partition("Approve?")[0]
    assert "caldav: 1 event in the next 7 days" in said["aileron add caldav"].out
    assert "is waiting for approval" in said["aileron run caldav-create-event"].out
    assert server.user in said["aileron services"].out
    assert "egress.sending" in said["aileron audit list"].out
    assert "Dentist" in said["aileron run caldav-list-events days=14"].out
    assert told[:2] == [["Dentist", "Lunch"], "pending_approval"]
    assert told[2]["deleted"]
    (added, deleted) = changes(server)
    assert added[0] == "PUT"
    assert deleted == ("DELETE", "/ada/work/dentist.ics")
    assert scan([home], b"caldav-create-event"), "the scan finds nothing that is there"
    assert scan([home], server.password.encode()) == {}
