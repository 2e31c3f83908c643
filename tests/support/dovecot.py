r"""Debian's Dovecot: IMAP and POP3 with TLS and without, and the SASL service behind postfix.py, from a folder of its own.

    with Dovecot(authority, mechanisms="plain login scram-sha-256") as dovecot:
        imaplib.IMAP4("localhost", dovecot.imap)
        dovecot.deliver("mira", b"Subject: hello\r\n\r\nhello\r\n")
        dovecot.log()                    # its own account of clients and logins

Users: `mira` and `noor` with PASSWORD, kept for SCRAM-SHA-256, and `locked`, whose account is closed. Access tokens are
those of `tokens`, checked at an introspection endpoint of the test. It runs as root, with its processes under `nobody`, or wholly
as the user of the tests.

Source: doc.dovecot.org, version 2.3. Not here: SMTP (postfix.py).
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import pytest

from tests.support.ports import reserve_ports
from tests.support.serving import Server, made_folder, program
from tests.support.upstream import Authority, Seen, Upstream, answer

__all__ = ["HOST", "PASSWORD", "Dovecot", "needs"]

HOST: Final = "localhost"
PASSWORD: Final = 'correct "horse\\ \u00fcber battery'
"""A password with characters that an IMAP string must escape, and a letter outside ASCII."""


def needs(program: str, package: str) -> None:
    """Skip the test if the machine lacks the program; with CI set, fail: a skip is not a pass."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    if shutil.which(program, path=path):
        return
    words = f"{program} is not installed: apt-get install {package}"
    if os.environ.get("CI"):
        pytest.fail(words)
    pytest.skip(words)


def _arrival(message: Path) -> tuple[int, int]:
    """Return the seconds and microseconds in a name `SECONDS.…M….host`, which does not sort as text."""
    found = re.match(r"(\d+)\..*M(\d+)", message.name)
    assert found is not None, message.name
    return int(found[1]), int(found[2])


class Dovecot(Server):
    """A running server, whose certificate is for `host`. Ports: `imap`, `imaps`, `pop3`, `pop3s`."""

    def __init__(
        self, authority: Authority, mechanisms: str = "plain login scram-sha-256 xoauth2 oauthbearer", host: str = HOST
    ) -> None:
        needs("dovecot", "dovecot-imapd dovecot-pop3d")
        self._authority: Final = authority
        self._mechanisms: Final = mechanisms
        self._host: Final = host
        self.tokens: dict[str, str] = {}
        """Users by access token."""
        self.imap, self.imaps, self.pop3, self.pop3s = reserve_ports(4)
        self._introspection: Final = Upstream(self._introspect)
        user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        self.user: Final = user

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the server until the end of the block, in a folder of its own."""
        with made_folder("dovecot-") as self.folder:
            self._write()
            with (
                self._introspection,
                program(
                    ["/usr/sbin/dovecot", "-F", "-c", self.folder / "dovecot.conf"],
                    *(self.imap, self.imaps, self.pop3, self.pop3s),
                    says=self.log,
                    end=_end,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                ),
            ):
                yield

    @property
    def sasl(self) -> Path:
        """Socket at which postfix has a login checked."""
        return self.folder / "run" / "sasl"

    @property
    def mail(self) -> Path:
        """Folder with a maildir for each user."""
        return self.folder / "mail"

    def log(self) -> str:
        """Return the server's log so far."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "log").read_text("utf-8", "replace")
        return ""

    def deliver(self, user: str, message: bytes) -> None:
        """Put a message into the user's inbox."""
        folder = self.mail / user
        for name in ("", "new", "cur", "tmp"):
            (folder / name).mkdir(exist_ok=True, parents=True)
            os.chown(folder / name, self.user.pw_uid, self.user.pw_gid)
        seconds, nanoseconds = divmod(time.time_ns(), 10**9)
        # As a Maildir is delivered to: Dovecot takes a file out of `new` as soon as it sees it there.
        path = folder / "tmp" / f"{seconds}.M{nanoseconds // 1000}P1.test"
        path.write_bytes(message)
        os.chown(path, self.user.pw_uid, self.user.pw_gid)
        path.rename(folder / "new" / path.name)

    def messages(self, user: str) -> list[bytes]:
        """Return all messages in the inbox, read or unread, in the order of arrival."""
        found = [*(self.mail / user / "new").glob("*"), *(self.mail / user / "cur").glob("*")]
        return [path.read_bytes() for path in sorted(found, key=_arrival)]

    def _introspect(self, request: Seen) -> bytes:
        token = parse_qs(request.body.decode()).get("token", [""])[0]
        user = self.tokens.get(token)
        said = {"active": False} if user is None else {"active": True, "username": user}
        return answer(json.dumps(said).encode(), "Content-Type: application/json")

    def _write(self) -> None:
        for name in ("run", "state", "mail"):
            (self.folder / name).mkdir(mode=0o755)
        os.chown(self.mail, self.user.pw_uid, self.user.pw_gid)
        key, certificate = self._authority.server_files(self.folder, self._host)
        hashed = subprocess.run(
            ["doveadm", "pw", "-s", "SCRAM-SHA-256", "-p", PASSWORD],
            check=True,
            capture_output=True,
            text=True,
            timeout=20,
        ).stdout.strip()
        users = [f"{user}:{hashed}::::::" for user in ("mira", "noor")]
        users.append(f"locked:{hashed}::::::nologin=y reason=account_is_locked")
        (self.folder / "users").write_text("\n".join(users) + "\n")
        (self.folder / "oauth2.conf").write_text(
            f"introspection_mode = post\nintrospection_url = http://127.0.0.1:{self._introspection.port}/\n"
            "username_attribute = username\nactive_attribute = active\nactive_value = true\n"
        )
        (self.folder / "dovecot.conf").write_text(self._configuration(key, certificate))

    def _configuration(self, key: Path, certificate: Path) -> str:
        user, group = self.user.pw_name, _group(self.user.pw_gid)
        by_password = " ".join(name for name in self._mechanisms.split() if "oauth" not in name) or "plain"
        by_token = " ".join(name for name in self._mechanisms.split() if "oauth" in name)
        tokens = f"passdb {{\n driver = oauth2\n mechanisms = {by_token}\n args = {self.folder}/oauth2.conf\n}}"
        return f"""
base_dir = {self.folder}/run
state_dir = {self.folder}/state
log_path = {self.folder}/log
protocols = imap pop3
listen = 127.0.0.1
ssl = yes
ssl_cert = <{certificate}
ssl_key = <{key}
disable_plaintext_auth = no
auth_mechanisms = {self._mechanisms}
auth_failure_delay = 0
mail_location = maildir:{self.mail}/%u
default_internal_user = {user}
default_internal_group = {group}
default_login_user = {user}
first_valid_uid = 1
passdb {{
  driver = passwd-file
  mechanisms = {by_password}
  args = {self.folder}/users
}}
{tokens if by_token else ""}
userdb {{
  driver = static
  args = uid={user} gid={group} home={self.mail}/%u
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {self.imap}
  }}
  inet_listener imaps {{
    port = {self.imaps}
    ssl = yes
  }}
}}
service pop3-login {{
  chroot =
  inet_listener pop3 {{
    port = {self.pop3}
  }}
  inet_listener pop3s {{
    port = {self.pop3s}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
  # Wrong passwords from one address are answered later and later, which is right, and not waited for here.
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service stats {{
  chroot =
}}
service auth {{
  unix_listener sasl {{
    mode = 0666
  }}
}}
namespace inbox {{
  inbox = yes
  mailbox Entw\u00fcrfe {{
    auto = create
    special_use = \\Drafts
  }}
  mailbox Gesendet {{
    auto = create
    special_use = \\Sent
  }}
}}
"""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill all its processes, which are in the group of the first: its own way to stop waits a second for each kind of them."""
    os.killpg(process.pid, signal.SIGKILL)


def _group(gid: int) -> str:
    return grp.getgrgid(gid).gr_name
