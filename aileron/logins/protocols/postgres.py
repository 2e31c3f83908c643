"""Logs in at PostgreSQL with TLS and SCRAM, and answers a library's own start-up here.

    log_in   SSLRequest ── 'S' ──► TLS ──► StartupMessage ──► SCRAM ──► AuthenticationOk … ReadyForQuery
                                                              └ or, at most once, the weaker form that the binding allows
    greet    SSLRequest, GSSENCRequest ──► 'N';  StartupMessage ──► AuthenticationOk … ReadyForQuery

Runs in the process of one login. Trusts neither end.

Rules
- The service must prove with SCRAM-SHA-256 that it knows the password; the proof is bound to its certificate if possible. If a
  service does not ask for SCRAM, the login fails, except as follows.
- The service chooses the form of the password. The password is sent in the clear, or as an MD5 hash, only if a person
  allowed exactly that form for this binding, TLS has begun, and no other proof was sent in this login before. The form
  that was sent is masked in the whole stream. After an MD5 hash was sent, the password itself is not masked, because a
  connector could then test guesses by observing which text is masked.
- The response to SSLRequest is one byte. Unencrypted bytes after this byte are not read as if they came through TLS
  (CVE-2021-23222), and an error in place of this byte is not quoted (CVE-2024-10977).
- User name and database come from the binding. A library's start-up parameters are set if they are in `_PARAMETERS`, as values
  of a prepared statement. Any other parameter is refused, because `options` alone could change any setting. If effects are
  shown to a person, a library cannot choose a setting that a value's text depends on (postgres_settings.py).
- The service's key for cancelling is not passed on: the library gets a random key, which cancels nothing.
- If a role was bound as read-only, its rights are checked (postgres_rights.py), and its session stays in a read-only
  transaction that never ends (postgres_frame.py). In a preview by another role, the session stays in a transaction that is
  rolled back.

Source: PostgreSQL's manual, chapters "Message Flow" and "SASL Authentication". Not here: SCRAM itself (sasl.py).
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from typing import Final

from aileron.logins.login_messages import MAX_WORDS, LoginError, Order, Problem
from aileron.logins.protocol import Filter, Login, Unchanged
from aileron.logins.protocols import postgres_wire as wire
from aileron.logins.protocols import sasl
from aileron.logins.protocols.postgres_effects import Transaction
from aileron.logins.protocols.postgres_frame import Frame
from aileron.logins.protocols.postgres_rights import rights_query
from aileron.logins.protocols.postgres_rows import row_of
from aileron.logins.protocols.postgres_settings import other_than_fixed
from aileron.logins.side import Side
from aileron.logins.words import printable
from aileron.model.login import PasswordForm

__all__ = ["PostgresLogin"]

_PROTOCOL_3: Final = 3 << 16
_SSL_REQUEST: Final = 80877103
_GSSENC_REQUEST: Final = 80877104
_CANCEL_REQUEST: Final = 80877102
_MAX_STARTUP: Final = 10_000
"""Maximum size of a start-up message in bytes: PostgreSQL's own limit (MAX_STARTUP_PACKET_LENGTH)."""
_MAX_MESSAGES: Final = 500
"""Maximum number of messages that are read from the service in one stage of the login: the service reports some 15 parameters,
and perhaps notices.
"""
_MAX_ROWS: Final = 50
_MECHANISMS: Final = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-256-PLUS"})
_PARAMETERS: Final = {
    name.lower(): name
    for name in (
        "application_name",
        "client_encoding",
        "DateStyle",
        "extra_float_digits",
        "IntervalStyle",
        "search_path",
        "statement_timeout",
        "TimeZone",
    )
}
"""Parameters that a library can set at start-up, by their names in lower case. A library could also set all of these later
with SQL.
"""
_OURS: Final = frozenset({"user", "database"})
_SET: Final = "SELECT pg_catalog.set_config($1, $2, false)"

_FORMS: Final[dict[int, PasswordForm]] = {3: "cleartext", 5: "md5"}
"""Password forms that are weaker than SCRAM, by the code with which the service asks for each."""
_WEAK: Final[dict[PasswordForm, str]] = {
    "cleartext": "asks for the password in the clear",
    "md5": "asks for the password as an MD5 hash, which is as good as the password",
}
_SALT_BYTES: Final = 4
_SET_SCRAM: Final = (
    "set scram-sha-256 for this user in its pg_hba.conf, and their password again with "
    "password_encryption = 'scram-sha-256'"
)


class PostgresLogin(Login):
    """The login to PostgreSQL for one session."""

    can_read_only = True

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._reported: dict[bytes, bytes] = {}
        """Parameters that the service has reported (ParameterStatus)."""

    def log_in(self, server: Side) -> None:
        """Begin TLS and log in with SCRAM. If the role was bound as read-only, check that it has only rights to read."""
        credential = sasl.Credential.of(self.order)
        if credential.kind != "password":
            raise LoginError(
                Problem.UNUSABLE_CREDENTIAL, "PostgreSQL is logged in at with a password, not with a token"
            )
        database = self.order.details.database or credential.username
        if not database.isprintable():
            raise LoginError(Problem.UNUSABLE_CREDENTIAL, "the database's name has a character that no name has")
        if self.order.target.encryption != "plain":
            _begin_tls(server)
        parameters = {"user": credential.username, "database": database, "application_name": "aileron"}
        parameters["client_encoding"] = "UTF8"
        words = [word for pair in parameters.items() for word in pair]
        server.write(wire.startup(_PROTOCOL_3, wire.text(*words) + b"\0"))
        self._authenticate(server, credential)
        self._until_ready(server)
        if self.order.details.read_only:
            self._check_reads_only(server)

    def greet(self, client: Side, server: Side) -> Filter:
        """Answer the library's start-up, and set the parameters that the library requests at the service. Return the
        filter for the stream.
        """
        parameters = _read_startup(client)
        try:
            self._set(server, _allowed(parameters, previewed=self.order.previewed))
            begun = self._begin_frame(server)
        except LoginError as problem:
            client.write(wire.error_response("28000", str(problem), fatal=True))
            raise
        client.write(
            wire.message(b"R", struct.pack("!i", 0))
            + b"".join(wire.message(b"S", name + b"\0" + value + b"\0") for name, value in self._reported.items())
            + wire.message(b"K", secrets.token_bytes(8))
            + wire.ready(b"I")
        )
        return begun

    def _begin_frame(self, server: Side) -> Filter:
        if self.order.previewed:
            return self._previewed()
        if not self.order.details.read_only and not self.order.reads_only:
            return Unchanged()
        frame = Frame(only_reads=self.order.details.read_only)
        self._query(server, frame.begin, status=b"T")
        return frame

    def _previewed(self) -> Filter:
        if not self.order.reads_only and self.order.seen is None:
            raise LoginError(
                Problem.NOT_ALLOWED,
                "this operation commits only what a person saw before they approved it: look at the preview",
            )
        return Transaction(None if self.order.reads_only else self.order.seen)

    def _authenticate(self, server: Side, credential: sasl.Credential) -> None:
        exchange: sasl.Exchange | None = None
        for _ in range(_MAX_MESSAGES):
            kind, body = wire.read(server)
            if kind == b"N":
                continue
            if kind == b"E":
                raise _refused(body)
            if kind != b"R" or len(body) < 4:
                raise LoginError(
                    Problem.PROTOCOL, "the service sent something else in place of a question for the password"
                )
            (asked,) = struct.unpack_from("!i", body)
            data = body[4:]
            if self.sent_in_clear and asked != 0:
                raise LoginError(Problem.PROTOCOL, "the service asks for the password again")
            if asked in _FORMS:
                self._check_allowed(_FORMS[asked], server, is_first=exchange is None)
                self._show(_FORMS[asked], data, credential, server)
            elif asked == 0 and self.sent_in_clear:
                return
            elif asked == 10 and exchange is None:
                exchange = self._chosen(data, credential, server)
                first = exchange.first() or b""
                self.mechanism = exchange.name
                server.write(wire.message(b"p", wire.text(exchange.name) + struct.pack("!i", len(first)) + first))
            elif asked == 11 and exchange is not None:
                server.write(wire.message(b"p", exchange.answer(data)))
            elif asked == 12 and exchange is not None:
                exchange.answer(data)
            elif asked == 0 and exchange is not None:
                if missing := exchange.too_early():
                    raise LoginError(Problem.PROTOCOL, missing)
                return
            else:
                raise _no_proof(asked)
        raise _too_much()

    def _show(self, form: PasswordForm, salt: bytes, credential: sasl.Credential, server: Side) -> None:
        """Send the password in clear text or as an MD5 hash. The service could use either of them to log in elsewhere
        with this password.
        """
        shown = credential.secret.encode()
        self.sent_in_clear = (shown,)
        if form == "md5":
            digest = _md5_answer(credential, salt)
            shown, self.sent_in_clear = b"md5" + digest, (digest,)
        self.mechanism = form
        server.write(wire.message(b"p", shown + b"\0"))

    def _check_allowed(self, form: PasswordForm, server: Side, *, is_first: bool) -> None:
        """Raise LoginError unless the binding allows the weak password form, TLS is on, and the service did not begin with SCRAM.

        The error offers to allow the form only if that would help: not without TLS, not if the service began with SCRAM, and
        not if a person allowed a weaker form before.
        """
        allowed = self.order.details.weak_password
        if allowed == form and server.is_encrypted and is_first:
            return
        may_allow = form if allowed is None and server.is_encrypted and is_first else None
        raise LoginError(Problem.WEAK_LOGIN, f"the service {_WEAK[form]}: {_SET_SCRAM}", may_allow=may_allow)

    def _chosen(self, offer: bytes, credential: sasl.Credential, server: Side) -> sasl.Exchange:
        offered = {name.decode("ascii", "replace") for name in wire.strings(offer) if name}
        is_plain = self.order.target.encryption == "plain"
        chosen = sasl.choose(credential, offered & _MECHANISMS, server, is_plain=is_plain)
        if chosen is None:
            raise LoginError(
                Problem.WEAK_LOGIN, "the service offers no SCRAM-SHA-256, by which PostgreSQL is logged in at here"
            )
        return chosen

    def _until_ready(self, server: Side) -> None:
        """Read the service's messages until it is ready for queries: parameters, which are stored, and a key for
        cancelling queries, which is dropped.
        """
        for _ in range(_MAX_MESSAGES):
            kind, body = wire.read(server)
            if kind == b"E":
                raise _refused(body)
            if kind == b"Z":
                return
            if kind not in (b"S", b"K", b"N"):
                raise LoginError(Problem.PROTOCOL, "the service sent something else in place of ReadyForQuery")
            self._report(kind, body)
        raise _too_much()

    def _report(self, kind: bytes, body: bytes) -> None:
        if kind == b"S" and len(pair := wire.strings(body)) == 2:
            self._reported[pair[0]] = pair[1]

    def _set(self, server: Side, parameters: dict[str, str]) -> None:
        if not parameters:
            return
        said = [wire.message(b"P", wire.text("", _SET) + struct.pack("!h", 0))]
        for name, value in parameters.items():
            values = b"".join(struct.pack("!i", len(data)) + data for data in (name.encode(), value.encode()))
            bind = wire.text("", "") + struct.pack("!hh", 0, 2) + values + struct.pack("!h", 0)
            said += [wire.message(b"B", bind), wire.message(b"E", wire.text("") + struct.pack("!i", 0))]
        server.write(b"".join(said) + wire.message(b"S"))
        self._answer(server, "the service does not take the start-up parameters of the library", status=b"I")

    def _query(self, server: Side, sql: str, *, status: bytes) -> list[list[bytes | None]]:
        """Send an SQL query to the service and return its rows. `status` is the transaction status that the service
        must report afterwards.

        Raise LoginError if the query fails, or if the transaction does not have the given status afterwards.
        """
        server.write(wire.message(b"Q", wire.text(sql)))
        return self._answer(server, "the service did not carry out what keeps the session from writing", status=status)

    def _answer(self, server: Side, otherwise: str, *, status: bytes) -> list[list[bytes | None]]:
        rows: list[list[bytes | None]] = []
        failed: LoginError | None = None
        for _ in range(_MAX_MESSAGES):
            kind, body = wire.read(server)
            match kind:
                case b"D" if len(rows) < _MAX_ROWS:
                    rows.append(row_of(body))
                case b"E":
                    failed = LoginError(Problem.PROTOCOL, otherwise, wire.parse_error(body).said[:MAX_WORDS])
                case b"Z" if failed is not None:
                    raise failed
                case b"Z" if body != status:
                    raise LoginError(Problem.PROTOCOL, otherwise)
                case b"Z":
                    return rows
                case b"S":
                    self._report(kind, body)
                case b"1" | b"2" | b"C" | b"T" | b"N":
                    continue
                case _:
                    raise LoginError(Problem.PROTOCOL, "the service sent something else in place of an answer")
        raise _too_much()

    def _check_reads_only(self, server: Side) -> None:
        major = self._reported.get(b"server_version", b"").split(b".")[0][:3]
        if not major.isdigit():
            raise LoginError(
                Problem.MAY_WRITE, "whether the role only reads cannot be asked: the service names no version"
            )
        found = self._query(server, rights_query(int(major)), status=b"I")
        if not found:
            return
        (right, fix), more = _texts(found[0]), len(found) - 1
        others = f" ({more} more)" if more else ""
        raise LoginError(
            Problem.MAY_WRITE,
            f"the role is bound as one that only reads, but {right}{others}; as an owner: `{fix}`"[:MAX_WORDS],
        )


def _texts(row: list[bytes | None]) -> tuple[str, str]:
    if len(row) != 2:
        raise LoginError(Problem.PROTOCOL, "the service answered something else than it was asked")
    right, fix = (printable((data or b"").decode("utf-8", "replace")) for data in row)
    return right, fix


def _begin_tls(server: Side) -> None:
    server.write(wire.startup(_SSL_REQUEST))
    match server.exactly(1):
        case b"S":
            server.start_tls()
        case b"N":
            raise LoginError(Problem.NOT_ENCRYPTED, "the service speaks no TLS: set `ssl = on` in its postgresql.conf")
        case _:
            raise LoginError(Problem.NOT_ENCRYPTED, "the service did not answer the request for TLS as PostgreSQL does")


def _no_proof(asked: int) -> LoginError:
    if asked == 0:
        return LoginError(
            Problem.WEAK_LOGIN,
            "the service lets this user in without the password, so it has not shown who it is either; "
            "set scram-sha-256 for them in its pg_hba.conf",
        )
    if asked in (10, 11, 12):
        return LoginError(Problem.PROTOCOL, "the service's steps of SASL are out of order")
    how = "asks for a login that is not used here (Kerberos, or newer than this)"
    return LoginError(Problem.WEAK_LOGIN, f"the service {how}: {_SET_SCRAM}")


def _md5_answer(credential: sasl.Credential, salt: bytes) -> bytes:
    """Return the MD5 response in hexadecimal, as the protocol defines it: MD5 of the hash that PostgreSQL stores, followed by
    the salt.
    """
    if len(salt) != _SALT_BYTES:
        raise LoginError(Problem.PROTOCOL, f"the service sent no salt of {_SALT_BYTES} bytes for an MD5 hash")
    kept = hashlib.md5(credential.secret.encode() + credential.username.encode(), usedforsecurity=False).hexdigest()
    return hashlib.md5(kept.encode() + salt, usedforsecurity=False).hexdigest().encode()


def _refused(body: bytes) -> LoginError:
    sqlstate, said = wire.parse_error(body)
    said = said[:MAX_WORDS]
    if sqlstate.startswith("28"):
        return LoginError(Problem.REFUSED_CREDENTIAL, "the service does not accept the user name and password", said)
    match sqlstate:
        case "3D000" | "42501":
            return LoginError(
                Problem.NO_DATABASE,
                "the service has no such database for this user",
                said,
            )
        case "53300":
            return LoginError(Problem.CLOSED, "the service has too many connections", said)
        case "57P03":
            return LoginError(Problem.CLOSED, "the service is starting up or shutting down", said)
        case _:
            return LoginError(Problem.PROTOCOL, "the service ended the login", said)


def _too_much() -> LoginError:
    return LoginError(
        Problem.PROTOCOL, f"the service sent more than {_MAX_MESSAGES} messages before the login was over"
    )


def _read_startup(client: Side) -> dict[str, str]:
    """Read the parameters of a library's start-up. Raises LoginError if the start-up is invalid."""
    for _ in range(3):
        length, code = struct.unpack("!ii", client.exactly(8))
        if not 8 <= length <= _MAX_STARTUP:
            raise LoginError(Problem.PROTOCOL, "the connector does not begin as PostgreSQL's protocol does")
        body = client.exactly(length - 8)
        if code in (_SSL_REQUEST, _GSSENC_REQUEST) and not body:
            client.write(b"N")  # only the connection to the service is encrypted
        elif code == _CANCEL_REQUEST:
            raise LoginError(Problem.CLOSED, "a request to cancel is not passed on: set statement_timeout")
        elif code == _PROTOCOL_3:
            return _parameters(body)
        else:
            break
    words = "only version 3.0 of PostgreSQL's protocol is spoken here"
    client.write(wire.error_response("0A000", words, fatal=True))
    raise LoginError(Problem.PROTOCOL, words)


def _parameters(body: bytes) -> dict[str, str]:
    words = wire.strings(body)
    if words[-1:] != [b""] or len(words) % 2 != 1 or not all(words[:-1:2]):
        raise LoginError(Problem.PROTOCOL, "the connector's start-up parameters are not names with a value each")
    try:
        texts = [word.decode("utf-8") for word in words[:-1]]
    except UnicodeDecodeError:
        texts = []
    if len(texts) != len(words) - 1:
        raise LoginError(Problem.PROTOCOL, "the connector's start-up parameters are not UTF-8")
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _allowed(parameters: dict[str, str], *, previewed: bool) -> dict[str, str]:
    """Return the start-up parameters by the service's own names. `previewed` is true if a person is shown the effects
    before they are committed. Raises LoginError(not_allowed) for a parameter that a library cannot set.
    """
    asked = {name.lower(): value for name, value in parameters.items() if name not in _OURS}
    for name in asked:
        if name not in _PARAMETERS:
            allowed = ", ".join(_PARAMETERS.values())
            raise LoginError(
                Problem.NOT_ALLOWED, f"the start-up parameter {name[:60]!a} cannot be set here; these can: {allowed}"
            )
    named = {_PARAMETERS[name]: value for name, value in asked.items()}
    if previewed and (other := other_than_fixed(named)) is not None:
        raise LoginError(
            Problem.NOT_ALLOWED,
            f"the start-up parameter {other!a} is not the library's choice in an operation whose effects are shown: leave it out",
        )
    return named
