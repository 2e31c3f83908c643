"""Client for the part of Telegram's Bot API that this connector needs. It sends requests, reads answers of a known shape,
and explains refusals.

A bot's token is a part of the path, `/botTOKEN/METHOD`. This module writes `{key}` there, and the host inserts the token.
Every answer is a JSON object with `ok`; a refusal has `error_code`, `description` and sometimes `parameters`. A refusal has
no machine-readable reason, so refusals are distinguished by code and by phrases of the description, which becomes
`details.description`.

A response is decoded only into the type that the caller passes. If it does not fit that type, is nested too deeply or
is too long, it becomes a failure that says where the problem is.

Runs inside the jail. Source: Telegram's documentation, "Bot API" (Making requests, ResponseParameters, getUpdates, getChat,
sendMessage). Not here: the operations (__main__.py), retries (the host, as the action allows).
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from aileron_connector import BadInput, ConnectorError, ExternalApiError, http
from aileron_connector.carried import read_json

__all__ = ["get", "post"]

ADDRESS: Final = "https://api.telegram.org/bot{key}"
MAX_ANSWER_BYTES: Final = 4 << 20
"""Maximum number of bytes of a JSON answer: several times the size of a hundred updates with long messages. The parsed data
fits into a connector's 64 MiB.
"""

_MEND: Final = "put a good one in its place with `aileron secret set NAME` (`aileron secret list` has the name)"
_LOOK_FIRST: Final = "; it may be sent all the same: look into the chat before you ask again"
_DESCRIPTION: Final = re.compile(r"[ -~]{1,300}")
_TOO_MANY: Final = 429
_MAX_WAIT_S: Final = 999_999


class _Mistake(NamedTuple):
    """A mistake that the caller can correct: Telegram's phrase for it, the wrong argument, and the explanation for the caller."""

    phrase: str
    argument: str
    words: str


_MISTAKES: Final = (
    _Mistake("chat not found", "chat", "there is no such chat, or nobody in it has written to the bot yet"),
    _Mistake("chat_id is empty", "chat", "there is no such chat"),
    _Mistake("group chat was upgraded", "chat", "the group has become a supergroup, which has another id"),
    _Mistake("message is too long", "text", "the text is longer than Telegram takes"),
    _Mistake("text must be non-empty", "text", "the text is empty"),
    _Mistake("message text is empty", "text", "the text is empty"),
    _Mistake("message to be replied not found", "reply_to", "there is no such message to answer"),
    _Mistake("message to reply not found", "reply_to", "there is no such message to answer"),
)

_Shape = TypeVar("_Shape")


class _Parameters(msgspec.Struct):
    retry_after: int | None = None
    migrate_to_chat_id: int | None = None


class _Verdict(msgspec.Struct):
    """The part that every answer of Telegram has: whether the call succeeded, and otherwise the reason."""

    ok: bool
    error_code: int = 0
    description: str = ""
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


class _Answer(msgspec.Struct, Generic[_Shape]):
    result: _Shape


def get(task: str, method: str, shape: type[_Shape], query: Iterable[tuple[str, str]] = ()) -> _Shape:
    """Call `method` with GET and return its result decoded as type `shape`. Raises ConnectorError with a message that
    begins `cannot {task}: …`.
    """
    asked = urllib.parse.urlencode(list(query))
    url = f"{ADDRESS}/{method}"
    headers = [("Accept", "application/json")]
    with http.request("GET", f"{url}?{asked}" if asked else url, headers, credential="api_key") as answer:
        return _read(answer, task, shape)


def post(task: str, method: str, body: dict[str, Any], shape: type[_Shape]) -> _Shape:
    """Call a method that changes something. If the call fails but may have taken effect, the failure tells the caller
    to look into the chat before trying again.
    """
    headers = [("Accept", "application/json"), ("Content-Type", "application/json")]
    data = msgspec.json.encode(body)
    with http.request("POST", f"{ADDRESS}/{method}", headers, data, credential="api_key") as answer:
        try:
            return _read(answer, task, shape)
        except ExternalApiError as error:
            if error.status is None or error.status < 400 or error.status >= 500:
                words = error.message + _LOOK_FIRST
                raise ExternalApiError(words, status=error.status, details=error.details) from error
            raise


def _read(answer: http.Response, task: str, shape: type[_Shape]) -> _Shape:
    data = _data(answer, task)
    try:
        verdict = read_json(data, _Verdict)
    except msgspec.DecodeError:
        raise _not_an_answer(answer, task, "not what its reference says: an object with `ok`") from None
    if not verdict.ok:
        raise _refusal(answer, task, verdict)
    if answer.status >= 300:
        raise _not_an_answer(answer, task, f"of status {answer.status} and says that it is well")
    try:
        found: _Shape = read_json(data, _Answer[shape]).result  # type: ignore[valid-type]
        return found
    except msgspec.ValidationError as error:  # msgspec's error names the path in the answer, not the value
        raise _not_an_answer(answer, task, f"not what its reference says: {error}") from None
    except msgspec.DecodeError:
        raise _not_an_answer(answer, task, "not JSON that can be read") from None


def _data(answer: http.Response, task: str) -> bytes:
    try:
        return answer.read(MAX_ANSWER_BYTES)
    except ExternalApiError as error:
        words = f"cannot {task}: Telegram's answer is larger than {MAX_ANSWER_BYTES} bytes; ask for less at once"
        raise ExternalApiError(words, status=answer.status) from error


def _not_an_answer(answer: http.Response, task: str, problem: str) -> ExternalApiError:
    if answer.status >= 500:
        return ExternalApiError(
            f"cannot {task}: Telegram has a problem of its own ({answer.status})", status=answer.status
        )
    return ExternalApiError(f"cannot {task}: Telegram's answer is {problem}", status=answer.status)


# Refusals


def _refusal(answer: http.Response, task: str, verdict: _Verdict) -> ConnectorError:
    """Return the failure for an answer in which `ok` is false."""
    code = verdict.error_code if 400 <= verdict.error_code <= 599 else answer.status
    if (mistake := _mistake(verdict.description)) is not None and code == 400:
        moved = verdict.parameters.migrate_to_chat_id
        words = f"{mistake.words}: {moved}" if moved is not None and mistake.argument == "chat" else mistake.words
        return BadInput(f"cannot {task}: {words}", argument=mistake.argument)
    status, words = _in_words(code, verdict.description)
    details: dict[str, Any] = {}
    if _DESCRIPTION.fullmatch(verdict.description):
        details["description"] = verdict.description
    if status != answer.status:
        details["answered"] = answer.status
    return ExternalApiError(
        f"cannot {task}: {words}", status=status, retry_after_s=_wait_s(answer, verdict), details=details
    )


def _mistake(description: str) -> _Mistake | None:
    said = description.lower()
    return next((mistake for mistake in _MISTAKES if mistake.phrase in said), None)


def _in_words(code: int, description: str) -> tuple[int, str]:
    """Return the HTTP status on which the host acts, and an explanation, for an error of Telegram with this code and
    description. Telegram answers 404 to a malformed token, as it does to a wrong path.
    """
    if code in (401, 404):
        return 401, f"Telegram does not accept the bot's token: the binding has a wrong or revoked one; {_MEND}"
    if code == _TOO_MANY:
        return code, "too many requests for now"
    if code >= 500:
        return code, "Telegram has a problem of its own"
    if code == 409:
        return code, _conflict(description)
    if code == 403:
        words = "Telegram does not allow it to this bot: it was blocked, removed from the chat, or may not write there"
        return code, f"{words}{_quoted(description)}"
    return code, f"Telegram refuses it{_quoted(description)}"


def _quoted(description: str) -> str:
    """Return Telegram's own words, such as which right is missing in a chat, for the end of a message."""
    return f": '{description}'" if _DESCRIPTION.fullmatch(description) and "'" not in description else ""


def _conflict(description: str) -> str:
    if "webhook" in description.lower():
        return "the bot has a webhook, which gets its updates; delete it with deleteWebhook, or read them there"
    return "another program reads the updates of this bot; stop it, or use another bot"


def _wait_s(answer: http.Response, verdict: _Verdict) -> int | None:
    wait_s = verdict.parameters.retry_after
    return wait_s if wait_s is not None and 0 <= wait_s <= _MAX_WAIT_S else answer.retry_after_s
