"""The twelve services of the catalogue, each at a server of the test under the real name: what a person types, and what arrives.

    with STANDS["github"](machine, authority, folder) as stand:
        …                                  # `aileron add github`, answered with stand.asked(); then stand.read and stand.write
        assert stand.arrived() == stand.expected

Servers are those of tests/support: programs (Radicale, Dovecot, Postfix, PostgreSQL, sshd with git, moto) where there is one,
else fakes that follow the service's reference and check the credential. A write only counts as arrived if its credential was
good.

Not here: the machine and its Internet (tests/support/real_names.py), the walk from `add` to `remove` (test_each_service.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import asyncssh

from tests.connectors.test_git import clone, commit, tip
from tests.support import github, matrix, slack, stripe, telegram
from tests.support.dovecot import PASSWORD, Dovecot
from tests.support.git_host import git
from tests.support.moto import REGION, Moto
from tests.support.postfix import Postfix
from tests.support.postgresql import PostgreSQL
from tests.support.radicale import RadicaleServer
from tests.support.real_names import RealNames
from tests.support.sshd import USER, Sshd
from tests.support.upstream import Authority
from tests.support.webhook_receiver import Receiver

__all__ = ["NAMES", "STANDS", "Denied", "Run", "Stand", "Typed"]

CALENDAR: Final = "calendar.example.com"
CODE: Final = "git.example.com"
IMAP: Final = "imap.example.com"
SMTP: Final = "smtp.example.com"
CHAT: Final = "matrix.example.com"
DATABASE: Final = "db.example.com"
BUCKETS: Final = f"s3.{REGION}.amazonaws.com"
HOOKS: Final = "hooks.example.com"
NAMES: Final = (
    *(CALENDAR, CODE, IMAP, SMTP, CHAT, DATABASE, BUCKETS, HOOKS),
    *(*github.NAMES, *slack.NAMES, *stripe.NAMES, *telegram.NAMES),
)
"""Names that lead to a server of the test. Those of Google are in google.py."""


_NO_RIGHT: Final = {
    "ok": False,
    "error_code": 400,
    "description": "Bad Request: not enough rights to send text messages to the chat",
}
"""Telegram's answer to a bot that an administrator of the chat has restricted."""


@dataclasses.dataclass(frozen=True)
class Typed:
    """A question of `aileron add`, and what the person types. A secret is not counted as typed."""

    question: str
    text: str
    is_secret: bool = False

    @property
    def keystrokes(self) -> int:
        """Number of keys that the person presses, Enter included."""
        return (0 if self.is_secret else len(self.text)) + 1


@dataclasses.dataclass(frozen=True)
class Run:
    """An action and its arguments."""

    action: str
    args: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """Words of the command that runs it."""
        pairs = ((name, value if isinstance(value, str) else json.dumps(value)) for name, value in self.args.items())
        return ["run", self.action, *(f"{name}={value}" for name, value in pairs)]


@dataclasses.dataclass(frozen=True)
class Denied:
    """A permission that the credential can lack: `changes` takes it away (False) or gives it back (True), `run` needs it, and the
    error has `words`.
    """

    changes: Callable[[bool], object]
    run: Run
    words: str


@dataclasses.dataclass(frozen=True)
class Stand:
    """A service at its server. `read` runs at once, `write` waits; `arrived` is what the server took of the write."""

    service: str
    servers: Sequence[Typed]
    """Questions that come before those about actions."""
    credential: Sequence[Typed]
    """Questions for the credential; the last is for the secret."""
    wrong: str
    """A secret that the server refuses."""
    says: str
    """End of the dialogue: what the check read."""
    read: Run | None
    write: Run
    arrived: Callable[[], Any]
    expected: Any
    tries: Sequence[Typed] = ()
    """Questions of the check."""
    opens_page: bool = False
    """True if the dialogue offers to open the page where the credential is made."""
    secrets: int = 1
    replacement: bytes | None = None
    """The good secret, as `aileron secret set` takes it; None if it is the typed one."""
    denied: Denied | None = None
    settle: Callable[[], None] = lambda: None
    """Waits until what the service has accepted has arrived."""

    def asked(self, *, right: bool = True) -> list[Typed]:
        """Return the service's own questions, with the right credential or a wrong one."""
        first = next(place for place, typed in enumerate(self.credential) if typed.text == self.credential[-1].text)
        given = [*self.credential]
        if not right:
            given[first] = dataclasses.replace(given[first], text=self.wrong)
        page = [Typed("Open this page? [y/N] ", "y")] if self.opens_page else []
        return [*self.servers, Typed("Which actions? ", ""), *page, *given]

    @property
    def secret(self) -> bytes:
        """The good secret."""
        return self.replacement or self.credential[-1].text.encode()


@contextlib.contextmanager
def caldav(machine: RealNames, authority: Authority, folder: Path) -> Iterator[Stand]:
    """Radicale, with one calendar."""
    key, certificate = authority.server_files(folder, CALENDAR)
    with (
        RadicaleServer(folder / "radicale", tls=(certificate, key)) as server,
        machine.pass_on(CALENDAR, 443, server.port),
    ):
        calendar = server.make_calendar("work", "Work")
        yield Stand(
            service="caldav",
            servers=[
                Typed("Your address (Enter to name the servers yourself): ", ""),
                Typed("Server, such as calendar.example.com: ", CALENDAR),
            ],
            credential=[
                Typed("User name: ", server.user),
                Typed("Password or token: ", server.password, is_secret=True),
            ],
            wrong="wrong-wrong-wrong",
            says="caldav: 0 events in the next 7 days",
            read=Run("caldav-list-events"),
            write=Run(
                "caldav-create-event",
                {"title": "Lunch", "start_time": "2031-03-01T12:00:00+01:00", "end_time": "2031-03-01T13:00:00+01:00"},
            ),
            arrived=lambda: [path.partition(calendar)[0] for verb, path in server.requests() if verb == "PUT"],
            expected=[""],
        )


@contextlib.contextmanager
def git_over_ssh(machine: RealNames, authority: Authority, folder: Path) -> Iterator[Stand]:
    """Debian's sshd, with git and one repository."""
    del authority
    repositories = folder / "repositories"
    (folder / "sshd").mkdir()
    repositories.mkdir()
    git("init", "-q", "--bare", "-b", "main", "site.git", at=repositories)
    work = clone(repositories / "site.git", folder)
    (work / "readme.txt").write_text("hello\n")
    commit(work, "first")
    git("push", "-q", "origin", "main", at=work)
    place, at = str(repositories / "site.git"), tip(repositories)
    with Sshd(folder / "sshd", "AcceptEnv GIT_PROTOCOL") as server, machine.pass_on(CODE, 22, server.port):
        good, wrong = folder / "aileron-git", folder / "another-key"
        good.write_bytes(server.client_secret)
        wrong.write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key())
        yield Stand(
            service="git",
            servers=[Typed("Git server, such as git.example.com: ", CODE)],
            credential=[
                Typed("User name: ", USER),
                Typed("Is it the same? [y/N] ", "y"),
                Typed("File of the private key, without a passphrase: ", str(good)),
            ],
            wrong=str(wrong),
            says="git: 1 branch",
            read=Run("git-list-refs", {"repository": place}),
            write=Run("git-create-branch", {"repository": place, "branch": "feature/login", "at": at}),
            arrived=lambda: git("for-each-ref", "--format=%(refname) %(objectname)", at=repositories / "site.git"),
            expected=f"refs/heads/feature/login {at}\nrefs/heads/main {at}",
            tries=[Typed("Repository, such as team/website.git, to try it (Enter to skip): ", place)],
            replacement=server.client_secret,
        )


@contextlib.contextmanager
def at_github(machine: RealNames, authority: Authority, folder: Path) -> Iterator[Stand]:
    """GitHub, with one user and one repository."""
    del folder
    token, owner, repo = "github_pat_11AAAAAAA0canary", *github.REPOSITORY.split("/")
    (name,) = github.NAMES
    with github.GitHubServer(authority.server_context(name), listener=machine.listen_at(name)) as server:
        server.allow(token)
        yield Stand(
            service="github",
            servers=[],
            credential=[Typed("API key or token: ", token, is_secret=True)],
            wrong="github_pat_revoked",
            says="github: signed in as mira",
            read=Run("github-list-issues", {"owner": owner, "repo": repo}),
            write=Run("github-create-issue", {"owner": owner, "repo": repo, "title": "A crack"}),
            arrived=lambda: [
                (issue["title"], server.asked[-1].host, server.asked[-1].authorization) for issue in server.issues
            ],
            expected=[("A crack", name, github.digest_of(token))],
            opens_page=True,
            denied=Denied(
                lambda has: server.allow(token, {"metadata": "read", "issues": "write" if has else "read"}),
                Run("github-create-issue", {"owner": owner, "repo": repo, "title": "Another"}),
                "Resource not accessible by personal access token; it needs the permission 'issues=write'",
            ),
        )


@contextlib.contextmanager
def mail(machine: RealNames, authority: Authority, folder: Path) -> Iterator[Stand]:
    """Dovecot and Postfix, with a mailbox each for Mira and Noor."""
    del folder
    offer = "plain login"
    with (
        Dovecot(authority) as dovecot,
        Postfix(authority, dovecot, [offer]) as postfix,
        machine.pass_on(IMAP, 993, dovecot.imaps),
        machine.pass_on(SMTP, 465, postfix.submissions[offer]),
    ):
        lunch = {"from_address": "mira@example.com", "to": "noor@example.com", "subject": "Lunch", "body": "At one?"}

        yield Stand(
            service="mail",
            servers=[
                Typed("Your address (Enter to name the servers yourself): ", ""),
                Typed("IMAP server (incoming mail), such as imap.example.com: ", IMAP),
                Typed("SMTP server (outgoing mail), such as smtp.example.com: ", SMTP),
            ],
            credential=[Typed("User name: ", "mira"), Typed("Password: ", PASSWORD, is_secret=True)],
            wrong="wrong-wrong-wrong",
            says="mail: 3 folders",
            read=Run("mail-search", {"unread": True}),
            write=Run("mail-send", lunch),
            arrived=lambda: [b"Subject: Lunch" in message for message in dovecot.messages("noor")],
            expected=[True],
            settle=postfix.settle,
        )


@contextlib.contextmanager
def at_matrix(machine: RealNames, authority: Authority, folder: Path) -> Iterator[Stand]:
    """A homeserver, with one user and one room."""
    del folder
    token = "syt_bWlyYQ_canary"
    with matrix.MatrixServer(authority.server_context(CHAT), listener=machine.listen_at(CHAT)) as server:
        server.allow(token)
        yield Stand(
            service="matrix",
            servers=[Typed("Server, such as matrix.example.com: ", CHAT)],
            credential=[Typed("API key or token: ", token, is_secret=True)],
            wrong="syt_revoked",
            says="matrix: signed in as @mira:matrix.example.com",
            read=Run("matrix-whoami"),
            write=Run("matrix-send-message", {"room_id": matrix.ROOM, "body": "It is out."}),
            arrived=lambda: [(said["body"], server.asked[-1].authorization) for said in server.sent],
            expected=[("It is out.", matrix.digest_of(token))],
            denied=Denied(
                lambda has: setattr(server, "needed", 0 if has else 50),
                Run("matrix-send-message", {"room_id": matrix.ROOM, "body": "And more."}),
                "You don't have permission to post that to the room. user_level (0) < send_level (50)",
            ),
        )


@contextlib.contextmanager
def postgres(machine: RealNames, authority: Authority, folder: Path) -> Iterator[Stand]:
    """PostgreSQL, with one table, a role that reads it and one that writes it."""
    del folder
    password = "the password of both roles 7f3a"
    with PostgreSQL(authority) as server, machine.pass_on(DATABASE, 5432, server.port):
        with server.admin() as admin:
            for statement in (
                "CREATE TABLE customers (id int PRIMARY KEY, city text)",
                *(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'" for role in ("reader", "writer")),
                "REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC",
                "GRANT SELECT ON customers TO reader",
                "GRANT SELECT, INSERT ON customers TO writer",
            ):
                admin.run(statement)

        def arrived() -> Any:
            with server.admin() as admin:
                return admin.run("SELECT * FROM customers")

        yield Stand(
            service="postgres",
            servers=[Typed("PostgreSQL server, such as db.example.com: ", DATABASE)],
            credential=[
                Typed("User name of the role that only reads: ", "reader"),
                Typed("Database (empty for the server's default): ", "postgres"),
                Typed("Password: ", password, is_secret=True),
                Typed("Does another role change rows? [y/N] ", "y"),
                Typed("User name of the role that writes: ", "writer"),
                Typed("Database (empty for the server's default): ", "postgres"),
                Typed("Password: ", password, is_secret=True),
            ],
            wrong="wrong-wrong-wrong",
            says="postgres: 1 table",
            read=Run("postgres-query", {"sql": "SELECT * FROM customers"}),
            write=Run("postgres-execute", {"sql": "INSERT INTO customers VALUES (1, 'Bergen') RETURNING *"}),
            arrived=arrived,
            expected=[[1, "Bergen"]],
            secrets=2,
        )


@contextlib.contextmanager
def s3(machine: RealNames, authority: Authority, folder: Path) -> Iterator[Stand]:
    """moto, with one bucket."""
    del folder
    with Moto(authority, BUCKETS) as server, machine.pass_on(BUCKETS, 443, server.port):
        server.bucket("acme-reports")
        server.put("acme-reports", "a.txt", b"hello")
        yield Stand(
            service="s3",
            servers=[
                Typed("Server, such as s3.eu-central-1.amazonaws.com: ", BUCKETS),
                Typed("Region, such as eu-central-1 [us-east-1]: ", REGION),
            ],
            credential=[
                Typed("Access key ID: ", server.key_id),
                Typed("Secret access key: ", server.secret, is_secret=True),
            ],
            wrong="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            says="s3: 1 object",
            read=Run("s3-list-objects", {"bucket": "acme-reports"}),
            write=Run("s3-store-object", {"bucket": "acme-reports", "key": "may.csv", "content": "1,2"}),
            arrived=lambda: server.get("acme-reports", "may.csv"),
            expected=b"1,2",
            tries=[Typed("Bucket, to try it (Enter to skip): ", "acme-reports")],
        )


@contextlib.contextmanager
def at_slack(machine: RealNames, authority: Authority, folder: Path) -> Iterator[Stand]:
    """Slack, with one channel."""
    del folder
    token = "xoxp-1234567890-canary-of-a-users-token"
    (name,) = slack.NAMES
    with slack.SlackServer(authority.server_context(name), listener=machine.listen_at(name)) as server:
        server.allow(token)
        channel = server.channel("engineering")
        yield Stand(
            service="slack",
            servers=[],
            credential=[Typed("API key or token: ", token, is_secret=True)],
            wrong="xoxp-revoked",
            says="slack: 1 channel",
            read=Run("slack-list-channels"),
            write=Run("slack-ship-update", {"channel": "#engineering", "text": "It is out."}),
            arrived=lambda: [(post.channel, post.text, server.asked[-1].authorization) for post in server.posts],
            expected=[(channel, "It is out.", slack.digest_of(token))],
            opens_page=True,
            denied=Denied(
                lambda has: server.allow(token, slack.SCOPES if has else ["channels:read"]),
                Run("slack-search-messages", {"query": "out"}),
                "the token does not cover this: it needs search:read, and has channels:read; add it to the app at Slack",
            ),
        )


@contextlib.contextmanager
def at_stripe(machine: RealNames, authority: Authority, folder: Path) -> Iterator[Stand]:
    """Stripe, with one account."""
    del folder
    key = "rk_test_canary"
    (name,) = stripe.NAMES
    with stripe.StripeServer(authority.server_context(name), listener=machine.listen_at(name)) as server:
        server.allow(key)
        yield Stand(
            service="stripe",
            servers=[],
            credential=[Typed("API key or token: ", key, is_secret=True)],
            wrong="rk_test_revoked",
            says="stripe: the balance can be read",
            read=Run("stripe-get-balance"),
            write=Run("stripe-create-customer", {"email": "ada@example.com"}),
            arrived=lambda: [
                (asked.path, asked.form, asked.authorization) for asked in server.asked if asked.method == "POST"
            ],
            expected=[("/v1/customers", {"email": "ada@example.com"}, stripe.digest_of(key))],
            opens_page=True,
            denied=Denied(
                lambda has: server.allow(key, stripe.EVERY if has else ["rak_customer_write"]),
                Run("stripe-get-balance"),
                "Having the 'rak_balance_read' permission would allow this request",
            ),
        )


@contextlib.contextmanager
def at_telegram(machine: RealNames, authority: Authority, folder: Path) -> Iterator[Stand]:
    """Telegram, with one bot and one chat."""
    del folder
    token = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
    (name,) = telegram.NAMES
    with telegram.TelegramServer(authority.server_context(name), listener=machine.listen_at(name)) as server:
        server.allow(token)
        chat = server.chat("Releases")
        server.write(chat, "is it out?")
        yield Stand(
            service="telegram",
            servers=[],
            credential=[Typed("API key or token: ", token, is_secret=True)],
            wrong="110201543:revoked-revoked-revoked-revoked",
            says="telegram: 1 unread message",
            read=Run("telegram-read-updates"),
            write=Run("telegram-send-message", {"chat": str(chat), "text": "It is out."}),
            arrived=lambda: [(sent.chat, sent.text, server.asked[-1].token) for sent in server.sent],
            expected=[(chat, "It is out.", telegram.digest_of(token))],
            opens_page=True,
            denied=Denied(
                lambda has: server.disturb("sendMessage", _NO_RIGHT, status="400 Bad Request", times=0 if has else 1),
                Run("telegram-send-message", {"chat": str(chat), "text": "And more."}),
                "not enough rights to send text messages to the chat",
            ),
        )


@contextlib.contextmanager
def webhook(machine: RealNames, authority: Authority, folder: Path) -> Iterator[Stand]:
    """A receiver of signed webhooks, which verifies by the library of Standard Webhooks."""
    del folder
    key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    with Receiver(authority.server_context(HOOKS), key) as server, machine.pass_on(HOOKS, 443, server.port):
        yield Stand(
            service="webhook",
            servers=[Typed("Server, such as hooks.example.com: ", HOOKS)],
            credential=[Typed("Signing secret: ", key, is_secret=True)],
            wrong="whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
            says="added, with 1 action",
            read=None,
            write=Run("webhook-send", {"event": "invoice.paid", "path": "/hooks/orders", "data": {"id": 7}}),
            arrived=lambda: [(event["type"], event["data"]) for event in server.events],
            expected=[("invoice.paid", {"id": 7})],
        )


Make = Callable[[RealNames, Authority, Path], contextlib.AbstractContextManager[Stand]]
STANDS: Final[Mapping[str, Make]] = {
    "caldav": caldav,
    "git": git_over_ssh,
    "github": at_github,
    "mail": mail,
    "matrix": at_matrix,
    "postgres": postgres,
    "s3": s3,
    "slack": at_slack,
    "stripe": at_stripe,
    "telegram": at_telegram,
    "webhook": webhook,
}
"""Services by name. Google's, where a person signs in in a browser, is in google.py."""
