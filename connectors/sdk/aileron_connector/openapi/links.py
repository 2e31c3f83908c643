"""Finding the next page of an answer: from RFC 8288's `Link` header or the document's link `next`, converted to arguments.

    targets('<https://api.example.com/items?page=2>; rel="next", <…?page=9>; rel=last', "next")
    # ['https://api.example.com/items?page=2']
    page_in(Link("list_items", {"from": "$response.body#/end"}), {"items": [], "end": "t7"}, {}, endpoint, schemas)
    # Next({"from": "t7"})

A link comes from the service, which is not trusted. The link is not followed. It becomes arguments of the same operation,
which the caller may use or not, and which are checked like any others.

Rules
- Parsing of a header ends at the first syntax error; only the links before it are used.
- The first `rel` of a link counts, without regard to case; it may have several names (RFC 8288 section 3.3).
- A link becomes arguments if its host is the request's, and its path is the same or has the same end after the
  operation's last parameter: services whose objects have a name and a number may link to the number (GitHub:
  `/repos/o/r/issues` and `/repositories/7/issues`).
- A link of the document stands for no next page if a value for it is missing, null or empty in the answer, or if all
  values equal those that were sent.

Pure. Source: RFC 8288 section 3 and appendix B.2; OpenAPI 3.1.1, section 4.8.20 (Link Object); RFC 6901.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from aileron_connector.check import Schema, Schemas, maybe_problem
from aileron_connector.openapi.document import Link, Parameter
from aileron_connector.openapi.request import Endpoint, schema_of
from aileron_sandbox.frames import JSON, JSONObject

__all__ = ["IN_BODY", "Next", "next_page", "page_in", "targets"]

IN_BODY: Final = "$response.body#"
"""Text before the JSON pointer in a link's parameter. It is the only runtime expression of OpenAPI that is supported here."""
_MAX_CHARACTERS: Final = 16 << 10
"""Maximum number of characters of one header. The host accepts little more."""
_TARGET: Final = re.compile(r"[\s,]*<([^<>]*)>")
_PARAMETER: Final = re.compile(
    r"""\s*;\s*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]*)))?"""
)
_EMPTY: Final = re.compile(r"\s*;(?=\s*(?:[;,]|$))")
_ESCAPED: Final = re.compile(r"\\(.)")
_MAX_DIGITS: Final = 19
"""Number of digits from which a number is kept as text, since it may not fit 64 bits."""
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,6}")
"""Pattern for a list index (RFC 6901 section 4) below ten million. No answer has more members."""
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")


def targets(header: str, relation: str) -> list[str]:
    """Return the targets of those links in a `Link` header that have this relation, in order and unchanged."""
    found, at, header = [], 0, header[:_MAX_CHARACTERS]
    while (link := _TARGET.match(header, at)) is not None:
        relations, at = _relations(header, link.end())
        if relation in relations:
            found.append(link[1].strip())
        rest = header[at:].lstrip()
        if not rest.startswith(","):
            break
    return found


def _relations(header: str, at: int) -> tuple[list[str], int]:
    """Return the relations (`rel`) of a link whose parameters begin at `at`, and the position after the parameters."""
    relations: list[str] | None = None
    while (found := _PARAMETER.match(header, at) or _EMPTY.match(header, at)) is not None:
        at = found.end()
        if found.re is _PARAMETER and found[1].lower() == "rel" and relations is None:
            value = _ESCAPED.sub(r"\1", found[2]) if found[2] is not None else found[3] or ""
            relations = value.lower().split()
    return relations or [], at


class Next(NamedTuple):
    """A next page. `arguments` are the arguments that change for that page; None if arguments cannot express the page."""

    arguments: JSONObject | None


def next_page(headers: Iterable[str], url: str, endpoint: Endpoint, schemas: Schemas) -> Next | None:
    """Return the next page from the answer to a request for `url`, or None if no link names a next page."""
    found = [target for header in headers for target in targets(header, "next")]
    if not found:
        return None
    try:
        sent, link = urllib.parse.urlsplit(url), urllib.parse.urlsplit(urllib.parse.urljoin(url, found[0]))
        is_here = link.hostname == sent.hostname and (link.port or 0) in {0, sent.port or 0, 80, 443}
        changed = _changed(sent.query, link.query)
    except ValueError:  # an invalid port or host, or too many fields
        return Next(None)
    if not is_here or not _is_same_path(link.path, sent.path, endpoint):
        return Next(None)
    return Next(_arguments(changed, endpoint, schemas))


def page_in(link: Link, body: Any, sent: Mapping[str, JSON], endpoint: Endpoint, schemas: Schemas) -> Next | None:
    """Return the next page to which a link of the document leads. `body` is the answer to a call with the arguments
    `sent`. None if that answer is the last page.
    """
    declared = {declaration.name: declaration for declaration in endpoint.operation.parameters}
    arguments = {}
    for name, expression in link.parameters.items():
        parameter, value = declared.get(name), _value_at(expression.removeprefix(IN_BODY), body)
        if value is None or value == "":
            return None
        if parameter is None or maybe_problem(value, schema_of(parameter), schemas, reading="argument") is not None:
            return Next(None)
        arguments[parameter.argument] = value
    return None if all(sent.get(name) == value for name, value in arguments.items()) else Next(arguments)


def _value_at(pointer: str, body: Any) -> Any:
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(body, list):
            body = body[int(key)] if _INDEX.fullmatch(key) and int(key) < len(body) else None
        else:
            body = body.get(key) if isinstance(body, dict) else None
    return body


def _is_same_path(path: str, sent: str, endpoint: Endpoint) -> bool:
    if urllib.parse.unquote(path) == urllib.parse.unquote(sent):
        return True
    behind = endpoint.path.partition("?")[0].rpartition("}")[2]
    return len(behind) > 1 and behind.startswith("/") and path.endswith(behind)


def _changed(sent: str, linked: str) -> dict[str, list[str]]:
    """Return the parameters of a link's query (`linked`) that the request's query (`sent`) does not have, or has with
    other values.
    """
    before, after = _by_name(sent), _by_name(linked)
    return {name: values for name, values in after.items() if before.get(name) != values}


def _by_name(query: str) -> dict[str, list[str]]:
    return urllib.parse.parse_qs(query, keep_blank_values=True, max_num_fields=200)


def _arguments(changed: Mapping[str, list[str]], endpoint: Endpoint, schemas: Schemas) -> JSONObject | None:
    """Return changed query parameters as arguments of the operation, with the types of their schemas. None if no
    parameter changed, or if one of them belongs to no argument or does not fit its schema.
    """
    declared = {
        declaration.name: declaration
        for declaration in endpoint.operation.parameters
        if declaration.place == "query" and not declaration.content
    }
    arguments = {}
    for name, values in changed.items():
        parameter = declared.get(name)
        value = msgspec.UNSET if parameter is None else _typed(values, parameter, schemas)
        if parameter is None or value is msgspec.UNSET:
            return None
        arguments[parameter.argument] = value
    return arguments or None


def _typed(values: list[str], parameter: Parameter, schemas: Schemas) -> Any:
    """Return the argument that these query values stand for, or UNSET if its style is not `form` or no typed value fits its
    schema.
    """
    schema = schema_of(parameter)
    if (parameter.style or "form") != "form":
        return msgspec.UNSET
    rule = schemas.resolved(schema)
    texts = values if parameter.explode is not False or len(values) > 1 else values[0].split(",")
    members = schemas.resolved(rule.get("items", True))
    candidates: list[JSON] = [*_readings(values[0], rule)] if len(values) == 1 else []
    candidates += [[_readings(text, members)[0] for text in texts], [*texts]]
    fitting = (
        candidate for candidate in candidates if maybe_problem(candidate, schema, schemas, reading="argument") is None
    )
    return next(fitting, msgspec.UNSET)


def _readings(text: str, rule: Schema) -> list[JSON]:
    """Return the JSON values that a text from a query can stand for, such as 7 and "7", in the order in which the
    schema prefers them.
    """
    value: Any = text
    if text in ("true", "false"):
        value = text == "true"
    elif len(text) < _MAX_DIGITS and _NUMBER.fullmatch(text):
        value = float(text) if "." in text else int(text)
    types = rule.get("type", ())
    return [text, value] if types == "string" or "string" in types else [value, text]
