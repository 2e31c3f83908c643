"""Which logins a service has refused, and how long nobody tries again: so that no account is locked.

Runs in the daemon, for `login.py` and `challenged.py`. What locks an account counts refusals of the account, whichever binding or
connector they come from; so everything here is by account.

Rules
- An account is protocol, host, port and user name. One login at a time is tried at each.
- After a refusal the same secret is not tried for PAUSE_S, and twice as long after each further refusal of the account. Another
  secret is tried at once, since only a person can store one; but where MAX_SECRETS were refused, none is.
- Another user name is another account. At a mail server, upper and lower case are one: most count them so.
- Of a secret nothing is kept but a digest, under a key of this process. Nothing is on disk: a daemon that starts anew knows of no
  refusal.

Source: docs/reference/logins.md. Not here: what counts as a refusal (login.py, challenged.py, aileron/logins).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Final, Literal, NamedTuple

import anyio
import msgspec

from aileron.model.login import LoginProtocol
from aileron.model.names import HostPort
from aileron.model.secret import Secret

__all__ = ["MAX_SECRETS", "PAUSE_MOST_S", "PAUSE_S", "Account", "Attempt", "Attempts"]

PAUSE_S, PAUSE_MOST_S = 30.0, 900.0
"""After a refusal: what locks accounts counts ten of them in a quarter of an hour, or fewer."""
FORGET_S: Final = 3600.0
"""After the end of a pause: the next refusal is a first one again. What locks accounts looks back half an hour."""
MAX_ACCOUNTS: Final = 1024
"""Whose refusals are remembered: more than a vault's bindings of logins; then the oldest is forgotten."""
MAX_SECRETS: Final = 4
"""Refused ones of one account that each could be tried at once: a person who mistypes, or bindings that have the old one."""
_MOST_TIMES: Final = 16
"""Refusals in a row that are counted: the pause is the longest by then."""


class Account(NamedTuple):
    """Whose a login is, as the service counts it."""

    protocol: LoginProtocol | Literal["http"]
    destination: HostPort
    username: str

    @property
    def counted(self) -> Account:
        """The one spelling of it that is counted."""
        return self._replace(username=self.username.casefold()) if self.protocol in _FOLDED else self


_FOLDED: Final = frozenset[str]({"smtp", "imap", "pop3"})
"""Whose user names are mostly mail addresses, and seldom differ in case alone. `Ada` and `ada` are two roles of a database."""


class Attempt(NamedTuple):
    """One login that is tried: at which account, and a digest of the secret."""

    account: Account
    digest: bytes


class _Series(msgspec.Struct, frozen=True):
    """The refusals of one account: how many in a row, until when nobody tries again, and of which secrets."""

    times: int
    again_at: float
    digests: tuple[bytes, ...]


class Attempts:
    """One for each daemon. `now`: seconds of a clock that does not go back."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now: Final = now
        self._key: Final = os.urandom(32)
        self._refused: Final[OrderedDict[Account, _Series]] = OrderedDict()
        self._turns: Final[dict[Account, tuple[anyio.Lock, int]]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, account: Account, secret: Secret) -> AsyncIterator[Attempt]:
        """When nobody else tries a login there; what to call it by in the others."""
        account = account.counted
        lock, waiting = self._turns.get(account, (anyio.Lock(), 0))
        self._turns[account] = lock, waiting + 1
        try:
            async with lock:
                yield Attempt(account, self.digest(secret))
        finally:
            lock, waiting = self._turns.pop(account)
            if waiting > 1:
                self._turns[account] = lock, waiting - 1

    def digest(self, secret: Secret) -> bytes:
        """What it is known by here."""
        return hashlib.blake2b(secret.reveal(), key=self._key, person=b"login").digest()

    def pause_of(self, account: Account, secret: Secret) -> float:
        """As `pause_s`, without a turn."""
        return self.pause_s(Attempt(account.counted, self.digest(secret)))

    def pause_s(self, attempt: Attempt) -> float:
        """Seconds until it may be tried; 0 where it may be now."""
        series = self._refused.get(attempt.account)
        if series is None or (attempt.digest not in series.digests and len(series.digests) < MAX_SECRETS):
            return 0.0
        return max(0.0, series.again_at - self._now())

    def refused(self, attempt: Attempt) -> None:
        """By the service."""
        now, series = self._now(), self._refused.pop(attempt.account, None)
        if series is None or now - series.again_at > FORGET_S:
            series = _Series(0, now, ())
        others = tuple(digest for digest in series.digests if digest != attempt.digest)
        pause_s = min(PAUSE_MOST_S, PAUSE_S * 2.0**series.times)
        self._refused[attempt.account] = _Series(
            times=min(series.times + 1, _MOST_TIMES),
            again_at=now + pause_s,
            digests=(*others, attempt.digest)[-MAX_SECRETS:],
        )
        if len(self._refused) > MAX_ACCOUNTS:
            self._refused.popitem(last=False)

    def accepted(self, attempt: Attempt) -> None:
        """By the service. Other secrets that it refused stay refused: of two bindings of one account one may have the old one."""
        series = self._refused.pop(attempt.account, None)
        if series is None:
            return
        others = tuple(digest for digest in series.digests if digest != attempt.digest)
        if others:
            self._refused[attempt.account] = msgspec.structs.replace(series, digests=others)
