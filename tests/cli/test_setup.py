"""`aileron setup`: from a new home to a decision and an agent, with a real calendar server, at a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Answers, Command
from tests.cli.person import APPROVER, SIGN, at_terminal, flat
from tests.support.home import PASSPHRASE, DaemonHome, daemon_home
from tests.support.radicale import RadicaleServer

pytestmark = pytest.mark.jail
VAULT: Answers = [("New vault passphrase: ", PASSPHRASE), ("New vault passphrase, again: ", PASSPHRASE)]
APPROVER_KEY: Answers = [
    ("Create the approver's key? [y/N] ", "y"),
    ("New approver passphrase: ", APPROVER),
    ("New approver passphrase, again: ", APPROVER),
]
ADD = "add (a service or its address; Enter to go on): "
APPROVE = "Approve? [y]es, [n]o, or Enter to leave it waiting: "
CELLS = "Start agents in a cell? [Y/n] "
OFFER = "Set it up now? [Y/n] "
INTERRUPT = "\x03"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RadicaleServer]:
    """Start a calendar server with an empty calendar."""
    with RadicaleServer(tmp_path_factory.mktemp("radicale")) as started:
        started.make_calendar("work", "Work")
        yield started


@pytest.fixture
def home(server: RadicaleServer) -> Iterator[DaemonHome]:
    """Provide a home without a vault that may reach the server."""
    with daemon_home() as made:
        made.configure(f'[egress]\nprivate_plain = ["localhost:{server.port}"]\n')
        yield made


@pytest.fixture
def aileron(home: DaemonHome) -> Command:
    """Return the command in that home."""
    return Command(home.path)


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """Provide a folder with a program that is named as an agent, for PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "claude"
    program.write_text(
        '#!/bin/sh\necho "an agent, session ${AILERON_SESSION_TOKEN:+open}"\n'
        "stty -a | grep -qw -- -echo || echo it sees what is typed\n"
    )
    program.chmod(0o755)
    return folder


def add_calendar(server: RadicaleServer) -> Answers:
    """Return the answers that add the calendar, from the service's name on."""
    return [
        (ADD, "caldav"),
        ("Your address (Enter to name the servers yourself): ", ""),
        ("Server, such as calendar.example.com: ", f"localhost:{server.port}"),
        ("Which actions? [1-3, Enter for 2] ", ""),
        ("User name: ", server.user),
        ("Password or token: ", server.password),
        (APPROVE, "y"),
        SIGN,
        (ADD, ""),
    ]


def test_a_setup_leads_from_a_new_home_to_a_decision_and_an_agent(
    aileron: Command, server: RadicaleServer, bin_folder: Path
) -> None:
    """Each step says what is there now; the change is real; the agent has a session; nothing typed in secret is shown."""
    said = at_terminal(
        aileron,
        "setup",
        answers=[
            *VAULT,
            *APPROVER_KEY,
            *add_calendar(server),
            SIGN,  # the preview of the first change, which only the approver can open
            (APPROVE, "y"),
            (CELLS, "n"),
            (APPROVE, "y"),
            SIGN,
            ("[1-1, Enter for not now] ", "1"),
        ],
        PATH=f"{bin_folder}:/usr/bin:/bin",
    )

    assert said.code == 0, said
    for step in (
        "2/6 vault: open",
        "3/6 approver: your signature decides",
        "caldav: 0 events in the next 7 days",
        "4/6 services: caldav",
        "5/6 decision: you have decided on an action",
        "an agent, session open",
        "it sees what is typed",
    ):
        assert step in flat(said), said
    assert PASSPHRASE not in said.out
    assert server.password not in said.out
    assert "A first event through Aileron" in aileron("run", "caldav-list-events").out
    assert aileron("config", "get", "launch.jail", "--json").json["value"] is False
    assert aileron("setup", "--status").exits(0).out.splitlines()[-1].startswith("agent")


def test_a_setup_that_was_left_goes_on_where_it_was(aileron: Command, server: RadicaleServer) -> None:
    """Ctrl-C ends it with 130 and says where; what was done stays; what another command did counts too."""
    first = at_terminal(aileron, "setup", answers=[*VAULT, ("Create the approver's key? [y/N] ", INTERRUPT)])
    between = aileron("setup", "--status")
    second = at_terminal(aileron, "setup", answers=[("Create the approver's key? [y/N] ", "n"), (ADD, "")])

    assert first.code == 130, first
    assert "left at 3/6 approver; to go on: aileron setup" in flat(first)
    assert between.code == 75
    assert [line.split()[-1] for line in between.out.splitlines()[1:3]] == ["open", "do"]
    assert second.code == 75, second
    assert "2/6 vault: open" in second.out
    assert "left to do: approver, services" in flat(second)


@pytest.mark.parametrize(
    "typed",
    [
        pytest.param([("New vault passphrase: ", INTERRUPT)], id="vault"),
        pytest.param([VAULT[0], ("again: ", INTERRUPT)], id="vault again"),
        pytest.param([*VAULT, *APPROVER_KEY[:1], ("New approver passphrase: ", INTERRUPT)], id="approver's passphrase"),
        pytest.param([*VAULT, *APPROVER_KEY, (ADD, INTERRUPT)], id="services"),
        pytest.param([*VAULT, *APPROVER_KEY, (ADD, "telegram"), ("Which actions?", INTERRUPT)], id="actions"),
        pytest.param(
            [*VAULT, *APPROVER_KEY, (ADD, "telegram"), ("Which actions?", "1"), ("API key or token: ", INTERRUPT)],
            id="credential",
        ),
    ],
)
def test_ctrl_c_at_each_prompt_leaves_no_half_of_a_step(aileron: Command, typed: Answers) -> None:
    """The setup ends with 130. No secret, connector or action is there without the rest of its service."""
    said = at_terminal(aileron, "setup", answers=typed)

    assert said.code == 130, said
    assert "to go on: aileron setup" in flat(said)
    assert aileron("services").out == ""
    assert aileron("connector", "list").out == ""
    if aileron("vault", "status", "--json").json["exists"]:
        assert aileron("secret", "list").out == ""


def test_ctrl_c_at_the_card_leaves_the_question_open(aileron: Command) -> None:
    """The question can be decided later, and adds the service then, with the credential that was typed."""
    said = at_terminal(
        aileron,
        "setup",
        answers=[
            *VAULT,
            *APPROVER_KEY,
            (ADD, "telegram"),
            ("Which actions?", "1"),
            ("API key or token: ", "123456:a-token-of-a-bot"),
            (APPROVE, INTERRUPT),
        ],
    )
    waiting = aileron("approval", "list", "--json").json["approvals"]
    approved = at_terminal(
        aileron, "approve", waiting[0]["approval_id"], answers=[("Type allow to approve: ", "allow"), SIGN]
    )

    assert said.code == 130, said
    assert (len(waiting), approved.code) == (1, 0), approved
    assert aileron("services").out.startswith("telegram\t")


def test_a_service_that_fails_does_not_end_the_setup(aileron: Command) -> None:
    """A misspelt service is answered with the nearest name, and the person is asked again; Enter goes on."""
    said = at_terminal(aileron, "setup", answers=[*VAULT, *APPROVER_KEY, (ADD, "gihub"), (ADD, "")])

    assert said.code == 75, said
    assert "did you mean 'github'?" in flat(said)
    assert "left to do: services, decision, agent" in flat(said)


def test_what_is_typed_between_two_questions_is_neither_shown_nor_used(aileron: Command) -> None:
    """A passphrase that is typed too early does not appear, and answers nothing."""
    said = aileron.at_terminal("setup", ahead="a secret typed early\n", answers=[(VAULT[0][0], INTERRUPT)])

    assert said.code == 130
    assert "a secret typed early" not in said.out.split("Aileron setup", 1)[1]
    assert not aileron("vault", "status", "--json").json["exists"]


def test_a_setup_without_a_terminal_says_which_commands_a_script_uses(aileron: Command) -> None:
    """The command asks nothing and changes nothing."""
    said = aileron("setup")

    assert said.code == 2
    assert "aileron vault init" in said.err
    assert aileron("setup", "--status").code == 75


def test_the_first_command_in_a_new_home_offers_the_setup_once() -> None:
    """A refusal is remembered; a pipe, a help page and `--json` are never asked."""
    with daemon_home() as home:
        aileron = Command(home.path)
        aileron("services", "--help").exits(0)
        assert not home.path.exists()
        first = at_terminal(aileron, "services", answers=[(OFFER, "n")])
        second = at_terminal(aileron, "services")

    assert first.code == second.code == 0
    assert "to set it up later: aileron setup" in first.out
    assert "no services connected" in first.out
    assert OFFER not in second.out


def test_the_setup_that_is_offered_is_the_setup() -> None:
    """Enter accepts; a setup that is left ends the command that offered it."""
    with daemon_home() as home:
        said = at_terminal(Command(home.path), "status", answers=[(OFFER, ""), (VAULT[0][0], INTERRUPT)])

    assert said.code == 130, said
    assert "left at 2/6 vault" in flat(said)
