"""The rights that ingress gives up before it reads the first byte of a stranger: files, new connections, signals, most system
calls, its priority.

Runs in ingress, once, before there is a second thread: Landlock and seccomp bind the thread that asks for them and those it
starts. An attacker who takes this process over has what goes through it, the passphrase of the page among it, and the ports; not
the vault's key, no file, no network, not the daemon, and of the kernel what serving needs.

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
"""The nice(2) value on top of the daemon's: beside it, under a flood, a tenth of a processor's time that both want."""
DATA_BYTES: Final = 512 << 20
"""RLIMIT_DATA, for the unforeseen; server.py counts and bounds the rest. A process that exceeds it ends, and is started anew."""


LOG_BYTES: Final = 32 << 20
"""RLIMIT_FSIZE. Standard error is the daemon's log, which is rotated at 5 MiB: an attacker in this process fills no disk."""


def confine() -> None:
    """Give up what serving does not need. OSError if the kernel cannot, AileronError if libseccomp is missing: then nothing
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
