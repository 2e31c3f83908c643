"""A check that the client names the same TLS server until the server has responded. A client can send a second
ClientHello, even unasked, and name another server in it.

Pure. Runs in the daemon, between the two ends of a tunnel, for the first few kilobytes of it. After the first
ClientHello, a client can state a host name in clear only in another ClientHello. It sends one in response to a
HelloRetryRequest, or in the hope that the server will send a HelloRetryRequest.

Rules
- Until the server's ServerHello has passed, every handshake record from the client must belong to a ClientHello with
  the name of the first ClientHello. Other records (early data, a change of cipher spec, an alert) are not examined.
- A ServerHello that is not a HelloRetryRequest ends the watch, because the rest concerns only the two ends. After a
  HelloRetryRequest, the client's next ClientHello is the last.
- A server that responds with anything other than TLS, or sends no ServerHello within ANSWER_BYTES, ends the watch:
  whoever controls that server receives everything that the client sends anyway.

Source: RFC 8446 sections 4.1.3, 4.1.4, 4.2.10 and 5. Not here: the first ClientHello (client_hello.py).
"""

from __future__ import annotations

from typing import Final

from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.tunnel.client_hello import HANDSHAKE, HelloReader

__all__ = ["ANSWER_BYTES", "HelloWatch", "check_name"]

ANSWER_BYTES: Final = 16 << 10  # 16 KiB: a ServerHello has some hundred bytes, and comes first
_HEAD: Final = 5
_ALERT: Final = 21
_SERVER_HELLO: Final = 2
_ANSWER: Final = 38
"""Number of bytes of a ServerHello up to the end of its random value: type, length, version, random."""
_RETRY: Final = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random value that marks a HelloRetryRequest: SHA-256 of the text "HelloRetryRequest" (RFC 8446 section 4.1.3)."""


def check_name(found: str, wanted: str) -> None:
    """Raise RefusedError(tunnel_other_name) unless the ClientHello's name (`found`) is the host of CONNECT (`wanted`).
    Both are in lower case.
    """
    if found != wanted:
        raise RefusedError(
            Reason.TUNNEL_OTHER_NAME,
            f"CONNECT asked for {wanted}, and the ClientHello names another host: they have to be the same",
        )


class HelloWatch:
    """A check of one tunnel: from the end of the first ClientHello until `is_over`, the client must name no other host."""

    def __init__(self, name: str) -> None:
        """Take `name`, the checked name in the first ClientHello."""
        self._name = name
        self.is_over = False
        self._is_retried = False
        self._hello: HelloReader | None = None
        self._head = b""
        self._left = 0
        self._kind = 0
        self._answer = b""
        self._answered = b""

    def from_client(self, data: bytes) -> None:
        """Check bytes of the client. Raises RefusedError for another name, or for a handshake message that comes too
        early; `data` must then not be sent.
        """
        while data and not self.is_over:
            if not self._left:
                data = self._begin_record(data)
                continue
            piece, data = data[: self._left], data[self._left :]
            self._left -= len(piece)
            if self._kind == HANDSHAKE:
                self._see(piece)

    def _begin_record(self, data: bytes) -> bytes:
        missing = _HEAD - len(self._head)
        self._head += data[:missing]
        if len(self._head) == _HEAD:
            head, self._head = self._head, b""
            self._kind, self._left = head[0], int.from_bytes(head[3:], "big")
            if self._kind == HANDSHAKE:
                self._see(head)
        return data[missing:]

    def _see(self, data: bytes) -> None:
        self._hello = HelloReader() if self._hello is None else self._hello
        found = self._hello.feed(data)
        if found is not None:
            check_name(found.name, self._name)
            self._hello = None
            self.is_over = self._is_retried

    def from_host(self, data: bytes) -> None:
        """Examine bytes of the server for its response to the ClientHello. They are never refused."""
        if self.is_over or self._is_retried:
            return
        self._answered += data
        self._take_records()
        if len(self._answer) >= _ANSWER:
            self._is_retried = self._answer[0] == _SERVER_HELLO and self._answer[6:_ANSWER] == _RETRY
            self.is_over = not self._is_retried
        elif len(self._answered) > ANSWER_BYTES:
            self.is_over = True

    def _take_records(self) -> None:
        """Collect the handshake messages in `_answered`, the server's bytes, into `_answer`. A record that is neither a
        handshake message nor an alert ends the watch.
        """
        at, found = 0, b""
        while len(self._answered) - at >= _HEAD:
            kind, end = self._answered[at], at + _HEAD + int.from_bytes(self._answered[at + 3 : at + _HEAD], "big")
            if kind not in (HANDSHAKE, _ALERT):
                self.is_over = True
                break
            if kind == HANDSHAKE:
                found += self._answered[at + _HEAD : end]
            at = end
        self._answer = found
