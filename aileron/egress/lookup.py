"""The look-up of names by the system's resolver, in threads that the daemon need not wait for.

getaddrinfo(3) blocks for as long as the name servers of the *name* take (10 s and more if they do not answer) and
cannot be interrupted; asyncio runs it on the few threads that it has for everything. The owner of one granted name
could thus block the look-ups of every other connector. Here each name that is being looked up has one thread of its
own, however many requests ask for it, and the number of such names is bounded. Runs in the daemon.

Rules
- Nothing is cached: an answer serves the requests that were waiting for it, and the next request asks again. Each request
  checks all the addresses itself (addresses.py).
- A request that stops waiting costs nothing; the thread ends when the system gives up, and does not keep the daemon from ending.
- The system's own configuration applies: nsswitch.conf(5), /etc/hosts, search domains, and the variables of resolv.conf(5) in
  the daemon's environment. The resulting addresses must still pass the address table, and the server must show a certificate
  for the name in the URL.

Source: getaddrinfo(3), resolv.conf(5). Not here: when a name may be looked up at all (engine.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import anyio.from_thread
import anyio.lowlevel

__all__ = ["MAX_LOOKUPS", "Resolver", "SystemResolver"]

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Type of a function from host and port to IP address literals, in the order to try. Raises OSError if the name does
not resolve.
"""

MAX_LOOKUPS: Final = 64  # names under way at once, a thread each: as many as requests may be open (engine.py)


class _LookUp:
    """The look-up of one name. `done` is set on the event loop, once `addresses` or `problem` has been set."""

    def __init__(self) -> None:
        self.done: Final = anyio.Event()
        self.addresses: list[str] = []
        self.problem: OSError | None = None


class SystemResolver:
    """A `Resolver` that uses the system's resolver."""

    def __init__(self) -> None:
        self.under_way: dict[str, _LookUp] = {}

    async def __call__(self, host: str, port: int) -> list[str]:
        """Return the addresses of the host, each once, in the system's order. Raises OSError if there is no address, or
        if too many look-ups are in progress.
        """
        look_up = self.under_way.get(host) or self._begin(host, port)
        await look_up.done.wait()
        if look_up.problem is not None:
            raise type(look_up.problem)(*look_up.problem.args)  # a new exception for each waiting request
        return look_up.addresses

    def _begin(self, host: str, port: int) -> _LookUp:
        if len(self.under_way) >= MAX_LOOKUPS:
            raise socket.gaierror(socket.EAI_AGAIN, f"{MAX_LOOKUPS} other names are being looked up")
        look_up = self.under_way[host] = _LookUp()
        token = anyio.lowlevel.current_token()

        def finish() -> None:
            del self.under_way[host]
            look_up.done.set()

        def run() -> None:
            try:
                look_up.addresses = _ask_system(host, port)
            except OSError as error:
                look_up.problem = error
            with contextlib.suppress(anyio.RunFinishedError):  # the daemon ended meanwhile
                anyio.from_thread.run_sync(finish, token=token)

        try:
            threading.Thread(target=run, name="look-up", daemon=True).start()
        except RuntimeError:  # the user's limit of threads is reached
            del self.under_way[host]
        else:
            return look_up
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _ask_system(host: str, port: int) -> list[str]:
    # As bytes: Python would pass text through its IDNA codec, but the name must be looked up as the parser returned it.
    answers = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(address[0]) for *_rest, address in answers))
