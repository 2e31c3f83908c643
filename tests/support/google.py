"""Gmail and Calendar as Google's public REST reference documents them, on loopback: a real TLS server with a memory.

    with GoogleServer(authority.server_context(*NAMES), listener=machine.listen()) as google:
        google.allow("a token", SCOPES)
        message_id = google.receive(sender="Ada <ada@example.com>", subject="Hello", text="…")
        …                                        # something asks it
        assert google.outbox[0].recipients == ("bob@example.com",)

It answers `users.getProfile`, `users.messages` list, get and send, `users.drafts` create, get, list and send, and `events` list
and insert, with their fields, page tokens and errors (JSON with `code`, `errors[].reason`, `status`; 401 and 403 with
WWW-Authenticate). The test says which access tokens it accepts, with which scopes and until when: by `allow`, or by `knows`,
which asks their issuer. `fail` replaces responses for a while: 429 with Retry-After, 503, a lie.

`asked` is every request it got, without the token: of the Authorization field only a digest is kept.

Left out: attachments' bytes, history, labels, expanding recurring events, most search operators. Source: Gmail API v1 and
Calendar API v3 reference, "Resolve errors" of both, "Using OAuth 2.0 to access Google APIs", RFC 6750 section 3.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime
import email.policy
import email.utils
import hashlib
import itertools
import json
import re
import socket
import ssl
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from email.message import EmailMessage
from email.parser import BytesParser
from typing import Any, Final

from tests.support.serving import Service
from tests.support.upstream import Seen, answer

__all__ = ["NAMES", "SCOPES", "Access", "Asked", "Delivered", "GoogleServer", "digest_of"]

NAMES: Final = ("gmail.googleapis.com", "www.googleapis.com")
"""Names in the server's certificate."""
_AUTH: Final = "https://www.googleapis.com/auth/"
SCOPES: Final = (
    f"{_AUTH}gmail.readonly",
    f"{_AUTH}gmail.compose",
    f"{_AUTH}calendar.events",
    "openid",
    "email",
)
"""Scopes that the connector requests."""
_READ: Final = frozenset({"https://mail.google.com/", f"{_AUTH}gmail.modify", f"{_AUTH}gmail.readonly"})
_WRITE: Final = frozenset({"https://mail.google.com/", f"{_AUTH}gmail.modify", f"{_AUTH}gmail.compose"})
_SEND: Final = _WRITE | {f"{_AUTH}gmail.send"}
_EVENTS: Final = frozenset({f"{_AUTH}calendar", f"{_AUTH}calendar.events"})
_EVENTS_READ: Final = _EVENTS | {f"{_AUTH}calendar.readonly", f"{_AUTH}calendar.events.readonly"}
_REASONS: Final = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    429: "Too Many Requests",
}
_STATUS: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_EXPIRED: Final = (
    "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
    "authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project."
)


@dataclasses.dataclass(frozen=True)
class Access:
    """Scopes of an access token, and its expiry (seconds since the epoch; None: no expiry)."""

    scopes: frozenset[str]
    expires_at: float | None = None


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request. `authorization` is the digest of that field, as `digest_of` makes it; None if it had none."""

    method: str
    host: str
    path: str
    query: Mapping[str, list[str]]
    body: bytes
    authorization: str | None
    status: int

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


@dataclasses.dataclass(frozen=True)
class Delivered:
    """A message that was sent: its recipients, and the form in which they get it (so without Bcc)."""

    recipients: tuple[str, ...]
    message: EmailMessage
    message_id: str


@dataclasses.dataclass
class _Message:
    id: str
    thread_id: str
    labels: list[str]
    parsed: EmailMessage
    raw: bytes
    at_ms: int


class _ApiError(Exception):
    """An error response in Google's form."""

    def __init__(
        self, code: int, message: str, reason: str, *, fields: Iterable[str] = (), domain: str = "global", **more: Any
    ) -> None:
        super().__init__(message)
        self.code = code
        self.fields = list(fields)
        first = {"message": message, "domain": domain, "reason": reason, **more}
        error = {"code": code, "message": message, "errors": [first]}
        if code in _STATUS:
            error["status"] = _STATUS[code]
        self.body = {"error": error}


def digest_of(token: str) -> str:
    """Return the value of `Asked.authorization` for a request with this bearer token."""
    return hashlib.sha256(f"Bearer {token}".encode()).hexdigest()


class GoogleServer(Service):
    """A server with one account's mail and primary calendar."""

    def __init__(
        self,
        tls: ssl.SSLContext | None,
        *,
        listener: socket.socket | None = None,
        account: str = "mira@example.com",
        knows: Callable[[str], Access | None] = lambda token: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Ask `knows` about tokens that `allow` did not name, in a thread of the server, once for each request."""
        super().__init__(tls, listener)
        self.account: Final = account
        self.asked: Final[list[Asked]] = []
        self.outbox: Final[list[Delivered]] = []
        self.invitations: Final[list[tuple[str, str]]] = []
        """Event and attendee of every invitation sent by mail."""
        self.messages: Final[dict[str, _Message]] = {}
        self.drafts: Final[dict[str, str]] = {}
        """Message ids by draft id."""
        self.events: Final[dict[str, dict[str, Any]]] = {}
        self.largest_page = 2500
        """Largest page, however many entries are requested: Google may return fewer."""
        self._knows: Final = knows
        self._clock: Final = clock
        self._allowed: Final[dict[str, Access]] = {}
        self._numbers: Final = itertools.count(0x18F0A0)

    # What the test says

    def allow(self, token: str, scopes: Iterable[str] = SCOPES, *, expires_at: float | None = None) -> None:
        """Accept this access token from now on."""
        with self._lock:
            self._allowed[digest_of(token)] = Access(frozenset(scopes), expires_at)

    def forget(self, token: str) -> None:
        """Refuse this access token from now on."""
        with self._lock:
            self._allowed.pop(digest_of(token), None)

    def fail(
        self,
        status: int,
        body: bytes | None = None,
        *fields: str,
        reason: str = "backendError",
        domain: str = "global",
        path: str = "",
        times: int = 1,
    ) -> None:
        """Respond so to the next `times` requests whose path ends with `path`; without `body`, with an error of that `reason`."""
        if body is None:
            fields = (*fields, "Content-Type: application/json; charset=UTF-8")
            body = json.dumps(_ApiError(status, f"{reason} it is", reason, domain=domain).body).encode()
        self.disturb(path, body, *fields, status=str(status), times=times)

    def receive(
        self,
        *,
        sender: str = "Ada <ada@example.com>",
        subject: str = "Hello",
        text: str | None = None,
        raw: bytes | None = None,
        labels: Iterable[str] = ("INBOX", "UNREAD"),
    ) -> str:
        """Receive a message, given as `raw` bytes or made of the rest. Return its id."""
        if raw is None:
            message = EmailMessage()
            message["From"], message["To"], message["Subject"] = sender, self.account, subject
            message["Date"] = email.utils.format_datetime(datetime.datetime.now(datetime.UTC))
            message["Message-ID"] = f"<{next(self._numbers):x}@example.com>"
            message.set_content(text or "")
            raw = message.as_bytes(policy=email.policy.SMTP)
        with self._lock:
            return self._kept(raw, list(labels), None).id

    def write_draft(self, raw: bytes) -> str:
        """Store a draft that was written elsewhere. Return its id."""
        with self._lock:
            draft_id = f"r-{next(self._numbers):d}"
            self.drafts[draft_id] = self._kept(raw, ["DRAFT"], None).id
            return draft_id

    def paths(self) -> list[str]:
        """Return method and path of every request, in order."""
        with self._lock:
            return [f"{asked.method} {asked.path}" for asked in self.asked]

    # Answering

    def _answer(self, seen: Seen) -> bytes:
        self._forget_requests()
        url = urllib.parse.urlsplit(seen.target)
        query = urllib.parse.parse_qs(url.query, keep_blank_values=True)
        authorization = next(iter(seen.values("authorization")), None)
        fields = ["Content-Type: application/json; charset=UTF-8", "Cache-Control: private"]
        self.gate.pass_through(url.path)
        with self._lock:
            try:
                status, body, fields = self._done(seen, url.path, query, authorization, fields)
            except _ApiError as error:
                status, fields = error.code, fields + error.fields
                body = json.dumps(error.body, indent=2).encode()
            self.asked.append(
                Asked(
                    method=seen.method,
                    host=next(iter(seen.values("host")), ""),
                    path=urllib.parse.unquote(url.path),
                    query=query,
                    body=seen.body,
                    authorization=authorization and hashlib.sha256(authorization.encode()).hexdigest(),
                    status=status,
                )
            )
        return answer(body, *fields, status=f"{status} {_REASONS.get(status, 'OK')}")

    def _done(
        self, seen: Seen, path: str, query: dict[str, list[str]], authorization: str | None, fields: list[str]
    ) -> tuple[int, bytes, list[str]]:
        route = next((route for route in _ROUTES if route.method == seen.method and route.matches(path)), None)
        if route is None:
            raise _ApiError(404, "Not Found", "notFound")
        self._check_token(authorization, route.scopes)
        if (disturbance := self._disturbance(path)) is not None:
            return int(disturbance.status), disturbance.body, list(disturbance.fields)
        found = route.matches(path)
        assert found is not None
        names = [urllib.parse.unquote(name) for name in found.groups()]
        if names and names[0] not in {"me", self.account, "primary"}:
            raise _ApiError(404, "Not Found", "notFound")
        try:
            body = json.loads(seen.body) if seen.body else {}
        except ValueError:
            raise _ApiError(400, "Parse Error", "parseError") from None
        asked = _Call({name: values[-1] for name, values in query.items()}, query, body, names[1:])
        return 200, json.dumps(route.handler(self, asked), indent=2).encode(), fields

    def _check_token(self, authorization: str | None, scopes: frozenset[str]) -> None:
        kind, _, token = (authorization or "").partition(" ")
        access = None
        if kind == "Bearer" and token:
            access = self._allowed.get(digest_of(token)) or self._knows(token)
        if access is None or (access.expires_at is not None and access.expires_at <= self._clock()):
            error = "" if authorization is None else ', error="invalid_token"'
            raise _ApiError(
                401,
                _EXPIRED,
                "authError" if authorization else "required",
                fields=[f'WWW-Authenticate: Bearer realm="https://accounts.google.com/"{error}'],
                location="Authorization",
                locationType="header",
            )
        if not access.scopes & scopes:
            wanted = " ".join(sorted(scopes))
            challenge = f'Bearer realm="https://accounts.google.com/", error="insufficient_scope", scope="{wanted}"'
            words = "Request had insufficient authentication scopes."
            raise _ApiError(403, words, "insufficientPermissions", fields=[f"WWW-Authenticate: {challenge}"])

    # Mail

    def _profile(self, _call: _Call) -> Any:
        return {"emailAddress": self.account, "messagesTotal": len(self.messages), "threadsTotal": len(self.messages)}

    def _list_messages(self, call: _Call) -> Any:
        wanted = [
            message
            for message in sorted(self.messages.values(), key=lambda message: (-message.at_ms, message.id))
            if "DRAFT" not in message.labels and _is_found(message, call.query.get("q", ""))
        ]
        labels = call.every.get("labelIds", [])
        wanted = [message for message in wanted if set(labels) <= set(message.labels)]
        page, token = _page(wanted, call.query, default=100, most=min(500, self.largest_page))
        listed: dict[str, Any] = {"resultSizeEstimate": len(wanted)}
        if page:
            listed = {"messages": [{"id": message.id, "threadId": message.thread_id} for message in page], **listed}
        if token:
            listed["nextPageToken"] = token
        return listed

    def _get_message(self, call: _Call) -> Any:
        message = self.messages.get(call.names[0])
        if message is None:
            raise _ApiError(404, "Requested entity was not found.", "notFound")
        return _resource(message, call)

    def _send_message(self, call: _Call) -> Any:
        message = self._taken(call.body, ["SENT"])
        try:
            self._deliver(message)
        except _ApiError:
            del self.messages[message.id]
            raise
        return {"id": message.id, "threadId": message.thread_id, "labelIds": message.labels}

    def _create_draft(self, call: _Call) -> Any:
        message = self._taken(_object(call.body, "message"), ["DRAFT"])
        draft_id = f"r-{next(self._numbers):d}"
        self.drafts[draft_id] = message.id
        return {
            "id": draft_id,
            "message": {"id": message.id, "threadId": message.thread_id, "labelIds": message.labels},
        }

    def _list_drafts(self, call: _Call) -> Any:
        page, token = _page(list(self.drafts.items()), call.query, default=100, most=min(500, self.largest_page))
        drafts = [
            {"id": draft, "message": {"id": key, "threadId": self.messages[key].thread_id}} for draft, key in page
        ]
        return {**({"drafts": drafts} if drafts else {}), **({"nextPageToken": token} if token else {})}

    def _get_draft(self, call: _Call) -> Any:
        return {"id": call.names[0], "message": _resource(self._draft(call.names[0]), call)}

    def _send_draft(self, call: _Call) -> Any:
        draft_id = call.body.get("id") if isinstance(call.body, dict) else None
        message = self._draft(draft_id)
        self._deliver(message)
        del self.drafts[str(draft_id)]
        message.labels = ["SENT"]
        return {"id": message.id, "threadId": message.thread_id, "labelIds": message.labels}

    def _draft(self, draft_id: Any) -> _Message:
        if draft_id not in self.drafts:
            raise _ApiError(404, "Requested entity was not found.", "notFound")
        return self.messages[self.drafts[draft_id]]

    def _taken(self, body: Any, labels: list[str]) -> _Message:
        """Check and store a message from a client's request."""
        raw = body.get("raw") if isinstance(body, dict) else None
        if not isinstance(raw, str) or re.search(r"[^A-Za-z0-9_=-]", raw):
            raise _ApiError(400, "'raw' RFC822 payload message string or uploading message via /upload/* URL required",
                            "invalidArgument")  # fmt: skip
        try:
            data = base64.urlsafe_b64decode(raw + "=" * (-len(raw.rstrip("=")) % 4))
        except binascii.Error:
            raise _ApiError(400, "Invalid value for ByteString", "invalidArgument") from None
        thread_id = body.get("threadId")
        if thread_id is not None and thread_id not in {message.thread_id for message in self.messages.values()}:
            raise _ApiError(404, "Requested entity was not found.", "notFound")
        return self._kept(data, labels, thread_id)

    def _kept(self, raw: bytes, labels: list[str], thread_id: str | None) -> _Message:
        parsed = BytesParser(EmailMessage, policy=email.policy.SMTP).parsebytes(raw)
        key = f"{next(self._numbers):016x}"
        # Newer messages have a later time, even if two arrive in one millisecond.
        at_ms = max([int(self._clock() * 1000), *(message.at_ms + 1 for message in self.messages.values())])
        self.messages[key] = _Message(key, thread_id or key, labels, parsed, raw, at_ms)
        return self.messages[key]

    def _deliver(self, message: _Message) -> None:
        fields = [str(value) for name in ("To", "Cc", "Bcc") for value in message.parsed.get_all(name, [])]
        recipients = tuple(address for _name, address in email.utils.getaddresses(fields) if address)
        if not recipients:
            raise _ApiError(400, "Recipient address required", "invalidArgument")
        if not all(re.fullmatch(r"[^@\s<>]+@[^@\s<>]+", address) for address in recipients):
            raise _ApiError(400, "Invalid To header", "invalidArgument")
        seen = BytesParser(EmailMessage, policy=email.policy.SMTP).parsebytes(message.raw)
        del seen["Bcc"]
        if "From" not in seen:
            seen["From"] = self.account
        self.outbox.append(Delivered(recipients, seen, message.id))

    # Calendar

    def _list_events(self, call: _Call) -> Any:
        if call.query.get("orderBy") == "startTime" and call.query.get("singleEvents") != "true":
            raise _ApiError(400, "The requested ordering is not available for the particular query.", "badRequest")
        least, most = (_time_of(call.query[name]) if name in call.query else None for name in ("timeMin", "timeMax"))
        found = [
            event
            for event in self.events.values()
            if (least is None or _moment(event["end"]) > least) and (most is None or _moment(event["start"]) < most)
        ]
        page, token = _page(
            sorted(found, key=lambda event: _moment(event["start"])), call.query, default=250, most=2500
        )
        listed = {
            "kind": "calendar#events",
            "etag": '"p32c"',
            "summary": self.account,
            "updated": "2026-01-01T00:00:00.000Z",
            "timeZone": "Europe/Berlin",
            "accessRole": "owner",
            "defaultReminders": [{"method": "popup", "minutes": 30}],
            "items": page,
        }
        return {**listed, **({"nextPageToken": token} if token else {"nextSyncToken": "CPDAlvWDx70CEPDAlvWDx70CGAU="})}

    def _insert_event(self, call: _Call) -> Any:
        body = call.body if isinstance(call.body, dict) else {}
        for end in ("start", "end"):
            if not isinstance(body.get(end), dict):
                raise _ApiError(400, f"Missing {end} time.", "required")
        if _moment(body["end"]) < _moment(body["start"]) or ("date" in body["start"]) != ("date" in body["end"]):
            raise _ApiError(400, "The specified time range is empty.", "timeRangeEmpty")
        event_id = body.get("id") or f"{next(self._numbers):x}ev"
        if event_id in self.events:
            raise _ApiError(409, "The requested identifier already exists.", "duplicate")
        attendees = body.get("attendees", [])
        if not all(re.fullmatch(r"[^@\s]+@[^@\s]+", str(attendee.get("email"))) for attendee in attendees):
            raise _ApiError(400, "Invalid attendee email.", "invalid")
        me = {"email": self.account, "self": True}
        event = {
            "kind": "calendar#event",
            "etag": '"3181159875584000"',
            "id": event_id,
            "status": "confirmed",
            "htmlLink": f"https://www.google.com/calendar/event?eid={event_id}",
            "created": "2026-01-01T00:00:00.000Z",
            "updated": "2026-01-01T00:00:00.000Z",
            "creator": me,
            "organizer": me,
            "iCalUID": f"{event_id}@google.com",
            "sequence": 0,
            "reminders": {"useDefault": True},
            "eventType": "default",
            **body,
        }
        if attendees:
            event["attendees"] = [{"responseStatus": "needsAction", **attendee} for attendee in attendees]
        self.events[event_id] = event
        if call.query.get("sendUpdates", "none") in {"all", "externalOnly"}:
            self.invitations.extend((event_id, attendee["email"]) for attendee in attendees)
        return event


@dataclasses.dataclass(frozen=True)
class _Call:
    query: dict[str, str]
    every: dict[str, list[str]]
    body: Any
    names: list[str]


@dataclasses.dataclass(frozen=True)
class _Route:
    method: str
    pattern: str
    scopes: frozenset[str]
    handler: Callable[[GoogleServer, _Call], Any]

    def matches(self, path: str) -> re.Match[str] | None:
        return re.fullmatch(self.pattern, path)


_USER: Final = "/gmail/v1/users/([^/]+)"
_CALENDAR: Final = "/calendar/v3/calendars/([^/]+)"
_ROUTES: Final = (
    _Route("GET", f"{_USER}/profile", _READ | _WRITE, GoogleServer._profile),
    _Route("GET", f"{_USER}/messages", _READ, GoogleServer._list_messages),
    _Route("POST", f"{_USER}/messages/send", _SEND, GoogleServer._send_message),
    _Route("GET", f"{_USER}/messages/([^/]+)", _READ, GoogleServer._get_message),
    _Route("GET", f"{_USER}/drafts", _READ | _WRITE, GoogleServer._list_drafts),
    _Route("POST", f"{_USER}/drafts", _WRITE, GoogleServer._create_draft),
    _Route("POST", f"{_USER}/drafts/send", _WRITE, GoogleServer._send_draft),
    _Route("GET", f"{_USER}/drafts/([^/]+)", _READ | _WRITE, GoogleServer._get_draft),
    _Route("GET", f"{_CALENDAR}/events", _EVENTS_READ, GoogleServer._list_events),
    _Route("POST", f"{_CALENDAR}/events", _EVENTS, GoogleServer._insert_event),
)


def _object(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, dict) else None


def _page(found: list[Any], query: dict[str, str], *, default: int, most: int) -> tuple[list[Any], str | None]:
    """Return one page, and the token of the next. Tokens are opaque, and longer than a number."""
    size = min(most, int(query.get("maxResults", default)))
    if size < 1:
        raise _ApiError(400, "Invalid value for maxResults", "invalidArgument")
    start = 0
    if token := query.get("pageToken"):
        try:
            start = int(base64.b64decode(token.removeprefix("page+"), validate=True))
        except ValueError:
            raise _ApiError(400, "Invalid pageToken", "invalidArgument") from None
    end = start + size
    return found[start:end], "page+" + base64.b64encode(str(end).encode()).decode() if end < len(found) else None


def _is_found(message: _Message, query: str) -> bool:
    """Return whether the message matches. A few search operators are known; other words match anywhere in the message."""
    text = message.raw.decode("utf-8", "replace").lower()
    for word in query.lower().split():
        operator, colon, value = word.partition(":")
        if not colon:
            found = word in text
        elif operator in {"is", "in", "label"}:
            found = value.upper() in message.labels
        else:
            found = value in str(message.parsed.get(operator, "")).lower()
        if not found:
            return False
    return True


def _resource(message: _Message, call: _Call) -> dict[str, Any]:
    """Return the `Message` of the reference, in the form that the query asks for."""
    form = call.query.get("format", "full")
    made: dict[str, Any] = {
        "id": message.id,
        "threadId": message.thread_id,
        "labelIds": message.labels,
        "snippet": _snippet(message.parsed),
        "sizeEstimate": len(message.raw),
        "historyId": str(message.at_ms),
        "internalDate": str(message.at_ms),
    }
    if form == "raw":
        made["raw"] = base64.urlsafe_b64encode(message.raw).decode()
    elif form == "metadata":
        names = {name.lower() for name in call.every.get("metadataHeaders", [])}
        headers = [field for field in _headers(message.parsed) if not names or field["name"].lower() in names]
        made["payload"] = {"mimeType": message.parsed.get_content_type(), "headers": headers}
    elif form == "full":
        made["payload"] = _part(message.parsed, "")
    elif form != "minimal":
        raise _ApiError(400, "Invalid value at 'format'", "invalidArgument")
    return made


def _part(part: EmailMessage, part_id: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "partId": part_id,
        "mimeType": part.get_content_type(),
        "filename": part.get_filename() or "",
        "headers": _headers(part),
    }
    if part.is_multipart():
        inner = [child for child in part.iter_parts() if isinstance(child, EmailMessage)]
        prefix = f"{part_id}." if part_id else ""
        return {
            **made,
            "body": {"size": 0},
            "parts": [_part(child, f"{prefix}{number}") for number, child in enumerate(inner)],
        }
    data = part.get_payload(decode=True)
    assert isinstance(data, bytes)
    if made["filename"]:
        return {**made, "body": {"attachmentId": f"ANGjdJ{part_id}", "size": len(data)}}
    return {**made, "body": {"size": len(data), "data": base64.urlsafe_b64encode(data).decode()}}


def _headers(part: EmailMessage) -> list[dict[str, str]]:
    return [{"name": name, "value": str(value)} for name, value in part.items()]


def _snippet(message: EmailMessage) -> str:
    body = message.get_body(("plain",))
    text = body.get_content() if body is not None else ""
    return " ".join(text.split())[:100].replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;")


def _moment(when: Any) -> datetime.datetime:
    """Return the time of an event's `start` or `end`; a date is its first moment in UTC, and local times are taken as UTC."""
    if isinstance(when.get("date"), str):
        return _time_of(f"{when['date']}T00:00:00Z")
    text = str(when.get("dateTime"))
    has_offset = re.search(r"(Z|[+-]\d\d:\d\d)$", text) is not None
    if not has_offset and not when.get("timeZone"):
        raise _ApiError(400, "Missing time zone definition for start time.", "required")
    return _time_of(text if has_offset else f"{text}Z")


def _time_of(text: str) -> datetime.datetime:
    """Parse a time of RFC 3339 with an offset."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise _ApiError(400, "Bad Request", "badRequest") from None
    if found.tzinfo is None:
        raise _ApiError(400, "Bad Request", "badRequest")
    return found
