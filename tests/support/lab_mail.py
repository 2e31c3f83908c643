"""A machine whose DNS has mail domains: `aileron add mail ADDRESS` at a terminal and in a script, against Dovecot and Postfix.

`way_in` is the command that enters mount and network namespaces and runs this, for tests/cli/test_add_by_address.py. It prints
one line of JSON. There /etc/resolv.conf leads to the test's name server at port 53, and the domains' web server has port 443.
Postfix starts as root only, so this does too.

    own.test        SRV records with servers of its own         far.test     SRV records with servers outside of it
    files.test      a file of servers, at autoconfig.files.test  silent.test  a name server that never answers
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any, Final

from tests.cli.command import Command, Said
from tests.support.dovecot import PASSWORD, Dovecot
from tests.support.home import daemon_home
from tests.support.lab_inside import set_up
from tests.support.nameserver import SILENT, NameServer
from tests.support.postfix import Postfix
from tests.support.upstream import Authority, Seen, Upstream, answer

HOST: Final = "mail.own.test"
_FILE: Final = """<clientConfig version="1.1"><emailProvider id="files.test">
<incomingServer type="imap"><hostname>mail.own.test</hostname><port>{imap}</port><socketType>SSL</socketType>
<username>%EMAILLOCALPART%</username></incomingServer>
<outgoingServer type="smtp"><hostname>mail.own.test</hostname><port>{smtp}</port><socketType>STARTTLS</socketType>
</outgoingServer></emailProvider></clientConfig>"""
_ACTIONS: Final = "Which actions? [1-3, Enter for 2] "


def way_in(directory: Path) -> list[str]:
    """Return the whole command line."""
    own = ["--mount", "--net", "--propagation", "private"]
    return ["unshare", *own, sys.executable, "-m", "tests.support.lab_mail", str(directory)]


def _zone(imaps: int, submissions: int) -> dict[str, list[str] | str]:
    servers = {"imaps": imaps, "submissions": submissions}
    return {
        HOST: ["127.0.0.1"],
        "autoconfig.files.test": ["127.0.0.1"],
        **{f"_{name}._tcp.own.test": [f"srv:0 1 {port} {HOST}"] for name, port in servers.items()},
        **{f"_{name}._tcp.far.test": [f"srv:0 1 {port} {HOST}"] for name, port in servers.items()},
        "_imaps._tcp.silent.test": SILENT,
    }


def _said(said: Said) -> dict[str, Any]:
    return {"code": said.code, "out": said.out, "err": said.err}


def _without_names(aileron: Command, resolver: Path) -> dict[str, Any]:
    """Have the conversations of a machine that lost its name servers, or its network."""
    said = {}
    for what, text in (("no_resolver", ""), ("offline", "nameserver 203.0.113.9\n")):
        resolver.write_text(text, encoding="ascii")
        asked = aileron.at_terminal(
            "add", "caldav", "mira@own.test", "--as", "x", answers=[("Server, such as calendar.example.com: ", "\x04")]
        )
        said[what] = _said(asked)
    return said


def _conversations(aileron: Command) -> dict[str, Any]:
    aileron("secret", "set", "mailbox", given=PASSWORD)
    script = ["--secret", "mailbox", "--actions", "reads"]
    return {
        "own": _said(
            aileron.at_terminal(
                "add",
                "mail",
                answers=[
                    ("Your address (Enter to name the servers yourself): ", "mira@own.test"),
                    (f"Use {HOST}? [Y/n] ", ""),
                    (_ACTIONS, ""),
                    ("User name [mira@own.test]: ", "mira"),
                    ("Password: ", PASSWORD),
                ],
            )
        ),
        "files": _said(
            aileron.at_terminal(
                "add",
                "mail",
                "mira@files.test",
                "--as",
                "work",
                answers=[
                    ("Ask autoconfig.files.test and files.test for the servers? [Y/n] ", ""),
                    (f"Use {HOST}? [y/N] ", "y"),
                    (_ACTIONS, "1"),
                    ("User name [mira]: ", ""),
                    ("Password: ", PASSWORD),
                ],
            )
        ),
        "enter": _said(
            aileron.at_terminal(
                "add",
                "mail",
                "mira@far.test",
                "--as",
                "far",
                answers=[
                    (f"Use {HOST}? [y/N] ", ""),
                    ("IMAP server (incoming mail), such as imap.example.com: ", "\x04"),
                ],
            )
        ),
        "silent": _said(
            aileron.at_terminal(
                "add",
                "mail",
                "mira@silent.test",
                "--as",
                "x",
                answers=[("IMAP server (incoming mail), such as imap.example.com: ", "\x04")],
            )
        ),
        "script_own": _said(aileron("add", "mail", "mira@own.test", "--as", "s", *script, "--yes")),
        "script_far": _said(aileron("add", "mail", "mira@far.test", "--as", "f", *script, "--yes")),
        "script_files": _said(aileron("add", "mail", "mira@files.test", "--as", "g", *script, "--yes")),
        "script_none": _said(aileron("add", "mail", "mira@none.test", "--as", "n", *script, "--yes")),
        "script_unconfirmed": _said(aileron("add", "mail", "mira@own.test", "--as", "u", *script)),
        "services": _said(aileron("services")),
        "folders": _said(aileron("run", "work-mail-list-folders")),
    }


def main(directory: Path) -> None:
    """Have every conversation, and print what was shown and who was asked."""
    set_up(directory)
    authority = Authority(directory)
    names = ("plain login",)
    tls = authority.server_context("autoconfig.files.test")
    with (
        Dovecot(authority, host=HOST) as dovecot,
        Postfix(authority, dovecot, names, host=HOST) as postfix,
        NameServer(_zone(dovecot.imaps, postfix.submissions[names[0]]), 53) as dns,
        daemon_home() as home,
    ):
        file = _FILE.format(imap=dovecot.imaps, smtp=postfix.submission[names[0]]).encode()

        def page(seen: Seen) -> bytes:
            is_file = seen.target.startswith("/mail/config-v1.1.xml")
            return answer(file) if is_file else answer(b"", status="404 Not Found")

        ports = (dovecot.imaps, postfix.submissions[names[0]], postfix.submission[names[0]])
        home.reach(*(f"{HOST}:{port}" for port in ports), ca_file=authority.ca_file)
        home.unlock()
        with Upstream(page, tls, socket.create_server(("127.0.0.1", 443))) as web:
            said = _conversations(Command(home.path))
            requests = [seen.head.decode() for seen in web.requests]
            said |= _without_names(Command(home.path), directory / "resolv.conf")
        told = {"ports": ports, "requests": requests, "asked": sorted({name for name, _kind in dns.asked})}
        print(json.dumps({**told, "said": said}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
