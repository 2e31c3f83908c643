"""A runner of test files side by side: collected once, in one process, which then forks the processes that run them.

    python -m pytest --shards 3 tests

A plugin of pytest (tests/conftest.py). Each shard takes the next file when it is done with one, so the files that take long
should be collected first. Fixtures of a session are made in each shard, those of a file in one. What a shard reports is shown and
counted by the first process, as if it had run the test itself. A shard that dies fails the run, with the test it was in.

Not here: which files take long (tests/conftest.py). Why not pytest-xdist: docs/adr/0076-what-runs-when.md.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

__all__ = ["pytest_addoption", "pytest_runtestloop"]

_NUMBER: Final = struct.Struct("=I")
_SILENT_S: Final = 2_000.0
"""Seconds of silence from all shards after which they are killed: most tests have two minutes, and none over half an hour."""
_END_S: Final = 60.0
"""Seconds for a shard to end after it has said that it ends: threads of the interpreter's own end with it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the number of processes."""
    parser.addoption("--shards", type=int, default=1, metavar="N", help="run files of tests in N processes")


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Fork the shards and report for them. Return None, for pytest's own loop, if one process is enough."""
    files = _files(session.items)
    number = min(session.config.option.shards, len(files))
    if number < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    queue = _queue(len(files))
    temporary = Path(tempfile.mkdtemp(prefix="ail-tests-"))
    shards: list[_Shard] = []
    for index in range(number):
        heard, told = Pipe(duplex=False)
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            for connection in (heard, *(shard.heard for shard in shards)):
                connection.close()
            _own_directory(session.config, temporary / str(index))
            return _Reporter(session, told).run(files, queue)
        told.close()
        shards.append(_Shard(pid, heard))
    try:
        _Watch(session, shards, queue).run()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return True


def _files(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the tests of each file, in the order in which the files were collected."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(str(item.path), []).append(item)
    return list(files.values())


def _queue(length: int) -> int:
    """Return a pipe with every number below `length`, which ends after the last."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(map(_NUMBER.pack, range(length))))  # 4 B each of 64 KiB
    os.close(writing)
    return reading


def _taken(queue: int) -> Iterator[int]:
    """Yield numbers that no other process took: the kernel lets one process at a time read from a pipe."""
    while number := os.read(queue, _NUMBER.size):
        yield _NUMBER.unpack(number)[0]


class _Reporter:
    """The part of a shard: it runs files, and reports to the first process."""

    def __init__(self, session: pytest.Session, told: Connection) -> None:
        self._session, self._config, self._told = session, session.config, told
        _own_streams(session.config)
        session.config.pluginmanager.register(self)

    def run(self, files: list[list[pytest.Item]], queue: int) -> bool:
        """Run the files that come out of the queue."""
        for number in _taken(queue):
            # Behind the last test all ends but what belongs to the session: which file is next is not known yet.
            following = [*files[number][1:], self._session]
            for item, next_item in zip(files[number], following, strict=True):
                self._told.send(("begins", item.nodeid))
                self._config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hand on how a phase of a test came out."""
        self._told.send(("report", self._config.hook.pytest_report_to_serializable(config=self._config, report=report)))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Report that nothing is missing, once the fixtures of the session are gone as well."""
        self._told.send(("begins", "the end of the session"))
        yield
        self._told.send(("ended", ""))


def _own_directory(config: pytest.Config, directory: Path) -> None:
    """Have the temporary directories of a shard below one that its parent removes.

    By itself pytest would remove those of earlier runs when it ends, and each shard would do that at the same time as the others.
    """
    directory.mkdir(mode=0o700)
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._given_basetemp = factory._basetemp = directory


def _own_streams(config: pytest.Config) -> None:
    """Capture into files of the shard's own, and report to no terminal except the stacks of tests that took too long."""
    plugins = config.pluginmanager
    terminal = config.get_terminal_writer()
    plugins.unregister(name="terminalreporter")
    plugins.register(SimpleNamespace(_tw=terminal, stats={}), "terminalreporter")
    capture = plugins.getplugin("capturemanager")
    if capture.is_globally_capturing():
        capture.resume_global_capture()
        for stream in (sys.stdout, sys.stderr):  # which modules keep that were imported
            with contextlib.suppress(io.UnsupportedOperation), tempfile.TemporaryFile() as own:
                os.dup2(own.fileno(), stream.fileno(), inheritable=False)
        capture.suspend_global_capture()


class _Shard:
    """A shard, as the first process knows it."""

    def __init__(self, pid: int, heard: Connection) -> None:
        self.heard = heard
        self.runs = "its beginning"
        self._pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._ended_at: float | None = None
        self.status: int | None = None

    def handles(self) -> list[Any]:
        """Return the handles that become readable when the shard has news."""
        return [self._pidfd] if self.heard.closed else [self._pidfd, self.heard]

    def reports(self) -> Iterator[dict[str, Any]]:
        """Take the reports of tests that it has sent since the last call."""
        try:
            while not self.heard.closed and self.heard.poll():
                kind, told = self.heard.recv()
                if kind == "report":
                    yield told
                elif kind == "begins":
                    self.runs = told
                else:
                    self._ended_at = time.monotonic()
        except (EOFError, ConnectionError):
            self.heard.close()

    def has_ended(self) -> bool:
        """Take its exit status if there is one; kill it where that is late."""
        if self._ended_at is not None and time.monotonic() - self._ended_at > _END_S:
            self.kill()
        ended, status = os.waitpid(self._pid, os.WNOHANG)
        if ended:
            self.status = os.waitstatus_to_exitcode(status)
        return bool(ended)

    def is_lost(self) -> bool:
        """Return whether the shard ended without saying so, or with a status other than 0 and 1 (a test failed)."""
        return self._ended_at is None or self.status not in (0, 1)

    def kill(self) -> None:
        """Kill the shard at once."""
        signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


class _Watch:
    """The part of the first process: it shows the shards' reports until all shards have ended."""

    def __init__(self, session: pytest.Session, shards: list[_Shard], queue: int) -> None:
        self._session, self._config = session, session.config
        self._shards, self._queue = shards, queue

    def run(self) -> None:
        """Fail the session where a shard was lost, and stop it where enough tests have failed."""
        try:
            self._hear_all()
        except BaseException:
            self._stop()
            raise
        lost = [f"a shard ended with {shard.status} in {shard.runs}" for shard in self._shards if shard.is_lost()]
        if lost:
            self._session.shouldfail = "; ".join(lost)  # which the summary shows
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _hear_all(self) -> None:
        live, heard_at = list(self._shards), time.monotonic()
        while live:
            if wait([handle for shard in live for handle in shard.handles()], 5.0):
                heard_at = time.monotonic()
            for shard in list(live):
                self._hear(shard)
                if shard.has_ended():
                    self._hear(shard)
                    live.remove(shard)
            if time.monotonic() - heard_at > _SILENT_S:
                for shard in live:
                    shard.kill()

    def _hear(self, shard: _Shard) -> None:
        for data in shard.reports():
            report = self._config.hook.pytest_report_from_serializable(config=self._config, data=data)
            self._config.hook.pytest_runtest_logreport(report=report)
        if self._session.shouldfail or self._session.shouldstop:
            for _ in _taken(self._queue):
                pass

    def _stop(self) -> None:
        """Let the shards take no other file, and kill those that have not ended in time."""
        for _ in _taken(self._queue):
            pass
        for shard in self._shards:
            if shard.status is None and not wait(shard.handles()[:1], _END_S):
                shard.kill()
