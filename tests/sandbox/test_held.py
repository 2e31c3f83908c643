"""Tests of the measurement of what a cell's processes hold, while they come and go."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from aileron_sandbox.cell.held import Held

_NETLINK_SOCK_DIAG = 4
_LOOKS = 30_000
"""Number of rounds: one in some hundreds meets a process that is reaped between opening its directory and reading it."""


@pytest.fixture
def held() -> Iterator[Held]:
    """Yield a measurement of this process's own namespaces."""
    with contextlib.ExitStack() as opened:
        diagnostics = opened.enter_context(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG))
        shm, sem, msg = (os.open(f"/proc/sysvipc/{kind}", os.O_RDONLY) for kind in ("shm", "sem", "msg"))
        for descriptor in (shm, sem, msg):
            opened.callback(os.close, descriptor)
        yield opened.enter_context(contextlib.closing(Held(diagnostics.fileno(), (shm, sem, msg))))


def test_processes_that_end_during_the_measurement_of_a_cells_memory_are_skipped(held: Held) -> None:
    """An agent's processes end all the time; what a living process holds is still found."""
    stays, is_over = os.memfd_create("stays"), threading.Event()
    born = [os.getpid()]

    def come_and_go() -> None:
        while not is_over.is_set():
            born[0] = os.posix_spawn("/bin/true", ["true"], {})
            os.waitpid(born[0], 0)

    os.ftruncate(stays, 1 << 20)
    os.pwrite(stays, b"x" * (1 << 20), 0)
    others = threading.Thread(target=come_and_go)
    others.start()
    try:
        for _look in range(_LOOKS):
            held.look_at_descriptors(born)
        held.look_at_descriptors([born[0], os.getpid()])
    finally:
        is_over.set()
        others.join()
        os.close(stays)
    assert held.shared_bytes >= 1 << 20
