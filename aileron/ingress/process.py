"""The ingress process once its memory is hidden: it receives its listeners, confines itself, and serves until it gets
the order to stop.

The process exits by itself when no client has connected for UNUSED_S. No connection is lost: the process exits between
two turns of its event loop, without a connection, and the daemon watches the same listeners. A later connection waits
in the backlog until the daemon has started a new process.

Before the process confines itself, it imports all modules that it needs later, and reads the certificate's key.
Afterwards it can open no file, begin no connection, and send no signal.

Source: docs/adr/0031-ingress.md. Not here: how the process is hidden (isolated/process.py), the rights that it gives up
(confine.py).
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 - what is not imported now cannot be any more
import gc
import logging
import os
import socket
import ssl
import time
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio._backends._asyncio

from aileron.ingress.admission import Admission
from aileron.ingress.certificate import tls_context
from aileron.ingress.confine import confine
from aileron.ingress.connection_places import Places
from aileron.ingress.daemon_messages import MAX_PACKET, Known, MessageError, Start, Stop, decode_order
from aileron.ingress.forward import Forward
from aileron.ingress.server import serve
from aileron.isolated.packets import received_with
from aileron_sandbox import kernel

__all__ = ["serve_control"]

TIDY_S: Final = 10.0
UNUSED_S: Final = 600.0
"""Seconds without a connection after which the process ends, which frees 25 MB. The next connection waits half a
second for a new process. An open page and a working agent connect more often.
"""
_MAX_LISTENERS: Final = 8


def serve_control(descriptor: int) -> int:
    """Serve as ingress until the daemon sends Stop on the control socket, and then return 0. If there is no connection
    for UNUSED_S, the process exits with status 0 before that. Raises MessageError if the first packet is not a valid
    Start order.
    """
    control = socket.socket(fileno=descriptor)
    logging.basicConfig(level=logging.WARNING, format="ingress: %(levelname)s %(name)s: %(message)s")
    packet, descriptors, _ = received_with(control, MAX_PACKET, _MAX_LISTENERS)
    start = decode_order(packet)  # an empty packet, if the daemon has ended, raises MessageError
    if not isinstance(start, Start):
        raise MessageError("the first order is not to start")
    doors = _doors(start, descriptors)
    confine()
    control.setblocking(False)
    anyio.run(_Ingress(control, start, doors).run)
    return 0


_Door = tuple[str, list[socket.socket], ssl.SSLContext | None]


def _doors(start: Start, descriptors: list[int]) -> list[_Door]:
    left = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    doors: list[_Door] = []
    for listening in start.doors:
        listeners, left = left[: listening.listeners], left[listening.listeners :]
        doors.append((listening.door, listeners, _tls(start) if listening.tls else None))
    return doors


def _tls(start: Start) -> ssl.SSLContext:
    if start.certificate_pem is None or start.certificate_key is None:
        raise MessageError("a door has TLS, and there is no certificate")
    return tls_context(start.certificate_pem, Path(start.certificate_key))


class _Ingress:
    """The tasks of the ingress process, which run until the daemon sends Stop or there was no connection for UNUSED_S."""

    def __init__(self, control: socket.socket, start: Start, doors: list[_Door]) -> None:
        self._control = control
        self._admission = Admission(start.models)
        self._doors = doors
        self._places = [Places() for _ in doors]
        self._stopped = anyio.Event()

    async def run(self) -> None:
        handing_over = anyio.Lock()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._obey)
            tasks.start_soon(self._tidy)
            for (door, listeners, tls), places in zip(self._doors, self._places, strict=True):
                app = Forward(door, self._control, handing_over, self._admission)
                tasks.start_soon(partial(serve, app, listeners, self._stopped.wait, tls, places=places))

    async def _obey(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            packet = await loop.sock_recv(self._control, MAX_PACKET)
            match decode_order(packet):
                case Known() as known:
                    self._admission.know(known.digests)
                case Stop():
                    break
                case Start():
                    raise MessageError("started already")
        self._stopped.set()

    async def _tidy(self) -> None:
        """Return unused memory to the kernel every TIDY_S seconds, and end the process if there was no connection for
        UNUSED_S.
        """
        while not self._stopped.is_set():
            with anyio.move_on_after(TIDY_S):
                await self._stopped.wait()
            gc.collect()  # interrupted requests leave reference cycles, and an idle process allocates too little to collect them
            kernel.return_free_memory()
            if all(places.is_unused_since(time.monotonic() - UNUSED_S) for places in self._places):
                os._exit(0)  # at once: a connection accepted from here on would be lost
