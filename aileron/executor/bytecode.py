"""Bytecode of connectors: made once in a jail, kept in memory, run in jails of the same connector and nowhere else.

Every jail would compile its connector's source anew, which is a quarter of a run of the calendar connector. So the first run of a
pin has it compiled (precompile.py) and the next ones get the outcome.

Runs in the daemon. The outcome is a stranger's: it is neither looked into nor executed here, and never written to disk.

Rules
- The key is the hash of a pin that the store has just verified. It is verified again for every run, whether there is an outcome
  or not, so bytes that change are refused as ever.
- The jail that compiles is given the connector's bytes and nothing else: no arguments, no host functions, no invocation. So the
  outcome is a function of what was pinned, and one run can leave nothing in it for the next.
- What cannot be compiled within bounds runs from source, as if this were not here.

Source: docs/adr/0012-bytecode.md. Not here: the jail (jails.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Protocol

import anyio

from aileron.executor import precompile
from aileron_sandbox.ending import Ending, Exited
from aileron_sandbox.jail import Child
from aileron_sandbox.policy import Policy

__all__ = ["Bytecode", "Running"]

_MAX_PROGRAM_BYTES: Final = 4 << 20
"""4 MiB of connector: what is larger is large by its data, or takes longer to compile than anybody waits."""
_MAX_OUTCOME_BYTES: Final = 3 * _MAX_PROGRAM_BYTES
"""Bytecode is up to twice the size of its source, which stays beside it."""
_MAX_KEPT: Final = 32
_MAX_KEPT_BYTES: Final = 64 << 20
"""In memory, for all connectors together. The one that was not used for longest goes first."""
_POLICY: Final = Policy(memory_bytes=256 << 20, cpu_s=5, processes=1)
_DEADLINE_S: Final = 5.0
"""The calendar connector takes 40 ms, with the imports of the compiler."""
_READ_BYTES: Final = 256 << 10
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_COMPILER: Final = Path(precompile.__file__)


class Running(Protocol):
    """A jail that runs (jails.py)."""

    @property
    def child(self) -> Child:
        """The host ends of its pipes."""
        ...

    async def wait_ended(self) -> Ending:
        """Wait until every process of it is gone."""
        ...


OpenJail = Callable[[int, Policy], AbstractAsyncContextManager[Running]]


class Bytecode:
    """What was compiled, by pin. Owns the descriptors it returns; `close` gives them back."""

    def __init__(self, open_jail: OpenJail) -> None:
        self._open_jail = open_jail
        self._kept: OrderedDict[str, int | None] = OrderedDict()

    async def program(self, pin_hash: str, program: int) -> int:
        """The descriptor to run for `program`, whose bytes were verified as those of `pin_hash`. May be `program` itself.

        Use it before the next await: another run may put it out. AileronError when no jail can be had at all.
        """
        if pin_hash not in self._kept:
            self._keep(pin_hash, await self._compiled(program))
        self._kept.move_to_end(pin_hash)
        outcome = self._kept[pin_hash]
        return program if outcome is None else outcome

    def close(self) -> None:
        """Forget everything. Idempotent."""
        while self._kept:
            self._put_out()

    def _keep(self, pin_hash: str, outcome: int | None) -> None:
        if pin_hash in self._kept:  # two first runs at the same time
            self._kept.move_to_end(pin_hash, last=False)
            self._put_out()
        self._kept[pin_hash] = outcome
        while len(self._kept) > 1 and (len(self._kept) > _MAX_KEPT or self._kept_bytes() > _MAX_KEPT_BYTES):
            self._put_out()

    def _put_out(self) -> None:
        _, outcome = self._kept.popitem(last=False)
        if outcome is not None:
            os.close(outcome)

    def _kept_bytes(self) -> int:
        return sum(os.fstat(outcome).st_size for outcome in self._kept.values() if outcome is not None)

    async def _compiled(self, program: int) -> int | None:
        size = os.fstat(program).st_size
        if size > _MAX_PROGRAM_BYTES:
            return None
        compiler = _sealed(_beside_the_compiler(os.pread(program, size, 0)))
        try:
            with anyio.move_on_after(_DEADLINE_S):
                async with self._open_jail(compiler, _POLICY) as jailed:
                    outcome = await _all_of(jailed.child.frames_out)
                    ending = await jailed.wait_ended()
                if outcome and isinstance(ending, Exited) and ending.code == 0:
                    return _sealed(outcome)
        finally:
            os.close(compiler)
        return None


def _beside_the_compiler(connector: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(precompile.MAIN, _COMPILER.read_bytes())
        archive.writestr(precompile.CONNECTOR, connector)
    return packed.getvalue()


async def _all_of(fd: int) -> bytes | None:
    """Everything up to the end of the pipe; None if that is more than is wanted."""
    pieces: list[bytes] = []
    left = _MAX_OUTCOME_BYTES
    while left >= 0:
        with contextlib.suppress(BlockingIOError):
            piece = os.read(fd, _READ_BYTES)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            left -= len(piece)
            continue
        await anyio.wait_readable(fd)
    return None


def _sealed(data: bytes) -> int:
    """A memory file of these bytes that nobody can change any more, memfd_create(2)."""
    fd = os.memfd_create("connector with bytecode", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(fd)
        raise
    return fd
