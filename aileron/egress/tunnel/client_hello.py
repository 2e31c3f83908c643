r"""A reader of the ClientHello with which TLS begins. It extracts the server's name, and extensions that can hide
another name.

Pure, and incremental: records and packets may cut the message anywhere. Runs in the daemon on bytes that an agent in a
cell wrote, and that a server will read as well. So bytes that two readers could understand differently are refused, and
nothing is repaired.

Rules
- All records are handshake records, none empty. They hold exactly one handshake message, a ClientHello of at most
  HELLO_BYTES, which ends where a record ends.
- Every length is exact. No extension comes twice.
- The ClientHello has exactly one name, of the only type that exists, in ASCII. A message with no name or with several
  is refused.
- ALPN and ECH are reported, not judged. It is impossible to tell here whether encrypted_client_hello hides a name, or
  nothing (GREASE).

Source: RFC 8446 sections 4.1.2, 4.2 and 5.1; RFC 6066 section 3; RFC 7301; draft-ietf-tls-esni (encrypted_client_hello, and
the older encrypted_server_name).

>>> HelloReader().feed(b"GET / HTTP/1.1\r\n\r\n")
Traceback (most recent call last):
aileron.egress.refusal.RefusedError: what came first is not the ClientHello of TLS: it is no record of a handshake
"""

from __future__ import annotations

from typing import Final

import msgspec

from aileron.egress.refusal import Reason, RefusedError

__all__ = ["HANDSHAKE", "HELLO_BYTES", "ClientHello", "HelloReader"]

HELLO_BYTES: Final = (
    64 << 10
)  # 64 KiB: with post-quantum keys a client's has 1.8 KiB, and extensions end at 64 KiB by themselves
HANDSHAKE: Final = 22  # ContentType, RFC 8446 section 5.1
_RECORD_HEAD: Final = 5
_MESSAGE_HEAD: Final = 4
_MAX_RECORD: Final = 1 << 14  # RFC 8446 section 5.1
_CLIENT_HELLO: Final = 1
_RANDOM: Final = 32
_SERVER_NAME, _ALPN, _ECH, _ESNI = 0, 16, 0xFE0D, 0xFFCE
_HOST_NAME: Final = 0


class ClientHello(msgspec.Struct, frozen=True):
    """The contents of a ClientHello. `name` is the server name that is readable, in lower case. `may_hide` is True if
    an extension can hold another, encrypted name.
    """

    name: str
    may_hide: bool
    protocols: tuple[str, ...]


class HelloReader:
    """A reader of one ClientHello, which takes bytes as they arrive. Do not feed it again after it has returned
    the ClientHello or raised RefusedError.
    """

    def __init__(self) -> None:
        self._read = bytearray()
        self._taken = 0
        self._message = bytearray()

    def feed(self, data: bytes) -> ClientHello | None:
        """Take more bytes, and return the ClientHello, or None while it is incomplete. Bytes after the last record of
        the ClientHello are ignored, and not counted in `consumed`.

        Raises RefusedError: tunnel_no_tls if the bytes are not a ClientHello, tunnel_no_name if it has no server name,
        tunnel_other_name if it has several names or one that is not a host name.
        """
        self._read += data
        while (payload := self._next_record()) is not None:
            self._message += payload
            if (size := self._size()) is not None and len(self._message) >= size:
                if len(self._message) > size:
                    raise _no_tls("something else follows it in its record")
                return _parse(_Bytes(bytes(self._message[_MESSAGE_HEAD:])))
        return None

    @property
    def consumed(self) -> int:
        """Number of bytes taken so far that belong to the records of the ClientHello."""
        return self._taken

    def _next_record(self) -> bytes | None:
        head = bytes(self._read[self._taken : self._taken + _RECORD_HEAD])
        _check_record_head(head)
        if len(head) < _RECORD_HEAD:
            return None
        begin = self._taken + _RECORD_HEAD
        end = begin + int.from_bytes(head[3:], "big")
        if end > HELLO_BYTES:
            raise _no_tls(f"it has more than {HELLO_BYTES} bytes")
        if len(self._read) < end:
            return None
        self._taken = end
        return bytes(self._read[begin:end])

    def _size(self) -> int | None:
        """Return the size of the complete ClientHello with its header; None if the size is not known yet."""
        if self._message[:1] != bytes((_CLIENT_HELLO,)):
            raise _no_tls("it is another message of the handshake")
        if len(self._message) < _MESSAGE_HEAD:
            return None
        size = _MESSAGE_HEAD + int.from_bytes(self._message[1:_MESSAGE_HEAD], "big")
        if size > HELLO_BYTES:
            raise _no_tls(f"it has more than {HELLO_BYTES} bytes")
        return size


def _check_record_head(head: bytes) -> None:
    """Raise RefusedError as soon as a byte of a record's header is wrong, because a client of another protocol may be
    waiting for an answer.
    """
    if not bytes((HANDSHAKE, 3)).startswith(head[:2]):
        raise _no_tls("it is no record of a handshake")
    if len(head) == _RECORD_HEAD and not 0 < int.from_bytes(head[3:], "big") <= _MAX_RECORD:
        raise _no_tls("a record is empty or too long")


class _Bytes:
    """A byte string that is consumed from the front. `check_end` checks that all bytes were consumed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Remove the next `size` bytes from the front and return them."""
        end = self._at + size
        if end > len(self._data):
            raise _no_tls("a length in it is wrong")
        taken, self._at = self._data[self._at : end], end
        return taken

    def number(self, size: int) -> int:
        """Take the next `size` bytes and return them as a number."""
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int, least: int = 0) -> _Bytes:
        """Take a length field of `size` bytes, and return as many further bytes as the field states. Raise RefusedError
        if the field states fewer than `least`.
        """
        length = self.number(size)
        if length < least:
            raise _no_tls("a length in it is wrong")
        return _Bytes(self.take(length))

    @property
    def has_more(self) -> bool:
        """True while bytes are left."""
        return self._at < len(self._data)

    def check_end(self) -> None:
        """Raise RefusedError if bytes are left."""
        if self.has_more:
            raise _no_tls("a length in it is wrong")

    def rest(self) -> bytes:
        """Remove all bytes that are left and return them."""
        return self.take(len(self._data) - self._at)


def _parse(body: _Bytes) -> ClientHello:
    if body.take(2)[:1] != b"\x03":
        raise _no_tls("it is of another protocol")
    body.take(_RANDOM)
    if len(body.vector(1).rest()) > 32:  # legacy_session_id
        raise _no_tls("a length in it is wrong")
    if len(body.vector(2, least=2).rest()) % 2:  # cipher_suites
        raise _no_tls("a length in it is wrong")
    body.vector(1, least=1)  # legacy_compression_methods
    extensions = _extensions(body.vector(2)) if body.has_more else {}
    body.check_end()
    if _SERVER_NAME not in extensions:
        raise RefusedError(
            Reason.TUNNEL_NO_NAME, "the ClientHello has no server name, and so says of no host that it is the one"
        )
    return ClientHello(
        name=_server_name(_Bytes(extensions[_SERVER_NAME])),
        may_hide=not extensions.keys().isdisjoint((_ECH, _ESNI)),
        protocols=_protocols(_Bytes(extensions[_ALPN])) if _ALPN in extensions else (),
    )


def _extensions(listed: _Bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while listed.has_more:
        kind, data = listed.number(2), listed.vector(2).rest()
        if kind in found:
            raise _no_tls("an extension is in it twice")
        found[kind] = data
    return found


def _server_name(extension: _Bytes) -> str:
    names = extension.vector(2, least=1)
    extension.check_end()
    kind, name = names.number(1), names.vector(2, least=1).rest()
    if kind != _HOST_NAME or names.has_more:
        raise RefusedError(
            Reason.TUNNEL_OTHER_NAME, "the ClientHello has several server names, or one of no known type"
        )
    try:
        return name.decode("ascii").lower()
    except UnicodeDecodeError:
        raise RefusedError(Reason.TUNNEL_OTHER_NAME, "the ClientHello has a server name that is no host name") from None


def _protocols(extension: _Bytes) -> tuple[str, ...]:
    listed, found = extension.vector(2, least=2), []
    extension.check_end()
    while listed.has_more:
        found.append(listed.vector(1, least=1).rest().decode("latin-1"))
    return tuple(found)


def _no_tls(problem: str) -> RefusedError:
    return RefusedError(Reason.TUNNEL_NO_TLS, f"what came first is not the ClientHello of TLS: {problem}")
