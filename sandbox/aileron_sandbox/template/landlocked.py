"""The jail without namespaces, for machines that forbid them: the host's own file system, process table and network stack,
behind Landlock and seccomp alone. The user chooses this mode; it is never a fallback.

The parts of the jail that remain, and what enforces them:

| | by |
|---|---|
| of the host's files, only the standard library, its libraries and the SDK can be read, and none can be changed | Landlock |
| no socket, so no network and no sockets of other processes | the filters, and Landlock for TCP a second time |
| no other process can be signalled, traced, or given another priority | the filters (no `tgkill` here), Landlock's scope |
| one process, which ends with the template | the filters (no fork), PR_SET_PDEATHSIG |

The parts that are missing: the program can see names, sizes and owners of the host's files, the host's processes, and
the host's name; it has no scratch directory; its threads are not bounded, because RLIMIT_NPROC would count all
processes of the user. docs/explanation/jail.md has the whole list.

For Python only, because the child must stay the undumpable process that was forked. Runs in the template and in its
children, like confine.py, with the same rules. Source: landlock(7), prctl(2).
"""

from __future__ import annotations

import errno
import importlib.machinery
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Final

from aileron_sandbox import kernel
from aileron_sandbox.template import confine, descriptors, landlock, limits, namespaces, privileges
from aileron_sandbox.template.template_messages import Preparation, Spawn

__all__ = [
    "LAYERS",
    "LEAST_ABI",
    "PROGRAM",
    "ahead",
    "become_unprivileged",
    "build_ruleset",
    "find_packages",
    "rehearsal",
    "steps",
]

LEAST_ABI: Final = 4
"""Minimum Landlock ABI: 4, Linux 6.7. ABI 3 protects files from truncation; 4 protects TCP ports, in case the filters
ever fail.
"""
LAYERS: Final = ("no-namespaces", "no-capabilities", "no-new-privs", "rlimits")
PROGRAM_AT: Final = descriptors.FRAMES_OUT + 1
PROGRAM: Final = f"/proc/self/fd/{PROGRAM_AT}"
"""Path of the program's verified bytes, which are in a sealed memory file, open for reading. This mode has no mount on
which to store them as a file.
"""
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")


def become_unprivileged(uid_map: str, last_capability: int) -> None:
    """Give up root's privileges and ids, like the mode with namespaces (namespaces.available_jail_uid). Must be
    called in the template.
    """
    if os.geteuid() != 0:
        return
    uid = namespaces.available_jail_uid(uid_map)
    kernel.drop_bounding_set(last_capability)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def build_ruleset(preparation: Preparation, abi: int) -> int:
    """Return a descriptor of a ruleset that allows reading, by their host paths, the files that a jail with
    namespaces has in its root.

    Raises OSError EOPNOTSUPP below LEAST_ABI.
    """
    if abi < LEAST_ABI:
        raise OSError(
            errno.EOPNOTSUPP,
            f"without namespaces, Landlock ABI {LEAST_ABI} is required (Linux 6.7); this kernel has {abi}",
        )
    ruleset = landlock.empty_ruleset(abi)
    paths = [*preparation.libraries, *preparation.packages.values(), preparation.stdlib]
    if preparation.zones is not None:
        paths.append(preparation.zones)
    for path in paths:
        landlock.allow_reading(ruleset, path)
    for device in _DEVICES:
        landlock.allow_device(ruleset, f"/dev/{device}")
    return ruleset


class _Packages:
    """A finder in `sys.meta_path` for the host's packages. It maps names to paths, because the directories that contain
    the packages cannot be listed.

    Keys of `packages` are paths relative to `/sdk` in a jail with namespaces, such as `pkg` or `pkg/module.py`; values
    are host paths.
    """

    def __init__(self, packages: Mapping[str, str]) -> None:
        self._files = {
            name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
            for name, path in packages.items()
        }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of one of the host's packages or modules; None for any other."""
        found = self._files.get(fullname)
        if found is None:
            return None
        if os.path.isdir(found):
            return importlib.util.spec_from_file_location(
                fullname, f"{found}/__init__.py", submodule_search_locations=[found]
            )
        is_package = found.endswith("/__init__.py")
        return importlib.util.spec_from_file_location(
            fullname, found, submodule_search_locations=[] if is_package else None
        )


def rehearsal(data: bytes) -> str:
    """Store `data`, a program that does nothing, in a memory file, and return its path. The path is valid as long as the
    template lives (program.rehearse).
    """
    fd = os.memfd_create("rehearsal", os.MFD_CLOEXEC)
    os.write(fd, data)
    return f"/proc/self/fd/{descriptors.out_of_the_way(fd)}"


def find_packages(packages: Mapping[str, str]) -> None:
    """Make `packages` importable in this process and its forks."""
    sys.meta_path.append(_Packages(packages))


def ahead(prepared: confine.Prepared) -> Iterator[confine.Step]:
    """Yield the steps of the confinement that do not depend on a child's program and limits, like confine.ahead."""
    # First: this process is in no namespace that would end with the template.
    template = os.getppid()
    yield "parent", lambda: _die_with(template)
    yield "dumpable", lambda: privileges.set_dumpable(True)
    memory: list[int] = []
    if prepared.is_watched:
        yield "memory", lambda: memory.append(os.open("self/mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=prepared.proc))
    yield "undumpable", lambda: privileges.set_dumpable(False)
    yield "session", privileges.leave_session
    yield "network", lambda: confine.refuse_network(prepared, memory)


def steps(prepared: confine.Prepared, given: confine.Given, spawn: Spawn) -> Iterator[confine.Step]:
    """Yield the steps of the confinement for one program, like confine.steps but without an exec, which would open the
    child to the user's other processes (ADR 34).
    """
    yield "descriptors", lambda: descriptors.arrange(given.frames_in, given.frames_out, given.log)
    yield "program", lambda: _open_program(prepared.proc, given.program)
    yield "working directory", lambda: os.chdir("/")
    yield "limits", lambda: limits.apply_limits(spawn, prepared.base, counts_processes=False)
    yield "landlock", lambda: kernel.landlock_restrict_self(prepared.ruleset)
    yield "capabilities", kernel.drop_capabilities
    yield "close", lambda: descriptors.close_all_but(prepared.status, PROGRAM_AT)
    yield "seccomp", prepared.profiles[spawn.profile].install
    yield "status", lambda: os.close(prepared.status)


def _die_with(template: int) -> None:
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != template:
        raise ProcessLookupError(errno.ESRCH, "the template has ended")


def _open_program(proc: int, program: int) -> None:
    """Open the program's memory file again, read-only, as descriptor PROGRAM_AT. The host's descriptor `program` is
    writable, and only the file's seals protect it.
    """
    opened = os.open(f"self/fd/{program}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    os.dup2(opened, PROGRAM_AT, inheritable=False)
    os.close(opened)
