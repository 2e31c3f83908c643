"""CalDAV client with the requests that this connector needs: find an account's calendars, query a calendar, store and
remove an object.

It talks only to the granted server. Hrefs and redirects come from the server; each is resolved against the server's origin
and refused if it leads to another origin. So a server cannot send this connector, and with it the credential, anywhere else.
XML with a DOCTYPE is refused: no entity is ever expanded.

Runs inside the jail. Source: RFC 4918 (WebDAV), RFC 5397 (current-user-principal), RFC 4791 (CalDAV), RFC 6764 (finding
the service), RFC 3339. Not here: iCalendar (ical.py), the operations (__main__.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple
from xml.parsers import expat

from aileron_connector import ExternalApiError, http

__all__ = ["Account", "Calendar", "Item"]

MAX_REDIRECTS: Final = 3
"""Maximum number of redirects of one request: one for the well-known address, one for a trailing slash, and one to spare."""
MAX_XML_DEPTH: Final = 32
"""Maximum depth of XML elements; a multistatus response has about eight levels."""

_DAV: Final = "DAV:"
_CALDAV: Final = "urn:ietf:params:xml:ns:caldav"
_REDIRECTS: Final = frozenset({301, 302, 307, 308})
_XML: Final = ("Content-Type", 'application/xml; charset="utf-8"')


class Calendar(NamedTuple):
    """A calendar collection."""

    href: str
    """Path of the calendar, with a slash at the end."""
    name: str
    description: str | None


class Item(NamedTuple):
    """A calendar object (such as an event) on the server."""

    href: str
    etag: str | None
    data: bytes


class Account:
    """A CalDAV client for the account that the credential belongs to, at one server (`origin`)."""

    def __init__(self, origin: str) -> None:
        self._origin: Final = origin

    def calendars(self) -> list[Calendar]:
        """Return every calendar that can hold events. Raises ExternalApiError if the server is not a CalDAV service."""
        found: list[Calendar] = []
        for home in self._calendar_homes(self._principal()):
            found += [
                self._calendar(answer)
                for answer in self._propfind(home, "1", _CALENDAR_PROPERTIES)
                if _is_calendar(answer)
            ]
        return sorted(set(found), key=lambda calendar: (calendar.name.lower(), calendar.href))

    def query(self, calendar: Calendar, start: datetime, end: datetime) -> list[Item]:
        """Return the calendar objects with an event between `start` and `end`. Recurrences are expanded if the server
        supports that.
        """
        span = f'start="{_stamp(start)}" end="{_stamp(end)}"'
        return self._report(
            calendar,
            f"<C:calendar-data><C:expand {span}/></C:calendar-data>",
            f"<C:time-range {span}/>",
        )

    def find(self, calendar: Calendar, uid: str) -> list[Item]:
        """Return the calendar objects whose event has this UID."""
        match = f'<C:text-match collation="i;octet">{_text(uid)}</C:text-match>'
        return self._report(calendar, "<C:calendar-data/>", f'<C:prop-filter name="UID">{match}</C:prop-filter>')

    def create(self, href: str, data: bytes) -> None:
        """Store a new calendar object. Raises ExternalApiError if the object exists already."""
        headers = [("Content-Type", "text/calendar; charset=utf-8"), ("If-None-Match", "*")]
        with self._send("PUT", href, headers, data) as answer:
            _check(answer, "store the event", {200, 201, 204})

    def delete(self, item: Item) -> bool:
        """Remove a calendar object unless it has changed since it was fetched. Return False if the object does not exist."""
        headers = [("If-Match", item.etag)] if item.etag else []
        with self._send("DELETE", item.href, headers) as answer:
            _check(answer, "delete the event", {200, 202, 204, 404})
            return answer.status != 404

    def _principal(self) -> str:
        """Return the path of the account's own resource (its principal). It is found through `/.well-known/caldav` or,
        if that is not set up, through `/`.
        """
        for path in ("/.well-known/caldav", "/"):
            with self._discover(path) as answer:
                if answer.status in {401, 403}:
                    _check(answer, "find the account", {207})
                if answer.status == 207:
                    for found in self._multistatus(answer):
                        principal = found.properties.get(f"{_DAV} current-user-principal")
                        href = principal.find(f"{_DAV} href") if principal else None
                        if href is not None:
                            return self._path(href.text)
        raise ExternalApiError(f"{self._origin} does not answer as a CalDAV service")

    def _discover(self, path: str) -> http.Response:
        body = _propfind_body("<D:current-user-principal/>")
        for _ in range(MAX_REDIRECTS):
            answer = self._send("PROPFIND", path, [("Depth", "0"), _XML], body)
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or location is None:
                return answer
            answer.close()
            path = self._path(location)
        raise ExternalApiError(f"{self._origin} redirects more than {MAX_REDIRECTS} times")

    def _calendar_homes(self, principal: str) -> list[str]:
        answers = self._propfind(principal, "0", "<C:calendar-home-set/>")
        sets = [
            answer.properties[name]
            for answer in answers
            if (name := f"{_CALDAV} calendar-home-set") in answer.properties
        ]
        homes = [self._path(href.text) for found in sets for href in found.children if href.name == f"{_DAV} href"]
        if not homes:
            raise ExternalApiError("the account has no calendars: its principal names no calendar-home-set")
        return homes

    def _calendar(self, answer: _Answer) -> Calendar:
        href = answer.href if answer.href.endswith("/") else answer.href + "/"
        name = answer.text(f"{_DAV} displayname") or href.rstrip("/").rpartition("/")[2]
        return Calendar(href, name, answer.text(f"{_CALDAV} calendar-description"))

    def _report(self, calendar: Calendar, data: str, event_filter: str) -> list[Item]:
        body = (
            '<?xml version="1.0" encoding="utf-8"?>'
            f'<C:calendar-query xmlns:D="{_DAV}" xmlns:C="{_CALDAV}"><D:prop><D:getetag/>{data}</D:prop>'
            f'<C:filter><C:comp-filter name="VCALENDAR"><C:comp-filter name="VEVENT">{event_filter}'
            "</C:comp-filter></C:comp-filter></C:filter></C:calendar-query>"
        )
        with self._send("REPORT", calendar.href, [("Depth", "1"), _XML], body.encode()) as answer:
            _check(answer, f"read the calendar {calendar.name!r}", {207})
            return [
                Item(found.href, found.text(f"{_DAV} getetag"), data_text.encode())
                for found in self._multistatus(answer)
                if (data_text := found.text(f"{_CALDAV} calendar-data"))
            ]

    def _propfind(self, path: str, depth: str, properties: str) -> list[_Answer]:
        with self._send("PROPFIND", path, [("Depth", depth), _XML], _propfind_body(properties)) as answer:
            _check(answer, "list the calendars", {207})
            return self._multistatus(answer)

    def _multistatus(self, answer: http.Response) -> list[_Answer]:
        tree = _parsed(answer.read())
        if tree.name != f"{_DAV} multistatus":
            raise ExternalApiError("the server's answer is not a WebDAV multistatus")
        responses = [child for child in tree.children if child.name == f"{_DAV} response"]
        return [
            _Answer(self._path(href.text), _properties(found))
            for found in responses
            if (href := found.find(f"{_DAV} href"))
        ]

    def _send(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes | None = None) -> http.Response:
        return http.request(method, self._origin + path, headers, body, credential="basic")

    def _path(self, href: str) -> str:
        """Return the path of an href or Location header, resolved against the granted origin. Raises ExternalApiError
        if it leads to another origin.
        """
        href = href.strip()
        path = href.removeprefix(self._origin) if href.startswith(f"{self._origin}/") else href
        if not path.startswith("/") or path.startswith("//"):
            raise ExternalApiError(
                f"the server points to {href[:200]!r}, which is not on {self._origin}: "
                "bind the connector to that host instead"
            )
        return path


# WebDAV answers


@dataclass
class _Element:
    """An XML element; its name has the form `namespace local`."""

    name: str
    children: list[_Element] = field(default_factory=list)
    text: str = ""

    def find(self, name: str) -> _Element | None:
        """Return the first child element of this name, or None."""
        return next((child for child in self.children if child.name == name), None)


class _Answer(NamedTuple):
    """The server's response about one object (in a WebDAV multistatus), with the properties that it reported."""

    href: str
    properties: dict[str, _Element]

    def text(self, name: str) -> str | None:
        """Return the text of the property `name`, or None if the property is absent or empty."""
        found = self.properties.get(name)
        return (found.text.strip() or None) if found else None


_CALENDAR_PROPERTIES: Final = (
    "<D:resourcetype/><D:displayname/><C:calendar-description/><C:supported-calendar-component-set/>"
)


def _is_calendar(answer: _Answer) -> bool:
    kinds = answer.properties.get(f"{_DAV} resourcetype")
    if kinds is None or kinds.find(f"{_CALDAV} calendar") is None:
        return False
    supported = answer.properties.get(f"{_CALDAV} supported-calendar-component-set")
    # Absent means any component (RFC 4791 section 5.2.3).
    return supported is None or "VEVENT" in [component.text for component in supported.children]


def _properties(response: _Element) -> dict[str, _Element]:
    found: dict[str, _Element] = {}
    for propstat in response.children:
        status = propstat.find(f"{_DAV} status")
        properties = propstat.find(f"{_DAV} prop")
        if properties is not None and (status is None or " 200" in status.text):
            found.update((child.name, child) for child in properties.children)
    return found


def _parsed(data: bytes) -> _Element:
    """Parse XML into a tree. Raises ExternalApiError if the XML is not well formed, too deep, or has a DOCTYPE."""
    top = _Element("")
    stack = [top]
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def start(name: str, attributes: dict[str, str]) -> None:
        element = _Element(name)
        if name == f"{_CALDAV} comp":
            element.text = attributes.get("name", "")
        stack[-1].children.append(element)
        stack.append(element)
        if len(stack) > MAX_XML_DEPTH:
            raise ExternalApiError("the server's XML is nested too deeply")

    def end(_name: str) -> None:
        stack.pop()

    def text(piece: str) -> None:
        stack[-1].text += piece

    def doctype(*_: object) -> None:
        raise ExternalApiError("the server's XML has a DOCTYPE, which WebDAV never needs: refused")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = text, doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ExternalApiError(f"the server's answer is not XML: {error}") from error
    return top.children[0]


def _check(answer: http.Response, task: str, good: set[int]) -> None:
    """Raise ExternalApiError (`cannot {task}: …`) unless the answer's status is one of `good`. The error explains
    statuses that a person can fix.
    """
    if answer.status in good:
        return
    why = _WORDS.get(answer.status, f"the server answered {answer.status}")
    answer.raise_for_status(f"cannot {task}: {why}")
    raise ExternalApiError(f"cannot {task}: {why}", status=answer.status)


_WORDS: Final = {
    401: "the server did not accept the user name and password (401); store another password with `aileron secret set NAME` "
    "(`aileron secret list` has the name)",
    403: "the server does not allow it to this account (403)",
    412: "it has changed, or exists already (412); nothing was done",
}


def _propfind_body(properties: str) -> bytes:
    opening = f'<D:propfind xmlns:D="{_DAV}" xmlns:C="{_CALDAV}">'
    return f'<?xml version="1.0" encoding="utf-8"?>{opening}<D:prop>{properties}</D:prop></D:propfind>'.encode()


def _stamp(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
