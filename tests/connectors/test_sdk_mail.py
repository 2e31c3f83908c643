"""smtplib, imaplib and poplib in a connector, on a stream that is logged in: with STARTTLS of their own or without."""

from __future__ import annotations

from pathlib import Path

import pytest

from aileron_sandbox.frames import Chunk, Failed, GrantedHost, Result, TcpOpen, TcpOpened
from tests.support.plain_host import ConnectorProcess, invoke

PROGRAM = """
import imaplib, poplib, smtplib
from aileron_connector import hosts, op, run

@op
def smtp():
    with smtplib.SMTP(hosts()[0].host, hosts()[0].port) as client:
        code, _words = client.starttls()
        client.login("any", "any")
        return [code, hosts()[0].login]

@op
def imap():
    client = imaplib.IMAP4(hosts()[0].host, hosts()[0].port)
    said, _words = client.starttls()
    return [said, client.login("any", "any")[0]]

@op
def pop3():
    client = poplib.POP3(hosts()[0].host, hosts()[0].port)
    said = client.stls()[:3].decode()
    client.user("any")
    return [said, client.pass_("any")[:3].decode()]

run()
"""
SAYS = {
    "smtp": (
        b"220 hi\r\n",
        {b"ehlo": b"250-hi\r\n250 AUTH PLAIN\r\n", b"AUTH": b"235 ok\r\n", b"QUIT": b"221 bye\r\n"},
    ),
    "imap": (b"* OK hi\r\n", {b"CAPABILITY": b"* CAPABILITY IMAP4rev1\r\n%s OK done\r\n", b"LOGIN": b"%s OK done\r\n"}),
    "pop3": (b"+OK hi\r\n", {b"USER": b"+OK\r\n", b"PASS": b"+OK\r\n"}),
}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A connector of the three libraries."""
    path = tmp_path / "connector.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def _talk(program: Path, protocol: str, host: GrantedHost) -> tuple[Result | Failed, list[bytes]]:
    """What came of the operation, and the commands that its library sent."""
    greeting, answers = SAYS[protocol]
    commands: list[bytes] = []
    with ConnectorProcess(program, invoke(protocol, hosts=[host])) as process:
        assert isinstance(process.receive().message, TcpOpen)
        process.send(TcpOpened(id=1))
        process.send(Chunk(id=1), greeting)
        while True:
            frame = process.receive()
            if isinstance(frame.message, Result | Failed):
                return frame.message, commands
            if not isinstance(frame.message, Chunk) or not frame.body:
                continue
            words = bytes(frame.body).split()
            name = words[1] if protocol == "imap" else words[0]
            commands.append(name)
            said = answers.get(name, b"500 what\r\n")
            process.send(Chunk(id=1), said % words[0] if b"%s" in said else said)


@pytest.mark.parametrize(
    ("protocol", "output"), [("smtp", [220, "smtp"]), ("imap", ["OK", "OK"]), ("pop3", ["+OK", "+OK"])]
)
def test_starttls_of_a_library_is_left_out_where_the_host_has_logged_in(
    program: Path, protocol: str, output: list[object]
) -> None:
    """TLS is spoken outside of the jail by then: nothing is sent for it, and the library goes on."""
    came, commands = _talk(program, protocol, GrantedHost("mail.example.com", 587, False, protocol))

    assert isinstance(came, Result)
    assert came.output == output
    assert {b"STARTTLS", b"STLS"}.isdisjoint(commands)


@pytest.mark.parametrize("protocol", ["smtp", "imap", "pop3"])
def test_starttls_is_not_pretended_where_nobody_has_logged_in(program: Path, protocol: str) -> None:
    """On a plain stream a library that asks for TLS must not go on without."""
    came, _commands = _talk(program, protocol, GrantedHost("127.0.0.1", 2525, True))

    assert isinstance(came, Failed)
