"""The mount that stores a compiled program: its files have no known owner, so that no other process can attach to the
running program.

A Python child is not dumpable, and the memory it has from its fork belongs to the host's user namespace, in which
another process of the same user has no capability. An exec changes both: the program would be dumpable, and its
memory would belong to the child's own user namespace, in which the user who made it has every capability. A process
of that user could attach, and send frames to the supervisor in the program's name. If the host is root, jails have an
id that no other process has, and need no such place.

The kernel makes one exception, for files that the process may execute and not read: the process is not dumpable, and
its memory belongs to the nearest user namespace that knows the file's owner, execve(2) and `would_dump` of fs/exec.c.
So a program is executable and not readable, and is on a mount that shows owners that no namespace knows; the nearest
namespace is then the initial one.

    template: tmpfs ── mounted on /app for a moment, copied, the copy mapped ──> (to write to, to mount), neither mounted
    child:    write the program to the first, mount the second on /app, read-only

The price: the template cannot read that memory either, so it does not know which destination such a program tried to
reach (attempts.py).

Needs tmpfs with mapped ids, Linux 6.3. If that is missing, `Maker.maybe_begin` returns None, and a program is on a
mount of its child.

Source: mount_setattr(2) on ID-mapped mounts, user_namespaces(7). Not here: copying the bytes (mounts.py).
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Final, NamedTuple, Self

from aileron_sandbox import kernel
from aileron_sandbox.template import descriptors, mounts, namespaces

__all__ = ["Maker", "Place"]

_OPTIONS: Final = {"size": f"{(64 << 20) + 8192}", "nr_inodes": "4", "mode": "0755"}
"""Mount options of the tmpfs, with room for a program of 64 MiB, the maximum."""
_ATTRIBUTES: Final = kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV


class Place(NamedTuple):
    """A small tmpfs for one compiled program, as two descriptors of its mounts: one for writing, one for mounting."""

    to_write: int
    to_mount: int

    def close(self) -> None:
        """Close the descriptors. A mount made from them stays."""
        for fd in self:
            os.close(fd)


class Maker:
    """The template's maker of places (tmpfs mounts) for compiled programs. It makes one place for each child before the
    child is forked.
    """

    def __init__(self, strangers: int) -> None:
        self._strangers = strangers  # a user namespace that does not know our id

    @classmethod
    def maybe_begin(cls, proc: int) -> Self | None:
        """Return a maker of places for compiled programs, tested with a child. None if this kernel does not support
        such places.
        """
        try:
            maker = cls(_user_namespace_without_us(proc))
            place = maker.make()
        except OSError:
            return None
        pid = os.fork()
        if pid == 0:
            _try(proc, place)
        place.close()
        return maker if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 else None

    def make(self) -> Place:
        """Make an empty tmpfs for one compiled program, and return its place. No other thread may fork or mount
        meanwhile; the template has only one thread.
        """
        with contextlib.ExitStack() as undo:
            to_write = descriptors.out_of_the_way(kernel.new_tmpfs(_OPTIONS))
            undo.callback(os.close, to_write)
            kernel.move_mount(to_write, mounts.APP)
            try:
                to_mount = descriptors.out_of_the_way(kernel.copy_mount(mounts.APP))
            finally:
                kernel.detach(mounts.APP)
            undo.callback(os.close, to_mount)
            kernel.map_mount_ids(to_mount, self._strangers, _ATTRIBUTES)
            undo.pop_all()
        return Place(to_write, to_mount)


def _try(proc: int, place: Place) -> None:
    """Mount a program on `place` as every child does, and exit with 0 if that works. Runs in a separate child process."""
    with contextlib.suppress(OSError):
        kernel.unshare(namespaces.CHILD)
        namespaces.map_ids(proc, namespaces.INSIDE_ID, namespaces.INSIDE_ID)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        mounts.mount_program_at(place.to_write, place.to_mount, null, 0)
        os._exit(0)
    os._exit(1)


def _user_namespace_without_us(proc: int) -> int:
    """Make a user namespace below this one, and return its descriptor. Its only id is 0, which maps to this process's
    id. The id 1000 does not exist in it.
    """
    ours, theirs = socket.socketpair()
    with ours:
        pid = os.fork()
        if pid == 0:
            _become_and_send(proc, theirs)
        theirs.close()
        try:
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        finally:
            os.waitpid(pid, 0)
    if not fds:
        raise OSError("no user namespace was available")
    return fds[0]


def _become_and_send(proc: int, door: socket.socket) -> None:
    with contextlib.suppress(OSError):
        kernel.unshare(kernel.CLONE_NEWUSER)
        namespaces.map_ids(proc, namespaces.INSIDE_ID, namespaces.INSIDE_ID, inside=0)
        socket.send_fds(door, [b"n"], [os.open("self/ns/user", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)])
    os._exit(0)
