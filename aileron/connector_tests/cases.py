"""The parser of `tests/cases.toml`. A case has an operation's arguments, the service's responses, and the expected result.

    [[case]]
    name = "the newest things come first"
    op = "list_things"
    args = { limit = 2 }
    output = { things = ["b", "a"] }

    [[case.exchange]]
    method = "GET"
    path = "/things?limit=2"
    credential = "api_key"
    json = ["b", "a"]

An operation that opens a stream has `[[case.stream]]`, one that opens a WebSocket `[[case.websocket]]`, with the lines that
both sides send (talk.py).

Pure. The schema is closed, like those of manifests and actions: an unknown key is an error, and so is a case without an
expectation.

Source: docs/reference/connector-cases.md, checked against `SCHEMA`. Not here: running cases (bench.py).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from aileron.connector_tests.talk import Line, read_talk
from aileron.model.document import Field, Kind, Table, read_document
from aileron.model.failure import Boundary, FailureClass
from aileron.model.json_value import JSONObject
from aileron.model.names import OP_NAME, HostPort
from aileron.model.near import did_you_mean

__all__ = ["CASES", "SCHEMA", "Case", "CaseExchange", "CaseStream", "CaseWebSocket", "Cases", "parse_cases"]

CASES: Final = "tests/cases.toml"
"""Path of the file of test cases, relative to the connector's directory. Files in `tests/` are not packed."""
_MAX_CASES: Final = 500
_STATUS: Final = range(200, 600)
_METHOD: Final = re.compile(r"[A-Z]{1,32}")
_JSON_TYPE: Final = ("Content-Type", "application/json")
_HOST: Final = Field(Kind.STRING, says="`HOST:PORT`; the first of the manifest's by default")

SCHEMA: Final = {
    "hosts": Field(
        Kind.STRINGS,
        says='what takes the place of `hosts = ["bound-at-build"]`; of no meaning where the manifest names hosts',
    ),
    "case": Field(
        Kind.TABLES,
        required=True,
        fields={
            "name": Field(Kind.STRING, required=True, says="what it shows; each once"),
            "op": Field(Kind.STRING, required=True, says="the operation"),
            "args": Field(Kind.FREE, says="its arguments"),
            "output": Field(Kind.VALUE, says="what it has to answer, whole. 1, 1.0 and true are three things"),
            "output_json": Field(Kind.VALUE, says="the same as a string of JSON, for what has a null"),
            "failure": Field(Kind.STRING, says="the [class](failures.md) it has to fail with"),
            "details": Field(Kind.FREE, says="details the failure has to have, at least"),
            "exchange": Field(
                Kind.TABLES,
                fields={
                    "method": Field(Kind.STRING, required=True, says="in upper case"),
                    "path": Field(
                        Kind.STRING,
                        required=True,
                        says="path and query, as they are sent; a key in the path is `{key}`",
                    ),
                    "host": _HOST,
                    "credential": Field(
                        Kind.STRING, says="the kind that the request has to ask for; any or none by default"
                    ),
                    "sends": Field(
                        Kind.VALUE,
                        says="what the request's body has to be, as JSON or as text; a string may be JSON, for what has a "
                        "null. Anything by default",
                    ),
                    "status": Field(Kind.INTEGER, says="of the answer, default 200"),
                    "headers": Field(
                        Kind.FREE, says="of the answer: strings of printable ASCII, in an array where one comes twice"
                    ),
                    "json": Field(
                        Kind.VALUE,
                        says="the answer's body, as JSON; `Content-Type` goes with it unless `headers` has one",
                    ),
                    "body": Field(Kind.VALUE, says="the answer's body, as a string"),
                    "unreachable": Field(Kind.BOOLEAN, says="there is no answer: a `network_error`"),
                },
            ),
            "stream": Field(
                Kind.TABLES,
                fields={
                    "host": _HOST,
                    "talk": Field(Kind.STRINGS, required=True, says="[what is said](#what-is-said), line by line"),
                },
            ),
            "websocket": Field(
                Kind.TABLES,
                fields={
                    "path": Field(
                        Kind.STRING,
                        required=True,
                        says="path and query of the handshake; a key in the path is `{key}`",
                    ),
                    "host": _HOST,
                    "credential": Field(
                        Kind.STRING, says="the kind that the handshake has to ask for; any or none by default"
                    ),
                    "subprotocol": Field(
                        Kind.STRING, says="the one of those offered that the service chooses; none by default"
                    ),
                    "talk": Field(
                        Kind.STRINGS, required=True, says="[what is said](#what-is-said), one text message a line"
                    ),
                },
            ),
        },
    ),
}


class CaseExchange(msgspec.Struct, frozen=True, kw_only=True):
    """An expected request and its response. `path` includes the query. A `host` of None means the manifest's first host."""

    method: str
    path: str
    host: HostPort | None = None
    credential: str | None = None
    sends: Any = msgspec.UNSET
    """The expected body of the request, as JSON or text; UNSET means any body."""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    unreachable: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.host or ''}{self.path}"


class CaseStream(msgspec.Struct, frozen=True, kw_only=True):
    """An expected stream and the lines of its conversation. A `host` of None means the manifest's first host."""

    lines: tuple[Line, ...]
    host: HostPort | None = None

    def __str__(self) -> str:
        return f"the stream to {self.host or 'the first host'}"


class CaseWebSocket(msgspec.Struct, frozen=True, kw_only=True):
    """An expected WebSocket and the lines of its conversation. `path` and `host` are as in CaseExchange."""

    path: str
    lines: tuple[Line, ...]
    host: HostPort | None = None
    credential: str | None = None
    subprotocol: str | None = None

    def __str__(self) -> str:
        return f"the WebSocket {self.host or ''}{self.path}"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A test case: one run of an operation, which must give `output`, or a `failure` whose details include `details`."""

    name: str
    op: str
    args: JSONObject
    exchanges: tuple[CaseExchange, ...]
    streams: tuple[CaseStream, ...] = ()
    websockets: tuple[CaseWebSocket, ...] = ()
    output: Any = msgspec.UNSET
    failure: FailureClass | None = None
    details: JSONObject = {}


class Cases(msgspec.Struct, frozen=True, kw_only=True):
    """All cases of a file. `hosts` replace the placeholder `bound-at-build` in the manifest."""

    hosts: tuple[HostPort, ...]
    cases: tuple[Case, ...]


def parse_cases(text: str, *, file: str) -> Cases:
    """Parse one file of cases. `file` is the file's name in errors. Raises AileronError(invalid_request) with the line and
    a fix.
    """
    table = read_document(text, SCHEMA, file=file, boundary=Boundary.USER)
    entries = table.tables("case")
    if not 0 < len(entries) <= _MAX_CASES:
        raise table.refuse("case", f"{len(entries)} cases; from 1 to {_MAX_CASES}")
    cases: dict[str, Case] = {}
    for entry in entries:
        case = _case(entry)
        if case.name in cases:
            raise entry.refuse("name", f"two cases are called {case.name!r}")
        cases[case.name] = case
    hosts = tuple(table.attempt("hosts", HostPort.parse, name) for name in table.strings("hosts"))
    return Cases(hosts=hosts, cases=tuple(cases.values()))


def _case(entry: Table) -> Case:
    if sum(key in entry for key in ("output", "output_json", "failure")) != 1:
        raise entry.refuse(None, "a case has one of output, output_json and failure: what has to come of it")
    if "details" in entry and "failure" not in entry:
        raise entry.refuse("details", "details are those of a failure")
    if not OP_NAME.fullmatch(entry.string("op")):
        raise entry.refuse("op", f"op {entry.string('op')!r} is not a name of lower-case letters, digits and '_'")
    return Case(
        name=entry.string("name"),
        op=entry.string("op"),
        args=entry.free("args"),
        exchanges=tuple(_exchange(exchange) for exchange in entry.tables("exchange")),
        streams=tuple(_stream(stream) for stream in entry.tables("stream")),
        websockets=tuple(_websocket(websocket) for websocket in entry.tables("websocket")),
        output=_output(entry),
        failure=_failure(entry) if "failure" in entry else None,
        details=entry.free("details"),
    )


def _output(entry: Table) -> Any:
    """Return the expected output as JSON values, or UNSET if a failure is expected.

    TOML has no null, so an output can also be written as text of JSON (`output_json`).
    """
    if "output_json" not in entry:
        return entry.value("output") if "output" in entry else msgspec.UNSET
    try:
        return json.loads(entry.value("output_json"))
    except (TypeError, ValueError):
        raise entry.refuse("output_json", "output_json is not a string of JSON") from None


def _failure(entry: Table) -> FailureClass:
    said = entry.string("failure")
    known = [kind.value for kind in FailureClass]
    if said in known:
        return FailureClass(said)
    hint = did_you_mean(said, known, "expected a class of failure, such as 'external_api_error'")
    raise entry.refuse("failure", f"unknown failure {said!r}; {hint}")


def _stream(entry: Table) -> CaseStream:
    return CaseStream(host=entry.parsed("host", HostPort.parse) if "host" in entry else None, lines=_talk(entry))


def _websocket(entry: Table) -> CaseWebSocket:
    return CaseWebSocket(
        path=_path(entry),
        host=entry.parsed("host", HostPort.parse) if "host" in entry else None,
        credential=entry.maybe_string("credential"),
        subprotocol=entry.maybe_string("subprotocol"),
        lines=_talk(entry),
    )


def _talk(entry: Table) -> tuple[Line, ...]:
    try:
        return read_talk(entry.strings("talk"))
    except ValueError as error:
        raise entry.refuse("talk", str(error)) from None


def _path(entry: Table) -> str:
    path = entry.string("path")
    if not path.startswith("/"):
        raise entry.refuse("path", f"path {path!r} does not begin with a slash; the host has a key of its own")
    return path


def _exchange(entry: Table) -> CaseExchange:
    if not _METHOD.fullmatch(entry.string("method")):
        raise entry.refuse("method", f"method {entry.string('method')!r} is not upper-case letters, such as GET")
    status = entry.integer("status", 200)
    if status not in _STATUS:
        raise entry.refuse("status", f"status {status} is not from {_STATUS.start} to {_STATUS.stop - 1}")
    is_unreachable = entry.boolean("unreachable", False)
    for key in ("status", "headers", "json", "body"):
        if is_unreachable and key in entry:
            raise entry.refuse(key, f"{key} of what cannot be reached: there is no answer")
    headers, body = _answer(entry)
    return CaseExchange(
        method=entry.string("method"),
        path=_path(entry),
        host=entry.parsed("host", HostPort.parse) if "host" in entry else None,
        credential=entry.maybe_string("credential"),
        sends=entry.value("sends") if "sends" in entry else msgspec.UNSET,
        status=status,
        headers=headers,
        body=body,
        unreachable=is_unreachable,
    )


def _answer(entry: Table) -> tuple[tuple[tuple[str, str], ...], bytes]:
    headers = entry.free("headers")
    given: list[tuple[str, str]] = []
    for name, value in headers.items():
        for text in value if isinstance(value, list) else [value]:
            if not isinstance(text, str) or not f"{name}{text}".isascii() or not f"{name}{text}".isprintable():
                raise entry.refuse("headers", f"header {name!r} is not printable ASCII, once or in an array", name)
            given.append((name, text))
    if "json" not in entry:
        body = entry.value("body") if "body" in entry else ""
        if not isinstance(body, str):
            raise entry.refuse("body", "body is not a string; write json = … for a value")
        return tuple(given), body.encode()
    if "body" in entry:
        raise entry.refuse("body", "body beside json: an answer has one body")
    has_type = any(name.lower() == "content-type" for name in headers)
    return (*given, *(() if has_type else (_JSON_TYPE,))), json.dumps(entry.value("json")).encode()
