"""Stress of test files, run again and again on a machine too busy for them: it shows assumptions about time, order or ports.

    python -m tests.support.stress tests/mcp/test_relay_http.py
    python -m tests.support.stress              # every file of SECOND_TRIES

Each file runs TIMES times, by itself, on two processors that BUSY other processes keep busy. The exit
status is 1 if any run failed; the failed tests are named, with their output.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["SECOND_TRIES"]

TIMES: Final = 20
BUSY: Final = 2
_CORES: Final = 2
_FILE_S: Final = 1800.0
"""Seconds that one run of one file may take: many times the longest."""
SECOND_TRIES: Final = {
    "tests/attacks/test_cell_persons_place.py": "a connection that ends was not waited for",
    "tests/attacks/test_floods.py": "a stranger's budget came back while it was looked at",
    "tests/attacks/test_outliving.py": "an attempt at the end was made sooner or later than the template looked",
    "tests/attacks/test_same_user_console.py": "what was approved was counted before it was there",
    "tests/attacks/test_siblings.py": "a child that held a lock had not ended yet",
    "tests/audit/test_audit_verify.py": "the ledger was written later than it was read",
    "tests/browser/test_passkeys_on_the_page.py": "the verdict before the decision was taken for the one after it",
    "tests/browser/test_the_page.py": "the verdict before the decision was taken for the one after it",
    "tests/cell/test_attend.py": "answers of the terminal were typed into the shell",
    "tests/cell/test_relays.py": "a connection that ends was not waited for",
    "tests/cli/test_security_keys.py": "a reason was typed into the question before it was there",
    "tests/connectors/test_caldav.py": "the server found its port taken",
    "tests/connectors/test_mail.py": "a message of another test arrived; a port was taken",
    "tests/daemon/test_cells.py": "a number of a process was another's later",
    "tests/daemon/test_descriptors.py": "the daemon ended for want of a descriptor",
    "tests/daemon/test_host_questions.py": "24 < took_s < 29",
    "tests/daemon/test_injected_on_record.py": "the ledger was not empty",
    "tests/daemon/test_notified.py": "not known: a connection ended without an answer",
    "tests/daemon/test_runs.py": "a connector that asked was killed when another one ended",
    "tests/daemon/test_spares.py": "what was loaded before the lock had not been loaded yet",
    "tests/e2e/test_caldav_in_the_jail.py": "a log was asked before it was written",
    "tests/e2e/test_certificate_page.py": "a log was read before it was written",
    "tests/e2e/test_demo_from_the_wheel.py": "a daemon was left behind",
    "tests/e2e/test_mail_in_the_jail.py": "messages were sorted by the names of their files",
    "tests/e2e/test_websockets.py": "a connector had memory for five large messages at once",
    "tests/egress/test_egress_engine.py": "connecting took the time that was for the exchange",
    "tests/egress/test_egress_one_parser.py": "a parser gave another reason",
    "tests/egress/test_egress_tunnel.py": "a full backlog was not waited for",
    "tests/egress/test_egress_websocket.py": "a slow reader was told by the time that passed",
    "tests/secret_stores/test_fetched_once.py": "many waited for one fetch, which had ended",
    "tests/faults/test_kill_at_every_step.py": "killed before it sent anything",
    "tests/gateway/test_streams.py": "a piece waited for an acknowledgement",
    "tests/ingress/test_admission.py": "two thousand strangers took long enough for three more",
    "tests/logins/test_every_login_leaves_nothing.py": "a login had ended meanwhile",
    "tests/logins/test_logins_postgres_effects.py": "two changes were to race, and did not",
    "tests/logins/test_logins_relay.py": "a connector hung up before much waited for it",
    "tests/mcp/test_relay_early.py": "a list was asked for before it was kept",
    "tests/cards/test_long_values.py": "thirty seconds by the clock were enough for what takes five of a processor",
    "tests/runs/test_limits.py": "the daemon had not imported everything",
    "tests/runs/test_spares.py": "templates of other tests were counted",
    "tests/sandbox/test_cell_stub.py": "descriptors were counted while it imported",
    "tests/sandbox/test_jail_host.py": "a template had room again sooner than expected",
    "tests/sandbox/test_jail_limits.py": "an attempt at the end was made sooner or later than the template looked",
    "tests/tui/test_safety_surroundings.py": "four seconds were over before a word was typed",
    "tests/web/test_deciding_several_here.py": "a digest that was changed was the same in one of sixteen runs",
}
"""Files that ever needed a second try, and the assumption behind it. No file leaves the table.

They come from `git log -i --grep` for race, wait, late, once, port, order and machine in commits of tests, of which these say
that a test failed without a fault; and from RERUN lines.
"""


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    """Keep other processes running that use the same processors."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _failed(file: str) -> list[str]:
    """Run a file once. Return the lines that name failures; print the output before them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-r", "fE", "--tb=short", "-p", "no:cacheprovider", file],
        capture_output=True,
        text=True,
        timeout=_FILE_S,
        env={**os.environ, "AILERON_MUST_JAIL": "1"},
        check=False,
    )
    if done.returncode == 0:
        return []
    print(done.stdout, done.stderr, flush=True)
    lines = [line.partition(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines or [f"exit status {done.returncode}"]


def main(files: Sequence[str]) -> int:
    """Stress these files, or all of SECOND_TRIES. Return the exit status."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:_CORES])
    bad: dict[str, list[str]] = {}
    with _busy():
        for file in files or SECOND_TRIES:
            began = time.monotonic()
            failures = [failed for _turn in range(TIMES) if (failed := _failed(file))]
            print(f"{file}: {len(failures)} of {TIMES} failed, {time.monotonic() - began:.0f} s", flush=True)
            if failures:
                bad[file] = sorted({line for failed in failures for line in failed})
    for file, lines in bad.items():
        print(f"{file}:", *lines, sep="\n  ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
