"""Find the id of a request in a line that is no message, so that it can be refused under it.

    id_in(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":')      # 7

A client that is answered with `id: null` goes on waiting for the id that it gave. So the id is looked for also in what is broken,
too long, or JSON that UTF-8 cannot carry. Runs in the relay, which imports it only for such a line, and in the daemon. The
standard library alone; no line is trusted, and of one that has no end only its top level is kept.

Rules
- Only a member of the object itself is its id, never one further inside. The last one counts, as for every parser here.
- A line that has a `result` or an `error` is an answer, and nobody waits for an answer to it.

Source: JSON-RPC 2.0, section 5: the id is null only "if there was an error in detecting the id". Not here: what is wrong with
a value (aileron/model/misfit.py).
"""

from __future__ import annotations

import json
import re
from typing import Final

__all__ = ["IdScanner", "id_in"]

_MAX_KEPT: Final = 16 << 10
"""Bytes of the top level: an id and five members, of which the longest is a method."""
_MAX_TEXT: Final = 1 << 10
"""Bytes kept of a text in it; no id is longer (relay_requests.py)."""
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_IN_TEXT: Final = re.compile(rb'["\\]')
_STRUCTURE: Final = re.compile(rb'["{}\[\]]')
_MEMBER: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:\s*("(?:[^"\\]|\\.)*"|[^\s,{}\[\]]*)', re.DOTALL)


class IdScanner:
    """The top level of one line, of which any number of bytes come in any pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_text = False
        self._is_escaped = False
        self._text_bytes = 0
        self._kept = bytearray()

    def feed(self, piece: bytes) -> None:
        """Take what comes next of the line."""
        at = 0
        while at < len(piece):
            at = self._text(piece, at) if self._is_text else self._structure(piece, at)

    def found(self) -> int | str | None:
        """The id of the request that the line began or was; None where there is none."""
        members = dict(_MEMBER.findall(self._kept))
        if self._kept.lstrip()[:1] != b"{" or b"result" in members or b"error" in members:
            return None
        try:
            value = json.loads(members.get(b"id", b"null"))
        except ValueError:  # also a number of too many digits, and half of a text
            return None
        return value if type(value) in (int, str) else None

    def _text(self, piece: bytes, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            self._keep_text(piece[at : at + 1])
            return at + 1
        match = _IN_TEXT.search(piece, at)
        end = len(piece) if match is None else match.start()
        self._keep_text(piece[at:end])
        if match is None:
            return end
        if piece[end] == _BACKSLASH:
            self._is_escaped = True
            self._keep_text(b"\\")
        else:
            self._is_text = False
            self._keep(b'"')
        return end + 1

    def _structure(self, piece: bytes, at: int) -> int:
        match = _STRUCTURE.search(piece, at)
        end = len(piece) if match is None else match.start()
        self._keep(piece[at:end])
        if match is None:
            return end
        sign = piece[end]
        if sign == _QUOTE:
            self._is_text, self._text_bytes = True, 0
            self._keep(b'"')
        elif sign in b"{[":
            self._keep(bytes([sign]))
            self._depth += 1
        else:
            self._depth -= 1
        return end + 1

    def _keep(self, data: bytes) -> None:
        if self._depth <= 1 and len(self._kept) < _MAX_KEPT:
            self._kept += data[: _MAX_KEPT - len(self._kept)]

    def _keep_text(self, data: bytes) -> None:
        room = _MAX_TEXT - self._text_bytes
        self._text_bytes += len(data)
        self._keep(data[: max(room, 0)])


def id_in(line: bytes) -> int | str | None:
    """The id of the request that `line` is, or would be if it were whole."""
    scanner = IdScanner()
    scanner.feed(line)
    return scanner.found()
