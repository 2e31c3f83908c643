"""The Google connector, as it is built, against a server that answers as Google's reference has it; and against lies."""

from __future__ import annotations

import email.policy
import json
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from aileron.actions.manifest import parse_action
from aileron.model.failure import AileronError
from aileron.model.secret import Secret
from aileron.registry.connector_build import Application, build
from aileron.registry.manifest import parse_connector_manifest
from aileron_sandbox.frames import GrantedHost, Log
from tests.support.canary import find
from tests.support.google import NAMES, SCOPES, GoogleServer, digest_of
from tests.support.plain_host import ROOT, PlainHost, Report, built_in
from tests.support.upstream import Authority

SOURCE = ROOT / "connectors" / "google"
TOKEN = "ya29.a-token-of-the-test"
HOSTS = [GrantedHost(name, 443, False) for name in NAMES]
APPLICATION = Application(client_id="12-ab.apps.example.com", client_secret=Secret(b"GOCSPX-of-the-test"))
FULL = 'the message "é"'

Call = Callable[..., Report]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the zip that `aileron connector build` makes."""
    return built_in(tmp_path_factory.mktemp("built"), SOURCE, (), APPLICATION)


@pytest.fixture
def google(authority: Authority) -> Iterator[GoogleServer]:
    """Return the server of an empty account, and a token for all of it."""
    with GoogleServer(authority.server_context(*NAMES)) as server:
        server.allow(TOKEN)
        yield server


@pytest.fixture
def call(google: GoogleServer, program: Path, authority: Authority) -> Call:
    """Return a function that runs an operation: call(op, **args)."""
    tls = ssl.create_default_context(cafile=str(authority.ca_file))
    return PlainHost(program, hosts=HOSTS, bearer=TOKEN, at=("127.0.0.1", google.port), tls=tls).call


def raw(**fields: str) -> bytes:
    """Return a message of text as an unknown program writes it."""
    message = EmailMessage(policy=email.policy.SMTP)
    text = fields.pop("text", "hello")
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    message.set_content(text)
    return message.as_bytes()


# What ships


def test_the_manifest_and_the_actions_are_valid() -> None:
    """They are read as in an install, with an application bound; without an application the build is refused."""
    manifest = parse_connector_manifest(build(SOURCE, (), APPLICATION).manifest, file="m")
    actions = {
        path.parent.name: parse_action(path.read_text(), file=str(path), allow_placeholder=True)
        for path in (SOURCE / "actions").glob("*/action.md")
    }
    assert manifest.oauth2 is not None
    assert manifest.oauth2.scopes == SCOPES
    assert dict(manifest.oauth2.authorize_params) == {"access_type": "offline", "prompt": "consent"}
    assert [str(host) for host in manifest.hosts] == [f"{name}:443" for name in NAMES]
    with pytest.raises(AileronError, match="client_id is 'bound-at-release'"):
        build(SOURCE)

    gated = {name: (action.approval.required, action.steps[0].idempotent) for name, action in actions.items()}
    reads, writes, asks = (False, True), (False, False), (True, False)
    assert gated == {
        "google-list-recent-emails": reads,
        "google-get-email": reads,
        "google-list-upcoming-events": reads,
        "google-draft-email": writes,
        "google-send-email": asks,
        "google-send-draft": asks,
        "google-create-calendar-event": asks,
    }
    for name, action in actions.items():
        previewed = [] if action.preview is None else [action.preview.op]
        assert action.name == name
        assert [action.steps[0].op, *previewed] == list(action.connectors[0].capabilities)
        assert {action.steps[0].op, *previewed} <= set(manifest.intents)


# Reading mail


def test_the_latest_messages_are_listed_first(google: GoogleServer, call: Call) -> None:
    """The listing has sender and subject, and a query selects as Gmail's search does."""
    google.receive(subject="older", labels=["INBOX"])
    key = google.receive(
        raw=raw(From="Jürgen <j@example.com>", To="mira@example.com", Subject=f"Grüße & {FULL}", text="a <b>")
    )
    listed = call("list_recent_emails").output

    assert [message["subject"] for message in listed["messages"]] == [f"Grüße & {FULL}", "older"]
    newest = listed["messages"][0]
    assert (newest["id"], newest["from"], newest["snippet"]) == (key, "Jürgen <j@example.com>", "a <b>")
    assert (newest["unread"], listed["messages"][1]["unread"], listed["next_page_token"]) == (True, False, None)
    assert [message["subject"] for message in call("list_recent_emails", query="is:unread").output["messages"]] == [
        newest["subject"]
    ]
    assert call("list_recent_emails", query="from:nobody").output == {"messages": [], "next_page_token": None}


def test_a_listing_uses_as_many_pages_as_needed(google: GoogleServer, call: Call) -> None:
    """Google may give less than requested. If there is more, the token continues there, and each message is listed once."""
    google.largest_page = 3
    for number in range(9):
        google.receive(subject=str(number))
    first = call("list_recent_emails", max_results=7).output
    rest = call("list_recent_emails", max_results=7, page_token=first["next_page_token"]).output

    assert [message["subject"] for message in first["messages"] + rest["messages"]] == list("876543210")
    assert rest["next_page_token"] is None
    pages = [asked.query["maxResults"] for asked in google.asked if asked.path.endswith("/messages")]
    assert pages == [["7"], ["4"], ["1"], ["7"]]


def test_a_message_is_read_with_its_text_and_attachments(google: GoogleServer, call: Call) -> None:
    """The message has alternatives, a charset of its own, and an attachment with a name outside ASCII (RFC 2231)."""
    message = EmailMessage(policy=email.policy.SMTP)
    message["From"], message["To"], message["Reply-To"] = (
        "Ada <ada@example.com>",
        "mira@example.com",
        "list@example.com",
    )
    message["Subject"] = "Grüße " * 20
    message.set_content("Grüße – “Ada”", charset="windows-1252")
    message.add_alternative("<p>never read</p>", subtype="html")
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="Übersicht.pdf")
    got = call("get_email", message_id=google.receive(raw=message.as_bytes())).output

    assert (got["text"], got["text_from"], got["text_is_cut"]) == ("Grüße – “Ada”", "plain", False)
    assert (got["subject"], got["reply_to"]) == (("Grüße " * 20).strip(), "list@example.com")
    assert got["attachments"] == [{"filename": "Übersicht.pdf", "mime_type": "application/pdf", "size": 4}]


def test_a_message_that_has_only_html_is_returned_as_text(google: GoogleServer, call: Call) -> None:
    """The result says that it was HTML."""
    message = EmailMessage()
    message["To"] = "mira@example.com"
    message.set_content("<style>p{}</style><p>Click <a href='https://x.example/'>here</a>", subtype="html")
    got = call("get_email", message_id=google.receive(raw=message.as_bytes())).output

    assert (got["text"], got["text_from"]) == ("Click here <https://x.example/>", "html")


# Writing mail


def test_a_message_is_sent_to_all_recipients_without_showing_bcc(google: GoogleServer, call: Call) -> None:
    """The message has several recipients, and names and a subject outside ASCII; once sent, it can be listed."""
    report = call(
        "send_email",
        to='"Müller, Jürgen" <j@example.com>, bob@example.com',
        cc=["Ann <ann@example.com>"],
        bcc="eve@example.com",
        reply_to="list@example.com",
        subject=f"Grüße: {FULL}",
        body="Zeile eins\nZeile zwei – 🎉\n",
    )
    [delivered] = google.outbox

    assert report.output["message"]["id"] == delivered.message_id
    assert delivered.recipients == ("j@example.com", "bob@example.com", "ann@example.com", "eve@example.com")
    shown = delivered.message
    assert "Bcc" not in shown
    assert [address.display_name for address in shown["To"].addresses] == ["Müller, Jürgen", ""]
    assert (shown["Subject"], shown["Reply-To"]) == (f"Grüße: {FULL}", "list@example.com")
    assert shown.get_content().splitlines() == ["Zeile eins", "Zeile zwei – 🎉"]
    [listed] = call("list_recent_emails", query="in:sent").output["messages"]
    assert listed["subject"] == f"Grüße: {FULL}"
    [log] = [told for told in report.told if isinstance(told, Log)]
    assert (log.message, log.fields) == ("message sent", {"recipients": 4})


def test_a_draft_is_created_read_and_sent(google: GoogleServer, call: Call) -> None:
    """The draft is not sent before. The message that is read is the one that is sent, its Bcc included; then the draft
    is gone.
    """
    args = {"to": "Ann <ann@example.com>", "bcc": "eve@example.com", "subject": "Grüße", "body": "a\nb"}
    draft = call("draft_email", **args).output["draft"]
    assert google.outbox == []
    read = call("get_draft", draft_id=draft["id"]).output
    sent = call("send_draft", draft_id=draft["id"]).output["message"]

    assert (read["to"], read["bcc"], read["cc"], read["subject"], read["text"]) == (
        *("Ann <ann@example.com>", "eve@example.com", "", "Grüße", "a\nb"),
    )
    assert (read["id"], read["message_id"]) == (draft["id"], draft["message_id"])
    assert google.outbox[0].recipients == ("ann@example.com", "eve@example.com")
    assert sent["id"] == google.outbox[0].message_id
    gone = call("send_draft", draft_id=draft["id"]).failure
    assert (gone.details["status"], len(google.outbox)) == (404, 1)


def test_a_drafts_html_and_attachments_are_reported(google: GoogleServer, call: Call) -> None:
    """A draft's HTML may say something else than its text, and most programs show it; attachments are sent too."""
    plain, both, page = EmailMessage(), EmailMessage(), EmailMessage()
    for message in (plain, both, page):
        message["To"] = "ann@example.com"
    plain.set_content("yes")
    both.set_content("yes")
    both.add_alternative("<p>no</p>", subtype="html")
    both.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="Übersicht.pdf")
    both.add_attachment(b"x", maintype="image", subtype="png")
    page.set_content("<p>no</p>", subtype="html")
    drafts = [
        call("get_draft", draft_id=google.write_draft(message.as_bytes())).output for message in (plain, both, page)
    ]

    assert [(draft["text"], draft["form"].partition(";")[0]) for draft in drafts] == [
        ("yes", "plain text"),
        ("yes", "plain text"),
        ("no", "HTML"),
    ]
    assert ["it has HTML too, which is not shown here" in draft["form"] for draft in drafts] == [False, True, False]
    assert [draft["attached"] for draft in drafts] == ["", "Übersicht.pdf, image/png", ""]


def test_a_reply_is_put_into_its_thread(google: GoogleServer, call: Call) -> None:
    """The reply has Gmail's thread and the header fields of other programs; nothing else is taken from the message it answers."""
    asked = google.receive(
        raw=raw(From="Ada <ada@example.com>", Message_ID="<2@x.yy>", References="<1@x.yy>", Bcc="eve@x.yy")
    )
    thread = google.messages[asked].thread_id
    sent = call("send_email", to="ada@example.com", subject="Re: x", body="yes", in_reply_to=asked).output["message"]

    assert sent["thread_id"] == thread
    shown = google.outbox[0].message
    assert (shown["In-Reply-To"], shown["References"]) == ("<2@x.yy>", "<1@x.yy> <2@x.yy>")
    assert google.outbox[0].recipients == ("ada@example.com",)


@pytest.mark.parametrize(
    ("op", "args", "argument"),
    [
        ("send_email", {"to": "ann@example.com\r\nBcc: eve@example.com"}, "to"),
        ("send_email", {"subject": "x\nBcc: eve@example.com"}, "subject"),
        ("send_email", {"reply_to": "a@b.cc\r\n\r\nbody"}, "reply_to"),
        ("send_email", {"to": " , "}, "to"),
        ("send_email", {"to": "ann"}, "to"),
        ("send_email", {"bcc": "ann@example.com; bob@example.com"}, "bcc"),
        ("send_email", {"body": "a\0b"}, "body"),
        ("send_email", {"in_reply_to": "../drafts"}, "in_reply_to"),
        ("draft_email", {"cc": ["a@b.cc", "\n"]}, "cc"),
        ("send_draft", {"draft_id": "r-1/../../messages"}, "draft_id"),
        ("get_draft", {"draft_id": ""}, "draft_id"),
        ("get_email", {"message_id": "send?x=1"}, "message_id"),
        ("get_email", {"message_id": 7}, "message_id"),
        ("list_recent_emails", {"max_results": 0}, "max_results"),
        ("list_recent_emails", {"max_results": 101}, "max_results"),
        ("list_upcoming_events", {"max_results": 251}, "max_results"),
        ("list_upcoming_events", {"days": 0}, "days"),
        ("list_upcoming_events", {"calendar": ".."}, "calendar"),
        ("list_upcoming_events", {"calendar": "a/b"}, "calendar"),
        ("create_calendar_event", {"title": " "}, "title"),
        ("create_calendar_event", {"start_time": "2026-03-30T12:00:00"}, "start_time"),
        ("create_calendar_event", {"end_time": "2026-03-30"}, "end_time"),
        ("create_calendar_event", {"end_time": "2026-03-30T11:00:00+02:00"}, "end_time"),
        ("create_calendar_event", {"end_time": "2026-03-30T13:00", "timezone": "Europe/Berlin"}, "end_time"),
        ("create_calendar_event", {"start_time": "tomorrow"}, "start_time"),
        ("create_calendar_event", {"timezone": "../../etc"}, "timezone"),
        ("create_calendar_event", {"attendees": "ann"}, "attendees"),
    ],
)
def test_invalid_arguments_are_bad_input(
    google: GoogleServer, call: Call, op: str, args: dict[str, Any], argument: str
) -> None:
    """The argument is named, and no request is sent. The positive controls are the tests around it."""
    good: dict[str, dict[str, Any]] = {
        "send_email": {"to": "ann@example.com", "subject": "s", "body": "b"},
        "draft_email": {"to": "ann@example.com", "subject": "s", "body": "b"},
        "create_calendar_event": {
            "title": "T",
            "start_time": "2026-03-30T12:00:00+02:00",
            "end_time": "2026-03-30T13:00:00+02:00",
        },
    }
    report = call(op, **{**good.get(op, {}), **args})

    assert (report.failure.failure_class, report.failure.details) == ("bad_input", {"argument": argument})
    assert google.asked == []


# Calendars


def put(google: GoogleServer, title: str, at: datetime, **more: Any) -> None:
    """Add an event of an hour, as another client would."""
    times = {"start": {"dateTime": at.isoformat()}, "end": {"dateTime": (at + timedelta(hours=1)).isoformat()}}
    google.events[title] = {"id": title, "summary": title, "status": "confirmed"} | times | more


def test_upcoming_events_are_listed_by_start(google: GoogleServer, call: Call) -> None:
    """The list uses several pages, and has attendees, whole days, and cut descriptions."""
    google.largest_page = 2
    now = datetime.now(UTC)
    for title, hours in (("past", -3), ("third", 72), ("first", 1), ("second", 2), ("later", 24 * 9)):
        put(google, title, now + timedelta(hours=hours))
    today = now.date() + timedelta(days=2)
    dates = {"start": {"date": today.isoformat()}, "end": {"date": (today + timedelta(days=1)).isoformat()}}
    guests = [{"email": f"g{number}@example.com", "responseStatus": "accepted"} for number in range(60)]
    put(google, "whole", now, **dates, attendees=guests, description="d" * 3000, organizer={"email": "o@example.com"})
    listed = call("list_upcoming_events").output

    assert [event["title"] for event in listed["events"]] == ["first", "second", "whole", "third"]
    assert listed["more"] is False
    whole = listed["events"][2]
    assert (whole["all_day"], whole["start"], whole["organizer"]["email"]) == (True, today.isoformat(), "o@example.com")
    assert (len(whole["attendees"]), whole["attendees_in_all"], len(whole["description"])) == (50, 60, 2001)
    assert [event["title"] for event in call("list_upcoming_events", max_results=2).output["events"]] == [
        "first",
        "second",
    ]
    assert call("list_upcoming_events", max_results=2).output["more"] is True
    assert [event["title"] for event in call("list_upcoming_events", days=30).output["events"]][-1] == "later"


def test_an_event_is_added_and_its_attendees_are_invited(google: GoogleServer, call: Call) -> None:
    """The event has every field. With `send_invitations=False` nobody is invited."""
    made = call(
        "create_calendar_event",
        title="Lunch with Mira 🎉",
        start_time="2026-03-30T12:00:00+02:00",
        end_time="2026-03-30T13:00:00+02:00",
        description="bring\nthe papers",
        location="Café",
        attendees="Ann <ann@example.com>, bob@example.com",
    ).output["event"]
    stored = google.events[made["id"]]

    assert (made["title"], made["start"], made["location"]) == (
        "Lunch with Mira 🎉",
        "2026-03-30T12:00:00+02:00",
        "Café",
    )
    assert stored["attendees"][0]["displayName"] == "Ann"
    assert google.invitations == [(made["id"], "ann@example.com"), (made["id"], "bob@example.com")]
    times = {"start_time": "2026-03-30", "end_time": "2026-03-30"}
    quiet = call(
        "create_calendar_event", title="T", **times, attendees="ann@example.com", send_invitations=False
    ).output
    assert (quiet["event"]["start"], quiet["event"]["end"], quiet["event"]["all_day"]) == (
        "2026-03-30",
        "2026-03-31",
        True,
    )
    assert len(google.invitations) == 2


def test_local_times_go_to_google_with_their_zone(google: GoogleServer, call: Call) -> None:
    """Google knows the zones; the connector does not."""
    made = call(
        "create_calendar_event",
        title="Zoned",
        start_time="2026-03-28T20:00",
        end_time="2026-03-29T08:00",
        timezone="America/Argentina/Buenos_Aires",
        calendar="team#holiday@group.v.calendar.google.com",
    ).failure
    assert made.details["status"] == 404  # of a calendar this account does not have, and by its own name
    assert google.asked[-1].path == "/calendar/v3/calendars/team#holiday@group.v.calendar.google.com/events"
    times = {"start_time": "2026-03-28T20:00", "end_time": "2026-03-29T08:00"}
    call("create_calendar_event", title="Zoned", **times, timezone="Europe/Berlin").output  # noqa: B018
    assert google.asked[-1].json()["start"] == {"dateTime": "2026-03-28T20:00:00", "timeZone": "Europe/Berlin"}


# The credential


def test_the_token_never_enters_the_connector(google: GoogleServer, call: Call) -> None:
    """The token is not in what goes in, comes out or is printed, in no shape; and Google got it each time."""
    report = call("send_email", to="ann@example.com", subject="s", body="b")
    report.output  # noqa: B018
    assert {asked.authorization for asked in google.asked} == {digest_of(TOKEN)}
    assert {request.credential for request in report.requests} == {"oauth2"}
    for data in (report.sent, report.given, report.printed.encode()):
        assert find(data, TOKEN.encode()) == []


def test_the_words_and_addresses_of_a_message_appear_only_in_the_result(google: GoogleServer, call: Call) -> None:
    """The log and the printed text have no word and no address of it."""
    key = google.receive(sender="Ada Secretive <hidden@example.com>", subject="Confidential", text="Confidential words")
    for report in (
        call("list_recent_emails"),
        call("get_email", message_id=key),
        call("send_email", to="hidden@example.com", subject="Confidential", body="Confidential words", in_reply_to=key),
        call("draft_email", to="hidden@example.com", subject="Confidential", body="Confidential words"),
    ):
        report.output  # noqa: B018
        said = str(report.told) + report.printed
        assert "Confidential" not in said
        assert "hidden" not in said
        assert key not in said


# What Google refuses


def test_an_expired_token_asks_for_a_new_sign_in(google: GoogleServer, call: Call) -> None:
    """The host has already tried to renew the token. The failure has status 401 and the command."""
    google.allow(TOKEN, expires_at=1.0)
    failed = call("list_recent_emails").failure

    assert (failed.failure_class, failed.details) == ("external_api_error", {"status": 401, "reason": "authError"})
    assert "aileron binding reauthorize NAME" in failed.message


def test_a_missing_scope_and_a_rate_limit_are_distinguished(google: GoogleServer, call: Call) -> None:
    """Both are 403 at Google. A person must fix the scope; the limit passes, and becomes 429 so that the host tries again."""
    google.allow(TOKEN, [scope for scope in SCOPES if "compose" not in scope])
    scope = call("send_email", to="ann@example.com", subject="s", body="b").failure
    google.fail(403, None, "Retry-After: 7", reason="userRateLimitExceeded", domain="usageLimits")
    rate = call("list_recent_emails").failure

    assert scope.details == {"status": 403, "reason": "insufficientPermissions"}
    assert "lacks “Manage drafts and send emails” (gmail.compose) (403): sign in again with" in scope.message
    assert rate.details == {"status": 429, "answered": 403, "retry_after_s": 7, "reason": "userRateLimitExceeded"}
    assert google.outbox == []
    assert call("list_recent_emails").output["messages"] == []


@pytest.mark.parametrize(
    ("status", "reason", "fields", "details", "words"),
    [
        (429, "rateLimitExceeded", ["Retry-After: 11"], {"status": 429, "retry_after_s": 11}, "too many requests"),
        (429, "rateLimitExceeded", ["Retry-After: soon"], {"status": 429}, "too many requests for now (429)"),
        (429, "rateLimitExceeded", ["Retry-After: 99999999"], {"status": 429}, "too many requests for now (429)"),
        (500, "backendError", [], {"status": 500}, "Google has a problem of its own (500)"),
        (503, "backendError", ["Retry-After: 3"], {"status": 503, "retry_after_s": 3}, "problem of its own (503)"),
        (403, "dailyLimitExceeded", [], {"status": 403}, "in a day is used up (403)"),
        (403, "accessNotConfigured", [], {"status": 403}, "not switched on for the connector's application"),
        (403, "domainPolicy", [], {"status": 403}, "does not allow it to this account (403) [domainPolicy]"),
        (404, "notFound", [], {"status": 404}, "no such thing at Google"),
        (409, "duplicate", [], {"status": 409}, "it exists already (409)"),
        (400, "failedPrecondition", [], {"status": 400}, "understand the request (400): 'failedPrecondition it is'"),
        (418, "teapot", [], {"status": 418}, "Google answered 418 [teapot]"),
    ],
)
def test_each_refusal_has_its_status_and_message(
    google: GoogleServer, call: Call, status: int, reason: str, fields: list[str], details: dict[str, Any], words: str
) -> None:
    """Temporary ones are those that the host tries again: 429 and 5xx, with Google's own delay."""
    google.fail(status, None, *fields, reason=reason)
    failed = call("list_recent_emails").failure

    assert (failed.failure_class, failed.details) == ("external_api_error", {**details, "reason": reason})
    assert words in failed.message
    assert failed.message.startswith("cannot list the messages: ")


@pytest.mark.parametrize(
    ("status", "body", "details"),
    [
        (503, b"<html>busy</html>", {"status": 503}),
        (403, b"", {"status": 403}),
        (403, b'{"error": "invalid_grant"}', {"status": 403}),
        (403, b'{"error": {"errors": {"reason": "x"}}}', {"status": 403}),
        (403, b'{"error": {"errors": [7, {"reason": 7}, {"reason": "a b\\n"}], "message": 7}}', {"status": 403}),
        (
            400,
            b'{"error": {"message": "two\\nlines", "errors": [{"reason": "bad"}]}}',
            {"status": 400, "reason": "bad"},
        ),
        (403, b'{"error": {"details": [{"reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}]}}', {"status": 403}),
        (500, b"[" * 100_000, {"status": 500}),
        (500, b"x" * 200_000, {"status": 500}),
        (302, b"", {"status": 302}),
        (200 + 4, b"", {"status": 204}),
    ],
)
def test_a_refusal_in_an_unexpected_form_is_reported_by_its_status(
    google: GoogleServer, call: Call, status: int, body: bytes, details: dict[str, Any]
) -> None:
    """The cases are a proxy's page, no body, another form, too deep, and too long; each is one failure with a short message."""
    google.fail(status, body)
    failed = call("list_recent_emails").failure

    assert failed.failure_class == "external_api_error"
    assert details.items() <= failed.details.items()
    assert "\n" not in failed.message
    assert len(failed.message) < 300


MESSAGE = {"id": "1", "payload": {"mimeType": "text/plain", "headers": [], "body": {"size": 1, "data": "YQ"}}}
LIES: dict[str, tuple[str, Any]] = {
    "another type at the top": ("get_email", []),
    "an id that is a number": ("get_email", {**MESSAGE, "id": 1}),
    "no id": ("get_email", {"payload": {}}),
    "headers that are none": ("get_email", {**MESSAGE, "payload": {"headers": [{"name": "x"}]}}),
    "a body that is not base64url": (
        "get_email",
        {**MESSAGE, "payload": {"mimeType": "text/plain", "body": {"data": "*"}}},
    ),
    "parts in parts without end": ("get_email", b'{"id": "1", "payload": ' + b'{"parts": [' * 5000),
    "depth where nobody looks": ("get_email", b'{"id": "1", "x": ' + b"[" * 100_000),
    "half of it": ("get_email", json.dumps(MESSAGE).encode()[:-9]),
    "more than a message has": ("get_email", json.dumps({**MESSAGE, "x": "y" * (5 << 20)}).encode()),
    "a listing of numbers": ("list_recent_emails", {"messages": [1]}),
    "a listing in a word": ("list_recent_emails", {"messages": "none"}),
    "a page token that is a list": ("list_recent_emails", {"messages": [], "nextPageToken": []}),
    "events without a start": ("list_upcoming_events", {"items": [{"id": "1"}]}),
    "nothing": ("list_upcoming_events", b""),
}


@pytest.mark.parametrize(("op", "body"), LIES.values(), ids=LIES)
def test_an_answer_that_contradicts_google_s_reference_is_a_clear_failure(
    google: GoogleServer, call: Call, op: str, body: Any
) -> None:
    """The connector does not crash, returns no partial result, and does not cause a retry."""
    google.fail(200, body if isinstance(body, bytes) else json.dumps(body).encode(), times=9)
    args = {"message_id": "1"} if op == "get_email" else {}
    failed = call(op, **args).failure

    assert failed.failure_class == "external_api_error", failed
    assert failed.details.get("status") in {200, None}
    assert len(google.asked) == 1


@pytest.mark.parametrize("half", [b"\\ud83d", b"\xff"])
def test_invalid_unicode_in_a_message_is_replaced_and_the_rest_is_kept(
    google: GoogleServer, call: Call, half: bytes
) -> None:
    """A lone surrogate or an invalid byte becomes U+FFFD; the rest of the message stays as it is."""
    google.fail(200, json.dumps({**MESSAGE, "snippet": "x~"}).encode().replace(b"~", half), times=9)
    read = call("get_email", message_id="1").output
    assert (read["snippet"], read["text"]) == ("x\ufffd", "a")


def test_a_listing_with_endless_pages_is_stopped(google: GoogleServer, call: Call) -> None:
    """The server always has another page, with nothing on it."""
    google.fail(200, b'{"messages": [], "nextPageToken": "again"}', times=99)
    assert "in more than 20 pages" in call("list_recent_emails").failure.message
    assert len(google.asked) == 20


def test_an_id_from_a_listing_cannot_change_the_path_of_a_request(google: GoogleServer, call: Call) -> None:
    """The id becomes a part of a path. A listing with more than was requested is cut."""
    google.fail(200, json.dumps({"messages": [{"id": "../../../calendar/v3/x?y=/"}]}).encode())
    failed = call("list_recent_emails").failure
    assert "not what its reference says: an id" in failed.message
    assert len(google.asked) == 1
    ids = [{"id": google.receive(subject=str(number))} for number in range(5)]
    google.fail(200, json.dumps({"messages": ids}).encode())
    assert [message["subject"] for message in call("list_recent_emails", max_results=2).output["messages"]] == [
        "0",
        "1",
    ]


def test_a_message_deleted_during_a_listing_is_left_out(google: GoogleServer, call: Call) -> None:
    """The other messages are listed."""
    kept = google.receive(subject="kept")
    google.fail(200, json.dumps({"messages": [{"id": "0123456789abcdef"}, {"id": kept}]}).encode())
    assert [message["id"] for message in call("list_recent_emails").output["messages"]] == [kept]


def test_a_hundred_messages_with_long_fields_fit_into_a_result(google: GoogleServer, call: Call) -> None:
    """A sender of long messages cannot keep the others from being listed."""
    for _ in range(100):
        google.receive(raw=b"From: a@b.cc\r\nSubject: " + b'"' * 20_000 + b"\r\n\r\n")
    listed = call("list_recent_emails", max_results=100).output["messages"]
    assert len(listed) == 100
    assert {len(message["subject"]) for message in listed} == {301}


def test_an_unreadable_answer_after_sending_says_that_the_message_may_be_sent(google: GoogleServer, call: Call) -> None:
    """An agent that repeated the call without looking would send it twice."""
    google.fail(200, b"<html>", path="/send")
    failed = call("send_email", to="ann@example.com", subject="s", body="b").failure
    assert "Google has taken the request: look whether it is done before you ask again" in failed.message


def test_a_full_listing_of_long_events_fits_into_a_result(google: GoogleServer, call: Call) -> None:
    """Events that do not fit are left out, and `more` says so."""
    now = datetime.now(UTC)
    for number in range(250):
        put(
            google,
            f"{number:03}",
            now + timedelta(minutes=number + 1),
            description="\x01" * 2000,
            location="\x01" * 2000,
        )
    listed = call("list_upcoming_events", max_results=250).output
    assert 30 < len(listed["events"]) < 250
    assert listed["more"] is True
