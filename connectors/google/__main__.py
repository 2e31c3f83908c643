"""Connector for mail and calendars of one Google account. It lists and reads messages, drafts and sends mail, and lists and
adds events.

Runs inside the jail. The connector asks the host to send requests and to add the access token; the connector never has
the token. Everything that is read may come from a stranger, so it is passed on as data and never interpreted. No part
of a message goes into the log.

Source: Gmail API v1, Calendar API v3. Not handled: attachments' bytes, sending HTML, labels, deleting or changing events,
creating recurring events.
"""

from __future__ import annotations

import base64
import re
import urllib.parse
from typing import Any, Final

import api
import events
import mail
import msgspec

from aileron_connector import BadInput, ExternalApiError, log, op, run
from aileron_connector.moments import read_span

MAX_MESSAGES: Final = 100
"""Maximum number of messages in one listing. Each message takes a request of its own, and a run can send 256 requests."""
MAX_EVENTS: Final = 250
"""Maximum number of events in one listing. With long descriptions, 250 events fill about half of a result."""
MAX_PAGE: Final = 50
"""Maximum number of events per request. Unless descriptions are unusually long, the response is smaller than 4 MiB."""
MAX_PAGES: Final = 20
"""Maximum number of pages of one listing. Google may return fewer entries per page than requested, but 20 pages still
suffice.
"""
MAX_LISTING_BYTES: Final = 900_000
"""Maximum number of bytes of the events in one result, as JSON. A result has at most 1 MiB."""
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_LISTED_FIELDS: Final = ("From", "To", "Cc", "Subject", "Date")
_THREAD_FIELDS: Final = ("Message-ID", "References", "In-Reply-To")


class _Listed(msgspec.Struct):
    id: str


class _Messages(msgspec.Struct, rename="camel"):
    messages: list[_Listed] = []
    next_page_token: str | None = None


class _Sent(msgspec.Struct, rename="camel"):
    id: str
    thread_id: str = ""


class _Draft(msgspec.Struct):
    id: str
    message: mail.Message


class _NewDraft(msgspec.Struct):
    id: str
    message: _Sent


# Mail


@op
def list_recent_emails(
    query: str | None = None, max_results: int = 10, page_token: str | None = None
) -> dict[str, Any]:
    """List the latest messages that match `query` (Gmail's search language), newest first, at most `max_results`."""
    if not 1 <= max_results <= MAX_MESSAGES:
        raise BadInput(f"max_results {max_results} is not from 1 to {MAX_MESSAGES}", argument="max_results")
    asked = [("q", query)] if query else []
    found: list[_Listed] = []
    token = page_token
    for _page in range(MAX_PAGES):
        page = api.get(
            "list the messages",
            f"{api.GMAIL}/messages",
            _Messages,
            [*asked, ("maxResults", str(max_results - len(found))), *_from_page(token)],
        )
        found += page.messages[: max_results - len(found)]
        token = page.next_page_token
        if token is None or len(found) == max_results:
            return {"messages": _summaries(found), "next_page_token": token}
    raise ExternalApiError(f"cannot list the messages: Google gives them in more than {MAX_PAGES} pages")


def _summaries(found: list[_Listed]) -> list[dict[str, Any]]:
    """Fetch the summaries of listed messages. Messages that were deleted meanwhile are left out."""
    summaries = []
    for message in found:
        if _ID.fullmatch(message.id) is None:
            raise ExternalApiError("cannot list the messages: Google's answer is not what its reference says: an id")
        try:
            summaries.append(mail.as_json(_headers_of(message.id), is_listed=True))
        except ExternalApiError as error:
            if error.status != 404:
                raise
    return summaries


@op
def get_email(message_id: str) -> dict[str, Any]:
    """Read a message with its text and the names of its attachments, without the attachments' content."""
    message = api.get(
        "read the message", f"{api.GMAIL}/messages/{_id(message_id, 'message_id')}", mail.Message, [("format", "full")]
    )
    return {**mail.as_json(message), **_content(message), "reply_to": mail.field(message, "Reply-To")}


@op
def draft_email(
    to: str | list[str] | None = None,
    subject: str = "",
    body: str = "",
    cc: str | list[str] | None = None,
    bcc: str | list[str] | None = None,
    reply_to: str | list[str] | None = None,
    in_reply_to: str | None = None,
) -> dict[str, Any]:
    """Save a draft in the account's drafts folder. `in_reply_to` is the id of the message that the draft answers."""
    message, _count = _composed(to, subject, body, cc, bcc, reply_to, in_reply_to)
    made = api.post("make the draft", f"{api.GMAIL}/drafts", {"message": message}, _NewDraft)
    log.info("draft made")
    return {"draft": {"id": made.id, "message_id": made.message.id, "thread_id": made.message.thread_id}}


@op
def get_draft(draft_id: str) -> dict[str, Any]:
    """Read a draft in its present state: all recipients, its text, and notes for the approver, such as that it also has HTML."""
    draft = api.get("read the draft", f"{api.GMAIL}/drafts/{_id(draft_id, 'draft_id')}", _Draft, [("format", "full")])
    message = draft.message
    content = _content(message)
    return {
        **mail.as_json(message),
        **content,
        "bcc": mail.field(message, "Bcc"),
        "reply_to": mail.field(message, "Reply-To"),
        "id": draft.id,
        "message_id": message.id,
        "form": _form(content),
        "attached": ", ".join(
            attachment["filename"] or attachment["mime_type"] for attachment in content["attachments"]
        ),
    }


def _form(content: dict[str, Any]) -> str:
    forms = {"plain": "plain text", "html": "HTML; this is its text", "none": "no text"}
    form = forms[content["text_from"]]
    if content["has_other_html"]:
        form += "; it has HTML too, which is not shown here and which most programs show instead"
    if "hidden_text" in content:
        form += "; it has text that its reader does not see, which is not shown here"
    return f"{form}; cut, there is more" if content["text_is_cut"] else form


@op
def send_draft(draft_id: str) -> dict[str, Any]:
    """Send a draft in its present state. A sent draft cannot be recalled."""
    sent = api.post("send the draft", f"{api.GMAIL}/drafts/send", {"id": _id(draft_id, "draft_id")}, _Sent)
    log.info("draft sent")
    return {"message": {"id": sent.id, "thread_id": sent.thread_id}}


@op
def send_email(
    to: str | list[str],
    subject: str,
    body: str,
    cc: str | list[str] | None = None,
    bcc: str | list[str] | None = None,
    reply_to: str | list[str] | None = None,
    in_reply_to: str | None = None,
) -> dict[str, Any]:
    """Send a plain text message. A sent message cannot be recalled."""
    message, count = _composed(to, subject, body, cc, bcc, reply_to, in_reply_to)
    if count == 0:
        raise BadInput("to is empty: nobody would get it", argument="to")
    sent = api.post("send the message", f"{api.GMAIL}/messages/send", message, _Sent)
    log.info("message sent", recipients=count)
    return {"message": {"id": sent.id, "thread_id": sent.thread_id}}


def _composed(
    to: str | list[str] | None,
    subject: str,
    body: str,
    cc: str | list[str] | None,
    bcc: str | list[str] | None,
    reply_to: str | list[str] | None,
    in_reply_to: str | None,
) -> tuple[dict[str, Any], int]:
    """Return a new message as JSON for Gmail's API, and its number of recipients. All arguments are checked before the
    first request.
    """
    people = mail.People(
        to=mail.addresses(to, "to"),
        cc=mail.addresses(cc, "cc"),
        bcc=mail.addresses(bcc, "bcc"),
        reply_to=mail.addresses(reply_to, "reply_to"),
    )
    mail.compose(people, subject=subject, body=body)
    parent = None
    if in_reply_to:
        parent = mail.Parent.of(_headers_of(_id(in_reply_to, "in_reply_to"), _THREAD_FIELDS))
    data = mail.compose(people, subject=subject, body=body, parent=parent)
    message = {"raw": base64.urlsafe_b64encode(data).decode("ascii")}
    if parent is not None and parent.thread_id:
        message["threadId"] = parent.thread_id
    return message, people.recipients


def _headers_of(message_id: str, fields: tuple[str, ...] = _LISTED_FIELDS) -> mail.Message:
    return api.get(
        "read a message",
        f"{api.GMAIL}/messages/{message_id}",
        mail.Message,
        [("format", "metadata"), *(("metadataHeaders", name) for name in fields)],
    )


def _content(message: mail.Message) -> dict[str, Any]:
    text = mail.text_of(message)
    return {
        "text": text.text,
        "text_from": text.source,
        "text_is_cut": text.is_cut,
        "has_other_html": text.has_other,
        **({"hidden_text": text.hidden} if text.hidden else {}),
        "attachments": text.attachments[: mail.MAX_ATTACHMENTS],
        "attachments_in_all": len(text.attachments),
    }


def _id(text: str, argument: str) -> str:
    """Return `text`, which becomes part of a URL's path, if it has the form of Google's ids. Raises BadInput otherwise."""
    if _ID.fullmatch(text) is None:
        raise BadInput(f"{argument} {text[:64]!r} is not an id as the listing gives it", argument=argument)
    return text


def _from_page(token: str | None) -> list[tuple[str, str]]:
    return [] if token is None else [("pageToken", token)]


# Calendars


@op
def list_upcoming_events(
    days: int = 7,
    max_results: int = 50,
    calendar: str = "primary",
    query: str | None = None,
    start: str | None = None,
    end: str | None = None,
) -> dict[str, Any]:
    """List events, sorted by start, from `start` (default: now) to `end` (default: `days` after `start`). Each occurrence
    of a recurring event is listed separately.
    """
    if not 1 <= max_results <= MAX_EVENTS:
        raise BadInput(f"max_results {max_results} is not from 1 to {MAX_EVENTS}", argument="max_results")
    since, until = read_span(start, end, days)
    asked = [("timeMin", events.stamp(since)), ("timeMax", events.stamp(until))]
    asked += [("singleEvents", "true"), ("orderBy", "startTime"), *([("q", query)] if query else [])]
    url = f"{api.CALENDAR}/{_calendar(calendar)}/events"
    found: list[events.Event] = []
    token: str | None = None
    for _page in range(MAX_PAGES):
        more = [("maxResults", str(min(MAX_PAGE, max_results - len(found)))), *_from_page(token)]
        page = api.get("list the events", url, events.Events, [*asked, *more])
        found += page.items[: max_results - len(found)]
        token = page.next_page_token
        if token is None or len(found) == max_results:
            return _listing(found, since=events.stamp(since), until=events.stamp(until), is_more=token is not None)
    raise ExternalApiError(f"cannot list the events: Google gives them in more than {MAX_PAGES} pages")


def _listing(found: list[events.Event], *, since: str, until: str, is_more: bool) -> dict[str, Any]:
    """Return the result of list_upcoming_events, with as many events as fit into it."""
    listed, room = [], MAX_LISTING_BYTES
    for event in found:
        shown = events.as_json(event)
        room -= len(msgspec.json.encode(shown))
        if room < 0:
            break
        listed.append(shown)
    return {"from": since, "to": until, "events": listed, "more": is_more or len(listed) < len(found)}


@op
def create_calendar_event(
    title: str,
    start_time: str,
    end_time: str,
    calendar: str = "primary",
    timezone: str | None = None,
    description: str | None = None,
    location: str | None = None,
    attendees: str | list[str] | None = None,
    send_invitations: bool = True,
) -> dict[str, Any]:
    """Add an event. Google mails an invitation to the attendees, unless `send_invitations` is false."""
    if not title.strip():
        raise BadInput("title is empty", argument="title")
    start, end = events.when(start_time, end_time, timezone)
    invited = mail.addresses(attendees, "attendees")
    body: dict[str, Any] = {"summary": title, "start": start, "end": end}
    body |= {name: text for name, text in (("description", description), ("location", location)) if text}
    if invited:
        body["attendees"] = [
            {"email": attendee.address, **({"displayName": attendee.name} if attendee.name else {})}
            for attendee in invited
        ]
    updates = "all" if invited and send_invitations else "none"
    url = f"{api.CALENDAR}/{_calendar(calendar)}/events"
    made = api.post("add the event", url, body, events.Event, [("sendUpdates", updates)])
    log.info("event added", invited=len(invited))
    return {"event": events.as_json(made)}


def _calendar(name: str) -> str:
    """Percent-encode a calendar's id (`primary`, or an id like an address) for a URL's path. Raises BadInput if it has
    another form.
    """
    if re.fullmatch(r"(?!\.+$)[A-Za-z0-9_.@#%+-]{1,254}", name) is None:
        words = f"calendar {name[:64]!r} is not an id like primary or …@group.calendar.google.com"
        raise BadInput(words, argument="calendar")
    return urllib.parse.quote(name, safe="")


if __name__ == "__main__":
    run()
