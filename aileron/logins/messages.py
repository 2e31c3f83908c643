"""The messages between the daemon and a login: typed, over a sequenced-packet socket, one message a packet.

    Order                              daemon → login   with two descriptors: the service's socket, the far end of the stream
    LoggedIn | Failed                  login → daemon   one of them, once
    Note, answered by Noted            login → daemon   before the login does what the note says
    Over                               login → daemon   last

Rules
- The daemon trusts a login's messages no more than the service's words: it decodes only closed and bounded types.
- Only `Order` holds a secret, and its repr does not show it. `Failed` and `Over` quote the service, bounded and scrubbed.

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
"""Bytes of the longest packet: an order has a secret of at most 64 KiB."""
MAX_WORDS: Final = 500
"""Characters that are kept of a service's words."""
MAX_NOTE_BYTES: Final = 64 << 10
"""Bytes of the longest note. An envelope of a hundred recipients has some 10 KiB; effects have MAX_EFFECTS, which JSON can
double.
"""
MAX_RECIPIENTS: Final = 100
"""Recipients that every server must accept (RFC 5321 section 4.5.3.1.8). A note of more would be too large."""
MAX_ADDRESS: Final = 600
"""Characters of a sender or recipient, quoted. RFC 5321 section 4.5.3.1 allows 64 and 255 octets for its two parts."""
MAX_EFFECTS: Final = 24 << 10
"""Bytes of a transaction's effects as text, which a person reads: some ten screens."""

MAX_LOGINS: Final = 64
"""Logins of one process at once: as many as the requests and streams of all steps together (egress)."""
MAX_STREAM_S: Final = 24 * 3600.0
"""Seconds: longer than any step can run. The limit for a login that does not keep the deadline of its order."""

CAN_READ_ONLY: Final[frozenset[LoginProtocol]] = frozenset({"smtp", "imap", "pop3", "postgres", "mysql", "ssh"})
"""The protocols whose streams can be held to reading, for a preview (`Login.can_read_only`)."""
READY: Final = b"ready"
"""The message that the process of logins sends once it is confined."""

_T = TypeVar("_T")
Words = Annotated[str, msgspec.Meta(max_length=MAX_WORDS)]
Address = Annotated[str, msgspec.Meta(max_length=MAX_ADDRESS)]


class Problem(enum.StrEnum):
    """The reasons why a stream could not be opened, or ended early."""

    REFUSED_CREDENTIAL = "refused_credential"
    """The service does not accept this user name and secret, or has locked the account."""
    UNUSABLE_CREDENTIAL = "unusable_credential"
    """The secret or a detail cannot be used for this protocol: an invalid private key, a missing user name."""
    NO_DATABASE = "no_database"
    """The service has no database of this name, or does not open it for this user."""
    MAY_WRITE = "may_write"
    """The role was bound as read-only, but can write."""
    CERTIFICATE = "certificate"
    """TLS could not be verified, or not be negotiated."""
    HOST_KEY = "host_key"
    """The key of an SSH server is not the one that was pinned."""
    NOT_ENCRYPTED = "not_encrypted"
    """The service does not offer the required encryption, or something was sent before encryption began."""
    WEAK_LOGIN = "weak_login"
    """The service accepts the secret only in a form that this protocol must not send."""
    PROTOCOL = "protocol"
    """The service sent something that the protocol does not allow there, or that exceeds a bound."""
    NOT_ALLOWED = "not_allowed"
    """The connector asked for something that a logged-in stream does not allow."""
    CLOSED = "closed"
    """The service closed the connection."""
    TOO_SLOW = "too_slow"
    """The deadline passed."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """The connection broke between a commit and its response."""
    EFFECTS_CHANGED = "effects_changed"
    """The effects differ from what a person saw; nothing was committed."""


class LoginError(Exception):
    """Raised if there is no stream, or if it must end.

    The message is a sentence without a secret. `said` has the service's own words. `may_allow` is as in `Failed`.
    """

    def __init__(
        self, problem: Problem, message: str, said: str = "", *, may_allow: PasswordForm | None = None
    ) -> None:
        super().__init__(message)
        self.problem: Final = problem
        self.said: Final = said
        self.may_allow: Final = may_allow


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The order for one login. `secret` is a password, an OAuth access token or, for `ssh`, a private key in OpenSSH's or PEM
    form.

    `login_s` and `stream_s` are the remaining seconds for the login, and for the stream in all. If `reads_only`, the stream is
    for a preview, and must change nothing at the service. If `previewed` (`postgres`), the stream is of an operation that
    changes only what a person saw: with `reads_only`, its effects are noted and rolled back; without, they are committed if
    their digest is `seen`.
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
    """The service has accepted the credential. `mechanism` says how, such as `SCRAM-SHA-256-PLUS`."""

    mechanism: Words


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The login failed, so there is no stream."""

    problem: Problem
    message: Words
    said: Words = ""
    may_allow: PasswordForm | None = None
    """The form in which the service would take the password, if a person allows it for this binding."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, tag="envelope"):
    """Sender and recipients of a message, as the server accepted them, before the message itself is sent (`smtp`)."""

    sender: Address
    recipients: Annotated[tuple[Address, ...], msgspec.Meta(max_length=MAX_RECIPIENTS)]
    size: int | None = None
    """Bytes that the client announced (RFC 1870)."""


class Submitted(msgspec.Struct, frozen=True, kw_only=True, tag="submitted"):
    """The server answered a message of `size` bytes with this code (`smtp`)."""

    size: int
    code: int


class Effects(msgspec.Struct, frozen=True, kw_only=True, tag="effects"):
    """The effects of a transaction (`postgres`). A preview's are rolled back; otherwise they are what a person saw, and are
    committed next.

    `digest` (`sha256:…`) covers the statement, each row and how many rows of which table changed; `text` shows all of it.
    """

    digest: Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")]
    text: Annotated[str, msgspec.Meta(max_length=MAX_EFFECTS)]


Note = Envelope | Submitted | Effects


class Noted(msgspec.Struct, frozen=True, kw_only=True, tag="noted"):
    """A note is on disk. The daemon sends no other message after its order."""


class Over(msgspec.Struct, frozen=True, kw_only=True, tag="over"):
    """The stream has ended; if there is no `problem`, without an error. `scrubbed` counts the occurrences that were masked."""

    scrubbed: int
    problem: Problem | None = None
    message: Words = ""
    said: Words = ""


FromLogin = LoggedIn | Failed | Note | Over


class MessageError(Exception):
    """Raised for a packet that is none of these messages."""


def encode(message: Order | Noted | FromLogin) -> bytes:
    """Return the message as one packet."""
    return _encoder.encode(message)


def decode_order(packet: bytes) -> Order:
    """Decode an order. Raise MessageError, also for an empty packet, which means that the sender has gone."""
    return _decoded(_orders, packet, "no order")


def decode_noted(packet: bytes) -> Noted:
    """Decode the response to a note. MessageError."""
    return _decoded(_noted, packet, "no answer to a note")


def decode_from_login(packet: bytes) -> FromLogin:
    """Decode a message of a login. MessageError."""
    return _decoded(_from_login, packet, "nothing that a login says")


def _decoded(decoder: msgspec.msgpack.Decoder[_T], packet: bytes, what: str) -> _T:
    try:
        return decoder.decode(packet)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise MessageError(what)  # raised outside the handler: the cause could hold a secret, or a service's words


_encoder: Final = msgspec.msgpack.Encoder()
_orders: Final = msgspec.msgpack.Decoder(Order)
_noted: Final = msgspec.msgpack.Decoder(Noted)
_from_login: Final[msgspec.msgpack.Decoder[FromLogin]] = msgspec.msgpack.Decoder(FromLogin)
