"""Who unlocked the page: a key that is open for one browser, from the passphrase to the lock, and for nobody else.

Runs in the daemon, which nobody can look into. The cookie of a session lies in a file of the browser's profile, and goes to
whatever else serves on localhost: any process of the same user may have it. So a session is one process as well
(daemon/http/peer.py): whoever else shows its cookie is refused, and the session is locked, because its cookie is known.

Rules
- At most LASTS_S, however busy, counted while the machine sleeps too. The key is wiped then, and on lock, when the approver is
  another, and when the daemon ends; a session without a key shows, and decides nothing (what unlocks otherwise signs otherwise).
- What a passkey unlocked ends when that passkey does, and while nobody can say whether it has.
- At most MAX_SESSIONS; one more ends the oldest.
- Of a cookie only the digest is kept. A form's token is a MAC, by a key of the session, of what the form does.
- What is asked in a session is answered in it: what ended meanwhile shows nothing more (`OverError`, `Sessions.is_open`).
- What a preview showed is kept here only, MAX_PREVIEWS of them and MAX_PREVIEW_BYTES together, and goes with the session.

Not here: HTTP (admission.py), whose key it must be (daemon/http/page.py).
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
"""15 minutes: as long as a question waits unless its action says otherwise."""
MAX_SESSIONS: Final = 8
"""Browsers of one person, and their private windows."""
MAX_PREVIEWS: Final = 10
"""As many as are decided on one page (review/together.py)."""
MAX_PREVIEW_BYTES: Final = 8 << 20
"""Two of the largest there can be (4 MiB)."""
MAX_NOTES: Final = 32
MAX_ENDED: Final = 32
"""Sessions whose end is remembered, to be told to their browser."""
_TOKEN_BYTES: Final = 32
_LOOK_S: Final = 2.0
"""Between two looks whether the approver is still the same, while somebody is in."""
_FOREVER_S: Final = 3600.0


class OverError(Exception):
    """A session ended while something was done in it: nothing more is shown there."""


class StolenError(Exception):
    """A cookie came from another process than the one that unlocked. Its session is locked."""


class Session:
    """One browser that was unlocked. `id` is for the record, and opens nothing."""

    def __init__(self, key: Key | None, key_id: str, approver: str, process: Process, cookie: str, now: float) -> None:
        self.id: Final = secrets.token_hex(6)
        self.key_id: Final = key_id
        """What it was unlocked with."""
        self.approver: Final = approver
        """The key that decided for the home then: this one, or the one that what unlocked it was enrolled with."""
        self.process: Final = process
        self.ends_at: Final = now + LASTS_S
        """Seconds of the clock that runs while the machine sleeps (`Sessions.now`)."""
        self.reading: Final = anyio.Lock()
        """Held while a preview is read: one at a time."""
        self.over: Final = anyio.Event()
        """Set once it has ended."""
        self.decided: str | None = None
        """The question that was decided in it last, until somebody sees what came of that."""
        self.key = key
        self.cookie: Final = _digest(cookie)
        """The digest of its cookie."""
        self._forms: Final = secrets.token_bytes(_TOKEN_BYTES)
        self._previews: OrderedDict[tuple[str, str], tuple[Preview, int]] = OrderedDict()
        self._notes: OrderedDict[str, str] = OrderedDict()

    def is_opened_by(self, cookie: str) -> bool:
        """Whether this is its cookie."""
        return hmac.compare_digest(self.cookie, _digest(cookie))

    def token(self, *does: str) -> str:
        """The token of a form that does this."""
        said = b"".join(len(part.encode()).to_bytes(8, "big") + part.encode() for part in does)
        return hmac.new(self._forms, said, hashlib.sha256).hexdigest()

    def is_token(self, shown: str, *does: str) -> bool:
        """Whether `shown` is that one."""
        return hmac.compare_digest(self.token(*does).encode(), shown.encode())

    def preview_of(self, approval_id: str, digest: str) -> Preview | None:
        """What was read before."""
        found = self._previews.get((approval_id, digest))
        return None if found is None else found[0]

    def keep_preview(self, approval_id: str, digest: str, preview: Preview) -> None:
        """In place of what was read before."""
        size = len(msgspec.json.encode(preview.fields))
        self._previews.pop((approval_id, digest), None)
        self._previews[approval_id, digest] = (preview, size)
        while len(self._previews) > 1 and (
            len(self._previews) > MAX_PREVIEWS or sum(size for _, size in self._previews.values()) > MAX_PREVIEW_BYTES
        ):
            self._previews.popitem(last=False)

    def forget_preview(self, approval_id: str, digest: str) -> None:
        """It is not to be shown as what is there now any more."""
        self._previews.pop((approval_id, digest), None)

    def forget_previews_of(self, approval_id: str) -> None:
        """Nor what was read for any version of a question."""
        for key in [key for key in self._previews if key[0] == approval_id]:
            del self._previews[key]

    def leave_note(self, approval_id: str, text: str) -> None:
        """For the next page about this question."""
        self._notes[approval_id] = text
        while len(self._notes) > MAX_NOTES:
            self._notes.popitem(last=False)

    def note_of(self, approval_id: str) -> str | None:
        """What was left for it, which stays: its page is loaded again while what was decided goes on."""
        return self._notes.get(approval_id)

    def take_note(self, approval_id: str) -> str | None:
        """What was left for it, once."""
        return self._notes.pop(approval_id, None)

    def check_open(self) -> None:
        """Return if it goes on. OverError."""
        if self.over.is_set():
            raise OverError

    def wipe(self) -> None:
        """Forget the key, and what was shown: it is over."""
        self.over.set()
        if self.key is not None:
            self.key.wipe()
            self.key = None
        self._previews.clear()
        self._notes.clear()

    def __repr__(self) -> str:
        return f"<page {self.id}>"


class Past(NamedTuple):
    """A session that is over: why, whose it was, and the question that was decided in it and not looked at since."""

    why: Ended
    process: Process
    decided: str | None


class Sessions:
    """One for each daemon."""

    def __init__(self, daemon: DaemonPort, known: KnownCallers, now: Callable[[], float] = since_boot) -> None:
        self._daemon = daemon
        self._known = known
        self._open: list[Session] = []
        self._ended: OrderedDict[bytes, Past] = OrderedDict()
        self._changed = anyio.Event()
        self.now: Final = now

    def of_cookies(self, cookies: Iterable[str]) -> Session | None:
        """The session that one of these opens, not yet compared with its process."""
        return next((one for cookie in cookies for one in self._open if one.is_opened_by(cookie)), None)

    def past_of(self, cookies: Iterable[str]) -> Past | None:
        """What is known of the session that one of these opened and that is over; None where there was none lately."""
        return next((self._ended[digest] for digest in map(_digest, cookies) if digest in self._ended), None)

    async def open(self, key: Key | None, key_id: str, process: Process) -> tuple[Session, str]:
        """A new one and its cookie. The key is its own from here on: it is wiped where this fails."""
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
        """Return if this process may use it. StolenError otherwise: it is locked then, and on record."""
        if not session.process.is_same(process):
            await self.lock(session, "process")
            await self._daemon.refused("page", "process", session.key_id)
            raise StolenError

    async def is_open(self, session: Session) -> bool:
        """Whether it goes on at this moment; one whose time is over ends now."""
        await self.end_due()
        return session in self._open

    async def lock(self, session: Session, why: Ended) -> None:
        """End it, and put it on record. Nothing happens to one that is locked."""
        if self._forget(session):
            self._ended[session.cookie] = Past(why, session.process, session.decided)
            while len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)
            await self._daemon.locked(session.id, why)

    async def end_due(self) -> None:
        """End what is over, what is of another approver than there is now, and what a passkey unlocked that decides no more."""
        now, approver = self.now(), self._daemon.approver()
        for session in list(self._open):
            if now >= session.ends_at:
                await self.lock(session, "over")
            elif approver.status == "none" or (approver.key_id or session.approver) != session.approver:
                await self.lock(session, "replaced")
            elif is_passkey(session.key_id) and not self._daemon.opens(session.key_id):
                await self.lock(session, "passkey")

    async def serve(self) -> None:
        """End them when they are over, until cancelled; then all."""
        try:
            while True:
                self._changed = anyio.Event()
                await self.end_due()
                first = min((one.ends_at for one in self._open), default=None)
                wait_s = _FOREVER_S if first is None else min(_LOOK_S, max(0.0, first - self.now()))
                with anyio.move_on_after(wait_s):
                    await self._changed.wait()
        finally:
            self.wipe()

    def wipe(self) -> None:
        """Wipe every key: the daemon ends."""
        for session in list(self._open):
            self._forget(session)

    @property
    def count(self) -> int:
        """How many there are."""
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
