"""The request for the list of a remote MCP server's tools. A connector is made from this list.

The connector's own client (aileron_connector/mcp/client.py) is used; only the connection differs. A token is sent with each
request and is not stored.

Rules
- Addresses are `mcp+https://HOST/PATH`, or `mcp+http://` on this machine. Redirects are not followed.
- Sizes, counts and durations are limited, by the client and here.
- A server that repeats the token in its description of itself or its tools is refused, because that text is published in files.

Runs in the author's command. Not here: making files from the tools (mcp_tools.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from aileron.importing.authorization import Authorization
from aileron.importing.challenges import Bearer, UnreadableChallengeError, maybe_bearer
from aileron.importing.reading import DocumentError
from aileron.importing.servers import Origin, origin_of
from aileron.importing.words import line
from aileron.model.json_value import JSON, JSONObject
from aileron.tls import client_context
from aileron_connector.failures import ConnectorError, ExternalApiError, NetworkError
from aileron_connector.mcp.client import Answer, Client, Pairs, Wire
from aileron_connector.mcp.document import canonical, frozen_part

__all__ = ["Listing", "Token", "UnauthorizedError", "address_of", "is_server", "listed"]

_PREFIX: Final = "mcp+"
_DEADLINE_S: Final = 60.0
_TIMEOUT_S: Final = 20.0
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_MAX_DEPTH: Final = 200
"""Maximum number of nested levels in the list of tools; the same limit as for a document (reading.py)."""
_REFUSALS: Final = (401, 403)
_MIN_SECRET: Final = 8
"""Minimum length in characters of a token that is searched for in the server's text. A lent credential has the same
minimum (egress/credentials/lent.py).
"""
_CONNECTIONS: Final = 2
"""Maximum number of connections to the server: one for the current response, one to refuse the server's own requests."""


class Token(msgspec.Struct, frozen=True):
    """The token that the server requires before it lists its tools, and the header that carries the token."""

    header: str
    value: str

    def __repr__(self) -> str:
        return f"Token({self.header!r})"

    def is_in(self, text: str) -> bool:
        """Return whether the text contains this token.

        A very short token is never searched for, because it could be any word.
        """
        secret = self.value.removeprefix("Bearer ")
        return len(secret) >= _MIN_SECRET and secret in text


class UnauthorizedError(DocumentError):
    """Error: the server refused the request because it requires a token, or a different token than it got. `challenge`
    is the challenge in the server's response, if it can be parsed.
    """

    def __init__(self, words: str, status: int, challenge: Bearer | None) -> None:
        super().__init__(words)
        self.status: Final = status
        self.challenge: Final = challenge


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server and its tools. Each tool has only the fields that are packed into the connector (`frozen_part`)."""

    origin: Origin
    path: str
    protocol: str
    title: str
    version: str
    tools: tuple[JSONObject, ...]
    digest: str
    """Digest of the tools: `sha256:` and hex digits."""
    as_tasks: frozenset[str] = frozenset()
    """Names of tools that can be called only as tasks, which is not supported."""
    authorization: Authorization | None = None
    """Authorization for a sign-in at the server; None if the server requires no sign-in."""


def is_server(source: str) -> bool:
    """Return whether a source names an MCP server rather than a document."""
    return source.startswith((f"{_PREFIX}https://", f"{_PREFIX}http://"))


def address_of(source: str) -> str:
    """Return the URL of the server. Raises DocumentError if the source is not a URL or must not be requested."""
    url = source.removeprefix(_PREFIX)
    _place(url)
    return url


def listed(source: str, token: Token | None = None, *, ca_pem: str | None = None) -> Listing:
    """Ask the server for its tools.

    `ca_pem` has certificates that are trusted in addition to the system's. Raises DocumentError if the tools cannot be listed.
    """
    url = address_of(source)
    origin, path = _place(url)
    until, challenges = time.monotonic() + _DEADLINE_S, list[str]()
    try:
        with _wire(url, token, until, challenges, ca_pem) as wire, Client(wire, give_up_at=until) as client:
            client.open()
            every = client.in_session(lambda: [tool for page in client.pages() for tool in page])
            tools = [frozen_part(tool) for tool in every]
            _check_depth(tools)
            named = [client.server.get(key) for key in ("title", "name", "version")]
            _check_keeps_secret(token, [*named, *tools])
    except ConnectorError as error:
        said = "the server refused, and repeats the token" if token and token.is_in(error.message) else error.message
        status, words = error.details.get("status"), f"{url}: {said}{_fix(error, token)}"
        problem = UnauthorizedError(words, status, _maybe_challenge(challenges)) if status in _REFUSALS else None
        raise problem or DocumentError(words) from None
    server = client.server
    names = [text for text in (server.get("title"), server.get("name")) if isinstance(text, str)]
    title = next((name for text in names if (name := line(text, 80))), origin.host.host)
    return Listing(
        origin=origin,
        path=path,
        protocol=client.protocol,
        title=title,
        version=line(version, 40) if isinstance(version := server.get("version"), str) else "",
        tools=tuple(tools),
        as_tasks=frozenset(str(tool["name"]) for tool in every if _runs_as_task(tool)),
        digest=f"sha256:{hashlib.sha256(canonical({'tools': tools})).hexdigest()}",
    )


def _maybe_challenge(lines: list[str]) -> Bearer | None:
    try:
        return maybe_bearer(lines)
    except UnreadableChallengeError:  # treated as missing: well-known addresses are tried instead
        return None


def _runs_as_task(tool: JSONObject) -> bool:
    """Return whether a tool runs only as a task: `execution.taskSupport` (Model Context Protocol 2025-11-25, Tasks)."""
    execution = tool.get("execution")
    return isinstance(execution, dict) and execution.get("taskSupport") == "required"


def _check_depth(tools: list[JSONObject]) -> None:
    """Raise ExternalApiError if the tools have more than _MAX_DEPTH nested levels, so that later functions can be
    recursive.
    """
    level: list[JSONObject | list[JSON]] = [*tools]
    for _ in range(_MAX_DEPTH):
        inner = [value for held in level for value in (held.values() if isinstance(held, dict) else held)]
        level = [value for value in inner if isinstance(value, dict | list)]
        if not level:
            return
    raise ExternalApiError(f"its tools have schemas that are nested deeper than {_MAX_DEPTH} levels")


def _check_keeps_secret(token: Token | None, said: list[JSON]) -> None:
    if token and any(map(token.is_in, _strings(said))):
        raise ExternalApiError(
            "the server repeats the token in what it says of itself or its tools, which would be written into files; "
            "replace the token, and tell the service"
        )


def _strings(value: Any) -> Iterator[str]:
    """Yield all texts in a value, including names. The caller must have checked the value's depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _strings(part)


def _fix(error: ConnectorError, token: Token | None) -> str:
    if error.details.get("status") not in _REFUSALS:
        return ""
    return "; it wants another token" if token else "; it wants a token: --auth bearer or --auth header:NAME"


def _place(url: str) -> tuple[Origin, str]:
    origin = origin_of(url)
    if origin.is_plain and origin.host.host not in _LOOPBACK:
        raise DocumentError(f"{url[:200]}: expected mcp+https://…, or mcp+http:// on this machine")
    return origin, urllib.parse.urlsplit(url).path or "/"


@contextlib.contextmanager
def _wire(url: str, token: Token | None, until: float, challenges: list[str], ca_pem: str | None) -> Iterator[Wire]:
    """Open connections to the MCP server at `url`, and yield the function with which its client sends requests. Each
    step ends before the deadline `until`.

    `challenges` is filled with the challenges of the latest response that requires a token.
    """
    import httpcore2  # 60 ms, and only what is fetched needs it

    from aileron.importing.deadline import Backend

    own = [("Host", urllib.parse.urlsplit(url).netloc), ("User-Agent", "aileron")]
    own += [(token.header, token.value)] if token else []
    timeouts = dict.fromkeys(("connect", "read", "write", "pool"), _TIMEOUT_S)
    context = client_context(ca_pem, ("http/1.1",))
    with httpcore2.ConnectionPool(
        ssl_context=context, max_connections=_CONNECTIONS, network_backend=Backend(until)
    ) as pool:

        def send(method: str, headers: Pairs, body: bytes | None, give_up_at: float | None) -> Answer:
            pairs = [(name.encode(), value.encode()) for name, value in (*own, *headers)]
            pairs += [(b"Content-Length", str(len(body or b"")).encode())]
            request = httpcore2.Request(
                method, url, headers=pairs, content=body or b"", extensions={"timeout": timeouts}
            )
            with _translated():
                response = pool.handle_request(request)
            if response.status in _REFUSALS:
                said = [value for name, value in response.headers if name.lower() == b"www-authenticate"]
                challenges[:] = [value.decode("latin-1") for value in said]
            return _Answered(response, give_up_at)

        yield send


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    import httpcore2

    try:
        yield
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
        raise NetworkError(f"the server cannot be reached: {error or type(error).__name__}") from None


class _Answered:
    """An httpcore2 response in the form that the MCP client reads."""

    def __init__(self, response: Any, give_up_at: float | None) -> None:
        self._response: Final = response
        self._give_up_at: Final = give_up_at
        self.status: Final[int] = response.status
        self.headers: Final = _Fields(response.headers)
        self.retry_after_s: Final = None

    def iter_bytes(self) -> Iterator[bytes]:
        with _translated():
            for piece in self._response.iter_stream():
                if self._give_up_at is not None and time.monotonic() > self._give_up_at:
                    raise TimeoutError
                yield piece

    def close(self) -> None:
        with contextlib.suppress(NetworkError), _translated():
            self._response.close()


class _Fields:
    """Headers of a response; `get` ignores the case of their names."""

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self._pairs: Final = {name.lower(): value.decode("latin-1") for name, value in reversed(pairs)}

    def get(self, name: str, default: str | None = None) -> str | None:
        return self._pairs.get(name.lower().encode(), default)
