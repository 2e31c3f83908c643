"""What the daemon and a login say to each other: typed messages over a sequenced-packet socket, one message a packet.

    Order                              daemon → login   with two descriptors: the service's socket, the far end of the stream
    LoggedIn | Failed                  login → daemon   once
    Note, answered by Noted            login → daemon   before what it tells of is done
    Over                               login → daemon   last

Rules
- The daemon trusts no message of a login further than the service's words: what it decodes is closed and bounded.
- A message holds no secret but `Order`, which prints none. `Failed` and `Over` quote the service, bounded and scrubbed.

Source: unix(7) (SOCK_SEQPACKET, SCM_RIGHTS). Not here: the processes (keeper.py, process.py).
"""

from __future__ import annotations

import enum
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from aileron.model.login import LoginDetails, LoginProtocol, LoginTarget, PasswordForm

__all__ = [
    "CAN_READ_ONLY",
    "MAX_ADDRESS",
    "MAX_EFFECTS",
    "MAX_LOGINS",
    "MAX_NOTE_BYTES",
    "MAX_PACKET",
    "MAX_RECIPIENTS",
    "MAX_STREAM_S",
    "MAX_WORDS",
    "READY",
    "Effects",
    "Envelope",
    "Failed",
    "FromLogin",
    "LoggedIn",
    "LoginError",
    "MessageError",
    "Note",
    "Noted",
    "Order",
    "Over",
    "Problem",
    "Submitted",
    "decode_from_login",
    "decode_noted",
    "decode_order",
    "encode",
]

MAX_PACKET: Final = 160 * 1024
"""Bytes: an order has a secret of at most 64 KiB."""
MAX_WORDS: Final = 500
"""Characters that are kept of what a service says."""
MAX_NOTE_BYTES: Final = 64 << 10
"""Of one note: an envelope of a hundred recipients is some 10 KiB; effects are MAX_EFFECTS, which JSON could double."""
MAX_RECIPIENTS: Final = 100
"""What every server has to take (RFC 5321 section 4.5.3.1.8); a note of more would be too large."""
MAX_ADDRESS: Final = 600
"""Characters of a sender or recipient, quoted: RFC 5321 section 4.5.3.1 has 64 and 255 octets."""
MAX_EFFECTS: Final = 24 << 10
"""Bytes of the effects of a transaction as text, which a person reads: some ten screens."""

MAX_LOGINS: Final = 64
"""Of one process at once: as many as there are requests and streams of all steps together (egress)."""
MAX_STREAM_S: Final = 24 * 3600.0
"""Seconds: longer than any step may run. For a login that does not keep the time of its order."""

CAN_READ_ONLY: Final[frozenset[LoginProtocol]] = frozenset({"smtp", "imap", "pop3", "postgres", "mysql", "ssh"})
"""Those whose streams can be held to reading, for a preview (`Login.can_read_only`)."""
READY: Final = b"ready"
"""What the process of logins says once it is confined."""

_T = TypeVar("_T")
Words = Annotated[str, msgspec.Meta(max_length=MAX_WORDS)]
Address = Annotated[str, msgspec.Meta(max_length=MAX_ADDRESS)]


class Problem(enum.StrEnum):
    """Why there is no stream, or no stream any more."""

    REFUSED_CREDENTIAL = "refused_credential"
    """The service does not take this user name and secret, or has locked the account."""
    UNUSABLE_CREDENTIAL = "unusable_credential"
    """The secret or a detail cannot be used for this protocol: a private key that is none, no user name."""
    NO_DATABASE = "no_database"
    """The service has no database of this name, or not for this user."""
    MAY_WRITE = "may_write"
    """The role was bound as one that only reads, and can write."""
    CERTIFICATE = "certificate"
    """TLS could not be verified, or could not be agreed on."""
    HOST_KEY = "host_key"
    """The key of an SSH server is not the one that was pinned."""
    NOT_ENCRYPTED = "not_encrypted"
    """The service does not offer the encryption that it has to, or something came before it began."""
    WEAK_LOGIN = "weak_login"
    """The service takes the secret only in a form that this protocol is not given it in."""
    PROTOCOL = "protocol"
    """What the service said is not what the protocol has there, or is more than there is room for."""
    NOT_ALLOWED = "not_allowed"
    """The connector asked for what a logged-in stream does not do."""
    CLOSED = "closed"
    """The service closed the connection."""
    TOO_SLOW = "too_slow"
    """The deadline came first."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """The connection broke between a commit and its answer."""
    EFFECTS_CHANGED = "effects_changed"
    """What would have been committed is not what a person saw; nothing was."""


class LoginError(Exception):
    """There is no stream, or no more of it. The message is a sentence without a secret; `said` are the service's own words, and
    `may_allow` as of `Failed`.
    """

    def __init__(
        self, problem: Problem, message: str, said: str = "", *, may_allow: PasswordForm | None = None
    ) -> None:
        super().__init__(message)
        self.problem: Final = problem
        self.said: Final = said
        self.may_allow: Final = may_allow


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One login. `secret` is a password, an OAuth access token or, for `ssh`, a private key in OpenSSH's or PEM form.

    `login_s` and `stream_s` are what is left, in seconds: for the login, and for the stream in all. `reads_only`: the stream is
    for a preview, and changes nothing at the service. `previewed` (`postgres`): it is of an operation that changes only what a
    person saw. With `reads_only` its effects are noted, and taken back; without, they are committed where their digest is `seen`.
    """

    target: LoginTarget
    credential: Literal["password", "token"]
    username: str
    secret: bytes
    details: LoginDetails
    command: str | None
    login_s: float
    stream_s: float
    reads_only: bool = False
    previewed: bool = False
    seen: str | None = None

    def __repr__(self) -> str:
        return f"<order to log in at {self.target}>"


class LoggedIn(msgspec.Struct, frozen=True, kw_only=True, tag="logged_in"):
    """The service has accepted the credential. `mechanism` is how, as `SCRAM-SHA-256-PLUS`."""

    mechanism: Words


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """There is no stream."""

    problem: Problem
    message: Words
    said: Words = ""
    may_allow: PasswordForm | None = None
    """The form in which the service would take the password, if a person allows it for this binding."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, tag="envelope"):
    """`smtp`: who a message is from and for, as the server took them, before the message itself is sent."""

    sender: Address
    recipients: Annotated[tuple[Address, ...], msgspec.Meta(max_length=MAX_RECIPIENTS)]
    size: int | None = None
    """Bytes that the client announced (RFC 1870)."""


class Submitted(msgspec.Struct, frozen=True, kw_only=True, tag="submitted"):
    """`smtp`: the server answered a message of `size` bytes with this code."""

    size: int
    code: int


class Effects(msgspec.Struct, frozen=True, kw_only=True, tag="effects"):
    """`postgres`: what a transaction did. A preview's is taken back; else it is what a person saw, and is committed next.

    `digest` (`sha256:…`) covers the statement, each row and how many rows of which table changed; `text` shows all of it.
    """

    digest: Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")]
    text: Annotated[str, msgspec.Meta(max_length=MAX_EFFECTS)]


Note = Envelope | Submitted | Effects


class Noted(msgspec.Struct, frozen=True, kw_only=True, tag="noted"):
    """A note is on disk. The only message of the daemon after its order."""


class Over(msgspec.Struct, frozen=True, kw_only=True, tag="over"):
    """The stream has ended: well, where there is no `problem`. `scrubbed` counts what was masked."""

    scrubbed: int
    problem: Problem | None = None
    message: Words = ""
    said: Words = ""


FromLogin = LoggedIn | Failed | Note | Over


class MessageError(Exception):
    """A packet that is none of these messages."""


def encode(message: Order | Noted | FromLogin) -> bytes:
    """One packet."""
    return _encoder.encode(message)


def decode_order(packet: bytes) -> Order:
    """MessageError, also for an empty packet: whoever should have sent it has gone."""
    return _decoded(_orders, packet, "no order")


def decode_noted(packet: bytes) -> Noted:
    """MessageError."""
    return _decoded(_noted, packet, "no answer to a note")


def decode_from_login(packet: bytes) -> FromLogin:
    """MessageError."""
    return _decoded(_from_login, packet, "nothing that a login says")


def _decoded(decoder: msgspec.msgpack.Decoder[_T], packet: bytes, what: str) -> _T:
    try:
        return decoder.decode(packet)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise MessageError(what)  # outside: what was decoded could hold a secret, or a service's words


_encoder: Final = msgspec.msgpack.Encoder()
_orders: Final = msgspec.msgpack.Decoder(Order)
_noted: Final = msgspec.msgpack.Decoder(Noted)
_from_login: Final[msgspec.msgpack.Decoder[FromLogin]] = msgspec.msgpack.Decoder(FromLogin)
