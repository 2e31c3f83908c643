r"""SASL in both directions: presents the credential to a service, and answers a library's own login without checking that
login.

    service ◄── one Exchange, with the strongest mechanism that both ends support
    library ──► its user name and password are read to their end, and dropped (`challenges`)

Runs in the process of one login. Trusts neither end.

Rules
- There is one attempt: after a refusal no other mechanism is tried, as repeated attempts can lock an account.
- PLAIN, LOGIN and the two mechanisms for tokens reveal the secret. They are used only over TLS, or for a service on this
  machine for which the user allowed `plain`.
- With SCRAM, the service must prove that it knows the password. A service cannot send another challenge after the last step.
- If a service offers no channel binding, we tell it that we support it (RFC 5802 section 6): if an attacker removed -PLUS from
  the service's list, the service detects that.

Source: RFC 4422, RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM-SHA-256), RFC 5929 (tls-server-end-point), RFC 7628
(OAUTHBEARER), draft-murchison-sasl-login, developers.google.com/gmail/imap/xoauth2-protocol. tls-exporter (RFC 9266) is in
neither Python's `ssl` nor scramp. Not here: how a protocol carries the steps (smtp.py, imap.py, pop3.py).
"""

from __future__ import annotations

import abc
import base64
import binascii
import ssl
from collections.abc import Callable, Iterable
from typing import ClassVar, Final, Literal, NamedTuple, assert_never

from scramp import ScramClient, ScramException

from aileron.logins.login_messages import MAX_WORDS, LoginError, Order, Problem
from aileron.logins.side import Side
from aileron.logins.words import printable

__all__ = [
    "Accepted",
    "Answer",
    "Challenge",
    "Credential",
    "Exchange",
    "Rejected",
    "challenges",
    "choose",
    "decode",
    "encode",
    "no_mechanism",
    "refused",
    "show",
    "words",
]

_MAX_STEPS: Final = 4
"""Maximum number of challenges from a service: SCRAM has two, with an empty challenge before and after."""
_MAX_ITERATIONS: Final = 1_000_000
"""Maximum number of iterations of SCRAM's PBKDF2, which take half a second. OWASP recommends 600,000; a service that asks for
more than the maximum would keep a processor busy.
"""
_PLACEHOLDER_STEPS: Final[dict[str, tuple[bytes, ...]]] = {
    "PLAIN": (b"",),
    "LOGIN": (b"Username:", b"Password:"),
    "XOAUTH2": (b"",),
    "OAUTHBEARER": (b"",),
}


class Challenge(NamedTuple):
    """The service's answer with a challenge, to which the service expects a response."""

    data: bytes


class Accepted(NamedTuple):
    """The service's answer that accepts the login."""


class Rejected(NamedTuple):
    """The service's answer that refuses the login."""

    problem: Problem
    said: bytes


Answer = Challenge | Accepted | Rejected


class Credential(NamedTuple):
    """A user name, and a password or an access token."""

    kind: Literal["password", "token"]
    username: str
    secret: str

    @classmethod
    def of(cls, order: Order) -> Credential:
        """Return the credential of an order. Raise LoginError(unusable_credential) if the SASL mechanisms cannot send this
        credential.
        """
        try:
            secret = order.secret.decode("utf-8")
        except UnicodeDecodeError:
            secret = ""
        if not secret or _has_controls(secret):
            raise LoginError(
                Problem.UNUSABLE_CREDENTIAL,
                "the secret is empty, not UTF-8, or has a control character such as a line end: set it again",
            )
        if not order.username or _has_controls(order.username):
            raise LoginError(
                Problem.UNUSABLE_CREDENTIAL,
                "the binding has no user name, or one with a control character: bind it again with --username",
            )
        return cls(order.credential, order.username, secret)

    def __repr__(self) -> str:
        return "<credential>"


def _has_controls(text: str) -> bool:
    return any(ord(character) < 0x20 or ord(character) == 0x7F for character in text)


class Exchange(abc.ABC):
    """Base class of the SASL exchanges: the client's messages of one mechanism, for one credential."""

    name: ClassVar[str]
    shows_secret: ClassVar[bool] = True

    def __init__(self, credential: Credential) -> None:
        self.credential: Final = credential

    @abc.abstractmethod
    def first(self) -> bytes | None:
        """Return the client's first message, or None if the service sends first."""

    def answer(self, challenge: bytes) -> bytes:
        """Return the response to a challenge of the service. Raises LoginError if the challenge is invalid."""
        raise _unexpected(self.name)

    def too_early(self) -> str:
        """Return a text that says why the service must not accept the login at this point, for example because it did
        not prove that it knows the password. Return "" if it can accept the login.
        """
        return ""

    @property
    def refusal(self) -> bytes:
        """Reason that the service gave in the exchange's own messages for refusing the login; empty if it gave none."""
        return b""

    def in_clear(self) -> tuple[bytes, ...]:
        """Return the forms of the secret that can be read in the messages of this exchange."""
        return ()


class _Plain(Exchange):
    name = "PLAIN"

    def first(self) -> bytes:
        return b"\0" + self.credential.username.encode() + b"\0" + self.credential.secret.encode()

    def in_clear(self) -> tuple[bytes, ...]:
        return self.credential.secret.encode(), encode(self.first())


class _Login(Exchange):
    name = "LOGIN"

    def __init__(self, credential: Credential) -> None:
        super().__init__(credential)
        self._left = [credential.username.encode(), credential.secret.encode()]

    def first(self) -> None:
        return None

    def answer(self, challenge: bytes) -> bytes:
        asked_for_password = challenge.lower().startswith(b"pass")
        if not self._left or asked_for_password != (len(self._left) == 1):
            raise _unexpected(self.name)
        return self._left.pop(0)

    def too_early(self) -> str:
        return "the service accepted a login that was not over" if self._left else ""

    def in_clear(self) -> tuple[bytes, ...]:
        secret = self.credential.secret.encode()
        return secret, encode(secret)


class _Token(Exchange):
    """The exchange of XOAUTH2 and OAUTHBEARER: a message with the access token and, after a refusal, an answer to the error."""

    refused_answer: ClassVar[bytes]

    def __init__(self, credential: Credential) -> None:
        super().__init__(credential)
        self._refusal: bytes | None = None

    def answer(self, challenge: bytes) -> bytes:
        if self._refusal is not None:
            raise _unexpected(self.name)
        self._refusal = challenge
        return self.refused_answer

    def too_early(self) -> str:
        return "the service accepted a login after it had refused it" if self._refusal is not None else ""

    @property
    def refusal(self) -> bytes:
        return self._refusal or b""

    def in_clear(self) -> tuple[bytes, ...]:
        first = self.first()
        assert first is not None
        return self.credential.secret.encode(), encode(first)


class _XOAuth2(_Token):
    name = "XOAUTH2"
    refused_answer = b""

    def first(self) -> bytes:
        return f"user={self.credential.username}\x01auth=Bearer {self.credential.secret}\x01\x01".encode()


class _OAuthBearer(_Token):
    name = "OAUTHBEARER"
    refused_answer = b"\x01"

    def first(self) -> bytes:
        user = self.credential.username.replace("=", "=3D").replace(",", "=2C")  # RFC 5801 section 4
        return f"n,a={user},\x01auth=Bearer {self.credential.secret}\x01\x01".encode()


class _Scram(Exchange):
    """The exchange of SCRAM-SHA-256. It tells the service whether we support channel binding."""

    name = "SCRAM-SHA-256"
    shows_secret = False

    def __init__(self, credential: Credential, tls: ssl.SSLSocket | None) -> None:
        super().__init__(credential)
        made = _scram_client(self.name, credential, tls)
        if made is None:
            raise LoginError(
                Problem.UNUSABLE_CREDENTIAL,
                "the user name or the password has a character that SCRAM does not have (RFC 4013): change it at the service",
            )
        self._client: Final = made
        self._step = 0

    def first(self) -> bytes:
        said: str = self._client.get_client_first()
        return said.encode()

    def answer(self, challenge: bytes) -> bytes:
        self._step += 1
        problem, said = self._next(challenge)
        if problem is not None:
            raise problem
        return said

    def _next(self, challenge: bytes) -> tuple[LoginError | None, bytes]:
        """Return the error, or None, and the response to the challenge. The caller raises the error outside the exception
        handler, because scramp's errors quote the service.
        """
        try:
            if self._step == 1:
                return self._prove(challenge.decode("utf-8"))
            if self._step == 2:
                self._client.set_server_final(challenge.decode("utf-8"))
                return None, b""
        except (ScramException, UnicodeDecodeError):
            expected = "its first message" if self._step == 1 else "its proof that it knows the password"
            return LoginError(Problem.PROTOCOL, f"{self.name}: the service's answer is not {expected}"), b""
        return _unexpected(self.name), b""

    def _prove(self, server_first: str) -> tuple[LoginError | None, bytes]:
        self._client.set_server_first(server_first)
        if int(self._client.iterations) > _MAX_ITERATIONS:
            return LoginError(
                Problem.PROTOCOL, f"{self.name}: the service asks for more than {_MAX_ITERATIONS} iterations"
            ), b""
        said: str = self._client.get_client_final()
        return None, said.encode()

    def too_early(self) -> str:
        return f"{self.name}: the service did not prove that it knows the password" if self._step < 2 else ""


class _ScramPlus(_Scram):
    name = "SCRAM-SHA-256-PLUS"


def _scram_client(name: str, credential: Credential, tls: ssl.SSLSocket | None) -> ScramClient | None:
    binding = None if tls is None else ("tls-server-end-point", tls)
    try:
        return ScramClient([name], credential.username, credential.secret, channel_binding=binding)
    except ScramException:
        return None


def _can_bind(tls: ssl.SSLSocket | None) -> bool:
    """Return whether the channel binding tls-server-end-point is available.

    It is not available for a certificate whose signature algorithm has no hash function of its own (Ed25519): RFC 5929 section
    4.1.
    """
    return tls is not None and _scram_client("SCRAM-SHA-256-PLUS", Credential("password", "u", "p"), tls) is not None


def choose(credential: Credential, offered: Iterable[str], server: Side, *, is_plain: bool) -> Exchange | None:
    """Return an exchange of the strongest mechanism that the service offers, or None if it offers none that can be used.

    `is_plain` is true if the user allowed connections to this service without TLS.
    """
    names = {name.upper() for name in offered}
    may_show = server.is_encrypted or is_plain
    match credential.kind:
        case "token":
            shown: tuple[type[Exchange], ...] = (_XOAuth2, _OAuthBearer)
            return next((kind(credential) for kind in shown if kind.name in names and may_show), None)
        case "password":
            return _for_password(credential, names, server, may_show=may_show)
        case impossible:
            assert_never(impossible)


def _for_password(credential: Credential, names: set[str], server: Side, *, may_show: bool) -> Exchange | None:
    """Return an exchange of a mechanism in `names` that proves the password without sending it; if there is none and
    `may_show` is true, one that sends the password; otherwise None.
    """
    sock = server.sock if isinstance(server.sock, ssl.SSLSocket) else None
    bound = sock if {_Scram.name, _ScramPlus.name} & names and _can_bind(sock) else None
    if _ScramPlus.name in names and bound is not None:
        return _ScramPlus(credential, bound)
    if _Scram.name in names:
        # If -PLUS is offered but binding is impossible, the flag `y` would be false, and the service must refuse it.
        return _Scram(credential, None if _ScramPlus.name in names else bound)
    return next((kind(credential) for kind in (_Plain, _Login) if kind.name in names and may_show), None)


def show(exchange: Exchange, say: Callable[[bytes], None], hear: Callable[[], Answer], first: bytes | None) -> None:
    """Execute the exchange until the service accepts the login; `say` sends the service a message, and `hear` returns
    its answer. Raises LoginError if the service refuses the login.

    `first` is the client's first message if that was not sent with the command that begins the exchange.
    """
    for _step in range(_MAX_STEPS + 1):
        match hear():
            case Accepted():
                if missing := exchange.too_early():
                    raise LoginError(Problem.PROTOCOL, missing)
                return
            case Rejected(problem, said):
                raise refused(problem, exchange.refusal or said)
            case Challenge(data) if first is not None:
                if data:
                    raise _unexpected(exchange.name)
                say(first)
                first = None
            case Challenge(data):
                say(exchange.answer(data))
    raise _unexpected(exchange.name)


def refused(problem: Problem, said: bytes) -> LoginError:
    """Return the error for a login that the service refused. `said` is the service's reason."""
    match problem:
        case Problem.REFUSED_CREDENTIAL:
            return LoginError(problem, "the service does not accept the user name and secret", words(said))
        case Problem.CLOSED:
            return LoginError(problem, "the service closed the connection during the login", words(said))
        case _:
            return LoginError(problem, "the service refused the command that logs in", words(said))


def no_mechanism(credential: Credential, offered: Iterable[str], server: Side) -> LoginError:
    """Return the error for a service that offers no mechanism that this module supports."""
    listed = ", ".join(sorted(name.upper() for name in offered))[:200] or "none"
    wanted = "XOAUTH2 or OAUTHBEARER" if credential.kind == "token" else "SCRAM-SHA-256, PLAIN or LOGIN"
    how = "" if server.is_encrypted else ", and without TLS nothing that shows the secret"
    return LoginError(
        Problem.WEAK_LOGIN,
        f"the service offers no login mechanism that is used here ({wanted}{how})",
        f"AUTH: {listed}",
    )


def _unexpected(name: str) -> LoginError:
    return LoginError(Problem.PROTOCOL, f"{name}: the service asked for something that the mechanism does not have")


def challenges(mechanism: str, *, has_initial: bool) -> tuple[bytes, ...] | None:
    """Return the challenges for a library's own login, whose responses are dropped. Return None for a mechanism that was not
    offered to the library.

    >>> challenges("login", has_initial=True)
    (b'Password:',)
    """
    steps = _PLACEHOLDER_STEPS.get(mechanism.upper())
    return steps if steps is None or not has_initial else steps[1:]


def encode(data: bytes) -> bytes:
    """Encode the data as base64 on one line."""
    return base64.b64encode(data)


def decode(text: bytes) -> bytes:
    """Decode base64. Raises LoginError(protocol) if the text is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        pass
    raise LoginError(Problem.PROTOCOL, "the service sent a challenge that is not base64")


def words(said: bytes) -> str:
    """Return text from a service in a form for messages: printable, and of limited length."""
    return printable(said.decode("utf-8", "replace"))[:MAX_WORDS].strip()
