"""The process in which the approver's key is open, and the passphrase prompt.

Runs in one command at a terminal. Trusts the kernel and the person at that terminal, and no other program of the same user:
such programs can send signals, open `/proc/PID/…` of every traceable process, and open every terminal that is not held.

`isolated_process` moves the work into a process that no other process can read or trace, in these steps:

1. The command starts. Until step 2 it is unprotected: another process can open its /proc/PID/mem, or attach to it.
2. The command makes itself undumpable (prctl(2)): from now on no process of the same user can open its memory or attach. A
   descriptor from step 1 stays open, because the check is made by open(2) and not by read(2).
3. The command forks. The child has memory of its own (a new mm, copied) that was undumpable from its first moment: a
   descriptor of step 1 shows the parent's memory, which never contains a passphrase or a key.
4. A debugger of step 1 that asked to follow forks (PTRACE_O_TRACEFORK) has the child too. The child detects that
   (TracerPid), and does not ask for a passphrase. No process can begin to trace the child later.
5. The child continues as the command: it alone returns from `isolated_process`. The parent waits, passes signals on,
   stops when the child stops (so that a shell's Ctrl-Z and `fg` work), ends as the child ends, and restores the
   terminal if the child could not. If the parent is killed the kernel ends the child (PR_SET_PDEATHSIG). If the
   terminal disappears, the kernel notifies only the first process of its session. That may be the parent, which passes
   the signal on, or a program that does not. So a process that keeps a key open watches the terminal itself
   (`end_with_terminal`).

Limits: a process that attaches in step 1 and changes the program itself, or writes to its memory before the fork, has
replaced our program. With Yama (kernel.yama.ptrace_scope = 1), only an ancestor of the command can.

`ask_passphrase` reads from the terminal itself, and holds the terminal in two ways: exclusively (TIOCEXCL), so that no
other process of the user can open the terminal meanwhile, and by waiting in read(2), so that no process that had opened
the terminal before reads first. The kernel lets only one reader wait at a time (drivers/tty/n_tty.c, atomic_read_lock).
The prompt is shown once that wait has begun. If another reader was already waiting, this is detected, and no prompt is
shown. A process that had the terminal open can still write text there that imitates our prompt.

Rules
- A passphrase comes from a terminal. Never from the environment, a file, an argument or standard input.
- The terminal is restored in every case: an answer, Ctrl-C, Ctrl-Z, SIGTERM, a timeout. Half-typed text is
  discarded.
- This module is for the main thread of a process, because that thread handles Python's signals.

Source: proc_pid_mem(5), ptrace(2), prctl(2), ioctl_tty(2), termios(3), signal(7); docs/explanation/threat-model.md. Not here: the
key (keyfile.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from aileron.approver_key.terminal import apply
from aileron.model.secret import Secret
from aileron_sandbox import kernel

if TYPE_CHECKING:
    from aileron.model.failure import (
        AileronError,  # 20 ms at the start of every console, and needed only for an error
    )

__all__ = [
    "ASK_S",
    "END_S",
    "ask_passphrase",
    "check_unwatched",
    "end_in_time",
    "end_with_terminal",
    "isolated_process",
    "untyped",
]

ASK_S: Final = 600.0
"""Seconds to answer a prompt: ten minutes are enough to look up a passphrase, and a forgotten terminal is not held for
ever.
"""
END_S: Final = 3.0
"""Seconds from a signal until this process ends at the latest: restoring a terminal takes milliseconds, and a terminal that
no longer accepts output must not block the end.
"""
_TERMINAL: Final = "/dev/tty"
_MAX_LINE_BYTES: Final = 4096  # the maximum length of a terminal's line, termios(3)
_TIOCGEXCL: Final = 0x80045440  # ioctl_tty(2); not in Python's termios
_DISABLED: Final = b"\0"  # _POSIX_VDISABLE, termios(3)
_KILLED_BY: Final = 128  # plus the signal's number, as in shells
_STATUS: Final = "/proc/self/status"

# --- a process of its own ----------------------------------------------------------------------------------------

_RELAYED: Final = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_is_alone = False


def isolated_process(work: Callable[[], int], *, put_right: bytes = b"") -> int:
    """Run `work` once, in a new process that no other process can read or trace, and return its result in that process.

    The calling process waits, and ends in the same way as the new process. So the code after this call also runs only
    in the new process, which must exit with the result. In an already isolated process, `work` runs directly.
    `put_right` is written to the terminal if `work` is killed, to leave the alternate screen. Raises AileronError(busy)
    if no process can be created.
    """
    global _is_alone
    if _is_alone:
        return work()
    _hide()
    terminal = _Terminal.maybe_open()
    for stream in (sys.stdout, sys.stderr):
        # If output cannot be written here, the child writes it or reports the error.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an ignored SIGCHLD leaves no status to wait for, wait(2)
    blocked = {*_RELAYED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    parent = os.getpid()
    if (child := _forked(before)) != 0:
        _attend(child, terminal, blocked, put_right)
    _is_alone = True
    if terminal is not None:
        terminal.close()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # otherwise ignored, as under nohup(1)
            signal.signal(number, _end)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent was killed before the line above
        os._exit(_KILLED_BY + signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return work()


def end_in_time() -> None:
    """End this process by SIGALRM after END_S, even if its threads are blocked. Call this in the main thread."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, END_S)


def end_with_terminal() -> None:
    """Start a thread that sends this process SIGHUP when its terminal hangs up, even if the kernel signals only another process.

    Does nothing without a terminal. After a hangup, reads return end of input repeatedly, and writes fail or block; neither ends
    a program by itself.
    """
    try:
        descriptor = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return
    # Only the main thread may handle signals: in this thread, a signal would not interrupt a wait of the main thread.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        threading.Thread(target=_tell_of_end, args=(descriptor,), daemon=True, name="terminal").start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _tell_of_end(terminal: int) -> None:
    """Wait until the terminal hangs up, then send SIGHUP to this process. No input is read: poll(2) reports POLLHUP
    even if no event is requested.
    """
    poll = select.poll()
    poll.register(terminal, 0)
    while not poll.poll():
        pass
    os.kill(os.getpid(), signal.SIGHUP)


def check_unwatched() -> None:
    """Check that no other process of this user can read the memory of this process.

    Raises AileronError(unauthorized) with the reason if one can.
    """
    try:
        with open(_STATUS, "rb") as file:
            tracer = next(int(line.split()[1]) for line in file if line.startswith(b"TracerPid:"))
    except (OSError, StopIteration, ValueError, IndexError):
        raise _unauthorized(f"{_STATUS} does not say whether somebody traces this process: mount /proc") from None
    if tracer != 0:
        raise _unauthorized(
            f"process {tracer} traces this command, and would see the passphrase: end it, and begin again without a debugger"
        )
    if kernel.is_dumpable():
        raise _unauthorized("other processes of this user can read this one, so no passphrase is asked for here")


def _hide() -> None:
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _forked(mask: set[int | signal.Signals]) -> int:
    try:
        return os.fork()
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        from aileron.model.failure import AileronError, FailureClass

        message = f"no process of its own for the approver's key: {os.strerror(error.errno or 0)}"
        raise AileronError(FailureClass.BUSY, message, retriable=True) from None


def _end(number: int, _: FrameType | None) -> NoReturn:
    """Handle SIGTERM and SIGHUP in the child: restore the terminal, and exit. A second signal must not interrupt that."""
    for ignored in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    end_in_time()
    raise SystemExit(_KILLED_BY + number)


def _attend(child: int, terminal: _Terminal | None, waited_for: set[signal.Signals], put_right: bytes) -> NoReturn:
    """Wait, in the parent process, until the child process ends, then end this process with the same status. Relay
    signals to the child, and restore the terminal if the child stops or is killed. The parent sets no deadline; only
    the child has deadlines.
    """
    while True:
        info = signal.sigwaitinfo(waited_for)
        if info.si_signo != signal.SIGCHLD:
            # Relay only signals from other processes: the terminal's (SI_KERNEL) reach the child too, sigaction(2). But
            # only the first process of the session, which may be this one, gets SIGHUP when the terminal disappears.
            if info.si_code <= 0 or info.si_signo == signal.SIGHUP:
                os.kill(child, info.si_signo)  # not reaped yet, so the number is still the child's
            continue
        # One SIGCHLD may stand for several changes; at the end WNOHANG returns None.
        while (changed := os.waitid(os.P_PID, child, os.WEXITED | os.WSTOPPED | os.WNOHANG)) is not None:
            if changed.si_code == os.CLD_EXITED:
                os._exit(changed.si_status)
            was_killed = changed.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
            if terminal is not None and was_killed:
                terminal.tell(put_right)  # before unread input, such as mouse events, is discarded
            if terminal is not None:
                terminal.release(was_killed=was_killed)
            if was_killed:
                _die_by(changed.si_status)
            os.kill(os.getpid(), signal.SIGSTOP)  # for the shell, which waits for this process; `fg` continues here
            if os.waitid(os.P_PID, child, os.WCONTINUED | os.WNOHANG) is None:  # a shell signals the whole job
                os.kill(child, signal.SIGCONT)


def _die_by(number: int) -> NoReturn:
    """End this process by the signal `number`, which ended the child, so that whatever waits for this process sees the
    child's status.
    """
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(_KILLED_BY + number)


class _Terminal:
    """The terminal, and its settings from before the child began; the parent restores them if the child cannot."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: Final = descriptor
        self._found: Final = termios.tcgetattr(descriptor)
        self._was_held: Final = is_held(descriptor)

    @classmethod
    def maybe_open(cls) -> _Terminal | None:
        """Open the terminal. Return None if the terminal is missing or cannot be opened; the child then cannot show a
        prompt either, and reports that.
        """
        try:
            descriptor = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return cls(descriptor)
        except (OSError, termios.error):
            os.close(descriptor)
            return None

    def close(self) -> None:
        """Close, in the child, the descriptor of the terminal that it inherited. The child opens the terminal again for
        each prompt.
        """
        os.close(self._descriptor)

    def tell(self, words: bytes) -> None:
        """Write control sequences to the terminal; do nothing if the terminal is gone or no longer accepts output."""
        with contextlib.suppress(OSError):
            os.set_blocking(self._descriptor, False)  # affects only our own open file description
            os.write(self._descriptor, words)

    def release(self, *, was_killed: bool) -> None:
        """Restore the terminal if the child was killed, or was stopped while it held the terminal for a prompt."""
        with contextlib.suppress(OSError):  # the terminal has gone
            if not self._was_held and (was_killed or is_held(self._descriptor)):
                _put_right(self._descriptor, self._found)


def is_held(descriptor: int) -> bool:
    """Return whether a process holds this terminal exclusively."""
    return struct.unpack("i", fcntl.ioctl(descriptor, _TIOCGEXCL, bytes(4))) != (0,)


# --- the prompt --------------------------------------------------------------------------------------------------


def ask_passphrase(question: str, *, twice: bool = False, may_be_empty: bool = False) -> Secret:
    """Prompt for a passphrase at the terminal of this process, without echo, and return it. With `twice`, prompt again
    until two entries match.

    Enter alone is accepted as an answer with `may_be_empty`, and ignored otherwise. `question` is the text of the
    prompt, our own and without a colon. Raises AileronError(unauthorized) if another process can read this process's
    memory, if the terminal is missing, or if another process holds or reads the terminal; (invalid_request) at the end
    of input or after ASK_S. Raises KeyboardInterrupt at Ctrl-C.
    """
    check_unwatched()
    descriptor = _opened_terminal()
    try:
        while True:
            with _Signals() as signals, _still_there():
                typed = _asked_once(descriptor, question, twice, may_be_empty, signals)
            for number in signals.seen:  # handled now that the terminal is restored: Ctrl-Z stops this process here
                if number == signal.SIGALRM and signals.somebody_reads:
                    raise _read_by_another()
                if number == signal.SIGALRM:
                    raise _refused(f"nobody answered {question!r} within {ASK_S:.0f} s")
                signal.raise_signal(number)
            if typed is not None:
                return typed
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def untyped() -> Iterator[Callable[[str], None]]:
    """Hold the terminal while a person does not type, for example while they touch a security key. Yield a function
    that shows a line.

    No process can open the terminal meanwhile, nothing is echoed, and input is discarded; Ctrl-C still raises
    KeyboardInterrupt. Ctrl-Z does nothing, since a process stopped here would leave the terminal in this state. Raises
    AileronError as `ask_passphrase`.
    """
    check_unwatched()
    descriptor = _opened_terminal()
    with contextlib.ExitStack() as held:
        held.callback(os.close, descriptor)
        with _still_there():
            before = held.enter_context(_taken(descriptor))
            _set(descriptor, before, is_line=True, stops=False)
        yield lambda words: _write_line(descriptor, words)


def _write_line(descriptor: int, words: str) -> None:
    with _still_there():
        os.write(descriptor, f"{words}\n".encode())


class _SignalledError(Exception):
    """A signal arrived during the wait for the terminal."""


class _Signals:
    """Handlers of the signals that would leave the terminal in a prompt's state. They defer each signal until the
    terminal is restored; `seen` lists the signals.

    A signal interrupts only while the terminal is read (`waiting`), and does so by an exception: after a handler that returns,
    Python continues reading (PEP 475). A signal that arrives after the check at the start of `waiting`, but before read(2), is
    handled only after the next key press, or after ASK_S.
    """

    _KEPT: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGCONT)

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.somebody_reads = False
        self._interrupts = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (*self._KEPT, signal.SIGALRM):
            self._before[number] = signal.signal(number, self._take)
        signal.setitimer(signal.ITIMER_REAL, ASK_S, 1.0)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Raise _SignalledError in this block when a signal arrives, and at its start if one has arrived before."""
        self._interrupts = True
        try:
            self.check()
            yield
        finally:
            self._interrupts = False

    def check(self) -> None:
        """Raise _SignalledError if a signal has arrived."""
        if self.seen:
            raise _SignalledError

    def _take(self, number: int, _: FrameType | None) -> None:
        if number not in self.seen:
            self.seen.append(number)
        if self._interrupts:
            self._interrupts = False  # once: the code that follows restores the terminal
            raise _SignalledError


def _opened_terminal() -> int:
    try:
        return os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise _held_by_another() from None
        raise _unauthorized(
            "there is no terminal: the approver's passphrase is typed at one, and never taken from a file, the environment or "
            "standard input. Type this command in a terminal of your own (with ssh: `ssh -t`)"
        ) from None


@contextlib.contextmanager
def _still_there() -> Iterator[None]:
    try:
        yield
    except (OSError, termios.error) as error:  # EIO: the other end is closed, tty_ioctl(4)
        raise _refused(f"the terminal is no longer available: {error}") from None


def _asked_once(descriptor: int, question: str, twice: bool, may_be_empty: bool, signals: _Signals) -> Secret | None:
    """Prompt once and return the typed text. Return None if a signal arrived first, which the caller must handle."""
    try:
        with _taken(descriptor) as before:
            while True:
                if not (typed := _line(descriptor, before, f"{question}: ", signals)) and not may_be_empty:
                    continue
                if not twice or typed == _line(descriptor, before, f"{question}, again: ", signals):
                    return Secret(typed)
                os.write(descriptor, b"these are not the same; try again\n")
    except _SignalledError:
        return None


@contextlib.contextmanager
def _taken(descriptor: int) -> Iterator[list[Any]]:
    """Hold the terminal exclusively during a block, then restore it; yield its previous settings. Raises
    AileronError(unauthorized) if another process holds it.
    """
    before = termios.tcgetattr(descriptor)
    if is_held(descriptor):
        raise _held_by_another()
    try:
        # First, because it stops a background job until it is in the foreground (SIGTTOU): only then can we hold the terminal.
        apply(descriptor, before)
        fcntl.ioctl(descriptor, termios.TIOCEXCL)
        yield before
    finally:
        _put_right(descriptor, before)


def _put_right(descriptor: int, settings: list[Any]) -> None:
    """Restore the terminal's `settings` and release the exclusive hold of the terminal; do nothing if the terminal is gone.

    Works in the background too (SIGTTOU blocked): a parent whose command was killed is no longer in the foreground, but must
    not leave a terminal without echo.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, termios.TIOCNXCL)
        with contextlib.suppress(termios.error):
            # Half a passphrase must not become the shell's next input, hence FLUSH.
            apply(descriptor, settings)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _line(descriptor: int, before: list[Any], question: str, signals: _Signals) -> bytes:
    """Show the prompt `question`, and return the line that is typed without echo, without its line end."""
    _set(descriptor, before, is_line=False)
    check_nobody_reads(descriptor)
    _set(descriptor, before, is_line=True)
    signals.check()  # first: after a stop above, the caller begins again, and nothing is shown twice
    with _Shower(descriptor, question, signals), signals.waiting():
        return _read_line(descriptor, question)


class _Shower:
    """A thread that shows a prompt once the main thread waits in read(2) and, of all processes that read the terminal,
    will get the next line.

    The thread detects this by the kernel function in which the main thread sleeps (proc_pid_wchan(5)). In `wait_woken`, the
    main thread waits for input and has the lock for the terminal's readers. In any other function it waits for that lock,
    which another reader holds. Kernels without these names (no CONFIG_KALLSYMS) report `0`: there, the prompt is shown after
    _SETTLED_S nevertheless, and `check_nobody_reads` must suffice.
    """

    _WAITS_FOR_INPUT: Final = "wait_woken"
    _SETTLED_S: Final = 0.5
    """Seconds until the main thread must be in read(2). That takes 0.1 ms, and longer on a machine under load."""
    _PAUSE_S: Final = 0.0005

    def __init__(self, descriptor: int, question: str, signals: _Signals) -> None:
        self._descriptor: Final = descriptor
        self._question: Final = question
        self._signals: Final = signals
        self._reader: Final = threading.get_ident()
        self._place: Final = f"/proc/self/task/{threading.get_native_id()}"
        self._over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, daemon=True)
        self._is_shown = False

    def __enter__(self) -> None:
        # Only the reading thread may handle signals: in another thread, a signal would not interrupt the read(2).
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._is_shown:
            os.write(self._descriptor, b"\n")

    def _run(self) -> None:
        settled = time.monotonic() + self._SETTLED_S
        while not self._over.wait(self._PAUSE_S):
            where = self._sleeps_in()
            is_settled = time.monotonic() >= settled
            if where == self._WAITS_FOR_INPUT or (where == "0" and is_settled):
                self._is_shown = True
                os.write(self._descriptor, self._question.encode())
                return
            # In a futex, the thread waits for Python's own lock before read(2).
            if where is not None and "futex" not in where and is_settled:
                self._signals.somebody_reads = True
                signal.pthread_kill(self._reader, signal.SIGALRM)
                return

    def _sleeps_in(self) -> str | None:
        """Return the name of the kernel function in which the main thread sleeps, `0` if the kernel has no names; None if the
        thread does not sleep.
        """
        try:
            with open(f"{self._place}/stat", "rb") as file:
                if file.read().rpartition(b") ")[2][:1] != b"S":
                    return None
            with open(f"{self._place}/wchan", "rb") as file:
                return file.read().decode("latin-1")
        except OSError:
            return "0"


def _read_line(descriptor: int, question: str) -> bytes:
    typed = b""
    while not typed.endswith(b"\n"):
        piece = os.read(descriptor, _MAX_LINE_BYTES)
        if not piece:  # Ctrl-D, or the terminal has gone
            raise _refused(f"no answer to {question.rstrip(': ')!r}")
        typed += piece
        if len(typed) > _MAX_LINE_BYTES:
            raise _refused(f"more than {_MAX_LINE_BYTES} bytes are no answer to {question.rstrip(': ')!r}")
    return typed.removesuffix(b"\n")


def _set(descriptor: int, before: list[Any], *, is_line: bool, stops: bool = True) -> None:
    """Change the terminal's settings for a prompt: turn echo off, and discard unread input. `before` are the settings
    so far.

    With `is_line`, reads return complete lines; otherwise a read never waits, termios(3).

    With `stops`, Ctrl-Z stops the process.
    """
    changed = [*before[:6], list(before[6])]
    changed[0] |= termios.ICRNL
    changed[3] &= ~(termios.ECHO | termios.ECHOE | termios.ECHOK | termios.ECHONL | termios.ICANON)
    changed[3] |= termios.ISIG
    if not stops:
        changed[6][termios.VSUSP] = _DISABLED
    if is_line:
        changed[3] |= termios.ICANON
    else:
        changed[6][termios.VMIN] = changed[6][termios.VTIME] = 0
    apply(descriptor, changed)


def check_nobody_reads(descriptor: int) -> None:
    """Raise AileronError(unauthorized) if another process waits in read(2) on this terminal, because that process
    would get the input.

    With VMIN and VTIME 0, a read returns immediately; a non-blocking read fails (EAGAIN) only if another reader waits.
    """
    os.set_blocking(descriptor, False)  # affects only our own open file description
    try:
        os.read(descriptor, _MAX_LINE_BYTES)
    except BlockingIOError:
        raise _read_by_another() from None
    finally:
        os.set_blocking(descriptor, True)


def _held_by_another() -> AileronError:
    return _unauthorized("another process has this terminal to itself (TIOCEXCL): begin again in a new terminal")


def _read_by_another() -> AileronError:
    return _unauthorized("another process reads what is typed at this terminal: close it, and begin again in a new one")


def _unauthorized(message: str) -> AileronError:
    from aileron.model.failure import AileronError, Boundary, FailureClass

    return AileronError(FailureClass.UNAUTHORIZED, message, boundary=Boundary.USER)


def _refused(message: str) -> AileronError:
    from aileron.model.failure import AileronError, Boundary, FailureClass

    return AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
