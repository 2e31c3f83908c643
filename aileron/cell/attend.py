"""The command that accompanies a running cell. It passes bytes between person and agent, handles job control, forwards
connections through the doors (relays.py), and reports how the agent ended.

Runs outside the cell, in the command that the person typed. All data from the cell is hostile: output to a terminal
goes through the filter (terminal_filter.py), output to a pipe or a file does not.

Rules
- Keys go to the cell: Ctrl-C and Ctrl-Z arrive as bytes, and the cell's own terminal turns them into signals. If
  standard input is no terminal, this process gets SIGINT, SIGQUIT and SIGTSTP, and forwards them.
- SIGTERM and SIGHUP are forwarded. The agent may want to save data, so the cell is closed only after `patience_s`.
- When the agent stops (Ctrl-Z), the terminal is restored, and this process stops its whole job, as the kernel would
  have done, so that the shell notices. `fg` continues this process, which continues the agent and restores the terminal
  modes that the agent had set.
- If no process can continue this one (in an orphaned process group, such as that of a terminal's first program), the agent
  continues at once.
- A signal that was ignored when this process began stays ignored (nohup(1)).
- The terminal is restored in every case.
- Output that remains when the agent has ended is written, however slow its reader is, until a signal ends this process.
  There is a deadline for a raw terminal, where Ctrl-C is no signal, and for every reader once this process was told to
  end. The reported ending says if output was lost.

Source: credentials(7), setpgid(2), signal(7). Not here: the agent without a cell (aileron/launch/start.py), the cell
itself (aileron_sandbox.cell).
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import stat
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from aileron.cell.loop import End, Loop, Pump, PumpEnd
from aileron.cell.publish import Published
from aileron.cell.relays import Door, Relays
from aileron.cell.terminal import Terminal, speaks_utf8
from aileron_sandbox.cell.door import Ended, Event, NotStarted, Stopped, Streams

if TYPE_CHECKING:
    from aileron.cell.terminal_filter import TerminalFilter

__all__ = ["PATIENCE_S", "Ending", "RunningCell", "attend"]

PATIENCE_S: Final = 10.0
"""Seconds to wait for the agent's end after SIGTERM or SIGHUP, as with `docker stop`."""
_REST_S: Final = 5.0
"""Seconds to wait for the rest of the agent's output after its end, not counting the time in which its reader pauses."""
_QUIET_S: Final = 0.5
"""Seconds without a byte after which an output stream that has not ended is closed, once no process of the cell is left
that could write to it.
"""
_STALLED_S: Final = 5.0
"""Seconds to wait for a reader that accepts no byte of the remaining output. The limit applies only if the terminal is
raw, so that no key can end the wait, or if this process was told to end.
"""
_SETTLE_S: Final = 0.2
"""Seconds to wait for output that an agent wrote before it stopped: for example, it may have left the alternate screen."""
_PIPE_BUF: Final = 4096
"""Bytes that a ready pipe accepts without blocking, pipe(7)."""
_HANDED_ON: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTERM, signal.SIGHUP)
_LAST: Final = (signal.SIGTERM, signal.SIGHUP)
_ENDING: Final = (signal.SIGINT, signal.SIGQUIT, *_LAST)
_READABLE: Final = 1  # EPOLLIN


class RunningCell(Protocol):
    """Interface of a running cell: the methods of aileron_sandbox.cell.door.Cell that this module uses."""

    listeners: Mapping[str, tuple[socket.socket, ...]]
    terminal: int | None
    pipes: tuple[int | None, int | None, int | None]

    @property
    def control(self) -> int:
        """Descriptor that is readable when `event` has an event to return."""
        ...

    def begin(self) -> None:
        """Execute the agent."""
        ...

    def event(self) -> Event | None:
        """Return the next event, or None if there is none yet. Does not block."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to the agent's foreground job."""
        ...

    def connect(self, port: int) -> socket.socket:
        """Connect to a port on the cell's own loopback."""
        ...

    def close(self) -> None:
        """Kill every process in the cell, and close the cell."""
        ...


class Ending(msgspec.Struct, frozen=True):
    """The way in which the agent ended: by exit status `code` or by `signal`. `why` is the reason if the agent did not
    end by itself.
    """

    code: int | None
    signal: int | None
    why: str | None = None

    @property
    def exit_code(self) -> int:
        """Exit status in the convention of shells: the code, or 128 plus the signal's number."""
        return self.code if self.code is not None else 128 + (self.signal or 0)


def attend(
    cell: RunningCell,
    streams: Streams,
    doors: Sequence[Door],
    published: Sequence[Published] = (),
    *,
    patience_s: float = PATIENCE_S,
) -> Ending:
    """Begin the agent in a cell that was started with these streams, and return after it has ended and the cell is closed.

    Raises ValueError if a listener of the cell has no door with its name, and OSError if the agent's program could
    not be executed. Call it in the main thread, because no other thread can set signal handlers.
    """
    by_name = {door.name: door for door in doors}
    if missing := sorted(set(cell.listeners) - set(by_name)):
        raise ValueError(f"no door for listeners of the cell: {', '.join(missing)}")
    with contextlib.ExitStack() as undo:
        undo.callback(cell.close)
        loop = Loop()
        undo.callback(loop.close)
        attendance = undo.enter_context(contextlib.closing(_Attendance(cell, streams, loop, patience_s)))
        relays = undo.enter_context(contextlib.closing(Relays(loop)))
        for name, listeners in cell.listeners.items():
            relays.serve(listeners, by_name[name])
        for port in published:
            relays.serve(port.listeners, port.door(cell.connect))
        return attendance.run(relays)


class _Attendance:
    """The state of the command that accompanies a cell, while its agent runs: the streams, the signals, and how the
    agent ended.
    """

    def __init__(self, cell: RunningCell, streams: Streams, loop: Loop, patience_s: float) -> None:
        self._cell = cell
        self._loop = loop
        self._patience_s = patience_s
        self._ending: Ending | None = None
        self._is_closing = False
        self._undo = contextlib.ExitStack()
        self._shown: list[Pump] = []
        """The pump that copies output to the terminal, if there is one. All other output pumps are in `_piped`."""
        self._piped: list[Pump] = []
        self._terminal = self._undo_close(Terminal.maybe(streams))
        self._at_terminal = contextlib.ExitStack()
        # Runs before the terminal is closed, because a closed descriptor cannot leave the loop.
        self._undo.callback(self._at_terminal.close)
        if self._terminal is not None and cell.terminal is not None:
            self._terminal.copy_to(cell.terminal)
            self._connect_terminal(self._terminal, cell.terminal)
        for number, theirs in enumerate(cell.pipes):
            if theirs is not None:
                self._connect_pipe(number, theirs)

    @functools.cached_property
    def _filter(self) -> TerminalFilter:
        """The filter for output to the terminal. It is imported on first use, which saves 3 ms for a launch without a
        terminal.
        """
        from aileron.cell.terminal_filter import TerminalFilter

        return TerminalFilter(is_utf8=speaks_utf8(os.environ))

    def _undo_close(self, terminal: Terminal | None) -> Terminal | None:
        if terminal is not None:
            self._undo.callback(terminal.close)
        return terminal

    def close(self) -> None:
        """Close the descriptors that are still open, after removing each from the event loop."""
        self._undo.close()

    # Bytes

    def _connect_terminal(self, terminal: Terminal, theirs: int) -> None:
        """Connect the person's terminal with the cell's terminal, in both directions. `theirs` is the master side of
        the cell's terminal; a copy is used, because the cell may close it first.
        """
        os.set_blocking(theirs, False)
        master = self._end(os.dup(theirs))
        ours = End(self._loop, terminal.descriptor)
        self._at_terminal.callback(ours.on_readable, None)
        self._at_terminal.callback(ours.on_writable, None)
        self._at_terminal.callback(master.close)
        self._shown.append(Pump(self._loop, master, ours, self._forget_output, through=self._filter.feed))
        if terminal.is_input:
            Pump(self._loop, ours, master, lambda _: None)

    def _forget_output(self, why: PumpEnd) -> None:
        """Do nothing when one of the two terminals has disconnected: output to it is lost, and the kernel sends SIGHUP
        to the programs on it.
        """

    def _connect_pipe(self, number: int, theirs: int) -> None:
        """Connect this process's stream `number` with the cell's pipe, of which `theirs` is the outer end. Only this
        process keeps that end open, so that the agent notices when it is closed.
        """
        inside = self._end(_taken_over(theirs))
        outside = self._end_of_ours(number)
        if number == 0:
            Pump(self._loop, outside, inside, lambda _: inside.close())
        else:
            self._piped.append(Pump(self._loop, inside, outside, lambda _: inside.close()))

    def _end(self, descriptor: int) -> End:
        os.set_blocking(descriptor, False)
        made = End(self._loop, descriptor)
        self._undo.callback(made.close)
        return made

    def _end_of_ours(self, number: int) -> End:
        """Return an `End` for this process's descriptor 0, 1 or 2. Other processes share that open file, so it must
        stay blocking.
        """
        mode = os.fstat(number).st_mode
        if stat.S_ISSOCK(mode):
            made = End(self._loop, socket.socket(fileno=os.dup(number)))
        elif stat.S_ISFIFO(mode):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY
            try:
                again = os.open(f"/proc/self/fd/{number}", flags | os.O_NONBLOCK | os.O_CLOEXEC)
                made = End(self._loop, again)
            except OSError:  # another user made the pipe
                made = End(self._loop, os.dup(number), most=_PIPE_BUF)
        else:
            made = End(self._loop, os.dup(number), most=_PIPE_BUF if os.isatty(number) else None)
        self._undo.callback(made.close)
        return made

    # Until the end

    def run(self, relays: Relays) -> Ending:
        """Begin the agent, and return how it ended after its cell is closed."""
        with _Signals(self._loop) as signals:
            with self._raw_terminal():
                ending = self._until_ended(signals)
                self._loop.watch(self._cell.control, 0, lambda _: None)
                relays.close()  # before the cell closes the listeners
                self._cell.close()
                ending = self._write_rest(self._shown, ending, signals)
                self._at_terminal.close()
            return self._write_rest(self._piped, ending, signals)  # the terminal is restored, so Ctrl-C is a signal

    def _until_ended(self, signals: _Signals) -> Ending:
        self._loop.watch(self._cell.control, _READABLE, lambda _: None)
        self._cell.begin()
        while self._ending is None:
            self._loop.turn()
            for number in signals.taken():
                self._signalled(number)
            while self._ending is None and (event := self._cell.event()) is not None:
                self._happened(event, signals)
        return self._ending

    @contextlib.contextmanager
    def _raw_terminal(self) -> Iterator[None]:
        if self._terminal is None:
            yield
            return
        try:
            self._terminal.make_raw()
            yield
        finally:
            self._terminal.put_back(self._filter.finish(), was_asked=self._filter.questions > 0)

    def _signalled(self, number: int) -> None:
        if number == signal.SIGWINCH:
            self._resize()
        elif number == signal.SIGCONT:  # only this process was stopped, not the agent
            if self._terminal is not None and self._terminal.is_ours:
                self._terminal.make_raw()
                self._resize()
                self._cell.signal(signal.SIGCONT)
        else:
            self._cell.signal(number)
            if number in _LAST and not self._is_closing:
                self._is_closing = True
                self._loop.later(self._patience_s, functools.partial(self._give_up, number))

    def _resize(self) -> None:
        if self._terminal is not None and self._cell.terminal is not None:
            self._terminal.copy_size_to(self._cell.terminal)

    def _give_up(self, number: int) -> None:
        if self._ending is None:
            why = f"still running {self._patience_s:g} s after {signal.Signals(number).name}"
            self._ending = Ending(None, signal.SIGKILL, why)

    def _happened(self, event: Event, signals: _Signals) -> None:
        match event:
            case Stopped():
                self._stop(signals)
            case Ended(code, number, why):
                self._ending = Ending(code, number, why)
            case NotStarted(number):
                raise OSError(number, os.strerror(number))

    def _stop(self, signals: _Signals) -> None:
        """Stop this process, because the agent has stopped. When this process is continued, continue the agent."""
        self._settle()
        terminal = self._terminal
        if terminal is not None:
            terminal.put_back(self._filter.pause(), was_asked=self._filter.questions > 0)
        signals.stop_us(is_by_key=terminal is not None and terminal.is_input and terminal.is_ours)
        if terminal is not None:
            terminal.make_raw()
            with contextlib.suppress(OSError):
                terminal.write(self._filter.resume())
            self._resize()
        self._cell.signal(signal.SIGCONT)

    def _settle(self) -> None:
        """Pass on the output that the agent has already written, for at most _SETTLE_S seconds."""
        until = time.monotonic() + _SETTLE_S
        moved = -1
        while moved != (moved := self._moved()) and time.monotonic() < until:
            self._loop.turn(0.01)

    def _write_rest(self, outputs: list[Pump], ending: Ending, signals: _Signals) -> Ending:
        """Write the remaining output of these pumps after the agent's end. Return `ending`, or a changed copy if output
        was lost.
        """
        read_s, moved, moved_at = 0.0, self._moved(), time.monotonic()
        while not all(pump.is_over for pump in outputs):
            begun = time.monotonic()
            self._loop.turn(0.05)
            now = time.monotonic()
            if moved != (moved := self._moved()):
                moved_at = now
            quiet_s = now - moved_at
            if any(pump.is_held_up for pump in outputs):
                if lost := self._maybe_lost(outputs, ending, signals, quiet_s):
                    return lost
                continue
            read_s += now - begun
            if quiet_s >= _QUIET_S or read_s >= _REST_S:
                break
        return ending

    def _maybe_lost(self, outputs: list[Pump], ending: Ending, signals: _Signals, quiet_s: float) -> Ending | None:
        """Return a changed copy of `ending` if the wait for the remaining output must stop, because of a signal or a
        reader that pauses too long; None if the wait continues.
        """
        for number in signals.taken():
            if number in _ENDING:
                return Ending(None, number, f"{signal.Signals(number).name} before all of its output was read")
            if number == signal.SIGTSTP:
                signals.stop_us(is_by_key=False)
        is_raw = outputs is self._shown and self._terminal is not None and self._terminal.is_input
        if quiet_s < _STALLED_S or not (is_raw or self._is_closing):
            return None
        why = f"the rest of its output is lost, of which nothing was read for {_STALLED_S:g} s"
        return msgspec.structs.replace(ending, code=None if ending.code is None else ending.code or 1, why=why)

    def _moved(self) -> int:
        return sum(pump.moved for pump in (*self._shown, *self._piped))


def _taken_over(theirs: int) -> int:
    """Return a copy of the outer end of one of the cell's pipes, and replace the original descriptor by /dev/null,
    which the cell object can close.
    """
    ours = os.dup(theirs)
    empty = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.dup2(empty, theirs, inheritable=False)
    finally:
        os.close(empty)
    return ours


class _Signals:
    """A context manager that collects signals to this process, and wakes the loop when one arrives."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._arrived: deque[int] = deque(maxlen=64)  # if more arrive in one turn, the oldest are lost
        self._before: dict[int, signal.Handlers | None] = {}
        self._wake, self._woken = socket.socketpair()

    def __enter__(self) -> _Signals:
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._loop.watch(self._woken.fileno(), _READABLE, self._awake)
        self._old_wake = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in (*_HANDED_ON, signal.SIGWINCH, signal.SIGCONT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._arrive)  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(self._old_wake)
        self._loop.watch(self._woken.fileno(), 0, self._awake)
        self._wake.close()
        self._woken.close()

    def _arrive(self, number: int, _: FrameType | None) -> None:
        self._arrived.append(number)

    def _awake(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass

    def taken(self) -> list[int]:
        """Return the numbers of the signals that have arrived since the last call."""
        taken = []
        while self._arrived:
            taken.append(self._arrived.popleft())
        return taken

    def stop_us(self, *, is_by_key: bool) -> None:
        """Stop this process until it is continued, and discard the SIGCONT that continued it. If Ctrl-Z caused the stop
        (`is_by_key`), stop the complete job as the kernel would.
        """
        if not is_by_key:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif signal.SIGTSTP in self._before:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.killpg(os.getpgrp(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, self._arrive)
        with contextlib.suppress(ValueError):
            while True:
                self._arrived.remove(signal.SIGCONT)
