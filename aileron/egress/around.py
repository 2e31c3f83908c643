"""What goes around an exchange when its answer may be a no: what the three of them share.

Runs in the daemon. Each enters as many exchanges as it takes, one after the other, and hands out one answer, whose exchange is
open for as long as it is read.

Not here: what follows a no (renewing.py, challenged.py, signing/refused.py), the exchange itself (engine.py, websocket.py).
"""

from __future__ import annotations

import abc
import contextlib
import types
from typing import Final, Generic, Protocol, TypeVar

from aileron.model.cure import Stored
from aileron.model.secret import Secret

__all__ = ["HELD_BYTES", "Answer", "Around", "Exchange"]

HELD_BYTES: Final = 64 << 10
"""64 KiB of an answer that says no: an error of an API has some hundred bytes, a page for people some thousand."""


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


class Around(contextlib.AbstractAsyncContextManager[_T], Generic[_T]):
    """The answer to relay when entered; its exchange is over when left."""

    def __init__(self) -> None:
        self._open = contextlib.AsyncExitStack()

    @abc.abstractmethod
    async def _ask(self, stack: contextlib.AsyncExitStack) -> _T:
        """The answer to relay; `stack` closes the exchange that it is still read from, if there is one."""

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
