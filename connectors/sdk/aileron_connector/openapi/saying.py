"""Extraction of a service's error message from its answer: a text for a person and data for a program, both bounded.

    said(b'{"title": "Out of credit", "detail": "Your balance is 30"}', "application/problem+json", text)
    # Said("Out of credit: Your balance is 30", {"problem": {…}})

Services use a dozen formats for errors; RFC 9457 is one of them. The text is taken from the usual keys; everything else
remains available in the data. The answer is not trusted: its text becomes part of one line of at most MAX_WORDS
characters, and only JSON and text are passed on.

Pure. Source: RFC 9457; RFC 6749 section 5.2 (`error_description`); JSON:API 1.1, "Error Objects".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from aileron_connector.carried import carried, parsed
from aileron_connector.openapi.media import essence, kind_of
from aileron_sandbox.frames import JSONObject

__all__ = ["MAX_FACTS_BYTES", "MAX_WORDS", "Said", "one_line", "said"]

MAX_WORDS: Final = 300
"""Maximum number of characters of the service's text in a message."""
MAX_FACTS_BYTES: Final = 2 << 10
"""Maximum number of bytes of the service's answer in a failure's details. An error with its fields fits; a page of HTML
does not.
"""

_MESSAGES: Final = ("message", "error_description", "error_message", "errorMessage", "msg", "detail", "title", "reason")
"""Keys under which services put their error message, the likeliest first."""
_MAX_PARTS: Final = 5
"""Maximum number of errors in a list that are included in the text."""
_MAX_LEVELS: Final = 4


class Said(NamedTuple):
    """A service's error: a text for a person, which may be empty, and data for a program. `facts` has one of the keys
    `problem`, `answer` and `text`, or none.
    """

    words: str
    facts: JSONObject


def said(body: bytes, content_type: str, text: str) -> Said:
    """Return text and data from an answer with an error status. `text` is the decoded `body`."""
    name = essence(content_type)
    value = _json(body) if not name or kind_of(name) == "json" or name == "text/plain" else msgspec.UNSET
    if value is msgspec.UNSET:
        is_text = name.startswith("text/") or (bool(name) and kind_of(name) in ("text", "json"))
        return _as_text(text, is_markup=name in _MARKUP) if is_text else Said("", {})
    words = one_line("; ".join(dict.fromkeys(_problem_words(value) or _words(value, _MAX_LEVELS))))
    return Said(
        words, _facts(value, text, is_problem=name == "application/problem+json" or bool(_problem_words(value)))
    )


_MARKUP: Final = frozenset({"text/html", "application/xhtml+xml", "text/xml", "application/xml"})


def one_line(text: str) -> str:
    """Return text without line ends and control characters, at most MAX_WORDS characters long."""
    line = " ".join("".join([char if char.isprintable() else " " for char in text[: 8 * MAX_WORDS]]).split())
    return line if len(line) <= MAX_WORDS else f"{line[: MAX_WORDS - 1]}…"


def _json(body: bytes) -> Any:
    try:
        return carried(parsed(body)).value
    except ValueError:
        return msgspec.UNSET


def _as_text(text: str, *, is_markup: bool) -> Said:
    cut = text.encode("utf-8", "replace")[:MAX_FACTS_BYTES].decode("utf-8", "ignore")
    return Said("" if is_markup else one_line(text), {"text": cut} if cut.strip() else {})


def _facts(value: Any, text: str, *, is_problem: bool) -> JSONObject:
    if len(msgspec.json.encode(value)) > MAX_FACTS_BYTES:
        return _as_text(text, is_markup=True).facts
    return {"problem" if is_problem else "answer": value}


def _problem_words(value: Any) -> list[str]:
    """Return the text of problem details (RFC 9457) as `title: detail (type)`; empty if the answer has no problem details."""
    if not isinstance(value, dict) or not isinstance(value.get("title"), str):
        return []
    kind = value.get("type")
    if not isinstance(value.get("detail", ""), str) or not ("detail" in value or isinstance(kind, str)):
        return []
    words = f"{value['title']}: {value['detail']}" if value.get("detail") else value["title"]
    named = isinstance(kind, str) and kind not in ("", "about:blank")
    return [f"{words} ({kind})" if named else words]


def _words(value: Any, levels: int) -> Iterator[str]:
    """Yield the error messages in an answer's JSON, down to `levels` levels, the most important first."""
    if isinstance(value, str):
        if value.strip():
            yield value.strip()
    elif isinstance(value, list) and levels:
        for part in value[:_MAX_PARTS]:
            yield from _words(part, levels - 1)
    elif isinstance(value, dict) and levels:
        yield from _words_of_object(value, levels - 1)


def _words_of_object(value: JSONObject, levels: int) -> Iterator[str]:
    error = value.get("error")
    if isinstance(error, dict | list):
        yield from _words(error, levels)
    elif isinstance(error, str):
        yield error
    sentence = next((said for key in _MESSAGES if isinstance(said := value.get(key), str) and said), "")
    if sentence:
        where = _where(value)
        yield f"{where}: {sentence}" if where else sentence
    elif isinstance(value.get("code"), str):
        yield " ".join(str(value[key]) for key in ("field", "code") if isinstance(value.get(key), str))
    for key in ("detail", "errors"):
        yield from _words_of_list(value.get(key), levels)


def _words_of_list(value: Any, levels: int) -> Iterator[str]:
    """Yield the error messages in a list, or in an object by field as in Rails and Laravel: `{"name": ["is too short"]}`."""
    if isinstance(value, list):
        yield from _words(value, levels)
    elif isinstance(value, dict):
        for name, part in list(value.items())[:_MAX_PARTS]:
            yield from (f"{name}: {words}" for words in _words(part, levels))


def _where(value: JSONObject) -> str:
    """Return the part of the request to which an error refers: `loc` in FastAPI, `field` in other services."""
    place = value.get("loc")
    if isinstance(place, list):
        return ".".join([str(step) for step in place[:_MAX_PARTS] if isinstance(step, str | int)])
    field = value.get("field")
    return field if isinstance(field, str) else ""
