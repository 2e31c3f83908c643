"""Values of logins at services that do not speak HTTP: the host and port, the protocol, and the details that a person adds.

Pure values, without a secret.

Source: docs/reference/connector-manifest.md, docs/reference/logins.md. Not here: logging in (aileron/logins).

>>> str(LoginTarget.parse("smtp://mail.example.com:587"))
'smtp+starttls://mail.example.com:587'
>>> LoginTarget.parse("imap://mail.example.com:993").encryption
'tls'
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple, Self, assert_never, get_args

import msgspec

from aileron.model.host_key import shown_fingerprint
from aileron.model.names import HostPort

__all__ = [
    "HAVE_DATABASES",
    "HAVE_PASSWORD_FORMS",
    "HAVE_PREVIEWED",
    "HAVE_ROLES",
    "HAVE_STARTTLS",
    "LOGIN_TARGET",
    "MAX_COMMANDS",
    "MAX_COMMAND_PATTERN",
    "MAX_LOGINS",
    "PROTOCOLS",
    "BoundLogin",
    "Encryption",
    "LoginDetails",
    "LoginProtocol",
    "LoginTarget",
    "PasswordForm",
    "ProtocolFacts",
    "named",
    "protocol_facts",
]

LoginProtocol = Literal["smtp", "imap", "pop3", "postgres", "mysql", "redis", "ssh"]
Encryption = Literal["tls", "starttls", "plain"]
"""Encryption of a login's connection.

`tls`: TLS from the first byte or, for `postgres` and `mysql`, from the point that their protocol specifies. `starttls`: TLS
after a command of the protocol. `plain`: no encryption, for a service on this machine that the user listed in
`egress.private_plain`. `ssh` has its own encryption and counts as `tls` here.
"""

PasswordForm = Literal["md5", "cleartext"]
"""Form of a password for a server without SCRAM: PostgreSQL's salted MD5 hash of the password, or the password in clear text."""

PROTOCOLS: Final[tuple[LoginProtocol, ...]] = get_args(LoginProtocol)
LOGIN_TARGET: Final = re.compile(rf"({'|'.join(PROTOCOLS)})(?:\+(tls|starttls|plain))?://([^/]+)")
_STARTTLS_PORTS: Final = frozenset({("smtp", 25), ("smtp", 587), ("imap", 143), ("pop3", 110)})
"""Ports on which connections of a protocol begin without TLS (RFC 8314 section 7.3, RFC 6409 section 3.1)."""
MAX_LOGINS: Final = 8
"""Maximum number of logins of one connector, because a person reads each before approving; a mail account has at most three."""
MAX_COMMANDS: Final = 16
"""Maximum number of commands of one connector, because a person reads these too; git has three."""
MAX_COMMAND_PATTERN: Final = 512
"""Maximum number of characters of a command pattern: a program and two paths, which a person can still read."""
_FORM_WORDS: Final[dict[PasswordForm, str]] = {
    "md5": "the server may have it as an MD5 hash: as good as the password to the server, and to whoever holds its certificate",
    "cleartext": "the server may have it as it is: the server, and whoever holds its certificate, sees the password",
}
_SAID_OF: Final[dict[Encryption, str]] = {
    "tls": " over TLS",
    "starttls": " over TLS (STARTTLS)",
    "plain": " WITHOUT ENCRYPTION",
}


class ProtocolFacts(NamedTuple):
    """The facts about a protocol of logins. `words` is its name for people."""

    words: str
    has_starttls: bool = False
    """True if a connection of the protocol can begin without TLS."""
    takes_tokens: bool = False
    """True if a user of the protocol can log in with an access token (XOAUTH2)."""
    has_addresses: bool = False
    """True if user names of the protocol are mostly mail addresses."""
    has_roles: bool = False
    """True if servers of the protocol report what a database role can do."""
    has_previewed: bool = False
    """True if transactions of the protocol can be limited to the effects that a person saw in a preview."""
    has_password_forms: bool = False
    """True if servers of the protocol may ask for the password in a form that a person has to allow."""
    databases: Literal["named", "numbered"] | None = None
    can_read_only: bool = True
    """True if streams of the protocol can be restricted to reading, for a preview."""
    is_apart: bool = False
    """True if logins of the protocol are made in a process that makes no logins of other protocols."""


def protocol_facts(protocol: LoginProtocol) -> ProtocolFacts:
    """Return the facts about this protocol."""
    match protocol:
        case "smtp" | "imap" | "pop3":
            return ProtocolFacts(protocol.upper(), has_starttls=True, takes_tokens=True, has_addresses=True)
        case "postgres":
            return ProtocolFacts(
                "PostgreSQL", has_roles=True, has_previewed=True, has_password_forms=True, databases="named"
            )
        case "mysql":
            return ProtocolFacts("MySQL", has_roles=True, databases="named")
        case "redis":
            return ProtocolFacts("Redis", databases="numbered", can_read_only=False)
        case "ssh":
            return ProtocolFacts("SSH", is_apart=True)
        case impossible:
            assert_never(impossible)


def _those(has: Callable[[ProtocolFacts], bool]) -> frozenset[LoginProtocol]:
    return frozenset(protocol for protocol in PROTOCOLS if has(protocol_facts(protocol)))


HAVE_STARTTLS: Final = _those(lambda facts: facts.has_starttls)
HAVE_ROLES: Final = _those(lambda facts: facts.has_roles)
HAVE_PREVIEWED: Final = _those(lambda facts: facts.has_previewed)
HAVE_PASSWORD_FORMS: Final = _those(lambda facts: facts.has_password_forms)
HAVE_DATABASES: Final = _those(lambda facts: facts.databases is not None)


class LoginTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A place where the supervisor logs in, and the encryption of the connection: `PROTOCOL[+ENCRYPTION]://HOST:PORT`."""

    protocol: LoginProtocol
    encryption: Encryption
    destination: HostPort

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a target. Raises ValueError saying what is wrong."""
        found = LOGIN_TARGET.fullmatch(text)
        if found is None:
            expected = "PROTOCOL://HOST:PORT, the protocol one of " + ", ".join(PROTOCOLS)
            raise ValueError(f"{text[:80]!a} is not {expected}")
        protocol, said, destination = found[1], found[2], HostPort.parse(found[3])
        usual = "starttls" if (protocol, destination.port) in _STARTTLS_PORTS else "tls"
        encryption = said or usual
        if encryption == "starttls" and protocol not in HAVE_STARTTLS:
            raise ValueError(f"{protocol} has no STARTTLS; leave +starttls out")
        if encryption == "plain" and protocol == "ssh":
            raise ValueError("ssh is always encrypted; leave +plain out")
        return msgspec.convert(
            {"protocol": protocol, "encryption": encryption, "destination": destination}, cls, from_attributes=True
        )

    def __str__(self) -> str:
        return f"{self.protocol}+{self.encryption}://{self.destination}"

    @property
    def words(self) -> str:
        """The target in words, for a person.

        >>> LoginTarget.parse("imap://mail.example.com:993").words
        'mail.example.com:993 by IMAP over TLS'
        """
        encrypted = "" if self.protocol == "ssh" else _SAID_OF[self.encryption]
        return f"{self.destination} by {protocol_facts(self.protocol).words}{encrypted}"


class LoginDetails(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The details of a login in addition to the user name and the secret. A person sets them with the binding."""

    database: str | None = None
    """Name of a `postgres` or `mysql` database, or number of a `redis` database."""
    host_key: str | None = None
    """Public key of an `ssh` server in OpenSSH's form. The login is refused if the server has another key."""
    read_only: bool = False
    """True if the role of `postgres` or `mysql` has no right to write, which is checked after each login."""
    weak_password: PasswordForm | None = None
    """Form in which a `postgres` server can get the password over TLS, in addition to SCRAM.

    If None, the server must use SCRAM.
    """

    @property
    def password_words(self) -> str | None:
        """Meaning of `weak_password` in words, for a person; None if `weak_password` is None.

        >>> LoginDetails(weak_password="cleartext").password_words
        'the server may have it as it is: the server, and whoever holds its certificate, sees the password'
        """
        return None if self.weak_password is None else _FORM_WORDS[self.weak_password]


class BoundLogin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The user and details of a login, from its binding. A plan is made with them, and its run must use the same. No secret.

    All details are included, so that a person also approves any kind of detail that a later version adds to them.
    """

    username: str
    details: LoginDetails = LoginDetails()

    def words(self, logins: Iterable[LoginTarget]) -> str:
        """Return in words, for a person, the account that is used at these logins.

        >>> BoundLogin(username="ada", details=LoginDetails(database="shop")).words([LoginTarget.parse("postgres://db.example:5432")])
        'ada on shop at db.example:5432'
        """
        said = self.details
        database = (
            "" if said.database is None else f" on {'database ' * said.database.isdecimal()}{named(said.database)}"
        )
        where = " and ".join(str(login.destination) for login in logins)
        host_key = "" if said.host_key is None else f", host key {shown_fingerprint(said.host_key)}"
        password = "" if said.weak_password is None else f", {said.weak_password} password allowed"
        return f"{named(self.username)}{database} at {where}{host_key}{password}"

    def changed_to(self, now: BoundLogin) -> tuple[str, ...]:
        """Return the differences of `now` from this login, each in words.

        >>> BoundLogin(username="ada").changed_to(BoundLogin(username="eve", details=LoginDetails(database="shop")))
        ('user name', 'database')
        """
        before, after = self.details, now.details
        differ = [name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)]
        user = () if self.username == now.username else ("user name",)
        return (*user, *(_DETAIL_WORDS.get(name, name.replace("_", " ")) for name in differ))


def named(text: str) -> str:
    """Return a name for use in a sentence: quoted if it is more than one word, so that it cannot be taken for Aileron's words.

    >>> named("ada"), named("ada on shop at db.example:5432")
    ('ada', '"ada on shop at db.example:5432"')
    """
    return text if _WORD.fullmatch(text) else json.dumps(text, ensure_ascii=False)


_WORD: Final = re.compile(r"[\w.@+$/:-]+")
_DETAIL_WORDS: Final = {"host_key": "host key", "read_only": "role", "weak_password": "password form"}
