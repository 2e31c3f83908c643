"""Record of the logins that services refused, and of the pause before each is attempted again, so that no account is
locked.

Runs in the daemon, for `login.py` and `challenged.py`. A service that locks accounts counts refusals of the account,
whichever binding or connector they come from; so everything here is counted by account.

Rules
- An account is protocol, host, port and user name. Only one login at a time is attempted for an account.
- After a refusal the same secret is not tried for PAUSE_S; the pause doubles with each further refusal of the account.
  Another secret is tried at once, since only a person can store a secret. After MAX_SECRETS refused secrets, every
  secret waits.
- Another user name is another account. At a mail server, upper and lower case are treated as the same, as most servers treat
  them.
- Only a digest of a secret is stored, keyed with a key of this process. Nothing is on disk: a restarted daemon knows of
  no refusal.

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

from aileron.model.login import LoginProtocol, protocol_facts
from aileron.model.names import HostPort
from aileron.model.secret import Secret

__all__ = ["MAX_SECRETS", "PAUSE_MOST_S", "PAUSE_S", "Account", "Attempt", "Attempts"]

PAUSE_S, PAUSE_MOST_S = 30.0, 900.0
"""Shortest and longest pause after a refusal, in seconds: services that lock accounts allow about ten refusals in a
quarter of an hour, or fewer.
"""
FORGET_S: Final = 3600.0
"""Seconds after the end of an account's pause until its refusals are forgotten. Services that lock accounts look back
half an hour.
"""
MAX_ACCOUNTS: Final = 1024
"""Maximum number of accounts whose refusals are remembered: more than a vault has bindings of logins. Beyond it the
oldest account is forgotten.
"""
MAX_SECRETS: Final = 4
"""Number of refused secrets of one account after which every secret waits; until then, a new secret is tried at once.
Enough for typing errors and for bindings that still have the old secret.
"""
_MOST_TIMES: Final = 16
"""Maximum number of consecutive refusals that are counted. By then the pause has reached its maximum."""


class Account(NamedTuple):
    """An account at a service: the unit by which a service counts refused logins."""

    protocol: LoginProtocol | Literal["http"]
    destination: HostPort
    username: str

    @property
    def counted(self) -> Account:
        """The account in the spelling under which refusals are counted.

        Mail addresses seldom differ only in upper and lower case. In other protocols, case matters: `Ada` and `ada` are two
        roles of a database.
        """
        has_addresses = self.protocol != "http" and protocol_facts(self.protocol).has_addresses
        return self._replace(username=self.username.casefold()) if has_addresses else self


class Attempt(NamedTuple):
    """A login attempt: its account, and a digest of the secret."""

    account: Account
    digest: bytes


class _Series(msgspec.Struct, frozen=True):
    """Consecutive refusals of an account: their number, the time until which the account is paused, and the digests of
    the refused secrets.
    """

    times: int
    again_at: float
    digests: tuple[bytes, ...]


class Attempts:
    """Record of the logins that services refused. One instance per daemon. `now` returns seconds of a monotonic clock."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now: Final = now
        self._key: Final = os.urandom(32)
        self._refused: Final[OrderedDict[Account, _Series]] = OrderedDict()
        self._turns: Final[dict[Account, tuple[anyio.Lock, int]]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, account: Account, secret: Secret) -> AsyncIterator[Attempt]:
        """Wait until no other login to the account is in progress. Yield the attempt, to be passed to `pause_s`,
        `refused` and `accepted`.
        """
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
        """Return a digest that identifies the secret. The digest is made with this instance's key, so another instance
        returns a different digest.
        """
        return hashlib.blake2b(secret.reveal(), key=self._key, person=b"login").digest()

    def pause_of(self, account: Account, secret: Secret) -> float:
        """Return the seconds until a login to `account` with `secret` may be attempted; 0 if it may be attempted now.
        Unlike `turn`, this does not wait for other logins to the account.
        """
        return self.pause_s(Attempt(account.counted, self.digest(secret)))

    def pause_s(self, attempt: Attempt) -> float:
        """Return the seconds until the login may be attempted; 0 if it may be attempted now."""
        series = self._refused.get(attempt.account)
        if series is None or (attempt.digest not in series.digests and len(series.digests) < MAX_SECRETS):
            return 0.0
        return max(0.0, series.again_at - self._now())

    def refused(self, attempt: Attempt) -> None:
        """Record that the service refused the login of this attempt."""
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
        """Record that the service accepted the login. Other refused secrets of the account stay refused, because
        another binding of the account may still have an old secret.
        """
        series = self._refused.pop(attempt.account, None)
        if series is None:
            return
        others = tuple(digest for digest in series.digests if digest != attempt.digest)
        if others:
            self._refused[attempt.account] = msgspec.structs.replace(series, digests=others)
