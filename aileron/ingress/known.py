"""The known callers at the TCP ports: digests of open sessions' tokens and cookies, which the daemon stores and sends
to ingress.

Runs in the daemon. A digest gives no access: it only tells ingress that a request is worth the daemon's time. The
daemon decides by the token or cookie itself whether to accept the request.

The flag `SHOWS_SESSION` in a request's ASGI state is set by ingress. It decides how resources are shared among callers
(places), and gives no access. The mark that a request comes from a cell is set by the daemon itself when it identifies
the cell, and gives the request the access of the cell's session.

Source: docs/adr/0031-ingress.md. Not here: sessions (daemon/http/sessions.py, web/sessions.py), the digest's use
(admission.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from starlette.types import Scope

__all__ = ["SHOWS_SESSION", "KnownCallers", "cell_session_of", "digest_of", "is_strangers", "of_cell"]

SHOWS_SESSION: Final = "aileron.shows_session"
"""Key in the state of a request that came over TCP: True if it has a token or cookie of an open session."""
_OF_CELL: Final = "aileron.of_cell"
"""Key in the ASGI state of a request: True if the request came over the cell socket. The key `session` then has the
cell's session.
"""


def digest_of(shown: bytes) -> str:
    """Return the SHA-256 digest of a token or cookie, in hexadecimal, by which ingress recognises a known caller."""
    return hashlib.sha256(shown).hexdigest()


def is_strangers(scope: Scope) -> bool:
    """Return whether a request came over TCP without an open session. Callers at a socket of the home are never strangers."""
    return not scope.get("state", {}).get(SHOWS_SESSION, True)


def of_cell(scope: Scope, session: str) -> Scope:
    """Return `scope` with the mark that its request comes from the cell of `session`. The caller must have identified
    the connected process as the one that manages the cell (daemon/http/cells.py).
    """
    return {**scope, "state": {**scope.get("state", {}), "session": session, _OF_CELL: True}}


def cell_session_of(scope: Scope) -> str | None:
    """Return the session of a request that came over the cell socket; None for every other request, even if it has a token."""
    state = scope.get("state", {})
    session: str | None = state["session"] if state.get(_OF_CELL, False) else None
    return session


class KnownCallers:
    """A set of the digests of open sessions' tokens and cookies. Sessions add and remove digests, and a subscriber is
    notified.
    """

    def __init__(self) -> None:
        self._digests: set[str] = set()
        self._subscriber: Callable[[], None] | None = None

    def subscribe(self, subscriber: Callable[[], None] | None) -> None:
        """Replace the subscriber, which is called whenever the known callers change."""
        self._subscriber = subscriber

    def add(self, digest: str) -> None:
        """Add the digest of the token or cookie of a session that has begun."""
        self._digests.add(digest)
        self._tell()

    def discard(self, digest: str) -> None:
        """Remove the digest of the token or cookie of a session that has ended."""
        self._digests.discard(digest)
        self._tell()

    def all(self) -> list[str]:
        """Return all known digests, sorted."""
        return sorted(self._digests)

    def _tell(self) -> None:
        if self._subscriber is not None:
            self._subscriber()
