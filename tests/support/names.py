"""A machine of the test's own, in which public names lead to servers of the test, on port 443 as everywhere.

A user, mount and network namespace with loopback only: its /etc/hosts is the test's, no name server is asked, and any
port may be bound. So a connector can be run with its manifest as released, with the real names of its service:

    names = {"gmail.googleapis.com": "127.0.0.1", "accounts.google.com": "127.0.0.2"}
    with Names(names) as machine, Upstream(script, tls, listener=machine.listen("127.0.0.1")) as server:
        machine.start_daemon(home.path)
        …                                   # the daemon's Unix sockets are files: the test speaks to it from where it is

Files are shared with the test, the network is not: `listen` and `connect` give sockets of the machine to the test's own
process. Programs that `prefix` puts there run as an ordinary user (to the files, the test's own user; to themselves, uid 1000)
and start in the top folder of the sources. For root and for ordinary users. Needs unshare(1), nsenter(1)
and mount(8) of util-linux. Source: user_namespaces(7), unix(7), ip(7).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Self

__all__ = ["Names", "made_socket"]

ROOT: Final = Path(__file__).resolve().parents[2]
DEADLINE_S: Final = 30.0
BACKLOG: Final = 128
_MAKE: Final = ("unshare", "--user", "--map-root-user", "--mount", "--net", "--propagation", "private")
_AS_A_USER: Final = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""Command that runs a program as an ordinary user: root in the namespace is no user outside, and has no ids for jails."""
_ALONE: Final = {
    "/etc/resolv.conf": "",  # no name server, so 127.0.0.1, where none is: refused at once
    "/etc/nsswitch.conf": "hosts: files\n",
}
_AUTHORITIES: Final = Path("/etc/ssl/certs")
"""Folder of the authorities that Debian's programs trust."""
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1  # netdevice(7)


class Names:
    """The machine, until the end of the block. `names`: an address of 127.0.0.0/8 for each; `localhost` has one already.

    `trusted`: a file of certificates; programs there trust these authorities, in place of the system's.
    """

    def __init__(self, names: Mapping[str, str], *, trusted: Path | None = None) -> None:
        lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{address} {name}" for name, address in names.items())]
        self._hosts: Final = "\n".join([*lines, ""])
        self._files: Final = tempfile.TemporaryDirectory(prefix="ail-names-")
        self._trusted: Final = trusted
        self._holder: subprocess.Popen[bytes] | None = None
        self.enter: list[str] = []
        """Words that go before a program's own, to run it in the machine as its root, without ids for jails."""
        self.prefix: list[str] = []
        """Words that go before a program's own, to run it in the machine."""

    def __enter__(self) -> Self:
        for path, text in {**_ALONE, "/etc/hosts": self._hosts}.items():
            ours = Path(self._files.name) / Path(path).name
            ours.write_text(text, encoding="ascii")
            ours.chmod(0o644)
        if self._trusted is not None:
            (Path(self._files.name) / _AUTHORITIES.name).mkdir()
            shutil.copy(self._trusted, Path(self._files.name) / _AUTHORITIES.name / "ca-certificates.crt")
        Path(self._files.name).chmod(0o755)
        self._holder = subprocess.Popen(
            [*_MAKE, sys.executable, "-m", "tests.support.names", "hold", self._files.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"\n":
            self.__exit__()
            raise RuntimeError("the namespaces cannot be made; see its standard error")
        target = ["--target", str(self._holder.pid), "--user", "--mount", "--net", "--preserve-credentials", "--wd"]
        self.enter = ["nsenter", *target]
        self.prefix = [*self.enter, *_AS_A_USER]
        return self

    def __exit__(self, *_: object) -> None:
        if self._holder is not None:
            self._holder.kill()
            self._holder.communicate()
        self._files.cleanup()

    def start_daemon(self, home: Path) -> None:
        """Start the daemon of a home in the machine."""
        start = [*self.prefix, sys.executable, "-m", "aileron", "daemon", "start"]
        subprocess.run(start, env={**os.environ, "AILERON_HOME": str(home)}, check=True, timeout=2 * DEADLINE_S)

    def listen(self, address: str = "127.0.0.1", port: int = 443) -> socket.socket:
        """Return a listening socket of the machine, for a server in the test's own process."""
        return self._socket("listen", address, port)

    def connect(self, address: str, port: int) -> socket.socket:
        """Return a connection that was made in the machine."""
        return self._socket("connect", address, port)

    def _socket(self, what: Literal["listen", "connect"], address: str, port: int) -> socket.socket:
        return made_socket(self.enter, what, address, port)


def made_socket(enter: Sequence[str], what: Literal["listen", "connect"], address: str, port: int) -> socket.socket:
    """Return a socket that listens or is connected in the namespaces into which the words `enter` lead."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        program = [sys.executable, "-m", "tests.support.names", what, address, str(port), str(theirs.fileno())]
        subprocess.run([*enter, *program], check=True, timeout=DEADLINE_S, pass_fds=[theirs.fileno()])
        _, [descriptor], _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=descriptor)


def _hold(directory: Path) -> None:
    """Set the machine up, inside it as root; report that, and keep it until the starting process goes away."""
    for path in (*_ALONE, "/etc/hosts"):
        subprocess.run(["mount", "--bind", str(directory / Path(path).name), path], check=True)
    if (directory / _AUTHORITIES.name).exists():
        subprocess.run(["mount", "--bind", str(directory / _AUTHORITIES.name), str(_AUTHORITIES)], check=True)
    Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0", encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        asked = fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        (flags,) = struct.unpack_from("h", asked, 16)
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
    print(flush=True)
    sys.stdin.read()


def _hand_out(what: str, address: str, port: int, descriptor: int) -> None:
    """Create one socket inside the machine, and pass it to the process at the other end of `descriptor`."""
    made = (
        socket.create_server((address, port), backlog=BACKLOG)
        if what == "listen"
        else socket.create_connection((address, port), timeout=DEADLINE_S)
    )
    with made, socket.socket(fileno=descriptor) as to:
        made.settimeout(None)
        socket.send_fds(to, [b"."], [made.fileno()])


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        _hold(Path(sys.argv[2]))
    else:
        _hand_out(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
