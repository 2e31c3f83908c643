"""A machine for name resolution: a process in new user, mount and network namespaces that asks the test's name server.

In the namespaces, /etc/resolv.conf, /etc/hosts and /etc/nsswitch.conf are the test's, the only interface is loopback, and the
system's own getaddrinfo(3) sends real packets to 127.0.0.1:53, where tests/support/nameserver.py counts them. Works for
root and for ordinary users, with unshare(1) and mount(8) of util-linux.

The parent holds a `Lab` and asks for one request at a time; the child runs a real `Egress` with its default resolver,
against a real TLS upstream, and reports the result:

    with Lab() as lab:
        report = lab.ask("https://api.test:{port}/", zone={"api.test": ["127.0.0.1"]}, hosts=["api.test:{port}"])
        assert report.asked == [] and report.failure["class"] == "capability_denied"

Not here: jails and the daemon (they would work there too; these tests are of the engine).
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

__all__ = ["OWN_ADDRESSES", "UPSTREAM_NAME", "Lab", "Report"]

ROOT: Final = Path(__file__).resolve().parents[2]
_ENTER: Final = ("unshare", "--user", "--map-root-user", "--mount", "--net", "--propagation", "private")
UPSTREAM_NAME: Final = "api.test"
OWN_ADDRESSES: Final = ("93.184.216.34", "10.9.8.7")
"""Addresses of an interface in the namespaces: one public, one private."""


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of one request. `asked` are the questions on the wire, (name, type); `failure` is None after a response."""

    asked: list[tuple[str, str]]
    connections: int
    address: str | None
    status: int | None
    failure: dict[str, Any] | None

    @property
    def reason(self) -> object:
        """`details.phase` of a network error, else `details.reason` of a denial, else None."""
        details = (self.failure or {}).get("details", {})
        return details.get("phase", details.get("reason"))


class Lab:
    """The parent's end. `port` is the upstream's."""

    def __init__(self) -> None:
        self._files = tempfile.TemporaryDirectory(prefix="ail-lab-")
        self.port = 0

    def __enter__(self) -> Self:
        self._child = subprocess.Popen(
            [*_ENTER, sys.executable, "-W", "error", "-m", "tests.support.lab_inside", self._files.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.port = int(self._hear()["port"])
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()
        self._files.cleanup()

    def ask(
        self,
        url: str,
        *,
        zone: Mapping[str, list[str] | str],
        hosts: Sequence[str],
        private: bool = False,
        later: Mapping[str, list[str] | str] | None = None,
        times: int = 1,
        is_daemon: bool = False,
    ) -> Report:
        """Send `times` requests at once by a new engine; `{port}` is the upstream's, and with `is_daemon` also the engine's
        own.

        `later` replaces the zone after the first question for A and AAAA was answered. The report is of the last request.
        """
        told = {
            "url": url.format(port=self.port),
            "hosts": [host.format(port=self.port) for host in hosts],
            "private": private,
            "zone": dict(zone),
            "later": None if later is None else dict(later),
            "times": times,
            "own_port": self.port if is_daemon else None,
        }
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(told) + "\n")
        self._child.stdin.flush()
        heard = self._hear()
        return Report(**{**heard, "asked": [(name, kind) for name, kind in heard["asked"]]})

    def _hear(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        assert line, f"the lab ended with code {self._child.wait(10)}"
        heard: dict[str, Any] = json.loads(line)
        return heard
