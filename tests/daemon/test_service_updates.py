"""Updates of services: an account of an older connector gets the one that came with this version, with one question."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.catalogue.service import service_named
from tests.cli.command import Command
from tests.support.approver import Approver
from tests.support.home import DaemonHome, daemon_home
from tests.support.radicale import RadicaleServer

pytestmark = pytest.mark.jail
UPDATE = "/v1/services/caldav/update"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RadicaleServer]:
    """Start a calendar server with an empty calendar."""
    with RadicaleServer(tmp_path_factory.mktemp("radicale")) as started:
        started.make_calendar("work", "Work")
        yield started


@pytest.fixture
def home(server: RadicaleServer, tmp_path: Path) -> Iterator[DaemonHome]:
    """Provide a home with an account of an older version of the calendar connector, whose program differs."""
    older = Path(shutil.copytree(service_named("caldav").directory, tmp_path / "caldav"))
    manifest = (older / "manifest.toml").read_text(encoding="utf-8")
    manifest = manifest.replace("bound-at-build", f"localhost:{server.port}").replace('"0.1.0"', '"0.0.9"')
    (older / "manifest.toml").write_text(manifest, encoding="utf-8")
    with (older / "dav.py").open("a", encoding="utf-8") as program:
        program.write("# older\n")
    for action in (older / "actions").rglob("action.md"):
        text = action.read_text(encoding="utf-8").replace('version = "0.1.0"\nhash', 'version = "0.0.9"\nhash')
        action.write_text(text, encoding="utf-8")
    with daemon_home() as made:
        made.configure(f'[egress]\nprivate_plain = ["localhost:{server.port}"]\n')
        made.unlock()
        made.store("caldav-me", server.password.encode())
        body = {
            "service": "caldav",
            "directory": str(older),
            "actions": ["caldav-list-events", "caldav-create-event"],
            "credentials": [{"secret": "caldav-me", "username": server.user}],
        }
        made.must("POST", "/v1/services", body)
        yield made


def entry(home: DaemonHome) -> tuple[str, bool, str]:
    """Return the version that the account's action uses, whether a newer one is here, and the account's state."""
    (found,) = home.must("GET", "/v1/services")["services"]
    action = home.must("GET", "/v1/actions/caldav-list-events")
    return action["connectors"][0].rpartition("@")[2], found["newer"], found["state"]


def test_an_update_brings_the_connector_that_came_with_this_version(home: DaemonHome) -> None:
    """The actions use it, the binding stays, and a second update changes nothing."""
    before = entry(home)
    updated = home.must("POST", UPDATE, {})
    again = home.must("POST", UPDATE, {})

    assert (before, entry(home)) == (("0.0.9", True, "ready"), ("0.1.0", False, "ready"))
    assert sorted(action["name"] for action in updated["actions"]) == ["caldav-create-event", "caldav-list-events"]
    assert again == {"connectors": [], "actions": [], "bindings": []}
    assert home.run("caldav-list-events").status == 200


def test_an_update_keeps_what_the_person_wrote_into_an_action(home: DaemonHome) -> None:
    """The person made a read wait for approval: it still waits after the update."""
    file = home.path / "actions" / "caldav-list-events.md"
    text = file.read_text(encoding="utf-8")
    head, end = text.split("\n+++\n", 1)
    file.write_text(f"{head}\n\n[approval]\nrequired = true\n+++\n{end}", encoding="utf-8")
    before = home.run("caldav-list-events").status
    home.must("POST", UPDATE, {})

    assert (before, home.run("caldav-list-events").status) == (202, 202)
    assert entry(home)[0] == "0.1.0"


def test_an_update_takes_one_signature(home: DaemonHome) -> None:
    """The question has the new connector and both actions; nothing changes before it is approved."""
    person = Approver.of(home)
    asked = home.ask("POST", UPDATE, {})
    shown = person.shown(home, asked.body["approval_id"])
    before = entry(home)
    person.agree(home, asked)

    assert (asked.status, shown["kind"]) == (202, "installation")
    assert [len(shown["subject"][part]) for part in ("connectors", "actions", "bindings")] == [1, 2, 0]
    assert (before[0], entry(home)[0]) == ("0.0.9", "0.1.0")
    assert home.run("caldav-list-events").status == 200


def test_the_command_updates_what_is_older_and_says_so(home: DaemonHome) -> None:
    """`services` names the command; without a name, every older service is updated; an unknown one is an error."""
    aileron = Command(home.path)
    listed = aileron("services")
    updated = aileron("update", "--yes")
    again = aileron("update")
    named = aileron("update", "caldav")
    unknown = aileron("update", "caldaw")

    assert "fix: aileron update caldav" in listed.err
    assert (updated.code, "caldav: updated" in updated.err) == (0, True)
    assert "every service is up to date" in again.err
    assert "caldav: up to date" in named.err
    assert (unknown.code, "did you mean 'caldav'?" in unknown.err) == (3, True)
