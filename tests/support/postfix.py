"""Debian's Postfix as a submission server, from a folder of its own: logins by Dovecot, delivery into Dovecot's mailboxes.

    with Dovecot(authority) as dovecot, Postfix(authority, dovecot) as postfix:
        smtplib.SMTP("localhost", postfix.submission["plain login"])     # STARTTLS, and these mechanisms
        smtplib.SMTP_SSL("localhost", postfix.submissions["plain login"])
        dovecot.messages("noor")                          # what noor@example.com got

Only `mira`, `noor` and `locked` have addresses at example.com, and nothing leaves the machine. Messages of more than MAX_MESSAGE
bytes are refused. Only root can start its master: other users skip the test.

Source: postconf(5), master(5). Not here: mailboxes and passwords (dovecot.py).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support.dovecot import HOST, Dovecot, needs
from tests.support.ports import reserve_ports
from tests.support.serving import Server, made_folder, program
from tests.support.upstream import Authority
from tests.support.waiting import wait_until

__all__ = ["MAX_MESSAGE", "OFFERS", "Postfix"]

MAX_MESSAGE: Final = 200_000
_QUEUES: Final = (
    "active bounce corrupt defer deferred flush hold incoming private public maildrop saved trace pid".split()
)
_SERVICES: Final = """
postlog   unix-dgram n - n - 1 postlogd
cleanup   unix n - n - 0 cleanup
qmgr      unix n - n 300 1 qmgr
rewrite   unix - - n - - trivial-rewrite
bounce    unix - - n - 0 bounce
defer     unix - - n - 0 bounce
trace     unix - - n - 0 bounce
error     unix - - n - - error
virtual   unix - n n - - virtual
proxymap  unix - - n - - proxymap
anvil     unix - - n - 1 anvil
tlsmgr    unix - - n 1000? 1 tlsmgr
"""
_SUBMISSION: Final = "127.0.0.1:{port} inet n - n - - smtpd -o {tls} -o smtpd_sasl_mechanism_filter={mechanisms}\n"
OFFERS: Final = ("plain login scram-sha-256 xoauth2 oauthbearer", "plain login", "login", "plain oauthbearer")


class Postfix(Server):
    """A running server, whose certificate is for `host`. `submission` and `submissions`: ports by mechanisms."""

    def __init__(
        self, authority: Authority, dovecot: Dovecot, offers: Sequence[str] = OFFERS, host: str = HOST
    ) -> None:
        needs("postfix", "postfix")
        if os.geteuid() != 0:
            pytest.skip("postfix starts as root only")
        self._authority: Final = authority
        self._dovecot: Final = dovecot
        self._host: Final = host
        self.submission: Final = dict(zip(offers, reserve_ports(len(offers)), strict=True))
        self.submissions: Final = dict(zip(offers, reserve_ports(len(offers)), strict=True))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the server until the end of the block, in a folder of its own."""
        with made_folder("postfix-") as self.folder:
            self._write()
            environment = {"PATH": "/usr/sbin:/usr/bin:/bin", "MAIL_CONFIG": str(self.folder / "etc")}
            with program(
                ["/usr/lib/postfix/sbin/master", "-d", "-c", self.folder / "etc"],
                *self.submission.values(),
                *self.submissions.values(),
                says=self.log,
                end=subprocess.Popen.terminate,  # which its master passes on to all of its session
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            ):
                yield

    def settle(self) -> None:
        """Wait until every accepted message is delivered, so that none of an earlier test arrives in a later one."""
        wait_until(lambda: not self._has_waiting(), "no message waits", seen=self.log)

    def _has_waiting(self) -> bool:
        folders = (self.folder / "queue" / name for name in ("maildrop", "incoming", "active", "deferred"))
        return any(file.is_file() for folder in folders for file in folder.rglob("*"))

    def log(self) -> str:
        """Return the server's log so far."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "log").read_text("utf-8", "replace")
        return ""

    def _write(self) -> None:
        owner = pwd.getpwnam("postfix")
        for name in ("etc", "data", "queue"):
            (self.folder / name).mkdir(mode=0o755)
        os.chown(self.folder / "data", owner.pw_uid, owner.pw_gid)
        for name in _QUEUES:
            (self.folder / "queue" / name).mkdir(mode=0o755 if name == "pid" else 0o700)
            if name != "pid":
                os.chown(self.folder / "queue" / name, owner.pw_uid, owner.pw_gid)
        key, certificate = self._authority.server_files(self.folder, self._host)
        mailboxes = "".join(f"{user}@example.com {user}/\n" for user in ("mira", "noor", "locked"))
        (self.folder / "etc" / "mailboxes").write_text(mailboxes)
        (self.folder / "etc" / "main.cf").write_text(self._configuration(key, certificate))
        (self.folder / "etc" / "master.cf").write_text(_SERVICES.lstrip() + self._services())

    def _services(self) -> str:
        by_tls = {"smtpd_tls_security_level=encrypt": self.submission, "smtpd_tls_wrappermode=yes": self.submissions}
        return "".join(
            _SUBMISSION.format(port=port, tls=tls, mechanisms=mechanisms.replace(" ", ","))
            for tls, ports in by_tls.items()
            for mechanisms, port in ports.items()
        )

    def _configuration(self, key: Path, certificate: Path) -> str:
        return f"""compatibility_level = 3.6
queue_directory = {self.folder}/queue
data_directory = {self.folder}/data
maillog_file = {self.folder}/log
maillog_file_prefixes = {self.folder}
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = mail.example.com
mydestination =
mynetworks =
local_recipient_maps =
alias_maps =
alias_database =
virtual_mailbox_domains = example.com
virtual_mailbox_base = {self._dovecot.mail}
virtual_mailbox_maps = texthash:{self.folder}/etc/mailboxes
virtual_minimum_uid = 1
virtual_uid_maps = static:{self._dovecot.user.pw_uid}
virtual_gid_maps = static:{self._dovecot.user.pw_gid}
virtual_mailbox_limit = 0
default_transport = error:nothing leaves this machine
relay_transport = error:nothing leaves this machine
smtpd_tls_chain_files = {key}, {certificate}
smtpd_sasl_type = dovecot
smtpd_sasl_path = {self._dovecot.sasl}
smtpd_sasl_auth_enable = yes
smtpd_tls_auth_only = yes
smtpd_sasl_security_options = noanonymous
smtpd_recipient_restrictions = reject_unlisted_recipient, permit_sasl_authenticated, reject
smtpd_relay_restrictions = permit_sasl_authenticated, reject
smtpd_client_connection_count_limit = 0
message_size_limit = {MAX_MESSAGE}
"""
