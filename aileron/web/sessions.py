"""Sessions of the page: from the passphrase until the page is locked, the approver's key is open for one browser only.

Runs in the daemon, which no other process can inspect. The cookie of a session is stored in a file of the browser's
profile, and is sent to every other server on localhost: any process of the same user may have it. So a session also
belongs to one process (daemon/http/peer.py). If another process sends its cookie, the cookie was stolen: the request is
refused and the session is locked.

Rules
- A session lasts at most LASTS_S, even if it is in use; time in which the machine sleeps counts. Its key is wiped at
  its end, on lock, when the approver changes, and when the daemon ends. A session without a key shows questions; its
  decisions are signed with a passkey.
- A session that a passkey unlocked ends when that passkey can no longer decide, or when that cannot be determined.
- There are at most MAX_SESSIONS. A further session ends the oldest.
- Only the digest of a cookie is stored. A form's token is a MAC, by a key of the session, of the form's action.
- A request is answered only while its session is open: if the session ended meanwhile, nothing is shown (`OverError`,
  `Sessions.is_open`).
- The contents of previews are kept here only: at most MAX_PREVIEWS for a session, with at most MAX_PREVIEW_BYTES in total.
  They are dropped when the session ends.

Not here: HTTP (admission.py), the check of the key (daemon/http/page.py).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import anyio
import msgspec

from aileron.ingress.known import KnownCallers
from aileron.model.clock import since_boot
from aileron.model.passkey import is_passkey
from aileron.model.preview import Preview
from aileron.web.daemon_port import DaemonPort, Ended, Key, Process

__all__ = ["LASTS_S", "MAX_SESSIONS", "OverError", "Past", "Session", "Sessions", "StolenError"]

LASTS_S: Final = 900.0
"""Maximum duration of a session in seconds: 15 minutes, equal to the default expiry of a question."""
MAX_SESSIONS: Final = 8
"""Maximum number of open sessions: one person's browsers and private windows."""
MAX_PREVIEWS: Final = 10
"""Maximum number of stored previews, equal to the number of requests that can be decided on one page (cards/together.py)."""
MAX_PREVIEW_BYTES: Final = 8 << 20
"""Maximum total size of stored previews in bytes, 8 MiB: two of the largest (4 MiB)."""
MAX_NOTES: Final = 32
MAX_ENDED: Final = 32
"""Maximum number of ended sessions that are remembered, so that their browsers can be told the reason."""
_TOKEN_BYTES: Final = 32
_LOOK_S: Final = 2.0
"""Seconds between two checks, while a session is open, that the approver is still the same."""
_FOREVER_S: Final = 3600.0


class OverError(Exception):
    """Error: the session ended during a request, so the response shows no further contents."""


class StolenError(Exception):
    """Error: the session's cookie came from another process than the one that unlocked the page. The session was locked."""


class Session:
    """The session of an unlocked browser. `id` is its name in the ledger, and grants no access."""

    def __init__(self, key: Key | None, key_id: str, approver: str, process: Process, cookie: str, now: float) -> None:
        self.id: Final = secrets.token_hex(6)
        self.key_id: Final = key_id
        """Id of the key or passkey that unlocked the session."""
        self.approver: Final = approver
        """Id of the home's approver key when the session was opened: `key_id` itself, or the key that enrolled the
        passkey `key_id`.
        """
        self.process: Final = process
        self.ends_at: Final = now + LASTS_S
        """End of the session, in seconds of a clock that counts suspend time (`Sessions.now`)."""
        self.reading: Final = anyio.Lock()
        """Lock that is held while a preview is read, so that only one is read at a time."""
        self.over: Final = anyio.Event()
        """Event that is set when the session has ended."""
        self.decided: str | None = None
        """Id of the question that was decided last in this session, until a page has shown its outcome."""
        self.key = key
        self.cookie: Final = _digest(cookie)
        """Digest of the session's cookie."""
        self._forms: Final = secrets.token_bytes(_TOKEN_BYTES)
        self._previews: OrderedDict[tuple[str, str], tuple[Preview, int]] = OrderedDict()
        self._notes: OrderedDict[str, str] = OrderedDict()

    def is_opened_by(self, cookie: str) -> bool:
        """Return whether `cookie` is the cookie that opens this session."""
        return hmac.compare_digest(self.cookie, _digest(cookie))

    def token(self, *does: str) -> str:
        """Return the token for a form with the action `does`, such as ("deny", id, digest)."""
        said = b"".join(len(part.encode()).to_bytes(8, "big") + part.encode() for part in does)
        return hmac.new(self._forms, said, hashlib.sha256).hexdigest()

    def is_token(self, shown: str, *does: str) -> bool:
        """Return whether `shown` is the token for a form with the action `does`."""
        return hmac.compare_digest(self.token(*does).encode(), shown.encode())

    def preview_of(self, approval_id: str, digest: str) -> Preview | None:
        """Return the preview of the plan with this digest that this session read before; None if there is none."""
        found = self._previews.get((approval_id, digest))
        return None if found is None else found[0]

    def keep_preview(self, approval_id: str, digest: str, preview: Preview) -> None:
        """Store a preview, which replaces an earlier preview of the same plan."""
        size = len(msgspec.json.encode(preview.fields))
        self._previews.pop((approval_id, digest), None)
        self._previews[approval_id, digest] = (preview, size)
        while len(self._previews) > 1 and (
            len(self._previews) > MAX_PREVIEWS or sum(size for _, size in self._previews.values()) > MAX_PREVIEW_BYTES
        ):
            self._previews.popitem(last=False)

    def forget_preview(self, approval_id: str, digest: str) -> None:
        """Drop the preview of the plan with this digest, because it no longer shows the current state."""
        self._previews.pop((approval_id, digest), None)

    def forget_previews_of(self, approval_id: str) -> None:
        """Drop the previews of every version of a question."""
        for key in [key for key in self._previews if key[0] == approval_id]:
            del self._previews[key]

    def leave_note(self, approval_id: str, text: str) -> None:
        """Store a text that the next page about this question shows."""
        self._notes[approval_id] = text
        while len(self._notes) > MAX_NOTES:
            self._notes.popitem(last=False)

    def note_of(self, approval_id: str) -> str | None:
        """Return the stored text for a question's page without removing it, because the page is loaded again while the
        question's runs are in progress.
        """
        return self._notes.get(approval_id)

    def take_note(self, approval_id: str) -> str | None:
        """Return the stored text for a question's page, and remove it."""
        return self._notes.pop(approval_id, None)

    def check_open(self) -> None:
        """Check that the session is open. Raises OverError otherwise."""
        if self.over.is_set():
            raise OverError

    def wipe(self) -> None:
        """End the session: overwrite its approver's key in memory, and drop previews and notes."""
        self.over.set()
        if self.key is not None:
            self.key.wipe()
            self.key = None
        self._previews.clear()
        self._notes.clear()

    def __repr__(self) -> str:
        return f"<page {self.id}>"


class Past(NamedTuple):
    """A record of an ended session: why it ended, its browser's process, and the question that was decided last, unless
    a page has shown its outcome.
    """

    why: Ended
    process: Process
    decided: str | None


class Sessions:
    """The open and recently ended sessions of unlocked browsers. Each daemon has one instance."""

    def __init__(self, daemon: DaemonPort, known: KnownCallers, now: Callable[[], float] = since_boot) -> None:
        self._daemon = daemon
        self._known = known
        self._open: list[Session] = []
        self._ended: OrderedDict[bytes, Past] = OrderedDict()
        self._changed = anyio.Event()
        self.now: Final = now

    def of_cookies(self, cookies: Iterable[str]) -> Session | None:
        """Return the session that one of these cookies belongs to, or None. The caller must `check` that the right
        process sent the cookie.
        """
        return next((session for cookie in cookies for session in self._open if session.is_opened_by(cookie)), None)

    def past_of(self, cookies: Iterable[str]) -> Past | None:
        """Return the record of the ended session that one of these cookies opened; None if none of them opened a recent
        session.
        """
        return next((self._ended[digest] for digest in map(_digest, cookies) if digest in self._ended), None)

    async def open(self, key: Key | None, key_id: str, process: Process) -> tuple[Session, str]:
        """Open a session, and return the session and its cookie.

        The session owns the key from here on: the key is wiped if this fails.
        """
        cookie = secrets.token_urlsafe(_TOKEN_BYTES)
        approver = self._daemon.approver().key_id or key_id
        session = Session(key, key_id, approver, process, cookie, self.now())
        try:
            await self._daemon.unlocked(session.id, key_id, process)
        except BaseException:
            session.wipe()
            raise
        self._open.append(session)
        self._known.add(session.cookie.hex())
        self._changed.set()
        while len(self._open) > MAX_SESSIONS:
            await self.lock(self._open[0], "many")
        return session, cookie

    async def check(self, session: Session, process: Process) -> None:
        """Check that this process can use the session. Otherwise, lock the session, record the refusal and raise StolenError."""
        if not session.process.is_same(process):
            await self.lock(session, "process")
            await self._daemon.refused("page", "process", session.key_id)
            raise StolenError

    async def is_open(self, session: Session) -> bool:
        """Return whether the session is open at this moment. A session whose time is over is first ended."""
        await self.end_due()
        return session in self._open

    async def lock(self, session: Session, why: Ended) -> None:
        """End the session, and record the end. Do nothing if the session has already ended."""
        if self._forget(session):
            self._ended[session.cookie] = Past(why, session.process, session.decided)
            while len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)
            await self._daemon.locked(session.id, why)

    async def end_due(self) -> None:
        """End the sessions that are due: those that timed out, whose approver was replaced, or whose passkey can no
        longer decide.
        """
        now, approver = self.now(), self._daemon.approver()
        for session in list(self._open):
            if now >= session.ends_at:
                await self.lock(session, "over")
            elif approver.status == "none" or (approver.key_id or session.approver) != session.approver:
                await self.lock(session, "replaced")
            elif is_passkey(session.key_id) and not self._daemon.opens(session.key_id):
                await self.lock(session, "passkey")

    async def serve(self) -> None:
        """End sessions when they are due, until this task is cancelled; then end all of them and wipe their keys."""
        try:
            while True:
                self._changed = anyio.Event()
                await self.end_due()
                first = min((session.ends_at for session in self._open), default=None)
                wait_s = _FOREVER_S if first is None else min(_LOOK_S, max(0.0, first - self.now()))
                with anyio.move_on_after(wait_s):
                    await self._changed.wait()
        finally:
            self.wipe()

    def wipe(self) -> None:
        """End all sessions and wipe their keys, because the daemon ends. The ends are not recorded."""
        for session in list(self._open):
            self._forget(session)

    @property
    def count(self) -> int:
        """The number of open sessions."""
        return len(self._open)

    def _forget(self, session: Session) -> bool:
        session.wipe()
        if session not in self._open:
            return False
        self._open.remove(session)
        self._known.discard(session.cookie.hex())
        return True


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()
