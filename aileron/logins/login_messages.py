"""The messages between the daemon and a login: typed, over a sequenced-packet socket, one message per packet.

    Order                              daemon → login   with two descriptors: the service's socket, the far end of the stream
    LoggedIn | Failed                  login → daemon   exactly one of the two
    Note, answered by Noted            login → daemon   before the login does what the note says
    Over                               login → daemon   the last message

Rules
- The daemon trusts a login's messages no more than the service's output: it decodes only closed and bounded types.
- Only `Order` holds a secret, and its repr does not show it. `Failed` and `Over` quote the service, bounded and scrubbed.

Source: unix(7) (SOCK_SEQPACKET, SCM_RIGHTS). Not here: the processes (keeper.py, process.py).
"""

from __future__ import annotations

import enum
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from aileron.model.login import PROTOCOLS, LoginDetails, LoginTarget, PasswordForm, protocol_facts

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
"""Maximum size of a packet in bytes: an order has a secret of at most 64 KiB."""
MAX_WORDS: Final = 500
"""Maximum number of characters that are kept of an error message from the service."""
MAX_NOTE_BYTES: Final = 64 << 10
"""Maximum size in bytes of a note, a login's message that the daemon records. An envelope with a hundred recipients has
some 10 KiB; effects have at most MAX_EFFECTS, which JSON escapes can double.
"""
MAX_RECIPIENTS: Final = 100
"""Maximum number of recipients of a mail message: as many as every server must accept (RFC 5321 section 4.5.3.1.8). A
note that lists more would be too large.
"""
MAX_ADDRESS: Final = 600
"""Maximum number of characters of the address of a sender or recipient, quoted. RFC 5321 section 4.5.3.1 allows 64 and
255 octets for the two parts of an address.
"""
MAX_EFFECTS: Final = 24 << 10
"""Maximum size in bytes of a transaction's effects as text. A person reads the text, which has some ten screens."""

MAX_LOGINS: Final = 64
"""Maximum number of logins that one process forks and that run at the same time: as many as the requests and streams of
all steps together (egress).
"""
MAX_STREAM_S: Final = 24 * 3600.0
"""Maximum lifetime of a stream in seconds, for a login that does not keep the deadline of its order. No step can run this
long.
"""

CAN_READ_ONLY: Final = frozenset(protocol for protocol in PROTOCOLS if protocol_facts(protocol).can_read_only)
"""The protocols whose streams can be restricted to reading, for a preview (`Login.can_read_only`)."""
READY: Final = b"ready"
"""Message to the daemon from the process that forks logins: the process is confined and ready."""

_T = TypeVar("_T")
Words = Annotated[str, msgspec.Meta(max_length=MAX_WORDS)]
Address = Annotated[str, msgspec.Meta(max_length=MAX_ADDRESS)]


class Problem(enum.StrEnum):
    """The reasons for which a login's stream could not be opened, or ended early."""

    REFUSED_CREDENTIAL = "refused_credential"
    """The service does not accept the user name and secret of the binding, or has locked the account."""
    UNUSABLE_CREDENTIAL = "unusable_credential"
    """The secret or a detail cannot be used for this protocol: an invalid private key, a missing user name."""
    NO_DATABASE = "no_database"
    """The service has no database of this name, or does not open the database for this user."""
    MAY_WRITE = "may_write"
    """The role was bound as read-only, but has rights to write."""
    CERTIFICATE = "certificate"
    """The certificate could not be verified, or TLS could not be negotiated."""
    HOST_KEY = "host_key"
    """The key of an SSH server differs from the key that the binding pins."""
    NOT_ENCRYPTED = "not_encrypted"
    """The service does not offer the required encryption, or sent unexpected bytes before encryption began."""
    WEAK_LOGIN = "weak_login"
    """The service accepts the secret only in a form that this protocol must not send."""
    PROTOCOL = "protocol"
    """The service sent something that the protocol does not allow at that point, or that exceeds a limit."""
    NOT_ALLOWED = "not_allowed"
    """The connector asked for something that a logged-in stream does not allow."""
    CLOSED = "closed"
    """The service closed the connection."""
    TOO_SLOW = "too_slow"
    """The deadline passed before the service responded, or before the stream ended."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """The connection broke between a commit and its response, so it is unknown whether the commit took effect."""
    EFFECTS_CHANGED = "effects_changed"
    """The effects of the transaction differ from those that a person saw; nothing was committed."""


class LoginError(Exception):
    """Raised if a stream cannot be opened, or if an open stream must end.

    The message is a sentence without a secret. `said` has the service's own message. `may_allow` is as in `Failed`.
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

    `login_s` and `stream_s` are the remaining seconds for the login, and for the stream including the login. If `reads_only`
    is true, the stream is for a preview, and must change nothing at the service. If `previewed` is true (`postgres`), the
    stream belongs to an operation that may change only what a person saw: with `reads_only`, the operation's effects are noted
    and rolled back; without `reads_only`, the effects are committed if their digest is equal to `seen`.
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
    """Report of a login to the daemon: the service has accepted the credential. `mechanism` is the authentication
    mechanism, such as `SCRAM-SHA-256-PLUS`.
    """

    mechanism: Words


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Report of a login to the daemon: the login failed, so no stream was opened."""

    problem: Problem
    message: Words
    said: Words = ""
    may_allow: PasswordForm | None = None
    """The form in which the service would accept the password, if a person allows that form for this binding."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, tag="envelope"):
    """Note of the sender and recipients of a mail message, as the SMTP server accepted them. It is sent to the daemon
    before the message itself is sent to the server.
    """

    sender: Address
    recipients: Annotated[tuple[Address, ...], msgspec.Meta(max_length=MAX_RECIPIENTS)]
    size: int | None = None
    """Size of the message in bytes, as the client announced it (RFC 1870)."""


class Submitted(msgspec.Struct, frozen=True, kw_only=True, tag="submitted"):
    """Note of an SMTP server's response to a mail message of `size` bytes: the response's `code`."""

    size: int
    code: int


class Effects(msgspec.Struct, frozen=True, kw_only=True, tag="effects"):
    """Note of the effects of a transaction (`postgres`). The effects of a preview are rolled back. Outside a preview
    they are equal to the effects that a person saw, and are committed next.

    `digest` (`sha256:…`) covers the statement, each changed row and the number of changed rows per table; `text` shows
    all of these.
    """

    digest: Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")]
    text: Annotated[str, msgspec.Meta(max_length=MAX_EFFECTS)]


Note = Envelope | Submitted | Effects


class Noted(msgspec.Struct, frozen=True, kw_only=True, tag="noted"):
    """The daemon's confirmation to a login that its latest note is on disk. After its order, the daemon sends a login
    no other messages.
    """


class Over(msgspec.Struct, frozen=True, kw_only=True, tag="over"):
    """Report of a login to the daemon: the stream has ended, because of an error if `problem` is set. `scrubbed` counts
    the masked occurrences of the secret.
    """

    scrubbed: int
    problem: Problem | None = None
    message: Words = ""
    said: Words = ""


FromLogin = LoggedIn | Failed | Note | Over


class MessageError(Exception):
    """Error: a packet is not a valid message between the daemon and a login."""


def encode(message: Order | Noted | FromLogin) -> bytes:
    """Return the message between the daemon and a login as one packet."""
    return _encoder.encode(message)


def decode_order(packet: bytes) -> Order:
    """Decode an order. Raise MessageError for an invalid packet, or for an empty one, which means that the sender has
    disconnected.
    """
    return _decoded(_orders, packet, "no order")


def decode_noted(packet: bytes) -> Noted:
    """Decode the daemon's confirmation of a note. Raises MessageError for any other packet."""
    return _decoded(_noted, packet, "no answer to a note")


def decode_from_login(packet: bytes) -> FromLogin:
    """Decode a message from a login. Raises MessageError for an invalid packet."""
    return _decoded(_from_login, packet, "nothing that a login says")


def _decoded(decoder: msgspec.msgpack.Decoder[_T], packet: bytes, problem: str) -> _T:
    try:
        return decoder.decode(packet)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise MessageError(problem)  # raised outside the handler: the cause could hold a secret, or a service's words


_encoder: Final = msgspec.msgpack.Encoder()
_orders: Final = msgspec.msgpack.Decoder(Order)
_noted: Final = msgspec.msgpack.Decoder(Noted)
_from_login: Final[msgspec.msgpack.Decoder[FromLogin]] = msgspec.msgpack.Decoder(FromLogin)
