"""Record of the logins that services refused, and of how long each is not tried again, so that no account is locked.

Runs in the daemon, for `login.py` and `challenged.py`. A service that locks accounts counts refusals of the account,
whichever binding or connector they come from; so everything here is counted by account.

Rules
- An account is protocol, host, port and user name. One login at a time is tried at each.
- After a refusal the same secret is not tried for PAUSE_S, and twice as long after each further refusal of the account. Another
  secret is tried at once, since only a person can store one; but after MAX_SECRETS refused ones, none is.
- Another user name is another account. At a mail server, upper and lower case are the same: most servers count them so.
- Only a digest of a secret is kept, under a key of this process. Nothing is on disk: a restarted daemon knows of no
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
"""Shortest and longest pause after a refusal, in seconds: services that lock accounts allow about ten refusals in a
quarter of an hour, or fewer.
"""
FORGET_S: Final = 3600.0
"""Seconds after a pause until the account's refusals are forgotten. Services that lock accounts look back half an hour."""
MAX_ACCOUNTS: Final = 1024
"""Accounts whose refusals are remembered, more than a vault's bindings of logins; beyond it the oldest is forgotten."""
MAX_SECRETS: Final = 4
"""Refused secrets of one account, each tried at once; then every secret waits. Enough for typing errors and for
bindings that have the old secret.
"""
_MOST_TIMES: Final = 16
"""Refusals in a row that are counted: the pause is the longest by then."""


class Account(NamedTuple):
    """An account at a service, as the service counts refusals."""

    protocol: LoginProtocol | Literal["http"]
    destination: HostPort
    username: str

    @property
    def counted(self) -> Account:
        """The account in the one spelling that is counted."""
        return self._replace(username=self.username.casefold()) if self.protocol in _FOLDED else self


_FOLDED: Final = frozenset[str]({"smtp", "imap", "pop3"})
"""Protocols whose user names are mostly mail addresses, which seldom differ in case alone. `Ada` and `ada` are two
roles of a database.
"""


class Attempt(NamedTuple):
    """A login attempt: its account, and a digest of the secret."""

    account: Account
    digest: bytes


class _Series(msgspec.Struct, frozen=True):
    """The refusals of one account: how many in a row, until when it is not tried again, and the digests of the refused
    secrets.
    """

    times: int
    again_at: float
    digests: tuple[bytes, ...]


class Attempts:
    """The refused logins of one daemon. `now`: seconds of a clock that does not go back."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now: Final = now
        self._key: Final = os.urandom(32)
        self._refused: Final[OrderedDict[Account, _Series]] = OrderedDict()
        self._turns: Final[dict[Account, tuple[anyio.Lock, int]]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, account: Account, secret: Secret) -> AsyncIterator[Attempt]:
        """Wait until no other login to the account is in progress. Yield the attempt that the other methods take."""
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
        """Return the digest by which the secret is known here."""
        return hashlib.blake2b(secret.reveal(), key=self._key, person=b"login").digest()

    def pause_of(self, account: Account, secret: Secret) -> float:
        """Return the pause of an account and secret as `pause_s` does, without a turn."""
        return self.pause_s(Attempt(account.counted, self.digest(secret)))

    def pause_s(self, attempt: Attempt) -> float:
        """Return the seconds until the login may be tried; 0 if it may be tried now."""
        series = self._refused.get(attempt.account)
        if series is None or (attempt.digest not in series.digests and len(series.digests) < MAX_SECRETS):
            return 0.0
        return max(0.0, series.again_at - self._now())

    def refused(self, attempt: Attempt) -> None:
        """Record that the service refused the login."""
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
        """Record that the service accepted the login. Other secrets that it refused stay refused: another binding of
        the account may have the old one.
        """
        series = self._refused.pop(attempt.account, None)
        if series is None:
            return
        others = tuple(digest for digest in series.digests if digest != attempt.digest)
        if others:
            self._refused[attempt.account] = msgspec.structs.replace(series, digests=others)
