"""A connector's verified bytes, for whoever starts a jail with them.

Runs in the daemon. Not here: where they lie and how they are verified (registry/content.py).
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
    """One connector's bytes, verified."""

    @property
    def program_fd(self) -> int:
        """A sealed descriptor of exactly the bytes that were hashed."""
        ...

    @property
    def kind(self) -> Kind:
        """`python` for a zip application, `elf` for a program."""
        ...

    @property
    def stamp(self) -> object:
        """That of its files before they were read (`ConnectorStore.stamp`)."""
        ...


class ConnectorStore(Protocol):
    """Where verified connector bytes come from."""

    def open(self, pin: ConnectorPin) -> AbstractContextManager[Program]:
        """Read once, hash those bytes, seal them. AileronError hash_mismatch or not_found."""
        ...

    def open_kept(self, pin: ConnectorPin) -> AbstractContextManager[Program] | None:
        """The same from bytes that were verified before, where they are small and nobody has touched their files since; None for
        all others. Reads nothing, so it may be called on the event loop.
        """
        ...

    def stamp(self, pin: ConnectorPin) -> object:
        """Other whenever its files were touched; None where they are not there."""
        ...

    def known_kind(self, pin: ConnectorPin) -> Kind | None:
        """What kind of program it was when it was last verified, without reading it again; None for one not seen yet."""
        ...


async def opened(store: ConnectorStore, pin: ConnectorPin) -> AbstractContextManager[Program]:
    """The bytes of `pin`, for one jail. AileronError hash_mismatch or not_found."""
    kept = store.open_kept(pin)
    if kept is not None:
        return kept
    # In a thread: a connector may be 64 MiB, and hashing it must not hold up every other run.
    return await in_thread(store.open, pin)


async def runtime_of(pin: ConnectorPin, kind: Kind, program: int) -> ElfRuntime | None:
    """What a compiled program needs to see, None for Python; AileronError where this machine does not have it."""
    if kind == "python":
        return None
    try:
        return await in_thread(ElfRuntime.of_program, program)
    except JailUnavailable as error:
        raise AileronError(FailureClass.SANDBOX_UNAVAILABLE, f"{pin}: {error}", boundary=Boundary.SANDBOX) from error
