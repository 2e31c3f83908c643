"""The Slack connector, as it is built, against a server that answers as Slack's reference has it; and against lies."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.actions.manifest import parse_action
from aileron.registry.connector_build import build
from aileron.registry.manifest import parse_connector_manifest
from aileron_sandbox.frames import GrantedHost, Log
from tests.support.canary import find
from tests.support.hostile_text import GROUPS, as_in_a_file
from tests.support.plain_host import ROOT, PlainHost, Report, built_in
from tests.support.slack import NAMES, SCOPES, SlackServer, digest_of
from tests.support.upstream import Authority

SOURCE = ROOT / "connectors" / "slack"
NAME = "github://aileron/connectors/slack"
TOKEN = "xoxp-a-token-of-the-test"
APP_TOKEN = "xoxb-a-token-of-an-app"
HOSTS = [GrantedHost(name, 443, False) for name in NAMES]
MASS = "<!channel> <!here|here> <@U024BE7LH> <!subteam^S1|@team> @channel @everyone &lt;!channel&gt; *bold* <https://a.example|b>"

Call = Callable[..., Report]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the zip that `aileron connector build` makes."""
    return built_in(tmp_path_factory.mktemp("built"), SOURCE)


@pytest.fixture
def slack(authority: Authority) -> Iterator[SlackServer]:
    """Return the server of an empty workspace, and a user's token for all of it."""
    with SlackServer(authority.server_context(*NAMES)) as server:
        server.allow(TOKEN)
        yield server


@pytest.fixture
def host(slack: SlackServer, program: Path, authority: Authority) -> Callable[[str], Call]:
    """Return a function for operations with a chosen token: host(token)(op, **args)."""
    tls = ssl.create_default_context(cafile=str(authority.ca_file))
    return lambda token: PlainHost(program, hosts=HOSTS, bearer=token, at=("127.0.0.1", slack.port), tls=tls).call


@pytest.fixture
def call(host: Callable[[str], Call]) -> Call:
    """Return a function that runs an operation: call(op, **args)."""
    return host(TOKEN)


# What ships


def test_the_manifest_and_the_actions_are_valid() -> None:
    """They are read as an install would; and an action says where in the repository it is."""
    manifest = parse_connector_manifest(build(SOURCE).manifest, file="m")
    actions = {
        path.parent.name: parse_action(path.read_text(), file=str(path), allow_placeholder=True)
        for path in (SOURCE / "actions").glob("*/action.md")
    }
    assert (str(manifest.name), manifest.version) == (NAME, "0.0.0-dev")
    assert [str(host) for host in manifest.hosts] == ["slack.com:443"]
    assert manifest.credential is not None
    wire = (manifest.credential.kind, manifest.credential.header, manifest.credential.format)
    assert wire == ("api_key", "Authorization", "Bearer {key}")

    gated = {name: (action.approval.required, action.steps[0].idempotent) for name, action in actions.items()}
    assert gated == {
        "slack-list-channels": (False, True),
        "slack-search-messages": (False, True),
        "slack-ship-update": (True, False),
    }
    for name, action in actions.items():
        previewed = [] if action.preview is None else [action.preview.op]
        assert (action.name, action.version) == (name, manifest.version)
        assert action.source == f"{NAME}/actions/{name}@{manifest.version}"
        assert [action.steps[0].op, *previewed] == list(action.connectors[0].capabilities)
        assert {action.steps[0].op, *previewed} <= set(manifest.intents)


# Channels


def test_channels_are_listed_with_their_details(slack: SlackServer, call: Call) -> None:
    """The listing has names, readable topics and sizes; archived channels only if requested."""
    slack.channel(
        "general", topic="Ships &amp; <https://x.example/?a=1&amp;b=2|docs> for <@U024BE7LH|bob>", members=412
    )
    slack.channel("old", is_archived=True)
    slack.channel("partners", is_ext_shared=True, is_member=False)
    listed = call("list_channels").output
    with_old = call("list_channels", include_archived=True).output["channels"]

    general, partners = listed["channels"]
    assert (general["name"], general["members"], general["shared"], general["member"]) == ("general", 412, False, True)
    assert general["topic"] == "Ships & docs <https://x.example/?a=1&b=2> for @bob (U024BE7LH)"
    assert (partners["shared"], partners["member"], listed["next_cursor"]) == (True, False, None)
    assert [channel["name"] for channel in with_old] == ["general", "old", "partners"]


def test_a_listing_uses_as_many_pages_as_needed(slack: SlackServer, call: Call) -> None:
    """Slack may give less than requested. If there is more, the cursor continues there, and each channel is listed once."""
    slack.largest_page = 3
    names = [f"channel-{number}" for number in range(9)]
    for name in names:
        slack.channel(name)
    first = call("list_channels", max_results=7).output
    rest = call("list_channels", max_results=7, cursor=first["next_cursor"]).output

    assert [channel["name"] for channel in first["channels"] + rest["channels"]] == names
    assert rest["next_cursor"] is None
    assert [asked.query["limit"] for asked in slack.asked] == [["7"], ["4"], ["1"], ["7"]]


def test_a_listing_or_look_up_with_endless_pages_is_stopped(slack: SlackServer, call: Call) -> None:
    """A listing ends with a cursor to continue; a look-up ends with the advice to give an id."""
    endless = {"ok": True, "channels": [], "response_metadata": {"next_cursor": "dGVhbTow"}}
    slack.disturb("conversations.list", endless, times=1000)
    listed = call("list_channels").output
    failed = call("post_message", channel="#general", text="hi").failure

    assert listed == {"channels": [], "next_cursor": "dGVhbTow"}
    assert (failed.failure_class, failed.details) == ("bad_input", {"argument": "channel"})
    assert "give the channel's id" in failed.message
    assert slack.called().count("GET conversations.list") == 40
    assert slack.posts == []


def test_a_full_listing_of_long_topics_fits_into_a_result(slack: SlackServer, call: Call) -> None:
    """The author of long topics cannot keep other channels from being listed."""
    for number in range(200):
        slack.channel(f"{number}", topic="\x01" * 1000, purpose={"value": "\x01" * 1000})
    listed = call("list_channels", max_results=200).output["channels"]

    assert len(listed) == 200
    assert {len(channel["topic"]) for channel in listed} == {251}


def test_a_channel_is_described_for_the_approver(slack: SlackServer, call: Call) -> None:
    """The description by name or by id has its size, its other readers, and the account that posts; only reads are requested."""
    general = slack.channel("general", members=412)
    partners = slack.channel("partners", is_ext_shared=True, members=7)
    by_name = call("get_channel", channel="#general").output
    by_id = call("get_channel", channel=partners).output

    assert (by_name["channel"]["id"], by_name["channel"]["members"]) == (general, 412)
    assert (by_name["seen_by"], by_name["posted_as"], by_name["workspace"]) == (
        "everybody in the workspace",
        "mira",
        "Acme",
    )
    assert (by_id["channel"]["name"], by_id["channel"]["members"]) == ("partners", 7)
    assert by_id["seen_by"] == "everybody in the workspace, and people of another organization"
    assert slack.called() == [
        "GET conversations.list",
        "GET auth.test",
        "GET conversations.info",
        "GET auth.test",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"is_pending_ext_shared": True},
            "everybody in the workspace, and people of another organization once they accept",
        ),
        ({"is_archived": True}, "nobody: the channel is archived, and Slack will refuse the message"),
    ],
)
def test_the_readers_of_a_channel_are_described_in_words(
    slack: SlackServer, call: Call, fields: dict[str, Any], words: str
) -> None:
    """The approver need not know Slack's fields."""
    assert call("get_channel", channel=slack.channel("x", **fields)).output["seen_by"] == words


def test_a_private_channel_needs_a_scope_for_its_description_but_not_for_posting(
    slack: SlackServer, call: Call
) -> None:
    """The channel is named by its id; the failed preview says which scope is missing."""
    private = slack.channel("board", is_private=True)
    failed = call("get_channel", channel=private).failure
    call("post_message", channel=private, text="hi").output  # noqa: B018
    slack.allow(TOKEN, [*SCOPES, "groups:read"])
    found = call("get_channel", channel=private).output

    assert (failed.details["reason"], failed.details["needed"]) == ("missing_scope", "groups:read")
    assert (found["channel"]["private"], found["seen_by"]) == (True, "its members")
    assert [post.channel for post in slack.posts] == [private]


# Posting


def test_a_message_is_posted_once_to_the_named_channel(slack: SlackServer, call: Call) -> None:
    """The name is exact, with or without `#`, or an id; the request has the token, and JSON in UTF-8."""
    slack.channel("general-announcements")
    general = slack.channel("general")
    by_name = call("post_message", channel="#general", text="Grüße\nzwei & <drei>").output
    for channel in ("general", general):
        call("post_message", channel=channel, text="again").output  # noqa: B018

    assert [post.channel for post in slack.posts] == [general] * 3
    assert slack.posts[0].text == "Grüße\nzwei &amp; &lt;drei&gt;"
    assert by_name["message"] == {"channel": general, "ts": slack.posts[0].ts, "time": "2017-10-17T23:50:00+00:00"}
    assert {asked.authorization for asked in slack.asked} == {digest_of(TOKEN)}
    assert slack.called().count("GET conversations.list") == 2


@pytest.mark.parametrize("mrkdwn", [False, True])
def test_no_posted_text_mentions_or_notifies_anybody(slack: SlackServer, call: Call, mrkdwn: bool) -> None:
    """Formatted or not, no text notifies anybody, and a link shows its real address."""
    general = slack.channel("general")
    link = "https://github.com/acme/app/pull/4218?a=1&b=2"
    call("post_message", channel=general, text=MASS, link=link, mrkdwn=mrkdwn).output  # noqa: B018
    post = slack.posts[0]

    assert post.announced == ()
    assert post.text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == f"{MASS}\n<{link}>"
    assert "<" not in post.text.partition("\n")[0]
    assert post.asked["mrkdwn"] is mrkdwn
    for name, value in (("parse", "none"), ("link_names", False), ("unfurl_links", False), ("unfurl_media", False)):
        assert post.asked[name] == value


def test_a_raw_request_with_mentions_notifies_people(slack: SlackServer, authority: Authority) -> None:
    """This is the positive control of the test above: the server's list of notified people is not always empty."""
    general = slack.channel("general")
    body = json.dumps({"channel": general, "text": "<!channel> @here", "parse": "full"}).encode()
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    with (
        socket.create_connection(("127.0.0.1", slack.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=NAMES[0]) as tls,
    ):
        head = f"POST /api/chat.postMessage HTTP/1.1\r\nHost: {NAMES[0]}\r\nAuthorization: Bearer {TOKEN}\r\n"
        head += f"Content-Type: application/json; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
        tls.sendall(head.encode() + body)
        assert tls.recv(1024).startswith(b"HTTP/1.1 200 OK")

    assert slack.posts[0].announced == ("!channel", "@here")


def test_a_reply_joins_its_thread(slack: SlackServer, call: Call) -> None:
    """The thread is named by the ts of the message that is answered."""
    general = slack.channel("general")
    call("post_message", channel=general, text="yes", thread_ts="1508284197.000015").output  # noqa: B018

    assert slack.posts[0].asked["thread_ts"] == "1508284197.000015"


@pytest.mark.parametrize(
    ("args", "argument", "words"),
    [
        ({"text": " \n"}, "text", "text is empty"),
        ({"text": "a\x1b[2Jb"}, "text", "U+001B"),
        ({"text": "a\x00"}, "text", "U+0000"),
        ({"text": "a\x9b2J"}, "text", "U+009B"),
        ({"text": "x" * 40_001}, "text", "text is 40001 characters"),
        ({"text": "&" * 8001}, "text", "text is 40005 characters"),
        ({"text": "x", "link": "http://a.example/"}, "link", "is not an https address"),
        ({"text": "x", "link": "https://a.example/|trust me"}, "link", "is not an https address"),
        ({"text": "x", "link": "https://a.example/> <!channel"}, "link", "is not an https address"),
        ({"text": "x", "link": "https://good.example@evil.example/"}, "link", "is not an https address"),
        ({"text": "x", "link": "https://ex\u0430mple.com/"}, "link", "is not an https address"),
        ({"text": "x", "link": "https://a.example/" + "x" * 2000}, "link", "is not an https address"),
        ({"text": "x", "channel": "#General"}, "channel", "neither a name such as #general nor an id"),
        ({"text": "x", "channel": "#a b"}, "channel", "neither a name"),
        ({"text": "x", "channel": ""}, "channel", "neither a name"),
        ({"text": "x", "channel": "@ann"}, "channel", "neither a name"),
        ({"text": "x", "channel": "U024BE7LH"}, "channel", "neither a name"),
        ({"text": "x", "thread_ts": "now"}, "thread_ts", "is not a message's ts"),
    ],
)
def test_a_message_that_cannot_be_posted_is_refused_before_any_request(
    slack: SlackServer, call: Call, args: dict[str, str], argument: str, words: str
) -> None:
    """The failure names the argument that has to change."""
    failed = call("post_message", **{"channel": "#general", **args}).failure

    assert (failed.failure_class, failed.details["argument"]) == ("bad_input", argument)
    assert words in failed.message
    assert slack.asked == []


def test_a_message_of_the_maximum_length_is_posted(slack: SlackServer, call: Call) -> None:
    """The text has 40,000 characters as they are sent."""
    general = slack.channel("general")
    call("post_message", channel=general, text="x" * 40_000).output  # noqa: B018

    assert len(slack.posts[0].text) == 40_000


def test_an_unknown_channel_is_the_callers_mistake(slack: SlackServer, call: Call) -> None:
    """Neither a similar name nor an archived channel is used in its place; nothing is posted."""
    slack.channel("general-announcements")
    slack.channel("general", is_archived=True)
    slack.channel("generale")
    failed = call("post_message", channel="#general", text="hi").failure

    assert (failed.failure_class, failed.details) == ("bad_input", {"argument": "channel"})
    assert "no public channel is called #general, or it is archived" in failed.message
    assert slack.called() == ["GET conversations.list"]


def test_an_ambiguous_channel_name_is_refused(slack: SlackServer, call: Call) -> None:
    """Organizations that share channels have such names; the failure has both ids."""
    ids = [slack.channel("general") for _ in range(2)]
    failed = call("post_message", channel="#general", text="hi").failure

    assert failed.failure_class == "bad_input"
    assert ", ".join(ids) in failed.message
    assert slack.posts == []


def test_a_channel_name_is_searched_on_every_page(slack: SlackServer, call: Call) -> None:
    """The search stops once the name is found."""
    slack.largest_page = 2
    for number in range(4):
        slack.channel(f"channel-{number}")
    wanted = slack.channel("general")
    for number in range(4, 9):
        slack.channel(f"channel-{number}")
    call("post_message", channel="general", text="hi").output  # noqa: B018

    assert [post.channel for post in slack.posts] == [wanted]
    assert [asked.query["limit"] for asked in slack.asked if "limit" in asked.query] == [["200"]] * 3


# Searching


def test_messages_are_found_and_shown_as_their_readers_see_them(slack: SlackServer, call: Call) -> None:
    """The newest is first, with author, channel and time; links show where they lead."""
    slack.channel("general")
    slack.message("general", "the migration is &lt;done&gt;", user="ann")
    slack.message("general", "<!channel> migration: see <https://evil.example/|https://good.example/>", user="bob")
    found = call("search_messages", query="migration").output
    newest, oldest = found["messages"]

    assert (oldest["text"], oldest["author"], oldest["channel"]["name"]) == (
        "the migration is <done>",
        "ann",
        "general",
    )
    assert newest["text"] == "@channel migration: see https://good.example/ <https://evil.example/>"
    assert oldest["time"].startswith("2017-10-17T23:")
    assert oldest["link"].startswith("https://acme.slack.com/archives/")
    assert (found["total"], found["next_page"]) == (2, None)


def test_a_search_continues_by_page(slack: SlackServer, call: Call) -> None:
    """Each message is found once; at the end there is no next page."""
    slack.channel("general")
    for number in range(5):
        slack.message("general", f"number {number}")
    texts: list[str] = []
    page: int | None = 1
    while page is not None:
        found = call("search_messages", query="number", max_results=2, page=page).output
        texts += [message["text"] for message in found["messages"]]
        page = found["next_page"]

    assert texts == [f"number {number}" for number in (4, 3, 2, 1, 0)]
    assert [asked.query["page"] for asked in slack.asked] == [["1"], ["2"], ["3"]]


def test_a_hundred_long_messages_fit_into_a_result(slack: SlackServer, call: Call) -> None:
    """Characters of several bytes make no difference."""
    slack.channel("general")
    for _ in range(100):
        slack.message("general", "word " + "\x01" * 3000, username="\x01" * 1000, permalink="x" * 5000)
    listed = call("search_messages", query="word", max_results=100).output["messages"]

    assert len(listed) == 100
    assert {(len(message["text"]), message["text_is_cut"]) for message in listed} == {(1001, True)}


def test_an_answer_that_is_too_long_says_to_ask_for_less(slack: SlackServer, call: Call) -> None:
    """A hundred messages of 40,000 characters exceed what the connector reads; ten of them do not."""
    slack.channel("general")
    for _ in range(100):
        slack.message("general", "word " + "é" * 39_000)
    failed = call("search_messages", query="word", max_results=100).failure
    found = call("search_messages", query="word", max_results=10).output["messages"]

    assert "ask for less at once" in failed.message
    assert len(found) == 10


@pytest.mark.parametrize("text", GROUPS.values(), ids=GROUPS.keys())
def test_hostile_text_in_a_message_is_returned_unchanged_and_not_logged(
    slack: SlackServer, call: Call, text: str
) -> None:
    """Hostile text is in the result unchanged, whatever it would do to a terminal or a reader, and not in the log or printed."""
    text = as_in_a_file(text)
    slack.channel("general", topic=text)
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    slack.message("general", f"word {escaped}")
    report = call("search_messages", query="word")
    listed = call("list_channels")

    assert report.output["messages"][0]["text"].removesuffix("…") in f"word {text}"
    assert len(listed.output["channels"]) == 1
    assert (report.told, report.printed, listed.told, listed.printed) == ([], "", [], "")


@pytest.mark.parametrize(
    ("args", "argument"),
    [
        ({"query": " "}, "query"),
        ({"query": "x", "max_results": 101}, "max_results"),
        ({"query": "x", "max_results": 0}, "max_results"),
        ({"query": "x", "page": 0}, "page"),
        ({"query": "x", "page": 101}, "page"),
        ({"query": "x", "sort": "random"}, "sort"),
    ],
)
def test_an_invalid_search_is_refused_before_any_request(
    slack: SlackServer, call: Call, args: dict[str, Any], argument: str
) -> None:
    """The failure names the argument that has to change."""
    failed = call("search_messages", **args).failure

    assert (failed.failure_class, failed.details["argument"]) == ("bad_input", argument)
    assert slack.asked == []


# Tokens and words of messages


def test_tokens_and_messages_appear_only_in_the_result(slack: SlackServer, call: Call) -> None:
    """The connector is given no token; no message that it reads or posts is in the log or printed."""
    slack.channel("general", topic="Confidential")
    slack.message("general", "Confidential words")
    for report in (
        call("list_channels"),
        call("search_messages", query="words"),
        call("post_message", channel="#general", text="Confidential words"),
    ):
        report.output  # noqa: B018
        assert "Confidential" not in str(report.told) + report.printed
        for data in (report.given, report.sent):
            assert find(data, TOKEN.encode()) == []
    assert [frame.message for frame in report.told if isinstance(frame, Log)] == ["message posted"]


# What Slack refuses


@pytest.mark.parametrize("error", ["token_revoked", "account_inactive", "invalid_auth", "token_expired"])
def test_an_invalid_token_is_reported_with_the_command_that_replaces_it(
    slack: SlackServer, call: Call, error: str
) -> None:
    """Slack answers with status 200; the failure has 401, Slack's error code, and the command."""
    slack.revoke(TOKEN, error)
    failed = call("list_channels").failure

    assert failed.failure_class == "external_api_error"
    assert failed.details == {"status": 401, "answered": 200, "reason": error}
    assert "aileron secret set" in failed.message


def test_a_missing_scope_is_named(slack: SlackServer, call: Call) -> None:
    """The failure has the needed and the existing scopes, so that a person knows what to add."""
    slack.allow(TOKEN, ["channels:read", "chat:write"])
    failed = call("search_messages", query="x").failure

    assert failed.details == {
        "status": 403,
        "answered": 200,
        "reason": "missing_scope",
        "needed": "search:read",
        "provided": "channels:read,chat:write",
    }
    assert "it needs search:read, and has channels:read,chat:write" in failed.message


def test_an_apps_token_lists_and_posts_but_cannot_search(slack: SlackServer, host: Callable[[str], Call]) -> None:
    """Slack searches for users only; the failure says so."""
    slack.allow(APP_TOKEN, SCOPES)
    slack.channel("general")
    posted = host(APP_TOKEN)("post_message", channel="#general", text="hi").output
    failed = host(APP_TOKEN)("search_messages", query="x").failure

    assert posted["message"]["ts"] == slack.posts[0].ts
    assert (failed.details["status"], failed.details["reason"]) == (403, "not_allowed_token_type")
    assert "xoxp-" in failed.message


@pytest.mark.parametrize(
    ("error", "argument"),
    [
        ("channel_not_found", "channel"),
        ("is_archived", "channel"),
        ("msg_too_long", "text"),
        ("no_text", "text"),
        ("thread_not_found", "thread_ts"),
    ],
)
def test_a_refusal_the_caller_can_fix_is_bad_input(slack: SlackServer, call: Call, error: str, argument: str) -> None:
    """The failure names the argument, and has Slack's error code."""
    slack.disturb("chat.postMessage", {"ok": False, "error": error})
    failed = call("post_message", channel=slack.channel("x"), text="hi").failure

    assert (failed.failure_class, failed.details) == ("bad_input", {"argument": argument})
    assert f"[{error}]" in failed.message


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        ("not_in_channel", 403, "has to invite it [not_in_channel]"),
        ("restricted_action", 403, "administrators do not allow it in that channel [restricted_action]"),
        ("restricted_action_read_only_channel", 403, "[restricted_action_read_only_channel]"),
        ("ratelimited", 429, "too many requests for now [ratelimited]"),
        ("internal_error", 503, "a problem of its own [internal_error]; it may be done all the same"),
        ("fatal_error", 503, "it may be done all the same: look into Slack before you ask again"),
        ("something_new", 200, "Slack refuses it [something_new]; it may be done all the same"),
        ("\x1b[2J<b>evil</b>", 200, "Slack refuses it [unnamed]"),
    ],
)
def test_each_refusal_has_its_status_and_message(
    slack: SlackServer, call: Call, error: str, status: int, words: str
) -> None:
    """The host goes by the status; the failure says if the message may have been posted."""
    slack.disturb("chat.postMessage", {"ok": False, "error": error})
    failed = call("post_message", channel=slack.channel("x"), text="hi").failure

    assert (failed.failure_class, failed.details["status"]) == ("external_api_error", status)
    assert words in failed.message
    assert "evil" not in failed.message + str(failed.details)
    assert slack.posts == []


def test_a_rate_limit_says_when_to_try_again(slack: SlackServer, call: Call) -> None:
    """The failure is 429 with Retry-After: the host waits that long, if it may try again at all."""
    slack.disturb(
        "conversations.list",
        {"ok": False, "error": "ratelimited"},
        "Retry-After: 30",
        status="429 Too Many Requests",
    )
    failed = call("list_channels").failure

    assert failed.details == {"status": 429, "retry_after_s": 30}


@pytest.mark.parametrize(
    ("status", "words"),
    [("503 Service Unavailable", "a problem of its own (503)"), ("302 Found", "Slack answered (302)")],
)
def test_an_answer_without_success_is_reported_by_its_status(
    slack: SlackServer, call: Call, status: str, words: str
) -> None:
    """The answer's body does not matter; a redirect is not followed."""
    slack.disturb("", b'{"ok": true, "channels": []}', "Location: https://evil.example/", status=status)
    failed = call("list_channels").failure

    assert failed.details["status"] == int(status[:3])
    assert words in failed.message
    assert len(slack.asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"ok": "true"}',
        b'{"ok": true}',
        b'{"ok": true, "channels": {}}',
        b'{"ok": true, "channels": [{"id": 7}]}',
        b'{"ok": true, "channels": [{"id": "../../etc"}]}',
        b'{"ok": true, "channels": [{"id": "C024BE91L", "topic": "words"}]}',
        b'{"ok": true, "channels": [], "response_metadata": {"next_cursor": 7}}',
        b'{"ok": true, "channels": ' + b"[" * 5000,
        b'{"ok": true, "x": "' + b"x" * (5 << 20) + b'"}',
        b'\xff\xfe{"ok": true}',
    ],
    ids=lambda body: repr(body[:40]),
)
def test_an_answer_that_does_not_fit_slacks_reference_is_a_clear_failure(
    slack: SlackServer, call: Call, body: bytes
) -> None:
    """Such an answer is not used in part either."""
    slack.disturb("conversations.list", body)
    failed = call("list_channels").failure

    assert failed.failure_class == "external_api_error"


def test_an_unreadable_answer_after_posting_says_that_the_message_may_be_posted(slack: SlackServer, call: Call) -> None:
    """An agent that repeated the call without looking would post it twice."""
    channel = slack.channel("x")
    for body, status in ((b"<html>", "200 OK"), (b'{"ok": true}', "200 OK"), (b"", "502 Bad Gateway")):
        slack.disturb("chat.postMessage", body, status=status)
        failed = call("post_message", channel=channel, text="hi").failure

        assert "it may be done all the same: look into Slack before you ask again" in failed.message
