"""A disk that fills up during a renewal: the provider's new tokens are not lost, because they cannot be had twice.

A real file system of a few megabytes holds the home, as in tests/faults/test_full_disk.py; provider and browser are outside
of it. The test runs itself there as a program, `python -m tests.browser.test_full_disk_renewal DIRECTORY`, which prints its
observations as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.browser.desk import desk
from tests.browser.person import MIRA
from tests.browser.test_renewal import end_token, in_background
from tests.faults.test_full_disk import ROOT, _empty, _fill, _ways_to_mount
from tests.support.browser import Browser, needs_browser
from tests.support.provider import Provider
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.jail]


def test_a_full_disk_loses_no_renewed_token() -> None:
    """A disk that is already full prevents the request. If it fills up during the request, the new token is kept in
    memory, used, and written later.
    """
    needs_browser()
    directory = Path(tempfile.mkdtemp(prefix="ail-"))
    try:
        ways = list(_ways_to_mount(directory))
        way = next((way for way in ways if not subprocess.run([*way, "true"], capture_output=True).returncode), None)
        if way is None:
            if os.environ.get("AILERON_MUST_JAIL") == "1":
                pytest.fail("a file system of a test's own needs root or user namespaces")
            pytest.skip("neither root nor user namespaces: no small file system to be had")
        program = [sys.executable, "-m", "tests.browser.test_full_disk_renewal", str(directory)]
        done = subprocess.run([*way, *program], cwd=ROOT, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stderr
        seen = json.loads(done.stdout)
    finally:
        shutil.rmtree(directory, ignore_errors=True)

    assert seen["full"]["error"]["details"]["cause"] == "disk_full"
    assert seen["asked while full"] == [200]
    assert seen["asked after it filled up"] == [200, 200]
    assert seen["with room"]["result"]["account"] == MIRA
    assert seen["after a restart"]["result"]["account"] == MIRA
    assert seen["asked in the end"] == [200, 200]
    assert seen["verified"]


# The program


def _scenario(disk: Path) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Provider(Path(folder)) as provider,
        Browser([provider.certificate]) as browser,
    ):
        tempfile.tempdir = str(disk)
        with desk(provider, Path(folder)) as at_desk:
            tempfile.tempdir = None
            end_token(at_desk, browser)
            _fill(disk)
            full = at_desk.whoami().body
            asked = provider.asked("token")
            _empty(disk)
            provider.fault(hold=True)
            thread, _came = in_background(at_desk)
            wait_until(provider.held, "the provider has answered")
            _fill(disk)
            provider.release()
            thread.join(60)
            _empty(disk)
            seen: dict[str, Any] = {"full": full, "asked while full": asked}
            seen["asked after it filled up"] = provider.asked("token")
            seen["with room"] = at_desk.whoami().body
            at_desk.home.stop()
            at_desk.home.unlock()
            seen["after a restart"] = at_desk.whoami().body
            seen["asked in the end"] = provider.asked("token")
            seen["verified"] = at_desk.home.must("GET", "/v1/audit/verify")["ok"]
            return seen


if __name__ == "__main__":
    print(json.dumps(_scenario(Path(sys.argv[1]))))
