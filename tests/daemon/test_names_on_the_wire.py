"""A jailed connector and host names: which look-ups of a whole daemon reach a real name server.

The daemon, its jails and the name server run in namespaces of their own (tests/support/lab_daemon.py), where the system's
resolver asks no other server.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab_daemon import way_in

pytestmark = pytest.mark.jail
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Run the daemon once with every attempt and return the report."""
    done = subprocess.run(way_in(tmp_path_factory.mktemp("lab")), cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.abuse_case("E13")
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("another host", "host_not_granted"),
        ("data in a name", "host_not_granted"),
        ("below the granted host", "host_not_granted"),
        ("another port", "host_not_granted"),
        ("another credential", "credential_not_granted"),
    ],
)
def test_a_connectors_denied_request_causes_no_dns_lookup(
    seen: dict[str, dict[str, Any]], what: str, reason: str
) -> None:
    """Otherwise a connector could leak data in the names that it requests."""
    report = seen[what]
    assert (report["asked"], report["class"], report["reason"]) == ([], "capability_denied", reason)
    assert report["connections"] == 0


def test_a_connectors_granted_host_is_looked_up_in_dns(seen: dict[str, dict[str, Any]]) -> None:
    """Positive control: there is one lookup for each address family, and the response arrives."""
    report = seen["the granted host"]
    assert report["asked"] == [["api.test", "A"], ["api.test", "AAAA"]]
    assert "ok" in str(report["result"])
    assert report["connections"] == 1


@pytest.mark.abuse_case("E13")
def test_a_dns_lookup_inside_a_jail_reaches_no_name_server(seen: dict[str, dict[str, Any]]) -> None:
    """A jail has no network socket, so the connector's own resolver cannot send a query."""
    assert seen["from inside the jail"]["asked"] == []
