"""The rights that ingress gives up before it reads the first byte from a stranger: files, new connections, signals,
most system calls, and its priority.

Runs in ingress, once, before there is a second thread: Landlock and seccomp confine the calling thread and the threads
that it starts. An attacker who takes over this process has the ports, and all data that passes through it, including
the passphrase typed into the page. The attacker does not get the vault's key, any file, the network or control of the
daemon, and can make only the system calls that serving needs.

Source: nice(2); docs/adr/0031-ingress.md. Not here: how rights are given up (isolated/confine.py), the list of system
calls (aileron_sandbox/filters.py).
"""

from __future__ import annotations

import asyncio.selector_events
import asyncio.sslproto
import os
from typing import Final

from aileron.ingress.server import READ_AHEAD
from aileron.isolated import confine as hidden
from aileron.isolated.confine import compiled

__all__ = ["PRIORITY", "confine"]

PRIORITY: Final = 10
"""Increment for nice(2). If ingress and the daemon compete for a processor, ingress gets a tenth of its time."""
DATA_BYTES: Final = 512 << 20
"""RLIMIT_DATA in bytes, for memory use that nobody foresaw; server.py limits all other use. A process that exceeds it
ends, and is restarted.
"""


LOG_BYTES: Final = 32 << 20
"""RLIMIT_FSIZE in bytes. Standard error is the daemon's log, which is rotated at 5 MiB, so an attacker in this
process cannot fill the disk.
"""


def confine() -> None:
    """Give up the rights of this process that serving does not need. Raises OSError if the kernel cannot do this, and
    AileronError if libseccomp is missing; ingress must then not serve.
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
