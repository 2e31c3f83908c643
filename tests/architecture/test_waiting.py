"""The helper of the tests that waits, and that nothing else there sleeps."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from tests.support.waiting import Late, wait_gone, wait_text, wait_text_async, wait_until, wait_until_async


def test_what_comes_is_returned() -> None:
    """The first value that is true."""
    looks = iter([0, None, "", "here"])

    assert wait_until(lambda: next(looks), "something comes") == "here"


def test_a_wait_in_vain_says_what_was_waited_for_and_what_was_seen_last() -> None:
    """The value, or what the test shows of it instead."""
    with pytest.raises(Late, match=r"^two are told: not within 0.02 s; seen last: \[\]$"):
        wait_until(list, "two are told", within_s=0.02)
    with pytest.raises(Late, match=r"seen last: starting up$"):
        wait_until(lambda: False, "it starts", within_s=0.02, seen=lambda: "starting up")


def test_a_wait_ends_at_once_when_nothing_can_come_any_more() -> None:
    """A server that has ended never answers."""
    with pytest.raises(Late, match=r"^it starts: not any more \(exit 3\); seen last: False$"):
        wait_until(lambda: False, "it starts", unless=lambda: "exit 3")


@pytest.mark.anyio
async def test_tasks_wait_for_values_and_for_what_is_awaited() -> None:
    """A function or a coroutine function, with the same words in vain."""
    looks = iter([False, True])

    async def look() -> bool:
        return next(looks)

    assert await wait_until_async(look, "it comes")
    with pytest.raises(Late, match="never: not within"):
        await wait_until_async(lambda: None, "never", within_s=0.02)


@pytest.mark.anyio
async def test_a_text_is_seen_when_it_is_written(tmp_path: Path) -> None:
    """Also in a folder that is made meanwhile. In vain: the end of what is there."""
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


def test_the_end_of_a_process_is_seen_when_it_is_reaped() -> None:
    """A zombie is still there."""
    with subprocess.Popen(["sleep", "100"]) as process:
        with pytest.raises(Late, match=r"process \d+ ends: not within .*\(sleep\) S"):
            wait_gone(process.pid, within_s=0.01)
        process.kill()
        reaping = threading.Thread(target=process.wait)
        reaping.start()
        wait_gone(process.pid)
        reaping.join()
