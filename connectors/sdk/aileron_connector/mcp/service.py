"""Declares the packed tools of an MCP server as operations, and executes calls of them.

    declare("service")              # reads service/tools.json next to the program, and registers its operations
    run("service")                  # declares them and serves the invocation; a connector needs no more

Runs in the jail. The tools were installed with the program and are as trusted as the program. The server is not trusted: its
present list of tools is compared with the packed tools before anything is called.

Rules
- Arguments are checked against the tool's schema before anything is sent.
- Each call first asks the server for its tools. A tool that has changed is not called, because a model chose the tool
  by its description, and a person approved its schema; the failure says what changed. A person who has read the change
  can accept it. Later invocations then have the digest of the changed description, and the tool is called if its
  present description is either the accepted or the packed one.
- Requests go to the first host of this invocation. The host adds the credential.
- The conversation, and with it the session, ends with the invocation.
"""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from aileron_connector import http, loop, packed, reports
from aileron_connector.check import Schemas, maybe_problem
from aileron_connector.failures import BadInput, ConnectorError, ExternalApiError
from aileron_connector.mcp.client import Answer, Client, Pairs, Wire
from aileron_connector.mcp.comparing import Difference, differences
from aileron_connector.mcp.document import FORMAT, Tool, Tools, canonical, digest_of, frozen_part
from aileron_connector.mcp.headers import argument_headers
from aileron_connector.mcp.results import output
from aileron_sandbox.frames import JSON, JSONObject

__all__ = ["MAX_DEFINITION_BYTES", "Service", "declare", "run"]

_FILE: Final = "tools.json"
_MARGIN: Final = 0.1
_MAX_MARGIN_S: Final = 3.0
"""Maximum number of seconds before the invocation's deadline at which a call is abandoned, to have time to cancel it
and to report the failure.
"""
_MAX_PLACES: Final = 3
"""Maximum number of changes to a tool that a failure's message lists. The failure's details list more."""
MAX_DEFINITION_BYTES: Final = 20 << 10
"""Maximum number of bytes of a tool's old description in a failure, and likewise of its new one. Both must fit into one frame
header of 64 KiB, with a message and the list of changes. The largest tools of well-known servers have a quarter of that.
"""
_MAX_CHANGES_BYTES: Final = 8 << 10

_TOOLS: Final = msgspec.json.Decoder(Tools)
_TOOL: Final = msgspec.json.Decoder(Tool)


class Service:
    """The packed tools of one MCP server as operations. Raises ConnectorError if the document is not valid."""

    def __init__(self, document: bytes) -> None:
        try:
            self._tools: Final = _TOOLS.decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _broken(error) from error
        if self._tools.format != FORMAT:
            raise _broken(ValueError(f"it has format {self._tools.format}, and {FORMAT} is known here"))
        self._schemas: Final = Schemas(self._tools.components.schemas)

    @property
    def names(self) -> list[str]:
        """Names of the operations, in the document's order."""
        return list(self._tools.tools)

    def declare(self) -> None:
        """Declare the operations. Raises ValueError if an operation with one of these names exists already."""
        packed.declare(self._tools.tools, self.call)

    def call(self, op: str, arguments: JSONObject) -> Any:
        """Call the tool of an operation, and return its result as the output. Raises ExternalApiError if the tool has
        changed and nobody accepted the change.
        """
        try:
            tool = _TOOL.decode(self._tools.tools[op])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _broken(error) from error
        given = self._given(tool, arguments)
        name = str(tool.listed["name"])
        with Client(self._wire(), reports.progress, _give_up_at()) as client:
            client.open(self._tools.protocol)

            def called() -> JSONObject:
                _check_same(
                    tool, _listed(client, name), loop.current().invoke.accepted
                )  # a new session may have another tool of this name
                return client.call(name, given, argument_headers(tool.listed.get("inputSchema"), given))

            result = client.in_session(called)
        return output(result, tool, self._schemas)

    def _given(self, tool: Tool, arguments: JSONObject) -> JSONObject:
        """Convert the operation's arguments to the tool's. Raises BadInput for arguments that the tool's schema does not
        allow.
        """
        properties = {argument: name for name, argument in tool.arguments.items()}
        known = [*properties, *([tool.argument] if tool.argument else [])]
        for argument in arguments:
            if argument not in known:
                words = f"unknown argument {argument[:64]!r}; expected {', '.join(known) or 'none'}"
                raise BadInput(words, argument=argument[:64])
        if tool.argument:
            given: JSON = arguments.get(tool.argument, {})
        else:
            given = {properties[argument]: value for argument, value in arguments.items()}
        problem = maybe_problem(given, tool.sent, self._schemas, reading="argument")
        if problem is not None:
            first = tool.argument or _argument_of(tool, problem.path[0] if problem.path else problem.missing)
            raise BadInput(f"the arguments do not fit the tool's schema: {problem}", argument=first)
        assert isinstance(given, dict)  # the schema of every tool is that of an object
        return dict(given)

    def _wire(self) -> Wire:
        hosts = http.hosts()
        if not hosts:
            raise ConnectorError("connector_runtime_error", "no host is granted, so that there is nobody to ask")
        url, credential = f"{hosts[0].url}{self._tools.path}", self._tools.credential or None

        def sent(method: str, headers: Pairs, body: bytes | None, give_up_at: float | None) -> Answer:
            return http.request(method, url, headers, body, credential, give_up_at=give_up_at)

        return sent


def _argument_of(tool: Tool, name: str | int | None) -> str | None:
    return tool.arguments.get(name) if isinstance(name, str) else None


def _give_up_at() -> float:
    seconds = loop.current().invoke.deadline_ms / 1000
    return time.monotonic() + seconds - min(seconds * _MARGIN, _MAX_MARGIN_S)


def _listed(client: Client, name: str) -> JSONObject | None:
    """Return the server's present description of a tool, or None if the server no longer has the tool."""
    for page in client.pages():
        found = [tool for tool in page if tool["name"] == name]
        if len(found) > 1:
            raise ExternalApiError(f"the server lists the tool {name!r} twice; nothing was called")
        if found:
            return frozen_part(found[0])
    return None


def _check_same(tool: Tool, now: JSONObject | None, accepted: str | None) -> None:
    name = tool.listed["name"]
    if now is None:
        raise ExternalApiError(
            f"the server no longer has the tool {name!r}; nothing was called",
            details={"reason": "tool_changed", "tool": name, "digest": tool.digest, "changes": [], "gone": True},
        )
    found = differences(tool.listed, now)
    if found and digest_of(now) != accepted:
        raise _changed(tool, found, now)


def _changed(tool: Tool, found: list[Difference], now: JSONObject) -> ExternalApiError:
    """Return the failure for a changed tool. The new texts are only in its details, so that a model does not see them
    before a person has read them.
    """
    places = ", ".join(difference.place for difference in found[:_MAX_PLACES])
    more = f" and {len(found) - _MAX_PLACES} more" if len(found) > _MAX_PLACES else ""
    return ExternalApiError(
        f"the server has changed the tool {tool.listed['name']!r} since this connector was made ({places}{more}); nothing was "
        "called: import it again, and compare",
        details={
            "reason": "tool_changed",
            "tool": tool.listed["name"],
            "digest": tool.digest,
            "changes": _sendable(
                [
                    {"where": difference.place, "before": difference.before, "after": difference.after}
                    for difference in found
                ]
            ),
            **_definition("before", tool.listed),
            **_definition("now", now),
        },
    )


def _definition(key: str, listed: JSONObject) -> dict[str, str]:
    """Return a dict with a tool's complete description under `key`, as the text that its digest covers. Empty if it is
    too large to be shown to a person.
    """
    whole = canonical(listed)
    return {key: whole.decode()} if len(whole) <= MAX_DEFINITION_BYTES else {}


def _sendable(changes: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return as many of the changes as fit into a frame together with two descriptions. A failure that does not fit
    would be lost.
    """
    while changes and len(msgspec.json.encode(changes)) > _MAX_CHANGES_BYTES:
        changes = changes[:-1]
    return changes


def _broken(error: Exception) -> ConnectorError:
    return ConnectorError("connector_runtime_error", f"the connector's tools cannot be read: {error}")


def declare(package: str) -> Service:
    """Declare the operations in the `tools.json` of a package, which is in the same archive as the program."""
    service = Service(packed.data_of(package, _FILE))
    service.declare()
    return service


def run(package: str) -> None:
    """Declare the operations, and serve the one invocation for which this process was started. Call this function last."""
    declare(package)
    loop.run()
