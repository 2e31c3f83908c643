"""A Matrix homeserver as the specification has it, for one user and one room: a real TLS server with a memory.

    with MatrixServer(authority.server_context("matrix.example.com"), listener=machine.listen_at("matrix.example.com")) as matrix:
        matrix.allow("syt_…")
        …                                        # something asks it
        assert matrix.sent[0]["body"] == "It is out."

It answers `whoami`, a room's summary and `send`. An unknown token gets M_UNKNOWN_TOKEN, a user who may not write there
M_FORBIDDEN, in the words of Synapse. A transaction id that was used is answered with the event that it made. `asked` is
every request, with a digest in place of the token.

Source: Matrix specification 1.15, client-server API: client authentication, standard error response, room summaries, sending
events. Not here: Synapse itself (tests/documents/test_matrix.py).
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import urllib.parse
from typing import Any, Final, NamedTuple

from tests.support.serving import Service
from tests.support.upstream import Seen, answer

__all__ = ["ROOM", "Asked", "MatrixServer", "digest_of"]

ROOM: Final = "!ops:matrix.example.com"
_CLIENT: Final = "/_matrix/client"
_SEND: Final = re.compile(rf"{_CLIENT}/v3/rooms/([^/]+)/send/m\.room\.message/([^/]+)")


class Asked(NamedTuple):
    """A request. `authorization` is the digest of that field, as `digest_of` makes it; None if it had none."""

    method: str
    host: str
    path: str
    authorization: str | None


def digest_of(token: str) -> str:
    """Return the value of `Asked.authorization` for a request with this token."""
    return hashlib.sha256(f"Bearer {token}".encode()).hexdigest()


class MatrixServer(Service):
    """A server with one user and one room. `level` is the power level of the user, `needed` that of a message."""

    def __init__(self, tls: ssl.SSLContext | None, *, listener: socket.socket | None = None) -> None:
        super().__init__(tls, listener)
        self.asked: Final[list[Asked]] = []
        self.sent: Final[list[dict[str, Any]]] = []
        self.level, self.needed = 0, 0
        self._allowed: Final[set[str]] = set()
        self._transactions: Final[dict[str, str]] = {}

    def allow(self, token: str) -> None:
        """Accept this token from now on."""
        with self._lock:
            self._allowed.add(digest_of(token))

    def _answer(self, seen: Seen) -> bytes:
        self._forget_requests()
        path = urllib.parse.unquote(urllib.parse.urlsplit(seen.target).path)
        authorization = next(iter(seen.values("authorization")), None)
        digest = authorization and hashlib.sha256(authorization.encode()).hexdigest()
        with self._lock:
            self.asked.append(Asked(seen.method, next(iter(seen.values("host")), ""), path, digest))
            if digest is None:
                return _error("401 Unauthorized", "M_MISSING_TOKEN", "Missing access token")
            if digest not in self._allowed:
                return _error("401 Unauthorized", "M_UNKNOWN_TOKEN", "Invalid access token passed.")
            return self._answered(seen, path)

    def _answered(self, seen: Seen, path: str) -> bytes:
        if (seen.method, path) == ("GET", f"{_CLIENT}/v3/account/whoami"):
            return _json({"user_id": "@mira:matrix.example.com", "device_id": "ABCDEFGHIJ", "is_guest": False})
        if (seen.method, path) == ("GET", f"{_CLIENT}/v1/room_summary/{ROOM}"):
            shown = {"name": "Operations", "join_rule": "invite", "num_joined_members": 2}
            return _json({"room_id": ROOM, "guest_can_join": False, "world_readable": False, **shown})
        if seen.method == "PUT" and (found := _SEND.fullmatch(path)) and found[1] == ROOM:
            return self._sent(found[2], json.loads(seen.body))
        return _error("404 Not Found", "M_UNRECOGNIZED", "Unrecognized request")

    def _sent(self, transaction: str, content: dict[str, Any]) -> bytes:
        if self.level < self.needed:
            words = (
                "You don't have permission to post that to the room. "
                f"user_level ({self.level}) < send_level ({self.needed})"
            )
            return _error("403 Forbidden", "M_FORBIDDEN", words)
        if transaction not in self._transactions:
            self._transactions[transaction] = f"$event{len(self.sent)}:matrix.example.com"
            self.sent.append(content)
        return _json({"event_id": self._transactions[transaction]})


def _json(body: Any, status: str = "200 OK") -> bytes:
    return answer(json.dumps(body).encode(), "Content-Type: application/json", status=status)


def _error(status: str, code: str, words: str) -> bytes:
    return _json({"errcode": code, "error": words}, status)
