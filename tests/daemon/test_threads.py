"""A daemon whose user may start no more threads: the tasks beside its rooms go on, and log the problem."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import io, logging, os, resource, subprocess, sys, tempfile, threading
from pathlib import Path

import anyio, anyio.lowlevel, anyio.to_thread
from aileron.audit.log import Audit
from aileron.config import LiveSettings, Settings
from aileron.daemon.http import sessions
from aileron.isolated.start import ended
from aileron.ingress.known import KnownCallers
from aileron.ledger.sqlite import Ledger
from aileron.model.failure import AileronError
import aileron.threads, encodings.utf_16_be, psutil  # while they may be read
from tests.support.waiting import wait_until_async

sessions.LOOK_S = 0.02
said = io.StringIO()
logging.basicConfig(level=logging.WARNING, stream=said, format="%(message)s")

async def main(home):
    if os.geteuid() == 0:  # which has as many threads as it likes
        os.chown(home, 12345, 12345)
        os.setuid(12345)
    with Ledger.open(home / "ledger.db", home, "0") as ledger:
        opened = sessions.Sessions(Audit(ledger), ledger, KnownCallers(), LiveSettings(Settings()))
        nowhere = subprocess.DEVNULL
        agent, helper = (subprocess.Popen(["sleep", "60"], stdout=nowhere, stderr=nowhere) for _ in range(2))
        await opened.open("x", "/tmp", 3600, agent.pid)
        first = threading.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, first.wait)  # the one worker that there is
            await anyio.lowlevel.checkpoint()
            limit = resource.getrlimit(resource.RLIMIT_NPROC)
            resource.setrlimit(resource.RLIMIT_NPROC, (1, limit[1]))
            try:
                tasks.start_soon(opened.end_on_time)
                try:
                    await ledger.read(lambda snapshot: None)
                except AileronError as error:
                    print("ledger:", error.failure.failure_class, error.failure.retriable)
                agent.kill(), agent.wait(), helper.kill()
                await ended(helper)
                await wait_until_async(said.getvalue, "the look that failed is in the log")
                resource.setrlimit(resource.RLIMIT_NPROC, limit)

                async def has_ended():
                    return (await opened.newest())[0].status != "open"

                await wait_until_async(has_ended, "the session of a process that has gone ends")
            finally:
                first.set()
            tasks.cancel_scope.cancel()
    print(said.getvalue())

with tempfile.TemporaryDirectory() as made:
    anyio.run(main, Path(made))
"""


def test_the_daemons_tasks_survive_a_shortage_of_threads() -> None:
    """The check of sessions is retried, a read of the ledger is refused as busy, and child processes are reaped."""
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[0] == "ledger: busy True"
    assert ended.stdout.count("sessions that are over may stay open: [Errno 11] can't start new thread") == 1
