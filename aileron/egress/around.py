"""Base class of the wrappers that repeat or replace an exchange after a refusal: renewing.py, challenged.py and
signing/refused.py.

Runs in the daemon. A wrapper enters as many exchanges as it needs, one after the other, and returns one answer. The
exchange of that answer stays open while the answer is read.

Not here: what follows a refusal (renewing.py, challenged.py, signing/refused.py), the exchange itself (engine.py,
websocket.py).
"""

from __future__ import annotations

import abc
import contextlib
import types
from typing import Final, Generic, Protocol, TypeVar

from aileron.model.fixes import Stored
from aileron.model.secret import Secret

__all__ = ["HELD_BYTES", "Answer", "Around", "Exchange"]

HELD_BYTES: Final = 64 << 10
"""Maximum size of the body of a service's refusal that is read before the connector reads it: 64 KiB. An API's error
has some hundred bytes, a page for people some thousand.
"""


class Answer(Protocol):
    """The result of an exchange: a response, or a WebSocket."""

    @property
    def status(self) -> int:
        """HTTP status code of the answer."""
        ...

    async def hold(self, most_bytes: int) -> bool:
        """Read the body of the answer ahead and store it. Return True if the complete body is stored, False if it has
        more than `most_bytes`; see `EgressResponse.hold`.
        """
        ...


_T = TypeVar("_T", bound=Answer)
_T_co = TypeVar("_T_co", bound=Answer, covariant=True)


class Exchange(Protocol[_T_co]):
    """A request and its response, implemented in engine.py and websocket.py."""

    @property
    def token(self) -> Secret | None:
        """Token that the request was sent with. None if the request was sent without a token, or the exchange has
        ended.
        """
        ...

    @property
    def stored(self) -> Stored | None:
        """Location of the secret that the request was sent with, set once the request was sent. None if it is not
        known.
        """
        ...

    async def renew(self, refused: Secret) -> bool:
        """Renew the refused token, after the exchange has ended. Return True if a different token can now be lent."""
        ...

    async def __aenter__(self) -> _T_co:
        """Send the request, and return the service's answer."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None, /
    ) -> None:
        """End the exchange, and record how it ended."""
        ...


class Around(contextlib.AbstractAsyncContextManager[_T], Generic[_T]):
    """Base class of a context manager that makes an exchange and handles a refusal by the service, for example by
    another exchange. Entering it returns the answer to relay to the connector; leaving it ends the exchange that gave
    this answer.
    """

    def __init__(self) -> None:
        self._open = contextlib.AsyncExitStack()

    @abc.abstractmethod
    async def _ask(self, stack: contextlib.AsyncExitStack) -> _T:
        """Make the exchange, and another one if the service refuses, and return the answer to relay to the connector.
        The answer's exchange is entered on `stack`, which keeps the exchange open while the answer is read.
        """

    async def __aenter__(self) -> _T:
        async with contextlib.AsyncExitStack() as stack:
            answer = await self._ask(stack)
            self._open = stack.pop_all()
        return answer

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        await self._open.__aexit__(kind, error, trace)
