"""Conversion of the service's HTTP answer to an operation's output. The answer is checked against the document, and
reduced to fit a frame.

    output(answer, Asked(endpoint, url, arguments), schemas)      # {"items": [...], "next": {"page": 2}}

Runs in the jail. The service is not trusted: its content is bounded, becomes data, and never goes into the log.

Rules
- Status 400 and above, and redirects, raise ExternalApiError. A redirect is not followed; the error says where it leads, without
  its query.
- Of the responses that the document describes, the one for the exact status applies, else the one for the status's class
  (`2XX`), else `default`. But if the document describes a response for another 2XX status, `default` describes only errors.
- The answer becomes the output even if it contradicts the document: `does_not_fit` says where and why. This covers JSON
  that does not fit its schema, checked as an answer (check.py), values that no frame can carry (carried.py), and a body
  that should be JSON and is not. The request has had its effects, and a caller that only got a failure might repeat it.
- A list at the top becomes `{"items": […]}`. In an answer of more than PAGE_BYTES, the list's members have only the fields that
  the document names, and `fields` says which. Members that still do not fit a frame are left out at the end, and `left_out` says
  how many.
- Other JSON, and bytes, that do not fit a frame raise an error. Text is truncated, and `left_out` says how many
  characters are missing. JSON is truncated in the same way if the request's method may have changed something.
- After a method that may have changed something, an error says that the request was executed.
- `next` has the arguments for the next page; `more` is true if there is a next page that arguments cannot name (links.py). A
  header of the answer takes precedence over a link of the document.

Source: OpenAPI 3.1.1, sections 4.8.16 and 4.8.17; RFC 9110 section 15. Not here: retrying a request, which the host does.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aileron_connector import http
from aileron_connector.carried import carried, marked, parsed
from aileron_connector.check import Schemas, maybe_problem
from aileron_connector.failures import ConnectorError, ExternalApiError, Refused, redirect_place
from aileron_connector.openapi.document import ListShape, Media, Response
from aileron_connector.openapi.lists import chosen, fitting, list_at
from aileron_connector.openapi.media import essence, kind_of
from aileron_connector.openapi.request import Endpoint
from aileron_sandbox.frames import JSON, MAX_BODY_BYTES, FrameTooLargeError, JSONObject, Result, encode

if TYPE_CHECKING:
    from aileron_connector.openapi.links import Next

__all__ = ["PAGE_BYTES", "Asked", "output"]

PAGE_BYTES: Final = 8 << 10
"""Size in bytes above which the members of an answer's list keep only the fields that the document names: about one page of
an output as agents see it.
"""

_MAX_SAID_BYTES: Final = 64 << 10
"""Maximum number of bytes that are read of an error's body. Longer JSON is truncated and so not parsed."""
_MAX_BINARY_BYTES: Final = (MAX_BODY_BYTES - (4 << 10)) // 4 * 3
"""Maximum number of bytes of a binary answer. As base64 they are 1 MiB, less the JSON around it."""
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_NOT_MODIFIED: Final = 304
_PERMISSIONS: Final = ("x-accepted-github-permissions", "x-accepted-oauth-scopes")
"""Headers in which services name the permission that a request needs: GitHub's for fine-grained and for classic tokens."""
_OTHER_CREDENTIAL: Final = {
    "api_key": "; store another with `aileron secret set NAME` (`aileron secret list` has the name)",
    "oauth2": "; sign in again with `aileron binding reauthorize NAME` (`aileron binding list` has the name)",
}
"""Ways to another credential, by its kind."""
_NO_CONTENT: Final = frozenset({204, 205})
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_SHOWN_OF_HEAD: Final = ("content-type", "content-length", "etag", "last-modified", "accept-ranges", "link", "location")
_MAX_FIELD_CHARACTERS: Final = 300


class Asked(NamedTuple):
    """The request that an answer belongs to: its operation, URL and arguments."""

    endpoint: Endpoint
    url: str
    arguments: Mapping[str, JSON]


def output(answer: http.Response, asked: Asked, schemas: Schemas) -> Any:
    """Convert an answer to the operation's output. Raises ExternalApiError if the service refused or redirected the request."""
    if answer.status >= 400:
        raise _refusal(answer, asked)
    if answer.status == _NOT_MODIFIED:  # not a redirect, and only sent if the request had If-None-Match or the like
        return {"status": answer.status}
    if answer.status >= 300:
        raise _redirect(answer, asked)
    if asked.endpoint.method == "HEAD":
        return {"status": answer.status, "headers": _head(answer)}
    data = b"" if answer.status in _NO_CONTENT else _read(answer, asked)
    if not data:
        return {"status": answer.status}
    return _Body(answer, asked, schemas, data).output()


# Refusals and redirects


def _refusal(answer: http.Response, asked: Asked) -> ExternalApiError:
    from aileron_connector.openapi.saying import (
        said,
    )  # imported only when needed, like links.py: it would take a millisecond of most runs

    body = _beginning(answer)
    content_type = answer.headers.get("content-type", "") or ""
    words, facts = said(body, content_type, answer.decoded(body).encode("utf-8", "replace").decode())
    message = f"the service answered with status {answer.status}"
    return ExternalApiError(
        (f"{message}: {words}" if words else message) + _hint(answer, asked),
        status=answer.status,
        retry_after_s=answer.retry_after_s,
        details=facts,
    )


def _hint(answer: http.Response, asked: Asked) -> str:
    """Return the end of an error message, with what a person can do: about a credential that is not accepted, a permission that
    the service names, or an address that is wrong. Otherwise return an empty string.

    Status 404 says so only at a path without arguments, where no argument can be the cause.
    """
    if answer.status == _UNAUTHORIZED:
        kinds = {kind for way in asked.endpoint.operation.security for kind in way}
        return "".join(_OTHER_CREDENTIAL.get(kind, "") for kind in sorted(kinds))
    if answer.status == _FORBIDDEN and (needed := _needed(answer)):
        return f"; it needs the permission '{needed}': check that the credential has it"
    if answer.status == _NOT_FOUND and "{" not in asked.endpoint.path:
        return "; if every operation answers so, the address is wrong: import the document with --server URL"
    return ""


def _needed(answer: http.Response) -> str:
    """Return the permission that a refused request needs, as the service names it in a header; an empty string if it names none.

    RFC 6750, section 3.1, has the scope in the challenge. GitHub has headers of its own.
    """
    challenge = " ".join(answer.headers.get_all("www-authenticate"))
    scope = re.search(r'\bscope="([^"]*)"', challenge) if 'error="insufficient_scope"' in challenge else None
    named = (answer.headers.get(name, "") or "" for name in _PERMISSIONS)
    found = ("" if scope is None else scope[1], *named)
    return next((text for text in found if re.fullmatch(r"[A-Za-z0-9_=:,;./* -]{1,200}", text)), "")


def _beginning(answer: http.Response) -> bytes:
    pieces, size = [], 0
    # If the body breaks off, the caller still needs its status.
    with contextlib.suppress(Refused):
        for piece in answer.iter_bytes():
            pieces.append(piece)
            size += len(piece)
            if size >= _MAX_SAID_BYTES:
                answer.close()
                break
    return b"".join(pieces)[:_MAX_SAID_BYTES]


def _redirect(answer: http.Response, asked: Asked) -> ExternalApiError:
    place = redirect_place(answer.headers.get("location", "") or "", asked.url)
    where = f"redirects to {place}, which is not followed" if place else "names no place where the answer is"
    details = {"location": place} if place else {}
    done = (
        "" if asked.endpoint.method in _READING else "; it may have done what was asked, so look before you repeat it"
    )
    return ExternalApiError(
        f"the service {where} (status {answer.status}){done}", status=answer.status, details=details
    )


def _carried_out(answer: http.Response, asked: Asked) -> str:
    """Return the end of an error message about an unreadable answer: a warning that the request may have had its effects."""
    if asked.endpoint.method in _READING:
        return ""
    return f"; the request itself was carried out (status {answer.status}), so do not simply repeat it"


def _read(answer: http.Response, asked: Asked) -> bytes:
    try:
        return answer.read()
    except ExternalApiError as error:
        raise ExternalApiError(f"{error.message}{_carried_out(answer, asked)}", status=answer.status) from error


def _head(answer: http.Response) -> dict[str, str]:
    values = {name: answer.headers.get(name) for name in _SHOWN_OF_HEAD}
    return {name: _clean(value)[:_MAX_FIELD_CHARACTERS] for name, value in values.items() if value is not None}


def _clean(text: str) -> str:
    """Return text without lone surrogates, which some charsets decode to, and which no frame can represent."""
    return text.encode("utf-8", "replace").decode()


# Successful answers


class _Body:
    """A successful answer of the service with a body, which `output` converts."""

    def __init__(self, answer: http.Response, asked: Asked, schemas: Schemas, data: bytes) -> None:
        self._answer: Final = answer
        self._asked: Final = asked
        self._schemas: Final = schemas
        self._data: Final = data
        self._content_type: Final = _clean(answer.headers.get("content-type", "") or "")[:_MAX_FIELD_CHARACTERS]
        self._declared: Final = _declared(asked.endpoint, answer.status)
        self._media_type, self._media = _chosen_media(self._declared.content, self._content_type)

    def output(self) -> Any:
        """Convert the body to an output by its kind: JSON, text or bytes. If the document does not list the answer's own media
        type, but lists JSON, the body is read as JSON.
        """
        kind = kind_of(self._media_type)
        if kind == "json":
            return self._json()
        if kind == "text":
            return self._text()
        return self._bytes()

    def _json(self) -> Any:
        try:
            named = "charset" in self._content_type.lower()
            value = parsed(self._data, self._answer.decoded(self._data) if named else None)
        except ValueError:
            return self._not_json()
        told = carried(value)
        return self._listed(told.value, [*self._misfits(value), *told.changes])

    def _not_json(self) -> Any:
        named = f", but says that it is {self._content_type}" if self._content_type else ""
        words = [f"the answer is not JSON{named}"]
        kind = kind_of(essence(self._content_type))
        is_text = kind in ("json", "text") or b"\0" not in self._data
        return self._text(words) if is_text else marked(self._bytes(), words)

    def _misfits(self, value: Any) -> list[str]:
        schema = True if self._media is None else self._media.schema
        problem = maybe_problem(value, schema, self._schemas, reading="answer")
        if problem is None:
            return []
        return [f"{problem.place or 'the whole'} {problem.words} (by the service's document)"]

    def _text(self, misfits: list[str] | None = None) -> JSONObject:
        text = _clean(self._answer.decoded(self._data))
        told: JSONObject = marked({"text": text, "content_type": self._content_type}, misfits or [])
        if self._fits(told):
            return told
        kept = text.encode()[:_MAX_TEXT_BYTES].decode("utf-8", "ignore")
        return {**told, "text": kept, "left_out": len(text) - len(kept)}

    def _bytes(self) -> JSONObject:
        size = len(self._data)
        if size > _MAX_BINARY_BYTES:
            raise self._too_large(f"an answer of {size} bytes; at most {_MAX_BINARY_BYTES} can be returned")
        return {
            "content_type": self._content_type,
            "bytes": size,
            "base64": base64.b64encode(self._data).decode(),
        }

    def _listed(self, value: Any, misfits: list[str]) -> Any:
        """Convert the JSON of an answer with a list to an output. Members of the list keep only the chosen fields. The
        keys `next` (the next page) and `does_not_fit` (`misfits`) are added.
        """
        if not isinstance(value, dict | list):
            return self._fitted(marked(value, misfits), None)
        told = marked({"items": value} if isinstance(value, list) else dict(value), misfits)
        shape = self._asked.endpoint.operation.listing
        keys = ["items"] if isinstance(value, list) else shape.at if shape is not None else []
        page = self._next_page(value)
        if list_at(told, keys) is None:
            return self._with_next(told, None, page)
        self._choose_fields(told, keys, shape)
        return self._with_next(told, keys, page)

    def _choose_fields(self, told: JSONObject, keys: list[str], shape: ListShape | None) -> None:
        if shape is None:
            return
        said = self._asked.arguments.get(shape.argument) if shape.argument else None
        if said is None:
            said = [*shape.fields] if len(self._data) > PAGE_BYTES else []
        wanted = [str(name) for name in said] if isinstance(said, list) else []  # its schema allows texts only
        members = list_at(told, keys)
        if members is None or not wanted or "*" in wanted:
            return
        _put(told, keys, chosen(members, wanted))
        told[_free(told, "fields")] = said

    def _with_next(self, told: JSONObject, keys: list[str] | None, page: Next | None) -> Any:
        if page is not None:
            key, value = ("more", True) if page.arguments is None else ("next", page.arguments)
            told[_free(told, key)] = value
        return self._fitted(told, keys)

    def _next_page(self, value: Any) -> Next | None:
        headers, link = self._answer.headers.get_all("link"), self._declared.links.get("next")
        if not headers and link is None:
            return None
        from aileron_connector.openapi.links import next_page, page_in  # as saying.py

        page = next_page(headers, self._asked.url, self._asked.endpoint, self._schemas)
        if page is not None or link is None:
            return page
        return page_in(link, value, self._asked.arguments, self._asked.endpoint, self._schemas)

    def _fitted(self, told: Any, keys: list[str] | None) -> Any:
        """Fit the output `told` into one frame by leaving out members at the end of its list, which is at the path
        `keys`. If that does not help, return the output of `_cut`, or raise its ConnectorError.
        """
        if self._fits(told):
            return told
        members = None if keys is None else list_at(told, keys)
        if keys is None or members is None:
            return self._cut()
        left_out = _free(told, "left_out")

        def fits(some: list[JSON]) -> bool:
            _put(told, keys, some)
            told[left_out] = len(members)
            return self._fits(told)

        kept = fitting(members, fits)
        if kept is None:
            return self._cut()
        _put(told, keys, kept)
        told[left_out] = len(members) - len(kept)
        return told

    def _cut(self) -> Any:
        """Return the start of the answer's JSON, which no frame can hold, as text. Raises ConnectorError if the request
        only reads, and so can be repeated.
        """
        words = f"an answer of {len(self._data)} bytes, which is more than can be returned"
        if self._asked.endpoint.method in _READING:
            raise self._too_large(words)
        return self._text([words])

    @staticmethod
    def _fits(told: Any) -> bool:
        try:
            encode(Result(output=told))
        except FrameTooLargeError:
            return False
        return True

    def _too_large(self, words: str) -> ConnectorError:
        advice = "" if self._asked.endpoint.method not in _READING else ": ask for less, or in pages"
        return ConnectorError(
            "resource_limit_exceeded",
            f"the service sent {words}{advice}{_carried_out(self._answer, self._asked)}",
            details={"limit": "output"},
        )


_MAX_TEXT_BYTES: Final = MAX_BODY_BYTES - (4 << 10)


def _declared(endpoint: Endpoint, status: int) -> Response:
    """Return the response that the document describes for a status. If the document describes a response for success,
    `default` is only used for errors.
    """
    responses = endpoint.operation.responses
    default = "" if any(name[:1] == "2" for name in responses) else "default"
    names = (str(status), f"{status // 100}XX", f"{status // 100}xx", default)
    return next((responses[name] for name in names if name in responses), Response())


def _chosen_media(content: Mapping[str, Media], content_type: str) -> tuple[str, Media | None]:
    """Return the documented media type that matches the answer's. If none matches, return the documented JSON type, or
    else the answer's own type.

    Services send JSON as text/html or without a media type, so if the document says JSON, the body is parsed as JSON.
    """
    name = essence(content_type)
    of_name = {essence(media_type): (media_type, media) for media_type, media in content.items()}
    for pattern in (name, f"{name.partition('/')[0]}/*", "*/*"):
        if name and pattern in of_name:
            media_type, media = of_name[pattern]
            return (media_type, media) if pattern == name else (content_type, media)
    as_json = [(media_type, media) for media_type, media in content.items() if kind_of(media_type) == "json"]
    if as_json:
        return as_json[0]
    return (content_type or next(iter(content), ""), None)


def _free(told: Mapping[str, JSON], name: str) -> str:
    """Return `name`, prefixed if necessary so that the output `told` has no such key."""
    while name in told:
        name = f"aileron_{name}"
    return name


def _put(told: JSONObject, keys: list[str], members: list[JSON]) -> None:
    """Replace the list at the path `keys` by `members`. The objects on the path are copied first."""
    *way, last = keys
    for key in way:
        inner = told[key]
        assert isinstance(inner, dict)  # list_at has found the list there
        told[key] = copied = dict(inner)
        told = copied
    told[last] = members
