"""Mail from a jail, end to end: unmodified libraries at Dovecot and Postfix, and the password nowhere near them.

An ordinary user cannot start Postfix, and reads what is in the mailbox.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.model.login import LoginTarget
from tests.support.canary import find, scan
from tests.support.dovecot import PASSWORD, Dovecot
from tests.support.home import DaemonHome, daemon_home
from tests.support.memories import descendants_of, memory_of
from tests.support.ports import reserve_ports
from tests.support.postfix import OFFERS, Postfix
from tests.support.upstream import Authority
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("real_processes")]

CONNECTOR = "github://aileron-tests/mail-login"
SOURCE = Path(__file__).resolve().parents[1] / "support" / "connectors" / "mail_login"
SECRET = PASSWORD.encode()
NEEDLE = "a-word-that-is-in-one-message-only"
OPERATIONS = {
    "send": ("subject:string", "to:string", "start:boolean?"),
    "read_imap": ("start:boolean?", "until:string?"),
    "read_pop3": ("start:boolean?",),
}


class Account:
    """A home with the connector bound to `mira`, and the servers behind it."""

    def __init__(self, home: DaemonHome, dovecot: Dovecot) -> None:
        self.home = home
        self.dovecot = dovecot

    def done(self, op: str, **args: Any) -> Any:
        """Run an operation that must succeed; return its response."""
        found = self.home.run(op.replace("_", "-"), args)
        assert not found.is_error, found.body
        return found.body


@pytest.fixture(scope="module", params=["tls", "starttls"])
def account(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """Start everything, once for each way to TLS."""
    folder = Path(tmp_path_factory.mktemp("mail"))
    authority = Authority(folder)
    is_tls = request.param == "tls"
    with contextlib.ExitStack() as undo:
        dovecot = undo.enter_context(Dovecot(authority))
        (submission,) = reserve_ports(1)
        if os.geteuid() == 0:
            postfix = undo.enter_context(Postfix(authority, dovecot, OFFERS[:1]))
            submission = (postfix.submissions if is_tls else postfix.submission)[OFFERS[0]]
        home = undo.enter_context(daemon_home())
        ports = {
            "imap": dovecot.imaps if is_tls else dovecot.imap,
            "pop3": dovecot.pop3s if is_tls else dovecot.pop3,
            "smtp": submission,
        }
        targets = [LoginTarget.parse(f"{name}+{request.param}://localhost:{port}") for name, port in ports.items()]
        home.reach(*(str(target.destination) for target in targets), ca_file=authority.ca_file)
        home.unlock(SECRET)
        home.install(SOURCE, logins=targets)
        home.bind(CONNECTOR, "login/mail/me", username="mira")
        for op, inputs in OPERATIONS.items():
            home.add_probe_action(op, *inputs, connector=CONNECTOR)
        yield Account(home, dovecot)


@pytest.mark.skipif(os.geteuid() != 0, reason="postfix starts as root only")
def test_smtplib_sends_mail(account: Account) -> None:
    """The message arrives, and its envelope is recorded before its outcome."""
    for start in (False, True):
        before = len(account.dovecot.messages("noor"))
        sent = account.done("send", subject=f"jail {start}", to="noor@example.com", start=start)
        wait_until(lambda before=before: len(account.dovecot.messages("noor")) == before + 1, "a message arrives")  # type: ignore[misc]
        events = account.home.events(sent["audit_id"])
        kinds = [event["type"] for event in events]
        assert kinds.index("egress.sending") < kinds.index("egress.envelope") < kinds.index("egress.submitted")
        (envelope,) = [event for event in events if event["type"] == "egress.envelope"]
        assert "noor@example.com" in str(envelope)
        assert PASSWORD not in str(events)


def test_imaplib_and_poplib_read_mail(account: Account) -> None:
    """The libraries may use STARTTLS on their own stream. Each login is recorded."""
    account.dovecot.deliver("mira", b"Subject: to be read\r\n\r\nhello\r\n")
    for start in (False, True):
        for op, protocol in (("read_imap", "IMAP"), ("read_pop3", "POP3")):
            read = account.done(op, start=start)
            assert "Subject: to be read" in str(read)
            (sending,) = [event for event in account.home.events(read["audit_id"]) if event["type"] == "egress.sending"]
            assert protocol in str(sending)
            assert "login/mail/me" in str(sending)


@pytest.mark.abuse_case("LM6")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks into the memory of a jail")
def test_the_password_is_in_no_jail_no_file_and_no_answer(account: Account) -> None:
    """The search runs while the stream is open, and finds the message's words, so the right memory is searched."""
    account.dovecot.deliver("mira", f"Subject: x\r\n\r\n{NEEDLE}\r\n".encode())
    told: list[Any] = []
    reading = threading.Thread(target=lambda: told.append(account.done("read_imap", until="enough")))
    reading.start()
    found: dict[int, bytes] = {}

    def is_in_a_jail() -> bool:
        daemon = account.home.daemon_pid
        assert daemon is not None
        for pid in _jails(daemon):
            try:
                memory = memory_of(pid)
            except (OSError, AssertionError):
                continue
            if NEEDLE.encode() in memory:
                found[pid] = memory
        return bool(found)

    wait_until(is_in_a_jail, "a jail has the message")
    account.dovecot.deliver("mira", b"Subject: enough\r\n\r\nx\r\n")
    reading.join(30)
    for memory in found.values():
        assert find(memory, SECRET, b"\0mira\0" + SECRET) == []
    assert find(str(told).encode(), SECRET) == []
    assert scan([account.home.path], SECRET, b"\0mira\0" + SECRET) == {}


def _jails(daemon: int) -> list[int]:
    """Return every process of the daemon but those that log in."""
    below = descendants_of(daemon)
    logins = [pid for pid in below if b"aileron.logins" in _command(pid)]
    hidden = set(logins).union(*map(descendants_of, logins))
    return [pid for pid in below if pid not in hidden]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


@pytest.mark.abuse_case("LM5")
def test_a_wrong_password_is_a_binding_failure_and_is_tried_once(account: Account) -> None:
    """The second run within the pause reaches no server; a right password is used at once."""
    account.home.store("pw", b"wrong-password")
    try:
        before = account.dovecot.log().count("auth failed")
        first, second = account.home.failed("read_imap"), account.home.failed("read_imap")
        assert (first["class"], second["class"]) == ("binding_failed", "binding_failed")
        assert first["details"]["reason"] == "refused_credential"
        wait_until(lambda: account.dovecot.log().count("auth failed") > before, "Dovecot writes down the first")
        assert account.dovecot.log().count("auth failed") == before + 1
        assert "wrong-password" not in str((first, second))
    finally:
        account.home.store("pw", SECRET)
    account.done("read_imap")
