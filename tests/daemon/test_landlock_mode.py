"""`sandbox.mode = "landlock"` with a real daemon: chosen, named in the record, and promises 2 and 3 still hold."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import aileron_sandbox
from aileron.registry.connector_build import build
from aileron_sandbox.support import examine
from tests.support.elf_programs import compiled
from tests.support.home import DaemonHome
from tests.support.probed import probed_home
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail


@pytest.fixture(scope="module")
def weaker(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Start a home whose owner chose the mode, or skip where it does not work."""
    if os.geteuid() == 0 and not _others_may_read(Path(aileron_sandbox.__file__)):
        pytest.skip("the jail of a root is nobody, who cannot read this checkout")
    report = examine("landlock")
    if not report.available:
        others_cannot_read_it = os.geteuid() == 0 and "EACCES" in str(report.what)
        assert not os.environ.get("AILERON_MUST_JAIL") or others_cannot_read_it, report
        pytest.skip(f"no such jail here: {report.what}")
    with probed_home(upstream.port, '[sandbox]\nmode = "landlock"\n') as made:
        yield made


def _others_may_read(file: Path) -> bool:
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in file.resolve().parents)


def test_a_connector_runs_in_landlock_mode_and_the_audit_trail_names_the_mode(
    weaker: DaemonHome, upstream: CountingServer
) -> None:
    """The connector sends a request with a credential that it never sees."""
    weaker.add_probe_action("fetch", "path:string?", "with_credential:boolean?")

    answer = weaker.run("fetch", {"path": "/hello", "with_credential": True})

    assert answer.body["result"] == {"status": 200, "body": "hello"}
    assert upstream.requests[-1][2].startswith("Basic ")
    started = next(event for event in weaker.events(answer.body["audit_id"]) if event["type"] == "run.started")
    assert "no-namespaces" in started["layers"]
    assert "pid-ns" not in started["layers"]


def test_a_connector_in_landlock_mode_cannot_read_the_users_files(weaker: DaemonHome) -> None:
    """The vault, the ledger and the daemon's environment give EACCES; the connector's own program can be read."""
    weaker.add_probe_action("open_file", "path:string")

    for path in (weaker.path / "vault.json", weaker.path / "ledger.db", f"/proc/{weaker.daemon_pid}/environ"):
        assert weaker.run("open-file", {"path": str(path)}).body["result"] == "EACCES", path
    assert weaker.run("open-file", {"path": "/proc/self/fd/5"}).body["result"] == "read"


def test_a_connector_in_landlock_mode_cannot_connect_directly(weaker: DaemonHome, upstream: CountingServer) -> None:
    """The granted server is on loopback: the connection does not arrive, and the error names its address."""
    weaker.add_probe_action("reach", "host:string", "port:integer")
    before = len(upstream.requests)

    error = weaker.run("reach", {"host": "127.0.0.1", "port": upstream.port}).body["error"]

    assert (error["class"], error["requested"]) == ("capability_denied", f"network:127.0.0.1:{upstream.port}")
    assert len(upstream.requests) == before


_MANIFEST = """
[connector]
name = "github://aileron-tests/held-elsewhere"
version = "1.0.0"
[capabilities.network]
hosts = ["localhost:1"]
[capabilities.runtime]
imports = ["http"]
[limits]
subprocess = {may_fork}
"""


@pytest.mark.abuse_case("J13")
@pytest.mark.parametrize("held", ["a compiled program", "a program that starts others"])
def test_a_connector_that_landlock_mode_cannot_confine_is_not_installed(
    weaker: DaemonHome, tmp_path: Path, held: str
) -> None:
    """The error names the setting, and no question is asked. This home's probe was installed, as control."""
    is_compiled = held == "a compiled program"
    (tmp_path / "manifest.toml").write_text(_MANIFEST.format(may_fork=str(not is_compiled).lower()), encoding="utf-8")
    if is_compiled:
        (tmp_path / "connector").write_bytes(compiled("connector"))
    else:
        (tmp_path / "connector.py").write_text(
            "from aileron_connector import op, run\n@op\ndef greet() -> str:\n    return ''\nrun()\n", encoding="utf-8"
        )
    archive = weaker.path / "built.tar.gz"
    archive.write_bytes(build(tmp_path, []).archive)

    answer = weaker.ask("POST", "/v1/connectors", {"path": str(archive)})

    assert answer.body["error"]["class"] == "sandbox_unavailable"
    assert "without namespaces" in answer.body["error"]["message"]
    assert "[sandbox]" in answer.body["error"]["message"]
