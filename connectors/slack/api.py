"""Client for the part of Slack's Web API that this connector needs. It sends requests, reads answers of a known shape, and
explains refusals.

Slack answers almost every request with status 200 and says in the body whether it succeeded. So a failure gets the
status on which the host acts: 401 for a bad token, 403 if the request is not allowed, 429 and 503 if it may succeed
later. The original status is in `details.answered`. Slack's error code becomes `details.reason`; except for names of
scopes, no other part of a refusal is passed on.

A response is decoded only into the type that the caller passes. If it does not fit that type, is nested too deeply or
is too long, it becomes a failure that says where the problem is, and no part of it is used.

Runs inside the jail and has no token: the host adds it. Source: Slack's developer documentation, "Web API" (evaluating responses,
rate limits, pagination) and the pages of the methods. Not here: the operations (__main__.py), retries (the host, as
the action allows).
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from aileron_connector import BadInput, ConnectorError, ExternalApiError, http
from aileron_connector.carried import read_json

__all__ = ["get", "post"]

ADDRESS: Final = "https://slack.com/api"
MAX_ANSWER_BYTES: Final = 4 << 20
"""Maximum number of bytes of a JSON answer: several times the size of two hundred channels or a hundred long messages. The
parsed data fits into a connector's 64 MiB.
"""

_TOO_MANY: Final = 429
_MEND: Final = "put a good one in its place with `aileron secret set NAME` (`aileron secret list` has the name)"
_LOOK_FIRST: Final = "; it may be done all the same: look into Slack before you ask again"

_TOKEN: Final = frozenset({"not_authed", "invalid_auth", "token_revoked", "token_expired", "account_inactive"})
_RATE: Final = frozenset({"ratelimited", "rate_limited"})
_LATER: Final = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout"})
"""Error codes of failures that may be transient. With the first two, according to Slack, part of the request may have
been executed.
"""
_FORBIDDEN: Final = {
    "not_in_channel": "the account is not in that channel: somebody who is has to invite it",
    "not_allowed_token_type": "Slack does not allow this with a token of that kind; searching takes a user's (xoxp-…)",
    "no_permission": "Slack does not allow it to this account",
    "access_denied": "Slack does not allow it to this account",
    "ekm_access_denied": "the workspace's administrators do not allow it for now",
    "enterprise_is_restricted": "Slack does not allow it for a whole organization",
    "team_access_not_granted": "the token is not for that workspace",
    "two_factor_setup_required": "the account has to set up two-factor authentication at Slack first",
    "missing_scope": "the token does not cover this",
}


class _Mistake(NamedTuple):
    """A mistake that the caller can correct: the wrong argument, and the explanation for the caller."""

    argument: str
    words: str


_MISTAKES: Final = {
    "channel_not_found": _Mistake("channel", "there is no such channel, or the account does not see it"),
    "is_archived": _Mistake("channel", "the channel is archived: nothing can be posted there"),
    "msg_too_long": _Mistake("text", "the text is longer than Slack takes"),
    "no_text": _Mistake("text", "the text is empty"),
    "thread_not_found": _Mistake("thread_ts", "there is no such message to answer"),
    "message_not_found": _Mistake("thread_ts", "there is no such message to answer"),
    "invalid_cursor": _Mistake("cursor", "it is not a next_cursor that Slack gave, or it has expired"),
}

_Shape = TypeVar("_Shape")


class _Verdict(msgspec.Struct):
    """The part that every answer of Slack has: whether the call succeeded, and otherwise the reason."""

    ok: bool
    error: str = ""
    needed: str = ""
    provided: str = ""


def get(task: str, method: str, shape: type[_Shape], query: Iterable[tuple[str, str]] = ()) -> _Shape:
    """Call `method` with GET and return its answer decoded as type `shape`. Raises ConnectorError with a message that
    begins `cannot {task}: …`.
    """
    asked = urllib.parse.urlencode(list(query))
    url = f"{ADDRESS}/{method}"
    headers = [("Accept", "application/json")]
    with http.request("GET", f"{url}?{asked}" if asked else url, headers, credential="api_key") as answer:
        return _read(answer, task, shape)


def post(task: str, method: str, body: dict[str, Any], shape: type[_Shape]) -> _Shape:
    """Call a method that changes something. If the call fails but may have taken effect, the failure tells the caller
    to look into Slack before trying again.
    """
    headers = [("Accept", "application/json"), ("Content-Type", "application/json; charset=utf-8")]
    with http.request(
        "POST", f"{ADDRESS}/{method}", headers, msgspec.json.encode(body), credential="api_key"
    ) as answer:
        try:
            return _read(answer, task, shape)
        except ExternalApiError as error:
            # 200 is an answer that cannot be read, or an unknown refusal. From 500 on, Slack itself does not know.
            if error.status is None or error.status == 200 or error.status >= 500:
                raise ExternalApiError(
                    error.message + _LOOK_FIRST, status=error.status, details=error.details
                ) from error
            raise


def _read(answer: http.Response, task: str, shape: type[_Shape]) -> _Shape:
    if answer.status >= 300:
        raise _by_status(answer, task)
    verdict = _decoded(answer, task, _Verdict)
    if not verdict.ok:
        raise _refusal(answer, task, verdict)
    return _decoded(answer, task, shape)


def _decoded(answer: http.Response, task: str, shape: type[_Shape]) -> _Shape:
    try:
        data = answer.read(MAX_ANSWER_BYTES)
    except ExternalApiError as error:
        words = f"cannot {task}: Slack's answer is larger than {MAX_ANSWER_BYTES} bytes; ask for less at once"
        raise ExternalApiError(words, status=answer.status) from error
    try:
        found: _Shape = read_json(data, shape)
        return found
    except msgspec.ValidationError as error:  # msgspec's error names the path in the answer, not the value
        words = f"cannot {task}: Slack's answer is not what its reference says: {error}"
    except msgspec.DecodeError:
        words = f"cannot {task}: Slack's answer is not JSON that can be read"
    raise ExternalApiError(words, status=answer.status)


# Refusals


def _by_status(answer: http.Response, task: str) -> ExternalApiError:
    status = answer.status
    words = "too many requests for now" if status == _TOO_MANY else "Slack answered"
    if status >= 500:
        words = "Slack has a problem of its own"
    return ExternalApiError(f"cannot {task}: {words} ({status})", status=status, retry_after_s=_retry_after_s(answer))


def _refusal(answer: http.Response, task: str, verdict: _Verdict) -> ConnectorError:
    """Return the failure for an answer in which `ok` is false."""
    reason = verdict.error if re.fullmatch(r"[a-z0-9_]{1,64}", verdict.error) else "unnamed"
    if (mistake := _MISTAKES.get(reason)) is not None:
        return BadInput(f"cannot {task}: {mistake.words} [{reason}]", argument=mistake.argument)
    status, words = _in_words(answer.status, reason)
    details: dict[str, Any] = {"reason": reason}
    if status != answer.status:
        details["answered"] = answer.status
    if reason == "missing_scope":
        details |= _scopes(verdict)
        words = (
            f"{words}: it needs {details.get('needed', 'another scope')}, and has {details.get('provided', 'others')}"
        )
        words = f"{words}; add it to the app at Slack, install it again, and {_MEND}"
    return ExternalApiError(
        f"cannot {task}: {words} [{reason}]", status=status, retry_after_s=_retry_after_s(answer), details=details
    )


def _in_words(answered: int, reason: str) -> tuple[int, str]:
    """Return the HTTP status on which the host acts, and an explanation, for Slack's error code `reason` in an answer
    with the status `answered`.
    """
    if reason in _TOKEN:
        return 401, f"Slack does not accept the token: {_MEND}"
    if reason in _RATE:
        return _TOO_MANY, "too many requests for now"
    if reason in _LATER:
        return 503, "Slack has a problem of its own"
    if (words := _FORBIDDEN.get(reason)) is not None:
        return 403, words
    if reason.startswith("restricted_action"):
        return 403, "the workspace's administrators do not allow it in that channel"
    return answered, "Slack refuses it"


def _scopes(verdict: _Verdict) -> dict[str, str]:
    """Return the names of scopes in the answer. Texts that do not have the form of a scope are left out."""
    told = {"needed": verdict.needed, "provided": verdict.provided}
    return {name: text for name, text in told.items() if re.fullmatch(r"[a-z:._, -]{1,300}", text)}


def _retry_after_s(answer: http.Response) -> int | None:
    text = answer.headers.get("retry-after", "") or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else None
