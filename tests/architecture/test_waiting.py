"""The tests' helpers that wait, and the rule that no other code of the tests sleeps."""

from __future__ import annotations

import ast
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.support.stress import SECOND_TRIES
from tests.support.waiting import Late, wait_gone, wait_text, wait_text_async, wait_until, wait_until_async

ROOT: Final = Path(__file__).resolve().parents[2]
SLEEPS: Final = {
    "tests/support/waiting.py": (3, "the helper"),
    # Programs that a test starts: their purpose is to be slow, or to run until they are ended.
    "tests/approver_key/hosts.py": (1, "is there until it is ended"),
    "tests/attacks/connectors/hostile/connector.py": (1, "is there until it is ended"),
    "tests/attacks/flooder.py": (1, "drips"),
    "tests/attacks/probes/tries.py": (2, "is there until it is ended"),
    "tests/sandbox/hosts.py": (
        3,
        "two are there until they are ended, one meets a process at many moments of its birth",
    ),
    "tests/sandbox/probes/attempts.py": (3, "is there until it is ended"),
    "tests/support/attended_agents.py": (1, "is there until it is ended"),
    "tests/support/connectors/kept_frames/kept_frames.py": (1, "sees nothing of ours but a file, in its jail"),
    "tests/support/connectors/mail_login/connector.py": (1, "is there until it is ended"),
    "tests/support/connectors/probe/connector.py": (4, "is slow, or there until it is ended"),
    "tests/support/connectors/websockets/connector.py": (1, "computes, and reads nothing meanwhile"),
    # Servers and clients of a test that are slow on purpose.
    "tests/egress/test_egress_budget.py": (1, "an upload that drips"),
    "tests/egress/test_egress_hostile.py": (1, "work that does not give way"),
    "tests/faults/kills.py": (1, "a moment at random, which is what is tested"),
    # A time that another process measures without reporting it.
    "tests/attacks/same_user/fullscreen.py": (1, "a key of the console is dead when something has come up"),
    "tests/browser/test_attacks_on_the_page.py": (1, "a browser updates a worker after some seconds without requests"),
    "tests/cli/test_console_terminal.py": (1, "keys are dead after a prompt that was broken off"),
    "tests/support/client_certificates.py": (1, "a certificate expires, by the clock of TLS"),
    "tests/support/early.py": (1, "a connector that was asked too early is used up"),
    "tests/support/tmux.py": (1, "a key of the console is dead when something has come up"),
}
"""Calls that sleep, by file, with the reason. A file is added only for a reason of these kinds, and each number may only fall."""


def test_wait_until_returns_the_first_true_value() -> None:
    """Falsy values such as 0, None and an empty text do not end the wait."""
    looks = iter([0, None, "", "here"])

    assert wait_until(lambda: next(looks), "something comes") == "here"


def test_a_wait_that_times_out_reports_its_condition_and_the_last_value() -> None:
    """The message has the last value, or the text that the test gives in its place."""
    with pytest.raises(Late, match=r"^two are told: not within 0.02 s; seen last: \[\]$"):
        wait_until(list, "two are told", within_s=0.02)
    with pytest.raises(Late, match=r"seen last: starting up$"):
        wait_until(lambda: False, "it starts", within_s=0.02, seen=lambda: "starting up")


def test_a_wait_ends_at_once_when_its_condition_can_no_longer_come_true() -> None:
    """An example is a server that has exited and will never respond."""
    with pytest.raises(Late, match=r"^it starts: not any more \(exit 3\); seen last: False$"):
        wait_until(lambda: False, "it starts", unless=lambda: "exit 3")


@pytest.mark.anyio
async def test_the_async_wait_accepts_functions_and_coroutine_functions() -> None:
    """Both helpers have the same words in their timeout error."""
    looks = iter([False, True])

    async def look() -> bool:
        return next(looks)

    assert await wait_until_async(look, "it comes")
    with pytest.raises(Late, match="never: not within"):
        await wait_until_async(lambda: None, "never", within_s=0.02)


@pytest.mark.anyio
async def test_a_wait_for_a_text_ends_when_the_text_is_written(tmp_path: Path) -> None:
    """The file's folder may be created meanwhile. The timeout error has the end of the file."""
    file = tmp_path / "made" / "later" / "log"

    def write() -> None:
        file.parent.mkdir(parents=True)
        with file.open("w") as log:
            for line in ("one\n", "two\n", "ready\n"):
                log.write(line)
                log.flush()

    with pytest.raises(Late, match="seen last: None"):
        wait_text(file, within_s=0.01)
    writing = threading.Timer(0.02, write)
    writing.start()
    assert "ready" in await wait_text_async(file, "ready")
    writing.join()
    with pytest.raises(Late, match=r"has 'three'(?s:.*)ready\n$"):
        wait_text(file, "three", within_s=0.01)


def test_a_wait_for_the_end_of_a_process_ends_when_it_is_reaped() -> None:
    """A zombie still counts as a running process."""
    with subprocess.Popen(["sleep", "100"]) as process:
        with pytest.raises(Late, match=r"process \d+ ends: not within .*\(sleep\) S"):
            wait_gone(process.pid, within_s=0.01)
        process.kill()
        reaping = threading.Thread(target=process.wait)
        reaping.start()
        wait_gone(process.pid)
        reaping.join()


def _is_sleep(node: ast.AST) -> bool:
    """Return whether a call only passes time: a sleep, except sleep(0), which yields a turn, or a wait for no event."""
    if not isinstance(node, ast.Call):
        return False
    called, arguments = ast.unparse(node.func), [ast.unparse(argument) for argument in node.args]
    is_named = called in ("sleep", "time.sleep", "anyio.sleep", "asyncio.sleep") and arguments != ["0"]
    is_empty = called == "select.select" and arguments[:3] == ["[]", "[]", "[]"]
    return is_named or is_empty or (called.endswith("Event().wait") and bool(arguments))


def test_no_test_sleeps_without_a_listed_reason() -> None:
    """A sleep for the usual duration of a step fails on a slower machine, and wastes time on a faster one."""
    files = [path for path in (ROOT / "tests").rglob("*.py") if "__pycache__" not in path.parts]
    sleeps = Counter(
        str(path.relative_to(ROOT))
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if _is_sleep(node)
    )

    allowed = {file: count for file, (count, _why) in SLEEPS.items()}
    assert sleeps - Counter(allowed) == Counter(), "wait with tests/support/waiting.py"
    assert Counter(allowed) - sleeps == Counter(), "the table has what is gone"


def test_each_test_file_listed_for_repeated_runs_exists() -> None:
    """The command `make stress` runs these files, and must not lose one that was renamed."""
    assert [file for file in SECOND_TRIES if not (ROOT / file).is_file()] == []
