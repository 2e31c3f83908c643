"""Where a compiled program lies: on a mount whose files belong to nobody, so that nobody can attach to what it becomes.

A Python child is not dumpable, and the memory it was born with belongs to the host's user namespace, in which another process
of the same user has no capability. An exec changes both: the program would be dumpable, and its memory would belong to the
child's own user namespace, in which the user who made it has every capability. A process of that user could attach, and speak
for the program to the supervisor. Where the host is root, jails have an id that no other process has, and need no such place.

The kernel makes one exception, for files that the process may execute and not read: it is not dumpable, and its memory belongs
to the nearest user namespace that knows the file's owner, execve(2) and `would_dump` of fs/exec.c. So a program is executable
and not readable, and lies on a mount that shows owners no namespace knows; then the nearest one is the host's first.

    template: tmpfs ── mounted on /app for a moment, copied, the copy mapped ──> (to write to, to mount), neither mounted
    child:    write the program to the first, mount the second on /app, read-only

The price: the template cannot look into that memory either. Where such a program wanted to connect, only it knows (attempts.py).

Needs tmpfs with mapped ids, Linux 6.3. Where that is missing, a program lies on a mount of its child's, and `Maker.maybe_begin`
says so by None.

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
"""64 MiB is what a program may have."""
_ATTRIBUTES: Final = kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV


class Place(NamedTuple):
    """Two descriptors of mounts of one tmpfs."""

    to_write: int
    to_mount: int

    def close(self) -> None:
        """Give them back; what is mounted stays."""
        for fd in self:
            os.close(fd)


class Maker:
    """The template's: makes a place for each child before it is forked."""

    def __init__(self, strangers: int) -> None:
        self._strangers = strangers  # a user namespace that does not know our id

    @classmethod
    def maybe_begin(cls, proc: int) -> Self | None:
        """Try it out, a child included. None where this kernel cannot."""
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
        """An empty one. Nobody else may fork or mount meanwhile, which in a process of one thread nobody does."""
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
    """In a child of its own: what every child does with its place."""
    with contextlib.suppress(OSError):
        kernel.unshare(namespaces.CHILD)
        namespaces.map_ids(proc, namespaces.INSIDE_ID, namespaces.INSIDE_ID)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        mounts.mount_program_at(place.to_write, place.to_mount, null, 0)
        os._exit(0)
    os._exit(1)


def _user_namespace_without_us(proc: int) -> int:
    """A descriptor of a user namespace below this one, whose only id is 0 and stands for ours: it has no 1000."""
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
