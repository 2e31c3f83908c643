"""What ingress gives up before it reads the first byte of a stranger: files, new connections, signals, most system calls, its
priority.

Runs in ingress, once, before there is a second thread: Landlock and seccomp bind the thread that asks for them and those it
starts. Whoever takes this process over has what goes through it, the passphrase of the page among it, and the ports; not the
vault's key, no file, no network, not the daemon, and of the kernel what serving needs.

Source: nice(2); docs/adr/0031-ingress.md. Not here: how (hidden/confine.py), the list of system calls
(aileron_sandbox/filters.py).
"""

from __future__ import annotations

import asyncio.selector_events
import asyncio.sslproto
import os
from typing import Final

from aileron.hidden import confine as hidden
from aileron.hidden.confine import compiled
from aileron.ingress.server import READ_AHEAD

__all__ = ["PRIORITY", "confine"]

PRIORITY: Final = 10
"""nice(2), on top of the daemon's: beside it, and beside whoever floods it, a tenth of a processor's time that both want."""
DATA_BYTES: Final = 512 << 20
"""RLIMIT_DATA. Bounded by what is counted in server.py; this is for what was not thought of: it ends, and is started anew."""


LOG_BYTES: Final = 32 << 20
"""RLIMIT_FSIZE. It has the daemon's log as standard error, which is put aside at 5 MiB: whoever takes it over fills no disk."""


def confine() -> None:
    """Give up what serving does not need. OSError where the kernel cannot, AileronError where libseccomp is missing: then nothing
    is served.
    """
    calls = compiled(_server, "no port is served")
    # Each connection would have a buffer of 256 KiB, and a read of as much.
    asyncio.sslproto.SSLProtocol.max_size = 2 * READ_AHEAD
    asyncio.selector_events._SelectorSocketTransport.max_size = READ_AHEAD  # type: ignore[attr-defined]
    os.nice(PRIORITY)
    hidden.confine(calls, data_bytes=DATA_BYTES, file_bytes=LOG_BYTES)


def _server() -> bytes:
    from aileron_sandbox.filters import compile_server

    return compile_server()
