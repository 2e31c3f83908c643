"""`aileron add`, `services` and `remove`, at a terminal and in a script, with a real calendar server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.command import Command
from tests.support.home import DaemonHome, daemon_home
from tests.support.radicale import RadicaleServer

pytestmark = pytest.mark.jail
SERVER = "Server, such as calendar.example.com: "
ADDRESS = "Your address (Enter to name the servers yourself): "
ACTIONS = "Which actions? [1-3, Enter for 2] "


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RadicaleServer]:
    """Start a calendar server with an empty calendar."""
    with RadicaleServer(tmp_path_factory.mktemp("radicale")) as started:
        started.make_calendar("work", "Work")
        yield started


@pytest.fixture
def home(server: RadicaleServer) -> Iterator[DaemonHome]:
    """Provide a home with an open vault that may reach the server."""
    with daemon_home() as made:
        made.configure(f'[egress]\nprivate_plain = ["localhost:{server.port}"]\n')
        made.unlock()
        yield made


@pytest.fixture
def aileron(home: DaemonHome) -> Command:
    """Return the command in that home."""
    return Command(home.path)


def test_without_a_service_the_command_lists_them(aileron: Command) -> None:
    """A word searches; a word that finds nothing exits with 3. None of it needs a vault."""
    every, found, none = aileron("add"), aileron("add", "calendar"), aileron("add", "teleport")

    assert len(every.out.splitlines()) == 12
    assert [line.partition("\t")[0] for line in found.out.splitlines()] == ["caldav", "google"]
    assert (none.code, "no service matches 'teleport'" in none.err) == (3, True)
    assert [entry["name"] for entry in aileron("add", "calendar", "--json").json["services"]] == ["caldav", "google"]


def test_a_service_is_added_in_one_dialogue_that_ends_with_a_read(
    aileron: Command, server: RadicaleServer, home: DaemonHome
) -> None:
    """The person gives no address, the server, an Enter, a user name and a password, which the terminal does not show."""
    said = aileron.at_terminal(
        "add",
        "caldav",
        answers=[
            (ADDRESS, "no address"),
            (ADDRESS, ""),
            (SERVER, f"localhost:{server.port}"),
            (ACTIONS, ""),
            ("User name: ", server.user),
            ("Password or token: ", server.password),
        ],
    )

    assert said.code == 0, said
    assert "'no address' is not a mail address, such as me@example.com" in said.out
    assert "caldav: 0 events in the next 7 days" in said.out
    assert "added, with 3 actions" in said.out
    assert server.password not in said.out
    assert aileron("services").out.split("\t")[:3] == ["caldav", server.user, "3"]
    assert aileron("run", "caldav-list-events").code == 0


def test_a_wrong_password_is_told_with_the_command_that_replaces_it(aileron: Command, server: RadicaleServer) -> None:
    """The service stays added, so that only the password has to be typed again."""
    said = aileron.at_terminal(
        "add",
        "caldav",
        "--as",
        "work",
        "--host",
        f"localhost:{server.port}",
        "--actions",
        "reads",
        answers=[("User name: ", server.user), ("Password or token: ", "wrong-wrong-wrong")],
        NO_COLOR="1",
    )
    aileron("secret", "set", "caldav-work", given=server.password)

    assert said.code == 7, said
    error, told = said.out.index("error:"), said.out.index("  fix: aileron secret set caldav-work\n")
    assert error < told < said.out.index("  then: aileron run work-caldav-list-events\n")
    assert aileron("run", "work-caldav-list-events").code == 0


def test_a_script_adds_and_removes_a_service_with_options_alone(aileron: Command, server: RadicaleServer) -> None:
    """Each missing option is named; with all of them, nothing is asked."""
    aileron("secret", "set", "calendar", given=server.password)
    words = ["add", "caldav", "--host", f"localhost:{server.port}", "--actions", "reads"]

    without_secret = aileron(*words)
    without_actions = aileron("add", "caldav", "--host", f"localhost:{server.port}", "--secret", "calendar")
    added = aileron(*words, "--secret", "calendar", "--username", server.user, "--json")
    again = aileron(*words, "--secret", "calendar", "--username", server.user)
    unconfirmed = aileron("remove", "caldav")
    removed = aileron("remove", "caldav", "--yes")

    assert (without_secret.code, "--secret NAME" in without_secret.err) == (2, True)
    assert (without_actions.code, "--actions reads|all" in without_actions.err) == (2, True)
    assert [action["name"] for action in added.json["actions"]] == ["caldav-list-events"]
    assert (again.code, "--as NAME" in again.err) == (2, True)
    assert (unconfirmed.code, "--yes" in unconfirmed.err) == (2, True)
    assert "removed caldav: 1 action, 1 secret, 1 connector" in removed.err
    assert aileron("services").out == ""
    assert aileron("action", "list").out == ""


def test_an_address_is_for_services_whose_servers_it_leads_to(aileron: Command) -> None:
    """Anything else is refused before a vault is made, and the error has the command that works."""
    github = aileron("add", "github", "ann@example.com")
    nothing = aileron("add", "mail", "ann")
    unknown = aileron("add", "mial", "ann@example.com")

    assert (github.code, "fix: aileron add github" in github.err) == (2, True)
    assert (nothing.code, "ADDRESS 'ann' is not a mail address" in nothing.err) == (2, True)
    assert (unknown.code, "no service 'mial' comes with Aileron" in unknown.err) == (3, True)


def test_with_a_server_given_the_address_is_the_user_name(aileron: Command, server: RadicaleServer) -> None:
    """The command looks nothing up. Enter would take the address; this server knows the person by another name."""
    said = aileron.at_terminal(
        "add",
        "caldav",
        "ann@example.com",
        "--host",
        f"localhost:{server.port}",
        "--actions",
        "reads",
        answers=[("User name [ann@example.com]: ", server.user), ("Password or token: ", server.password)],
    )

    assert said.code == 0, said
    assert "looking for" not in said.out
