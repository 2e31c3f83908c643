"""A machine of the test's own and the Internet that it sees: services under their real names, at public addresses, over TLS.

Two network namespaces, joined by a pair of virtual Ethernet ends. In the machine, /etc/hosts has the real names, the system's
trusted authorities are replaced by the test's, and everything but loopback leads out. The Internet is the other namespace: it has
the names' addresses, which are public, so nothing needs to be allowed in any settings. The product's defaults are used:

    with RealNames(authority, ["api.github.com", "imap.example.com"]) as machine:
        with GitHubServer(tls, listener=machine.listen_at("api.github.com")):     # a fake in the test's own process
            machine.start_daemon(home.path)
        with machine.pass_on("imap.example.com", 993, dovecot.imaps):          # a real server, on a port of the test's loopback
            …

Addresses on loopback would not do, and public ones in the machine itself would not either: Aileron refuses addresses of the
machine that it runs on. For root and for ordinary users. Needs ip(8) of iproute2, and what names.py needs.
"""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from typing import Final, Self

from tests.support.names import DEADLINE_S, Names, made_socket
from tests.support.upstream import Authority

__all__ = ["RealNames"]

_FIRST: Final = "93.184.216."
"""First three numbers of the names' addresses: public ones, and no service's of these tests."""
_MACHINE: Final = "10.77.1.2"
_HOLD: Final = ("sh", "-c", "echo; exec cat")
"""Program that reports that it runs, and ends with the holder of its standard input."""
_PIECE: Final = 65536
_BACKLOG: Final = 64


class RealNames(Names):
    """The machine and its Internet, until the end of the block. At most 250 names."""

    def __init__(self, authority: Authority, names: Sequence[str]) -> None:
        self._addresses: Final = {name: f"{_FIRST}{number}" for number, name in enumerate(names, start=1)}
        super().__init__(self._addresses, trusted=authority.ca_file)
        self._outside: subprocess.Popen[bytes] | None = None
        self._to_outside: list[str] = []

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._connect_outside()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._outside is not None:
            self._outside.kill()
            self._outside.communicate()
        super().__exit__()

    def listen_at(self, name: str, port: int = 443) -> socket.socket:
        """Return a listening socket at a name of the Internet, for a server in the test's own process."""
        return made_socket(self._to_outside, "listen", self._addresses[name], port)

    @contextlib.contextmanager
    def pass_on(self, name: str, port: int, to: int) -> Iterator[None]:
        """Pass connections to a port of that name on to a port of the test's loopback, until the end of the block."""
        passed = _PassedOn(self.listen_at(name, port), to)
        try:
            yield
        finally:
            passed.close()

    def _connect_outside(self) -> None:
        outside = subprocess.Popen(
            [*self.enter, "unshare", "--net", *_HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._outside = outside
        assert outside.stdout is not None
        assert outside.stdout.readline() == b"\n", f"the second namespace ended with {outside.wait(DEADLINE_S)}"
        target = ["--target", str(outside.pid), "--user", "--net", "--preserve-credentials", "--wd"]
        self._to_outside = ["nsenter", *target]
        addresses = [f"addr add {address}/32 dev out0" for address in self._addresses.values()]
        _ip(self.enter, f"link add in0 type veth peer name out0 netns {outside.pid}")
        _ip(self._to_outside, *addresses, "link set out0 up", f"route add {_MACHINE}/32 dev out0")
        _ip(self.enter, f"addr add {_MACHINE}/32 dev in0", "link set in0 up", "route add default dev in0")


def _ip(where: Sequence[str], *commands: str) -> None:
    subprocess.run(
        [*where, "ip", "-batch", "-"],
        input="\n".join([*commands, ""]).encode(),
        check=True,
        timeout=DEADLINE_S,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )


class _PassedOn:
    """A listener whose connections go on to a port of the test's loopback, each in a thread."""

    def __init__(self, listener: socket.socket, to: int) -> None:
        self._listener: Final = listener
        self._to: Final = to
        self._open: Final[set[socket.socket]] = set()
        self._threads: Final = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """End the connections, and stop listening."""
        for sock in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on it
        for thread in self._threads:
            thread.join(DEADLINE_S)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _address = self._listener.accept()
            except OSError:
                return
            self._open.add(near)
            thread = threading.Thread(target=self._pass, args=(near,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _pass(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._to), DEADLINE_S) as far:
            ends = {near: far, far: near}
            while ends:
                for sock in select.select(list(ends), [], [])[0]:
                    data = sock.recv(_PIECE)
                    if data:
                        ends[sock].sendall(data)
                    else:
                        ends.pop(sock).shutdown(socket.SHUT_WR)
        self._open.discard(near)
