"""Two machines in one: a network namespace for the daemon and one for a container, joined by a pair of virtual Ethernet ends.

For root and for ordinary users: both lie in a user namespace in which the user of the tests is root. Files are shared, networks
are not: programs in the container reach HOST through its one interface, and no loopback but their own. The words `host` or
`container` before a program's own put it there, as an ordinary user, as a daemon should be:

    with Networks() as networks:
        subprocess.run([*networks.host, sys.executable, "-m", "aileron", "daemon", "start"], …)
        Agent(home, program=[*networks.container, sys.executable, "-m", "aileron.mcp.relay"], AILERON_URL=f"https://{HOST}:8443")

Needs unshare(1) and nsenter(1) of util-linux, and ip(8) of iproute2.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Final, Self

__all__ = ["CONTAINER", "HOST", "MISSING", "Networks"]

HOST: Final = "10.77.0.1"
CONTAINER: Final = "10.77.0.2"
DEADLINE_S: Final = 30.0
_NEEDED: Final = {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2"}
MISSING: Final = "; ".join(
    f"{program} is not installed: apt-get install {package}"
    for program, package in _NEEDED.items()
    if shutil.which(program) is None and shutil.which(program, path="/usr/sbin:/sbin") is None
)
"""Message that names the programs this machine lacks; empty if it lacks none."""
_HOLD: Final = ("sh", "-c", "echo; exec cat")
"""Program that reports that it runs, and ends with the holder of its standard input."""

_AS_A_USER: Final = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""Command that runs a program as an ordinary user: root in the namespace is no user outside, and has no ids for jails."""


class Networks:
    """Both machines, until the end of the block. `host` and `container` are the words that go before a program's own."""

    def __init__(self) -> None:
        self._held: list[subprocess.Popen[bytes]] = []
        self.host: list[str] = []
        self.container: list[str] = []

    def __enter__(self) -> Self:
        try:
            host = self._hold(["unshare", "--user", "--map-root-user", "--net"])
            container = self._hold([*host, "unshare", "--net"])
            self.host, self.container = [*host, *_AS_A_USER], [*container, *_AS_A_USER]
            self._ip(host, "link add host0 type veth peer name box0")
            self._ip(host, f"link set box0 netns {self._held[1].pid}")
            for where, device, address in ((host, "host0", HOST), (container, "box0", CONTAINER)):
                self._ip(where, f"addr add {address}/24 dev {device}")
                self._ip(where, f"link set {device} up")
                self._ip(where, "link set lo up")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _hold(self, words: list[str]) -> list[str]:
        holder = subprocess.Popen([*words, *_HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._held.append(holder)
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n", f"{words} ended with {holder.wait(DEADLINE_S)}"
        return ["nsenter", "--target", str(holder.pid), "--user", "--net", "--preserve-credentials"]

    @staticmethod
    def _ip(where: list[str], words: str) -> None:
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        subprocess.run([*where, "ip", *words.split()], check=True, timeout=DEADLINE_S, env=environment)

    def _end(self) -> None:
        for holder in reversed(self._held):
            holder.kill()
            holder.communicate()
