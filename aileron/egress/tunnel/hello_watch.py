"""Whether the name stays the same until the server has answered: a client can send a second ClientHello, asked for or not.

Pure. Runs in the daemon, between the two ends of a tunnel, for the first few kilobytes of it. Behind the first ClientHello a
client has no more to say in clear than another: where the server answers with HelloRetryRequest, or where a client hopes that
it will.

Rules
- Until the server's ServerHello has passed, every record of handshake from the client is of a ClientHello with the name of
  the first. Other records (early data, a change of cipher spec, an alert) are not looked into.
- With a ServerHello that is no HelloRetryRequest it is over: what follows is the two ends' own. After one that is, the
  client's next ClientHello is the last.
- A server that answers with something else than TLS, or says nothing of it within ANSWER_BYTES, is not asked any further:
  whoever has it under their control hears whatever the client says anyway.

Source: RFC 8446 sections 4.1.3, 4.1.4, 4.2.10 and 5. Not here: the first ClientHello (client_hello.py).
"""

from __future__ import annotations

from typing import Final

from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.tunnel.client_hello import HANDSHAKE, HelloReader

__all__ = ["ANSWER_BYTES", "HelloWatch", "check_name"]

ANSWER_BYTES: Final = 16 << 10  # 16 KiB: a ServerHello has some hundred bytes, and stands in front
_HEAD: Final = 5
_ALERT: Final = 21
_SERVER_HELLO: Final = 2
_ANSWER: Final = 38
"""Bytes of a ServerHello up to the end of its random: type, length, version, random."""
_RETRY: Final = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random that says HelloRetryRequest: SHA-256 of that word (RFC 8446 section 4.1.3)."""


def check_name(found: str, wanted: str) -> None:
    """RefusedError(tunnel_other_name) unless the ClientHello names what CONNECT asked for. Both are in lower case."""
    if found != wanted:
        raise RefusedError(
            Reason.TUNNEL_OTHER_NAME,
            f"CONNECT asked for {wanted}, and the ClientHello names another host: they have to be the same",
        )


class HelloWatch:
    """Of one tunnel: what both ends say behind the first ClientHello, until it `is_over`."""

    def __init__(self, name: str) -> None:
        """`name` is the first one's, and has been checked."""
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
        """RefusedError for another name, or another message of the handshake before its time: then do not send `data`."""
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
        """What it says is let through, whatever it is."""
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
        """The messages in `_answered`, into `_answer`; anything that is none ends the watch."""
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
