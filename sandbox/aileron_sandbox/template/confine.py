"""The steps that confine one child, in order. They implement what the jail promises.

Runs in the child, between the fork and the first line of the program, in a process that is already in the template's
namespaces and root, cannot gain privileges, and is pid 1 of its own pid namespace.

Rules
- Every step succeeds or raises an error. No step warns, none is skipped, and no error is handled here: the caller reports the
  step's name and ends the child.
- The order matters; a comment at each step says why.

Source: docs/explanation/jail.md; nsjail's contain.cc is the model of the form. Not here: the steps that the template takes once
for all children (__main__.py).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from aileron_sandbox import kernel
from aileron_sandbox.policy import Mode, Profile
from aileron_sandbox.template import compiled, descriptors, limits, mounts, namespaces, privileges, program_places
from aileron_sandbox.template.template_messages import Spawn

__all__ = ["Given", "Prepared", "Step", "ahead", "refuse_network", "steps"]


class Prepared(NamedTuple):
    """The parts that the template prepared once for all children: descriptors, and values that a child cannot read for itself."""

    proc: int
    status: int
    ruleset: int
    network: kernel.Filter
    is_watched: bool
    """True if the template is notified of the calls in filters.NETWORK, and so receives a listener from each child."""
    profiles: Mapping[Profile, kernel.Filter]
    base: tuple[int, int]
    last_capability: int
    mode: Mode = "namespaces"
    is_compiled: bool = False
    """True if children exec their program; False if they are the interpreter that runs it."""
    place: program_places.Place | None = None
    """The mounts for this child's program. They are needed if the program is compiled, and other processes could attach
    to it if it were stored anywhere else.
    """
    group: limits.Group | None = None
    """The child's control group, if the host can make control groups."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that the steps of the confinement need to be open. The last step closes the status pipe, and
        the step "close" all other descriptors.
        """
        return (
            self.proc,
            self.status,
            self.ruleset,
            *(self.place or ()),
            *(self.group.descriptors if self.group else ()),
        )


class Given(NamedTuple):
    """The descriptors that the host sent with a `Spawn`."""

    program: int
    frames_in: int
    frames_out: int
    log: int


Step = tuple[str, Callable[[], None]]


def ahead(prepared: Prepared) -> Iterator[Step]:
    """Yield the steps of the confinement that do not depend on a child's program and limits, as (name, step), in the
    order in which they must run.
    """
    ids = namespaces.INSIDE_ID
    # First: a page stays charged to the group of the process that touched it first, cgroup-v2.rst "Memory Ownership". And ahead,
    # because the kernel may need 10 ms for it (measured; it waits once for every processor, unless this was just done).
    if prepared.group is not None:
        yield "control group", prepared.group.enter
    # /proc/self/uid_map belongs to root for an undumpable process, proc(5); undone below.
    yield "dumpable", lambda: privileges.set_dumpable(True)
    # A user namespace of its own: capabilities for the mounts below, valid nowhere else, and RLIMIT_NPROC of its own.
    yield "namespaces", lambda: kernel.unshare(namespaces.CHILD)
    yield "id maps", lambda: namespaces.map_ids(prepared.proc, ids, ids)
    # The template reads it when the program names an address. Open it now: that of an undumpable process cannot be opened.
    memory: list[int] = []
    if prepared.is_watched:
        yield "memory", lambda: memory.append(os.open("self/mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=prepared.proc))
    # Before the child waits: another process of this user could attach to a dumpable one, and run what it likes in it.
    yield "undumpable", lambda: privileges.set_dumpable(False)
    yield "session", privileges.leave_session
    # The set that bounds the capabilities that an exec may give; the capabilities themselves are needed for the mounts.
    yield "bounding set", lambda: kernel.drop_bounding_set(prepared.last_capability)
    # Last here: the steps after it make none of these calls.
    yield "network", lambda: refuse_network(prepared, memory)


def steps(prepared: Prepared, given: Given, spawn: Spawn) -> Iterator[Step]:
    """Yield the steps of the confinement that follow those of `ahead` and concern one program, as (name, step), in the
    order in which they must run.
    """
    # First: the memory used from here on may be large.
    group = prepared.group
    if group is not None:
        yield "memory limit", lambda: group.bound(spawn.group_bytes)
        if spawn.profile == "elf-subprocess":  # for a single process RLIMIT_CPU is enough
            yield "processor time", group.enter_all
    # 0, 1 and 2 are the template's until here.
    yield "descriptors", lambda: descriptors.arrange(given.frames_in, given.frames_out, given.log)
    # Mounts before Landlock, which refuses mount(2), and before the capabilities go.
    yield "scratch", lambda: mounts.mount_scratch(spawn.scratch_bytes, spawn.scratch_files)
    if prepared.place is None:
        mode = mounts.EXECUTE_ONLY if prepared.is_compiled else mounts.READ_ONLY
        yield "program", lambda: mounts.mount_program(given.program, spawn.program_bytes, mode)
    else:
        place = prepared.place
        yield "program", lambda: mounts.mount_program_at(*place, given.program, spawn.program_bytes)
    yield "working directory", lambda: os.chdir(mounts.SCRATCH)
    # After the user namespace (RLIMIT_NPROC) and after the program is written (RLIMIT_FSIZE).
    yield "limits", lambda: limits.apply_limits(spawn, prepared.base)
    yield "landlock", lambda: kernel.landlock_restrict_self(prepared.ruleset)
    yield "capabilities", kernel.drop_capabilities
    yield "close", lambda: descriptors.close_all_but(prepared.status)
    # Last, so that the list need not allow what the steps above did.
    yield "seccomp", prepared.profiles[spawn.profile].install
    if prepared.is_compiled:
        # The status pipe is close-on-exec: a program that the kernel refuses can be reported, and no program finds the pipe.
        yield "exec", lambda: compiled.run(mounts.PROGRAM)
    # From here on a failure cannot be reported.
    yield "status", lambda: os.close(prepared.status)


def refuse_network(prepared: Prepared, memory: list[int]) -> None:
    """Install the filter that stops system calls that would reach a network. If the template answers them, send it the
    filter's listener and the descriptor in `memory`.
    """
    if not prepared.is_watched:
        prepared.network.install()
        return
    handed_over = [prepared.network.install_with_listener(), *memory]
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=descriptors.DOOR)
    try:
        socket.send_fds(door, [b"W"], handed_over)
    finally:
        door.detach()
        for fd in handed_over:
            os.close(fd)
