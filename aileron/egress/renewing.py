"""A request with an OAuth token, and once more with another when the service refused the first (401).

Runs in the daemon, around the engine's exchanges; an expired token is renewed before it is lent (engine.py, step 4), this is
for one that a provider took back, or whose end it did not tell. The service is not trusted: it may refuse what is good. Nor
is the connector, which may ask such a service on purpose.

    1 the first exchange · 2 a 401 is read to its end · 3 that exchange is over, and on record · 4 renew · 5 the second exchange

Rules
- The second is a request like any other: a number, a count against the budget, rows in the ledger, checks, and a loan of its
  own. Its answer is relayed, whatever it is; of the first one nothing is then.
- A body that came in pieces is gone once it was sent: the 401 is relayed, and the next request has the new token.
- One token of a step is renewed for this reason (meter.py): no connector makes a provider be asked again and again.
- A 401 with a longer body than `HELD_BYTES` is relayed as it is, and nothing is renewed.

Source: RFC 6750 section 3.1; docs/reference/egress.md. Not here: asking the provider, and how often it may be (`Lender.renew`).
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from aileron.egress.meter import Meter
from aileron.model.cure import Stored
from aileron.model.secret import Secret

__all__ = ["HELD_BYTES", "Answer", "Exchange", "Renewing"]

HELD_BYTES: Final = 64 << 10
"""64 KiB of an answer that says no: an error of an API has some hundred bytes, a page for people some thousand."""
_REFUSED: Final = 401


class Answer(Protocol):
    """What an exchange gives: a response, or a WebSocket."""

    @property
    def status(self) -> int:
        """Of HTTP."""
        ...

    async def hold(self, most_bytes: int) -> bool:
        """See `EgressResponse.hold`."""
        ...


_T = TypeVar("_T", bound=Answer)
_T_co = TypeVar("_T_co", bound=Answer, covariant=True)


class Exchange(Protocol[_T_co]):
    """One request and its response, as engine.py and websocket.py have it."""

    @property
    def token(self) -> Secret | None:
        """The one it was sent with; None if it was sent with none, and when it is over."""
        ...

    @property
    def stored(self) -> Stored | None:
        """Where the secret is that it was sent with, once it was entered; None if that is not known."""
        ...

    async def renew(self, refused: Secret) -> bool:
        """Have it renewed; True: there is another now. After the exchange is over."""
        ...

    async def __aenter__(self) -> _T_co:
        """Send it."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None, /
    ) -> None:
        """End it, and write down how it ended."""
        ...


class Renewing(contextlib.AbstractAsyncContextManager[_T], Generic[_T]):
    """One exchange, or two."""

    def __init__(self, begin: Callable[[], Exchange[_T]], meter: Meter, *, can_repeat: bool) -> None:
        """`begin` makes an exchange of the same request each time; `can_repeat` says whether it can be sent again."""
        self._begin: Final = begin
        self._meter: Final = meter
        self._can_repeat: Final = can_repeat
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self) -> _T:
        async with contextlib.AsyncExitStack() as stack:
            response = await self._ask(stack)
            self._open = stack.pop_all()
        return response

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        await self._open.__aexit__(kind, error, trace)

    async def _ask(self, stack: contextlib.AsyncExitStack) -> _T:
        """The answer to relay; `stack` closes the exchange that it is still read from, if there is one."""
        exchange = self._begin()
        response = await stack.enter_async_context(exchange)  # 1
        token = exchange.token
        if response.status != _REFUSED or token is None or not self._meter.may_renew(token):
            return response
        if not await response.hold(HELD_BYTES):  # 2
            return response
        await stack.aclose()  # 3
        if await exchange.renew(token) and self._can_repeat:  # 4
            return await stack.enter_async_context(self._begin())  # 5
        return response
