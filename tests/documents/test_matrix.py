"""The Matrix connector against a real homeserver: a token in the vault, rooms that are read, and actions that a person decides.

Effects are checked as another user in the room, over HTTP, with no Aileron in between.
"""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from aileron_connector.testing import call, for_real
from tests.cli.person import SIGN, at_terminal, flat
from tests.connectors.openapi.packed import declared
from tests.documents.desk import CHANGE, DELETE, Desk, desk_of_sources
from tests.documents.real_servers import Server, synapse
from tests.support.plain_host import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
SOURCES: Final = ROOT / "connectors" / "matrix"
CLIENT: Final = "/_matrix/client/v3"
_LISTED_S: Final = 20.0
"""Seconds that Synapse may take; it needs less than one on a machine that has nothing else to do."""


@dataclasses.dataclass(frozen=True)
class Room:
    """A room of two: Ann, whose token the connector has, and Ben, who watches."""

    desk: Desk
    ann: Server
    ben: Server
    id: str

    @property
    def at(self) -> str:
        """The room's path in the API."""
        return f"{CLIENT}/rooms/{urllib.parse.quote(self.id)}"

    def says(self, who: Server, body: str, key: str) -> str:
        """Send a message as a user, without Aileron; return its id."""
        content = {"msgtype": "m.text", "body": body}
        status, sent = who.asked("PUT", f"{self.at}/send/m.room.message/{key}", content)
        assert status == 200, sent
        return str(sent["event_id"])

    def seen(self) -> list[dict[str, Any]]:
        """Return the messages that Ben sees, the newest first."""
        _, page = self.ben.asked("GET", f"{self.at}/messages?dir=b&limit=100")
        return [event for event in page["chunk"] if event["type"] == "m.room.message"]

    def wait_listed(self) -> None:
        """Wait until the server has Ben in its directory, which it updates in the background."""
        wait_until(
            lambda: self.ann.asked("POST", f"{CLIENT}/user_directory/search", {"search_term": "ben"})[1]["results"],
            "Ben is in the directory of people",
            within_s=_LISTED_S,
        )

    def told(self) -> list[str]:
        """Return the messages' texts; a redacted message has ""."""
        return [message["content"].get("body", "") for message in self.seen()]


@pytest.fixture(scope="module")
def room(homeserver: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """Return a room with the shipped connector, built for this homeserver."""
    folder = tmp_path_factory.mktemp("m")
    with synapse(homeserver, folder) as server:
        ann, ben = server.as_user("ann"), server.as_user("ben")
        wanted = {"name": "Operations", "topic": "What runs", "room_alias_name": "ops", "preset": "private_chat"}
        invited = {"invite": ["@ben:localhost"]}
        _, made = ann.asked("POST", f"{CLIENT}/createRoom", wanted | invited)
        status, _ = ben.asked("POST", f"{CLIENT}/join/{urllib.parse.quote(made['room_id'])}", {})
        assert status == 200
        token = ann.authorization.removeprefix("Bearer ")
        with desk_of_sources(ann, "github://aileron/connector-matrix", SOURCES, folder, token) as desk:
            yield Room(desk, ann, ben, made["room_id"])


def test_rooms_are_listed_without_approval(room: Room) -> None:
    """The agent never has the token that lists them."""
    assert room.desk.must("run", "matrix-whoami").json["user_id"] == "@ann:localhost"
    assert room.desk.must("run", "matrix-list-joined-rooms").json["joined_rooms"] == [room.id]
    summary = room.desk.must("run", "matrix-get-room-summary", f"room_id_or_alias={room.id}").json
    assert (summary["name"], summary["num_joined_members"]) == ("Operations", 2)


def test_the_remaining_read_actions_run_without_approval(room: Room) -> None:
    """The responses of the real server match our handwritten document."""
    event = room.says(room.ben, "Good morning", "morning")
    here = f"room_id={room.id}"
    asked = {
        "matrix-get-room-name": ([here], {"name": "Operations"}),
        "matrix-resolve-room-alias": (["room_alias=#ops:localhost"], {"room_id": room.id, "servers": ["localhost"]}),
        "matrix-list-public-rooms": (["limit=5"], {"chunk": [], "total_room_count_estimate": 0}),
        "matrix-get-profile": (["user_id=@ben:localhost"], {"displayname": "ben"}),
    }
    members = room.desk.must("run", "matrix-list-room-members", here).json["joined"]
    room.wait_listed()
    people = room.desk.must("run", "matrix-search-users", "search_term=ben").json["results"]
    message = room.desk.must("run", "matrix-get-event", here, f"event_id={event}").json
    around = room.desk.must("run", "matrix-get-event-context", here, f"event_id={event}", "limit=2").json

    assert {name: room.desk.must("run", name, *words).json for name, (words, _) in asked.items()} == {
        name: answer for name, (_, answer) in asked.items()
    }
    assert room.desk.must("run", "matrix-get-room-topic", here).json["topic"] == "What runs"
    assert sorted(members) == ["@ann:localhost", "@ben:localhost"]
    assert [person["user_id"] for person in people] == ["@ben:localhost"]
    assert message["content"]["body"] == around["event"]["content"]["body"] == "Good morning"


def test_messages_are_read_page_by_page_and_found_by_their_words(room: Room) -> None:
    """`next` has the arguments for the next page, and the last page has none."""
    for number in range(5):
        room.says(room.ben, f"outage report {number}", f"page-{number}")
    pages, given = [], {"limit": 2}
    for _ in range(20):  # of a room with thirty events
        words = [f"{name}={value}" for name, value in given.items()]
        page = room.desk.must("run", "matrix-list-messages", f"room_id={room.id}", *words).json
        pages.append([event["content"]["body"] for event in page["chunk"] if event["type"] == "m.room.message"])
        if "next" not in page:
            break
        given |= page["next"]
    else:
        pytest.fail(f"no last page: {pages}")
    found = room.desk.must("run", "matrix-search-messages", "search_term=outage", "limit=2").json

    assert pages[:2] == [["outage report 4", "outage report 3"], ["outage report 2", "outage report 1"]]
    assert [body for page in pages for body in page] == room.told()
    assert [message["content"]["body"] for message in found["messages"]] == ["outage report 4", "outage report 3"]
    assert (found["total"], [*found["next"]]) == (5, ["next_batch"])


def test_a_message_is_sent_only_after_approval(room: Room) -> None:
    """The card shows the room and its number of members. Before the approval, and after a denial, the room has no message."""
    words = ("matrix-send-message", f"room_id={room.id}")
    asked = room.desk.asked(*words, "body=It is up again")
    refused = room.desk.asked(*words, "body=It was Ben")
    before = room.told()
    denied = at_terminal(room.desk.aileron, "deny", refused, "--reason", "not nice", answers=[SIGN])
    said = at_terminal(room.desk.aileron, "approve", asked, answers=CHANGE)

    assert (denied.code, said.code) == (0, 0), (denied, said)
    assert "Send to the room “Operations”" in flat(said)
    assert "Members 2" in flat(said)
    assert not {"It is up again", "It was Ben"} & {*before}
    assert (room.told().count("It is up again"), room.told().count("It was Ben")) == (1, 0)
    assert room.seen()[0]["sender"] == "@ann:localhost"


def test_a_reply_names_the_message_that_the_approver_saw(room: Room) -> None:
    """The card has the message's text and author, neither of which the agent gave."""
    question = room.says(room.ben, "Is it up?", "question")
    asked = room.desk.asked("matrix-reply-to-message", f"room_id={room.id}", f"event_id={question}", "body=Yes")
    said = at_terminal(room.desk.aileron, "approve", asked, answers=CHANGE)

    assert said.code == 0, said
    assert "Reply to “@ben:localhost”" in flat(said)
    assert "Is it up?" in said.out
    assert room.seen()[0]["content"]["m.relates_to"] == {"m.in_reply_to": {"event_id": question}}


def test_a_message_is_redacted_after_the_approver_saw_it(room: Room) -> None:
    """Redacting counts as a deletion, which the approver confirms by typing."""
    event = room.says(room.ann, "the password is swordfish", "redacted")
    assert "the password is swordfish" in room.told()
    asked = room.desk.asked("matrix-redact-event", f"room_id={room.id}", f"event_id={event}")
    said = at_terminal(room.desk.aileron, "approve", asked, answers=DELETE)

    assert said.code == 0, said
    assert "the password is swordfish" in said.out
    assert "the password is swordfish" not in room.told()


def test_a_person_is_removed_from_a_room_that_the_agent_created(room: Room) -> None:
    """Creating the room needs an approval, and so does removing a person, as a deletion."""
    asked = room.desk.asked("matrix-create-room", "name=Release 12", 'invite=["@ben:localhost"]')
    made = at_terminal(room.desk.aileron, "approve", asked, answers=[("Approve? [y/N] ", "y"), SIGN])
    new = room.desk.must("run", "matrix-list-joined-rooms").json["joined_rooms"]
    (at,) = {*new} - {room.id}
    joined, _ = room.ben.asked("POST", f"{CLIENT}/join/{urllib.parse.quote(at)}", {})
    kick = room.desk.asked("matrix-kick-user", f"room_id={at}", "user_id=@ben:localhost")
    before = room.ben.asked("GET", f"{CLIENT}/joined_rooms")[1]["joined_rooms"]
    said = at_terminal(room.desk.aileron, "approve", kick, answers=DELETE)

    assert (made.code, joined, said.code) == (0, 200, 0), (made, said)
    assert "Remove “@ben:localhost” from the room “Release 12”" in flat(said)
    assert at in before
    assert at not in room.ben.asked("GET", f"{CLIENT}/joined_rooms")[1]["joined_rooms"]


def test_a_retried_step_sends_the_message_once(room: Room) -> None:
    """Both tries of one run have the same transaction id; a new run with the same text is another message."""
    arguments = {"room_id": room.id, "msgtype": "m.text", "body": "only once"}
    send = for_real({"Authorization": room.ann.authorization})
    document = (SOURCES / "service" / "document.json").read_bytes()
    with declared(document, {"send_message": "txn_id"}):
        tries = [
            call("send_message", arguments, answer=send, hosts=[f"http://{room.ann.host}"]).output for _ in range(2)
        ]
    once = room.told().count("only once")
    room.says(room.ann, "only once", "again")

    assert tries[0] == tries[1]
    assert (once, room.told().count("only once")) == (1, 2)
