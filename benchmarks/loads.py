"""Large homes and many callers for bench_load.py: homes with many actions, ledger rows or waiting questions."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.door import TEXT, Door, Kept
from benchmarks.ledgers import filled
from benchmarks.measure import Measured
from benchmarks.peers import DEADLINE_S
from tests.support.home import DaemonHome
from tests.support.relay import INITIALIZE

__all__ = ["Crowd", "ToolList", "echo_home", "processor_s", "reads", "with_actions"]

_ECHO: Final = Path(__file__).parent / "echo"
_CONNECTOR: Final = "github://aileron-benchmarks/echo"
_BUSY: Final = 429
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
"""Seconds before a caller that was told `busy` asks again; twice as long each time, as clients do."""


@contextlib.contextmanager
def echo_home(*, rows: int = 0, waiting: int = 0) -> Iterator[DaemonHome]:
    """Yield a home with the action `give-back`, and `ask-first`, about which a person is asked; with `rows` rows in its ledger
    before the daemon's first, and `waiting` pending questions.

    It lies in `AILERON_BENCH_DIR`, /var/tmp unless set: a million rows take 700 MB, and need a real disk.
    """
    path = Path(tempfile.mkdtemp(prefix="ail-", dir=os.environ.get("AILERON_BENCH_DIR", "/var/tmp")))
    home = DaemonHome(path / "h")
    try:
        home.path.mkdir(mode=0o700)
        if rows:
            filled(home.path / "ledger.db", home.path, rows, are_asked=False).close()
        home.ask("GET", "/healthz")  # makes the rest of the home
        home.unlock()
        home.install(_ECHO)
        home.add_probe_action("give_back", "text:string", connector=_CONNECTOR)
        home.add_probe_action(
            "give_back", "text:string", name="ask-first", gated=True, expires_in="1h", connector=_CONNECTOR
        )
        for _ in range(waiting):
            home.asked("ask-first", TEXT)
        yield home
    finally:
        home.stop()
        shutil.rmtree(path, ignore_errors=True)


def with_actions(home: DaemonHome, count: int) -> None:
    """Install copies of `give-back`, each under its own name, until `count` actions are installed."""
    directory = home.path / "actions"
    text = (directory / "give-back.md").read_text(encoding="utf-8")
    for number in range(count - len(list(directory.glob("*.md")))):
        copy = directory / f"give-back-{number:05}.md"
        copy.write_text(text.replace('name = "give-back"', f'name = "{copy.stem}"', 1), encoding="utf-8")
        copy.chmod(0o600)


def reads(home: DaemonHome, path: str) -> Kept:
    """Return a client for a GET request on the operator socket, as a person's command makes it."""
    return Kept(home.path / "run" / "operator.sock", f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


def processor_s(pid: int) -> float:
    """Return the processor time in seconds that all threads of a process have used, to the nanosecond (proc(5), schedstat)."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += int((task / "schedstat").read_bytes().split()[0])
    return total / 1e9


class ToolList:
    """An agent's connection that requests all tools, page by page."""

    def __init__(self, home: DaemonHome) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(DEADLINE_S)
        self._socket.connect(str(home.path / "run" / "mcp.sock"))
        self._lines = self._socket.makefile("rb")
        self._ask("initialize", INITIALIZE)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self) -> ToolList:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()

    def walk(self) -> int:
        """Request every page. Return the number of tools."""
        count, cursor = 0, None
        while True:
            page = self._ask("tools/list", {} if cursor is None else {"cursor": cursor})
            count += len(page["tools"])
            cursor = page.get("nextCursor")
            if cursor is None:
                return count

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._send({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        while line := self._lines.readline():
            message = json.loads(line)
            if message.get("id") == 1:
                result: dict[str, Any] = message["result"]
                return result
        raise ConnectionError("the daemon closed the connection")

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")


class Crowd:
    """Several callers of one action, each of which asks again as soon as it has its answer."""

    def __init__(self, home: DaemonHome, callers: int) -> None:
        self._home = home
        self._callers = callers
        self.latencies: list[float] = []
        """Seconds from a caller's first request to its result, pauses included."""
        self.refused: list[float] = []
        """Number of `busy` answers in each window, divided by the runs that were carried out."""

    def window(self, runs: int) -> Measured:
        """Carry out `runs` runs. Return runs a second."""
        with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
            callers = [_Caller(stack.enter_context(Door(self._home.path))) for _ in range(self._callers)]
            began, left, done = time.perf_counter(), runs, 0
            for caller in callers[:left]:
                selector.register(caller.door, selectors.EVENT_READ, caller)
                caller.ask()
                left -= 1
            while done < runs:
                for caller in _ready(selector, callers):
                    if not caller.has_result():
                        continue
                    done += 1
                    self.latencies.append(time.perf_counter() - caller.asked)
                    if left:
                        left -= 1
                        caller.ask()
                    else:
                        selector.unregister(caller.door)
            seconds = time.perf_counter() - began
        self.refused.append(sum(caller.refused for caller in callers) / runs)
        return Measured([runs / seconds])


class _Caller:
    """A caller of the crowd: what it waits for, and when it asks again."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.asked = 0.0
        self.refused = 0
        self.again: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    def ask(self) -> None:
        """Request a new run."""
        self.asked, self._pause_s = time.perf_counter(), _FIRST_PAUSE_S
        self.door.ask()

    def ask_again(self) -> None:
        """Repeat the request that was refused."""
        self.again = None
        self.door.ask()

    def has_result(self) -> bool:
        """Read the available data. Return whether the result is here. A caller that is told `busy` schedules another attempt."""
        status = self.door.maybe_status()
        if status == _BUSY:
            self.refused += 1
            self.again = time.perf_counter() + self._pause_s
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
            return False
        assert status in {None, 200}, self.door.body
        return status is not None


def _ready(selector: selectors.BaseSelector, callers: list[_Caller]) -> list[_Caller]:
    """Repeat the requests of callers whose pause is over. Return the callers that have something to read.

    TimeoutError if no run ended for DEADLINE_S.
    """
    now = time.perf_counter()
    for caller in callers:
        if caller.again is not None and caller.again <= now:
            caller.ask_again()
    soonest = min((caller.again for caller in callers if caller.again is not None), default=now + DEADLINE_S)
    ready = selector.select(max(0.0, soonest - now))
    if not ready and soonest >= now + DEADLINE_S:
        raise TimeoutError(f"no run ended for {DEADLINE_S} s")
    return [key.data for key, _ in ready]
