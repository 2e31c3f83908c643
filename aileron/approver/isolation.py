"""The process in which the approver's key is open, and how its passphrase is typed.

Runs in one command at a terminal. It trusts the kernel and the person at that terminal, and nobody else of the same user: another
process of theirs can send signals, open `/proc/PID/…` of what may be traced, and every terminal that is not held.

`alone` moves the work into a process nobody can look into. As events:

1. The command starts. Until step 2 it is like any other: whoever is quick opens its /proc/PID/mem, or attaches to it.
2. It makes itself undumpable (prctl(2)): from now on nobody of the same user can open or attach anew. What was opened in step 1
   stays open, because the check is made by open(2) and not by read(2).
3. It forks. The child has memory of its own (a new mm, copied) that was undumpable from its first moment: a descriptor of step 1
   shows the parent's, in which there is no passphrase and no key, ever.
4. A debugger of step 1 that asked to follow forks (PTRACE_O_TRACEFORK) has the child too. The child sees that (TracerPid), and
   no passphrase is asked for. Nobody can begin to trace it later.
5. The child goes on as the command: it alone returns from `alone`. The parent waits, passes signals on, stops when the child
   stops (so that a shell's Ctrl-Z and `fg` work), ends as the child ends, and puts the terminal right if the child could not.
   If the parent is killed the kernel ends the child (PR_SET_PDEATHSIG). If the terminal goes, the kernel tells the first process
   of its session and nobody else: that may be the parent, which passes it on, or a program that says nothing, so that whoever
   keeps a key open looks for itself (`end_with_terminal`).

What this does not do: who attaches in step 1 and changes the program itself, or writes to its memory before the fork, has
replaced our program. Where Yama is (kernel.yama.ptrace_scope = 1), only an ancestor of the command can.

`ask_passphrase` reads from the terminal itself, and holds it: exclusively (TIOCEXCL), so that no other process of the user can
open it meanwhile, and by waiting in read(2), so that none that had it open before reads first: the kernel lets one reader wait at
a time (drivers/tty/n_tty.c, atomic_read_lock). The question is shown when that wait has begun. One that waited before us is
found, and nothing is asked. A process that had the terminal open can still write a question of its own there, and imitate ours.

Rules
- A passphrase comes from a terminal. Never from the environment, a file, an argument or standard input.
- The terminal is put back as it was on every way out: an answer, Ctrl-C, Ctrl-Z, SIGTERM, the end of time. What was half typed is
  thrown away.
- For the main thread of a process, where Python's signals are.

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

from aileron.approver.terminal import apply
from aileron.model.secret import Secret
from aileron_sandbox import kernel

if TYPE_CHECKING:
    from aileron.model.failure import (
        AileronError,  # 20 ms, in front of every console, and of use where something is wrong
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
"""Ten minutes: long enough to look a passphrase up, and a forgotten terminal is not held for ever."""
END_S: Final = 3.0
"""From a signal that ends this process. To put a terminal right takes milliseconds; one that takes nothing any more is not waited
for."""
_TERMINAL: Final = "/dev/tty"
_MAX_LINE_BYTES: Final = 4096  # what a terminal holds of one line, termios(3)
_TIOCGEXCL: Final = 0x80045440  # ioctl_tty(2); not in Python's termios
_DISABLED: Final = b"\0"  # _POSIX_VDISABLE, termios(3)
_KILLED_BY: Final = 128  # and the number of the signal, as shells count
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
    """Do `work` in a new process that nobody can look into, and return what it returns: once, in that process.

    The one that called waits and ends as the new one does, so whatever follows happens once too, in the new one: return the
    number to whoever exits with it. In a process that is alone already, `work` is done there. `put_right` is what the terminal
    is told if `work` is killed: to leave a screen that it had to itself. AileronError(busy) where no process can be made.
    """
    global _is_alone
    if _is_alone:
        return work()
    _hide()
    terminal = _Terminal.maybe_open()
    for stream in (sys.stdout, sys.stderr):
        # What cannot be written is the child's to write, or to fail with.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # one that is ignored leaves no status to wait for, wait(2)
    blocked = {*_RELAYED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    parent = os.getpid()
    if (child := _forked(before)) != 0:
        _attend(child, terminal, blocked, put_right)
    _is_alone = True
    if terminal is not None:
        terminal.close()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # else it is ignored, as under nohup(1)
            signal.signal(number, _end)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it was killed before the line above
        os._exit(_KILLED_BY + signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return work()


def end_in_time() -> None:
    """From now on this process has END_S: SIGALRM ends it then, whatever its threads wait for. For the main thread."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, END_S)


def end_with_terminal() -> None:
    """See that this process is told of the end of its terminal (SIGHUP), whoever else is; nothing where there is none.

    What reads there finds an end of input again and again, and what writes fails or waits: neither ends a program by itself.
    """
    try:
        descriptor = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return
    # Signals are for the main thread: one that this one took would not end what that waits for.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        threading.Thread(target=_tell_of_end, args=(descriptor,), daemon=True, name="terminal").start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _tell_of_end(terminal: int) -> None:
    """Wait for the end of a terminal, and for nothing else of it (poll(2): POLLHUP is told unasked)."""
    poll = select.poll()
    poll.register(terminal, 0)
    while not poll.poll():
        pass
    os.kill(os.getpid(), signal.SIGHUP)


def check_unwatched() -> None:
    """Return if no other process of this user can see what this one knows. AileronError(unauthorized) says why not."""
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
    """SIGTERM and SIGHUP in the child: what stands open is put right on the way out. A second one must not cut that short."""
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    end_in_time()
    raise SystemExit(_KILLED_BY + number)


def _attend(child: int, terminal: _Terminal | None, waited_for: set[signal.Signals], put_right: bytes) -> NoReturn:
    """The parent's part, until the child has ended. Its only deadlines are the child's."""
    while True:
        info = signal.sigwaitinfo(waited_for)
        if info.si_signo != signal.SIGCHLD:
            # Somebody sent it to us; what a terminal sends (SI_KERNEL) goes to the child by itself, sigaction(2). But that it is
            # gone is told to the first process of the session alone, which may be us.
            if info.si_code <= 0 or info.si_signo == signal.SIGHUP:
                os.kill(child, info.si_signo)  # not reaped yet, so the number is still its
            continue
        # One SIGCHLD may stand for several changes, and WNOHANG has none to tell in the end.
        while (changed := os.waitid(os.P_PID, child, os.WEXITED | os.WSTOPPED | os.WNOHANG)) is not None:
            if changed.si_code == os.CLD_EXITED:
                os._exit(changed.si_status)
            was_killed = changed.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
            if terminal is not None and was_killed:
                terminal.tell(put_right)  # before what was typed is thrown away, with what a mouse has sent
            if terminal is not None:
                terminal.release(was_killed=was_killed)
            if was_killed:
                _die_by(changed.si_status)
            os.kill(os.getpid(), signal.SIGSTOP)  # for the shell, which waits for us; on `fg` we go on here
            if os.waitid(os.P_PID, child, os.WCONTINUED | os.WNOHANG) is None:  # a shell tells the whole job
                os.kill(child, signal.SIGCONT)


def _die_by(number: int) -> NoReturn:
    """As the child did, so that whoever waits for us sees the same."""
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(_KILLED_BY + number)


class _Terminal:
    """The terminal as the parent found it, to be put right after a child that could not do it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: Final = descriptor
        self._found: Final = termios.tcgetattr(descriptor)
        self._was_held: Final = is_held(descriptor)

    @classmethod
    def maybe_open(cls) -> _Terminal | None:
        """None where there is none, or where it cannot be opened: then the child cannot ask either, and says why."""
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
        """In the child, which opens one of its own when it asks."""
        os.close(self._descriptor)

    def tell(self, words: bytes) -> None:
        """Have the terminal obey these; nothing where it has gone, or takes nothing any more."""
        with contextlib.suppress(OSError):
            os.set_blocking(self._descriptor, False)  # of our own open file: nobody shares it
            os.write(self._descriptor, words)

    def release(self, *, was_killed: bool) -> None:
        """Undo what a question does, if the child was cut short in one, or was killed."""
        with contextlib.suppress(OSError):  # the terminal has gone
            if not self._was_held and (was_killed or is_held(self._descriptor)):
                _put_right(self._descriptor, self._found)


def is_held(descriptor: int) -> bool:
    """Whether somebody has exclusive use of this terminal."""
    return struct.unpack("i", fcntl.ioctl(descriptor, _TIOCGEXCL, bytes(4))) != (0,)


# --- the question ------------------------------------------------------------------------------------------------


def ask_passphrase(question: str, *, twice: bool = False, may_be_empty: bool = False) -> Secret:
    """What a person types at the terminal of this process after `question`, unseen; `twice` until both are the same.

    Enter alone is an answer where it `may_be_empty`, and is passed over elsewhere.
    `question` is ours, without a colon. AileronError(unauthorized) where this process is watched, there is no terminal, or
    somebody else holds or reads it, (invalid_request) at the end of input or of ASK_S. KeyboardInterrupt.
    """
    check_unwatched()
    descriptor = _opened_terminal()
    try:
        while True:
            with _Signals() as signals, _still_there():
                typed = _asked_once(descriptor, question, twice, may_be_empty, signals)
            for number in signals.seen:  # as if it came now, when the terminal is as it was: Ctrl-Z stops us here
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
    """While a person does something else than type, as touching a security key: what writes a line to them on this terminal.

    Nobody opens it meanwhile, nothing is echoed, and what is typed is thrown away; Ctrl-C still is KeyboardInterrupt, and Ctrl-Z
    nothing, since whoever is stopped here would leave the terminal so. AileronError as `ask_passphrase`.
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
    """A signal came while the terminal was waited for."""


class _Signals:
    """Signals that would leave the terminal as a question needs it are kept until it is as it was; `seen` has them.

    Only while the terminal is read does one of them interrupt (`waiting`), and by an exception: a handler that returned would
    have Python go on reading (PEP 475). One that arrives between that check and read(2) waits for the next key, or ASK_S.
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
        """A signal ends this block at once; one that came before does too."""
        self._interrupts = True
        try:
            self.check()
            yield
        finally:
            self._interrupts = False

    def check(self) -> None:
        """_SignalledError if one has come."""
        if self.seen:
            raise _SignalledError

    def _take(self, number: int, _: FrameType | None) -> None:
        if number not in self.seen:
            self.seen.append(number)
        if self._interrupts:
            self._interrupts = False  # once: what follows puts the terminal right
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
    except (OSError, termios.error) as error:  # EIO: nobody holds the other end any more, tty_ioctl(4)
        raise _refused(f"the terminal is no longer available: {error}") from None


def _asked_once(descriptor: int, question: str, twice: bool, may_be_empty: bool, signals: _Signals) -> Secret | None:
    """None where a signal came first, for the caller to see to."""
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
    """Hold the terminal, and put it back as it was; its settings are what comes back."""
    before = termios.tcgetattr(descriptor)
    if is_held(descriptor):
        raise _held_by_another()
    try:
        # First, because it stops a job in the background until it is in front (SIGTTOU): only then is the terminal ours to hold.
        apply(descriptor, before)
        fcntl.ioctl(descriptor, termios.TIOCEXCL)
        yield before
    finally:
        _put_right(descriptor, before)


def _put_right(descriptor: int, settings: list[Any]) -> None:
    """Settings and hold as they were; nothing where the terminal has gone.

    Also from behind (SIGTTOU blocked): whose command was killed is in no front any more, and leaves no terminal without echo.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, termios.TIOCNXCL)
        with contextlib.suppress(termios.error):
            # Half a passphrase must not become what the shell reads next, hence FLUSH.
            apply(descriptor, settings)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _line(descriptor: int, before: list[Any], question: str, signals: _Signals) -> bytes:
    """One line, without its end, typed after `question` stands there and seen by nobody."""
    _set(descriptor, before, is_line=False)
    check_nobody_reads(descriptor)
    _set(descriptor, before, is_line=True)
    signals.check()  # before anything is shown: whoever was stopped above begins anew without a word
    with _Shower(descriptor, question, signals), signals.waiting():
        return _read_line(descriptor, question)


class _Shower:
    """Shows the question from a thread of its own, once this one waits in read(2) and is the one that will be given the line.

    Where it sleeps says which it is (proc_pid_wchan(5)): `wait_woken` is the wait for input, with the lock of the terminal's
    readers; anything else is the wait for that lock, which another reader has. Kernels without names for it (no
    CONFIG_KALLSYMS) say `0`: there the question is shown after SETTLED_S all the same, and `check_nobody_reads` has to do.
    """

    _WAITS_FOR_INPUT: Final = "wait_woken"
    _SETTLED_S: Final = 0.5
    """The thread gets from its start to read(2) in a tenth of a millisecond; a machine under load takes its time."""
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
        # Signals are for the thread that reads: one that another thread took would not end its read(2).
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
            # A futex is Python's own lock, on the way there.
            if where is not None and "futex" not in where and is_settled:
                self._signals.somebody_reads = True
                signal.pthread_kill(self._reader, signal.SIGALRM)
                return

    def _sleeps_in(self) -> str | None:
        """The kernel's name for where the reader sleeps, `0` where there is none; None while it does not sleep."""
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
    """No echo, and what was typed so far is thrown away. `is_line`: whole lines; else a read never waits, termios(3).

    `stops`: Ctrl-Z does.
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
    """AileronError(unauthorized) where another process waits in read(2) on this terminal: it would get what is typed.

    With VMIN and VTIME 0 a read gives nothing at once; one that may not wait fails (EAGAIN) only where somebody else waits.
    """
    os.set_blocking(descriptor, False)  # of our own open file: nobody shares it
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
