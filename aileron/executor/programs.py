"""The interface to a connector's verified program, for the code that starts a jail with it.

Runs in the daemon. Not here: the files, and their verification (registry/content.py).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal, Protocol

from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.plan import ConnectorPin
from aileron.threads import in_thread
from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.unavailable import JailUnavailable

__all__ = ["ConnectorStore", "Kind", "Program", "opened", "runtime_of"]

Kind = Literal["python", "elf"]


class Program(Protocol):
    """A connector's verified bytes."""

    @property
    def program_fd(self) -> int:
        """Sealed descriptor of exactly the hashed bytes."""
        ...

    @property
    def kind(self) -> Kind:
        """Kind of program: `python` for a zip application, `elf` for a compiled program."""
        ...

    @property
    def stamp(self) -> object:
        """Stamp of the connector's files, taken before they were read; see `ConnectorStore.stamp`."""
        ...


class ConnectorStore(Protocol):
    """Interface to the store that verified connector bytes come from."""

    def open(self, pin: ConnectorPin) -> AbstractContextManager[Program]:
        """Read the files of the connector `pin` once, hash the bytes, and seal them. Raises AileronError: hash_mismatch
        or not_found.
        """
        ...

    def open_kept(self, pin: ConnectorPin) -> AbstractContextManager[Program] | None:
        """Return the bytes of the connector `pin` that are kept in memory from an earlier verification, if its files
        have not changed since; else None. Reads no file, so it can be called on the event loop.
        """
        ...

    def stamp(self, pin: ConnectorPin) -> object:
        """Return a value that changes whenever the connector's files are touched; None if the files are missing."""
        ...

    def known_kind(self, pin: ConnectorPin) -> Kind | None:
        """Return the kind of program found by the last verification, without reading the program again. None if the
        program was never verified.
        """
        ...


async def opened(store: ConnectorStore, pin: ConnectorPin) -> AbstractContextManager[Program]:
    """Open the verified bytes of the connector `pin`, for one jail. Raises AileronError: hash_mismatch or not_found."""
    kept = store.open_kept(pin)
    if kept is not None:
        return kept
    # In a thread: a connector may be 64 MiB, and hashing it must not hold up every other run.
    return await in_thread(store.open, pin)


async def runtime_of(pin: ConnectorPin, kind: Kind, program: int) -> ElfRuntime | None:
    """Return the libraries that a compiled program needs in its jail; None for Python. Raises AileronError if this
    machine lacks one.
    """
    if kind == "python":
        return None
    try:
        return await in_thread(ElfRuntime.of_program, program)
    except JailUnavailable as error:
        raise AileronError(FailureClass.SANDBOX_UNAVAILABLE, f"{pin}: {error}", boundary=Boundary.SANDBOX) from error
