"""Each service of the catalogue, from `aileron add` to `aileron remove`, at a server under its real name, with all defaults.

Nothing is allowed in any settings: names, ports, addresses and the system's trusted authorities are as in the world, but they
are the test's (tests/support/real_names.py). Decisions are signed. Not here: the dialogue's options (tests/cli/test_add.py).
"""

from __future__ import annotations

import re
import shlex
from typing import Final

import pytest

from tests.cli.person import flat
from tests.services.person import NOTHING, Person, connectors, left
from tests.services.stands import STANDS, Stand
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
MOST_KEYSTROKES: Final = 12
"""Keystrokes that adding GitHub may take: the command, the token and the passphrases not counted, each Enter counted."""

ANSWERS_200: Final = {"slack"}
"""Services that refuse a credential in the body of an answer with status 200, which only their connectors understand."""

RUN_SAYS_WHY: Final = {"git", "mail", "postgres", "s3"}
"""Services with a login or signed requests, which fail for reasons such as another host key or region too."""


def test_a_service_is_added_used_and_removed_without_a_trace(newcomer: Person, stand: Stand) -> None:
    """The read runs at once, the write when it is approved and exactly as it was shown, and then nothing is left.

    With `-rP`, pytest shows how many lines and keys the person typed.
    """
    processes = connectors(newcomer)
    walk = newcomer.adds(stand)
    print(f"walk: {walk.service}: {walk.lines} lines, {walk.keystrokes} keystrokes")
    assert walk.said.code == 0, walk.said
    assert stand.says in flat(walk.said)
    assert stand.service != "github" or walk.keystrokes <= MOST_KEYSTROKES, walk.typed

    listed = newcomer.aileron("services", "--json").exits(0).json["services"]
    assert [(entry["name"], entry["state"]) for entry in listed] == [(stand.service, "ready")]
    _, names_the_account, name = stand.says.partition("signed in as ")
    assert not names_the_account or listed[0]["account"] == name
    if stand.read is not None:
        newcomer.aileron(*stand.read.words).exits(0)
    waits = newcomer.aileron(*stand.write.words, "--json").exits(75)
    assert stand.arrived() != stand.expected
    newcomer.approves(stand.write.action, waits.json["approval_id"]).exits(0)
    stand.settle()
    assert stand.arrived() == stand.expected

    removed = newcomer.aileron("remove", stand.service, "--yes").exits(0)
    assert f" {stand.secrets} secret" in removed.err
    assert left(newcomer) == NOTHING
    wait_until(lambda: connectors(newcomer) <= processes, "its processes end")


@pytest.mark.parametrize("stand", sorted(set(STANDS) - {"webhook"}), indirect=True)
def test_a_wrong_credential_is_told_with_the_commands_that_mend_it(person: Person, stand: Stand) -> None:
    """The service stays added; the person types the two commands that the dialogue names, and it works."""
    walk = person.adds(stand, right=False)
    named = re.search(r"\n  fix: aileron secret set (\S+)\n  then: aileron (run .+)\n", walk.said.out)

    assert walk.said.code in (4, 7), walk.said
    assert named is not None, walk.said
    refused = state_of(person)
    person.replaces(named[1], stand)
    replaced = state_of(person)
    person.aileron(*shlex.split(named[2])).exits(0)

    if stand.service in ANSWERS_200:
        assert refused == ("ready", None)
    elif stand.service in RUN_SAYS_WHY:
        assert (refused[0], str(refused[1]).startswith("aileron audit show ")) == ("failed", True)
    else:
        assert refused == ("failed", f"aileron secret set {named[1]}")
    assert [replaced, state_of(person)] == [("ready", None)] * 2


def state_of(person: Person) -> tuple[str, str | None]:
    """Return the state of the only service, and the command that mends it."""
    (entry,) = person.aileron("services", "--json").exits(0).json["services"]
    return entry["state"], entry["fix"]


@pytest.mark.parametrize("stand", ["webhook"], indirect=True)
def test_an_event_signed_with_a_wrong_key_is_told_with_the_command_that_mends_it(person: Person, stand: Stand) -> None:
    """A receiver of webhooks has nothing to read, so the first event shows whether the key is right."""
    before = stand.arrived()
    person.adds(stand, right=False).said.exits(0)
    waits = person.aileron(*stand.write.words, "--json").exits(75)
    refused = person.approves(stand.write.action, waits.json["approval_id"])

    assert refused.code == 7
    assert "if the signature is wrong, store the receiver's key with `aileron secret set NAME`" in flat(refused)
    assert stand.arrived() == before


@pytest.mark.parametrize("stand", ["github", "matrix", "slack", "stripe", "telegram"], indirect=True)
def test_a_missing_permission_is_named(person: Person, stand: Stand) -> None:
    """The person reads which permission the credential lacks, in the service's own words or by its name there."""
    person.adds(stand).said.exits(0)
    assert stand.denied is not None
    stand.denied.changes(False)
    try:
        said = person.aileron(*stand.denied.run.words)
        if said.code == 75:
            waiting = person.home.must("GET", "/v1/action-approvals")["approvals"]
            said = person.approves(stand.denied.run.action, waiting[0]["approval_id"])
    finally:
        stand.denied.changes(True)

    assert said.code == 7, said
    assert stand.denied.words in flat(said) + said.err
