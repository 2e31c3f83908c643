"""Client for PostgreSQL's protocol after the supervisor's login: one statement at a time, values and rows as text.

    session = Session.open(host, port, timeout_s=20)
    result = session.run("SELECT name FROM ship WHERE masts > $1", [3], max_rows=100)

Runs inside the jail. A session starts with a placeholder as user name, which the supervisor drops. The server is not trusted:
lengths are checked before any data is stored.

Source: PostgreSQL's manual, "Message Flow" (extended query) and "Message Formats". Not here: rows as JSON (answers.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from aileron_connector import BadInput, NetworkError, tcp

MAX_BYTES: Final = 768 << 10
"""Maximum number of bytes of an answer's rows and column names. With quotes they stay below a result's limit of 1 MiB."""
_MAX_MESSAGE: Final = 16 << 20
_PORTAL_AND_ALL: Final = b"\0" + bytes(4)


class Column(NamedTuple):
    """A column of a result: its name, and PostgreSQL's number for its type (OID)."""

    name: str
    type_number: int


class Result(NamedTuple):
    """Result of one statement. `is_cut` is true if there were more rows than requested, or than fit into a result."""

    columns: list[Column]
    rows: list[list[str | None]]
    tag: str
    is_cut: bool


class DatabaseError(Exception):
    """Error: the server refused a statement. `sqlstate` is its code of five characters; `message` and `hint` are the
    server's words.
    """

    def __init__(self, sqlstate: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.sqlstate: Final = sqlstate
        self.message: Final = message
        self.hint: Final = hint


class Session:
    """A session at a PostgreSQL server, for one statement at a time."""

    def __init__(self, stream: tcp.Stream) -> None:
        self._stream: Final = stream
        self._waiting = bytearray()

    @classmethod
    def open(cls, host: str, port: int, *, timeout_s: int) -> Session:
        """Open a session in which the server ends a statement after `timeout_s` seconds. Raises DatabaseError if the
        server refuses the session, and ConnectionError if the host does, with the host's reason as the cause.
        """
        session = cls(tcp.connect(host, port))
        parameters = {
            "user": "placeholder",
            "application_name": "aileron",
            "client_encoding": "UTF8",
            "DateStyle": "ISO",
            "statement_timeout": f"{timeout_s}s",
        }
        body = (
            struct.pack("!i", 3 << 16) + b"".join(_text(word) for pair in parameters.items() for word in pair) + b"\0"
        )
        session._send(struct.pack("!i", len(body) + 4) + body)
        for _ in session._until_ready():
            pass
        return session

    def run(self, sql: str, values: Sequence[str | None] = (), *, max_rows: int = 0) -> Result:
        """Run one statement with parameters `$1` and so on. `max_rows` is the maximum number of rows that are read; 0 reads
        all rows.
        """
        bound = b"".join(_value(value) for value in values)
        self._send(
            _message(b"P", b"\0" + _text(sql) + struct.pack("!h", 0))
            + _message(b"B", b"\0\0" + struct.pack("!hh", 0, len(values)) + bound + struct.pack("!h", 0))
            + _message(b"D", b"P\0")
            + _message(b"E", b"\0" + struct.pack("!i", max_rows + 1 if max_rows else 0))
            + _message(b"S")
        )
        return self._result(max_rows)

    def control(self, word: str) -> str:
        """Run BEGIN, COMMIT or ROLLBACK, and return the server's command tag, which names the command that it executed."""
        self._send(_message(b"Q", _text(word)))
        return self._result(0).tag

    def _result(self, max_rows: int) -> Result:
        """Read the result of a statement, with as many rows as fit into MAX_BYTES. Raises BadInput if not even the
        first row fits.
        """
        columns: list[Column] = []
        rows: list[list[str | None]] = []
        tag, is_cut, size, names = "", False, 0, 0
        for kind, body in self._until_ready():
            if kind == b"T":
                columns = _columns(body)
                names = sum(len(column.name) for column in columns)
            elif kind == b"D":
                size += len(body) + names
                is_cut |= size > MAX_BYTES or bool(max_rows and len(rows) == max_rows)
                if not is_cut:
                    rows.append(_row(body))
            elif kind == b"C":
                tag = body.rstrip(b"\0").decode()
        if is_cut and not rows:
            raise _too_large("the first row", size)
        return Result(columns, rows, tag, is_cut)

    def _until_ready(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the messages of the server's answer to one request. Raises DatabaseError after the last message if the
        server refused the request.
        """
        failed: DatabaseError | None = None
        while (message := self._read())[0] != b"Z":
            if message[0] == b"E":
                failed = _error(message[1])
                if message[1].startswith(b"SFATAL"):
                    break
            yield message
        if failed is not None:
            raise failed

    def _send(self, data: bytes) -> None:
        self._stream.sendall(data)

    def _read(self) -> tuple[bytes, bytes]:
        kind, length = struct.unpack("!ci", self._exactly(5))
        if kind == b"D" and length > _MAX_MESSAGE:
            raise _too_large("a row", length)
        if not 4 <= length <= _MAX_MESSAGE:
            raise NetworkError("the server sent what is no message of PostgreSQL's protocol, or one that is too long")
        return kind, self._exactly(length - 4)

    def _exactly(self, size: int) -> bytes:
        while len(self._waiting) < size:
            piece = self._stream.recv(64 << 10)
            if not piece:
                raise NetworkError("the server closed the connection")
            self._waiting += piece
        found = bytes(self._waiting[:size])
        del self._waiting[:size]
        return found

    def close(self) -> None:
        """Tell the server that the session ends, and close the connection."""
        try:
            self._stream.sendall(_message(b"X"))
        except ConnectionError:
            pass
        finally:
            self._stream.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _too_large(what: str, size: int) -> BadInput:
    return BadInput(
        f"{what} has {-(-size // 1024)} KiB, and an answer at most {MAX_BYTES >> 10}: "
        "select fewer columns, or a part of one, such as left(body, 10000)",
        argument="sql",
    )


def _message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _text(word: str) -> bytes:
    if "\0" in word:
        raise BadInput("a statement cannot have a NUL character")
    return word.encode() + b"\0"


def _value(value: str | None) -> bytes:
    if value is None:
        return struct.pack("!i", -1)
    data = value.encode()
    return struct.pack("!i", len(data)) + data


def _columns(body: bytes) -> list[Column]:
    (count,) = struct.unpack_from("!h", body)
    found = []
    at = 2
    for _ in range(count):
        end = body.index(b"\0", at)
        found.append(Column(body[at:end].decode("utf-8", "replace"), struct.unpack_from("!I", body, end + 7)[0]))
        at = end + 19
    return found


def _row(body: bytes) -> list[str | None]:
    (count,) = struct.unpack_from("!h", body)
    found: list[str | None] = []
    at = 2
    for _ in range(count):
        (size,) = struct.unpack_from("!i", body, at)
        at += 4
        found.append(None if size < 0 else body[at : at + size].decode("utf-8", "replace"))
        at += max(size, 0)
    return found


def _error(body: bytes) -> DatabaseError:
    parts = {part[:1]: part[1:].decode("utf-8", "replace") for part in body.split(b"\0") if part}
    return DatabaseError(parts.get(b"C", ""), parts.get(b"M", "no reason was given"), parts.get(b"H", ""))
