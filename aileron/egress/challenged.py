"""HTTP Digest: the service challenges a request, and the request is sent again with an answer. Later requests answer
the stored challenge at once.

Runs in the daemon, for the engine. The service is not trusted: it may challenge without end, or refuse a right password. Nor is
the connector, which may send requests to such a service on purpose.

    1 send the request, with an answer if a challenge is known · 2 finish and record a 401
    3 send the request with an answer to its challenge · 4 if the response is a 401 again, the answer was refused

Rules
- A challenge is stored once its answer was accepted: by binding and host, at most `MAX_KEPT` challenges for `KEEP_S`,
  in memory only.
- At most `MAX_ANSWERS` answers are given to one request of a connector. Each exchange is a request like any other: it
  has a number, counts against the budget, has rows in the ledger, and passes all checks with a loan of its own.
- After a refusal the same password is not tried for a while, whichever binding it belongs to (attempts.py), because
  repeated attempts would lock the account. Only one new challenge of an account is answered at a time, until it is
  known whether the answer is accepted.
- If the service says that only the nonce was too old (`stale`), the password was right. The last answer to a request
  uses a nonce that is as old as the request, so `stale` there counts as a refusal. Otherwise a wrong password would be
  tried without end.
- An answer counts as accepted if the status is about the requested resource. A status that a locked account or a proxy before
  the service may cause (`_UNDECIDED`) is relayed, and changes nothing.
- A body that comes in pieces is collected first (held.py), since it is sent twice.

Source: RFC 7616, sections 3.3 to 3.6. Not here: how an answer is computed (signing/digest.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from aileron.egress.around import HELD_BYTES, Around, Exchange
from aileron.egress.attempts import Account, Attempt, Attempts
from aileron.egress.inject import LentCredential
from aileron.egress.response import EgressResponse
from aileron.egress.signing.digest import Challenge, Round, read_challenges
from aileron.egress.steps import within
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.fixes import fix_for
from aileron.model.names import BindingName, HostPort

__all__ = ["KEEP_S", "MAX_ANSWERS", "MAX_KEPT", "Answering", "Challenged", "Prepare", "Rounds"]

MAX_KEPT: Final = 256
"""Maximum number of stored challenges: more than a vault has bindings of this kind. Beyond it the least recently used
challenge is forgotten.
"""
KEEP_S: Final = 3600.0
"""Seconds for which a challenge is stored. Nonces last some minutes; a nonce that is too old costs one more exchange."""
MAX_ANSWERS: Final = 3
"""Maximum number of answers to challenges for one request. The first answers a stored challenge, the second a new
challenge; the third is for a new challenge whose nonce was already too old.
"""
_REFUSED: Final = 401
_UNDECIDED: Final = frozenset({400, 403, 407, 408, 421, 425, 429, 431, *range(500, 600)})
"""Status codes that do not show whether the password was right."""


class _Place(NamedTuple):
    binding: BindingName
    destination: HostPort


class _Kept(NamedTuple):
    round: Round
    secret: bytes
    until: float


class Rounds:
    """Store of HTTP Digest challenges whose answers were accepted. `now` returns seconds of a monotonic clock."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now: Final = now
        self._kept: Final[OrderedDict[_Place, _Kept]] = OrderedDict()
        self.attempts: Final = Attempts(now)

    def next(self, binding: BindingName, destination: HostPort, secret: bytes) -> Round | None:
        """Return the stored challenge with the nonce count for the next answer (a `Round`). No other request gets this
        count. Return None if no challenge is stored, or the stored one is too old or was answered with another password.
        `secret` is the password's digest.
        """
        place = _Place(binding, destination)
        kept = self._kept.pop(place, None)
        if kept is None or kept.until < self._now() or kept.secret != secret:
            return None
        self._kept[place] = kept._replace(round=kept.round.next())
        return self._kept[place].round

    def keep(self, binding: BindingName, destination: HostPort, secret: bytes, accepted: Round) -> None:
        """Store a challenge whose answer the service accepted: `accepted` is the challenge with the count of that
        answer.
        """
        place = _Place(binding, destination)
        kept = self._kept.get(place)
        if kept is not None and kept.round.challenge == accepted.challenge:
            return  # the stored count has advanced meanwhile
        self._kept[place] = _Kept(accepted, secret, self._now() + KEEP_S)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

    def forget(self, binding: BindingName, destination: HostPort, refused: Round) -> None:
        """Remove a stored challenge whose answer (`refused`) the service did not accept."""
        place = _Place(binding, destination)
        kept = self._kept.get(place)
        if kept is not None and kept.round.challenge == refused.challenge:
            del self._kept[place]


class Answering(Exchange[EgressResponse], Protocol):
    """An exchange of engine.py whose request can be sent again."""

    @property
    def whole(self) -> bytes | None:
        """The request's complete body, known once the response's head has arrived; None if the body was streamed."""
        ...


Prepare = Callable[[LentCredential, HostPort], LentCredential]
"""Type of a function that takes a loan and its destination, and returns the loan together with the challenge that the
request is to answer.
"""
Begin = Callable[[Prepare, bytes | None], Answering]
"""Type of a function that begins an exchange of the same request. Its second argument is the body to send; None for the
first exchange, which sends the request's own body.
"""


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class _Lent:
    """The password that the vault lent for one request, with its account and its digest."""

    account: Account
    lent: LentCredential
    digest: bytes


class Challenged(Around[EgressResponse]):
    """An HTTP exchange that answers Digest challenges, with as many requests as the answers need."""

    def __init__(self, begin: Begin, rounds: Rounds, binding: BindingName, deadline: float) -> None:
        """Take `deadline`, in the time of `anyio.current_time()`. If another request is answering a challenge for the
        same account, this exchange waits for that request until the deadline at most.
        """
        super().__init__()
        self._begin: Final = begin
        self._rounds: Final = rounds
        self._binding: Final = binding
        self._deadline: Final = deadline
        self._lent: _Lent | None = None
        self._sent: Round | None = None
        self._answers = 0
        self._body: bytes | None = None

    async def __aenter__(self) -> EgressResponse:
        try:
            return await super().__aenter__()
        finally:
            self._lent = None

    async def _ask(self, stack: contextlib.AsyncExitStack) -> EgressResponse:
        response = await self._send(stack, None)
        while response.status == _REFUSED:
            response = await self._try(stack, await self._asked(stack, response))
        return response

    async def _try(self, stack: contextlib.AsyncExitStack, challenge: Challenge) -> EgressResponse:
        """Answer a new challenge, one request of the account at a time. If another request's answer was accepted during
        the wait, answer the stored challenge instead.
        """
        lent = self._known()
        async with contextlib.AsyncExitStack() as held:
            turn, destination = self._rounds.attempts.turn(lent.account, lent.lent.secret), lent.account.destination
            attempt = await within(self._deadline, "queue", destination, lambda: held.enter_async_context(turn))
            self._check_pause(lent)
            is_last = self._answers == MAX_ANSWERS - 1  # its nonce must be as old as this request
            known = None if is_last else self._rounds.next(self._binding, destination, lent.digest)
            if known is None:
                return await self._settle(stack, attempt, challenge)
        return await self._send(stack, known)  # another request's answer was accepted while this one waited

    async def _settle(self, stack: contextlib.AsyncExitStack, attempt: Attempt, challenge: Challenge) -> EgressResponse:
        """Answer `challenge`, and any challenges that follow it, until a response shows whether the password is right.
        Return that response.
        """
        response = await self._send(stack, Round.first(challenge))
        while response.status == _REFUSED:
            is_stale = read_challenges(_challenges_in(response)).is_stale
            if not is_stale or self._answers == MAX_ANSWERS:
                self._rounds.attempts.refused(attempt)
                raise self._failure(f"{_TOO_OLD if is_stale else _WRONG}; {self._fix}")
            response = await self._send(stack, Round.first(await self._asked(stack, response)))
        if response.status not in _UNDECIDED:
            self._rounds.attempts.accepted(attempt)
        return response

    async def _send(self, stack: contextlib.AsyncExitStack, answers: Round | None) -> EgressResponse:
        """Send the request with the answer to the challenge in `answers`, and return when the head of the response has
        arrived. If `answers` is None, answer a stored challenge, if there is one.
        """

        def prepare(lent: LentCredential, destination: HostPort) -> LentCredential:
            account = Account("http", destination, lent.username or "")
            self._lent = _Lent(account, lent, self._rounds.attempts.digest(lent.secret))
            self._check_pause(self._lent)
            self._sent = answers or self._rounds.next(self._binding, destination, self._lent.digest)
            return msgspec.structs.replace(lent, round=self._sent)

        exchange = self._begin(prepare, self._body)
        response = await stack.enter_async_context(exchange)
        self._body = exchange.whole
        if self._sent is not None:
            lent = self._known()
            self._answers += 1
            if response.status == _REFUSED:
                self._rounds.forget(self._binding, lent.account.destination, self._sent)
            elif response.status not in _UNDECIDED:
                self._rounds.keep(self._binding, lent.account.destination, lent.digest, self._sent)
        return response

    async def _asked(self, stack: contextlib.AsyncExitStack, response: EgressResponse) -> Challenge:
        """End the exchange of `response`, which has status 401, and return the service's challenge. Raises AileronError
        if the challenge cannot be answered.
        """
        offered = read_challenges(_challenges_in(response))
        if offered.best is not None:
            await response.hold(HELD_BYTES)  # so that the connection can be kept
            await stack.aclose()
            return offered.best
        if self._sent is not None:
            raise self._failure(f"{_WRONG}; {self._fix}")
        if offered.schemes == {"basic"}:
            raise self._failure('asks for Basic, not Digest; the connector needs kind = "basic"')
        raise self._failure(
            "answered 401 without a Digest challenge that can be answered (qop=auth with SHA-256, SHA-512-256 or MD5); "
            "the connector needs another kind of credential"
        )

    def _check_pause(self, lent: _Lent) -> None:
        pause_s = self._rounds.attempts.pause_of(lent.account, lent.lent.secret)
        if pause_s > 0:
            until = f"it is not tried again for {math.ceil(pause_s)} s, so that the account is not locked"
            raise self._failure(f"refused this password, and {until}; {self._fix}")

    def _known(self) -> _Lent:
        assert self._lent is not None
        return self._lent

    @property
    def _fix(self) -> str:
        return fix_for(self._binding, self._known().lent.stored, or_username=True)

    def _failure(self, problem: str) -> AileronError:
        where = self._known().account.destination
        return AileronError(FailureClass.BINDING_FAILED, f"{where} {problem} ({self._binding})", boundary=Boundary.USER)


_WRONG: Final = "refused the user name or the password"
_TOO_OLD: Final = "takes every answer for too old, as some services do with a wrong user name or password"


def _challenges_in(response: EgressResponse) -> list[str]:
    return [value for name, value in response.headers if name.lower() == "www-authenticate"]
