"""Repeated requests on one connection, which a server ends when its client sends nothing for a while.

reused(functools.partial(ask_twice, port))
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from aileron.ingress.server import IDLE_S

__all__ = ["reused"]

_T = TypeVar("_T")
_ATTEMPTS: Final = 5


def reused(talk: Callable[[], _T]) -> _T:
    """Return the result of `talk`, which sends requests on one connection and raises ConnectionError if that ends early.

    It starts again only if the connection may have been idle for as long as the server allows, because the machine stood still.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        began = time.monotonic()
        try:
            return talk()
        except ConnectionError:
            if attempt == _ATTEMPTS or time.monotonic() - began < IDLE_S:
                raise
    raise AssertionError("there is a last attempt")
