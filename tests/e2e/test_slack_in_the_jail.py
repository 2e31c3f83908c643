"""The Slack connector as it is released: its own manifest, with Slack's name, port 443 and a real jail; only Slack is ours.

The daemon runs on a machine of its own where that name leads to a server of the test (tests/support/names.py). The token is
stored and bound as its page says.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.model.visible import visible
from tests.support.approver import Approver, Office
from tests.support.canary import scan
from tests.support.home import daemon_home
from tests.support.hostile_text import EVERYTHING, as_in_a_file, assert_harmless
from tests.support.jailed_office import look_while
from tests.support.names import Names
from tests.support.slack import NAMES, SlackServer, digest_of
from tests.support.upstream import Authority

pytestmark = pytest.mark.jail
CONNECTOR = "github://aileron/connectors/slack"
SOURCE = Path(__file__).resolve().parents[2] / "connectors" / "slack"
TOKEN = "xoxp-1234567890-canary-of-a-users-token"
SHIPPED = {"channel": "#engineering", "text": "The migration has shipped.\n@channel <!here> & thanks"}
LINK = "https://github.com/acme/app/pull/4218"


@dataclasses.dataclass(frozen=True)
class Workspace(Office):
    """A workspace at Slack, and a home that reaches it; a person decides what is gated."""

    slack: SlackServer

    def ask_to_ship(self, **args: Any) -> str:
        """Request a slack-ship-update, check that nothing of it was done, and return its question's id."""
        before = self.slack.called()
        question = self.ask("slack-ship-update", **args)
        assert self.slack.called() == before
        return question


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """Provide the released connector with all its actions and one binding; at the end no file has a token."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with (
        Names(dict.fromkeys(NAMES, "127.0.0.1")) as machine,
        SlackServer(authority.server_context(*NAMES), listener=machine.listen()) as slack,
        daemon_home() as home,
    ):
        home.reach(*(f"{name}:443" for name in NAMES), ca_file=authority.ca_file)
        machine.start_daemon(home.path)
        home.install(SOURCE)
        home.unlock(TOKEN.encode())
        home.bind(CONNECTOR, "api_key/slack/me")
        home.add_actions(*(SOURCE / "actions").glob("*/action.md"))
        yield Workspace(home, Approver.of(home), slack)
        assert scan([home.path], b"tell a Slack channel that something has shipped"), (
            "the scan finds nothing that is there"
        )
        assert scan([home.path], TOKEN.encode()) == {}


@pytest.fixture(autouse=True)
def workspace(office: Workspace) -> str:
    """Reset the workspace before each test, with a token for everything and one channel; return the channel's id."""
    office.slack.forget_everything()
    office.slack.allow(TOKEN)
    return office.slack.channel("engineering", members=42)


# What works


def test_channels_are_listed_and_the_token_is_not_revealed(office: Workspace) -> None:
    """The host is the one that the manifest names, and no response or record has the token."""
    office.slack.channel("random")
    listed = office.home.run("slack-list-channels", {"max_results": 5})

    assert [channel["name"] for channel in listed.body["result"]["channels"]] == ["engineering", "random"]
    assert {asked.authorization for asked in office.slack.asked} == {digest_of(TOKEN)}
    assert {asked.host for asked in office.slack.asked} == {"slack.com"}
    assert TOKEN not in str(listed.body) + str(office.home.events(listed.body["audit_id"]))


def test_an_update_waits_for_approval_and_can_be_previewed(office: Workspace, workspace: str) -> None:
    """The preview shows the channel, its readers and the account; it is loaded only on request, only reads, and posts nothing."""
    question = office.ask_to_ship(**SHIPPED, link=LINK)
    shown = office.preview(question)

    assert shown == {
        "Channel": "engineering",
        "Channel id": workspace,
        "Members": "42",
        "Seen by": "everybody in the workspace",
        "Posted as": "mira",
        "Workspace": "Acme",
    }
    assert office.slack.called() == ["GET conversations.list", "GET auth.test"]
    assert office.slack.posts == []


def test_an_approved_update_is_posted_exactly_once(office: Workspace, workspace: str) -> None:
    """The posted text is the approved one and mentions nobody. Asking for the result again posts nothing."""
    question = office.ask_to_ship(**SHIPPED, link=LINK)
    settled = office.decide(question)
    again = office.home.result({"approval_id": question}, wait=0.0)

    assert settled["status"] == again["status"] == "completed", settled
    [post] = office.slack.posts
    assert (post.channel, post.announced) == (workspace, ())
    assert post.text == f"The migration has shipped.\n@channel &lt;!here&gt; &amp; thanks\n<{LINK}>"
    assert settled["result"]["message"]["ts"] == post.ts


def test_a_denied_update_is_not_posted(office: Workspace) -> None:
    """Slack is not even asked for the channel; an approved update beside it is posted."""
    refused, agreed = office.ask_to_ship(**SHIPPED), office.ask_to_ship(channel="#engineering", text="another")
    denied = office.decide(refused, "deny")
    assert (denied["status"], office.slack.asked) == ("denied", [])
    office.decide(agreed)

    assert [post.text for post in office.slack.posts] == ["another"]


def test_a_search_finds_messages(office: Workspace) -> None:
    """Slack escapes `<` and `>` in stored texts; the result has them unescaped."""
    office.slack.message("engineering", "the migration is &lt;done&gt;")

    found = office.home.done("slack-search-messages", query="migration")["messages"]
    assert found[0]["text"] == "the migration is <done>"


def test_a_hostile_channel_or_account_name_changes_only_its_own_line_of_the_preview(office: Workspace) -> None:
    """Slack supplies the names of channel and account: each stays whole in its own line, and surfaces escape it."""
    hostile = as_in_a_file(EVERYTHING)
    channel = office.slack.channel(hostile[:80])
    office.slack.user, office.slack.team = hostile[80:280], hostile[280:480]
    question = office.ask_to_ship(channel=channel, text="shipped")
    try:
        shown = office.preview(question)
    finally:
        office.slack.user, office.slack.team = "mira", "Acme"
        office.person.decide(office.home, question, "deny")

    assert shown == {
        "Channel": hostile[:80],
        "Channel id": channel,
        "Members": "3",
        "Seen by": "everybody in the workspace",
        "Posted as": hostile[80:280],
        "Workspace": hostile[280:480],
    }
    assert_harmless("\n".join(map(visible, shown.values())))


# What does not


def test_a_revoked_token_is_reported_with_its_fix(office: Workspace) -> None:
    """The error has its own status and the command that fixes it; Slack is asked once."""
    office.slack.revoke(TOKEN)
    error = office.home.failed("slack-list-channels")

    assert (error["class"], error["details"]["status"], error["retriable"]) == ("external_api_error", 401, False)
    assert error["details"]["reason"] == "token_revoked"
    assert "aileron secret set" in error["message"]
    assert len(office.slack.asked) == 1


def test_only_a_read_is_retried_after_a_rate_limit(office: Workspace) -> None:
    """The supervisor waits as long as Slack says; posting is never repeated."""
    limit = {"ok": False, "error": "ratelimited"}
    for method in ("conversations.list", "chat.postMessage"):
        office.slack.disturb(method, limit, "Retry-After: 1", status="429 Too Many Requests")
    listed = office.home.done("slack-list-channels")
    asked = office.slack.called().count("GET conversations.list")
    settled = office.decide(office.ask_to_ship(**SHIPPED))

    assert ([channel["name"] for channel in listed["channels"]], asked) == (["engineering"], 2)
    assert (settled["error"]["class"], settled["error"]["details"]["status"]) == ("external_api_error", 429)
    assert (office.slack.called().count("POST chat.postMessage"), office.slack.posts) == (1, [])


# Where the token is not


def test_no_token_is_in_the_jail_during_a_request_to_slack(office: Workspace) -> None:
    """The search runs while Slack has the token, in all memory below the daemon; it finds what was requested."""
    needle = "a-needle-in-the-jail"
    run = functools.partial(office.home.run, "slack-search-messages", {"query": needle})
    looked = look_while(office.home, office.slack.gate.held("search.messages"), run)

    assert looked.answer.status == 200, looked.answer.body
    assert office.slack.asked[0].authorization == digest_of(TOKEN)
    assert len(looked.memories) >= 2
    looked.check_compressed(needle.encode(), TOKEN.encode())
