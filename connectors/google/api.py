"""Client for those parts of Google's JSON APIs that this connector needs. It sends requests, reads answers of a known
shape, and explains refusals.

A response is decoded only into the type that the caller passes. If it does not fit that type, is nested too deeply or
is too long, it becomes a failure that says where the problem is, and no part of it is used. Refusals are distinguished
by Google's reason code, not by its message. The message is passed on, shortened, only for a request that Google did not
understand.

Runs inside the jail and has no token: the host adds it, and renews it once when Google answers 401, so a 401 that arrives here
has to be fixed by a person. Source: RFC 9110, RFC 6750, "Resolve errors" of the Gmail and Calendar APIs,
google.rpc.ErrorInfo. Not here: the operations (__main__.py), retries (the host, as the action allows).
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from aileron_connector import ExternalApiError, http
from aileron_connector.carried import read_json

__all__ = ["CALENDAR", "GMAIL", "get", "post"]

GMAIL: Final = "https://gmail.googleapis.com/gmail/v1/users/me"
CALENDAR: Final = "https://www.googleapis.com/calendar/v3/calendars"

MAX_ANSWER_BYTES: Final = 4 << 20
"""Maximum number of bytes of a JSON answer: several times the size of a message without attachments. The parsed data fits
into the 64 MiB of a connector.
"""
MAX_ERROR_BYTES: Final = 64 << 10
"""Maximum number of bytes of an error's body. Google's error bodies have about 1 KiB."""
MAX_WORDS: Final = 200
"""Maximum number of characters that a failure quotes from Google's error message."""

_RATE: Final = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"})
_SPENT: Final = frozenset({"dailyLimitExceeded", "dailyLimitExceededUnreg", "quotaExceeded", "limitExceeded"})
_SCOPE: Final = frozenset({"insufficientPermissions", "insufficient_scope", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"})
_OFF: Final = frozenset({"accessNotConfigured", "SERVICE_DISABLED"})
_KNOWN: Final = _RATE | _SPENT | _SCOPE | _OFF
_SIGN_IN: Final = "sign in again with `aileron binding reauthorize NAME` (`aileron binding list` has the name)"
_TOO_MANY: Final = 429
_READ_MAIL: Final = "“View your email messages and settings” (gmail.readonly)"
_SEND_MAIL: Final = "“Manage drafts and send emails” (gmail.compose)"
_EVENTS: Final = "“View and edit events on all your calendars” (calendar.events)"
"""Permissions that the connector asks for, in the words of Google's consent page, where a person can leave each of them out."""

_Shape = TypeVar("_Shape")


def get(task: str, url: str, shape: type[_Shape], query: Iterable[tuple[str, str]] = ()) -> _Shape:
    """Send a GET request and return the JSON answer decoded as type `shape`. Raises ExternalApiError with a message that
    begins `cannot {task}: …`.
    """
    needed = _EVENTS if url.startswith(CALENDAR) else _READ_MAIL
    with _send("GET", url, query, None) as answer:
        return _read(answer, task, shape, needed)


def post(
    task: str, url: str, body: dict[str, Any], shape: type[_Shape], query: Iterable[tuple[str, str]] = ()
) -> _Shape:
    """Send a POST request and return the JSON answer decoded as type `shape`. If Google accepts the request but its
    answer cannot be read, the failure warns that the request may have taken effect and must not simply be repeated.
    """
    needed = _EVENTS if url.startswith(CALENDAR) else _SEND_MAIL
    with _send("POST", url, query, msgspec.json.encode(body)) as answer:
        try:
            return _read(answer, task, shape, needed)
        except ExternalApiError as error:
            if answer.status >= 300:
                raise
            words = f"{error.message}; Google has taken the request: look whether it is done before you ask again"
            raise ExternalApiError(words, status=answer.status) from error


def _send(method: str, url: str, query: Iterable[tuple[str, str]], body: bytes | None) -> http.Response:
    asked = urllib.parse.urlencode(list(query))
    headers = [("Accept", "application/json")]
    if body is not None:
        headers.append(("Content-Type", "application/json; charset=utf-8"))
    return http.request(method, f"{url}?{asked}" if asked else url, headers, body, credential="oauth2")


def _read(answer: http.Response, task: str, shape: type[_Shape], needed: str) -> _Shape:
    if answer.status >= 300:
        raise _refusal(answer, task, needed)
    try:
        found: _Shape = read_json(answer.read(MAX_ANSWER_BYTES), shape)
        return found
    except msgspec.ValidationError as error:  # msgspec's error names the path in the answer, not the value
        words = f"cannot {task}: Google's answer is not what its reference says: {error}"
    except msgspec.DecodeError:
        words = f"cannot {task}: Google's answer is not JSON that can be read"
    raise ExternalApiError(words, status=answer.status)


# Refusals


def _refusal(answer: http.Response, task: str, needed: str) -> ExternalApiError:
    """Return the failure for an answer with an error status. It has the status, Google's reason, Retry-After and, if known,
    the fix. `needed` is the permission that the request needs, in Google's words.
    """
    reason, words = _reason(answer)
    status, why = answer.status, _in_words(answer.status, reason, words, needed)
    details: dict[str, Any] = {"reason": reason} if reason else {}
    if status == 403 and reason in _RATE:
        # Google says "slow down" with two statuses. The host knows one of them, and retries as the action allows.
        status, details = _TOO_MANY, {**details, "answered": 403}
    return ExternalApiError(
        f"cannot {task}: {why}", status=status, retry_after_s=_retry_after_s(answer), details=details
    )


def _in_words(status: int, reason: str | None, words: str | None, needed: str) -> str:
    if status == 401:
        return f"Google does not accept the access it was asked with (401): {_SIGN_IN}"
    if status == 403:
        return _forbidden(reason, needed)
    known = _WORDS.get(status)
    if known is None and status >= 500:
        known = f"Google has a problem of its own ({status})"
    known = known or f"Google answered {status}"
    if status == 400 and words:
        known = f"{known}: {words!r}"
    return f"{known} [{reason}]" if reason else known


def _forbidden(reason: str | None, needed: str) -> str:
    if reason in _RATE:
        return f"too many requests for now (403) [{reason}]"
    if reason in _SPENT:
        return f"what Google allows in a day is used up (403) [{reason}]"
    if reason in _SCOPE:
        return f"the access that was given at Google lacks {needed} (403): {_SIGN_IN}, and tick that box"
    if reason in _OFF:
        return "this API is not switched on for the connector's application at Google (403): its publisher has to do it"
    return f"Google does not allow it to this account (403){f' [{reason}]' if reason else ''}"


_WORDS: Final = {
    400: "Google does not understand the request (400)",
    404: "there is no such thing at Google, or not for this account (404)",
    409: "it exists already (409)",
    410: "it is gone (410)",
    412: "it has changed meanwhile (412); nothing was done",
    413: "it is larger than Google takes (413)",
    _TOO_MANY: "too many requests for now (429)",
}


def _reason(answer: http.Response) -> tuple[str | None, str | None]:
    """Return the reason code (one word) and the message (one short line) in Google's error. Each is None if it is missing
    or malformed.
    """
    challenge = " ".join(answer.headers.get_all("www-authenticate"))
    told = re.search(r'\berror="([a-z_]{1,40})"', challenge)
    from_header = told.group(1) if told else None
    try:
        error = _member(msgspec.json.decode(answer.read(MAX_ERROR_BYTES)), "error")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ExternalApiError):
        return from_header, None
    reasons = [
        reason
        for name in ("errors", "details")
        for entry in _entries(error, name)
        if isinstance(reason := _member(entry, "reason"), str) and re.fullmatch(r"[A-Za-z_]{1,60}", reason)
    ]
    message = _member(error, "message")
    is_plain = isinstance(message, str) and re.fullmatch(r"[\x20-\x7e]+", message)
    reason = next((reason for reason in reasons if reason in _KNOWN), next(iter(reasons), from_header))
    return reason, message[:MAX_WORDS] if is_plain else None


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _entries(value: Any, name: str) -> list[Any]:
    found = _member(value, name)
    return found[:8] if isinstance(found, list) else []


def _retry_after_s(answer: http.Response) -> int | None:
    text = answer.headers.get("retry-after", "") or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else None
