"""Who is known at the ports: the digests of what open sessions show, kept by the daemon and told to ingress.

Runs in the daemon. A digest opens nothing: it says to ingress that a request is worth the daemon's time. Whether it is
answered is decided in the daemon, by the token or cookie itself.

What an application of the daemon is told of a request in `SHOWS_SESSION` is ingress's word: it is for sharing out places, and
lets nobody in. That a request is a cell's is the daemon's own word, said where it was found out, and lets it in as that session.

Source: docs/adr/0031-ingress.md. Not here: what sessions are (daemon/http/sessions.py, web/sessions.py), the digest's use
(admission.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from starlette.types import Scope

__all__ = ["SHOWS_SESSION", "KnownCallers", "cell_session_of", "digest_of", "is_strangers", "of_cell"]

SHOWS_SESSION: Final = "aileron.shows_session"
"""Where the state of a request that came over TCP has whether it shows an open session."""
_OF_CELL: Final = "aileron.of_cell"
"""Where the state of a request has that it came through a cell's door: `session` in it is then the cell's."""


def digest_of(shown: bytes) -> str:
    """What is known of a token or cookie: its SHA-256, in hexadecimal."""
    return hashlib.sha256(shown).hexdigest()


def is_strangers(scope: Scope) -> bool:
    """Whether a request came over TCP and shows no open session. At a socket of the home nobody is a stranger."""
    return not scope.get("state", {}).get(SHOWS_SESSION, True)


def of_cell(scope: Scope, session: str) -> Scope:
    """The same request, which is this session's: who made its connection attends the session's cell (daemon/http/cells.py)."""
    return {**scope, "state": {**scope.get("state", {}), "session": session, _OF_CELL: True}}


def cell_session_of(scope: Scope) -> str | None:
    """The session of a request that came through a cell's door; None for every other, whatever it shows."""
    state = scope.get("state", {})
    session: str | None = state["session"] if state.get(_OF_CELL, False) else None
    return session


class KnownCallers:
    """One for each daemon. Sessions add to it and take away; whoever subscribed hears of it."""

    def __init__(self) -> None:
        self._digests: set[str] = set()
        self._subscriber: Callable[[], None] | None = None

    def subscribe(self, subscriber: Callable[[], None] | None) -> None:
        """Have `subscriber` called whenever there are others than before, and nobody else."""
        self._subscriber = subscriber

    def add(self, digest: str) -> None:
        """A session began."""
        self._digests.add(digest)
        self._tell()

    def discard(self, digest: str) -> None:
        """It is over."""
        self._digests.discard(digest)
        self._tell()

    def all(self) -> list[str]:
        """Those there are."""
        return sorted(self._digests)

    def _tell(self) -> None:
        if self._subscriber is not None:
            self._subscriber()
