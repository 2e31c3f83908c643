r"""A reader of a `CONNECT host:port` head of HTTP/1.1, as clients of a proxy write it. It takes bytes and returns a
destination.

Pure. Runs in the daemon on bytes that an agent in a cell wrote, and so refuses text that two readers could understand
differently.

Rules
- The method is CONNECT. Any other method is refused: plain HTTP cannot leave a cell.
- Lines end in CRLF. No control characters, no folded fields, at most HEAD_BYTES and MAX_FIELDS. The values of
  fields are ignored: none can change the destination of the tunnel, and there is no proxy password.
- HTTP/1.0 is accepted too: Python's http.client, and so pip, uses it before 3.12.
- A byte that cannot occur in a head is refused at once, so that nobody waits for a client that speaks TLS or SOCKS to
  the proxy.

Source: RFC 9112 sections 2 to 5, RFC 9110 section 9.3.6. Not here: parsing the host and the port (url.py).

>>> reader = HeadReader()
>>> reader.feed(b"CONNECT example.com:443 HTTP/1.1\r\n"), reader.feed(b"Host: example.com:443\r\n\r\n\x16\x03")
(None, HostPort(host='example.com', port=443))
>>> reader.rest
b'\x16\x03'
"""

from __future__ import annotations

import re
from typing import Final

from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.url import parse_connect_target
from aileron.model.names import HostPort

__all__ = ["HEAD_BYTES", "MAX_FIELDS", "HeadReader"]

HEAD_BYTES: Final = 8 << 10  # 8 KiB: what servers accept of a head by default (nginx, Apache); curl's has 120 bytes
MAX_FIELDS: Final = 100  # as Apache; curl sends three
_END: Final = b"\r\n\r\n"
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_LINE: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.[01]")
_FIELD: Final = re.compile(_TOKEN + rb":[\t\x20-\x7e\x80-\xff]*")
_NO_HEAD: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?!\n|\Z)")
"""Pattern of bytes that cannot occur in a head: a control character, a line feed without a carriage return, or a carriage
return that cannot be followed by a line feed.
"""


class HeadReader:
    """A reader of the head of one CONNECT request, which takes bytes as they arrive."""

    def __init__(self) -> None:
        self._read = bytearray()
        self.rest = b""
        """Bytes that were fed and that came after the head of the CONNECT request."""

    def feed(self, data: bytes) -> HostPort | None:
        """Take more bytes, and return the destination, or None while the head is incomplete. Raises RefusedError
        (tunnel_head, tunnel_method, tunnel_address or url_*).
        """
        seen = max(0, len(self._read) - len(_END) + 1)  # an end can have begun in earlier bytes
        self._read += data
        end = self._read.find(_END, seen)
        head = self._read if end < 0 else self._read[:end]
        if len(head) > HEAD_BYTES:
            raise _bad(f"it has more than {HEAD_BYTES} bytes")
        if _NO_HEAD.search(head, max(0, seen - 1)):
            raise _bad("it has a character or an end of line that HTTP does not have")
        if end < 0:
            return None
        self.rest = bytes(self._read[end + len(_END) :])
        return _destination(bytes(head))


def _destination(head: bytes) -> HostPort:
    first, *fields = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise _bad("its first line is not METHOD TARGET HTTP/1.1")
    if line[1] != b"CONNECT":
        raise RefusedError(
            Reason.TUNNEL_METHOD,
            "only CONNECT leaves a cell, and nothing without TLS: use an https:// address, or a service that has one",
        )
    if len(fields) > MAX_FIELDS or not all(map(_FIELD.fullmatch, fields)):
        raise _bad(f"a line is not NAME: VALUE, or there are more than {MAX_FIELDS}")
    return parse_connect_target(line[2].decode("ascii"))


def _bad(problem: str) -> RefusedError:
    return RefusedError(
        Reason.TUNNEL_HEAD, f"this is an HTTP proxy, and what was sent is not the head of a CONNECT request: {problem}"
    )
