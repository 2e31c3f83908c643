"""The seccomp allow lists, compiled ahead of time to BPF bytes.

Runs on the host, once per start, because importing pyseccomp takes 15 ms and starts ldconfig twice; never imported where a
child is born. The bytes are kept in memory: a cache file that the same user can write would be a way into the jail.

Rules
- An allow list: what is not named answers EPERM. (A KILL default ends honest programs on a stray prctl: measured.)
- `socket` answers EACCES, so that libraries which only probe for IPv6 go on, and no socket that can name a peer exists.
  `socketpair(AF_UNIX)` is allowed: event loops wake themselves with one. `setsockopt` is not: no event loop needs it, and
  SO_ATTACH_FILTER compiles a program of the caller's into the kernel.
- `_KILLED` is what no honest program calls; the answer is SIGSYS.
- Native ABI only: i386 and x32 entries are killed (libseccomp's bad-architecture action).
- Landlock does not cover metadata (chmod, chown, utimes), other processes, or non-file objects: they are not on the list.

Source: seccomp(2), libseccomp 2.5; docs/reference/jail.md lists the table and a test compares.
"""

from __future__ import annotations

import errno
import os
from typing import Final

__all__ = ["ALLOWED", "ANSWERED", "KILLED", "compile_python"]

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
"""Allowed whatever the arguments. Calls another architecture lacks are skipped there."""

ANSWERED: Final = {
    "socket": errno.EACCES,
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

_CLONE_THREAD: Final = 0x00010000
_CLONE_NEW_ANY: Final = 0x7E020080  # every CLONE_NEW* flag, sched.h
_FIOCLEX, _FIONCLEX, _TCGETS, _FIONREAD, _FIONBIO, _TIOCGWINSZ = 0x5451, 0x5450, 0x5401, 0x541B, 0x5421, 0x5413
_F_DUPFD_CLOEXEC, _F_GETPIPE_SZ = 1030, 1032
_PR_SET_NAME, _PR_GET_NAME = 15, 16
_AF_UNIX: Final = 1
_LOW_32_BITS: Final = 0xFFFFFFFF
_BAD_ARCH, _CTL_OPTIMIZE, _BINARY_TREE = 2, 8, 2  # seccomp_attr_set(3)


def compile_python() -> bytes:
    """The program of the `python` profile: threads but no processes. OSError or ImportError where libseccomp is missing."""
    import pyseccomp

    program = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.EPERM))
    program.set_attr(_BAD_ARCH, pyseccomp.KILL_PROCESS)
    program.set_attr(_CTL_OPTIMIZE, _BINARY_TREE)

    def rule(action: int, name: str, *arguments: object) -> None:
        # A call this architecture does not have resolves to a negative pseudo number and cannot be made.
        if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) >= 0:
            program.add_rule_exactly(action, name, *arguments)

    for name in ALLOWED:
        rule(pyseccomp.ALLOW, name)
    for name, number in ANSWERED.items():
        rule(pyseccomp.ERRNO(number), name)
    for name in KILLED:
        rule(pyseccomp.KILL_PROCESS, name)

    argument = pyseccomp.Arg
    threads_only = argument(0, pyseccomp.MASKED_EQ, _CLONE_THREAD | _CLONE_NEW_ANY, _CLONE_THREAD)
    rule(pyseccomp.ALLOW, "clone", threads_only)
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
    rule(pyseccomp.ALLOW, "sendto", argument(4, pyseccomp.EQ, 0))  # no address: only to the other end of a socketpair

    with open(os.memfd_create("bpf", os.MFD_CLOEXEC), "w+b") as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()
