"""Writer of as many runs as a daemon has, until it is killed: it prints each id once its event is on disk.

Usage: crash_writer.py LEDGER. Lines: `began ID`, `ended ID`, `asked APPROVAL`, each written after its commit returned.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import msgspec

from aileron.audit.log import Audit
from aileron.ledger import Ledger
from aileron.model.outcome import Succeeded
from tests.audit.conftest import START_S, a_plan, an_invocation


def say(word: str, name: str) -> None:
    """Print a line in one write, so that a kill cannot split it."""
    os.write(1, f"{word} {name}\n".encode())


async def run_for_ever(audit: Audit, number: int) -> None:
    """Begin and end runs forever; every eighth asks a person instead."""
    count = number
    while True:
        count += 1
        plan = msgspec.structs.replace(
            a_plan(), args={"to": f"{os.getpid()}-{count}"}
        )  # what was cut short is not repeated
        if count % 8 == 0:
            say("asked", (await audit.pending(plan, an_invocation(), START_S * 2)).approval_id)
            continue
        run_id = await audit.requested(
            plan, an_invocation(idempotency_key=f"{os.getpid()}-{number}-{count}"), layers=["x"]
        )
        say("began", run_id)
        await audit.finished(run_id, Succeeded(run_id=run_id, result=run_id), 1)
        say("ended", run_id)


async def main() -> None:
    """Run eight callers at once."""
    with Ledger.open(Path(sys.argv[1]), Path(sys.argv[1]).parent, "0.1.0") as ledger:
        audit = Audit(ledger)
        await audit.recover()
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(run_for_ever, audit, number * 1_000_000)


if __name__ == "__main__":
    anyio.run(main)
