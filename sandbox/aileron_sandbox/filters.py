"""The seccomp filters of jails, cells and helper processes, compiled ahead of time to BPF bytes.

Runs on the host, once per start, because importing pyseccomp and compiling take 15 ms; never imported in a process that
forks children. The bytes are kept in memory: a cache file that the same user can write would be a way
into the jail.

A child gets two filters, and the stricter result of the two counts (seccomp(2)):

1. `compile_network`: the calls by which a program reaches a network. With `watched`, the kernel notifies the template,
   which answers in the kernel's place (template/attempts.py); otherwise the call fails with EACCES. Either way none of
   these calls is executed. The filter also notifies of the end of a process (`ENDS`), so that a process ends only after
   its earlier calls were answered.
2. `compile_profile`: the allow list of the child's profile. It allows the calls that the first filter answers.

`compile_server` makes an allow list for processes that serve unknown clients at the daemon's ports, and
`compile_login` one for processes that log in. A cell contains tools that are not known beforehand, so `compile_cell`
makes a deny list of calls that affect the machine or gain privilege. Other calls work in a cell as on the host,
except calls newer than this file, which do not exist there (ENOSYS).

Rules of all lists but a cell's
- They are allow lists: a call that is not listed fails with EPERM. (A KILL default ends honest programs on a stray prctl:
  measured.)
- The same applies to flags. Where an argument selects what the kernel does, the list has its allowed values.
- A program can create no socket that can name a peer. `socketpair(AF_UNIX)` is allowed: event loops wake themselves
  with one. A jailed program can call `setsockopt` only for TCP options, which the network filter handles:
  SO_ATTACH_FILTER would compile a program of the caller into the kernel.
- `KILLED` has the calls that no honest program makes; they are answered with SIGSYS.
- Native ABI only: i386 and x32 entries are killed (libseccomp's bad-architecture action).
- Landlock does not cover metadata (chmod, chown, utimes), other processes, or non-file objects: the calls for them are
  not on the list.

Source: seccomp(2), seccomp_unotify(2), libseccomp 2.5; docs/reference/jail.md and cell.md list the tables and tests compare.
"""

from __future__ import annotations

import errno
import functools
import itertools
import operator
import os
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aileron_sandbox.libseccomp import import_pyseccomp
from aileron_sandbox.template.descriptors import DOOR

if TYPE_CHECKING:  # its dataclass takes 11 ms in an interpreter that has imported nothing: a cell's (cell/stub.py)
    from aileron_sandbox.policy import Mode, Profile

__all__ = [
    "ALLOWED",
    "ALLOWED_MORE",
    "ANSWERED",
    "CELL_REFUSED",
    "CELL_REFUSED_WHERE",
    "ENDS",
    "KILLED",
    "LOGIN",
    "LOGIN_SOME_ARGUMENTS",
    "NETWORK",
    "NEWEST_CALL",
    "ONLY_ALONE",
    "SERVER",
    "SERVER_SOME_ARGUMENTS",
    "SOME_ARGUMENTS",
    "SOME_ARGUMENTS_MORE",
    "Refusal",
    "compile_cell",
    "compile_login",
    "compile_network",
    "compile_profile",
    "compile_server",
]

ALLOWED: Final = tuple(
    """
    read write readv writev pread64 pwrite64 lseek close dup dup2 dup3 pipe poll ppoll select pselect6
    epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd eventfd2 timerfd_create timerfd_settime timerfd_gettime
    creat newfstatat fstat stat lstat statx access faccessat faccessat2 readlink readlinkat getcwd getdents64
    chdir fchdir mkdir mkdirat rmdir unlink unlinkat rename renameat symlink symlinkat truncate ftruncate
    fsync fdatasync umask flock
    munmap brk
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack pause alarm
    getitimer setitimer set_robust_list set_tid_address rseq sched_yield
    sched_getaffinity getcpu nanosleep gettimeofday time times
    getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid getgroups getpgrp getpgid getsid
    uname sysinfo getrandom getrusage getrlimit exit exit_group restart_syscall tgkill
    getsockname getpeername shutdown
    """.split()
)
"""Calls that every profile allows with any arguments. A call that an architecture lacks is skipped on it.

None of them has an argument that selects another part of the kernel. Their arguments, if any, are sizes, addresses, or
flags of which the kernel itself knows only harmless ones (O_CLOEXEC, O_NONBLOCK and the like for dup3, eventfd2,
epoll_create1 and timerfd_create; how a path is walked for the `at` calls; three values for shutdown). All other allowed
calls are in SOME_ARGUMENTS.
"""

_EXECUTE: Final = ("execve", "execveat")
_PROCESSES: Final = ("fork", "vfork", "wait4", "waitid", "kill", "setpgid", "setsid")
ALLOWED_MORE: Final[dict[Profile, tuple[str, ...]]] = {
    "python": (),
    # The child becomes the program by one of these. All else that it can execute is in the root, read-only: loader and libraries.
    "elf": _EXECUTE,
    "elf-subprocess": _EXECUTE + _PROCESSES,
}
"""Additional allowed calls, by profile."""

ONLY_ALONE: Final = ("tgkill",)
"""Calls of ALLOWED that the mode `landlock` forbids: without its own pid namespace, a process could affect other
processes with them.
"""

ANSWERED: Final = {
    "socket": errno.EACCES,
    "bind": errno.EACCES,  # met by libraries that probe for IPv6
    "clone3": errno.ENOSYS,  # its flags are in memory a filter cannot read; glibc falls back to clone
    "listxattr": errno.ENOTSUP,  # shutil.copy tolerates this and nothing else
    "llistxattr": errno.ENOTSUP,
    "flistxattr": errno.ENOTSUP,
}
"""Calls that fail with an errno that honest libraries understand. All other calls that are not listed fail with EPERM."""

KILLED: Final = tuple(
    """
    ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise
    mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick open_tree move_mount mount_setattr
    unshare setns bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
    keyctl add_key request_key kexec_load kexec_file_load init_module finit_module delete_module
    open_by_handle_at name_to_handle_at swapon swapoff reboot acct quotactl iopl ioperm
    """.split()
)
"""Calls that no honest connector makes. They end the process with SIGSYS."""

_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_IPPROTO_TCP: Final = 6
_LOW_32_BITS: Final = 0xFFFFFFFF
_ALL_BITS: Final = (1 << 64) - 1
_BAD_ARCH, _CTL_OPTIMIZE, _BINARY_TREE = 2, 8, 2  # seccomp_attr_set(3)

NETWORK: Final = {
    "socket": "of `AF_INET` or `AF_INET6`",
    "connect": "always",
    "sendto": "with an address",
    "sendmsg": f"but on descriptor {DOOR}",
    "sendmmsg": "always",
    "setsockopt": "of `IPPROTO_TCP`",
}
"""System calls that the network filter answers, each with its condition in words."""
ENDS: Final = "exit_group"
"""The call that ends a process. The template is notified of it, and always allows it. Ending a process withdraws the
pending notifications of its other threads and, if it is the child's first process, of the child's other processes.
Notifications are answered in order, so the end comes after all of them. Without `watched` the call is simply allowed.
"""


class Only(NamedTuple):
    """A condition on one argument of a system call, given by position: its bits under the mask `looked_at` must equal
    one of the values.
    """

    argument: int
    looked_at: int
    values: tuple[int, ...]


def _flags(argument: int, *allowed: int, bits: int = _LOW_32_BITS) -> Only:
    """Return the condition that argument number `argument` has no flag set except the flags in `allowed`. `bits` is the
    mask of the bits that the kernel reads: 32 bits of an int, 64 of a long.
    """
    return Only(argument, bits & ~functools.reduce(operator.or_, allowed, 0), (0,))


def _without(argument: int, *refused: int) -> Only:
    return Only(argument, functools.reduce(operator.or_, refused), (0,))


def _one_of(argument: int, *values: int) -> Only:
    """Return the condition that argument number `argument` has one of these values, in all 64 bits. The kernel reads
    only 32 bits of most arguments, and no library sets the others.
    """
    return Only(argument, _ALL_BITS, values)


_Conditions = tuple[Only, ...]
"""Conditions that must all hold."""

_IS_X86: Final = os.uname().machine == "x86_64"
_O_LARGEFILE: Final = 0o100000 if _IS_X86 else 0o400000
_PROT: Final = 0x1 | 0x2 | 0x4 | (0 if _IS_X86 else 0x10 | 0x20)  # read, write, exec; on arm64 BTI and MTE
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS, _MAP_32BIT = 0x1, 0x2, 0x10, 0x20, 0x40
_MAP_DENYWRITE, _MAP_EXECUTABLE, _MAP_NORESERVE, _MAP_POPULATE = 0x800, 0x1000, 0x4000, 0x8000
_MAP_NONBLOCK, _MAP_STACK, _MAP_FIXED_NOREPLACE = 0x10000, 0x20000, 0x100000
_MREMAP_MAYMOVE: Final = 1
_FUTEX_PRIVATE, _FUTEX_REALTIME = 128, 256
_FUTEX_PLAIN: Final = (0, 1, 3, 4, 5, 9, 10)  # WAIT, WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, WAIT_BITSET, WAKE_BITSET
_MSG_PEEK, _MSG_TRUNC, _MSG_DONTWAIT, _MSG_WAITALL, _MSG_NOSIGNAL = 0x2, 0x20, 0x40, 0x100, 0x4000
_SOL_SOCKET: Final = 1
_SO_READ: Final = (3, 4, 7, 8, 30, 38, 39)  # TYPE, ERROR, SNDBUF, RCVBUF, ACCEPTCONN, PROTOCOL, DOMAIN
_SOCK_STREAM, _SOCK_NONBLOCK, _SOCK_CLOEXEC = 1, 0o4000, 0o2000000
_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_SETFL, _F_GETLK, _F_SETLK, _F_SETLKW = range(8)
_F_DUPFD_CLOEXEC, _F_GETPIPE_SZ = 1030, 1032
_FIOCLEX, _FIONCLEX, _TCGETS, _FIONREAD, _FIONBIO, _TIOCGWINSZ = 0x5451, 0x5450, 0x5401, 0x541B, 0x5421, 0x5413
_PR_SET_NAME, _PR_GET_NAME = 15, 16
_ARCH_SET_FS, _ARCH_GET_FS = 0x1002, 0x1003
_CLOSE_RANGE_CLOEXEC: Final = 4
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2
_RENAME_NOREPLACE: Final = 1
_AT_EMPTY_PATH: Final = 0x1000
_MADVICE: Final = (
    *range(5),  # NORMAL, RANDOM, SEQUENTIAL, WILLNEED, DONTNEED
    8, 10, 11,  # FREE, DONTFORK, DOFORK
    *range(14, 20),  # HUGEPAGE, NOHUGEPAGE, DONTDUMP, DODUMP, WIPEONFORK, KEEPONFORK
    102, 103,  # GUARD_INSTALL, GUARD_REMOVE: stacks of threads, glibc 2.42
)  # fmt: skip
_MEMBARRIER: Final = (0, 8, 16)  # QUERY, PRIVATE_EXPEDITED and its registration: of this process alone
_CLOCK_BITS: Final = 0xF
_CLONE_THREAD: Final = 0x00010000
_CLONE_PLAIN: Final = (
    0x7F  # the signal at the child's end; the next bit is CLONE_NEWTIME in newer calls
    | 0x00000F00  # VM, FS, FILES, SIGHAND
    | 0x00004000  # VFORK
    | _CLONE_THREAD
    | 0x00040000  # SYSVSEM
    | 0x00080000  # SETTLS
    | 0x00100000  # PARENT_SETTID
    | 0x00200000  # CHILD_CLEARTID
    | 0x00400000  # DETACHED, which is ignored
    | 0x01000000  # CHILD_SETTID
)

_MMAP_FLAGS: Final = (
    _MAP_FIXED, _MAP_32BIT, _MAP_DENYWRITE, _MAP_EXECUTABLE, _MAP_NORESERVE, _MAP_POPULATE, _MAP_NONBLOCK, _MAP_STACK,
    _MAP_FIXED_NOREPLACE,
)  # fmt: skip
_NO_OPEN_FLAGS: Final = (os.O_DIRECT, os.O_ASYNC, os.O_NOATIME)

SOME_ARGUMENTS: Final[dict[str, tuple[_Conditions, ...]]] = {
    # No O_NOTIFICATION_PIPE, which makes a queue for watches of it, and no O_DIRECT.
    "pipe2": ((_flags(1, os.O_CLOEXEC, os.O_NONBLOCK),),),
    "open": ((_without(1, *_NO_OPEN_FLAGS),),),
    "openat": ((_without(2, *_NO_OPEN_FLAGS),),),
    "close_range": ((_one_of(2, 0, _CLOSE_RANGE_CLOEXEC),),),
    # F_SETOWN (8) sends signals; O_ASYNC asks for them.
    "fcntl": (
        (
            _one_of(
                1,
                _F_DUPFD,
                _F_GETFD,
                _F_SETFD,
                _F_GETFL,
                _F_GETLK,
                _F_SETLK,
                _F_SETLKW,
                _F_DUPFD_CLOEXEC,
                _F_GETPIPE_SZ,
            ),
        ),
        (_one_of(1, _F_SETFL), _without(2, *_NO_OPEN_FLAGS)),
    ),
    # The kernel reads 32 bits of an ioctl command, seccomp compares 64: mask, or 0x1_0000_5412 would pass for another.
    "ioctl": ((Only(1, _LOW_32_BITS, (_FIOCLEX, _FIONCLEX, _TCGETS, _FIONREAD, _FIONBIO, _TIOCGWINSZ)),),),
    "renameat2": ((_one_of(4, 0, _RENAME_NOREPLACE),),),
    "fallocate": ((_flags(1, _FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE),),),
    # Not DONTNEED: the program could choose which pages of the host's libraries stay in memory.
    "fadvise64": ((_one_of(3, 0, 1, 2),),),
    # No MAP_GROWSDOWN, MAP_DROPPABLE or MAP_HUGETLB, which no limit of ours counts; no MAP_SYNC.
    "mmap": (
        (
            _flags(2, _PROT, bits=_ALL_BITS),
            Only(
                3,
                _ALL_BITS & ~functools.reduce(operator.or_, (*_MMAP_FLAGS, _MAP_ANONYMOUS)),
                (_MAP_PRIVATE, _MAP_SHARED),
            ),
        ),
    ),
    "mprotect": ((_flags(2, _PROT, bits=_ALL_BITS),),),
    "mremap": ((_flags(3, _MREMAP_MAYMOVE, bits=_ALL_BITS),),),
    # No MERGEABLE, by which equal pages of others can be found, and none that reclaims, poisons or punches holes.
    "madvise": ((_one_of(2, *_MADVICE),),),
    "membarrier": ((_one_of(0, *_MEMBARRIER),),),
    # No priority inheritance: the largest part of futex(2), and none that Python, Go, Rust or plain C needs.
    "futex": ((Only(1, _LOW_32_BITS & ~(_FUTEX_PRIVATE | _FUTEX_REALTIME), _FUTEX_PLAIN),),),
    "arch_prctl": ((_one_of(0, _ARCH_SET_FS, _ARCH_GET_FS),),),
    # Sixteen clocks of the machine: a negative number is a clock of another process or of a device.
    "clock_gettime": ((_flags(0, _CLOCK_BITS),),),
    "clock_getres": ((_flags(0, _CLOCK_BITS),),),
    "clock_nanosleep": ((_flags(0, _CLOCK_BITS),),),
    "prlimit64": ((_one_of(0, 0), _one_of(2, 0)),),
    "prctl": ((_one_of(0, _PR_SET_NAME, _PR_GET_NAME),),),
    "socketpair": ((_one_of(0, _AF_UNIX), Only(1, _LOW_32_BITS & ~(_SOCK_NONBLOCK | _SOCK_CLOEXEC), (_SOCK_STREAM,))),),
    # No MSG_OOB. The network filter checks the address.
    "recvfrom": ((_flags(3, _MSG_PEEK, _MSG_TRUNC, _MSG_DONTWAIT, _MSG_WAITALL, _MSG_NOSIGNAL),),),
    "sendto": ((_flags(3, _MSG_DONTWAIT, _MSG_NOSIGNAL), _one_of(4, 0)),),
    "getsockopt": ((_one_of(1, _SOL_SOCKET), _one_of(2, *_SO_READ)),),
    "clone": ((Only(0, (_LOW_32_BITS & ~_CLONE_PLAIN) | _CLONE_THREAD, (_CLONE_THREAD,)),),),
}
"""Calls whose arguments select what the kernel does. A call is allowed if one of its alternatives holds. Masks of 32
bits are for arguments that the kernel reads as an int. docs/reference/jail.md describes the alternatives in words.
"""

SOME_ARGUMENTS_MORE: Final[dict[Profile, dict[str, tuple[_Conditions, ...]]]] = {
    "python": {},
    "elf": {},
    "elf-subprocess": {"clone": ((_flags(0, _CLONE_PLAIN),),)},
}
"""Entries that replace those of SOME_ARGUMENTS, by profile."""

SERVER: Final = tuple(
    """
    read write readv writev close dup dup2 dup3 pipe poll ppoll select pselect6
    epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd eventfd2 timerfd_create timerfd_settime timerfd_gettime
    newfstatat fstat statx munmap brk
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack pause alarm
    getitimer setitimer set_robust_list set_tid_address rseq sched_yield
    sched_getaffinity getcpu nanosleep gettimeofday time times
    getpid getppid gettid getuid geteuid getgid getegid
    uname sysinfo getrandom getrusage getrlimit exit exit_group restart_syscall
    getsockname getpeername listen accept
    """.split()
)
"""Allowed calls of a server that has its listeners already, and opens no file and no connection: the calls of ALLOWED
that do not concern files or other processes, and those that accept connections. It can only use sockets that it
inherited or accepted, and socket pairs.
"""
_SERVER_ARGUMENTS: Final = (
    "pipe2", "close_range", "fcntl", "ioctl", "mmap", "mprotect", "mremap", "madvise", "membarrier", "futex", "arch_prctl",
    "clock_gettime", "clock_getres", "clock_nanosleep", "prlimit64", "prctl", "clone",
)  # fmt: skip
_SOCK_SEQPACKET: Final = 5
_SO_WRITE: Final = (7, 8)  # SNDBUF, RCVBUF
_TCP_NODELAY: Final = 1
_MSG_CMSG_CLOEXEC: Final = 0x40000000
_SHUT_WR: Final = 1
_RECEIVE: Final = (_MSG_PEEK, _MSG_TRUNC, _MSG_DONTWAIT, _MSG_WAITALL, _MSG_NOSIGNAL)
_SEND: Final = (_MSG_DONTWAIT, _MSG_NOSIGNAL)
SERVER_SOME_ARGUMENTS: Final[dict[str, tuple[_Conditions, ...]]] = {
    **{name: SOME_ARGUMENTS[name] for name in _SERVER_ARGUMENTS},
    "accept4": ((_flags(3, _SOCK_NONBLOCK, _SOCK_CLOEXEC),),),
    "socketpair": (
        (
            _one_of(0, _AF_UNIX),
            Only(1, _LOW_32_BITS & ~(_SOCK_NONBLOCK | _SOCK_CLOEXEC), (_SOCK_STREAM, _SOCK_SEQPACKET)),
        ),
    ),
    # No SHUT_RD: it ends a listener for every other process that has it, and another program may take the port (inet_shutdown).
    "shutdown": ((_one_of(1, _SHUT_WR),),),
    "recvfrom": ((_flags(3, *_RECEIVE),),),
    "recvmsg": ((_flags(2, *_RECEIVE, _MSG_CMSG_CLOEXEC),),),
    "sendto": ((_flags(3, *_SEND), _one_of(4, 0)),),
    # An address would be in memory that no filter sees; but no socket of the server takes one.
    "sendmsg": ((_flags(2, *_SEND),),),
    "getsockopt": ((_one_of(1, _SOL_SOCKET), _one_of(2, *_SO_READ)),),
    "setsockopt": (
        (_one_of(1, _SOL_SOCKET), _one_of(2, *_SO_WRITE)),
        (_one_of(1, _IPPROTO_TCP), _one_of(2, _TCP_NODELAY)),
    ),
}
"""Calls of a server that are allowed with some arguments, in the form of SOME_ARGUMENTS."""

LOGIN: Final = tuple(name for name in SERVER if name not in ("listen", "accept"))
"""Allowed calls of a process that logs in to a service over a socket that it inherited: the calls of SERVER without
those that accept connections.
"""
LOGIN_SOME_ARGUMENTS: Final = {name: value for name, value in SERVER_SOME_ARGUMENTS.items() if name != "accept4"}
"""Calls of LOGIN that are allowed with some arguments, in the form of SOME_ARGUMENTS."""
_PR_SET_PDEATHSIG: Final = 1
_SECCOMP_SET_MODE_FILTER: Final = 1
_FORKS: Final = ("wait4",)
_FORKS_SOME_ARGUMENTS: Final[dict[str, tuple[_Conditions, ...]]] = {
    "clone": ((_flags(0, _CLONE_PLAIN),),),
    "seccomp": ((_one_of(0, _SECCOMP_SET_MODE_FILTER), _one_of(1, 0)),),
    "prctl": ((_one_of(0, _PR_SET_NAME, _PR_GET_NAME, _PR_SET_PDEATHSIG),),),
}


class Refusal(NamedTuple):
    """A rule of the deny list: the call fails with an errno if all of the conditions hold."""

    errno: int
    where: tuple[Only, ...] = ()
    above: tuple[tuple[int, int], ...] = ()
    """Pairs (argument, number). The condition is that the argument, in all its 64 bits, is greater than the number."""


def _any_of(number: int, argument: int, *bits: int, **more: Any) -> tuple[Refusal, ...]:
    """Return one refusal for each of these bits of an argument. The call fails with errno `number` if one of them is
    set, and the conditions in `more["also"]` hold.
    """
    also = more.get("also", ())
    return tuple(Refusal(number, (Only(argument, bit, (bit,)), *also)) for bit in bits)


_S_ISUID, _S_ISGID = 0o4000, 0o2000
_O_TMPFILE: Final = 0o20000000
"""O_TMPFILE without O_DIRECTORY, because O_DIRECTORY is always part of it and has another number on each architecture."""
_NEW_NAMESPACES: Final = (
    0x00020000,  # CLONE_NEWNS
    0x02000000,  # CLONE_NEWCGROUP
    0x04000000,  # CLONE_NEWUTS
    0x08000000,  # CLONE_NEWIPC
    0x10000000,  # CLONE_NEWUSER
    0x20000000,  # CLONE_NEWPID
    0x40000000,  # CLONE_NEWNET
)
_CLONE_NEWTIME: Final = 0x80
"""A flag of unshare only: in the flags of clone this bit belongs to the signal, clone(2)."""
_AF_NETLINK: Final = 16
_SOCK_TYPES: Final = 0xF
_ODD_TYPES: Final = (3, 4, 5, 6, 10)  # RAW, RDM, SEQPACKET, DCCP, PACKET: of an IP family
_IPPROTO_UDP: Final = 17
_F_SETLEASE, _F_SETDELEG = 1024, 1040
_FIRST: Final = 1
"""Process id of a cell's first process, which runs our code. It is the same in every cell."""
_PRIO_USER, _IOPRIO_WHO_USER = 2, 3
_TIOCSTI, _TIOCLINUX, _TIOCSETD, _TIOCCONS = 0x5412, 0x541C, 0x5423, 0x541D
_ADDR_NO_RANDOMIZE_BIT, _LAST_BIT = 18, 31
_FAMILIES_BELOW_NETLINK: Final = tuple(f for f in range(1, _AF_NETLINK) if f not in (_AF_UNIX, _AF_INET, _AF_INET6))
_IS_FIRST: Final = Only(0, _LOW_32_BITS, (_FIRST,))
_SETS_ID: Final = (_S_ISUID, _S_ISGID)
_IS_IP: Final = Only(0, _LOW_32_BITS, (_AF_INET, _AF_INET6))
_IS_NETLINK: Final = Only(0, _LOW_32_BITS, (_AF_NETLINK,))

CELL_REFUSED: Final[dict[str, int]] = {
    **dict.fromkeys(
        """
        mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick open_tree open_tree_attr move_mount mount_setattr
        setns bpf perf_event_open userfaultfd memfd_secret fanotify_init fanotify_mark open_by_handle_at
        keyctl add_key request_key kexec_load kexec_file_load init_module finit_module delete_module create_module
        reboot swapon swapoff acct quotactl quotactl_fd syslog settimeofday clock_settime adjtimex clock_adjtime
        iopl ioperm lookup_dcookie nfsservctl vhangup uselib ustat sysfs _sysctl
        """.split(),
        errno.EPERM,
    ),
    # Programs that use these have another way, which they take when the calls do not exist.
    # vmsplice keeps pages that are no longer mapped, and a whole huge page for each byte that is given.
    **dict.fromkeys("clone3 openat2 io_uring_setup io_uring_enter io_uring_register vmsplice".split(), errno.ENOSYS),
}
"""Calls that a cell refuses with any arguments. clone3 and openat2 have their arguments in memory, which a filter cannot read."""

CELL_REFUSED_WHERE: Final[dict[str, tuple[Refusal, ...]]] = {
    "clone": _any_of(errno.EPERM, 0, *_NEW_NAMESPACES),
    "unshare": _any_of(errno.EPERM, 0, *_NEW_NAMESPACES, _CLONE_NEWTIME),
    "chmod": _any_of(errno.EPERM, 1, *_SETS_ID),
    "fchmod": _any_of(errno.EPERM, 1, *_SETS_ID),
    "fchmodat": _any_of(errno.EPERM, 2, *_SETS_ID),
    "fchmodat2": _any_of(errno.EPERM, 2, *_SETS_ID),
    "creat": _any_of(errno.EPERM, 1, *_SETS_ID),
    "mkdir": _any_of(errno.EPERM, 1, *_SETS_ID),
    "mkdirat": _any_of(errno.EPERM, 2, *_SETS_ID),
    "mknod": _any_of(errno.EPERM, 1, *_SETS_ID),
    "mknodat": _any_of(errno.EPERM, 2, *_SETS_ID),
    # If the call creates no file, the mode is whatever the register had.
    "open": tuple(
        refusal
        for flag in (os.O_CREAT, _O_TMPFILE)
        for refusal in _any_of(errno.EPERM, 2, *_SETS_ID, also=(Only(1, flag, (flag,)),))
    ),
    "openat": tuple(
        refusal
        for flag in (os.O_CREAT, _O_TMPFILE)
        for refusal in _any_of(errno.EPERM, 3, *_SETS_ID, also=(Only(2, flag, (flag,)),))
    ),
    "socket": (
        Refusal(errno.EAFNOSUPPORT, (Only(0, _LOW_32_BITS, _FAMILIES_BELOW_NETLINK),)),
        Refusal(errno.EAFNOSUPPORT, above=((0, _AF_NETLINK),)),
        Refusal(errno.EPERM, (_IS_IP, Only(1, _SOCK_TYPES, _ODD_TYPES))),
        Refusal(errno.EPROTONOSUPPORT, (_IS_IP,), above=((2, _IPPROTO_UDP),)),
        Refusal(errno.EPROTONOSUPPORT, (_IS_NETLINK,), above=((2, 0),)),
    ),
    "socketpair": (
        Refusal(errno.EAFNOSUPPORT, (Only(0, _ALL_BITS, (0,)),)),
        Refusal(errno.EAFNOSUPPORT, above=((0, _AF_UNIX),)),
    ),
    # The kernel reads 32 bits of a command, seccomp compares 64. A lease of a file that the agent can only read blocks writers.
    "fcntl": (Refusal(errno.EPERM, (Only(1, _LOW_32_BITS, (_F_SETLEASE, _F_SETDELEG)),)),),
    "ioctl": (Refusal(errno.EPERM, (Only(1, _LOW_32_BITS, (_TIOCSTI, _TIOCLINUX, _TIOCSETD, _TIOCCONS)),)),),
    # The first process has the agent's uid, and the kernel checks nothing else here.
    "prlimit64": (Refusal(errno.EPERM, (_IS_FIRST,), above=((2, 0),)),),
    **{
        name: (Refusal(errno.EPERM, (_IS_FIRST,)),)
        for name in ("sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")
    },
    "setpriority": (
        Refusal(errno.EPERM, (Only(0, _LOW_32_BITS, (0, 1)), Only(1, _LOW_32_BITS, (_FIRST,)))),
        Refusal(errno.EPERM, (Only(0, _LOW_32_BITS, (_PRIO_USER,)),)),
    ),
    "ioprio_set": (
        Refusal(errno.EPERM, (Only(0, _LOW_32_BITS, (1, 2)), Only(1, _LOW_32_BITS, (_FIRST,)))),
        Refusal(errno.EPERM, (Only(0, _LOW_32_BITS, (_IOPRIO_WHO_USER,)),)),
    ),
    # Any bit but ADDR_NO_RANDOMIZE, unless all 32 are set, which only queries.
    "personality": tuple(
        Refusal(errno.EPERM, (Only(0, 1 << _LAST_BIT | 1 << bit, (value,)),))
        for bit in range(_LAST_BIT)
        for value in ((1 << bit, 1 << _LAST_BIT) if bit != _ADDR_NO_RANDOMIZE_BIT else (1 << _LAST_BIT,))
    ),
}
"""Calls that a cell refuses if one of their conditions holds. docs/reference/cell.md describes the conditions in words."""

NEWEST_CALL: Final = 469
"""Highest system call number that a cell allows: file_setattr, Linux 6.17. Newer calls fail with ENOSYS until a
developer has reviewed them.
"""
_NEWER_THAN_LIBSECCOMP: Final = {
    "quotactl_fd": 443,
    "memfd_secret": 447,
    "fchmodat2": 452,
    "open_tree_attr": 467,
}
"""Numbers of calls that an older libseccomp may not know by name. They are the same on every architecture."""
_X32_BIT: Final = 0x40000000
_BPF_LOAD, _BPF_JUMP_GREATER, _BPF_JUMP_AT_LEAST, _BPF_RETURN = 0x20, 0x25, 0x35, 0x06  # linux/bpf_common.h
_OFFSET_OF_NUMBER: Final = 0  # struct seccomp_data
_SECCOMP_RET_ERRNO: Final = 0x00050000

_Rule = Callable[..., None]


@functools.cache
def compile_profile(profile: Profile, mode: Mode = "namespaces") -> bytes:
    """Compile the allow list of system calls for a profile. Raises OSError or ImportError if libseccomp is missing."""
    pyseccomp = import_pyseccomp()
    program = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.EPERM))
    rule = _rules_of(program)
    for name in ALLOWED + ALLOWED_MORE[profile]:
        if mode == "namespaces" or name not in ONLY_ALONE:
            rule(pyseccomp.ALLOW, name)
    for name in KILLED:
        rule(pyseccomp.KILL_PROCESS, name)
    for name, number in ANSWERED.items():
        if name != "socket":
            rule(pyseccomp.ERRNO(number), name)
    for name, alternatives in (SOME_ARGUMENTS | SOME_ARGUMENTS_MORE[profile]).items():
        _allow_where(rule, name, alternatives)
    _leave_to_the_network_filter(rule)
    return _exported(program)


def compile_server() -> bytes:
    """Compile the allow list of system calls for a server with unknown clients. Raises OSError or ImportError if
    libseccomp is missing.

    The calls in ANSWERED fail with the same errno as in a jail. The calls in KILLED end the process.
    """
    return _outside_a_jail(SERVER, SERVER_SOME_ARGUMENTS)


def compile_login(*, forks: bool) -> bytes:
    """Compile the allow list of system calls for a process that logs in to a service and has all its sockets already.
    With `forks`, compile the list for the parent that forks such processes; each child installs the list without
    `forks` before it reads anything.
    """
    if forks:
        return _outside_a_jail(LOGIN + _FORKS, LOGIN_SOME_ARGUMENTS | _FORKS_SOME_ARGUMENTS)
    return _outside_a_jail(LOGIN, LOGIN_SOME_ARGUMENTS)


@functools.cache
def compile_cell() -> bytes:
    """Compile the deny list of system calls for a cell. Raises OSError or ImportError if libseccomp is missing."""
    pyseccomp = import_pyseccomp()
    program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    rule = _rules_of(program)
    for name, number in CELL_REFUSED.items():
        rule(pyseccomp.ERRNO(number), name)
    for name, refusals in CELL_REFUSED_WHERE.items():
        for refusal in refusals:
            _refuse_where(rule, name, refusal)
    return _without_newer(_exported(program))


def _refuse_where(rule: _Rule, name: str, refusal: Refusal) -> None:
    """Add rules that make the system call `name` fail if the conditions of `refusal` hold: one rule for each
    combination of their values, like `_allow_where`.
    """
    pyseccomp = import_pyseccomp()
    masked = [
        [(condition.argument, pyseccomp.MASKED_EQ, condition.looked_at, value) for value in condition.values]
        for condition in refusal.where
    ]
    above = [[(argument, pyseccomp.GT, value)] for argument, value in refusal.above]
    for compared in itertools.product(*masked, *above):
        rule(pyseccomp.ERRNO(refusal.errno), name, *(pyseccomp.Arg(*comparison) for comparison in compared))


def _without_newer(program: bytes) -> bytes:
    """Return the BPF program preceded by a check that makes calls above NEWEST_CALL fail with ENOSYS. libseccomp cannot
    express a range of call numbers.

    Calls of x32, which have still higher numbers, are left to the program, which ends the process. Calls of another
    architecture are also left to the program if their number is not above NEWEST_CALL; otherwise they fail with ENOSYS.
    """
    before = (
        (_BPF_LOAD, 0, 0, _OFFSET_OF_NUMBER),
        (_BPF_JUMP_GREATER, 0, 2, NEWEST_CALL),
        (_BPF_JUMP_AT_LEAST, 1, 0, _X32_BIT),
        (_BPF_RETURN, 0, 0, _SECCOMP_RET_ERRNO | errno.ENOSYS),
    )
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in before) + program


def _outside_a_jail(names: tuple[str, ...], some_arguments: dict[str, tuple[_Conditions, ...]]) -> bytes:
    pyseccomp = import_pyseccomp()
    program = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.EPERM))
    rule = _rules_of(program)
    for name in names:
        rule(pyseccomp.ALLOW, name)
    for name in KILLED + _EXECUTE:
        rule(pyseccomp.KILL_PROCESS, name)
    for name, number in ANSWERED.items():
        rule(pyseccomp.ERRNO(number), name)
    for name, alternatives in some_arguments.items():
        _allow_where(rule, name, alternatives)
    return _exported(program)


@functools.cache
def compile_network(*, watched: bool) -> bytes:
    """Compile the filter that precedes every profile. If `watched`, the template answers calls of NETWORK; otherwise
    they fail with EACCES.
    """
    pyseccomp = import_pyseccomp()
    program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    rule = _rules_of(program)
    argument = pyseccomp.Arg
    action = pyseccomp.NOTIFY if watched else pyseccomp.ERRNO(errno.EACCES)
    for family in (_AF_INET, _AF_INET6):
        rule(action, "socket", argument(0, pyseccomp.MASKED_EQ, _LOW_32_BITS, family))
    rule(action, "connect")
    rule(action, "sendto", argument(4, pyseccomp.NE, 0))
    rule(action, "sendmsg", argument(0, pyseccomp.NE, DOOR))
    rule(action, "sendmmsg")
    rule(action, "setsockopt", argument(1, pyseccomp.EQ, _IPPROTO_TCP))
    if watched:
        rule(action, ENDS)
    return _exported(program)


def _allow_where(rule: _Rule, name: str, alternatives: tuple[_Conditions, ...]) -> None:
    """Allow the system call `name` if all conditions of one of its alternatives hold. Add one rule for each combination
    of values, because libseccomp joins the arguments of a rule by "and", and rules by "or".
    """
    pyseccomp = import_pyseccomp()
    for conditions in alternatives:
        for values in itertools.product(*(condition.values for condition in conditions)):
            compared = (
                pyseccomp.Arg(condition.argument, pyseccomp.MASKED_EQ, condition.looked_at, value)
                for condition, value in zip(conditions, values, strict=True)
            )
            rule(pyseccomp.ALLOW, name, *compared)


def _leave_to_the_network_filter(rule: _Rule) -> None:
    """Allow the system calls that the network filter handles, because a refusal in this filter would override that
    filter's notification. Refuse sockets of other families.
    """
    pyseccomp = import_pyseccomp()
    argument = pyseccomp.Arg
    refused = pyseccomp.ERRNO(ANSWERED["socket"])
    for family in range(_AF_INET6):
        rule(pyseccomp.ALLOW if family == _AF_INET else refused, "socket", argument(0, pyseccomp.EQ, family))
    rule(pyseccomp.ALLOW, "socket", argument(0, pyseccomp.EQ, _AF_INET6))
    rule(refused, "socket", argument(0, pyseccomp.GT, _AF_INET6))
    rule(pyseccomp.ALLOW, "connect")
    rule(pyseccomp.ALLOW, "sendto", argument(4, pyseccomp.NE, 0))  # without an address: SOME_ARGUMENTS
    rule(pyseccomp.ALLOW, "sendmsg", argument(0, pyseccomp.NE, DOOR))
    rule(pyseccomp.ALLOW, "sendmmsg")
    rule(pyseccomp.ALLOW, "setsockopt", argument(1, pyseccomp.EQ, _IPPROTO_TCP))


def _rules_of(program: Any) -> _Rule:
    """Return a function that adds a rule to the program, but ignores calls that this architecture lacks."""
    pyseccomp = import_pyseccomp()
    program.set_attr(_BAD_ARCH, pyseccomp.KILL_PROCESS)
    program.set_attr(_CTL_OPTIMIZE, _BINARY_TREE)

    def rule(action: int, name: str, *arguments: object) -> None:
        number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
        if number < 0:
            # A missing call resolves to a negative pseudo number and cannot be made, unless it is newer than the library.
            number = _NEWER_THAN_LIBSECCOMP.get(name, number)
        if number >= 0:
            program.add_rule_exactly(action, number, *arguments)

    return rule


def _exported(program: Any) -> bytes:
    with open(os.memfd_create("bpf", os.MFD_CLOEXEC), "w+b") as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()
