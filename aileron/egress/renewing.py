"""A request with an OAuth token, which is sent again with a new token if the service refused the first token (401).

Runs in the daemon, around the engine's exchanges; an expired token is renewed before it is lent (engine.py, step 4).
This module is for a token that the provider revoked, or whose expiry the provider did not state. The service is not
trusted: it may refuse a valid token. Nor is the connector, which may send requests to such a service on purpose.

    1 send the request · 2 read a 401 to its end · 3 end and record the exchange · 4 renew the token · 5 send the request again

Rules
- The second request is a request like any other: it has a number, counts against the budget, has rows in the ledger,
  and passes all checks with a loan of its own. Its response is relayed in any case, and the first response is dropped.
- A body that came in pieces cannot be sent again: the 401 is relayed, and the next request has the new token.
- Only one token of a step is renewed for this reason (meter.py), so that no connector can cause request after request to a
  provider.
- A 401 with a longer body than `HELD_BYTES` is relayed as it is, and nothing is renewed.

Source: RFC 6750 section 3.1; docs/reference/egress.md. Not here: the request to the provider, and its limits (`Lender.renew`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final, TypeVar

from aileron.egress.around import HELD_BYTES, Answer, Around, Exchange
from aileron.egress.meter import Meter

__all__ = ["Renewing"]

_REFUSED: Final = 401


_T = TypeVar("_T", bound=Answer)


class Renewing(Around[_T]):
    """An exchange, followed by a second exchange with a renewed token if the service refused the first token."""

    def __init__(self, begin: Callable[[], Exchange[_T]], meter: Meter, *, can_repeat: bool) -> None:
        """Take `begin`, a function that makes a new exchange of the same request at each call. `can_repeat` says
        whether the request can be sent again.
        """
        super().__init__()
        self._begin: Final = begin
        self._meter: Final = meter
        self._can_repeat: Final = can_repeat

    async def _ask(self, stack: contextlib.AsyncExitStack) -> _T:
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
