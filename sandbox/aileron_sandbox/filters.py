"""The seccomp filters, compiled ahead of time to BPF bytes.

Runs on the host, once per start, because importing pyseccomp takes 15 ms and starts ldconfig twice; never imported where a
child is born. The bytes are kept in memory: a cache file that the same user can write would be a way into the jail.

A child gets two, and the stricter answer of the two counts (seccomp(2)):

1. `compile_network`: what a program does to reach a network. With `watched`, the template is asked by user notification and
   answers in the kernel's place (template/attempts.py); otherwise the answer is EACCES. Either way none of these calls runs.
2. `compile_profile`: the allow list of its profile. It lets pass what the first one answers.

Rules
- An allow list: what is not named answers EPERM. (A KILL default ends honest programs on a stray prctl: measured.)
- No socket that can name a peer exists. `socketpair(AF_UNIX)` is allowed: event loops wake themselves with one. `setsockopt`
  is not, but for TCP options of a socket that is none: SO_ATTACH_FILTER compiles a program of the caller's into the kernel.
- `KILLED` is what no honest program calls; the answer is SIGSYS.
- Native ABI only: i386 and x32 entries are killed (libseccomp's bad-architecture action).
- Landlock does not cover metadata (chmod, chown, utimes), other processes, or non-file objects: they are not on the list.

Source: seccomp(2), seccomp_unotify(2), libseccomp 2.5; docs/reference/jail.md lists the tables and a test compares.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, Final

from aileron_sandbox.policy import Mode, Profile
from aileron_sandbox.template.descriptors import DOOR

__all__ = [
    "ALLOWED",
    "ALLOWED_MORE",
    "ANSWERED",
    "KILLED",
    "NETWORK",
    "ONLY_ALONE",
    "compile_network",
    "compile_profile",
]

ALLOWED: Final = tuple(
    """
    read write readv writev pread64 pwrite64 lseek close close_range dup dup2 dup3 pipe pipe2 poll ppoll select pselect6
    epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd eventfd2 timerfd_create timerfd_settime timerfd_gettime
    openat open creat newfstatat fstat stat lstat statx access faccessat faccessat2 readlink readlinkat getcwd getdents64
    chdir fchdir mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 symlink symlinkat truncate ftruncate
    fallocate fadvise64 fsync fdatasync umask flock
    mmap munmap mprotect mremap brk madvise membarrier
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack pause alarm
    getitimer setitimer futex set_robust_list get_robust_list set_tid_address rseq arch_prctl sched_yield
    sched_getaffinity getcpu clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times
    getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid getgroups getpgrp getpgid getsid
    uname sysinfo getrandom getrusage getrlimit exit exit_group restart_syscall tgkill
    recvfrom getsockname getpeername getsockopt shutdown
    """.split()
)
"""Allowed whatever the arguments, in every profile. Calls another architecture lacks are skipped there."""

_EXECUTE: Final = ("execve", "execveat")
_PROCESSES: Final = ("fork", "vfork", "wait4", "waitid", "kill", "setpgid", "setsid")
ALLOWED_MORE: Final[dict[Profile, tuple[str, ...]]] = {
    "python": (),
    # It becomes the program by one of these. What else it may execute is in the root, read-only: its loader and libraries.
    "elf": _EXECUTE,
    "elf-subprocess": _EXECUTE + _PROCESSES,
}
"""Allowed as well, by profile."""

ONLY_ALONE: Final = ("tgkill",)
"""Not allowed in the mode `landlock`: a process that is not in a pid namespace of its own could reach others by them."""

ANSWERED: Final = {
    "socket": errno.EACCES,
    "bind": errno.EACCES,  # what libraries meet that probe for IPv6
    "clone3": errno.ENOSYS,  # its flags are in memory a filter cannot read; glibc falls back to clone
    "listxattr": errno.ENOTSUP,  # shutil.copy tolerates this and nothing else
    "llistxattr": errno.ENOTSUP,
    "flistxattr": errno.ENOTSUP,
}
"""Refused with an errno that honest libraries understand; every other call not on the list answers EPERM."""

KILLED: Final = tuple(
    """
    ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise
    mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick open_tree move_mount mount_setattr
    unshare setns bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
    keyctl add_key request_key kexec_load kexec_file_load init_module finit_module delete_module
    open_by_handle_at name_to_handle_at swapon swapoff reboot acct quotactl iopl ioperm
    """.split()
)
"""Calls no honest connector makes: the process is killed with SIGSYS."""

_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_IPPROTO_TCP: Final = 6
_CLONE_THREAD: Final = 0x00010000
_CLONE_NEW_ANY: Final = 0x7E020080  # every CLONE_NEW* flag, sched.h
_FIOCLEX, _FIONCLEX, _TCGETS, _FIONREAD, _FIONBIO, _TIOCGWINSZ = 0x5451, 0x5450, 0x5401, 0x541B, 0x5421, 0x5413
_F_DUPFD_CLOEXEC, _F_GETPIPE_SZ = 1030, 1032
_PR_SET_NAME, _PR_GET_NAME = 15, 16
_LOW_32_BITS: Final = 0xFFFFFFFF
_BAD_ARCH, _CTL_OPTIMIZE, _BINARY_TREE = 2, 8, 2  # seccomp_attr_set(3)

NETWORK: Final = {
    "socket": "of `AF_INET` or `AF_INET6`",
    "connect": "always",
    "sendto": "with an address",
    "sendmsg": f"but on descriptor {DOOR}",
    "sendmmsg": "always",
    "setsockopt": "of `IPPROTO_TCP`",
}
"""The calls of the first filter, and when it answers them."""

_Rule = Callable[..., None]


def compile_profile(profile: Profile, mode: Mode = "namespaces") -> bytes:
    """The allow list. OSError or ImportError where libseccomp is missing."""
    import pyseccomp

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
    _allow_for_some_arguments(rule, may_fork="fork" in ALLOWED_MORE[profile])
    _leave_to_the_network_filter(rule)
    return _exported(program)


def compile_network(*, watched: bool) -> bytes:
    """What comes before any profile: each call of NETWORK is answered by the template, or by EACCES where nobody watches."""
    import pyseccomp

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
    return _exported(program)


def _allow_for_some_arguments(rule: _Rule, *, may_fork: bool) -> None:
    import pyseccomp

    argument = pyseccomp.Arg
    wanted, looked_at = (0, _CLONE_NEW_ANY) if may_fork else (_CLONE_THREAD, _CLONE_THREAD | _CLONE_NEW_ANY)
    rule(pyseccomp.ALLOW, "clone", argument(0, pyseccomp.MASKED_EQ, looked_at, wanted))
    own_and_only_read = (argument(0, pyseccomp.EQ, 0), argument(2, pyseccomp.EQ, 0))
    rule(pyseccomp.ALLOW, "prlimit64", *own_and_only_read)
    rule(pyseccomp.ALLOW, "fcntl", argument(1, pyseccomp.LE, 7))  # up to F_SETLKW; F_SETOWN (8) sends signals
    for command in (_F_DUPFD_CLOEXEC, _F_GETPIPE_SZ):
        rule(pyseccomp.ALLOW, "fcntl", argument(1, pyseccomp.EQ, command))
    # The kernel reads 32 bits of an ioctl command, seccomp compares 64: mask, or 0x1_0000_5412 would pass for another.
    for command in (_FIOCLEX, _FIONCLEX, _TCGETS, _FIONREAD, _FIONBIO, _TIOCGWINSZ):
        rule(pyseccomp.ALLOW, "ioctl", argument(1, pyseccomp.MASKED_EQ, _LOW_32_BITS, command))
    for option in (_PR_SET_NAME, _PR_GET_NAME):
        rule(pyseccomp.ALLOW, "prctl", argument(0, pyseccomp.EQ, option))
    rule(pyseccomp.ALLOW, "socketpair", argument(0, pyseccomp.EQ, _AF_UNIX))


def _leave_to_the_network_filter(rule: _Rule) -> None:
    """A refusal here would beat the notification there; and what it does not ask about is refused here."""
    import pyseccomp

    argument = pyseccomp.Arg
    refused = pyseccomp.ERRNO(ANSWERED["socket"])
    for family in range(_AF_INET6):
        rule(pyseccomp.ALLOW if family == _AF_INET else refused, "socket", argument(0, pyseccomp.EQ, family))
    rule(pyseccomp.ALLOW, "socket", argument(0, pyseccomp.EQ, _AF_INET6))
    rule(refused, "socket", argument(0, pyseccomp.GT, _AF_INET6))
    rule(pyseccomp.ALLOW, "connect")
    rule(pyseccomp.ALLOW, "sendto")  # without an address: only to the other end of a socketpair
    rule(pyseccomp.ALLOW, "sendmsg", argument(0, pyseccomp.NE, DOOR))
    rule(pyseccomp.ALLOW, "sendmmsg")
    rule(pyseccomp.ALLOW, "setsockopt", argument(1, pyseccomp.EQ, _IPPROTO_TCP))


def _rules_of(program: Any) -> _Rule:
    """Add a rule, unless this architecture has no such call."""
    import pyseccomp

    program.set_attr(_BAD_ARCH, pyseccomp.KILL_PROCESS)
    program.set_attr(_CTL_OPTIMIZE, _BINARY_TREE)

    def rule(action: int, name: str, *arguments: object) -> None:
        # Such a call resolves to a negative pseudo number and cannot be made.
        if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) >= 0:
            program.add_rule_exactly(action, name, *arguments)

    return rule


def _exported(program: Any) -> bytes:
    with open(os.memfd_create("bpf", os.MFD_CLOEXEC), "w+b") as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()
