"""Answers to a client while no daemon runs yet: the stored answers of this home's last daemon.

Runs in the relay, and only while a daemon starts: its imports are expensive. The daemon writes the file (daemon/http/mcp.py):
by version of the protocol and by method, it has the results of `initialize` or `server/discover`, and of `tools/list`. The
relay makes no answer of its own: if the file is missing, is of another version of Aileron, or has no result for a request,
that request waits.

Rules
- Answers come only from the file. A relay that has connected to a daemon no longer uses the file.
- `tools/list` is answered only for the version that was negotiated, and only if the request has no cursor.
- The stored list of tools has every action. If a session can only use some, its request waits for the daemon: the file
  has the digests of such sessions' tokens.

Source: docs/adr/0040-answers-before-the-daemon.md; MCP specification, "Lifecycle". Not here: the time to answer (relay.py),
the handshake with a later daemon (relay_requests.py).
"""

from __future__ import annotations

import json
import os
from typing import Final

from aileron import __version__
from aileron.mcp.relay_requests import Message, as_line, message_of

__all__ = ["LIST", "Early", "early_file"]

LIST: Final = "tools/list"
_BEGINNINGS: Final = ("initialize", "server/discover")
_MAX_BYTES: Final = 16 << 20
"""Maximum size in bytes of the stored answers: 16 MiB, for the longest page of tools in five versions of the protocol.
The daemon has the same limit.
"""
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"


def early_file(home: str) -> str:
    """Return the path of the file in which this home's daemon stores its first answers."""
    return f"{home}/run/mcp-answers.json"


class Early:
    """The first answers that a home's last daemon stored for clients. They are read when this object is made; if that
    fails, there are none.
    """

    def __init__(self, home: str, token: str = "") -> None:
        self._results, limited = _read(early_file(home))
        self._has_own_list = bool(token and limited) and _digest(token) in limited
        self._negotiated: str | None = None

    def method(self, line: bytes) -> str | None:
        """Return the method of the request `line` if there is a stored answer to it; otherwise None."""
        found = self._found(line)
        return None if found is None else str(found[0]["method"])

    def answer(self, line: bytes) -> bytes:
        """Return the stored answer to the request `line`, as a line; empty if there is none."""
        found = self._found(line)
        if found is None:
            return b""
        message, version, result = found
        if message["method"] == "initialize":
            self._negotiated = version
        return as_line({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _found(self, line: bytes) -> tuple[Message, str, Message] | None:
        message = message_of(line) if self._results else None
        if message is None or type(message.get("id")) not in (int, str) or message.get("jsonrpc") != "2.0":
            return None
        method = message.get("method")
        version = self._version_of(message)
        if method not in (LIST, *_BEGINNINGS) or version is None:
            return None
        if method == LIST and (self._has_own_list or "cursor" in _params(message)):
            return None
        result = self._results.get(version, {}).get(method)
        return (message, version, result) if isinstance(result, dict) else None

    def _version_of(self, message: Message) -> str | None:
        params = _params(message)
        meta = params.get("_meta")
        if message.get("method") == "initialize":
            version = params.get("protocolVersion")
        elif isinstance(meta, dict) and _VERSION in meta:
            version = meta[_VERSION]
        else:
            version = self._negotiated
        return version if isinstance(version, str) else None


def _digest(token: str) -> str:
    import hashlib  # 4 ms, and only where a session has a list of its own

    return hashlib.sha256(token.encode()).hexdigest()


def _params(message: Message) -> Message:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _read(path: str) -> tuple[dict[str, Message], frozenset[str]]:
    """Return the daemon's stored results by version and method, and the digests of the tokens of sessions with a
    shorter list of tools. Both are empty unless the file belongs to this user and was written by the daemon of exactly
    this version of Aileron.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if os.fstat(descriptor).st_uid != os.geteuid():
                return {}, frozenset()
            kept = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}, frozenset()
    if not isinstance(kept, dict) or kept.get("aileron") != __version__ or not isinstance(kept.get("results"), dict):
        return {}, frozenset()
    limited = kept.get("limited")
    if not isinstance(limited, list) or not all(isinstance(digest, str) for digest in limited):
        return {}, frozenset()
    return {version: of for version, of in kept["results"].items() if isinstance(of, dict)}, frozenset(limited)
