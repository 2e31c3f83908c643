"""Google, from `aileron add` with a sign-in in a browser to `aileron remove`, under its real names and with all defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.person import flat
from tests.services.google import ACCOUNT, GoogleStand, google
from tests.services.person import NOTHING, Person, connectors, left
from tests.services.stands import Run
from tests.support.google import SCOPES
from tests.support.real_names import RealNames
from tests.support.upstream import Authority
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
SEND = Run("google-send-email", {"to": "ada@example.com", "subject": "Lunch", "body": "At one?"})


@pytest.fixture
def stand(machine: RealNames, trusted: Authority, tmp_path: Path) -> Iterator[GoogleStand]:
    """Provide Google at servers of the test."""
    with google(machine, trusted, tmp_path) as made:
        yield made


def test_google_is_added_used_and_removed_without_a_trace(newcomer: Person, stand: GoogleStand) -> None:
    """The account is shown, a mail is sent when it is approved, and removing revokes the access at Google."""
    processes = connectors(newcomer)
    said = newcomer.adds_google(stand)
    assert said.code == 0, said
    assert "google: 0 events in the next 7 days" in flat(said)

    listed = newcomer.aileron("services", "--json").exits(0).json["services"]
    assert [(entry["name"], entry["account"], entry["state"]) for entry in listed] == [("google", ACCOUNT, "ready")]
    newcomer.aileron("run", "google-list-recent-emails").exits(0)
    waits = newcomer.aileron(*SEND.words, "--json").exits(75)
    assert stand.api.outbox == []
    newcomer.approves(SEND.action, waits.json["approval_id"]).exits(0)
    (sent,) = stand.api.outbox
    assert (sent.recipients, sent.message["Subject"]) == (("ada@example.com",), "Lunch")

    newcomer.aileron("remove", "google", "--yes").exits(0)
    assert stand.provider.revoked != []
    assert left(newcomer) == NOTHING
    wait_until(lambda: connectors(newcomer) <= processes, "its processes end")


def test_a_sign_in_that_is_left_with_ctrl_c_leaves_nothing(person: Person, stand: GoogleStand) -> None:
    """The home stays empty until the person has signed in."""
    said = person.adds_google(stand, leaves=True)

    assert said.code == 130, said
    assert left(person) == NOTHING
    assert stand.provider.asked == []


@pytest.mark.parametrize("lacks", ["calendar.events", "gmail.readonly"])
def test_a_box_that_was_left_empty_at_google_is_named(person: Person, stand: GoogleStand, lacks: str) -> None:
    """People can leave out each permission on Google's page. The sign-in then fails, and says which is missing."""
    stand.scopes[:] = [scope for scope in SCOPES if lacks not in scope]
    said = person.adds_google(stand)

    assert said.code == 4, said
    assert f"missing: https://www.googleapis.com/auth/{lacks}" in flat(said)
    assert left(person) == NOTHING
