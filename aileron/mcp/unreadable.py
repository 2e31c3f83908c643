"""Finding the id of a request in a line that is no valid message, so that the error answer has that id.

    id_in(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":')      # 7

A client that gets an error with `id: null` keeps waiting for an answer with its own id. So the id is searched for even
in a line that is malformed, too long, or JSON that is not valid UTF-8. Runs in the relay, which imports it only for such a
line, and in the MCP process. It uses only the standard library. Lines are not trusted; only the top level of a line is
stored, whatever its length.

Rules
- Only a member of the outermost object is the id, never a nested member. If there are several, the last counts, as in every
  parser here.
- The contents of nested values are not stored, and the search ends when _MAX_KEPT bytes are stored.
- A line that has a `result` or an `error` is itself an answer and needs none, so its id is not returned.

Source: JSON-RPC 2.0, section 5: the id is null only "if there was an error in detecting the id". Not here: finding the fault
in a value (aileron/model/misfit.py).
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Final

__all__ = ["IdScanner", "id_in"]

_MAX_KEPT: Final = 16 << 10
"""Maximum number of bytes that are stored of a message's top level; enough for an id and five members, the longest of
which is a method.
"""
_MAX_TEXT: Final = 1 << 10
"""Maximum number of bytes of a string that are stored. No id is longer (relay_requests.py)."""
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_OF_TEXT: Final = re.compile(rb'(?:[^"\\]+|\\.){1,4096}', re.DOTALL)
"""Pattern for a long piece of a string that ends after a complete escape. Without it, one Python step for each escape
took 20 s for 17 MiB.
"""
_STRUCTURE: Final = re.compile(rb'["{}\[\]]')
_STEPS: Final = tuple({b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(bytes([byte]), 0) for byte in range(256))
_INSIDE_BYTES: Final = 256
"""Number of bytes of a nested value that are scanned at once. It is small, because bytes after the value's end are
scanned twice.
"""
_MEMBER: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:\s*("(?:[^"\\]|\\.)*"|[^\s,{}\[\]]*)', re.DOTALL)


class IdScanner:
    """A scanner that finds the id at the top level of one line of JSON. The line may have any length and arrive in
    pieces of any size.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._is_text = False
        self._is_escaped = False
        self._text_bytes = 0
        self._kept = bytearray()

    def feed(self, piece: bytes) -> None:
        """Process the next piece of the line."""
        at = 0
        while at < len(piece) and len(self._kept) < _MAX_KEPT:
            if self._is_text:
                at = self._text(piece, at)
            elif self._depth > 1 and piece[at] != _QUOTE:
                at = self._inside(piece, at)
            else:
                at = self._structure(piece, at)

    def found(self) -> int | str | None:
        """Return the id found so far, or None if the line has none, or is no request."""
        members = dict(_MEMBER.findall(self._kept))
        if self._kept.lstrip()[:1] != b"{" or b"result" in members or b"error" in members:
            return None
        try:
            value = json.loads(members.get(b"id", b"null"))
        except ValueError:  # also a number of too many digits, and an unfinished string
            return None
        return value if type(value) in (int, str) else None

    def _text(self, piece: bytes, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            self._keep_text(piece[at : at + 1])
            return at + 1
        match = _OF_TEXT.match(piece, at)
        if match is not None:
            self._keep_text(match[0])
            return match.end()
        if piece[at] == _BACKSLASH:  # the last byte of the piece
            self._is_escaped = True
            self._keep_text(b"\\")
        else:
            self._is_text = False
            self._keep(b'"')
        return at + 1

    def _inside(self, piece: bytes, at: int) -> int:
        """Skip the contents of a nested JSON value, up to its end or to a string. Return the next position in `piece`."""
        quote = piece.find(b'"', at, at + _INSIDE_BYTES)
        part = piece[at : at + _INSIDE_BYTES if quote < 0 else quote]
        depths = list(accumulate(map(_STEPS.__getitem__, part), initial=self._depth))[1:]
        if 1 in depths:
            self._depth = 1
            return at + depths.index(1) + 1
        self._depth = depths[-1]
        return at + len(part)

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
        self._keep(
            data if len(data) < room else b""
        )  # completely or not at all: half of an escape would hide the end of the string


def id_in(line: bytes) -> int | str | None:
    """Return the id in a line that is a request, or the start of one; None if there is none."""
    scanner = IdScanner()
    scanner.feed(line)
    return scanner.found()
