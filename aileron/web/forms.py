"""Input from a browser, read strictly: either a complete form of this page, sent from the page itself, or an error.

Pure but for reading the body. The sender may be any program of this machine, and any page in the person's browser.

Rules
- A form comes from the page's own origin and says so: a POST without an Origin, or with any other, is refused. If a browser
  says how the request came about (Sec-Fetch-Site), it must be from the same origin.
- A form has at most MAX_FORM_BYTES and arrives within BODY_S. It is urlencoded UTF-8, with known fields only, each at
  most once.

Source: RFC 6454; WHATWG URL (application/x-www-form-urlencoded); W3C Fetch Metadata. Not here: the valid Host
(daemon/http/listeners.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

import anyio
from starlette.requests import ClientDisconnect, Request

__all__ = ["FormError", "check_from_here", "cookies_of", "is_from_here", "is_opened", "needed", "query_of", "read_form"]

MAX_FORM_BYTES: Final = 64 << 10
"""Maximum size of a form in bytes, 64 KiB.

A reason of 4,000 characters, four bytes each, takes 48 KiB, as an encoded byte takes three characters.
"""
MAX_FIELDS: Final = 12
BODY_S: Final = 10.0
"""Seconds to wait for a form to arrive, the same as for any body."""
_FORM: Final = "application/x-www-form-urlencoded"
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_MAX_COOKIES: Final = 8
"""Maximum number of cookies with the same name that are read: another server on localhost can add some."""


class FormError(Exception):
    """Error: the request is not a valid form of this page. The error text is for a person."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def check_from_here(request: Request) -> None:
    """Check, by its header fields, that the request is a form from this page. Raises FormError otherwise."""
    headers = request.headers
    origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
    own = f"http://{headers.get('host', '')}".lower()
    if [origin.lower() for origin in origins] != [own]:
        raise FormError(HTTPStatus.FORBIDDEN, "this form was not sent by this page: its Origin is another, or missing")
    if sites not in ([], ["same-origin"]):
        raise FormError(HTTPStatus.FORBIDDEN, "this form was not sent by this page: another one had it sent")


def is_from_here(request: Request) -> bool:
    """Return whether the browser says that a request comes from this page or a typed address, not from another site."""
    return request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def is_opened(request: Request) -> bool:
    """Return whether the browser sent the request to open a page; False if the page's script sent it."""
    return request.headers.get("sec-fetch-dest", "document") == "document"


async def read_form(request: Request, *known: str) -> dict[str, str]:
    """Return the fields of a submitted form, whose names must be among `known`. Raises FormError for an invalid form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise FormError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "this is not the form of a page")
    data = bytearray()
    try:
        with anyio.fail_after(BODY_S):
            async for piece in request.stream():
                data += piece
                if len(data) > MAX_FORM_BYTES:
                    raise FormError(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                        f"more than {MAX_FORM_BYTES} bytes were sent: say it shorter",
                    )
    except TimeoutError:
        raise FormError(HTTPStatus.REQUEST_TIMEOUT, f"the form did not arrive within {BODY_S:.0f} s") from None
    except ClientDisconnect:  # nobody reads the answer
        raise FormError(HTTPStatus.BAD_REQUEST, "the form was cut off") from None
    try:
        return _fields(bytes(data).decode("ascii"), known)
    except UnicodeDecodeError:
        raise _unreadable() from None


def query_of(request: Request, *known: str) -> dict[str, str]:
    """Return the fields of the query string, which a form that changes nothing sends; their names must be among
    `known`. Raises FormError for an invalid query.
    """
    try:
        return _fields(request.scope["query_string"].decode("ascii"), known)
    except UnicodeDecodeError:
        raise _unreadable() from None


def cookies_of(request: Request, name: str) -> list[str]:
    """Return the values of all cookies with this name.

    There are several if another server on localhost has set one with the same name.
    """
    found: list[str] = []
    for field in request.headers.getlist("cookie"):
        for pair in field.split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name and _COOKIE.fullmatch(value) and len(found) < _MAX_COOKIES:
                found.append(value)
    return found


def _fields(text: str, known: tuple[str, ...]) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=MAX_FIELDS
        )
    except ValueError:  # UnicodeDecodeError is one
        raise _unreadable() from None
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name not in known or name in fields:
            raise FormError(HTTPStatus.BAD_REQUEST, "this form has a field that it should not have, or one twice")
        fields[name] = value.replace("\r\n", "\n")  # a browser writes line ends in a form as CRLF
    return fields


def needed(fields: Mapping[str, str], name: str) -> str:
    """Return the value of a form's field that must be present. Raises FormError if it is missing."""
    if name not in fields:
        raise FormError(HTTPStatus.BAD_REQUEST, f"this form has no {name}")
    return fields[name]


def _unreadable() -> FormError:
    return FormError(HTTPStatus.BAD_REQUEST, "this form cannot be read")
