"""Attacks on a secret by a connector that is lent it for a request: it looks everywhere it can, and others look into it.

The secret is sent to a real upstream, so it is in use while the connector runs.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.attacks.hostile import kind_of
from tests.attacks.tally import Attack
from tests.support.descendants import read_descendants
from tests.support.home import DaemonHome
from tests.support.probed import probed_home
from tests.support.upstream_http import CountingServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail

SECRET: Final = "canary-5f2e-secret-in-use"
SENT: Final = f"Basic {base64.b64encode(b'mira:' + SECRET.encode()).decode()}"
FORMS: Final = (
    SECRET.encode(),
    base64.b64encode(b"mira:" + SECRET.encode()),
    SECRET.encode().hex().encode(),
    SECRET.encode("utf-16-le"),
)


@pytest.fixture(scope="module")
def home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Provide a daemon with an open vault and a bound probe connector, whose time limit leaves time to inspect it."""
    with probed_home(upstream.port, timeout_s=120, secret=SECRET.encode()) as made:
        made.add_probe_action("fetch", "path:string?", "with_credential:boolean?")
        yield made


@pytest.mark.abuse_case("S1")
def test_no_process_of_a_jail_ever_holds_the_secret(attack: Attack, home: DaemonHome, upstream: CountingServer) -> None:
    """The test searches every page of the template and its descendants while a request with the secret is in flight.

    The control is the same search of the daemon's own memory, which has the secret.
    """
    asked = home.run("fetch", {"path": "/slow", "with_credential": True}, wait=0)
    assert asked.status == 202, asked.body
    wait_until(lambda: any(path == "/slow" for _, path, _ in upstream.requests), "the upstream is asked")
    if os.geteuid() == 0:
        found = read_descendants(home.daemon_pid, lambda process: (process.ppid(), _found_in(process.pid)))
        assert len(found) >= 3, "a stub, a template, and the connector at least"
        for process, (parent, forms) in found.items():
            attack.denied(f"in the memory of process {parent} → {process.pid}", [], forms)
        attack.control("the daemon has it", True, bool(_found_in(home.daemon_pid)))
    else:
        opened = read_descendants(home.daemon_pid, lambda process: (process.ppid(), _opening_memory(process)))
        # Direct children of the daemon are stubs, processes of this user with nothing in them.
        jailed = {process: said for process, (parent, said) in opened.items() if parent != home.daemon_pid}
        assert len(jailed) >= 2, "a template and the connector at least"
        for process, said in jailed.items():
            attack.denied(f"an ordinary user opening the memory of {process.pid}", "EACCES", said)
        attack.control("the upstream was sent it", SENT, upstream.requests[-1][2])
    attack.control("the request waits still", "running", home.must("GET", f"/v1/runs/{asked.body['run_id']}")["status"])


@pytest.mark.abuse_case("S2")
def test_no_file_of_the_home_holds_the_secret_in_the_clear(
    attack: Attack, home: DaemonHome, upstream: CountingServer
) -> None:
    """The test searches vault, ledger, configuration, log and run directory in every encoding."""
    attack.control("the upstream was sent it", "ok", _fetched(home, upstream))
    for path in sorted(home.path.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            attack.denied(f"in {path.relative_to(home.path)}", [], [form for form in FORMS if form in data])


@pytest.mark.abuse_case("S3")
def test_the_daemons_environment_memory_and_files_cannot_be_read(attack: Attack, home: DaemonHome) -> None:
    """The daemon is undumpable, so root owns these files of it, proc_pid(5); its arguments hold no secret."""
    pid = home.daemon_pid
    for name in ("environ", "mem", "fd", "maps"):
        attack.denied(f"owning /proc/PID/{name}", 0, os.stat(f"/proc/{pid}/{name}").st_uid)
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
    attack.denied("in its arguments", [], [form for form in FORMS if form in arguments])
    attack.control("a process of this user is its own", os.geteuid(), os.stat("/proc/self/environ").st_uid)


def _fetched(home: DaemonHome, upstream: CountingServer) -> object:
    """Send a request with the secret. Return `ok` if the server got it."""
    answer = home.run("fetch", {"path": "/hello", "with_credential": True})
    return kind_of(answer) if upstream.requests[-1] == ("GET", "/hello", SENT) else upstream.requests[-1]


def _opening_memory(process: psutil.Process) -> str:
    try:
        os.close(os.open(f"/proc/{process.pid}/mem", os.O_RDONLY))
    except PermissionError:
        return "EACCES"
    return "ok"


def _found_in(pid: int | None) -> list[str]:
    """Return the mappings of a process that contain a form of the secret."""
    found = []
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            match = re.match(r"([0-9a-f]+)-([0-9a-f]+) r", line)
            if match is None or "[v" in line:
                continue
            start, end = (int(text, 16) for text in match.groups())
            with contextlib.suppress(OSError, OverflowError):
                memory.seek(start)
                data = memory.read(end - start)
                found += [line for form in FORMS if form in data]
    return found
