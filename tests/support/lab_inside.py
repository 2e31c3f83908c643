"""The inside of tests/support/lab.py: set the machine up, then answer one line of JSON with one line of JSON."""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import anyio

from aileron.config import Settings
from aileron.egress import Egress, EgressRequest, Meter
from aileron.model.failure import AileronError
from aileron.model.names import HostPort
from aileron.model.plan import Budget, Grant
from tests.egress.conftest import Journal, Vault
from tests.support.lab import OWN_ADDRESSES, UPSTREAM_NAME
from tests.support.nameserver import NameServer
from tests.support.upstream import Authority, Upstream, answer

_FILES: Final = {
    "/etc/resolv.conf": "nameserver 127.0.0.1\nsearch corp.test\noptions timeout:1 attempts:1\n",
    "/etc/hosts": "127.0.0.1 localhost\n127.0.0.1 in-hosts.test\n",
    "/etc/nsswitch.conf": "hosts: files dns\n",
}
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFADDR, _IFF_UP = 0x8913, 0x8914, 0x8916, 1  # netdevice(7)


def set_up(directory: Path) -> None:
    """Mount the files of name resolution, and set up the only interface."""
    for path, text in _FILES.items():
        ours = directory / Path(path).name
        ours.write_text(text, encoding="ascii")
        subprocess.run(["mount", "--bind", str(ours), path], check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        asked = fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        (flags,) = struct.unpack_from("h", asked, 16)
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
        for number, address in enumerate(OWN_ADDRESSES):
            name = b"lo:%d" % number
            inet = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(sock, _SIOCSIFADDR, struct.pack("16s", name) + inet)


async def _ask(told: dict[str, Any], server: NameServer, upstream: Upstream, ca_file: Path) -> dict[str, Any]:
    server.zone, server.asked = told["zone"], []
    before = upstream.connections

    def question(_name: str) -> None:
        if told["later"] is not None and len(server.asked) > 2:
            server.zone = told["later"]

    server.on_question = question
    hosts = tuple(HostPort.parse(host) for host in told["hosts"])
    grant = Grant(hosts=hosts, private=frozenset(hosts) if told["private"] else frozenset())
    egress, journal, outcome = (
        Egress(Settings(egress_ca_pem=ca_file.read_text(encoding="ascii")), Vault(), own_port=told["own_port"]),
        Journal(),
        dict[str, Any](),
    )

    async def one() -> None:
        meter, deadline = Meter(Budget()), anyio.current_time() + 30
        outcome.update(status=None, failure=None)
        try:
            async with egress.open(EgressRequest("GET", told["url"]), grant, meter, journal, deadline) as response:
                async for _piece in response:
                    pass
                outcome["status"] = response.status
        except AileronError as error:
            failure = error.failure
            outcome["failure"] = {
                "class": failure.failure_class.value,
                "message": failure.message,
                "details": failure.details,
            }

    async with anyio.create_task_group() as tasks:
        for _time in range(told["times"]):
            tasks.start_soon(one)
    await egress.aclose()
    addresses = [row.address for row in journal.rows if hasattr(row, "address")]
    return {
        **outcome,
        "asked": list(server.asked),
        "connections": upstream.connections - before,
        "address": addresses[-1] if addresses else None,
    }


async def _main(directory: Path) -> None:
    set_up(directory)
    authority = Authority(directory)
    tls = authority.server_context(UPSTREAM_NAME, "*.api.test", "in-hosts.test", "localhost")
    with NameServer(port=53) as server, Upstream(lambda _seen: answer(b"ok"), tls) as upstream:
        print(json.dumps({"port": upstream.port}), flush=True)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            print(json.dumps(await _ask(json.loads(line), server, upstream, authority.ca_file)), flush=True)


if __name__ == "__main__":
    anyio.run(_main, Path(sys.argv[1]))
